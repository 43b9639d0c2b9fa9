// What the command line says, as text, before anything is opened.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace attend::cli {

/// Bad usage or input: one line on stderr, exit code 2.
class usage_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where the tensors are.
struct input_arguments {
  std::vector<std::string> paths;    ///< one .npz or .safetensors, or three .npy
  std::optional<std::string> names;  ///< Q,K,V
  std::optional<std::string> dtype;  ///< of q, k and v where no file says it
};

/// The options of a call. Values stay text here; `call.cpp` gives them meaning, with messages of one kind.
struct option_arguments {
  bool causal = false;
  std::optional<std::string> window, query_offset, prefix, query_segments, key_segments, key_lengths, grid, neighborhood,
      dilation, border, mask, bias, relative, scale, softcap, alibi, sinks, score, compatibility, normalizer, dropout, seed,
      layout, threads;
  bool reproducible = false;
};

struct run_arguments {
  input_arguments input;
  option_arguments options;
  std::optional<std::string> varlen, output, scores;
  bool lse = false, weights = false;
};

struct check_arguments {
  input_arguments input;
  option_arguments options;
  std::optional<std::string> varlen;
  bool time = false, json = false;
};

struct plan_arguments {
  input_arguments input;
  option_arguments options;
  std::optional<std::string> varlen, shape;
  bool json = false;
};

struct info_arguments {
  bool limits = false, json = false;
};

/// The subcommands, each with its own copy of what it was given.
struct arguments {
  run_arguments run;
  check_arguments check;
  plan_arguments plan;
  info_arguments info;
};

/// The value that --alibi has without one.
inline constexpr const char* slopes_of_paper = "paper";

/// The words of the command line as CLI11 parses them, the last one first. `--alibi` gets its value where none follows: another option
/// is none, and nor is a file of many tensors, which can only be IN.
std::vector<std::string> words_of(int argc, char** argv);

/// Describes the whole command line to `app`; parsing fills `into`.
void describe(CLI::App& app, arguments& into);

}  // namespace attend::cli
