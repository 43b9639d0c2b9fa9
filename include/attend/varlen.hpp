// Packed sequences: many of unequal length in one array, without padding.
//
// ```cpp
// attend::tensor<float> q({5, 8, 64}, 0.1f), k({12, 2, 64}, 0.2f);            // 5 queries and 12 keys of two sequences
// attend::tensor<std::int64_t> at_q({3}), at_k({3});
// at_q(1) = 2, at_q(2) = 5, at_k(1) = 4, at_k(2) = 12;                        // 2 queries see 4 keys, 3 queries see 8
// attend::tensor<float> y = attend::attention_varlen(q, k, k, at_q, at_k, {.causal = true});
// ```
#pragma once

#include "attend/attention.hpp"

namespace attend {

/// Attention over packed sequences into memory of the caller's: sequence s has the queries [cu_seqlens_q[s], cu_seqlens_q[s+1]) and
/// the keys [cu_seqlens_k[s], cu_seqlens_k[s+1]), and sees no other.
///
/// Shapes: q (total_q, H, E), k (total_k, Hk, E), v (total_k, Hk, Ev); out (total_q, H, Ev), lse (total_q, H). Both lists of
/// boundaries are int64 (n + 1), from 0, never falling, to the total. Options mean for each sequence what they mean for `attention`:
/// integers per batch are (n), segments (total_q) and (total_k), a grid is that of every sequence. `query_offset` not given is
/// `lower_right`. Without mask, bias (of the score list, too), layout, weights and scores, whose shape would be that of no sequence.
/// The work is spread over threads by its size, however unequal the sequences. Throws as `attention` does.
void attention_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                      const array_view& cu_seqlens_k, const outputs& results, const options& how = {});

/// Pages of the caller's in which keys and values of packed sequences lie: key j of sequence s in row j % page_size of page
/// pages(s, j / page_size). int64 (n, most pages of a sequence); entries behind a sequence's last page are not read.
struct block_table {
  array_view pages;
};

/// The same over such pages: k (pages, page_size, Hk, E), v (pages, page_size, Hk, Ev), any strides. `key_lengths` says how many keys each
/// sequence has, one integer or int64 (n), and what lies behind them is not read. Without segments and grids.
void attention_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                      const block_table& table, const outputs& results, const options& how = {});

/// What `attention_varlen` would throw as `argument_error`: its text, or nothing where the call is right.
std::optional<std::string> check_varlen(const array_view& q, const array_view& k, const array_view& v,
                                        const array_view& cu_seqlens_q, const array_view& cu_seqlens_k, const outputs& results,
                                        const options& how = {});

/// Shape of `out` for these inputs. Throws `argument_error`.
extents output_shape_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                            const array_view& cu_seqlens_k, const options& how = {});

extents output_shape_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                            const block_table& table, const options& how = {});

/// Packed attention with a result that the library allocates, row-major.
template <tensor_like Q, tensor_like K, tensor_like V>
tensor<typename Q::value_type> attention_varlen(const Q& q, const K& k, const V& v, const array_view& cu_seqlens_q,
                                                const array_view& cu_seqlens_k, const options& how = {}) {
  tensor<typename Q::value_type> y(output_shape_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, how));
  attention_varlen(array_view(q), array_view(k), array_view(v), cu_seqlens_q, cu_seqlens_k, outputs{.out = y}, how);
  return y;
}
template <tensor_like Q, tensor_like K, tensor_like V>
tensor<typename Q::value_type> attention_varlen(const Q& q, const K& k, const V& v, const array_view& cu_seqlens_q,
                                                const block_table& table, const options& how = {}) {
  tensor<typename Q::value_type> y(output_shape_varlen(q, k, v, cu_seqlens_q, table, how));
  attention_varlen(array_view(q), array_view(k), array_view(v), cu_seqlens_q, table, outputs{.out = y}, how);
  return y;
}

}  // namespace attend
