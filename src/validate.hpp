// Every precondition and every message, once, before any work.
#pragma once

#include <vector>

#include "attend/varlen.hpp"
#include "problem.hpp"

namespace attend::detail {

/// Whether q, k and v must have memory, or stand for their shapes (plans).
enum class inputs { data, shapes };

/// Checks a call and describes it. `results` may be empty. Throws `argument_error`.
problem validate(const array_view& q, const array_view& k, const array_view& v, const outputs& results, const options& how,
                 inputs given = inputs::data);

/// The same for packed sequences.
problem validate_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                        const array_view& cu_seqlens_k, const outputs& results, const options& how);

/// Pages of every sequence, as a problem reads them.
struct page_lists {
  std::vector<std::int64_t> copies;  // of tables whose rows are not adjacent
  std::vector<const std::int64_t*> rows;
};

/// The same for packed queries over pages; the problem refers to `lists`, which are filled.
problem validate_varlen(const array_view& q, const array_view& k, const array_view& v, const array_view& cu_seqlens_q,
                        const block_table& table, const outputs& results, const options& how, page_lists& lists);

/// What a cache holds, as a call reads it.
struct held_rows {
  array_view rows;  // everything: (sequences or pages, heads, rows, width), or bytes of codes instead of columns
  std::int64_t width;
  quantization codes;
};
struct held_keys {
  dtype type;
  held_rows k, v;
  const std::int64_t* counts;  // keys per sequence, as the call counts them
  std::int64_t sequences;
  std::int64_t page_keys = 0;                        // problem::page_keys
  const std::int64_t* const* page_tables = nullptr;  // problem::page_tables
  const std::int64_t* ring_shifts = nullptr;         // problem::ring_shifts
  bool pages_shared = false;                         // problem::pages_shared
  std::optional<std::int64_t> window = {};           // of a ring
};

/// The same for queries (sequences, H, L, E) over a cache, which the problem refers to.
problem validate_decode(const array_view& q, const held_keys& held, const outputs& results, const options& how);

/// Shapes of the results of a checked call.
extents out_shape(const problem& p, layout order, bool matrices);
extents lse_shape(const problem& p, bool matrices);
extents weights_shape(const problem& p, bool matrices);

}  // namespace attend::detail
