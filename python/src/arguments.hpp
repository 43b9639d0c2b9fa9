// Python's arguments as attend::options.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "score.hpp"

namespace attend::python {

/// The options of a call.
struct option_arguments {
  static constexpr int count = 26;

  /// In the order of the members below.
  explicit option_arguments(PyObject* const* values);

  nb::handle mask, bias, causal, window, query_offset, prefix, query_segments, key_segments, key_lengths;
  nb::handle grid, neighborhood, dilation, border, relative;
  nb::handle scale, softcap, alibi, sinks, score, compatibility, normalizer;
  nb::handle dropout_p, seed, layout, reproducible, threads;
};

/// `options`, and what its views look at. Lives for as long as the call.
class call_options {
 public:
  call_options() = default;
  /// `inputs`: the dtype of q, k and v.
  call_options(const option_arguments& arguments, dtype inputs);
  call_options(const call_options&) = delete;
  call_options& operator=(const call_options&) = delete;

  /// A mask where the elements are booleans, a bias where they are numbers; `name` is what messages call it.
  void set_mask_or_bias(nb::handle object, std::string_view name);

  options how;

 private:
  array_view numbers(nb::handle object, std::string_view name);
  array_view integers(nb::handle object, std::string_view name);
  batch_integers per_batch(nb::handle value, std::string_view name);
  query_position position(nb::handle value);

  borrowed_arrays borrowed_;
  std::vector<integer_array> integers_;
  std::vector<tensor<std::int64_t>> per_batch_;
  std::vector<tensor<float>> slopes_;
  std::optional<borrowed_array> additive_;
};

}  // namespace attend::python
