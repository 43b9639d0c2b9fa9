// Conversions between formats of binary floating-point numbers, on their bits: what half.hpp and the kernels share. Kernel units
// include it, so it holds nothing of the standard library but integers, and everything is inlined.
#pragma once

#include <cstdint>

namespace attend::detail {

/// Bits of the exponent and of the mantissa; one for the sign before them.
struct float_format {
  int exponent, mantissa;

  constexpr int bits() const { return 1 + exponent + mantissa; }
  constexpr int bias() const { return (1 << (exponent - 1)) - 1; }
};
inline constexpr float_format float16_format{5, 10}, bfloat16_format{8, 7}, float32_format{8, 23}, float64_format{11, 52};

/// A number of `From` in the narrower format `To`: to nearest, ties to even, overflow to infinity. NaN becomes quiet and keeps its
/// sign and what fits of its payload.
template <float_format From, float_format To, class Word>
[[gnu::always_inline]] constexpr std::uint16_t narrow(Word x) {
  static_assert(From.bits() == 8 * sizeof(Word) && To.bits() == 16 && From.exponent >= To.exponent);
  constexpr int shift = From.mantissa - To.mantissa, rebias = From.bias() - To.bias();
  constexpr Word one = 1, infinity = ((one << From.exponent) - 1) << From.mantissa;
  constexpr std::uint16_t to_infinity = ((1u << To.exponent) - 1) << To.mantissa;
  const auto sign = static_cast<std::uint16_t>(x >> (From.bits() - 16) & 0x8000);
  const Word magnitude = x & ~(one << (From.bits() - 1));
  if (magnitude > infinity) {
    const auto payload = static_cast<std::uint16_t>(magnitude >> shift & ((one << To.mantissa) - 1));
    return static_cast<std::uint16_t>(sign | to_infinity | 1u << (To.mantissa - 1) | payload);
  }
  if constexpr (rebias > 0) {
    const int exponent = static_cast<int>(magnitude >> From.mantissa);
    if (exponent <= rebias) {  // below the normal numbers of To
      const int places = shift + rebias + 1 - exponent;
      if (places > From.mantissa + 1) return sign;  // below half of the smallest
      const Word significand = (magnitude & ((one << From.mantissa) - 1)) | one << From.mantissa;
      const Word rest = significand & ((one << places) - 1), half = one << (places - 1), kept = significand >> places;
      return static_cast<std::uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1) != 0))));
    }
  }
  const Word aligned = magnitude - (static_cast<Word>(rebias) << From.mantissa);
  const Word rounded = (aligned + (one << (shift - 1)) - 1 + (aligned >> shift & 1)) >> shift;
  return static_cast<std::uint16_t>(sign | (rounded < to_infinity ? rounded : to_infinity));
}

/// A 16-bit number of `From` as float32, which holds all of them.
template <float_format From>
[[gnu::always_inline]] constexpr std::uint32_t widen(std::uint16_t x) {
  constexpr int shift = float32_format.mantissa - From.mantissa, rebias = float32_format.bias() - From.bias();
  const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000) << 16, magnitude = x & 0x7fffu;
  if constexpr (rebias == 0) {
    return sign | magnitude << shift;
  } else {
    constexpr std::uint32_t infinity = ((1u << From.exponent) - 1) << From.mantissa;
    if (magnitude >= infinity) return sign | 0x7f800000u | (magnitude - infinity) << shift;
    if (magnitude >= 1u << From.mantissa) return sign | ((magnitude << shift) + (static_cast<std::uint32_t>(rebias) << 23));
    if (magnitude == 0) return sign;
    const int places =
        __builtin_clz(magnitude) - (31 - From.mantissa);  // up to the first bit, which a normal number leaves out
    const std::uint32_t significand = magnitude << (places + shift), exponent = static_cast<std::uint32_t>(rebias + 1 - places);
    return sign | (significand + ((exponent - 1) << 23));
  }
}

}  // namespace attend::detail
