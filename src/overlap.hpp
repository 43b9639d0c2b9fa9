// Do two strided arrays share memory? Exact for arrays whose axes nest, which is what slicing, transposing and packing make.
#pragma once

#include "attend/tensor.hpp"

namespace attend::detail {

/// Whether the bytes between the lowest and the highest element of a non-empty array can be counted in 63 bits.
bool byte_span(const array_view& x) noexcept;

/// Whether every element lies in a place of its own: no axis steps back into the extent of those inside it.
bool distinct_elements(const array_view& x) noexcept;

/// Whether some element of one lies on some element of the other. Arrays that interleave without touching do not overlap.
/// Where an exact answer would take too long, the answer is yes.
bool overlaps(const array_view& x, const array_view& y) noexcept;

}  // namespace attend::detail
