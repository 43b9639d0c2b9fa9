// attend: the command. Exit codes: 0 done, 1 a check failed, 2 bad usage or input. Every error is one line on stderr.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "arguments.hpp"
#include "commands.hpp"

namespace attend::cli {

void print(const nlohmann::ordered_json& facts) {
  // Paths may hold bytes that are not UTF-8; they are replaced, not refused.
  std::cout << facts.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

std::string number(double value, int digits) {
  // Whole numbers of moderate size read better without an exponent.
  const bool whole = std::abs(value) >= std::pow(10.0, digits) && std::abs(value) < 1e9;
  char text[64];
  whole ? std::snprintf(text, sizeof text, "%.0f", value) : std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

nlohmann::ordered_json to_json(const extents& shape) {
  auto sizes = nlohmann::ordered_json::array();
  for (int axis = 0; axis < shape.rank(); ++axis) sizes.push_back(shape[axis]);
  return sizes;
}

namespace {

int refuse(const std::string& command, std::string problem) {
  std::replace_if(problem.begin(), problem.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  std::cerr << command << ": " << problem << '\n';
  return 2;
}

/// One line for what the parser did not accept.
int refuse(const CLI::App& app, const CLI::ParseError& fault, int argc, char** argv) {
  if (app.get_subcommands().empty()) {
    return refuse("attend", std::string("expected run, check, plan, bench or info (attend --help explains), got ") +
                                (argc > 1 ? argv[1] : "nothing"));
  }
  const std::string command = "attend " + app.get_subcommands().front()->get_name();
  return refuse(command, std::string(fault.what()) + "; expected what " + command + " --help lists");
}

int execute(const CLI::App& app, const arguments& given) {
  if (app.got_subcommand("run")) return run(given.run);
  if (app.got_subcommand("check")) return check(given.check);
  if (app.got_subcommand("plan")) return plan(given.plan);
  return info(given.info);
}

int main(int argc, char** argv) {
  CLI::App app("Exact attention for CPUs over .npy, .npz and .safetensors files", "attend");
  arguments given;
  describe(app, given);
  std::string command = "attend";
  try {
    if (argc > 1 && std::string(argv[1]) == "bench") {  // whose options are the program's own
      command += " bench";
      bench({argv + 2, argv + argc});
    }
    app.parse(words_of(argc, argv));
    command += " " + app.get_subcommands().front()->get_name();
    const int code = execute(app, given);
    // A full disk or a closed pipe behind stdout shows only here.
    if (!std::cout.flush()) return refuse(command, "standard output: expected a writable stream, got an error");
    return code;
  } catch (const CLI::ParseError& fault) {
    if (fault.get_exit_code() == 0) return app.exit(fault);
    return refuse(app, fault, argc, argv);
  } catch (const std::bad_alloc&) {
    return refuse(command, "not enough memory, expected room for the inputs and the result");
  } catch (const std::exception& fault) {
    return refuse(command, fault.what());
  }
}

}  // namespace

}  // namespace attend::cli

int main(int argc, char** argv) { return attend::cli::main(argc, argv); }
