// Isa policy of kernels that multiply bfloat16: numbers as avx512 has them, and vectors of 16 lanes that hold two bfloat16 each, the
// first in the lower half. Compiled without AVX512_BF16, it does by other instructions what that set has one for.
#pragma once

#include "simd/avx512.hpp"

namespace attend::detail::avx512 {
namespace {

#define ATTEND_INLINE [[gnu::always_inline]] static inline

struct paired_simd : simd<float> {
  using P = __m512i;
  ATTEND_INLINE P load_pairs(const std::uint32_t* p) { return _mm512_loadu_si512(p); }
  ATTEND_INLINE void store_pairs(std::uint32_t* p, P x) { _mm512_storeu_si512(p, x); }
  /// The pair at `p`, which need not be aligned, in every lane.
  ATTEND_INLINE P set_pair(const char* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  /// Both rounded to nearest, ties to even; NaN stays.
  ATTEND_INLINE P pair_of(V first, V second) {
#ifdef __AVX512BF16__
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                           20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
#else
    const auto wide = [](V x) { return _mm512_cvtepu16_epi32(narrowed(bf16(), x)); };
    return _mm512_or_si512(wide(first), _mm512_slli_epi32(wide(second), 16));
#endif
  }
  ATTEND_INLINE V first_of(P x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
  ATTEND_INLINE V second_of(P x) { return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(INT32_MIN >> 15))); }
  /// sum + first * first + second * second.
  ATTEND_INLINE V multiply_pairs(V sum, P a, P b) {
#ifdef __AVX512BF16__
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
#else
    return fma(first_of(a), first_of(b), fma(second_of(a), second_of(b), sum));
#endif
  }
  /// Every number times a power of two, which rounds nothing.
  ATTEND_INLINE P scaled(P x, V power) {
    const __m512i first = _mm512_castps_si512(first_of(x) * power), second = _mm512_castps_si512(second_of(x) * power);
    return _mm512_or_si512(_mm512_srli_epi32(first, 16), second);
  }
  ATTEND_INLINE void transpose_pairs(P (&x)[width]) {
    V y[width];
    for (int i = 0; i < width; ++i) y[i] = _mm512_castsi512_ps(x[i]);
    transpose(y);
    for (int i = 0; i < width; ++i) x[i] = _mm512_castps_si512(y[i]);
  }
  /// The first `n` of 32 adjacent bfloat16 as 16 pairs; zeros behind them.
  ATTEND_INLINE P load_row(const void* row, int n) {
    return _mm512_maskz_loadu_epi16(n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1, row);
  }
  /// Whether 32 adjacent bfloat16 are finite.
  ATTEND_INLINE bool finite(P row) {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    return _mm512_cmpeq_epi16_mask(_mm512_and_si512(row, exponent), exponent) == 0;
  }
  /// Pairs of the same column of two rows of 32: pair i of `lower` is that of column `first_column(i)`, of `upper` that of four columns on.
  ATTEND_INLINE void pair_columns(P first, P second, P& lower, P& upper) {
    lower = _mm512_unpacklo_epi16(first, second);
    upper = _mm512_unpackhi_epi16(first, second);
  }
  static constexpr int first_column(int i) { return i / 4 * 8 + i % 4; }
  /// Pairs of the same column of two rows, of `n` columns: 0 where a number is not finite, which `all_finite` tells. A row may be null.
  ATTEND_INLINE P pair_rows(const void* first, const void* second, int n, bool& all_finite) {
    const __mmask16 columns = static_cast<__mmask16>((1u << n) - 1);
    const __m256i exponent = _mm256_set1_epi16(0x7f80);
    __mmask16 bad = 0;
    const auto wide = [&](const void* row) {
      const __m256i x = row ? _mm256_maskz_loadu_epi16(columns, row) : _mm256_setzero_si256();
      const __mmask16 not_finite = _mm256_cmpeq_epi16_mask(_mm256_and_si256(x, exponent), exponent);
      bad = static_cast<__mmask16>(bad | not_finite);
      return _mm512_cvtepu16_epi32(_mm256_maskz_mov_epi16(static_cast<__mmask16>(~not_finite), x));
    };
    const P pairs = _mm512_or_si512(wide(first), _mm512_slli_epi32(wide(second), 16));
    all_finite = all_finite && bad == 0;
    return pairs;
  }
};

#undef ATTEND_INLINE

}  // namespace
}  // namespace attend::detail::avx512
