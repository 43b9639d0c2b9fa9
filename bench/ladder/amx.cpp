// Step 5 on the processor's own tiles. The operating system's permission to use them has to be there already:
// `attend::detected_isas` asks for it.
#include "simd/pairs.hpp"
#include "simd/tiles.hpp"
#include "steps.hpp"

namespace attend::kernel_ladder {
namespace {

#include "kernels/exponential.inl"

using detail::avx512::bf16;
using simd = detail::avx512::paired_simd;
using tile_unit = detail::avx512::amx_tiles;

[[gnu::always_inline]] inline void store_pairs(std::uint32_t* to, simd::V first, simd::V second) {
  simd::store_pairs(to, simd::pair_of(first, second));
}

#include "amx.inl"

}  // namespace

const step<bfloat16_bits> amx = {"amx", depth, scratch_bytes, run};

}  // namespace attend::kernel_ladder
