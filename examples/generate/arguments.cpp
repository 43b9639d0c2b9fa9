#include "arguments.hpp"

#include <charconv>
#include <cmath>
#include <system_error>

namespace generate {

namespace {

/// A check of an option's text, in the words of the library.
template <class Condition>
CLI::Validator expected(const std::string& what, Condition holds) {
  return CLI::Validator([=](const std::string& text) { return holds(text) ? "" : "expected " + what + ", got " + text; }, "");
}

/// Whether a text is a number, wholly, and `holds` of it.
template <class Number, class Condition>
auto number(Condition holds) {
  return [=](const std::string& text) {
    Number value{};
    const char* const end = text.data() + text.size();
    const auto [stop, fault] = std::from_chars(text.data(), end, value);
    return fault == std::errc() && stop == end && holds(value);
  };
}

}  // namespace

void describe(CLI::App& app, arguments& into) {
  const CLI::Validator natural = expected("a whole number from 1 to 2^40",
                                          number<std::int64_t>([](auto n) { return n >= 1 && n <= std::int64_t{1} << 40; }));
  const CLI::Validator positive =
      expected("a number above 0", number<double>([](double x) { return x > 0 && std::isfinite(x); }));
  const CLI::Validator threads = expected("a whole number from 1 on", number<int>([](int n) { return n >= 1; }));
  const CLI::Validator seed = expected("a whole number from 0 to 2^64 - 1", number<std::uint64_t>([](auto) { return true; }));
  const CLI::Validator kind =
      expected("contiguous or paged", [](const std::string& text) { return text == "contiguous" || text == "paged"; });

  app.add_option("--prompt", into.prompt, "Text to continue")->type_name("TEXT")->required();
  app.add_option("--tokens", into.tokens, "Bytes to add (default 200)")->type_name("N")->check(natural);
  app.add_option("--weights", into.weights, "A file of train.py (default: the model of this example)")->type_name("PATH");

  const std::string choice = "What comes next", memory = "What is kept";
  app.add_flag("--greedy", into.sampling.greedy, "Always the likeliest byte")->group(choice);
  const auto drawn = [&](const char* name, auto& value, const char* type, const char* text, const CLI::Validator& check) {
    app.add_option(name, value, text)->type_name(type)->check(check)->group(choice);
    app.get_option("--greedy")->excludes(name);
  };
  drawn("--temperature", into.sampling.temperature, "T", "Below 1, likely bytes become likelier (default 0.8)", positive);
  drawn("--top-k", into.sampling.top_k, "K", "Draw from the K likeliest bytes (default: from all)", natural);
  drawn("--seed", into.sampling.seed, "S", "Another seed, another text (default 0)", seed);

  const auto kept = [&](const char* name, const char* type, const char* text, const CLI::Validator& check, auto& value) {
    app.add_option(name, value, text)->type_name(type)->check(check)->group(memory);
  };
  kept("--cache", "KIND", "contiguous (default) or paged", kind, into.cache);
  kept("--window", "W",
       "Each byte sees the W newest alone; contiguous caches become rings (default: all; of a text longer than those of "
       "training, "
       "as many as these had)",
       natural, into.window);
  kept("--threads", "N", "At most so many threads for attention (default: attend's own number)", threads, into.threads);
}

}  // namespace generate
