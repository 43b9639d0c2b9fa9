// Rows of quantised caches. Kernel units read them, so this header holds plain data and nothing of the standard library.
//
//   8 bits   codes of all columns, one byte each       then per group of 32 columns: scale             number = code * scale
//   4 bits   codes of all columns, 16 in eight bytes   then per group of 32 columns: scale, minimum    number = code * scale + minimum
//
// Codes are padded to 16 columns, so that vectors of them are read whole; scales and minima are bfloat16, so that code * scale is exact. Of 16
// columns in 4 bits, byte i holds column i in its low half and column 8 + i in its high one. Why so: docs/caches.md.
#pragma once

#include <cstdint>

namespace attend::detail {

inline constexpr int group_columns = 32, padded_codes = 16;

constexpr std::int64_t code_bytes(int bits, std::int64_t columns) {
  return (columns + padded_codes - 1) / padded_codes * padded_codes * bits / 8;
}
constexpr std::int64_t group_bytes(int bits) { return bits == 4 ? 4 : 2; }
constexpr std::int64_t quantized_row_bytes(int bits, std::int64_t columns) {
  return code_bytes(bits, columns) + (columns + group_columns - 1) / group_columns * group_bytes(bits);
}

}  // namespace attend::detail
