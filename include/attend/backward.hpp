// Backward: gradients of attention by everything that it is made from.
//
// ```cpp
// attend::tensor<float> q({8, 128, 64}, 0.1f), k({8, 200, 64}, 0.2f), v({8, 200, 32}, 0.3f);
// attend::tensor<float> out({8, 128, 32}), lse({8, 128}), dout({8, 128, 32}, 1.0f);
// const attend::options how{.causal = true, .query_offset = attend::lower_right};
// attend::attention(q, k, v, {.out = out, .lse = lse}, how);
//
// auto by = attend::attention_backward({.dout = dout, .out = out, .lse = lse}, q, k, v, how);  // by.dq, by.dk, by.dv: owned
//
// attend::tensor<float> dk({8, 200, 64});                                                       // or what is wanted alone
// attend::attention_backward({.dout = dout, .out = out, .lse = lse}, q, k, v, {.dk = dk}, how);
// ```
#pragma once

#include <array>
#include <optional>
#include <string>

#include "attend/attention.hpp"

namespace attend {

/// What a backward call begins from: the gradients of a loss by the results of `attention`, and these results.
struct backward_inputs {
  array_view dout;       ///< gradient by `out`; shape and dtype of `out`
  array_view out;        ///< as `attention` gave it for the same inputs and options; read where weights are shares of a sum
  array_view lse = {};   ///< as `attention` gave it beside `out`; none beside any normalizer but softmax
  array_view dlse = {};  ///< gradient by `lse`; shape and dtype of `lse`
};

/// Where gradients go: memory of the caller's, any strides, none of it overlapping an input. Only what is given is computed. Each has
/// the shape of what it is the gradient of, as that was given: what was broadcast along an axis, its gradient is summed up over.
/// Results below the smallest normal number of the accumulator may come out as 0.
struct gradients {
  mutable_array_view dq = {}, dk = {}, dv = {};  ///< the inputs' dtype
  // Of options, where these were given as arrays: the inputs' dtype or float32.
  mutable_array_view dbias = {};
  mutable_array_view drelative = {};
  mutable_array_view dalibi = {};  ///< of given slopes; the paper's are no inputs
  mutable_array_view dsinks = {};
  mutable_array_view dadditive = {};  ///< of the weights of compatibility additive
  std::array<mutable_array_view, score_list::max_size> dscore =
      {};  ///< of biases and slopes of the score list, by their place in it
};

/// Gradients of `sum(dout * out) + sum(dlse * lse)` into memory of the caller's, from `out` and `lse`: scores are made again tile by
/// tile, so that memory grows with L and S, never with L times S. By the identity of Dao et al., FlashAttention, 2022: with D_i =
/// sum_c dout_ic out_ic - dlse_i and g_ij = dout_i . v_j, the gradient by a score s_ij is
///
///     w_ij (g_ij - D_i)           softmax        w_ij (1 - w_ij) g_ij               sigmoid
///     g_ij / N                    mean           2 max(s_ij, 0) (g_ij - D_i) / T    relu2, T = sum_j max(s_ij, 0)^2
///     g_ij                        sum            (g_ij - sign(s_ij) D_i) / T        abs, T = sum_j |s_ij|
///
/// where dropout multiplies g_ij as it does the weight. N and T, which no LSE tells, are found by one more pass over scores. Where T is 0,
/// so are weights and gradients. Every compatibility function has gradients by q and k, `additive` by its weights, too; where f has no slope,
/// 0 is taken: |s| at 0, l1 at equal elements, cosine at a zero vector. Of `none`, dq and dk are exactly 0.
///
/// Inputs and options are those of the call of `attention`, whose rules they follow; dropout needs its seed. Pairs that are excluded add
/// exactly nothing, whatever they hold, and rows that see no key have gradients of exactly 0, whatever dout holds there. Of sinks alone,
/// whose LSE is such a row's, dlse remains. Bits do not depend on the number of threads. Any number of threads may call at once. Throws
/// `argument_error` before anything is written, `interrupted`, `std::bad_alloc`.
void attention_backward(const backward_inputs& of, const array_view& q, const array_view& k, const array_view& v,
                        const gradients& results, const options& how = {});

/// What `attention_backward` would throw as `argument_error`: its text, or nothing where the call is right.
std::optional<std::string> check_backward(const backward_inputs& of, const array_view& q, const array_view& k,
                                          const array_view& v, const gradients& results, const options& how = {});

/// Gradients that the library allocates, row-major; those of options in the accumulator's type, and empty where an option was not given as
/// an array.
template <class T>
struct owned_gradients {
  tensor<T> dq, dk, dv;
  tensor<accumulator<T>> dbias, drelative, dalibi, dsinks, dadditive;
  std::array<tensor<accumulator<T>>, score_list::max_size> dscore;
};

namespace detail {

/// Memory for every gradient there is of a call, in tensors that have the names of `gradients`.
template <class Owned>
Owned make_gradients(const array_view& q, const array_view& k, const array_view& v, const options& how, gradients& to) {
  Owned by;
  const auto make = [](auto& own, mutable_array_view& view, const array_view& like) {
    if (!like) return;
    own = std::remove_cvref_t<decltype(own)>(like.shape);
    view = own;
  };
  make(by.dq, to.dq, q);
  make(by.dk, to.dk, k);
  make(by.dv, to.dv, v);
  make(by.dbias, to.dbias, how.bias);
  make(by.drelative, to.drelative, how.relative);
  make(by.dalibi, to.dalibi, how.alibi.given());
  make(by.dsinks, to.dsinks, how.sinks);
  make(by.dadditive, to.dadditive, how.compatibility.weights);
  std::size_t n = 0;
  for (const attend::score_step& step : how.score) {
    make(by.dscore[n], to.dscore[n], step.what == attend::score_step::kind::bias ? step.numbers : step.slopes.given());
    ++n;
  }
  return by;
}

}  // namespace detail

/// Every gradient there is of a call.
template <tensor_like Q, tensor_like K, tensor_like V>
owned_gradients<typename std::remove_cvref_t<Q>::value_type> attention_backward(const backward_inputs& of, const Q& q,
                                                                                const K& k, const V& v,
                                                                                const options& how = {}) {
  gradients to;
  auto by = detail::make_gradients<owned_gradients<typename std::remove_cvref_t<Q>::value_type>>(q, k, v, how, to);
  attention_backward(of, array_view(q), array_view(k), array_view(v), to, how);
  return by;
}

/// The same of `attention_varlen`, over packed sequences whose keys are packed, too: everything in its shapes and by its rules.
void attention_varlen_backward(const backward_inputs& of, const array_view& q, const array_view& k, const array_view& v,
                               const array_view& cu_seqlens_q, const array_view& cu_seqlens_k, const gradients& results,
                               const options& how = {});

/// What `attention_varlen_backward` would throw as `argument_error`: its text, or nothing where the call is right.
std::optional<std::string> check_varlen_backward(const backward_inputs& of, const array_view& q, const array_view& k,
                                                 const array_view& v, const array_view& cu_seqlens_q,
                                                 const array_view& cu_seqlens_k, const gradients& results,
                                                 const options& how = {});

template <tensor_like Q, tensor_like K, tensor_like V>
owned_gradients<typename std::remove_cvref_t<Q>::value_type> attention_varlen_backward(const backward_inputs& of, const Q& q,
                                                                                       const K& k, const V& v,
                                                                                       const array_view& cu_seqlens_q,
                                                                                       const array_view& cu_seqlens_k,
                                                                                       const options& how = {}) {
  gradients to;
  auto by = detail::make_gradients<owned_gradients<typename std::remove_cvref_t<Q>::value_type>>(q, k, v, how, to);
  attention_varlen_backward(of, array_view(q), array_view(k), array_view(v), cu_seqlens_q, cu_seqlens_k, to, how);
  return by;
}

}  // namespace attend
