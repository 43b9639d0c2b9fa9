// The kernels of scalar: the algorithm over this instruction set's policy. Built with its own flags (cmake/InstructionSets.cmake).
#include "kernels/kernel_table.hpp"
#include "kernels/mask_intervals.hpp"
#include "simd/scalar.hpp"

namespace attend::detail {
namespace scalar {
namespace {

#include "kernels/softmax.inl"
#include "kernels/tile.inl"
#include "kernels/forward.inl"
#include "kernels/few_queries.inl"

}  // namespace
}  // namespace scalar

const kernel_table scalar_kernels = {
    &scalar::forward<scalar::simd<float>>::row,
    &scalar::forward<scalar::simd<double>>::row,
    &scalar::few_queries<scalar::simd<float>>::row,
    &scalar::few_queries<scalar::simd<double>>::row,
};

}  // namespace attend::detail
