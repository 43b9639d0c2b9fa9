// The part of validate() that belongs to the general form y_i = sum over j in A(i) of w(q_i, k_j) v_j: which functions make the
// weights, and which region of a grid A(i) is.
#include <algorithm>
#include <cmath>
#include <string>

#include "checks.hpp"

namespace attend::detail {
namespace {

std::string text_of(const grid_size& size) { return extents{size.rows, size.columns}.to_string(); }

/// The largest kernel that can be shifted inside an axis everywhere: as many cells as the smallest class of remainders has.
std::int64_t shifted_room(std::int64_t size, std::int64_t dilation) { return size < dilation ? 1 : size / dilation; }

void check_neighborhood(const problem& p, const neighborhood& near) {
  if (!p.grid) refuse("neighborhood", "a grid beside it", "none");
  const grid_size &kernel = near.kernel, &dilation = near.dilation;
  if (kernel.rows < 1 || kernel.columns < 1 || kernel.rows % 2 == 0 || kernel.columns % 2 == 0)
    refuse("neighborhood", "odd sizes of at least 1", text_of(kernel));
  if (dilation.rows < 1 || dilation.columns < 1) refuse("dilation", "steps of at least 1", text_of(dilation));
  if (near.border != border::clip && near.border != border::shift)
    refuse("border", "clip or shift", std::to_string(static_cast<int>(near.border)));
  if (near.border == border::clip || p.queries == 0) return;
  const grid_size room(shifted_room(p.grid.rows, dilation.rows), shifted_room(p.grid.columns, dilation.columns));
  if (kernel.rows > room.rows || kernel.columns > room.columns) {
    refuse("neighborhood",
           "at most " + text_of(room) + " cells, which can be shifted inside grid " + text_of(p.grid) + " by dilation " +
               text_of(dilation),
           text_of(kernel));
  }
}

void check_relative(problem& p, const array_view& table) {
  check_added_type("relative", table, p);
  const extents& shape = table.shape;
  const bool flat = !p.grid;
  const bool fits = shape.rank() == (flat ? 2 : 3) && (shape[0] == 1 || shape[0] == p.heads) && shape[1] % 2 == 1 &&
                    (flat || shape[2] % 2 == 1);
  if (!fits) {
    const std::string heads = p.heads == 1 ? "1" : std::to_string(p.heads) + " or 1";
    refuse("relative",
           flat ? "shape (" + heads + ", 2R+1), a table of offsets from -R to R"
                : "shape (" + heads + ", 2R+1, 2C+1), a table of row and column offsets on the grid",
           "shape " + shape.to_string());
  }
  check_memory("relative", table);
  p.relative.data = const_cast<void*>(table.data);
  p.relative.type = table.type;
  p.relative.head = shape[0] == 1 ? 0 : table.strides[0];
  p.relative.row = flat ? 0 : table.strides[1];
  p.relative.column = table.strides[flat ? 1 : 2];
  p.relative_rows = flat ? 0 : shape[1] / 2;
  p.relative_columns = shape[flat ? 1 : 2] / 2;
}

}  // namespace

void check_functions(problem& p, const options& how) {
  const compatibility& f = how.compatibility;
  if (name_of(f.kind).empty()) refuse("compatibility", "one of its kinds", std::to_string(static_cast<int>(f.kind)));
  if (name_of(how.normalizer).empty())
    refuse("normalizer", "one of its values", std::to_string(static_cast<int>(how.normalizer)));
  p.compatibility = f.kind;
  p.normalizer = how.normalizer;
  if (f.kind != compatibility_kind::gaussian && f.sigma != 1)
    refuse("sigma", "compatibility gaussian beside it", std::string(name_of(f.kind)));
  if (f.kind != compatibility_kind::additive && f.weights)
    refuse("additive", "compatibility additive beside its weights", std::string(name_of(f.kind)));
  if (f.kind == compatibility_kind::gaussian) {
    if (!(f.sigma > 0) || !std::isfinite(f.sigma)) refuse("sigma", "a finite number above 0", text_of(f.sigma));
    p.sigma = f.sigma;
  }
  if (f.kind == compatibility_kind::additive) {
    if (!f.weights) refuse("additive", "an array of weights", "none");
    check_added_type("additive", f.weights, p);
    if (f.weights.shape != extents{p.width})
      refuse("additive", "the width of q, shape " + extents{p.width}.to_string(), f.weights.shape.to_string());
    check_memory("additive", f.weights);
    p.additive_weights.data = const_cast<void*>(f.weights.data);
    p.additive_weights.type = f.weights.type;
    p.additive_weights.column = f.weights.strides[0];
  }
  const bool by_width = f.kind == compatibility_kind::dot && p.width > 0;
  p.scale = how.scale ? *how.scale : by_width ? 1 / std::sqrt(static_cast<double>(p.width)) : 1;
  if (!std::isfinite(p.scale)) refuse("scale", "a finite number", text_of(p.scale));
}

void check_region(problem& p, const options& how) {
  if (how.grid) {
    std::int64_t cells = 0;
    const bool fits = how.grid.rows >= 0 && how.grid.columns >= 0 &&
                      !__builtin_mul_overflow(how.grid.rows, how.grid.columns, &cells) && cells == p.queries && cells == p.keys;
    if (!fits) {
      refuse("grid", "(rows, columns) with rows * columns = L = S",
             text_of(how.grid) + " for " + std::to_string(p.queries) + " queries and " + std::to_string(p.keys) + " keys");
    }
    p.grid = how.grid;
  }
  const neighborhood& near = how.neighborhood;
  if (!near && (near.dilation.rows != 1 || near.dilation.columns != 1 || near.border != border::clip))
    refuse("neighborhood", "a kernel beside dilation and border", "none");
  if (how.neighborhood) {
    check_neighborhood(p, how.neighborhood);
    p.neighborhood = how.neighborhood;
  }
  if (how.relative) check_relative(p, how.relative);
}

cell_run neighbors(std::int64_t at, std::int64_t size, std::int64_t kernel, std::int64_t dilation, border edge) noexcept {
  const std::int64_t half = kernel / 2;
  if (dilation == 1) {  // the usual case, without divisions
    if (edge == border::clip) return {std::max<std::int64_t>(at - half, 0), at + std::min(half, size - 1 - at), 1};
    const std::int64_t first = std::clamp<std::int64_t>(at - half, 0, size - kernel);
    return {first, first + kernel - 1, 1};
  }
  if (edge == border::clip)
    return {at - std::min(at / dilation, half) * dilation, at + std::min((size - 1 - at) / dilation, half) * dilation,
            dilation};
  const std::int64_t remainder = at % dilation, members = (size - remainder - 1) / dilation + 1;
  const std::int64_t first = remainder + std::clamp<std::int64_t>(at / dilation - half, 0, members - kernel) * dilation;
  return {first, first + (kernel - 1) * dilation, dilation};
}

}  // namespace attend::detail
