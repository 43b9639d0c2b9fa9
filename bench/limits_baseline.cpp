// Loops of 128-bit vectors, with what every processor of the architecture has: SSE2, Advanced SIMD, or what the compiler makes
// of them.
#include "limits_loops.hpp"

#define ATTEND_LIMITS_TARGET

namespace attend::limits {
namespace {

constexpr std::size_t vector_bytes = 16;

/// Contracted to one instruction where the architecture has it; a product and a sum on x86-64 without FMA.
template <class Vector>
inline Vector fma(Vector x, Vector a, Vector b) {
  return x * a + b;
}

#include "limits_loops.inl"

}  // namespace

const loops baseline_loops = these_loops;

}  // namespace attend::limits
