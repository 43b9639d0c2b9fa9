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

/// What both kinds of packed calls begin with: q, k and v of their ranks, the queries of every sequence. Keys are not placed yet.
problem begin(const array_view& q, const array_view& k, const array_view& v, int key_rank, const char* key_shape,
              const array_view& cu_seqlens_q, const options& how) {
  check_input("q", q, q.type, inputs::data);
  check_input("k", k, q.type, inputs::data);
  check_input("v", v, q.type, inputs::data);
  if (q.shape.rank() != 3) refuse("q", "shape (total, heads, width)", q.shape.to_string());
  for (const auto& [name, x] : {std::pair{"k", &k}, std::pair{"v", &v}}) {
    if (x->shape.rank() != key_rank) refuse(name, key_shape, x->shape.to_string());
  }
  for (const auto& [name, given] :
       {std::pair{"mask", static_cast<bool>(how.mask)}, std::pair{"bias", static_cast<bool>(how.bias)},
        std::pair{"layout", how.layout != layout::bhld}}) {
    if (given) refuse(name, "none beside packed sequences, which have no common shape", "one");
  }
  problem p;
  p.type = q.type;
  const axes qa = heads_first(q, layout::blhd);
  check_sizes(p, qa, heads_first(k, layout::blhd), heads_first(v, layout::blhd));
  std::int64_t queries = 0;
  p.query_starts = place_starts("cu_seqlens_q", cu_seqlens_q, p.queries, queries);
  p.queries = queries;
  p.batch.axes = 1;
  p.batch.sizes[0] = p.batch.count = cu_seqlens_q.shape[0] - 1;
  p.q = place(q, qa, p.batch);
  return p;
}

/// What they end with.
void finish(problem& p, const array_view& q, const array_view& k, const array_view& v, const boundaries& packed,
            const outputs& results, const options& how) {
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
  check_results(p, q, k, v, results, how, false, &packed);
}

}  // namespace

problem validate_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                        const array_view& cu_seqlens_k, const outputs& results, const options& how) {
  problem p = begin(q, k, v, 3, "shape (total, heads, width)", cu_seqlens_q, how);
  const axes ka = heads_first(k, layout::blhd), va = heads_first(v, layout::blhd);
  if (cu_seqlens_k.shape.rank() == 1 && cu_seqlens_k.shape != cu_seqlens_q.shape)
    refuse("cu_seqlens_k", "as many boundaries as cu_seqlens_q, " + to_string(cu_seqlens_q.shape[0]),
           to_string(cu_seqlens_k.shape[0]));
  std::int64_t keys = 0;
  p.key_starts = place_starts("cu_seqlens_k", cu_seqlens_k, p.keys, keys);
  p.keys = keys;
  p.k = place(k, ka, p.batch);
  p.v = place(v, va, p.batch);
  finish(p, q, k, v, {cu_seqlens_q, "cu_seqlens_k", cu_seqlens_k}, results, how);
  return p;
}

problem validate_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                        const block_table& table, const outputs& results, const options& how, page_lists& lists) {
  problem p = begin(q, k, v, 4, "shape (pages, page size, heads, width)", cu_seqlens_q, how);
  const array_view& pages = table.pages;
  const std::int64_t sequences = p.batch.count, page_size = k.shape[1];
  if (v.shape[0] != k.shape[0]) refuse("v", "as many pages as k, " + to_string(k.shape[0]), to_string(v.shape[0]));
  if (pages.type != dtype::i64) refuse_type("block_table", "int64", pages.type);
  if (pages.shape.rank() != 2 || pages.shape[0] != sequences)
    refuse("block_table", "shape (" + to_string(sequences) + ", pages of the longest sequence)",
           "shape " + pages.shape.to_string());
  check_memory("block_table", pages);
  for (const auto& [name, given] :
       {std::pair{"query_segments", static_cast<bool>(how.query_segments)},
        std::pair{"key_segments", static_cast<bool>(how.key_segments)}, std::pair{"grid", static_cast<bool>(how.grid)}}) {
    if (given) refuse(name, "none beside keys in pages", "one");
  }
  if (!how.key_lengths.given()) refuse("key_lengths", "an integer, or one per sequence, beside block_table", "none");
  if (page_size < 1) refuse("k", "pages of at least one key", "shape " + k.shape.to_string());
  if (__builtin_mul_overflow(pages.shape[1], page_size, &p.keys))
    refuse("block_table", "fewer than 2^63 keys", "shape " + pages.shape.to_string());
  p.k = place(k, heads_first(k, layout::blhd), p.batch);
  p.v = place(v, heads_first(v, layout::blhd), p.batch);
  p.k.page = k.strides[0];
  p.v.page = v.strides[0];
  p.k.batch[0] = p.v.batch[0] = 0;
  p.page_keys = page_size;
  finish(p, q, k, v, {cu_seqlens_q, "block_table", pages}, results, how);

  const bool adjacent = pages.strides[1] == 1 || pages.shape[1] < 2;
  const std::size_t columns = static_cast<std::size_t>(pages.shape[1]);
  if (!adjacent) lists.copies.resize(static_cast<std::size_t>(sequences) * columns);
  lists.rows.resize(static_cast<std::size_t>(sequences));
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::int64_t* row = static_cast<const std::int64_t*>(pages.data) + s * pages.strides[0];
    if (!adjacent) {
      std::int64_t* const copy = lists.copies.data() + static_cast<std::size_t>(s) * columns;
      for (std::size_t n = 0; n < columns; ++n) copy[n] = row[static_cast<std::int64_t>(n) * pages.strides[1]];
      row = copy;
    }
    const std::int64_t used = (key_length(p, s) + page_size - 1) / page_size;
    for (std::int64_t n = 0; n < used; ++n) {
      if (row[n] < 0 || row[n] >= k.shape[0])
        refuse("block_table", "pages from 0 to " + to_string(k.shape[0] - 1),
               to_string(row[n]) + " as page " + to_string(n) + " of sequence " + to_string(s));
    }
    lists.rows[static_cast<std::size_t>(s)] = row;
  }
  p.page_tables = lists.rows.data();
  return p;
}

}  // namespace attend::detail
