// bfloat16 and float16 as numbers: every value, every tie between two, and what the compiler's own type makes of them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "attend/types.hpp"
#include "support/random.hpp"

namespace attend::test {
namespace {

template <class T>
struct halves : testing::Test {
  /// Bits of the largest finite number; those of the finite numbers from 0 on are 0, 1, 2, ...
  static constexpr unsigned last = std::numeric_limits<T>::max().bits();

  static T at(unsigned bits) { return T::from_bits(static_cast<std::uint16_t>(bits)); }
  static double number(unsigned bits) { return static_cast<double>(static_cast<float>(at(bits))); }
};
using half_types = testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(halves, half_types);

/// The value by its definition: 1 sign, `exponent` bits, `mantissa` bits.
double by_definition(unsigned bits, int exponent, int mantissa) {
  const int bias = (1 << (exponent - 1)) - 1, power = static_cast<int>(bits >> mantissa & ((1u << exponent) - 1));
  const double fraction = std::ldexp(static_cast<double>(bits & ((1u << mantissa) - 1)), -mantissa);
  const double size = power == 0                    ? std::ldexp(fraction, 1 - bias)
                      : power < (1 << exponent) - 1 ? std::ldexp(1 + fraction, power - bias)
                      : fraction == 0               ? infinity
                                                    : std::numeric_limits<double>::quiet_NaN();
  return std::copysign(size, bits & 0x8000 ? -1.0 : 1.0);
}

TYPED_TEST(halves, are_numbers_of_two_bytes) {
  static_assert(sizeof(TypeParam) == 2 && std::is_trivially_copyable_v<TypeParam> &&
                std::is_trivially_default_constructible_v<TypeParam>);
  static_assert(TypeParam(1.5) == 1.5f && TypeParam(-2) < TypeParam(1) && float(TypeParam(0.25f)) == 0.25f);
  static_assert(!std::is_convertible_v<float, TypeParam> && std::is_convertible_v<TypeParam, float>);
  EXPECT_EQ(TypeParam{}.bits(), 0);
  EXPECT_EQ(size_of(dtype_of<TypeParam>), 2);
}

TYPED_TEST(halves, mean_what_their_format_says) {
  constexpr int exponent = std::is_same_v<TypeParam, float16> ? 5 : 8;
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const double want = by_definition(bits, exponent, 15 - exponent);
    const float is = this->at(bits);
    EXPECT_TRUE(std::isnan(want) ? std::isnan(is) : static_cast<double>(is) == want) << bits;
    EXPECT_EQ(std::signbit(is), bits >= 0x8000) << bits;
  }
}

TYPED_TEST(halves, come_back_from_float_and_double) {
  constexpr unsigned quiet =
      std::numeric_limits<TypeParam>::quiet_NaN().bits() & ~std::numeric_limits<TypeParam>::infinity().bits();
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float x = this->at(bits);
    const unsigned want = std::isnan(x) ? bits | quiet : bits;  // sign and payload stay
    EXPECT_EQ(TypeParam(x).bits(), want);
    EXPECT_EQ(TypeParam(static_cast<double>(x)).bits(), want);
  }
}

TYPED_TEST(halves, are_the_nearest_of_every_double_between_two) {
  const double past = 2 * this->number(this->last) - this->number(this->last - 1);  // the next, if the format had one
  for (unsigned bits = 0; bits <= this->last; ++bits) {
    const double low = this->number(bits), high = bits == this->last ? past : this->number(bits + 1), middle = (low + high) / 2;
    const auto check = [&](double x, unsigned want) {
      ASSERT_EQ(TypeParam(x).bits(), want) << x;
      ASSERT_EQ(TypeParam(-x).bits(), want | 0x8000) << -x;
      const auto single = static_cast<float>(x);
      if (static_cast<double>(single) == x) {
        ASSERT_EQ(TypeParam(single).bits(), want) << x;
      }
    };
    check(middle, bits + (bits & 1));  // to the even one
    check(std::nextafter(middle, low), bits);
    check(std::nextafter(middle, high), bits + 1);
    check((3 * low + high) / 4, bits);
    check((low + 3 * high) / 4, bits + 1);
  }
}

TYPED_TEST(halves, of_what_they_cannot_hold_are_infinite_or_zero) {
  using limits = std::numeric_limits<TypeParam>;
  const double half_smallest = static_cast<double>(limits::denorm_min()) / 2;
  for (const double sign : {1.0, -1.0}) {
    for (const double x : {2 * static_cast<double>(limits::max()), 1e300, infinity})
      EXPECT_EQ(TypeParam(sign * x), sign * static_cast<double>(limits::infinity())) << x;
    for (const double x : {0.0, 5e-324, 1e-310, half_smallest}) {
      EXPECT_EQ(TypeParam(sign * x), 0) << x;
      EXPECT_EQ(std::signbit(float(TypeParam(sign * x))), sign < 0) << x;
    }
  }
  EXPECT_EQ(TypeParam(1.0 + static_cast<double>(limits::epsilon()) * (0.5 + 0x1p-40)), 1 + float(limits::epsilon()))
      << "rounded to float first, this were a tie";
  EXPECT_TRUE(std::isnan(float(TypeParam(std::bit_cast<double>(0x7ff0000000000001)))))
      << "a NaN whose payload does not fit is one";
}

TYPED_TEST(halves, have_limits) {
  using limits = std::numeric_limits<TypeParam>;
  EXPECT_EQ(limits::max().bits() + 1, limits::infinity().bits());
  EXPECT_EQ(limits::lowest(), -float(limits::max()));
  EXPECT_EQ(TypeParam(1).bits() + 1, TypeParam(1 + float(limits::epsilon())).bits());
  EXPECT_EQ(float(limits::epsilon()), std::ldexp(1.0f, 1 - limits::digits));
  EXPECT_EQ(float(limits::min()), std::ldexp(1.0f, limits::min_exponent - 1));
  EXPECT_EQ(float(limits::max()), std::ldexp(2 - float(limits::epsilon()), limits::max_exponent - 1));
  EXPECT_EQ(float(limits::denorm_min()), float(limits::min()) * float(limits::epsilon()));
  EXPECT_EQ(limits::digits10, static_cast<int>(std::floor((limits::digits - 1) * std::log10(2.0))));
  EXPECT_EQ(limits::max_digits10, static_cast<int>(std::ceil(limits::digits * std::log10(2.0) + 1)));
  EXPECT_EQ(limits::max_exponent10, static_cast<int>(std::floor(std::log10(double(limits::max())))));
  EXPECT_EQ(limits::min_exponent10, static_cast<int>(std::ceil(std::log10(double(limits::min())))));
  EXPECT_TRUE(std::isnan(float(limits::quiet_NaN())) && std::isnan(float(limits::signaling_NaN())));
}

#ifdef __FLT16_MANT_DIG__
TEST(float16_numbers, are_the_compilers) {
  random_source draw(1);
  for (int n = 0; n < 2'000'000; ++n) {
    // Every exponent from below the smallest number to above the largest.
    const auto exponent = static_cast<std::uint64_t>(1023 + draw.between(-27, 17));
    const auto x = std::bit_cast<double>((draw.bits() & 0x800fffffffffffff) | exponent << 52);
    const float single = std::bit_cast<float>(static_cast<std::uint32_t>(draw.bits()));
    ASSERT_EQ(float16(x).bits(), std::bit_cast<std::uint16_t>(static_cast<_Float16>(x))) << x;
    ASSERT_EQ(float16(single).bits(), std::bit_cast<std::uint16_t>(static_cast<_Float16>(single))) << single;
  }
}
#endif

TEST(names_of_halves, are_those_of_numpy) {
  EXPECT_EQ(name_of(dtype_of<float16>), "float16");
  EXPECT_EQ(name_of(dtype_of<bfloat16>), "bfloat16");
  EXPECT_EQ(accumulator_of(dtype::f16), dtype::f32);
  EXPECT_EQ(accumulator_of(dtype::f64), dtype::f64);
}

}  // namespace
}  // namespace attend::test
