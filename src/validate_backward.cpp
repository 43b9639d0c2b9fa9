// The part of validate() that knows what a backward call needs beside its forward call's inputs, and where gradients go.
#include <string>

#include "checks.hpp"
#include "gradient_problem.hpp"
#include "overlap.hpp"
#include "read_arrays.hpp"

namespace attend::detail {
namespace {

/// A result of the forward call, or the gradient by one, of this dtype and shape.
void check_upstream(const char* name, const array_view& x, dtype type, const extents& shape) {
  if (!x) refuse(name, "an array of shape " + shape.to_string(), "none");
  if (x.type != type) refuse_type(name, std::string(name_of(type)), x.type);
  if (x.shape != shape) refuse(name, "shape " + shape.to_string(), x.shape.to_string());
  check_memory(name, x);
}

/// The layout of arrays with columns: packed rows lie as (L, H, E).
layout order_of(const problem& p, const options& how) noexcept { return p.query_starts ? layout::blhd : how.layout; }

/// As rows (..., H, L, 1), packed as (L, H, 1).
operand place_rows(const array_view& x, const problem& p) {
  array_view rows = x;
  rows.shape.push_back(1);
  rows.strides.push_back(0);
  return place(rows, heads_first(rows, p.query_starts ? layout::blhd : layout::bhld), p.batch);
}

/// The LSE or the gradient by it, which softmax alone has.
void check_lse(const char* name, const array_view& x, const problem& p, bool matrices) {
  if (p.normalizer == normalizer::softmax)
    check_upstream(name, x, accumulator_of(p.type), lse_shape(p, matrices));
  else if (x)
    refuse(name, "none beside normalizer " + std::string(name_of(p.normalizer)) + ", which has no LSE", "an array");
}

/// A gradient, and the array that it is the gradient of.
struct pair_of_arrays {
  const char* name;
  const mutable_array_view* gradient;
  const char* input_name;
  const array_view* input;
  bool beside;  // whether it stands beside the inputs, and may be float32, too
};

constexpr int most_pairs = 8 + score_list::max_size;

int pairs_of(const array_view& q, const array_view& k, const array_view& v, const gradients& to, const options& how,
             pair_of_arrays (&pairs)[most_pairs]) {
  int count = 0;
  const auto add = [&](const pair_of_arrays& pair) { pairs[count++] = pair; };
  add({"dq", &to.dq, "q", &q, false});
  add({"dk", &to.dk, "k", &k, false});
  add({"dv", &to.dv, "v", &v, false});
  add({"dbias", &to.dbias, "bias", &how.bias, true});
  add({"drelative", &to.drelative, "relative", &how.relative, true});
  add({"dalibi", &to.dalibi, "slopes of alibi as an array", &how.alibi.given(), true});
  add({"dsinks", &to.dsinks, "sinks", &how.sinks, true});
  add({"dadditive", &to.dadditive, "compatibility additive", &how.compatibility.weights, true});
  static const array_view nothing;
  for (int n = 0; n < score_list::max_size; ++n) {
    const score_step* const step = n < how.score.size() ? how.score.begin() + n : nullptr;
    const array_view& numbers = !step ? nothing : step->what == score_step::kind::bias ? step->numbers : step->slopes.given();
    add({"dscore", &to.dscore[static_cast<std::size_t>(n)], "an array at its place in score", &numbers, true});
  }
  return count;
}

void check_gradient(const pair_of_arrays& pair, const problem& p, const read_arrays& read) {
  const mutable_array_view& x = *pair.gradient;
  if (!*pair.input) refuse(pair.name, std::string(pair.input_name) + " beside it", "none");
  if (x.type != p.type && !(pair.beside && x.type == dtype::f32))
    refuse_type(pair.name, pair.beside ? added_types(p.type) : std::string(name_of(p.type)), x.type);
  if (x.shape != pair.input->shape) refuse(pair.name, "shape " + pair.input->shape.to_string(), x.shape.to_string());
  check_places(pair.name, x);
  if (x.shape.count() > 0) read.check(pair.name, x);
}

/// One number for every place along an axis: query heads, or columns.
operand place_numbers(const array_view& x, std::int64_t operand::* axis) {
  operand o;
  if (!x) return o;
  o.data = const_cast<void*>(x.data);
  o.type = x.type;
  o.*axis = x.strides[0];
  return o;
}

operand place_table(const array_view& x) {
  operand o;
  if (!x) return o;
  const bool flat = x.shape.rank() == 2;
  o.data = const_cast<void*>(x.data);
  o.type = x.type;
  o.head = x.shape[0] == 1 ? 0 : x.strides[0];
  o.row = flat ? 0 : x.strides[1];
  o.column = x.strides[flat ? 1 : 2];
  return o;
}

}  // namespace

gradient_operands place_gradients(const problem& p, const gradients& results, const options& how) {
  const auto rows = [&](const array_view& x) { return x ? place(x, heads_first(x, order_of(p, how)), p.batch) : operand{}; };
  const auto pairs = [&](const char* name, const array_view& x) { return x ? broadcast(name, x, p) : operand{}; };
  gradient_operands to;
  to.dq = rows(results.dq);
  to.dk = rows(results.dk);
  to.dv = rows(results.dv);
  to.dsinks = place_numbers(results.dsinks, &operand::head);
  to.drelative = place_table(results.drelative);
  to.dadditive = place_numbers(results.dadditive, &operand::column);
  // In the order in which check_scores() lists the functions.
  operand* of_function = to.dscore;
  for (int n = 0; n < how.score.size(); ++n) {
    const mutable_array_view& x = results.dscore[static_cast<std::size_t>(n)];
    *of_function++ =
        how.score.begin()[n].what == score_step::kind::bias ? pairs("dscore", x) : place_numbers(x, &operand::head);
  }
  if (how.softcap) ++of_function;
  if (how.bias) *of_function++ = pairs("dbias", results.dbias);
  if (how.relative) ++of_function;
  if (how.alibi) *of_function++ = place_numbers(results.dalibi, &operand::head);
  return to;
}

gradient_problem validate_upstream(const backward_inputs& of, const array_view& q, const array_view& k, const array_view& v,
                                   const packed_boundaries& packed, const options& how) {
  gradient_problem g;
  g.call = packed.queries || packed.keys ? validate_varlen(q, k, v, packed.queries, packed.keys, {}, how)
                                         : validate(q, k, v, {}, how);
  const problem& p = g.call;
  const bool matrices = q.shape.rank() == 2;
  if (p.dropout_p > 0 && !how.dropout.seed) refuse("seed", "that of the forward call beside dropout", "none");
  check_upstream("dout", of.dout, p.type, out_shape(p, how.layout, matrices));
  g.dout = place(of.dout, heads_first(of.dout, order_of(p, how)), p.batch);
  if (of.dlse) {
    check_lse("dlse", of.dlse, p, matrices);
    g.dlse = place_rows(of.dlse, p);
  }
  return g;
}

gradient_problem validate_backward(const backward_inputs& of, const array_view& q, const array_view& k, const array_view& v,
                                   const packed_boundaries& packed, const gradients& results, const options& how) {
  gradient_problem g = validate_upstream(of, q, k, v, packed, how);
  const problem& p = g.call;
  const bool matrices = q.shape.rank() == 2;
  check_upstream("out", of.out, p.type, out_shape(p, how.layout, matrices));
  check_lse("lse", of.lse, p, matrices);
  g.out = place(of.out, heads_first(of.out, order_of(p, how)), p.batch);
  if (of.lse) g.lse = place_rows(of.lse, p);

  read_arrays read(q, k, v, nullptr, how);
  read.add("cu_seqlens_q", packed.queries);
  read.add("cu_seqlens_k", packed.keys);
  read.add("dout", of.dout);
  read.add("out", of.out);
  read.add("lse", of.lse);
  read.add("dlse", of.dlse);
  pair_of_arrays pairs[most_pairs];
  const int count = pairs_of(q, k, v, results, how, pairs);
  for (int i = 0; i < count; ++i) {
    if (!*pairs[i].gradient) continue;
    check_gradient(pairs[i], p, read);
    for (int j = 0; j < i; ++j) {
      if (*pairs[j].gradient && overlaps(*pairs[i].gradient, *pairs[j].gradient))
        refuse(pairs[i].name, "memory apart from the other results", std::string("an array that overlaps ") + pairs[j].name);
    }
  }
  g.to = place_gradients(p, results, how);
  return g;
}

}  // namespace attend::detail
