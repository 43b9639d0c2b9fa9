// Numbers of two bytes: bfloat16 and float16. Arrays hold them; computing happens in float.
//
// ```cpp
// constexpr attend::bfloat16 third(1.0 / 3);         // rounded once: to nearest, ties to even
// static_assert(third == 0.333984375f);              // reads as a float
// static_assert(attend::float16(65504) == std::numeric_limits<attend::float16>::max());
// ```
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "attend/detail/half_bits.hpp"

namespace attend {

/// Comparing and computing happen in float, to which every value converts without loss. Conversion from float and double rounds to
/// nearest, ties to even; what is too large becomes infinite, and NaN stays NaN.
template <detail::float_format Format>
class half {
 public:
  half() = default;
  constexpr explicit half(double x) noexcept
      : bits_(detail::narrow<detail::float64_format, Format>(std::bit_cast<std::uint64_t>(x))) {}
  static constexpr half from_bits(std::uint16_t bits) noexcept {
    half x(0.0);
    x.bits_ = bits;
    return x;
  }

  constexpr operator float() const noexcept { return std::bit_cast<float>(detail::widen<Format>(bits_)); }
  constexpr half operator-() const noexcept { return from_bits(bits_ ^ 0x8000); }
  constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  std::uint16_t bits_;
};

/// The upper half of a float: its range, and 8 bits of precision.
using bfloat16 = half<detail::bfloat16_format>;
/// IEEE 754 binary16: up to 65504, and 11 bits of precision.
using float16 = half<detail::float16_format>;
static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2);

}  // namespace attend

template <attend::detail::float_format Format>
class std::numeric_limits<attend::half<Format>> {
  using half = attend::half<Format>;
  static constexpr half of(unsigned bits) noexcept { return half::from_bits(static_cast<std::uint16_t>(bits)); }
  static constexpr unsigned infinite = ((1u << Format.exponent) - 1) << Format.mantissa;

 public:
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false, is_bounded = true,
                        is_modulo = false, is_iec559 = Format.exponent == 5, has_infinity = true, has_quiet_NaN = true,
                        has_signaling_NaN = true, traps = false, tinyness_before = false;
  static constexpr float_round_style round_style = round_to_nearest;
  static constexpr int radix = 2, digits = Format.mantissa + 1, digits10 = Format.mantissa * 30103 / 100000,
                       max_digits10 = digits * 30103 / 100000 + 2, max_exponent = Format.bias() + 1,
                       min_exponent = 2 - Format.bias(), max_exponent10 = max_exponent * 30103 / 100000,
                       min_exponent10 = (min_exponent - 1) * 30103 / 100000;
  static constexpr half min() noexcept { return of(1u << Format.mantissa); }
  static constexpr half max() noexcept { return of(infinite - 1); }
  static constexpr half lowest() noexcept { return -max(); }
  static constexpr half epsilon() noexcept { return half(1.0 / (1 << Format.mantissa)); }
  static constexpr half round_error() noexcept { return half(0.5); }
  static constexpr half denorm_min() noexcept { return of(1); }
  static constexpr half infinity() noexcept { return of(infinite); }
  static constexpr half quiet_NaN() noexcept { return of(infinite | 1u << (Format.mantissa - 1)); }
  static constexpr half signaling_NaN() noexcept { return of(infinite | 1u << (Format.mantissa - 2)); }
};
