// Plans: what would run, and why; made once, run many times.
//
// ```cpp
// attend::plan p = attend::make_plan({.q = {1, 8, 256, 64}, .k = {1, 8, 256, 64}, .v = {1, 8, 256, 64}}, {.causal = true});
// std::cout << p.describe();
// attend::tensor<float> q({1, 8, 256, 64}, 0.1f), out({1, 8, 256, 64});
// p.run(q, q, q, {.out = out});
// ```
#pragma once

#include <cstdint>
#include <string>

#include "attend/attention.hpp"
#include "attend/isa.hpp"

namespace attend {

/// What a plan is made from: shapes and a dtype, no data.
struct problem_shape {
  dtype type = dtype::f32;
  extents q, k, v;
};

/// What was decided, in numbers. Tiles count score tiles of `lanes` x `tile_keys` over the whole call.
struct plan_facts {
  std::string operation;  ///< "forward"
  std::string kernel;     ///< "forward" (queries are lanes) or "few_queries" (columns are lanes)
  std::string reason;     ///< why this kernel
  isa set = isa::scalar;
  compatibility_kind compatibility = compatibility_kind::dot;
  attend::normalizer normalizer = attend::normalizer::softmax;
  dtype type = dtype::f32;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, width = 0, value_width = 0;
  int lanes = 0;                 ///< rows (query, head) that one block computes together
  int tile_keys = 0;             ///< keys of one score tile
  std::int64_t chunk_keys = 0;   ///< keys that fold into one partial result
  std::int64_t lane_blocks = 0;  ///< per sequence and key/value head
  std::int64_t work_items = 0;
  bool split_keys = false;  ///< chunks of one row may run on different threads
  std::int64_t tiles_skipped = 0, tiles_full = 0, tiles_partial = 0;
  std::int64_t scratch_bytes_per_thread = 0;
  std::int64_t shared_scratch_bytes = 0;  ///< partial results of split keys
  double flops = 0;                       ///< multiply-adds count two; of the tiles that are not skipped
  double bytes = 0;                       ///< q, k, v read and out written once
};

/// The facts as text, one a line.
std::string describe(const plan_facts& facts);

/// A checked call without its data. A value: copies are independent; runs on any number of threads at once.
/// Holds the options, so arrays that these name (mask, bias, lengths) must live while it runs.
class plan {
 public:
  /// The facts, counted over every tile.
  plan_facts facts() const;

  /// The facts as text, one a line.
  std::string describe() const;

  /// Executes the plan and nothing else. Throws `argument_error` where shapes or dtypes are not those of the plan.
  void run(const array_view& q, const array_view& k, const array_view& v, const outputs& results) const;

  /// The same with `out` alone.
  template <tensor_like Out>
  void run(const array_view& q, const array_view& k, const array_view& v, Out&& out) const {
    run(q, k, v, outputs{.out = out});
  }

 private:
  friend plan make_plan(const problem_shape& shapes, const options& how);

  problem_shape shapes_;
  options how_;
};

/// Checks shapes and options and decides the route. Does not know the number of threads. Throws `argument_error`.
plan make_plan(const problem_shape& shapes, const options& how = {});

}  // namespace attend
