// The kernels of neon: the algorithm over this instruction set's policy, built with its own flags (cmake/InstructionSets.cmake).
#include "kernels/kernel_table.hpp"
#include "kernels/mask_intervals.hpp"
#include "simd/neon.hpp"

namespace attend::detail {
namespace neon {
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
}  // namespace neon

const kernel_table neon_kernels = {{
#define ATTEND_KERNEL(operation, queries, keys, accumulator) &neon::operation<neon::simd<neon::accumulator>>::row,
#define ATTEND_PAIR_KERNEL(...) nullptr,
#include "kernels/kernels.def"
                                   },
                                   {
#define ATTEND_BACKWARD_KERNEL(operation, queries, keys, accumulator) &neon::operation<neon::simd<neon::accumulator>>::row,
#include "kernels/kernels.def"
                                   }};

}  // namespace attend::detail
