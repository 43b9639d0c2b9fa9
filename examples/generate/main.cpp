// attend-generate: continues a text, byte by byte, with a small language model whose keys and values stay in attend's caches.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "caches.hpp"
#include "model.hpp"
#include "sampling.hpp"

namespace generate {

namespace {

using clock = std::chrono::steady_clock;

std::vector<std::size_t> tokens_of(const std::string& text, std::span<const unsigned char> vocabulary) {
  if (text.empty()) throw std::invalid_argument("--prompt: expected a byte or more, got none");
  std::vector<std::size_t> tokens;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    const auto found = std::ranges::find(vocabulary, byte);
    if (found == vocabulary.end()) {
      std::array<char, 16> name{};
      std::snprintf(name.data(), name.size(), byte > 0x20 && byte < 0x7f ? "%c" : "0x%02x", byte);
      throw std::invalid_argument("--prompt: expected bytes that the model knows, got " + std::string(name.data()) +
                                  " at byte " + std::to_string(tokens.size()));
    }
    tokens.push_back(static_cast<std::size_t>(found - vocabulary.begin()));
  }
  return tokens;
}

void write(std::string_view text) {
  if (!(std::cout << text << std::flush)) throw std::runtime_error("standard output: expected a writable stream, got an error");
}

/// What the numbers say is for people; how much of it is attention depends on the length of the text most.
void report(const char* what, std::size_t tokens, std::chrono::duration<double> time, std::chrono::duration<double> attention) {
  std::fprintf(stderr, "%s: %zu tokens, %.0f per second, %.0f %% of the time in attention\n", what, tokens,
               static_cast<double>(tokens) / time.count(), 100 * attention.count() / time.count());
}

void run(const arguments& given) {
  const model network(given.weights);
  const std::vector<std::size_t> prompt = tokens_of(given.prompt, network.vocabulary());
  cache_options kept{.kind = given.cache == "paged" ? cache_kind::paged : cache_kind::contiguous,
                     .tokens = static_cast<std::int64_t>(prompt.size()) + given.tokens,
                     .window = given.window,
                     .threads = given.threads};
  if (!kept.window && kept.tokens > network.context()) kept.window = network.context();
  const std::unique_ptr<caches> memory = make_caches(network.cache(), kept);
  sampler choose(given.sampling);

  write(given.prompt);
  clock::time_point begin = clock::now();
  std::vector<float> scores;
  for (std::span<const std::size_t> rest(prompt); !rest.empty();) {
    const std::size_t count = std::min<std::size_t>(rest.size(), most_tokens_at_a_time);
    scores = network.scores_after(rest.first(count), *memory);
    rest = rest.subspan(count);
  }
  const clock::time_point prefilled = clock::now();
  const std::chrono::duration<double> prefill_attention = memory->time();

  for (std::int64_t left = given.tokens; left > 0; --left) {
    const std::size_t token = choose(scores);
    write({reinterpret_cast<const char*>(&network.vocabulary()[token]), 1});
    if (left > 1) scores = network.scores_after({&token, 1}, *memory);
  }
  const clock::time_point end = clock::now();
  write("\n");
  report("prompt", prompt.size(), prefilled - begin, prefill_attention);
  report("continuation", static_cast<std::size_t>(given.tokens), end - prefilled, memory->time() - prefill_attention);
}

int refuse(std::string problem) {
  std::ranges::replace_if(problem, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  std::cerr << "attend-generate: " << problem << '\n';
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Continues a text with a small language model: attention over caches of keys and values", "attend-generate");
  arguments given;
  describe(app, given);
  try {
    app.parse(argc, argv);
    run(given);
    return 0;
  } catch (const CLI::ParseError& fault) {
    return fault.get_exit_code() == 0 ? app.exit(fault) : refuse(fault.what() + std::string(" (--help explains)"));
  } catch (const std::bad_alloc&) {
    return refuse("not enough memory, expected room for the keys and values of the whole text");
  } catch (const std::exception& fault) {
    return refuse(fault.what());
  }
}

}  // namespace generate

int main(int argc, char** argv) { return generate::main(argc, argv); }
