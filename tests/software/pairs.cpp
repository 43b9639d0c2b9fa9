// The kernels of avx512_bf16 and amx_bf16 with products in software, so that their logic is tested on processors without those sets: the
// policy compiled without AVX512_BF16, and software tiles. Built with the flags of avx512, and linked in place of the library's units.
#include "kernels/pairs.inl"
#include "simd/tiles.hpp"

namespace attend::detail {

const kernel_table avx512_bf16_kernels = {{
#define ATTEND_KERNEL(...) nullptr,
#define ATTEND_PAIR_KERNEL(operation, ...) \
  &avx512::operation<avx512::paired_simd, avx512::vector_products<avx512::paired_simd>>::row,
#include "kernels/kernels.def"
                                          },
                                          {}};

const kernel_table amx_bf16_kernels = {{
#define ATTEND_KERNEL(...) nullptr,
#define ATTEND_PAIR_KERNEL(operation, ...) \
  &avx512::operation<avx512::paired_simd, avx512::tile_products<avx512::paired_simd, avx512::software_tiles>>::row,
#include "kernels/kernels.def"
                                       },
                                       {}};

}  // namespace attend::detail
