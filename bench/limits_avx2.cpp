// Loops of 256-bit vectors.
#include "limits_loops.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#define ATTEND_LIMITS_TARGET __attribute__((target("avx2,fma")))

namespace attend::limits {
namespace {

constexpr std::size_t vector_bytes = 32;

ATTEND_LIMITS_TARGET inline __m256 fma(__m256 x, __m256 a, __m256 b) { return _mm256_fmadd_ps(x, a, b); }
ATTEND_LIMITS_TARGET inline __m256d fma(__m256d x, __m256d a, __m256d b) { return _mm256_fmadd_pd(x, a, b); }

#include "limits_loops.inl"

}  // namespace

const loops avx2_loops = these_loops;

}  // namespace attend::limits
#endif
