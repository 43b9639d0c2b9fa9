// The exponential, and what is made of it, over their whole ranges: errors in units in the last place, special values.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "attend/isa.hpp"
#include "functions/functions.hpp"
#include "support/compute.hpp"

namespace attend::test {
namespace {

/// The functions of the set under test: the best available one that has a policy of numbers.
const function_table& of_this_set() {
  const function_table* best = &scalar_functions;
  for (const isa set : available_isas()) {
    switch (set) {
#if ATTEND_HAVE_NEON
      case isa::neon: best = &neon_functions; break;
#endif
#if ATTEND_HAVE_AVX2
      case isa::avx2: best = &avx2_functions; break;
#endif
#if ATTEND_HAVE_AVX512
      case isa::avx512: best = &avx512_functions; break;
#endif
      default: break;
    }
  }
  return *best;
}

template <class T>
const functions<T>& functions_of() {
  if constexpr (sizeof(T) == sizeof(float))
    return of_this_set().f32;
  else
    return of_this_set().f64;
}

template <class T>
std::vector<T> applied(array_function<T> f, std::vector<T> x) {
  const std::size_t count = x.size();
  x.resize((count + 63) / 64 * 64);
  std::vector<T> y(x.size());
  f(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  y.resize(count);
  return y;
}

template <class T>
T applied(array_function<T> f, T x) {
  return applied(f, std::vector<T>{x})[0];
}

/// Of the type, near `truth`: the distance of neighbouring numbers there, that of the normal numbers at least.
template <class T>
long double unit_at(long double truth) {
  const int exponent = truth == 0 ? std::numeric_limits<T>::min_exponent : std::ilogb(truth) + 1;
  return std::ldexp(1.0L, std::max(exponent, std::numeric_limits<T>::min_exponent) - std::numeric_limits<T>::digits);
}

/// Arguments from `low` to `high`: an even grid, what lies beside whole numbers, and magnitudes down to the least.
template <class T>
std::vector<T> arguments(double low, double high) {
  std::vector<T> x;
  const int steps = 1 << 19;
  for (int i = 0; i <= steps; ++i) x.push_back(static_cast<T>(low + (high - low) * i / steps));
  for (double n = std::ceil(low); n <= high; ++n) {
    const T whole = static_cast<T>(n);
    for (const T near : {whole, std::nextafter(whole, T(low)), std::nextafter(whole, T(high))})
      if (near >= T(low) && near <= T(high)) x.push_back(near);
  }
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-140, std::log2(std::max(-low, high))), mantissa(1, 2);
  for (int i = 0; i < 1 << 18; ++i) {
    const T size = static_cast<T>(std::ldexp(mantissa(random), static_cast<int>(exponent(random))));
    for (const T one : {size, -size})
      if (one >= T(low) && one <= T(high)) x.push_back(one);
  }
  return x;
}

/// The largest error of f in units in the last place; numbers below the normal ones may be 0.
template <class T, class Truth>
double largest_error(array_function<T> f, const std::vector<T>& x, const Truth& truth) {
  const std::vector<T> y = applied(f, x);
  double worst = 0;
  T at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double want = truth(static_cast<long double>(x[i]));
    if (std::abs(want) < static_cast<long double>(std::numeric_limits<T>::min()) &&
        std::abs(y[i]) <= std::numeric_limits<T>::min())
      continue;
    const double error = static_cast<double>(std::abs(static_cast<long double>(y[i]) - want) / unit_at<T>(want));
    if (!(error <= worst)) worst = error, at = x[i];
  }
  testing::Test::RecordProperty("units", std::to_string(worst) + " at " + std::to_string(at));
  return worst;
}

template <class T>
struct kernel_functions : testing::Test {};
using function_types = testing::Types<float, double>;
TYPED_TEST_SUITE(kernel_functions, function_types);

TYPED_TEST(kernel_functions, exponential_is_right_within_a_few_units) {
  const double lowest = std::numeric_limits<TypeParam>::min_exponent - std::numeric_limits<TypeParam>::digits - 5;
  const auto x = arguments<TypeParam>(lowest, 0);
  EXPECT_LT(largest_error(functions_of<TypeParam>().exp2, x, [](long double at) { return std::exp2(at); }),
            sizeof(TypeParam) == 4 ? 3 : 4);
}

TYPED_TEST(kernel_functions, exponential_of_special_values_is_exact) {
  using limits = std::numeric_limits<TypeParam>;
  const auto f = functions_of<TypeParam>().exp2;
  EXPECT_EQ(applied(f, TypeParam(0)), TypeParam(1));
  EXPECT_EQ(applied(f, -TypeParam(0)), TypeParam(1));
  EXPECT_NEAR(applied(f, -limits::denorm_min()), TypeParam(1), 2 * limits::epsilon());
  EXPECT_EQ(applied(f, -limits::infinity()), TypeParam(0));
  EXPECT_EQ(applied(f, limits::lowest()), TypeParam(0));
  EXPECT_TRUE(std::isnan(applied(f, limits::quiet_NaN())));
  EXPECT_TRUE(std::isnan(applied(f, -limits::quiet_NaN())));
  for (int n = limits::min_exponent - 1; n <= 0; ++n) EXPECT_EQ(applied(f, TypeParam(n)), std::ldexp(TypeParam(1), n)) << n;
  for (const TypeParam x : {TypeParam(limits::min_exponent - limits::digits - 2), TypeParam(-1e4), TypeParam(-1e30)})
    EXPECT_EQ(applied(f, x), TypeParam(0)) << x;
}

TYPED_TEST(kernel_functions, tanh_and_sigmoid_are_right_within_a_few_units) {
  const auto x = arguments<TypeParam>(-40, 40);
  EXPECT_LT(largest_error(functions_of<TypeParam>().tanh, x, [](long double at) { return std::tanh(at); }), 4);
  const auto sigmoid = [](long double at) { return 1 / (1 + std::exp(-at)); };
  // The argument is rounded once more, times log2 e: of 40, that is 40 units.
  EXPECT_LT(largest_error(functions_of<TypeParam>().sigmoid, arguments<TypeParam>(-4, 40), sigmoid), 8);
  const std::vector<TypeParam> low = arguments<TypeParam>(-80, -4), y = applied(functions_of<TypeParam>().sigmoid, low);
  for (std::size_t i = 0; i < low.size(); ++i) {
    const long double want = sigmoid(static_cast<long double>(low[i]));
    ASSERT_LE(std::abs(static_cast<long double>(y[i]) - want),
              want * (4 - static_cast<long double>(low[i])) * std::numeric_limits<TypeParam>::epsilon())
        << low[i];
  }
  using limits = std::numeric_limits<TypeParam>;
  for (const auto f : {functions_of<TypeParam>().tanh, functions_of<TypeParam>().sigmoid})
    EXPECT_TRUE(std::isnan(applied(f, limits::quiet_NaN())));
  EXPECT_EQ(applied(functions_of<TypeParam>().tanh, limits::infinity()), TypeParam(1));
  EXPECT_EQ(applied(functions_of<TypeParam>().tanh, -limits::infinity()), TypeParam(-1));
  EXPECT_EQ(applied(functions_of<TypeParam>().sigmoid, -limits::infinity()), TypeParam(0));
  EXPECT_EQ(applied(functions_of<TypeParam>().sigmoid, limits::infinity()), TypeParam(1));
}

}  // namespace
}  // namespace attend::test
