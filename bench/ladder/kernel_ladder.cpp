// kernel_ladder: the steps of docs/ladder-of-kernels.md, checked or measured. `usage` below says how it is called.
#include <charconv>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "measure.hpp"

namespace {

constexpr std::string_view begin_mark = "<!-- kernel-ladder:begin -->\n", end_mark = "<!-- kernel-ladder:end -->";
constexpr attend::kernel_ladder::sizes measured_shape{
    .heads = 8, .queries = 1024, .keys = 1024, .width = 64, .value_width = 64};
constexpr int right = 0, wrong = 1, misused = 2, skipped = 77;

constexpr const char* usage =
    "usage: kernel_ladder [--rounds N] [--update-docs FILE]   measures every step (default 15 rounds); FILE's table is "
    "renewed\n"
    "       kernel_ladder --check [STEP...]                   compares steps with float64; ends with 1 where one is wrong, "
    "with 77\n"
    "                                                         where none of them can run on this machine\n";

struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

int check(const std::vector<std::string>& names) {
  switch (attend::kernel_ladder::check(names)) {
    case attend::kernel_ladder::verdict::right: return right;
    case attend::kernel_ladder::verdict::skipped: return skipped;
    case attend::kernel_ladder::verdict::wrong: break;
  }
  return wrong;
}

/// A document, and where between its marks the table stands.
struct document {
  explicit document(const std::string& name) : path(name) {
    std::ifstream file(path, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
    const auto mark = text.find(begin_mark);
    begin = mark == text.npos ? mark : mark + begin_mark.size();
    end = text.find(end_mark, begin);
    if (!file || end == text.npos)
      throw usage_error("--update-docs: expected a document with a table between two marks, got " + path);
  }
  void update(const std::string& table) {
    text.replace(begin, end - begin, table);
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) throw std::runtime_error("could not write " + path);
  }

  std::string path, text;
  std::size_t begin, end;
};

int parse_rounds(const std::string& word) {
  int rounds = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), rounds);
  if (error != std::errc() || rest != word.data() + word.size() || rounds < 1 || rounds > 1000)
    throw usage_error("--rounds: expected a number from 1 to 1000, got " + word);
  return rounds;
}

int measure(const std::vector<std::string>& arguments) {
  int rounds = 15;
  std::vector<document> documents;
  for (std::size_t n = 0; n < arguments.size(); n += 2) {
    const std::string& name = arguments[n];
    if (name != "--rounds" && name != "--update-docs")
      throw usage_error("expected --rounds, --update-docs or --check, got " + name);
    if (n + 1 == arguments.size()) throw usage_error(name + ": expected a value, got nothing");
    if (name == "--rounds")
      rounds = parse_rounds(arguments[n + 1]);
    else
      documents.emplace_back(arguments[n + 1]);
  }
  const std::string table = attend::kernel_ladder::measure(measured_shape, rounds);
  std::fputs(table.c_str(), stdout);
  for (document& one : documents) one.update(table);
  return right;
}

int run(std::vector<std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "--help") {
    std::fputs(usage, stdout);
    return right;
  }
  if (arguments.empty() || arguments.front() != "--check") return measure(arguments);
  arguments.erase(arguments.begin());
  return check(arguments);
}

}  // namespace

int main(int count, char** words) {
  try {
    return run({words + 1, words + count});
  } catch (const usage_error& error) {
    std::fprintf(stderr, "kernel_ladder: %s\n%s", error.what(), usage);
    return misused;
  } catch (const attend::argument_error& error) {
    std::fprintf(stderr, "kernel_ladder: %s\n%s", error.what(), usage);
    return misused;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_ladder: %s\n", error.what());
    return wrong;
  }
}
