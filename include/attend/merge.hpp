// Merging: attention over all keys from attention over parts of them.
//
// ```cpp
// attend::tensor<float> q({8, 16, 64}, 0.1f), first({8, 100, 64}, 0.2f), second({8, 28, 64}, 0.3f);
// attend::tensor<float> y[2], lse[2];
// for (int part = 0; part < 2; ++part) {
//   y[part] = attend::tensor<float>({8, 16, 64}), lse[part] = attend::tensor<float>({8, 16});
//   const attend::tensor<float>& keys = part == 0 ? first : second;
//   attend::attention(q, keys, keys, {.out = y[part], .lse = lse[part]});
// }
// const auto [out, log_sum] = attend::merge(y, lse);  // what attention over all 128 keys gives
// ```
#pragma once

#include <ranges>
#include <span>
#include <vector>

#include "attend/attention.hpp"

namespace attend {

/// Results over disjoint sets of keys become the result over all of them: lse = log sum_p exp(lse_p), y = sum_p exp(lse_p -
/// lse) y_p.
///
/// Shapes: at least one part; every out (..., Ev), every lse that shape without its last axis; any strides. All outs of one
/// dtype; the lses are float32, or float64 beside float64. `results.out` and `results.lse` (either or both) have the shape and
/// dtype of the parts; weights and scores are refused. Packed results (total, H, Ev) with (total, H) merge alike;
/// results in layout blhd, whose lse is (..., H, L), need a view that puts their axes in one order.
///
/// A part whose lse is -inf adds nothing, whatever its out holds; where all are, y is 0 and lse -inf. Where attention had
/// sinks, one part alone carries them. NaN and +inf in an lse give NaN. Computed in float64 and rounded once, so one part comes
/// out as it went in. Work is spread over `num_threads()` threads. Throws `argument_error`, `std::bad_alloc`.
void merge(std::span<const array_view> outs, std::span<const array_view> lses, const outputs& results);

/// Attention and its LSE that the library allocated.
template <class T>
struct merged {
  tensor<T> out;
  tensor<accumulator<T>> lse;
};

namespace detail {
template <class Range>
using element_of = typename std::remove_cvref_t<std::ranges::range_reference_t<const Range&>>::value_type;
}  // namespace detail

/// Merged results in memory that the library allocates, row-major, from ranges of `tensor` or `tensor_view`.
template <std::ranges::input_range Outs, std::ranges::input_range Lses>
  requires tensor_like<std::ranges::range_reference_t<const Outs&>> && tensor_like<std::ranges::range_reference_t<const Lses&>>
merged<detail::element_of<Outs>> merge(const Outs& outs, const Lses& lses) {
  using T = detail::element_of<Outs>;
  std::vector<array_view> parts, logs;
  for (const auto& out : outs) parts.emplace_back(out);
  for (const auto& lse : lses) logs.emplace_back(lse);
  merge(parts, logs, outputs{});  // checks, before anything is allocated
  merged<T> all{tensor<T>(parts[0].shape), tensor<accumulator<T>>(logs[0].shape)};
  merge(parts, logs, outputs{.out = all.out, .lse = all.lse});
  return all;
}

}  // namespace attend
