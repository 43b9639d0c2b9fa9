#include "quantize.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace attend::detail {
namespace {

constexpr float largest = std::bit_cast<float>(0x7f7f0000u);  // of bfloat16

/// The next bfloat16 whose magnitude is at least that of x; the largest one beyond it.
float away_from_zero(float x) noexcept {
  const float rounded = std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0xffffu) & 0xffff0000u);
  return std::clamp(rounded, -largest, largest);
}
float towards_zero(float x) noexcept { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000u); }

void store_bfloat16(char* to, float x) noexcept {
  const std::uint16_t bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
  std::memcpy(to, &bits, sizeof bits);
}

/// A step, so that `steps` of it cover `range`. Below the normal numbers, which kernels take for 0, everything is.
float step_for(double range, int steps) noexcept {
  const float step = away_from_zero(static_cast<float>(range / steps));
  return step < std::numeric_limits<float>::min() ? 0 : step;
}

}  // namespace

void quantize_group(int bits, const float (&x)[group_columns], int count, char* codes, char* scale) noexcept {
  float lowest = x[0], highest = x[0], not_finite = 0;
  for (const float number : x) {
    lowest = number < lowest ? number : lowest;
    highest = number > highest ? number : highest;
    not_finite += number * 0;
  }
  const float base = bits == 8 ? 0 : lowest < 0 ? away_from_zero(lowest) : towards_zero(lowest);
  const int steps = bits == 8 ? 127 : 15;
  const double range = bits == 8 ? std::max(-lowest, highest) : static_cast<double>(highest) - base;
  const float step = step_for(range, steps);
  const bool finite = not_finite == 0 && std::isfinite(static_cast<float>(steps) * step);
  store_bfloat16(scale, finite ? step : std::numeric_limits<float>::quiet_NaN());
  if (bits == 4) store_bfloat16(scale + 2, base);
  int nearest[group_columns] = {};
  for (int i = 0; finite && step > 0 && i < group_columns; ++i) {
    const float at = (x[i] - base) / step;
    nearest[i] = static_cast<int>(at + (at < 0 ? -0.5f : 0.5f));
  }
  const int padded = static_cast<int>(code_bytes(8, count));
  if (bits == 8) {
    for (int i = 0; i < padded; ++i) codes[i] = static_cast<char>(nearest[i]);
    return;
  }
  constexpr int half = padded_codes / 2;
  for (int first = 0; first < padded; first += padded_codes) {
    for (int i = first; i < first + half; ++i)
      *codes++ = static_cast<char>(std::clamp(nearest[i], 0, 15) | std::clamp(nearest[i + half], 0, 15) << 4);
  }
}

}  // namespace attend::detail
