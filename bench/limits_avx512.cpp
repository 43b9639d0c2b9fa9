// Loops of 512-bit vectors.
#include "limits_loops.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#define ATTEND_LIMITS_TARGET __attribute__((target("avx512f")))

namespace attend::limits {
namespace {

constexpr std::size_t vector_bytes = 64;

ATTEND_LIMITS_TARGET inline __m512 fma(__m512 x, __m512 a, __m512 b) { return _mm512_fmadd_ps(x, a, b); }
ATTEND_LIMITS_TARGET inline __m512d fma(__m512d x, __m512d a, __m512d b) { return _mm512_fmadd_pd(x, a, b); }

#include "limits_loops.inl"

}  // namespace

const loops avx512_loops = these_loops;

}  // namespace attend::limits
#endif
