#include "timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace attend::cli {

namespace {

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Pairs of a query and a key that the options allow: where every score is 0, a row's sum of exponentials is its number of
/// keys. Biases and tables are taken to exclude nothing.
double allowed_pairs(operands of, options how) {
  of.v.shape[of.v.shape.rank() - 1] = 0;
  how.bias = how.relative = how.sinks = {};
  how.score = {};
  how.softcap = {};
  how.alibi = {};
  how.dropout = {};
  how.compatibility = compatibility::none;
  how.normalizer = normalizer::softmax;
  const reference::result counted = of.truth(how);
  double pairs = 0;
  for (const double lse : counted.lse) pairs += std::round(std::exp(lse));
  return pairs;
}

/// Operations that no kernel can do without: a pair takes a multiply-add per column of v and, where its score depends on q and
/// k, at least one per column of these.
double least_flops(const operands& of, const options& how) {
  const bool scored = how.compatibility.kind != compatibility_kind::none;
  const std::int64_t width = (scored ? of.q.shape[of.q.shape.rank() - 1] : 0) + of.v.shape[of.v.shape.rank() - 1];
  return 2 * static_cast<double>(width) * allowed_pairs(of, how);
}

/// q, k and v read once and out written once.
double bytes_of(const operands& of, const extents& out, const options& how) {
  if (!of.packed()) return make_plan({.type = of.q.type, .q = of.q.shape, .k = of.k.shape, .v = of.v.shape}, how).facts().bytes;
  double elements = 0;
  for (const extents& shape : {of.q.shape, of.k.shape, of.v.shape, out}) elements += static_cast<double>(shape.count());
  return elements * static_cast<double>(size_of(of.q.type));
}

}  // namespace

template <class T>
timing measure(const operands& of, const call_options& call, tensor<T>& out) {
  using clock = std::chrono::steady_clock;
  constexpr int rounds = 5;
  constexpr std::size_t most_calls = 200;
  constexpr double round_seconds = 0.06;
  timing found;
  const options& how = call.how();
  found.flops = least_flops(of, how);
  found.bytes = bytes_of(of, out.shape(), how);
  found.limits = roofline::measure(of.q.type, call.threads());

  of.compute(outputs{.out = out}, how);
  std::vector<double> all, fractions, peaks;
  for (int round = 0; round < rounds; ++round) {
    // The clock and neighbours change within a round, too: the larger of the peaks around it is what could have been.
    const double before = found.limits.fma;
    std::vector<double> seconds;
    double total = 0;
    while (seconds.size() < 2 || (total < round_seconds && seconds.size() < most_calls)) {
      const auto start = clock::now();
      of.compute(outputs{.out = out}, how);
      seconds.push_back(std::chrono::duration<double>(clock::now() - start).count());
      total += seconds.back();
    }
    found.limits.measure_fma();
    roofline best = found.limits;
    best.fma = std::max(before, best.fma);
    peaks.push_back(best.fma);
    fractions.push_back(best.least(found.flops, found.bytes) / median_of(seconds));
    all.insert(all.end(), seconds.begin(), seconds.end());
  }
  found.limits.fma = median_of(peaks);
  found.fraction = median_of(fractions);
  found.median = median_of(all);
  found.fastest = *std::min_element(all.begin(), all.end());
  found.slowest = *std::max_element(all.begin(), all.end());
  found.calls = static_cast<int>(all.size());
  return found;
}

template timing measure(const operands&, const call_options&, tensor<float>&);
template timing measure(const operands&, const call_options&, tensor<double>&);
template timing measure(const operands&, const call_options&, tensor<float16>&);
template timing measure(const operands&, const call_options&, tensor<bfloat16>&);

}  // namespace attend::cli
