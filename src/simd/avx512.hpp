// Isa policy of avx512 (F, BW, DQ, VL): 32 registers of 64 bytes, masks in registers of their own.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "attend/detail/half_bits.hpp"

namespace attend::detail::avx512 {
namespace {

#include "simd/half.inl"

#define ATTEND_INLINE [[gnu::always_inline]] static inline

/// Random words of dropout: 64-bit lanes that hold 32 bits each, whatever is above them. A vector of numbers takes `counters` of them.
struct random_words {
  using Wide = __m512i;
  ATTEND_INLINE Wide wide(std::uint64_t x) { return _mm512_set1_epi64(static_cast<std::int64_t>(x)); }
  ATTEND_INLINE Wide load_wide(const std::uint64_t* p) { return _mm512_loadu_si512(p); }
  ATTEND_INLINE Wide product(Wide a, Wide b) { return _mm512_mul_epu32(a, b); }
  ATTEND_INLINE Wide high_xor(Wide x, Wide a, Wide b) {
    return _mm512_ternarylogic_epi64(_mm512_srli_epi64(x, 32), a, b, 0x96);
  }
  ATTEND_INLINE Wide low(Wide x) { return _mm512_and_si512(x, wide(0xffffffff)); }
};

template <class T>
struct simd;

template <>
struct simd<float> : random_words {
  using T = float;
  using V = __m512;
  using M = __mmask16;  // which lanes
  using Word = std::uint32_t;
  static constexpr int width = 16;
  static constexpr int block_vectors = 4;  // vectors of lanes in a block
  static constexpr int micro_vectors = 4;  // 6 x 4 sums + 4 operands + 1 broadcast = 29 of 32 registers
  static constexpr int micro_rows = 6;
  static constexpr int few_score_rows = 4;  // x 4 keys: 16 sums + 4 keys + 1 query
  static constexpr int few_value_rows = 2;  // 2 x 8 sums + 8 operands
  static constexpr int few_vectors = 8;

  /// Keeps a vector in a register.
  ATTEND_INLINE void keep(V& x) { asm("" : "+v"(x)); }
  ATTEND_INLINE V load(const T* p) { return _mm512_loadu_ps(p); }
  ATTEND_INLINE void store(T* p, V x) { _mm512_storeu_ps(p, x); }
  ATTEND_INLINE V load_first(const T* p, int n) { return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p); }
  ATTEND_INLINE V set(T x) { return _mm512_set1_ps(x); }
  ATTEND_INLINE V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  /// b where either is NaN
  ATTEND_INLINE V max(V a, V b) { return _mm512_max_ps(a, b); }
  ATTEND_INLINE V min(V a, V b) { return _mm512_min_ps(a, b); }
  ATTEND_INLINE V select(M lanes, V yes, V no) { return _mm512_mask_mov_ps(no, lanes, yes); }
  ATTEND_INLINE M equal(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  ATTEND_INLINE M less(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  ATTEND_INLINE bool all(M lanes) { return lanes == static_cast<M>(~M{0}); }
  ATTEND_INLINE V abs(V x) { return _mm512_abs_ps(x); }
  /// |x| with the sign of y: bits of y where the first operand has ones, else those of x.
  ATTEND_INLINE V with_sign(V x, V y) {
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(sign, _mm512_castps_si512(y), _mm512_castps_si512(x), 0xca));
  }
  /// a / b for b from 1 to 2^100, within 2 units in the last place: an estimate of 1/b, and what it is off by added.
  ATTEND_INLINE V quotient(V a, V b) {
    const V inverse = _mm512_rcp14_ps(b), y = _mm512_mul_ps(a, inverse);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(b, y, a), inverse, y);
  }
  ATTEND_INLINE V sqrt(V x) { return _mm512_sqrt_ps(x); }
  /// 2^floor(log2 |x|): the exponent alone; 0 below the normal numbers, infinity for infinities and NaN.
  ATTEND_INLINE V power_below(V x) { return _mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000))); }
  ATTEND_INLINE T sum(V x) { return _mm512_reduce_add_ps(x); }
  ATTEND_INLINE T largest(V x) { return _mm512_reduce_max_ps(x); }

  /// x = n + f with an integer n <= x; f in [0, 1). The instruction's own rules: f(-inf) = 0, NaN stays.
  ATTEND_INLINE V fraction(V x, V& whole) {
    whole = x;
    return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  /// p * 2^floor(whole): the instruction takes the floor itself, and gives 0 for -inf.
  ATTEND_INLINE V scale_by_power(V p, V whole) { return _mm512_scalef_ps(p, whole); }

  /// {sum(a), sum(b), sum(c), sum(d)}, each by the same tree of additions.
  ATTEND_INLINE void store_sums(T* to, V a, V b, V c, V d) {
    const V ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const V cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const V s = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
  }

  ATTEND_INLINE V load_int8(const signed char* codes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
  }
  /// 16 columns in eight bytes: the low halves, then the high ones.
  ATTEND_INLINE V load_int4(const unsigned char* codes, int) {
    const __m128i bytes = _mm_loadu_si64(codes);
    const __m512i twice = _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(bytes, bytes));
    const __m512i shifts = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(4), 1);
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srlv_epi32(twice, shifts), _mm512_set1_epi32(15)));
  }

  ATTEND_INLINE V widened(f16, __m256i x) { return _mm512_cvtph_ps(x); }
  ATTEND_INLINE V widened(bf16, __m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
  ATTEND_INLINE __m256i narrowed(f16, V x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// To nearest, ties to even; the instruction for it is not there, and takes numbers below the normal ones for 0.
  ATTEND_INLINE __m256i narrowed(bf16, V x) {
    const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    const __m512i half = _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const M nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
  }
  template <float_format F>
  ATTEND_INLINE V load(const half<F>* p) {
    return widened(half<F>(), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  template <float_format F>
  ATTEND_INLINE V load_first(const half<F>* p, int n) {
    return widened(half<F>(), _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p));
  }
  template <float_format F>
  ATTEND_INLINE void store(half<F>* p, V x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrowed(half<F>(), x));
  }
  template <float_format F>
  ATTEND_INLINE void store_first(half<F>* p, int n, V x) {
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), narrowed(half<F>(), x));
  }

  ATTEND_INLINE void store_first(T* p, int n, V x) { _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x); }
  /// Lane i is `yes` where bit `bit` of words[i] is set.
  ATTEND_INLINE V select_bit(const Word* words, int bit, V yes, V no) {
    return _mm512_mask_mov_ps(no, _mm512_test_epi32_mask(_mm512_loadu_si512(words), _mm512_set1_epi32(1 << bit)), yes);
  }
  /// Bit i is set where byte i of 32 is not 0.
  ATTEND_INLINE std::uint32_t nonzero_bytes(const unsigned char* p) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_test_epi8_mask(bytes, bytes);
  }
  /// Rows become columns: x[i][j] <- x[j][i].
  ATTEND_INLINE void transpose(V (&x)[width]) {
    V t[width], u[width];
    for (int i = 0; i < width; i += 2) {
      t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < width; i += 4) {
      u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
      u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {  // u[4g + i]: column i of each 128-bit part, rows 4g to 4g + 3
      const V low = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88), high = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
      const V low_odd = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd), high_odd = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
      x[i] = _mm512_shuffle_f32x4(low, high, 0x88);
      x[i + 8] = _mm512_shuffle_f32x4(low, high, 0xdd);
      x[i + 4] = _mm512_shuffle_f32x4(low_odd, high_odd, 0x88);
      x[i + 12] = _mm512_shuffle_f32x4(low_odd, high_odd, 0xdd);
    }
  }

  /// x[j] = {rows[0][j], rows[1][j], ...}. Pieces of four numbers meet while they are loaded, which leaves half of the shuffles.
  ATTEND_INLINE void load_columns(const T* const* rows, std::int64_t first, V (&x)[width]) {
    for (int j = 0; j < width; j += 4) {
      V z[4];  // z[r]: columns j to j + 3 of rows r, r + 4, r + 8, r + 12
      for (int r = 0; r < 4; ++r) {
        const auto piece = [&](int row) { return _mm_loadu_ps(rows[row] + first + j); };
        z[r] = _mm512_castps128_ps512(piece(r));
        z[r] = _mm512_insertf32x4(z[r], piece(r + 4), 1);
        z[r] = _mm512_insertf32x4(z[r], piece(r + 8), 2);
        z[r] = _mm512_insertf32x4(z[r], piece(r + 12), 3);
      }
      const V low = _mm512_unpacklo_ps(z[0], z[1]), high = _mm512_unpackhi_ps(z[0], z[1]);
      const V low2 = _mm512_unpacklo_ps(z[2], z[3]), high2 = _mm512_unpackhi_ps(z[2], z[3]);
      x[j] = _mm512_shuffle_ps(low, low2, 0x44);
      x[j + 1] = _mm512_shuffle_ps(low, low2, 0xee);
      x[j + 2] = _mm512_shuffle_ps(high, high2, 0x44);
      x[j + 3] = _mm512_shuffle_ps(high, high2, 0xee);
    }
  }

  static constexpr int counters = 2;
  /// 1 where the low 32 bits are at least `from`, else 0.
  ATTEND_INLINE V at_least(const Wide (&x)[counters], Wide from) {
    const M m = static_cast<M>(_mm512_cmpge_epu64_mask(low(x[0]), from) | _mm512_cmpge_epu64_mask(low(x[1]), from) << 8);
    return _mm512_maskz_mov_ps(m, set(1));
  }
};

template <>
struct simd<double> : random_words {
  using T = double;
  using V = __m512d;
  using M = __mmask8;
  using Word = std::uint64_t;
  static constexpr int width = 8;
  static constexpr int block_vectors = 4;
  static constexpr int micro_vectors = 4;
  static constexpr int micro_rows = 6;
  static constexpr int few_score_rows = 4;
  static constexpr int few_value_rows = 2;
  static constexpr int few_vectors = 8;

  /// Keeps a vector in a register.
  ATTEND_INLINE void keep(V& x) { asm("" : "+v"(x)); }
  ATTEND_INLINE V load(const T* p) { return _mm512_loadu_pd(p); }
  ATTEND_INLINE void store(T* p, V x) { _mm512_storeu_pd(p, x); }
  ATTEND_INLINE V load_first(const T* p, int n) { return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), p); }
  ATTEND_INLINE V set(T x) { return _mm512_set1_pd(x); }
  ATTEND_INLINE V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  ATTEND_INLINE V max(V a, V b) { return _mm512_max_pd(a, b); }
  ATTEND_INLINE V min(V a, V b) { return _mm512_min_pd(a, b); }
  ATTEND_INLINE V select(M lanes, V yes, V no) { return _mm512_mask_mov_pd(no, lanes, yes); }
  ATTEND_INLINE M equal(V a, V b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
  ATTEND_INLINE M less(V a, V b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
  ATTEND_INLINE bool all(M lanes) { return lanes == static_cast<M>(~M{0}); }
  ATTEND_INLINE V abs(V x) { return _mm512_abs_pd(x); }
  ATTEND_INLINE V with_sign(V x, V y) {
    const __m512i sign = _mm512_set1_epi64(INT64_MIN);
    return _mm512_castsi512_pd(_mm512_ternarylogic_epi64(sign, _mm512_castpd_si512(y), _mm512_castpd_si512(x), 0xca));
  }
  ATTEND_INLINE V quotient(V a, V b) { return _mm512_div_pd(a, b); }
  ATTEND_INLINE V sqrt(V x) { return _mm512_sqrt_pd(x); }
  ATTEND_INLINE V power_below(V x) { return _mm512_and_pd(x, _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff0000000000000))); }
  ATTEND_INLINE T sum(V x) { return _mm512_reduce_add_pd(x); }
  ATTEND_INLINE T largest(V x) { return _mm512_reduce_max_pd(x); }

  ATTEND_INLINE V fraction(V x, V& whole) {
    whole = x;
    return _mm512_reduce_pd(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  ATTEND_INLINE V scale_by_power(V p, V whole) { return _mm512_scalef_pd(p, whole); }

  ATTEND_INLINE void store_sums(T* to, V a, V b, V c, V d) {
    const V ab = _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
    const V cd = _mm512_add_pd(_mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d));
    const __m256d ab_half = _mm256_add_pd(_mm512_castpd512_pd256(ab), _mm512_extractf64x4_pd(ab, 1));
    const __m256d cd_half = _mm256_add_pd(_mm512_castpd512_pd256(cd), _mm512_extractf64x4_pd(cd, 1));
    _mm_storeu_pd(to, _mm_add_pd(_mm256_castpd256_pd128(ab_half), _mm256_extractf128_pd(ab_half, 1)));
    _mm_storeu_pd(to + 2, _mm_add_pd(_mm256_castpd256_pd128(cd_half), _mm256_extractf128_pd(cd_half, 1)));
  }

  ATTEND_INLINE void store_first(T* p, int n, V x) { _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << n) - 1), x); }
  ATTEND_INLINE V select_bit(const Word* words, int bit, V yes, V no) {
    return _mm512_mask_mov_pd(no, _mm512_test_epi64_mask(_mm512_loadu_si512(words), _mm512_set1_epi64(1ll << bit)), yes);
  }
  ATTEND_INLINE std::uint32_t nonzero_bytes(const unsigned char* p) { return simd<float>::nonzero_bytes(p); }
  ATTEND_INLINE void load_columns(const T* const* rows, std::int64_t first, V (&x)[width]) {
    for (int j = 0; j < width; j += 2) {
      V z[2];  // z[r]: columns j and j + 1 of rows r, r + 2, r + 4, r + 6
      for (int r = 0; r < 2; ++r) {
        const auto piece = [&](int row) { return _mm_loadu_pd(rows[row] + first + j); };
        z[r] = _mm512_castpd128_pd512(piece(r));
        z[r] = _mm512_insertf64x2(z[r], piece(r + 2), 1);
        z[r] = _mm512_insertf64x2(z[r], piece(r + 4), 2);
        z[r] = _mm512_insertf64x2(z[r], piece(r + 6), 3);
      }
      x[j] = _mm512_unpacklo_pd(z[0], z[1]);
      x[j + 1] = _mm512_unpackhi_pd(z[0], z[1]);
    }
  }
  ATTEND_INLINE void transpose(V (&x)[width]) {
    V t[width];
    for (int i = 0; i < width; i += 2) {
      t[i] = _mm512_unpacklo_pd(x[i], x[i + 1]);
      t[i + 1] = _mm512_unpackhi_pd(x[i], x[i + 1]);
    }
    for (int i = 0; i < 2; ++i) {
      const V low = _mm512_shuffle_f64x2(t[i], t[i + 2], 0x88), high = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0x88);
      const V low_odd = _mm512_shuffle_f64x2(t[i], t[i + 2], 0xdd), high_odd = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0xdd);
      x[i] = _mm512_shuffle_f64x2(low, high, 0x88);
      x[i + 4] = _mm512_shuffle_f64x2(low, high, 0xdd);
      x[i + 2] = _mm512_shuffle_f64x2(low_odd, high_odd, 0x88);
      x[i + 6] = _mm512_shuffle_f64x2(low_odd, high_odd, 0xdd);
    }
  }

  static constexpr int counters = 1;
  /// 1 where the low 32 bits are at least `from`, else 0.
  ATTEND_INLINE V at_least(const Wide (&x)[counters], Wide from) {
    return _mm512_maskz_mov_pd(_mm512_cmpge_epu64_mask(low(x[0]), from), set(1));
  }
};

#undef ATTEND_INLINE

}  // namespace
}  // namespace attend::detail::avx512
