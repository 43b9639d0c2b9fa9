#include "overlap.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace attend::detail {
namespace {

struct axis {
  std::int64_t size, step;  // in bytes
};

/// An array as its lowest address and axes of positive step, outermost (largest step) first; axes of size 1 are gone.
struct footprint {
  std::int64_t low = 0;
  std::int64_t item = 0;
  axis axes[max_rank] = {};
  int rank = 0;

  /// Bytes from the first to past the last element of the axes from `first` inward.
  std::int64_t extent(int first) const noexcept {
    std::int64_t bytes = item;
    for (int i = first; i < rank; ++i) bytes += (axes[i].size - 1) * axes[i].step;
    return bytes;
  }
};

footprint footprint_of(const array_view& x) noexcept {
  footprint f;
  f.low = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.data));
  f.item = size_of(x.type);
  for (int i = 0; i < x.shape.rank(); ++i) {
    if (x.shape[i] == 1) continue;
    const std::int64_t step = x.strides[i] * f.item;
    if (step < 0) f.low += (x.shape[i] - 1) * step;
    f.axes[f.rank++] = {x.shape[i], std::abs(step)};
  }
  std::sort(f.axes, f.axes + f.rank, [](const axis& a, const axis& b) { return a.step > b.step; });
  // Axes that continue each other without a gap are one; those of step 0 add no place.
  int kept = 0;
  for (int i = 0; i < f.rank; ++i) {
    if (f.axes[i].step == 0) continue;
    if (kept > 0 && f.axes[kept - 1].step == f.axes[i].size * f.axes[i].step) {
      f.axes[kept - 1] = {f.axes[kept - 1].size * f.axes[i].size, f.axes[i].step};
    } else {
      f.axes[kept++] = f.axes[i];
    }
  }
  f.rank = kept;
  if (f.rank > 0 && f.axes[f.rank - 1].step == f.item) f.item *= f.axes[--f.rank].size;  // a run of bytes
  return f;
}

/// Whether x, moved by `shift` bytes against y, touches it; axes from `i` and `j` inward.
bool touches(const footprint& x, int i, const footprint& y, int j, std::int64_t shift, int& budget) noexcept {
  if (shift >= y.extent(j) || -shift >= x.extent(i)) return false;
  if (i == x.rank && j == y.rank) return true;
  if (--budget < 0) return true;
  if (i < x.rank && j < y.rank && x.axes[i].step == y.axes[j].step) {
    // Only the difference of the two indices counts, and few differences bring the inner parts together.
    const std::int64_t step = x.axes[i].step;
    const std::int64_t lowest = std::max(-(y.axes[j].size - 1), -(x.extent(i + 1) + shift) / step - 1);
    const std::int64_t highest = std::min(x.axes[i].size - 1, (y.extent(j + 1) - shift) / step + 1);
    for (std::int64_t d = lowest; d <= highest; ++d) {
      if (touches(x, i + 1, y, j + 1, shift + d * step, budget)) return true;
    }
    return false;
  }
  const bool first = j == y.rank || (i < x.rank && x.axes[i].step > y.axes[j].step);
  const axis along = first ? x.axes[i] : y.axes[j];
  const std::int64_t own = first ? x.extent(i + 1) : y.extent(j + 1), other = first ? y.extent(j) : x.extent(i);
  const std::int64_t start = first ? shift : -shift;  // of the array that is walked, against the other
  const std::int64_t lowest = std::max<std::int64_t>(0, -(own + start) / along.step);
  const std::int64_t highest = std::min(along.size - 1, (other - start) / along.step + 1);
  for (std::int64_t n = lowest; n <= highest; ++n) {
    if (first ? touches(x, i + 1, y, j, shift + n * along.step, budget)
              : touches(x, i, y, j + 1, shift - n * along.step, budget))
      return true;
  }
  return false;
}

}  // namespace

bool byte_span(const array_view& x) noexcept {
  std::int64_t down = 0, up = size_of(x.type);
  for (int i = 0; i < x.shape.rank(); ++i) {
    std::int64_t bytes;
    if (__builtin_mul_overflow(x.strides[i], size_of(x.type), &bytes) || __builtin_mul_overflow(bytes, x.shape[i] - 1, &bytes))
      return false;
    if (__builtin_add_overflow(bytes < 0 ? down : up, bytes, bytes < 0 ? &down : &up)) return false;
  }
  std::int64_t span;
  return !__builtin_sub_overflow(up, down, &span);
}

bool distinct_elements(const array_view& x) noexcept {
  const footprint f = footprint_of(x);
  for (int i = 0; i < f.rank; ++i) {
    if (f.axes[i].step < f.extent(i + 1)) return false;
  }
  for (int i = 0; i < x.shape.rank(); ++i) {
    if (x.shape[i] > 1 && x.strides[i] == 0) return false;
  }
  return true;
}

bool overlaps(const array_view& x, const array_view& y) noexcept {
  for (const array_view* a : {&x, &y}) {
    for (int i = 0; i < a->shape.rank(); ++i) {
      if (a->shape[i] == 0) return false;
    }
  }
  const footprint a = footprint_of(x), b = footprint_of(y);
  int budget = 100000;
  return touches(a, 0, b, 0, a.low - b.low, budget);
}

}  // namespace attend::detail
