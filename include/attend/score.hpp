// Score functions: what happens to a score between the compatibility function and the weight.
//
// ```cpp
// attend::tensor<float> q({1, 8, 128, 64}, 0.1f), mine({8, 1, 128}, 0.5f);
// auto y = attend::attention(q, q, q, {.softcap = 30.0, .alibi = true});  // the usual order: soft cap, bias, ALiBi
// auto z = attend::attention(q, q, q, {.score = {attend::bias(mine), attend::soft_cap(30.0)}});  // another order
// ```
#pragma once

#include <cstdint>
#include <initializer_list>

#include "attend/tensor.hpp"

namespace attend {

/// Slopes of ALiBi, `score - slope_h * |i + query_offset - j|`: none, the paper's for the H heads of the call, or given.
class alibi_slopes {
 public:
  alibi_slopes() = default;
  /// true: 2^(-8h/H) for h = 1 .. H; where H is no power of two, those of the largest power of two below it, then every other one
  /// of twice that number of heads (Press et al., Train Short, Test Long, 2022).
  alibi_slopes(bool of_paper) : of_paper_(of_paper) {}
  /// (H), the input's dtype or float32; read, not kept.
  alibi_slopes(const array_view& slopes) : slopes_(slopes) {}
  template <tensor_like X>
  alibi_slopes(X&& slopes) : slopes_(slopes) {}

  explicit operator bool() const noexcept { return of_paper_ || slopes_; }
  const array_view& given() const noexcept { return slopes_; }  ///< not given where the slopes are the paper's

 private:
  bool of_paper_ = false;
  array_view slopes_;
};

/// One element of a score list; made by `soft_cap`, `alibi` and `bias`.
struct score_step {
  enum class kind : std::uint8_t { soft_cap, bias, alibi };
  kind what = kind::soft_cap;
  double cap = 0;            ///< of soft_cap
  array_view numbers = {};   ///< of bias
  alibi_slopes slopes = {};  ///< of alibi
};

/// `cap * tanh(score / cap)` for a finite cap above 0.
inline score_step soft_cap(double cap) { return {.what = score_step::kind::soft_cap, .cap = cap}; }

/// `score + numbers`, broadcast by NumPy's rule against (..., H, L, S), of the input's dtype or float32. -inf excludes the key, whatever
/// follows.
inline score_step bias(const array_view& numbers) { return {.what = score_step::kind::bias, .numbers = numbers}; }

/// `score - slope_h * |i + query_offset - j|`; by default the paper's slopes.
inline score_step alibi(const alibi_slopes& slopes = true) { return {.what = score_step::kind::alibi, .slopes = slopes}; }

/// Score functions in the order in which they see the scaled score; at most `max_size`.
class score_list {
 public:
  static constexpr int max_size = 8;

  score_list() = default;
  /// Throws `argument_error` for more than `max_size`.
  score_list(std::initializer_list<score_step> steps);
  /// Appends one. Throws `argument_error` where there are `max_size` already.
  void push_back(const score_step& step);

  int size() const noexcept { return size_; }
  const score_step* begin() const noexcept { return steps_; }
  const score_step* end() const noexcept { return steps_ + size_; }

 private:
  score_step steps_[max_size];
  int size_ = 0;
};

}  // namespace attend
