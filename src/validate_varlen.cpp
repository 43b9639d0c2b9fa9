// validate() for packed sequences: the same problem, whose rows begin at boundaries instead of at strides.
#include <algorithm>
#include <string>

#include "checks.hpp"

namespace attend::detail {
namespace {

using std::to_string;

/// Boundaries of n sequences: from 0, never falling, to the total. `longest` is the size of the largest.
operand place_starts(const char* name, const array_view& x, std::int64_t total, std::int64_t& longest) {
  if (x.type != dtype::i64) refuse_type(name, "int64", x.type);
  if (x.shape.rank() != 1 || x.shape[0] < 1) refuse(name, "shape (n + 1) for n sequences", "shape " + x.shape.to_string());
  check_memory(name, x);
  operand o;
  o.data = const_cast<void*>(x.data);
  o.type = x.type;
  o.row = x.strides[0];
  std::int64_t last = integer_at(o, 0);
  if (last != 0) refuse(name, "boundaries from 0", to_string(last) + " first");
  longest = 0;
  for (std::int64_t i = 1; i < x.shape[0]; ++i) {
    const std::int64_t next = integer_at(o, i * o.row);
    if (next < last)
      refuse(name, "boundaries that never fall", to_string(next) + " after " + to_string(last) + " at " + to_string(i));
    longest = std::max(longest, next - last);
    last = next;
  }
  if (last != total) refuse(name, "the total, " + to_string(total) + ", as the last boundary", to_string(last));
  return o;
}

}  // namespace

problem validate_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                        const array_view& cu_seqlens_k, const outputs& results, const options& how) {
  check_input("q", q, q.type, inputs::data);
  check_input("k", k, q.type, inputs::data);
  check_input("v", v, q.type, inputs::data);
  for (const auto& [name, x] : {std::pair{"q", &q}, std::pair{"k", &k}, std::pair{"v", &v}}) {
    if (x->shape.rank() != 3) refuse(name, "shape (total, heads, width)", x->shape.to_string());
  }
  for (const auto& [name, given] :
       {std::pair{"mask", static_cast<bool>(how.mask)}, std::pair{"bias", static_cast<bool>(how.bias)},
        std::pair{"layout", how.layout != layout::bhld}}) {
    if (given) refuse(name, "none beside packed sequences, which have no common shape", "one");
  }
  problem p;
  p.type = q.type;
  const axes qa = heads_first(q, layout::blhd), ka = heads_first(k, layout::blhd), va = heads_first(v, layout::blhd);
  check_sizes(p, qa, ka, va);
  if (cu_seqlens_k.shape.rank() == 1 && cu_seqlens_q.shape.rank() == 1 && cu_seqlens_k.shape != cu_seqlens_q.shape)
    refuse("cu_seqlens_k", "as many boundaries as cu_seqlens_q, " + to_string(cu_seqlens_q.shape[0]),
           to_string(cu_seqlens_k.shape[0]));
  std::int64_t queries = 0, keys = 0;
  p.query_starts = place_starts("cu_seqlens_q", cu_seqlens_q, p.queries, queries);
  p.key_starts = place_starts("cu_seqlens_k", cu_seqlens_k, p.keys, keys);
  p.queries = queries;
  p.keys = keys;
  p.batch.axes = 1;
  p.batch.sizes[0] = p.batch.count = cu_seqlens_q.shape[0] - 1;
  p.q = place(q, qa, p.batch);
  p.k = place(k, ka, p.batch);
  p.v = place(v, va, p.batch);

  check_functions(p, how);
  check_region(p, how);
  for (std::int64_t b = 0; p.grid && b < p.batch.count; ++b) {
    if (queries_of(p, b) != p.queries || keys_of(p, b) != p.keys)
      refuse("grid", "as many queries and keys in every sequence, " + to_string(p.queries),
             to_string(queries_of(p, b)) + " and " + to_string(keys_of(p, b)) + " in sequence " + to_string(b));
  }
  check_positions(p, how, true);
  check_segments(p, how);
  check_scores(p, how);
  p.reproducible = how.reproducible;
  if (how.threads < 0) refuse("threads", "a positive number, or 0 for the default", to_string(how.threads));
  const boundaries packed{cu_seqlens_q, cu_seqlens_k};
  check_results(p, q, k, v, results, how, false, &packed);
  return p;
}

}  // namespace attend::detail
