#include "arguments.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "attend/io.hpp"
#include "attend/version.hpp"

namespace attend::cli {

namespace {

/// Usage lines without CLI11's counts behind a name.
class usage_formatter : public CLI::Formatter {
 public:
  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string name = option->get_name(true) + (option->get_expected_max() > 1 ? " ..." : "");
    return option->get_required() ? name : "[" + name + "]";
  }
};

void describe_input(CLI::App& app, input_arguments& into, bool required) {
  CLI::Option* paths = app.add_option("IN", into.paths, "One .npz or .safetensors, or three .npy in the order q k v");
  paths->expected(1, 3)->type_name("PATH")->required(required);
  app.add_option("--names", into.names, "Tensors of IN that are q, k and v (default q,k,v)")->type_name("Q,K,V");
}

void describe_dtype(CLI::App& app, input_arguments& into) {
  app.add_option("--dtype", into.dtype, "q, k and v are bfloat16, which .npy and .npz hold as raw 2-byte elements")
      ->type_name("bfloat16");
}

void describe_options(CLI::App& app, option_arguments& into) {
  const std::string group = "Options of the call";
  const auto option = [&](const char* name, std::optional<std::string>& value, const char* type, const char* text) {
    app.add_option(name, value, text)->type_name(type)->group(group);
  };
  app.add_flag("--causal", into.causal, "Keys up to the query's position alone")->group(group);
  option("--window", into.window, "L,R", "Keys from position - L to position + R; a side may be none (default: all keys)");
  option(
      "--query-offset", into.query_offset, "N",
      "Position of query 0 among the keys, needed with --causal, --window, ALiBi, or --relative without a grid, where L is not "
      "S: upper_left, lower_right, a number, or one per batch (a,b,.. or a tensor)");
  option("--prefix", into.prefix, "N",
         "Keys before N are visible beside what causal and window allow; one number, or one per batch (a,b,.. or a tensor)");
  option(
      "--query-segments", into.query_segments, "NAME",
      "Segments of the queries, with --key-segments: pairs are allowed where both ids are equal and not negative; a tensor of "
      "IN, the path of a .npy, or a,b,..");
  option("--key-segments", into.key_segments, "NAME", "Segments of the keys: a tensor of IN, the path of a .npy, or a,b,..");
  option("--key-lengths", into.key_lengths, "a,b,..",
         "Keys from this length on are excluded; one number, or one per batch (a,b,.. or a tensor)");
  option("--grid", into.grid, "R,C", "Queries and keys are the cells of a grid of R rows and C columns, row by row");
  option("--neighborhood", into.neighborhood, "N|R,C",
         "Keys in a kernel of so many cells around the query's own, odd numbers; with --grid");
  option("--dilation", into.dilation, "N|R,C", "Steps from one cell of the kernel to the next (default 1)");
  option("--border", into.border, "clip|shift",
         "Where the kernel reaches over the edge: fewer cells (default), or it moves inside");
  option("--mask", into.mask, "NAME", "Booleans, true = attend: a tensor of IN, or the path of a .npy");
  option("--bias", into.bias, "NAME", "Numbers added to the scores: a tensor of IN, or the path of a .npy");
  option("--relative", into.relative, "NAME",
         "A table added to the scores by offset: (H or 1, 2R+1), or with --grid (H or 1, 2R+1, 2C+1); a tensor of IN, or the "
         "path of a .npy");
  option("--scale", into.scale, "X", "Factor of the scores (default 1/sqrt(E) for dot, else 1)");
  option("--softcap", into.softcap, "C", "Scores become C tanh(score / C), before biases");
  // Its value is optional for users alone: see `words_of`.
  option("--alibi", into.alibi, "[NAME]",
         "Slope times distance of query and key is taken off, after biases: slopes (H) from a tensor of IN or the path of a "
         ".npy, else the paper's");
  option("--sinks", into.sinks, "NAME",
         "Logits (H) that join the sum of a row's weights alone: a tensor of IN, or the path of a .npy");
  option("--score", into.score, "STEP,..",
         "What happens to the scaled scores before --softcap, --bias, --relative and --alibi, in this order: softcap:C, "
         "bias:NAME, alibi, alibi:NAME");
  option("--compatibility", into.compatibility, "F",
         "How a query and a key become a score: dot (default), cosine, l1, none, gaussian:SIGMA, or additive:NAME with weights "
         "(E), a tensor of IN or the path of a .npy");
  option("--normalizer", into.normalizer, "NAME",
         "How the scores of a row become weights: softmax (default), mean, sum, sigmoid, relu2, abs");
  option("--dropout", into.dropout, "P", "Weights are dropped with this probability, others scaled by 1 / (1 - P)");
  option("--seed", into.seed, "N", "Of --dropout, from 0 to 2^64 - 1 (default: a random one, which is shown)");
  option("--layout", into.layout, "bhld|blhd", "Order of the axes: heads before length (default), or length before heads");
  app.add_flag("--reproducible", into.reproducible, "One kernel for every number of queries")->group(group);
  option("--threads", into.threads, "N",
         "At most so many threads (default: ATTEND_NUM_THREADS, else every CPU of this process)");
}

void describe_varlen(CLI::App& app, std::optional<std::string>& into) {
  app.add_option("--varlen", into,
                 "Packed sequences: q, k, v are (total, heads, width), and CU_Q, CU_K the boundaries of the sequences in them, "
                 "n + 1 integers from 0; each a tensor of IN, or the path of a .npy")
      ->type_name("CU_Q,CU_K");
}

}  // namespace

std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "--alibi") continue;
    bool none = i + 1 == words.size() || words[i + 1].starts_with('-');
    if (!none) {
      const auto format = io::format_of(words[i + 1]);
      none = format && *format != io::format::npy;
    }
    if (none) words[i] += std::string("=") + slopes_of_paper;
  }
  std::reverse(words.begin(), words.end());
  return words;
}

void describe(CLI::App& app, arguments& into) {
  app.set_version_flag("--version", "attend " + std::string(version()), "Print the version and exit");
  app.require_subcommand(1, 1);
  // Subcommands inherit it.
  app.formatter(std::make_shared<usage_formatter>());

  CLI::App& run = *app.add_subcommand("run", "Attention over tensors q, k, v of files");
  describe_input(run, into.run.input, true);
  describe_dtype(run, into.run.input);
  describe_varlen(run, into.run.varlen);
  run.add_option("-o,--output", into.run.output,
                 "Where the result goes: .npy (out alone), .npz or .safetensors; without it a summary is printed")
      ->type_name("PATH");
  run.add_flag("--lse", into.run.lse, "Also the logarithm of each row's sum");
  run.add_flag("--weights", into.run.weights, "Also the weights of all keys");
  run.add_option("--scores", into.run.scores,
                 "Also the scores of all keys: as scaled, after the soft cap, or as they become weights, masks included")
      ->type_name("scaled|capped|biased");
  describe_options(run, into.run.options);

  CLI::App& check =
      *app.add_subcommand("check", "Compare with the float64 reference; exit code 1 where an error is over the bound");
  describe_input(check, into.check.input, true);
  describe_dtype(check, into.check.input);
  describe_varlen(check, into.check.varlen);
  check.add_flag("--time", into.check.time, "Also the median time, and the fraction of this machine's limit");
  check.add_flag("--json", into.check.json, "Print JSON");
  describe_options(check, into.check.options);

  CLI::App& plan = *app.add_subcommand("plan", "What would run, and why, and the least time at this machine's limits");
  describe_input(plan, into.plan.input, false);
  plan.add_option("--shape", into.plan.shape, "Sizes instead of IN; Ev defaults to E")->type_name("B,H,Hk,L,S,E[,Ev]");
  plan.add_option("--dtype", into.plan.input.dtype,
                  "With --shape (default float32); with IN bfloat16 alone, which .npy and .npz hold as raw 2-byte elements")
      ->type_name("float32|float64|float16|bfloat16");
  // Known, so that its refusal can say why; not in the help.
  describe_varlen(plan, into.plan.varlen);
  plan.get_option("--varlen")->group("");
  plan.add_flag("--json", into.plan.json, "Print JSON");
  describe_options(plan, into.plan.options);

  // In the list of commands; what follows it never comes here (main.cpp).
  app.add_subcommand("bench", "Measure attend against this machine's limits and its peers; needs the Python package");

  CLI::App& info = *app.add_subcommand("info", "Version, instruction sets and threads");
  info.add_flag("--limits", into.info.limits, "Also measure the limits of this machine");
  info.add_flag("--json", into.info.json, "Print JSON");
}

}  // namespace attend::cli
