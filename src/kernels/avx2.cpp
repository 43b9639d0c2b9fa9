// The kernels of avx2: the algorithm over this instruction set's policy. Built with its own flags (cmake/InstructionSets.cmake).
#include "kernels/kernel_table.hpp"
#include "kernels/mask_intervals.hpp"
#include "simd/avx2.hpp"

namespace attend::detail {
namespace avx2 {
namespace {

#include "kernels/softmax.inl"
#include "kernels/tile.inl"
#include "kernels/forward.inl"
#include "kernels/few_queries.inl"

}  // namespace
}  // namespace avx2

const kernel_table avx2_kernels = {
    &avx2::forward<avx2::simd<float>>::row,
    &avx2::forward<avx2::simd<double>>::row,
    &avx2::few_queries<avx2::simd<float>>::row,
    &avx2::few_queries<avx2::simd<double>>::row,
};

}  // namespace attend::detail
