// Merging partial results. Per row, the weights of the parts are found in float64; then columns are summed block by block, part
// after part.
#include "attend/merge.hpp"

#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "checks.hpp"
#include "overlap.hpp"
#include "rows.hpp"
#include "scratch.hpp"

namespace attend {
namespace {

using detail::refuse;
using detail::refuse_type;
using std::to_string;

constexpr double none = -std::numeric_limits<double>::infinity();

std::string at(const char* list, std::size_t part) { return std::string(list) + "[" + to_string(part) + "]"; }

extents without_last(const extents& shape) {
  extents rows;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows.push_back(shape[axis]);
  return rows;
}

void check_part(const std::string& name, const array_view& x, dtype type, const char* why, const extents& shape) {
  if (!x) refuse(name.c_str(), "an array", "none");
  if (x.type != type) refuse_type(name.c_str(), std::string(name_of(type)) + why, x.type);
  if (x.shape != shape)
    refuse(name.c_str(), "shape " + shape.to_string() + ", by that of outs[0]", "shape " + x.shape.to_string());
  detail::check_memory(name.c_str(), x);
}

void check_result(const char* name, const mutable_array_view& x, dtype type, const extents& shape,
                  std::span<const array_view> outs, std::span<const array_view> lses) {
  if (x.type != type) refuse_type(name, std::string(name_of(type)), x.type);
  if (x.shape != shape) refuse(name, "shape " + shape.to_string(), "shape " + x.shape.to_string());
  detail::check_places(name, x);
  if (shape.count() == 0) return;
  for (std::size_t part = 0; part < outs.size(); ++part) {
    for (const bool logs : {false, true}) {
      if (detail::overlaps(x, logs ? lses[part] : outs[part]))
        refuse(name, "memory apart from every part", "an array that overlaps " + at(logs ? "lses" : "outs", part));
    }
  }
}

void check_merge(std::span<const array_view> outs, std::span<const array_view> lses, const outputs& results) {
  if (outs.empty() || outs.size() != lses.size())
    refuse("outs, lses", "as many of each, at least one", to_string(outs.size()) + " and " + to_string(lses.size()));
  const array_view& first = outs[0];
  if (!first) refuse("outs[0]", "an array", "none");
  if (!detail::is_input_type(first.type)) refuse_type("outs[0]", detail::input_types, first.type);
  if (first.shape.rank() < 1) refuse("outs[0]", "rank 1 to 8", "shape ()");
  const extents rows = without_last(first.shape);
  const dtype logs = accumulator_of(first.type);
  for (std::size_t part = 0; part < outs.size(); ++part) {
    check_part(at("outs", part), outs[part], first.type, ", the dtype of outs[0]", first.shape);
    check_part(at("lses", part), lses[part], logs, logs == first.type ? ", the dtype of outs[0]" : "", rows);
  }
  if (results.weights) refuse("weights", "none: parts hold no weights that could be merged", "an array");
  if (results.scores) refuse("scores", "none: parts hold no scores that could be merged", "an array");
  if (results.out) check_result("out", results.out, first.type, first.shape, outs, lses);
  if (results.lse) check_result("lse", results.lse, logs, rows, outs, lses);
  if (results.out && results.lse && detail::overlaps(results.out, results.lse))
    refuse("lse", "memory apart from the other results", "an array that overlaps out");
}

/// One part of a row: where its columns begin, how far they are apart in bytes, and its logarithm, later its weight.
struct part_row {
  const char* out;
  std::int64_t step;
  double weight;
};

/// Turns logarithms into weights and drops the parts that add nothing. The logarithm of the sum.
double weigh(part_row* parts, std::size_t& count) noexcept {
  double top = none;
  std::size_t kept = 0;
  for (std::size_t part = 0; part < count; ++part) {
    const double lse = parts[part].weight;
    if (lse == none) continue;
    if (lse > top) top = lse;  // a NaN makes the sum NaN, whatever the top
    parts[kept++] = parts[part];
  }
  count = kept;
  if (kept == 0) return none;
  double sum = 0;
  for (std::size_t part = 0; part < kept; ++part) sum += parts[part].weight = std::exp(parts[part].weight - top);
  for (std::size_t part = 0; part < kept; ++part) parts[part].weight /= sum;
  return top + std::log(sum);
}

/// The mean of finite numbers lies among them: brings back a sum that rounding took past the largest float64.
template <class T>
double among_parts(const part_row* parts, std::size_t count, std::int64_t column, double sum) noexcept {
  double low = std::numeric_limits<double>::infinity(), high = none;
  for (std::size_t part = 0; part < count; ++part) {
    const auto value = static_cast<double>(detail::load<T>(parts[part].out + column * parts[part].step));
    if (!std::isfinite(value) || !std::isfinite(parts[part].weight)) return sum;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  return count == 0 ? sum : std::min(std::max(sum, low), high);
}

template <class T>
void merge_columns(const part_row* parts, std::size_t count, std::int64_t columns, char* out, std::int64_t out_step) noexcept {
  constexpr std::int64_t block = 64, adjacent = sizeof(T);
  for (std::int64_t begin = 0; begin < columns; begin += block) {
    const std::int64_t width = std::min(block, columns - begin);
    double sums[block] = {};  // 0 + -0 is 0: zeros have no sign, as attention's
    for (std::size_t part = 0; part < count; ++part) {
      const auto [row, step, weight] = parts[part];
      const char* const from = row + begin * step;
      if (step == adjacent) {
        for (std::int64_t c = 0; c < width; ++c) sums[c] += weight * static_cast<double>(detail::load<T>(from + c * adjacent));
      } else {
        for (std::int64_t c = 0; c < width; ++c) sums[c] += weight * static_cast<double>(detail::load<T>(from + c * step));
      }
    }
    for (std::int64_t c = 0; c < width; ++c) {
      const double sum = std::isinf(sums[c]) ? among_parts<T>(parts, count, begin + c, sums[c]) : sums[c];
      detail::store(out + (begin + c) * out_step, static_cast<T>(sum));
    }
  }
}

/// Rows [first, last) of the merged results.
template <class T>
void merge_rows(std::span<const array_view> outs, std::span<const array_view> lses, const outputs& results, std::int64_t first,
                std::int64_t last) {
  using L = accumulator<T>;
  const extents& shape = outs[0].shape;
  const int axes = shape.rank() - 1;
  auto* const parts =
      reinterpret_cast<part_row*>(detail::thread_scratch(static_cast<std::int64_t>(outs.size() * sizeof(part_row))));
  for (std::int64_t row = first; row < last; ++row) {
    const auto place = [&](const auto& x) { return detail::offset_at(shape, x.strides, axes, row) * size_of(x.type); };
    std::size_t count = outs.size();
    for (std::size_t part = 0; part < count; ++part) {
      const char* const lse = static_cast<const char*>(lses[part].data) + place(lses[part]);
      parts[part] = {nullptr, 0, static_cast<double>(detail::load<L>(lse))};
      if (!results.out || shape[axes] == 0) continue;
      parts[part].out = static_cast<const char*>(outs[part].data) + place(outs[part]);
      parts[part].step = outs[part].strides[axes] * std::int64_t{sizeof(T)};
    }
    const double lse = weigh(parts, count);
    if (results.lse) detail::store(static_cast<char*>(results.lse.data) + place(results.lse), static_cast<L>(lse));
    if (!results.out || shape[axes] == 0) continue;
    merge_columns<T>(parts, count, shape[axes], static_cast<char*>(results.out.data) + place(results.out),
                     results.out.strides[axes] * std::int64_t{sizeof(T)});
  }
}

}  // namespace

void merge(std::span<const array_view> outs, std::span<const array_view> lses, const outputs& results) {
  check_merge(outs, lses, results);
  if (!results.out && !results.lse) return;
  const extents& shape = outs[0].shape;
  const double columns = results.out ? static_cast<double>(shape[shape.rank() - 1]) : 0;
  const double cost = static_cast<double>(outs.size()) * (columns / 2 + 20);
  detail::for_each_run(without_last(shape).count(), cost, num_threads(), [&](std::int64_t first, std::int64_t last) {
    detail::with_type(outs[0].type, [&]<class T>(T) { merge_rows<T>(outs, lses, results, first, last); });
  });
}

}  // namespace attend
