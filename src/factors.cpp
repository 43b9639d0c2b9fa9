#include "factors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace attend::detail {
namespace {

/// The nearest number that sums over the type hold: what float32 cannot hold is its largest number, as no score could tell.
double in_range(double x, dtype type) noexcept {
  const double most =
      accumulator_of(type) == dtype::f32 ? double{std::numeric_limits<float>::max()} : std::numeric_limits<double>::max();
  return std::clamp(x, -most, most);
}

/// The scale as two factors: of the queries, and of the scores. The second is 1, or for very large and very small scales about
/// the square root, a power of two.
std::pair<double, double> scale_factors(double scale, dtype type) noexcept {
  const int exponent = scale == 0 ? 0 : std::ilogb(scale);
  if (exponent > -40 && exponent < 40) return {scale, 1};
  const double of_scores =
      std::ldexp(1.0, accumulator_of(type) == dtype::f32 ? std::clamp(exponent / 2, -126, 126) : exponent / 2);
  return {in_range(scale / of_scores, type), of_scores};
}

/// Of a score factor * |per * (q - k)|^degree. Where the factor is far from 1, a power of two goes to q and k: it rounds nothing, and
/// differences and their squares stay in range.
factors difference_factors(double factor, int degree, double per, dtype type) noexcept {
  int exponent = factor == 0 ? 0 : std::ilogb(factor) / degree + std::ilogb(per);
  if (std::abs(exponent) < 30) exponent = 0;
  const int most = accumulator_of(type) == dtype::f32 ? 120 : 1000;
  const double power = std::ldexp(1.0, std::clamp(exponent, -most, most));
  return {power, power, in_range(factor * std::pow(per / power, degree), type)};
}

}  // namespace

factors factors_of(const problem& p) noexcept {
  switch (p.compatibility) {
    case compatibility_kind::dot:
    case compatibility_kind::cosine: {
      const auto [query, score] = scale_factors(p.scale, p.type);
      return {query, 1, score};
    }
    case compatibility_kind::gaussian: return difference_factors(-0.5 * p.scale, 2, in_range(1 / p.sigma, dtype::f64), p.type);
    case compatibility_kind::l1: return difference_factors(-p.scale, 1, 1, p.type);
    case compatibility_kind::additive:
    case compatibility_kind::none: break;
  }
  return {1, 1, in_range(p.scale, p.type)};
}

}  // namespace attend::detail
