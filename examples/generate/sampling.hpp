// The next token from the model's scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace generate {

struct sampling_options {
  bool greedy = false;       ///< the likeliest token, the first of several; nothing else counts then
  double temperature = 0.8;  ///< probabilities are exp(score / temperature) over their sum; above 0
  std::size_t top_k = 0;     ///< only so many likeliest tokens are drawn from; 0 = all
  std::uint64_t seed = 0;    ///< equal seeds draw equal numbers, with every standard library
};

class sampler {
 public:
  explicit sampler(const sampling_options& how) : how_(how), random_(how.seed) {}

  std::size_t operator()(std::span<const float> scores);

 private:
  sampling_options how_;
  std::mt19937_64 random_;
};

}  // namespace generate
