// The kernels of avx512: the algorithm over this instruction set's policy. Built with its own flags (cmake/InstructionSets.cmake).
#include "kernels/kernel_table.hpp"
#include "kernels/mask_intervals.hpp"
#include "simd/avx512.hpp"

namespace attend::detail {
namespace avx512 {
namespace {

#include "kernels/softmax.inl"
#include "kernels/tile.inl"
#include "kernels/forward.inl"
#include "kernels/few_queries.inl"

}  // namespace
}  // namespace avx512

const kernel_table avx512_kernels = {
    &avx512::forward<avx512::simd<float>>::row,
    &avx512::forward<avx512::simd<double>>::row,
    &avx512::few_queries<avx512::simd<float>>::row,
    &avx512::few_queries<avx512::simd<double>>::row,
};

}  // namespace attend::detail
