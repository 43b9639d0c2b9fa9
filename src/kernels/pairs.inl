// All that a unit with kernels of bfloat16 pairs is made of but for its table, in the order of its use.
#include "kernels/kernel_table.hpp"
#include "kernels/mask_intervals.hpp"
#include "simd/pairs.hpp"

namespace attend::detail::avx512 {
namespace {

#include "kernels/exponential.inl"
#include "kernels/compatibility.inl"
#include "kernels/normalizer.inl"
#include "kernels/tile.inl"
#include "kernels/key_rows.inl"
#include "kernels/score_steps.inl"
#include "kernels/stripe.inl"
#include "kernels/forward.inl"
#include "kernels/pair_products.inl"
#include "kernels/pair_pack.inl"
#include "kernels/forward_pairs.inl"

}  // namespace
}  // namespace attend::detail::avx512
