#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "attend/version.hpp"
#include "limits.hpp"

namespace attend::kernel_ladder {
namespace {

constexpr double shortest_seconds = 0.05;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...) {
  char buffer[512];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(buffer, sizeof buffer, format, values);
  va_end(values);
  return buffer;
}

/// Three significant digits without an exponent; a dash for what is no number.
std::string digits(double x) {
  if (std::isnan(x)) return "–";
  return text("%.*f", x >= 100 ? 0 : x >= 10 ? 1 : 2, x);
}

/// The median of what is a number among these, or NaN.
double median(std::vector<double> samples) {
  std::erase_if(samples, [](double x) { return std::isnan(x); });
  if (samples.empty()) return nan;
  std::sort(samples.begin(), samples.end());
  const std::size_t half = samples.size() / 2;
  return samples.size() % 2 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
}

/// A calculation, and its mean time in each round.
struct timing {
  std::unique_ptr<calculation> work;
  int calls = 1;  // in one round
  std::vector<double> seconds;

  void run() {
    using clock = std::chrono::steady_clock;
    const auto begin = clock::now();
    for (int n = 0; n < calls; ++n) work->run();
    seconds.push_back(std::chrono::duration<double>(clock::now() - begin).count() / calls);
  }
};

/// One contender: the whole problem, the same without scores to compute (E = 0), and of that with half of the values.
struct record {
  const contender* who;
  timing whole, no_scores, half_values;  // empty where it cannot run here
  std::vector<double> peak, clock;       // of each round

  bool is_here() const { return whole.work != nullptr; }
};

timing prepare(const contender& who, const tasks& work) {
  timing one{.work = who.prepare(work), .seconds = {}};
  one.run();
  if (const double part = one.work->part_of_bound(); !(part <= 1))
    throw std::runtime_error(std::string(who.name) + ": wrong, " + text("%.3g", part) + " times the bound");
  one.calls = std::max(1, static_cast<int>(std::ceil(shortest_seconds / one.seconds.front())));
  one.seconds.clear();
  return one;
}

/// The problem whose parts are timed.
struct measured_tasks {
  explicit measured_tasks(const sizes& s)
      : whole(s, 1),
        no_scores({s.heads, s.queries, s.keys, 0, s.value_width}, 1),
        half_values({s.heads, s.queries, s.keys, 0, s.value_width / 2}, 1) {}

  tasks whole, no_scores, half_values;
};

std::vector<record> prepare(const measured_tasks& work) {
  std::vector<record> records;
  for (const contender& who : contenders()) {
    if (!who.timed) continue;
    record& one = records.emplace_back();
    one.who = &who;
    if (!who.is_here()) continue;
    one.whole = prepare(who, work.whole);
    one.no_scores = prepare(who, work.no_scores);
    one.half_values = prepare(who, work.half_values);
  }
  return records;
}

void run_round(std::vector<record>& records) {
  limits::fma_rate before = limits::measure_fma(dtype::f32, 1);
  for (record& one : records) {
    if (!one.is_here()) continue;
    for (timing* part : {&one.whole, &one.no_scores, &one.half_values}) part->run();
    const limits::fma_rate after = limits::measure_fma(dtype::f32, 1);
    const limits::fma_rate& larger = before.flops > after.flops ? before : after;
    const bool valid = larger.validity >= limits::valid_from;
    one.peak.push_back(valid ? larger.flops : nan);
    one.clock.push_back(valid ? larger.clock : nan);
    before = after;
  }
}

/// The median over rounds of `value(round)`.
template <class Value>
double median_of(std::size_t rounds, const Value& value) {
  std::vector<double> values(rounds);
  for (std::size_t n = 0; n < rounds; ++n) values[n] = value(n);
  return median(values);
}

double ratio(const std::vector<double>& a, const std::vector<double>& b) {
  return median_of(std::min(a.size(), b.size()), [&](std::size_t n) { return a[n] / b[n]; });
}

std::string scratch(std::int64_t bytes) {
  const double kilobytes = static_cast<double>(bytes) / 1024;
  return kilobytes >= 1024 ? digits(kilobytes / 1024) + " MB" : digits(kilobytes) + " KB";
}

std::string cells(const std::vector<std::string>& values) {
  std::string line = "|";
  for (const std::string& value : values) line += " " + value + " |";
  return line + "\n";
}

std::string row(const record& one, const std::vector<record>& all, const sizes& s) {
  const std::string name(one.who->name), type(name_of(one.who->type));
  if (!one.is_here()) return cells({name, type, "not on this machine", "–", "–", "–", "–", "–", "–", "–", "–"});

  const auto before = std::find_if(all.begin(), all.end(), [&](const record& r) { return r.who->name == one.who->before; });
  const double scores = static_cast<double>(s.heads) * static_cast<double>(s.queries) * static_cast<double>(s.keys);
  const double flops = scores * 2 * static_cast<double>(s.width + s.value_width);
  const std::vector<double>&seconds = one.whole.seconds, &rest = one.no_scores.seconds, &half = one.half_values.seconds;
  const double fraction = median_of(seconds.size(), [&](std::size_t n) { return flops / (seconds[n] * one.peak[n]); });
  const auto cycles = [&](const auto& part) {
    return digits(median_of(seconds.size(), [&](std::size_t n) { return part(n) * one.clock[n] / scores; }));
  };
  return cells({name, type, digits(median(seconds) * 1e3),
                before == all.end() ? "–" : digits(ratio(before->whole.seconds, seconds)),
                digits(ratio(all.front().whole.seconds, seconds)), std::isnan(fraction) ? "disturbed" : digits(fraction),
                cycles([&](std::size_t n) { return seconds[n]; }), cycles([&](std::size_t n) { return seconds[n] - rest[n]; }),
                cycles([&](std::size_t n) { return 2 * half[n] - rest[n]; }),
                cycles([&](std::size_t n) { return 2 * (rest[n] - half[n]); }), scratch(one.whole.work->scratch_bytes())});
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "unknown processor";
}

}  // namespace

std::string measure(const sizes& s, int rounds) {
  const measured_tasks work(s);
  std::vector<record> records = prepare(work);
  for (int n = 0; n < rounds; ++n) run_round(records);

  std::string table = cells({"step", "type", "ms", "× the step before", "× naive", "of the FMA peak", "cycles per score",
                             "K · Q", "softmax", "V · P", "scratch"});
  table += "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const record& one : records) table += row(one, records, s);

  std::vector<double> peaks, clocks;
  for (const record& one : records) {
    peaks.insert(peaks.end(), one.peak.begin(), one.peak.end());
    clocks.insert(clocks.end(), one.clock.begin(), one.clock.end());
  }
  table += text("\n%s, one thread at %s GHz, FMA peak of float32 %s GF/s; ", processor().c_str(),
                digits(median(clocks) * 1e-9).c_str(), digits(median(peaks) * 1e-9).c_str());
  table += text("%d heads, L = %d, S = %d, E = %d; ", static_cast<int>(s.heads), static_cast<int>(s.queries),
                static_cast<int>(s.keys), static_cast<int>(s.width));
  table += text("attend %d.%d.%d, compiler %s; medians of %d %s.\n", ATTEND_VERSION_MAJOR, ATTEND_VERSION_MINOR,
                ATTEND_VERSION_PATCH, __VERSION__, rounds, rounds == 1 ? "round" : "rounds");
  for (const record& one : records)
    if (!one.is_here())
      table +=
          std::string(one.who->name) + " was not measured: this machine has no " + std::string(name_of(one.who->needs)) + ".\n";
  return table;
}

}  // namespace attend::kernel_ladder
