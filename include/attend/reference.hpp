// The oracle: attention by its definition in float64, without tiles. Slow, and allocates one row of scores at a time.
//
// ```cpp
// attend::tensor<float> q({4, 8}, 0.5f);
// attend::reference::result truth = attend::reference::attention(q, q, q, {.causal = true});
// assert(truth.out.shape()[0] == 4);
// ```
#pragma once

#include "attend/attention.hpp"

namespace attend::reference {

/// Everything a call can give, in float64 and row-major; shapes as in `outputs`.
struct result {
  tensor<double> out;
  tensor<double> lse;
  tensor<double> weights;  ///< empty unless asked for
};

/// The same contract and checks as `attend::attention`, evaluated in float64. Throws `argument_error`.
result attention(const array_view& q, const array_view& k, const array_view& v, const options& how = {}, bool weights = false);

/// The largest error that the contract allows for `out`, element by element, in the layout of `truth.out`:
/// `bound * max|v|`, or what rounding scores of this size makes inevitable, whichever is larger.
tensor<double> error_bound(const array_view& q, const array_view& k, const array_view& v, const options& how,
                           const result& truth);

}  // namespace attend::reference
