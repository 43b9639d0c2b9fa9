// Python's numbers, words and sizes as C++ values. Every message names the argument as the caller wrote it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "arrays.hpp"

namespace attend::python {

/// Throws the TypeError or ValueError "name: expected ..., got ...".
[[noreturn]] void refuse_type(std::string_view name, const std::string& expected, nb::handle got);
[[noreturn]] void refuse_value(std::string_view name, const std::string& expected, nb::handle got);

/// Whether it is True or False, of Python or NumPy.
bool is_flag(nb::handle value);

/// True or False, of Python or NumPy; nothing else is taken for a truth value.
bool read_flag(nb::handle value, std::string_view name);

/// Whether it is a str of exactly this text.
bool is_word(nb::handle value, std::string_view word);

/// None, or a number.
std::optional<double> read_number(nb::handle value, std::string_view name);

/// A finite number above 0.
double read_positive(nb::handle value, std::string_view name);

/// A number from 0 to 1.
double read_probability(nb::handle value, std::string_view name);

/// Whether it is what Python itself would take as an integer, and no boolean.
bool is_integer(nb::handle value);

/// An integer that fits 64 bits.
std::int64_t read_integer(nb::handle value, std::string_view name);

/// An integer from 0 to 2^64 - 1.
std::uint64_t read_seed(nb::handle value);

/// An int from 1 on.
int read_thread_count(nb::handle value);

/// A pair (left, right) of integers or None.
window read_window(nb::handle value);

/// "bhld" or "blhd".
layout read_layout(nb::handle value);

/// The dtype of this name that inputs may have.
dtype dtype_named(std::string_view name);

/// A sequence of sizes.
extents read_shape(nb::handle value, std::string_view name);

/// A list or tuple as a NumPy array of integers; what it holds is checked where it is read.
nb::object as_integer_array(nb::handle list, std::string_view name);

}  // namespace attend::python
