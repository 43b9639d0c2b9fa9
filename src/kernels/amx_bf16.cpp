// The kernels of amx_bf16: those of bfloat16 over this instruction set's products; for the rest, the next worse set serves.
#include "kernels/pairs.inl"
#include "simd/tiles.hpp"

namespace attend::detail {

const kernel_table amx_bf16_kernels = {{
#define ATTEND_KERNEL(...) nullptr,
#define ATTEND_PAIR_KERNEL(operation, ...) \
  &avx512::operation<avx512::paired_simd, avx512::tile_products<avx512::paired_simd, avx512::amx_tiles>>::row,
#include "kernels/kernels.def"
                                       },
                                       {}};

}  // namespace attend::detail
