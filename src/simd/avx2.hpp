// Isa policy of avx2 (with FMA and F16C): 16 registers of 32 bytes, masks as whole lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "attend/detail/half_bits.hpp"

namespace attend::detail::avx2 {
namespace {

#include "simd/half.inl"

#define ATTEND_INLINE [[gnu::always_inline]] static inline

/// Random words of dropout: 64-bit lanes that hold 32 bits each, whatever is above them. A vector of numbers takes `counters` of them.
struct random_words {
  using Wide = __m256i;
  ATTEND_INLINE Wide wide(std::uint64_t x) { return _mm256_set1_epi64x(static_cast<std::int64_t>(x)); }
  ATTEND_INLINE Wide load_wide(const std::uint64_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  ATTEND_INLINE Wide product(Wide a, Wide b) { return _mm256_mul_epu32(a, b); }
  ATTEND_INLINE Wide high_xor(Wide x, Wide a, Wide b) {
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(x, 32), a), b);
  }
  ATTEND_INLINE Wide low(Wide x) { return _mm256_and_si256(x, wide(0xffffffff)); }
};

template <class T>
struct simd;

template <>
struct simd<float> : random_words {
  using T = float;
  using V = __m256;
  using M = V;  // which lanes: all bits of theirs are set
  using Word = std::uint32_t;
  static constexpr int width = 8;
  static constexpr int block_vectors = 8;
  static constexpr int micro_vectors = 2;  // 6 x 2 sums + 2 operands + 1 broadcast = 15 of 16 registers
  static constexpr int micro_rows = 6;
  static constexpr int few_score_rows = 2;  // x 4 keys: 8 sums + 4 keys + 1 query
  static constexpr int few_value_rows = 2;  // 2 x 4 sums + 4 operands + 2 broadcasts
  static constexpr int few_vectors = 4;

  /// Keeps a vector in a register.
  ATTEND_INLINE void keep(V& x) { asm("" : "+x"(x)); }
  ATTEND_INLINE V load(const T* p) { return _mm256_loadu_ps(p); }
  ATTEND_INLINE void store(T* p, V x) { _mm256_storeu_ps(p, x); }
  ATTEND_INLINE V load_first(const T* p, int n) {
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane_numbers()));
  }
  ATTEND_INLINE V set(T x) { return _mm256_set1_ps(x); }
  ATTEND_INLINE V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  ATTEND_INLINE V max(V a, V b) { return _mm256_max_ps(a, b); }
  ATTEND_INLINE V min(V a, V b) { return _mm256_min_ps(a, b); }
  ATTEND_INLINE V select(M lanes, V yes, V no) { return _mm256_blendv_ps(no, yes, lanes); }
  ATTEND_INLINE M equal(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  ATTEND_INLINE M less(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  ATTEND_INLINE bool all(M lanes) { return _mm256_movemask_ps(lanes) == 0xff; }
  ATTEND_INLINE V abs(V x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  ATTEND_INLINE V with_sign(V x, V y) { return _mm256_or_ps(abs(x), _mm256_and_ps(_mm256_set1_ps(-0.0f), y)); }
  ATTEND_INLINE V quotient(V a, V b) { return _mm256_div_ps(a, b); }
  ATTEND_INLINE V sqrt(V x) { return _mm256_sqrt_ps(x); }
  ATTEND_INLINE V power_below(V x) { return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000))); }
  ATTEND_INLINE T sum(V x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  ATTEND_INLINE T largest(V x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  /// x = n + f. Below -127 everything is -127, whose power is exactly 0; the constant comes first so that NaN stays.
  ATTEND_INLINE V fraction(V x, V& whole) {
    x = _mm256_max_ps(_mm256_set1_ps(-127.0f), x);
    whole = _mm256_floor_ps(x);
    return _mm256_sub_ps(x, whole);
  }
  /// Adds to the exponent field. A NaN converts to 0x80000000, of which nothing is left after the shift.
  ATTEND_INLINE V scale_by_power(V p, V whole) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23)));
  }

  ATTEND_INLINE void store_sums(T* to, V a, V b, V c, V d) {
    const V ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const V cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const V s = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
  }

  ATTEND_INLINE V load_int8(const signed char* codes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadu_si64(codes)));
  }
  /// Of 16 columns in eight bytes, those from `column` on: 0, where they are the low halves, or 8.
  ATTEND_INLINE V load_int4(const unsigned char* codes, int column) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadu_si64(codes));
    return _mm256_cvtepi32_ps(column == 0 ? _mm256_and_si256(bytes, _mm256_set1_epi32(15)) : _mm256_srli_epi32(bytes, 4));
  }

  ATTEND_INLINE V widened(f16, __m128i x) { return _mm256_cvtph_ps(x); }
  ATTEND_INLINE V widened(bf16, __m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
  ATTEND_INLINE __m128i narrowed(f16, V x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// To nearest, ties to even.
  ATTEND_INLINE __m128i narrowed(bf16, V x) {
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i half = _mm256_add_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
  template <float_format F>
  ATTEND_INLINE V load(const half<F>* p) {
    return widened(half<F>(), _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  /// In pieces of 4, 2 and 1: there is no masked load of 16-bit lanes.
  template <float_format F>
  ATTEND_INLINE V load_first(const half<F>* p, int n) {
    __m128i x = _mm_setzero_si128();
    if (n & 1) x = _mm_loadu_si16(p + (n & 6));
    if (n & 2) x = _mm_or_si128(_mm_slli_si128(x, 4), _mm_loadu_si32(p + (n & 4)));
    if (n & 4) x = _mm_or_si128(_mm_slli_si128(x, 8), _mm_loadu_si64(p));
    return widened(half<F>(), x);
  }
  template <float_format F>
  ATTEND_INLINE void store(half<F>* p, V x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrowed(half<F>(), x));
  }
  template <float_format F>
  ATTEND_INLINE void store_first(half<F>* p, int n, V x) {
    const __m128i halves = narrowed(half<F>(), x);
    __builtin_memcpy(p, &halves, static_cast<std::size_t>(n) * sizeof *p);
  }

  ATTEND_INLINE void store_first(T* p, int n, V x) {
    _mm256_maskstore_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane_numbers()), x);
  }
  /// Lane i is `yes` where bit `bit` of words[i] is set.
  ATTEND_INLINE V select_bit(const Word* words, int bit, V yes, V no) {
    const __m256i one = _mm256_set1_epi32(1 << bit), word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(word, one), one)));
  }
  /// Bit i is set where byte i of 32 is not 0.
  ATTEND_INLINE std::uint32_t nonzero_bytes(const unsigned char* p) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return ~static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())));
  }
  /// Rows become columns: x[i][j] <- x[j][i].
  ATTEND_INLINE void transpose(V (&x)[width]) {
    V t[width], u[width];
    for (int i = 0; i < width; i += 2) {
      t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < width; i += 4) {
      u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      x[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
      x[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
  }

  /// x[j] = {rows[0][j], rows[1][j], ...}. Pieces of four numbers meet while they are loaded, which leaves half of the shuffles.
  ATTEND_INLINE void load_columns(const T* const* rows, std::int64_t first, V (&x)[width]) {
    for (int j = 0; j < width; j += 4) {
      V z[4];  // z[r]: columns j to j + 3 of rows r and r + 4
      for (int r = 0; r < 4; ++r) {
        const auto piece = [&](int row) { return _mm_loadu_ps(rows[row] + first + j); };
        z[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(piece(r)), piece(r + 4), 1);
      }
      const V low = _mm256_unpacklo_ps(z[0], z[1]), high = _mm256_unpackhi_ps(z[0], z[1]);
      const V low2 = _mm256_unpacklo_ps(z[2], z[3]), high2 = _mm256_unpackhi_ps(z[2], z[3]);
      x[j] = _mm256_shuffle_ps(low, low2, 0x44);
      x[j + 1] = _mm256_shuffle_ps(low, low2, 0xee);
      x[j + 2] = _mm256_shuffle_ps(high, high2, 0x44);
      x[j + 3] = _mm256_shuffle_ps(high, high2, 0xee);
    }
  }

  static constexpr int counters = 2;
  ATTEND_INLINE V at_least(const Wide (&x)[counters], Wide from) {
    const V few = _mm256_castsi256_ps(_mm256_cmpgt_epi64(from, low(x[0])));
    const V more = _mm256_castsi256_ps(_mm256_cmpgt_epi64(from, low(x[1])));
    const __m256d halves = _mm256_castps_pd(_mm256_shuffle_ps(few, more, 0x88));  // lanes 0, 1 of both, 2, 3 of both
    return _mm256_andnot_ps(_mm256_castpd_ps(_mm256_permute4x64_pd(halves, 0xd8)), set(1));
  }

 private:
  ATTEND_INLINE __m256i lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
};

template <>
struct simd<double> : random_words {
  using T = double;
  using V = __m256d;
  using M = V;
  using Word = std::uint64_t;
  static constexpr int width = 4;
  static constexpr int block_vectors = 8;
  static constexpr int micro_vectors = 2;
  static constexpr int micro_rows = 6;
  static constexpr int few_score_rows = 2;
  static constexpr int few_value_rows = 2;
  static constexpr int few_vectors = 4;

  /// Keeps a vector in a register.
  ATTEND_INLINE void keep(V& x) { asm("" : "+x"(x)); }
  ATTEND_INLINE V load(const T* p) { return _mm256_loadu_pd(p); }
  ATTEND_INLINE void store(T* p, V x) { _mm256_storeu_pd(p, x); }
  ATTEND_INLINE V load_first(const T* p, int n) {
    return _mm256_maskload_pd(p, _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), lane_numbers()));
  }
  ATTEND_INLINE V set(T x) { return _mm256_set1_pd(x); }
  ATTEND_INLINE V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  ATTEND_INLINE V max(V a, V b) { return _mm256_max_pd(a, b); }
  ATTEND_INLINE V min(V a, V b) { return _mm256_min_pd(a, b); }
  ATTEND_INLINE V select(M lanes, V yes, V no) { return _mm256_blendv_pd(no, yes, lanes); }
  ATTEND_INLINE M equal(V a, V b) { return _mm256_cmp_pd(a, b, _CMP_EQ_OQ); }
  ATTEND_INLINE M less(V a, V b) { return _mm256_cmp_pd(a, b, _CMP_LT_OQ); }
  ATTEND_INLINE bool all(M lanes) { return _mm256_movemask_pd(lanes) == 0xf; }
  ATTEND_INLINE V abs(V x) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x); }
  ATTEND_INLINE V with_sign(V x, V y) { return _mm256_or_pd(abs(x), _mm256_and_pd(_mm256_set1_pd(-0.0), y)); }
  ATTEND_INLINE V quotient(V a, V b) { return _mm256_div_pd(a, b); }
  ATTEND_INLINE V sqrt(V x) { return _mm256_sqrt_pd(x); }
  ATTEND_INLINE V power_below(V x) { return _mm256_and_pd(x, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff0000000000000))); }
  ATTEND_INLINE T sum(V x) {
    const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
  }
  ATTEND_INLINE T largest(V x) {
    const __m128d s = _mm_max_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_max_sd(s, _mm_unpackhi_pd(s, s)));
  }

  ATTEND_INLINE V fraction(V x, V& whole) {
    x = _mm256_max_pd(_mm256_set1_pd(-1023.0), x);
    whole = _mm256_floor_pd(x);
    return _mm256_sub_pd(x, whole);
  }
  /// There is no conversion to 64-bit integers: adding 1.5 * 2^52 leaves the integer in the low bits. A NaN's payload would
  /// disturb the exponent, so NaN is passed by.
  ATTEND_INLINE V scale_by_power(V p, V whole) {
    const __m256i n = _mm256_castpd_si256(_mm256_add_pd(whole, _mm256_set1_pd(6755399441055744.0)));
    const V scaled = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), _mm256_slli_epi64(n, 52)));
    return _mm256_blendv_pd(scaled, p, _mm256_cmp_pd(p, p, _CMP_UNORD_Q));
  }

  ATTEND_INLINE void store_sums(T* to, V a, V b, V c, V d) {
    const V ab = _mm256_add_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
    const V cd = _mm256_add_pd(_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
    _mm_storeu_pd(to, _mm_add_pd(_mm256_castpd256_pd128(ab), _mm256_extractf128_pd(ab, 1)));
    _mm_storeu_pd(to + 2, _mm_add_pd(_mm256_castpd256_pd128(cd), _mm256_extractf128_pd(cd, 1)));
  }

  ATTEND_INLINE void store_first(T* p, int n, V x) {
    _mm256_maskstore_pd(p, _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), lane_numbers()), x);
  }
  ATTEND_INLINE V select_bit(const Word* words, int bit, V yes, V no) {
    const __m256i one = _mm256_set1_epi64x(1ll << bit), word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    return _mm256_blendv_pd(no, yes, _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_and_si256(word, one), one)));
  }
  ATTEND_INLINE std::uint32_t nonzero_bytes(const unsigned char* p) { return simd<float>::nonzero_bytes(p); }
  ATTEND_INLINE void load_columns(const T* const* rows, std::int64_t first, V (&x)[width]) {
    for (int j = 0; j < width; j += 2) {
      V z[2];  // z[r]: columns j and j + 1 of rows r and r + 2
      for (int r = 0; r < 2; ++r) {
        const auto piece = [&](int row) { return _mm_loadu_pd(rows[row] + first + j); };
        z[r] = _mm256_insertf128_pd(_mm256_castpd128_pd256(piece(r)), piece(r + 2), 1);
      }
      x[j] = _mm256_unpacklo_pd(z[0], z[1]);
      x[j + 1] = _mm256_unpackhi_pd(z[0], z[1]);
    }
  }
  ATTEND_INLINE void transpose(V (&x)[width]) {
    const V t[] = {_mm256_unpacklo_pd(x[0], x[1]), _mm256_unpackhi_pd(x[0], x[1]), _mm256_unpacklo_pd(x[2], x[3]),
                   _mm256_unpackhi_pd(x[2], x[3])};
    for (int i = 0; i < 2; ++i) {
      x[i] = _mm256_permute2f128_pd(t[i], t[i + 2], 0x20);
      x[i + 2] = _mm256_permute2f128_pd(t[i], t[i + 2], 0x31);
    }
  }

  static constexpr int counters = 1;
  ATTEND_INLINE V at_least(const Wide (&x)[counters], Wide from) {
    return _mm256_andnot_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(from, low(x[0]))), set(1));
  }

 private:
  ATTEND_INLINE __m256i lane_numbers() { return _mm256_setr_epi64x(0, 1, 2, 3); }
};

#undef ATTEND_INLINE

}  // namespace
}  // namespace attend::detail::avx2
