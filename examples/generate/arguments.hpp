// What the command takes.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "sampling.hpp"

namespace generate {

struct arguments {
  std::string weights = ATTEND_GENERATE_WEIGHTS, prompt, cache = "contiguous";
  std::int64_t tokens = 200;  ///< to add
  std::optional<std::int64_t> window;
  int threads = 0;
  sampling_options sampling;
};

/// Makes the options of `app` write to `into`. They refuse what they cannot take when they are parsed.
void describe(CLI::App& app, arguments& into);

}  // namespace generate
