// The oracle: attention by its definition in float64, without tiles. Slow, and allocates one row of scores at a time.
//
// ```cpp
// attend::tensor<float> q({4, 8}, 0.5f);
// attend::reference::result truth = attend::reference::attention(q, q, q, {.causal = true});
// assert(truth.out.shape()[0] == 4);
// ```
#pragma once

#include <array>

#include "attend/varlen.hpp"

namespace attend::reference {

/// Everything a call can give, in float64 and row-major; shapes as in `outputs`.
struct result {
  tensor<double> out;
  tensor<double> lse;      ///< empty for every normalizer but softmax, the only one that has it
  tensor<double> weights;  ///< empty unless asked for
};

/// The same contract and checks as `attend::attention`, evaluated in float64. Throws `argument_error`.
result attention(const array_view& q, const array_view& k, const array_view& v, const options& how = {}, bool weights = false);

/// The same for `attend::attention_varlen`: out (total_q, H, Ev), lse (total_q, H), no weights.
result attention_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                        const array_view& cu_seqlens_k, const options& how = {});

/// The largest error that the contract allows for `out`, element by element, in the layout of `truth.out`: the larger of
///
///     bound * max(max|v|, sum_j |w_j v_j|)     bound = 2e-6 for float32, 1e-12 for float64, 1e-3 for float16, 8e-3 for bfloat16
///     2 eps * M * sum_j |dy/ds_j|              what rounding scores of this size makes inevitable
///
/// eps is that of float64 for float64 and of float32 for all others, the sums run over the keys that the row sees, w_j are the weights after dropout, and M is
/// the row's largest size of a score, or that of its sink if it is larger: |scale| * (the magnitudes of the terms of f, added
/// up) + the magnitudes of what biases, the table and ALiBi add. A soft cap, whose slope is at most 1, changes no size.
/// The terms are q_d k_d (dot), the same of the vectors scaled to length 1 (cosine), (q_d - k_d)^2 / (2 sigma^2) (gaussian),
/// |q_d - k_d| (l1), w_d tanh(q_d + k_d) (additive); `none` has no term. With T the sum that relu2 and abs divide by (where it
/// is 0, so are all weights and the bound's second part stands for T = 1) and N the number of keys,
///
///     dy/ds_j = w_j (v_j - y)               softmax        w_j (1 - w_j) v_j            sigmoid
///               v_j / N                     mean           2 max(s_j, 0) (v_j - y) / T  relu2
///               v_j                         sum            (v_j - sign(s_j) y) / T      abs
///
/// with the w_j before dropout and, for v_j, what dropout makes of it: 0, or v_j / (1 - p). A sink counts as a key whose value
/// is 0. Where weights are dropped, `how` has to name the seed that `truth` was made with.
///
/// These are slopes: where T is no larger than its own rounding, relu2 and abs may jump from one key to another and no bound
/// of this kind holds. An element that is infinite or NaN in `truth` is exact.
tensor<double> error_bound(const array_view& q, const array_view& k, const array_view& v, const options& how,
                           const result& truth);

/// The same for `attention_varlen`.
tensor<double> error_bound_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                                  const array_view& cu_seqlens_k, const options& how, const result& truth);

/// Gradients as `attend::attention_backward` gives them, in float64 and row-major; empty where there is no array that they belong to.
struct gradients {
  tensor<double> dq, dk, dv;
  tensor<double> dbias, drelative, dalibi, dsinks, dadditive;
  std::array<tensor<double>, score_list::max_size> dscore;  ///< by place in the score list
};

/// The same contract and checks as `attend::attention_backward`, evaluated in float64 from q, k and v alone. `dlse` may be none.
gradients attention_backward(const array_view& dout, const array_view& dlse, const array_view& q, const array_view& k,
                             const array_view& v, const options& how = {});

/// The same for `attend::attention_varlen_backward`.
gradients attention_varlen_backward(const array_view& dout, const array_view& dlse, const array_view& q, const array_view& k,
                                    const array_view& v, const array_view& cu_seqlens_q, const array_view& cu_seqlens_k,
                                    const options& how = {});

}  // namespace attend::reference
