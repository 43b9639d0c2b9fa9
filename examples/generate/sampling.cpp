#include "sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace generate {

std::size_t sampler::operator()(std::span<const float> scores) {
  if (how_.greedy) return static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin());

  std::vector<std::size_t> tokens(scores.size());
  std::iota(tokens.begin(), tokens.end(), std::size_t{0});
  std::ranges::stable_sort(tokens, [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  if (how_.top_k != 0) tokens.resize(std::min(tokens.size(), how_.top_k));

  std::vector<double> sums;  // of weights, up to each token; the largest weight is 1, so that nothing overflows
  double sum = 0;
  for (const std::size_t token : tokens) {
    sum += std::exp((static_cast<double>(scores[token]) - static_cast<double>(scores[tokens.front()])) / how_.temperature);
    sums.push_back(sum);
  }
  // The standard says what the generator gives, but not how its distributions use that: 53 bits make a number in [0, 1).
  const double drawn = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
  return tokens[static_cast<std::size_t>(std::ranges::upper_bound(sums, drawn) - sums.begin())];
}

}  // namespace generate
