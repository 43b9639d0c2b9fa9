// Random problems that are the same on every machine and in every run: a seed gives the bits, not the standard library.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numbers>

#include "attend/tensor.hpp"

namespace attend::test {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// SplitMix64.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * std::numbers::pi * uniform()); }
  bool coin(double probability = 0.5) { return uniform() < probability; }
  /// In [low, high], both ends included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[between(0, static_cast<std::int64_t>(choices.size()) - 1)];
  }

 private:
  std::uint64_t state_;
};

/// Standard normal numbers times `spread`.
template <class T>
tensor<T> normal(const extents& shape, std::uint64_t seed, double spread = 1) {
  random_source source(seed);
  tensor<T> x(shape);
  for (T& value : x) value = static_cast<T>(spread * source.normal());
  return x;
}

/// Booleans that are true with this probability.
inline tensor<bool> coins(const extents& shape, std::uint64_t seed, double probability = 0.5) {
  random_source source(seed);
  tensor<bool> x(shape);
  for (bool& value : x) value = source.coin(probability);
  return x;
}

template <class T>
tensor<T> copy(const tensor<T>& from) {
  tensor<T> to(from.shape());
  std::copy(from.begin(), from.end(), to.begin());
  return to;
}

}  // namespace attend::test
