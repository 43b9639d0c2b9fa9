// Isa policy of scalar: no intrinsics, 16-byte vectors of the compiler's, lowered to whatever the baseline has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attend/detail/half_bits.hpp"

namespace attend::detail::scalar {
namespace {

#include "simd/half.inl"

template <class T>
struct integer_of;
template <>
struct integer_of<float> {
  using type = std::int32_t;
  using word = std::uint32_t;
  static constexpr int mantissa_bits = 23;
  static constexpr word exponent = 0x7f800000;
  static constexpr float lowest_power = -127;  // its power comes out as exactly 0
};
template <>
struct integer_of<double> {
  using type = std::int64_t;
  using word = std::uint64_t;
  static constexpr int mantissa_bits = 52;
  static constexpr word exponent = 0x7ff0000000000000;
  static constexpr double lowest_power = -1023;
};

template <class Element>
struct simd {
  using T = Element;
  using Integer = typename integer_of<T>::type;
  using Word = typename integer_of<T>::word;
  typedef T V __attribute__((vector_size(16)));
  typedef Integer I __attribute__((vector_size(16)));
  using M = I;  // which lanes: all bits of theirs are set
  static constexpr int width = 16 / sizeof(T);
  static constexpr int block_vectors = 8;
  static constexpr int micro_vectors = 2;
  static constexpr int micro_rows = 4;
  static constexpr int few_score_rows = 2;
  static constexpr int few_value_rows = 2;
  static constexpr int few_vectors = 4;

  static void keep(V&) {}  // sums and operands do not fit the registers that there may be
  static V load(const T* p) {
    V x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(T* p, V x) { std::memcpy(p, &x, sizeof x); }
  static V load_first(const T* p, int n) {
    V x{};
    std::memcpy(&x, p, static_cast<std::size_t>(n) * sizeof(T));
    return x;
  }
  template <float_format F>
  static V load_first(const half<F>* p, int n) {
    half<F> halves[width] = {};
    std::memcpy(halves, p, static_cast<std::size_t>(n) * sizeof *p);
    V x;
    for (int i = 0; i < width; ++i) x[i] = static_cast<T>(halves[i]);
    return x;
  }
  template <float_format F>
  static V load(const half<F>* p) {
    return load_first(p, width);
  }
  template <float_format F>
  static void store_first(half<F>* p, int n, V x) {
    half<F> halves[width];
    for (int i = 0; i < width; ++i) halves[i] = half<F>(x[i]);
    std::memcpy(p, halves, static_cast<std::size_t>(n) * sizeof *p);
  }
  template <float_format F>
  static void store(half<F>* p, V x) {
    store_first(p, width, x);
  }
  static V load_int8(const signed char* codes) {
    V x;
    for (int i = 0; i < width; ++i) x[i] = static_cast<T>(codes[i]);
    return x;
  }
  /// Of 16 columns in eight bytes, those from `column` on: the low halves of all bytes come first.
  static V load_int4(const unsigned char* codes, int column) {
    V x;
    for (int i = 0; i < width; ++i) x[i] = static_cast<T>(codes[column % 8 + i] >> (column < 8 ? 0 : 4) & 15);
    return x;
  }
  static V set(T x) { return x - V{}; }
  // Two roundings: without the instruction, a fused multiply-add is a function call.
  static V fma(V a, V b, V c) { return a * b + c; }
  static V max(V a, V b) { return a > b ? a : b; }
  static V min(V a, V b) { return a < b ? a : b; }
  static V select(M lanes, V yes, V no) { return lanes ? yes : no; }
  static M equal(V a, V b) { return a == b; }
  static M less(V a, V b) { return a < b; }
  static bool all(M lanes) {
    bool every = true;
    for (int i = 0; i < width; ++i) every &= lanes[i] != 0;
    return every;
  }
  static V abs(V x) { return with_bits(x, ~Word{0} >> 1); }
  static V with_sign(V x, V y) {
    I magnitude, sign;
    std::memcpy(&magnitude, &x, sizeof x);
    std::memcpy(&sign, &y, sizeof y);
    constexpr Integer rest = static_cast<Integer>(~Word{0} >> 1);
    magnitude = (magnitude & rest) | (sign & ~rest);
    std::memcpy(&x, &magnitude, sizeof x);
    return x;
  }
  static V quotient(V a, V b) { return a / b; }
  static V sqrt(V x) {
    for (int i = 0; i < width; ++i) x[i] = static_cast<T>(sizeof(T) == 4 ? __builtin_sqrtf(x[i]) : __builtin_sqrt(x[i]));
    return x;
  }
  static V power_below(V x) { return with_bits(x, integer_of<T>::exponent); }
  static T sum(V x) {
    T s = x[0];
    for (int i = 1; i < width; ++i) s += x[i];
    return s;
  }
  static T largest(V x) {
    T s = x[0];
    for (int i = 1; i < width; ++i) s = s > x[i] ? s : x[i];
    return s;
  }

  static V with_bits(V x, Word mask) {
    I bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits &= static_cast<Integer>(mask);
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }

  static V fraction(V x, V& whole) {
    x = max(set(integer_of<T>::lowest_power), x);
    const V ordered = x == x ? x : V{};  // converting NaN to an integer is undefined; it stays in the fraction
    const V truncated = __builtin_convertvector(__builtin_convertvector(ordered, I), V);
    whole = truncated > ordered ? truncated - set(1) : truncated;
    return x - whole;
  }
  static V scale_by_power(V p, V whole) {
    I bits;
    std::memcpy(&bits, &p, sizeof bits);
    bits += __builtin_convertvector(whole, I) << integer_of<T>::mantissa_bits;
    V scaled;
    std::memcpy(&scaled, &bits, sizeof scaled);
    return p == p ? scaled : p;
  }

  static void store_sums(T* to, V a, V b, V c, V d) {
    to[0] = sum(a);
    to[1] = sum(b);
    to[2] = sum(c);
    to[3] = sum(d);
  }

  static void store_first(T* p, int n, V x) { std::memcpy(p, &x, static_cast<std::size_t>(n) * sizeof(T)); }
  /// Lane i is `yes` where bit `bit` of words[i] is set.
  static V select_bit(const Word* words, int bit, V yes, V no) {
    I word;
    std::memcpy(&word, words, sizeof word);
    return (word >> bit & 1) != 0 ? yes : no;
  }
  /// Bit i is set where byte i of 32 is not 0.
  static std::uint32_t nonzero_bytes(const unsigned char* p) {
    std::uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<std::uint32_t>(p[i] != 0) << i;
    return bits;
  }
  /// x[j] = {rows[0][j], rows[1][j], ...}
  static void load_columns(const T* const* rows, std::int64_t first, V (&x)[width]) {
    for (int i = 0; i < width; ++i) {
      const V row = load(rows[i] + first);
      for (int j = 0; j < width; ++j) x[j][i] = row[j];
    }
  }
  /// Rows become columns: x[i][j] <- x[j][i].
  static void transpose(V (&x)[width]) {
    for (int i = 0; i < width; ++i) {
      for (int j = 0; j < i; ++j) {
        const T kept = x[i][j];
        x[i][j] = x[j][i];
        x[j][i] = kept;
      }
    }
  }

  typedef std::uint64_t Wide __attribute__((vector_size(16)));
  static constexpr int counters = 8 / static_cast<int>(sizeof(T));
  static Wide wide(std::uint64_t x) { return Wide{x, x}; }
  static Wide load_wide(const std::uint64_t* p) { return Wide{p[0], p[1]}; }
  static Wide low(Wide x) { return x & 0xffffffff; }
  static Wide product(Wide a, Wide b) { return low(a) * low(b); }
  static Wide high_xor(Wide x, Wide a, Wide b) { return x >> 32 ^ a ^ b; }
  static V at_least(const Wide (&x)[counters], Wide from) {
    V y{};
    for (int i = 0; i < width; ++i) y[i] = static_cast<T>((x[i / 2][i % 2] & 0xffffffff) >= from[0]);
    return y;
  }
};

}  // namespace
}  // namespace attend::detail::scalar
