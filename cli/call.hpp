// A call as the command line describes it: operands from files, and the library's options.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "inputs.hpp"

namespace attend::cli {

/// Options of the library and the arrays that they name.
class call_options {
 public:
  call_options(const option_arguments& from, inputs& tensors);

  options& how() noexcept { return how_; }
  const options& how() const noexcept { return how_; }
  /// Threads that a call may use.
  int threads() const { return how_.threads > 0 ? how_.threads : num_threads(); }

 private:
  /// A list that lives as long as the call.
  tensor<std::int64_t>& keep(const std::vector<std::int64_t>& values);
  template <class Integers>
  Integers integers(const std::string& argument, const std::string& option, const std::string& text, inputs& tensors);
  array_view segments(const std::string& argument, const std::string& option, const std::string& text, inputs& tensors);
  score_step parse_step(const std::string& text, inputs& tensors);

  void set_regions(const option_arguments& from, inputs& tensors);
  void set_scores(const option_arguments& from, inputs& tensors);
  void set_dropout(const option_arguments& from);

  options how_;
  std::deque<tensor<std::int64_t>> lists_;
};

/// Calls `work` with an empty tensor of what q, k and v hold; their type has been checked.
template <class Work>
void with_element_type(dtype type, const Work& work) {
  if (type == dtype::f64) return work(tensor<double>());
  if (type == dtype::f16) return work(tensor<float16>());
  if (type == dtype::bf16) return work(tensor<bfloat16>());
  work(tensor<float>());
}

/// q, k and v, with the boundaries of packed sequences where there are any: each call of the library by its entry point for these.
struct operands {
  array_view q, k, v;
  array_view query_starts, key_starts;  ///< of packed sequences

  /// Loads q, k and v. Refuses options that have no meaning for packed sequences.
  operands(inputs& tensors, const std::optional<std::string>& varlen, const option_arguments& options);

  bool packed() const noexcept { return static_cast<bool>(query_starts); }
  extents output_shape(const options& how) const;
  void compute(const outputs& results, const options& how) const;
  reference::result truth(const options& how) const;
  tensor<double> error_bound(const options& how, const reference::result& truth) const;
};

}  // namespace attend::cli
