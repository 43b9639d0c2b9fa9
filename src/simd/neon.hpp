// Isa policy of neon (Advanced SIMD of AArch64): 32 registers of 16 bytes, masks as whole lanes.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "attend/detail/half_bits.hpp"

namespace attend::detail::neon {
namespace {

#include "simd/half.inl"

#define ATTEND_INLINE [[gnu::always_inline]] static inline

/// Random words of dropout: 64-bit lanes that hold 32 bits each, whatever is above them. A vector of numbers takes `counters` of them.
struct random_words {
  using Wide = uint64x2_t;
  ATTEND_INLINE Wide wide(std::uint64_t x) { return vdupq_n_u64(x); }
  ATTEND_INLINE Wide load_wide(const std::uint64_t* p) { return vld1q_u64(p); }
  ATTEND_INLINE Wide product(Wide a, Wide b) { return vmull_u32(vmovn_u64(a), vmovn_u64(b)); }
  ATTEND_INLINE Wide high_xor(Wide x, Wide a, Wide b) { return veorq_u64(veorq_u64(vshrq_n_u64(x, 32), a), b); }
  ATTEND_INLINE Wide low(Wide x) { return vandq_u64(x, wide(0xffffffff)); }
};

template <class T>
struct simd;

template <>
struct simd<float> : random_words {
  using T = float;
  using V = float32x4_t;
  using M = uint32x4_t;  // which lanes: all bits of theirs are set
  using Word = std::uint32_t;
  static constexpr int width = 4;
  static constexpr int block_vectors = 16;  // 64 lanes, as many as a block may have: a tile of K and V in cache meets them all
  static constexpr int micro_vectors = 4;   // 6 x 4 sums + 4 operands + 1 broadcast = 29 of 32 registers, 12 multiply-adds per
  static constexpr int micro_rows = 6;      // 5 vectors read; 24 sums hide a latency of 4 cycles of up to 6 units
  static constexpr int few_score_rows = 4;  // x 4 keys: 16 sums + 4 keys + 1 query
  static constexpr int few_value_rows = 2;  // 2 x 8 sums + 8 operands + 2 broadcasts
  static constexpr int few_vectors = 8;

  ATTEND_INLINE void keep(V&) {}  // operands are registers anyway
  ATTEND_INLINE V load(const T* p) { return vld1q_f32(p); }
  ATTEND_INLINE void store(T* p, V x) { vst1q_f32(p, x); }
  /// There are no masked loads: at most two of the parts that n is made of.
  ATTEND_INLINE V load_first(const T* p, int n) {
    if (n >= width) return load(p);
    V x = set(0);
    if (n >= 2) x = vcombine_f32(vld1_f32(p), vget_low_f32(x));
    if (n == 1) x = vld1q_lane_f32(p, x, 0);
    if (n == 3) x = vld1q_lane_f32(p + 2, x, 2);
    return x;
  }
  ATTEND_INLINE V set(T x) { return vdupq_n_f32(x); }
  ATTEND_INLINE V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  /// b where either is NaN, which the instructions for maximum and minimum have other rules for.
  ATTEND_INLINE V max(V a, V b) { return select(vcgtq_f32(a, b), a, b); }
  ATTEND_INLINE V min(V a, V b) { return select(less(a, b), a, b); }
  ATTEND_INLINE V select(M lanes, V yes, V no) { return vbslq_f32(lanes, yes, no); }
  ATTEND_INLINE M equal(V a, V b) { return vceqq_f32(a, b); }
  ATTEND_INLINE M less(V a, V b) { return vcltq_f32(a, b); }
  ATTEND_INLINE bool all(M lanes) { return vminvq_u32(lanes) != 0; }
  ATTEND_INLINE V abs(V x) { return vabsq_f32(x); }
  ATTEND_INLINE V with_sign(V x, V y) { return select(vdupq_n_u32(0x80000000), y, x); }
  ATTEND_INLINE V quotient(V a, V b) { return vdivq_f32(a, b); }
  ATTEND_INLINE V sqrt(V x) { return vsqrtq_f32(x); }
  ATTEND_INLINE V power_below(V x) { return select(vdupq_n_u32(0x7f800000), x, set(0)); }
  ATTEND_INLINE T sum(V x) { return vaddvq_f32(x); }
  ATTEND_INLINE T largest(V x) { return vmaxvq_f32(x); }

  /// x = n + f. Below -127 everything is -127, whose power is exactly 0; the instruction's own rule: NaN stays.
  ATTEND_INLINE V fraction(V x, V& whole) {
    x = vmaxq_f32(set(-127), x);
    whole = vrndmq_f32(x);
    return x - whole;
  }
  /// Adds to the exponent field. A NaN converts to 0.
  ATTEND_INLINE V scale_by_power(V p, V whole) {
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(vcvtq_s32_f32(whole), 23)));
  }

  /// {sum(a), sum(b), sum(c), sum(d)}, each by the same tree of additions.
  ATTEND_INLINE void store_sums(T* to, V a, V b, V c, V d) { store(to, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d))); }

  ATTEND_INLINE void store_first(T* p, int n, V x) {
    if (n >= width) return store(p, x);
    if (n >= 2) vst1_f32(p, vget_low_f32(x));
    if (n == 1) vst1q_lane_f32(p, x, 0);
    if (n == 3) vst1q_lane_f32(p + 2, x, 2);
  }
  /// Lane i is `yes` where bit `bit` of words[i] is set.
  ATTEND_INLINE V select_bit(const Word* words, int bit, V yes, V no) {
    return select(vtstq_u32(vld1q_u32(words), vdupq_n_u32(Word{1} << bit)), yes, no);
  }
  /// Bit i is set where byte i of 32 is not 0: each byte becomes its bit, which are added up by eight.
  ATTEND_INLINE std::uint32_t nonzero_bytes(const unsigned char* p) {
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201)), low = vld1q_u8(p), high = vld1q_u8(p + 16);
    uint8x16_t sums = vpaddq_u8(vandq_u8(vtstq_u8(low, low), bits), vandq_u8(vtstq_u8(high, high), bits));
    sums = vpaddq_u8(sums, sums);
    return vgetq_lane_u32(vreinterpretq_u32_u8(vpaddq_u8(sums, sums)), 0);
  }
  /// Rows become columns: x[i][j] <- x[j][i].
  ATTEND_INLINE void transpose(V (&x)[width]) {
    float64x2_t t[width];
    for (int i = 0; i < width; i += 2) {
      t[i] = vreinterpretq_f64_f32(vtrn1q_f32(x[i], x[i + 1]));
      t[i + 1] = vreinterpretq_f64_f32(vtrn2q_f32(x[i], x[i + 1]));
    }
    for (int i = 0; i < 2; ++i) {
      x[i] = vreinterpretq_f32_f64(vtrn1q_f64(t[i], t[i + 2]));
      x[i + 2] = vreinterpretq_f32_f64(vtrn2q_f64(t[i], t[i + 2]));
    }
  }

  /// x[j] = {rows[0][j], rows[1][j], ...}
  ATTEND_INLINE void load_columns(const T* const* rows, std::int64_t first, V (&x)[width]) {
    for (int i = 0; i < width; ++i) x[i] = load(rows[i] + first);
    transpose(x);
  }

  ATTEND_INLINE V load_int8(const signed char* codes) {
    std::uint32_t four;
    __builtin_memcpy(&four, codes, sizeof four);
    const int16x8_t x = vmovl_s8(vcreate_s8(four));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(x)));
  }
  /// Of 16 columns in eight bytes, four from `column` on: the low halves of all bytes come first.
  ATTEND_INLINE V load_int4(const unsigned char* codes, int column) {
    std::uint32_t four;
    __builtin_memcpy(&four, codes + column % 8, sizeof four);
    four = column < 8 ? four & 0x0f0f0f0f : four >> 4 & 0x0f0f0f0f;
    const uint16x8_t x = vmovl_u8(vcreate_u8(four));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(x)));
  }

  ATTEND_INLINE V widened(f16, uint16x4_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }
  ATTEND_INLINE V widened(bf16, uint16x4_t x) { return vreinterpretq_f32_u32(vshll_n_u16(x, 16)); }
  ATTEND_INLINE uint16x4_t narrowed(f16, V x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
  /// To nearest, ties to even.
  ATTEND_INLINE uint16x4_t narrowed(bf16, V x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x), high = vshrq_n_u32(bits, 16);
    const uint32x4_t half = vaddq_u32(vandq_u32(high, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
    const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, half), 16), nan = vorrq_u32(high, vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), rounded, nan));
  }
  template <float_format F>
  ATTEND_INLINE V load(const half<F>* p) {
    return load_first(p, width);
  }
  template <float_format F>
  ATTEND_INLINE V load_first(const half<F>* p, int n) {
    uint16x4_t x = vdup_n_u16(0);
    __builtin_memcpy(&x, p, static_cast<std::size_t>(n) * sizeof *p);
    return widened(half<F>(), x);
  }
  template <float_format F>
  ATTEND_INLINE void store(half<F>* p, V x) {
    store_first(p, width, x);
  }
  template <float_format F>
  ATTEND_INLINE void store_first(half<F>* p, int n, V x) {
    const uint16x4_t halves = narrowed(half<F>(), x);
    __builtin_memcpy(p, &halves, static_cast<std::size_t>(n) * sizeof *p);
  }

  static constexpr int counters = 2;
  /// 1 where the low 32 bits are at least `from`, else 0.
  ATTEND_INLINE V at_least(const Wide (&x)[counters], Wide from) {
    const M few = vreinterpretq_u32_u64(vcgeq_u64(low(x[0]), from)), more = vreinterpretq_u32_u64(vcgeq_u64(low(x[1]), from));
    return select(vuzp1q_u32(few, more), set(1), set(0));
  }
};

template <>
struct simd<double> : random_words {
  using T = double;
  using V = float64x2_t;
  using M = uint64x2_t;
  using Word = std::uint64_t;
  static constexpr int width = 2;
  static constexpr int block_vectors = 16;
  static constexpr int micro_vectors = 4;
  static constexpr int micro_rows = 6;
  static constexpr int few_score_rows = 4;
  static constexpr int few_value_rows = 2;
  static constexpr int few_vectors = 8;

  ATTEND_INLINE void keep(V&) {}  // operands are registers anyway
  ATTEND_INLINE V load(const T* p) { return vld1q_f64(p); }
  ATTEND_INLINE void store(T* p, V x) { vst1q_f64(p, x); }
  ATTEND_INLINE V load_first(const T* p, int n) {
    if (n >= width) return load(p);
    return n == 1 ? vld1q_lane_f64(p, set(0), 0) : set(0);
  }
  ATTEND_INLINE V set(T x) { return vdupq_n_f64(x); }
  ATTEND_INLINE V fma(V a, V b, V c) { return vfmaq_f64(c, a, b); }
  ATTEND_INLINE V max(V a, V b) { return select(vcgtq_f64(a, b), a, b); }
  ATTEND_INLINE V min(V a, V b) { return select(less(a, b), a, b); }
  ATTEND_INLINE V select(M lanes, V yes, V no) { return vbslq_f64(lanes, yes, no); }
  ATTEND_INLINE M equal(V a, V b) { return vceqq_f64(a, b); }
  ATTEND_INLINE M less(V a, V b) { return vcltq_f64(a, b); }
  ATTEND_INLINE bool all(M lanes) { return vminvq_u32(vreinterpretq_u32_u64(lanes)) != 0; }
  ATTEND_INLINE V abs(V x) { return vabsq_f64(x); }
  ATTEND_INLINE V with_sign(V x, V y) { return select(vdupq_n_u64(0x8000000000000000), y, x); }
  ATTEND_INLINE V quotient(V a, V b) { return vdivq_f64(a, b); }
  ATTEND_INLINE V sqrt(V x) { return vsqrtq_f64(x); }
  ATTEND_INLINE V power_below(V x) { return select(vdupq_n_u64(0x7ff0000000000000), x, set(0)); }
  ATTEND_INLINE T sum(V x) { return vaddvq_f64(x); }
  ATTEND_INLINE T largest(V x) { return vmaxvq_f64(x); }

  ATTEND_INLINE V fraction(V x, V& whole) {
    x = vmaxq_f64(set(-1023), x);
    whole = vrndmq_f64(x);
    return x - whole;
  }
  ATTEND_INLINE V scale_by_power(V p, V whole) {
    return vreinterpretq_f64_s64(vaddq_s64(vreinterpretq_s64_f64(p), vshlq_n_s64(vcvtq_s64_f64(whole), 52)));
  }

  ATTEND_INLINE void store_sums(T* to, V a, V b, V c, V d) {
    store(to, vpaddq_f64(a, b));
    store(to + 2, vpaddq_f64(c, d));
  }

  ATTEND_INLINE void store_first(T* p, int n, V x) {
    if (n >= width) return store(p, x);
    if (n == 1) vst1q_lane_f64(p, x, 0);
  }
  ATTEND_INLINE V select_bit(const Word* words, int bit, V yes, V no) {
    return select(vtstq_u64(vld1q_u64(words), vdupq_n_u64(Word{1} << bit)), yes, no);
  }
  ATTEND_INLINE std::uint32_t nonzero_bytes(const unsigned char* p) { return simd<float>::nonzero_bytes(p); }
  ATTEND_INLINE void transpose(V (&x)[width]) {
    const V first = vtrn1q_f64(x[0], x[1]);
    x[1] = vtrn2q_f64(x[0], x[1]);
    x[0] = first;
  }

  ATTEND_INLINE void load_columns(const T* const* rows, std::int64_t first, V (&x)[width]) {
    for (int i = 0; i < width; ++i) x[i] = load(rows[i] + first);
    transpose(x);
  }

  static constexpr int counters = 1;
  ATTEND_INLINE V at_least(const Wide (&x)[counters], Wide from) { return select(vcgeq_u64(low(x[0]), from), set(1), set(0)); }
};

#undef ATTEND_INLINE

}  // namespace
}  // namespace attend::detail::neon
