// Python's arguments as attend::options. Every message names the argument as the caller wrote it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "arrays.hpp"

namespace attend::python {

/// The options of a call, in the order in which python/attend/__init__.py packs them into one tuple.
struct option_arguments {
  explicit option_arguments(const nb::tuple& packed);

  nb::handle mask, bias, causal, window, query_offset, prefix, key_lengths;
  nb::handle grid, neighborhood, dilation, border, relative;
  nb::handle scale, compatibility, normalizer, layout, reproducible, threads;
};

/// `options`, and what its views look at. Lives for as long as the call.
class call_options {
 public:
  call_options() = default;
  explicit call_options(const option_arguments& arguments);
  call_options(const call_options&) = delete;
  call_options& operator=(const call_options&) = delete;

  /// A mask where the elements are booleans, a bias where they are numbers; `name` is what messages call it.
  void set_mask_or_bias(nb::handle object, std::string_view name);

  options how;

 private:
  batch_integers per_batch(nb::handle value, std::string_view name, tensor<std::int64_t>& storage);
  query_position position(nb::handle value);

  std::optional<borrowed_array> mask_, bias_, relative_, additive_;
  tensor<std::int64_t> query_offset_, prefix_, key_lengths_;
};

/// Throws the TypeError or ValueError "name: expected ..., got ...".
[[noreturn]] void refuse_type(std::string_view name, const std::string& expected, nb::handle got);
[[noreturn]] void refuse_value(std::string_view name, const std::string& expected, nb::handle got);

/// True or False, of Python or NumPy; nothing else is taken for a truth value.
bool read_flag(nb::handle value, std::string_view name);

/// None, or a number.
std::optional<double> read_number(nb::handle value, std::string_view name);

/// An integer that fits 64 bits.
std::int64_t read_integer(nb::handle value, std::string_view name);

/// Whether it is what Python itself would take as an integer, and no boolean.
bool is_integer(nb::handle value);

/// A finite number above 0.
double read_positive(nb::handle value, std::string_view name);

/// An int from 1 on.
int read_thread_count(nb::handle value);

/// A sequence of sizes.
extents read_shape(nb::handle value, std::string_view name);

}  // namespace attend::python
