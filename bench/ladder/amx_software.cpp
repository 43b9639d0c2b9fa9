// Step 5 on tiles of plain loops, so that amx.inl is tested on every processor. Slow.
#include "simd/scalar.hpp"
#include "simd/tiles.hpp"
#include "steps.hpp"

namespace attend::kernel_ladder {
namespace {

#include "kernels/exponential.inl"

using detail::scalar::bf16;
using simd = detail::scalar::simd<float>;
using tile_unit = detail::avx512::software_tiles;

inline void store_pairs(std::uint32_t* to, simd::V first, simd::V second) {
  for (int n = 0; n < simd::width; ++n) to[n] = bf16(first[n]).bits | static_cast<std::uint32_t>(bf16(second[n]).bits) << 16;
}

#include "amx.inl"

}  // namespace

const step<bfloat16_bits> amx_software = {"amx_software", depth, scratch_bytes, run};

}  // namespace attend::kernel_ladder
