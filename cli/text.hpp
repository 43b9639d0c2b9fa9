// Values of the command line, from text to what the library takes. All throw `usage_error`.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "arguments.hpp"
#include "attend/attend.hpp"

namespace attend::cli {

/// Throws "argument: expected ..., got ...".
[[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& received);

std::string in_quotes(const std::string& text);

/// The whole text as a number, or nothing.
template <class Number>
std::optional<Number> parse_number(const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [at, fault] = std::from_chars(text.data(), end, value);
  if (fault != std::errc{} || at != end) return std::nullopt;
  return value;
}

/// The parts between commas.
std::vector<std::string> split(const std::string& text);

/// Whole numbers separated by commas, or nothing where the text is something else.
std::optional<std::vector<std::int64_t>> parse_integers(const std::string& text);

/// The name of a dtype that q, k and v can have.
dtype parse_dtype(const std::string& text);

/// A finite number.
double parse_finite(const std::string& option, const std::string& text);

/// Two sizes R,C, or one for both where `one` allows it.
grid_size parse_sizes(const std::string& option, const std::string& text, bool one);

window parse_window(const std::string& text);
normalizer parse_normalizer(const std::string& text);
layout parse_layout(const std::optional<std::string>& text);
neighborhood parse_neighborhood(const option_arguments& from);
score_stage parse_stage(const std::string& text);

}  // namespace attend::cli
