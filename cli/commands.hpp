// The subcommands: each returns the exit code, prints its result on stdout, and throws what goes wrong.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "attend/attend.hpp"

namespace attend::cli {

int run(const run_arguments& given);
int check(const check_arguments& given);
int plan(const plan_arguments& given);
int info(const info_arguments& given);

/// Becomes the measuring program of the Python package, with these words; comes back only by what it throws.
[[noreturn]] void bench(const std::vector<std::string>& given);

/// Prints JSON, keys in the order in which they were added; NaN and infinite numbers become null.
void print(const nlohmann::ordered_json& facts);

/// A number with so many significant digits.
std::string number(double value, int digits = 3);

nlohmann::ordered_json to_json(const extents& shape);

}  // namespace attend::cli
