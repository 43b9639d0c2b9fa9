// The kernels of scalar: the algorithm over this instruction set's policy, built with its own flags (cmake/InstructionSets.cmake).
#include "kernels/kernel_table.hpp"
#include "kernels/mask_intervals.hpp"
#include "simd/scalar.hpp"

namespace attend::detail {
namespace scalar {
namespace {

#include "kernels/exponential.inl"
#include "kernels/compatibility.inl"
#include "kernels/normalizer.inl"
#include "kernels/tile.inl"
#include "kernels/key_rows.inl"
#include "kernels/score_steps.inl"
#include "kernels/stripe.inl"
#include "kernels/forward.inl"
#include "kernels/backward_products.inl"
#include "kernels/backward_form.inl"
#include "kernels/backward.inl"
#include "kernels/few_rows.inl"
#include "kernels/few_queries.inl"

// Element types by their names in kernels.def.
using f32 = float;
using f64 = double;

}  // namespace
}  // namespace scalar

const kernel_table scalar_kernels = {{
#define ATTEND_KERNEL(operation, queries, keys, accumulator) &scalar::operation<scalar::simd<scalar::accumulator>>::row,
#define ATTEND_PAIR_KERNEL(...) nullptr,
#include "kernels/kernels.def"
                                     },
                                     {
#define ATTEND_BACKWARD_KERNEL(operation, queries, keys, accumulator) \
  &scalar::operation<scalar::simd<scalar::accumulator>>::row,
#include "kernels/kernels.def"
                                     }};

}  // namespace attend::detail
