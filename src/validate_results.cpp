// The part of validate() that looks at where results go.
#include <string>

#include "checks.hpp"
#include "overlap.hpp"
#include "read_arrays.hpp"

namespace attend::detail {
namespace {

void check_result(const char* name, const mutable_array_view& x, dtype type, const extents& shape, const read_arrays& read) {
  if (x.type != type) refuse_type(name, std::string(name_of(type)), x.type);
  if (x.shape != shape) refuse(name, "shape " + shape.to_string(), x.shape.to_string());
  check_places(name, x);
  if (shape.count() > 0) read.check(name, x);
}

}  // namespace

void check_places(const char* name, const mutable_array_view& x) {
  check_memory(name, x);
  if (x.shape.count() > 0 && !distinct_elements(x))
    refuse(name, "every element in a place of its own",
           "strides " + x.strides.to_string() + " for shape " + x.shape.to_string());
}

extents out_shape(const problem& p, layout order, bool matrices) {
  if (p.query_starts) return {first_row(p.query_starts, p.batch.count), p.heads, p.value_width};
  if (matrices) return {p.queries, p.value_width};
  extents shape = batch_extents(p.batch);
  shape.push_back(order == layout::bhld ? p.heads : p.queries);
  shape.push_back(order == layout::bhld ? p.queries : p.heads);
  shape.push_back(p.value_width);
  return shape;
}

extents lse_shape(const problem& p, bool matrices) {
  if (p.query_starts) return {first_row(p.query_starts, p.batch.count), p.heads};
  if (matrices) return {p.queries};
  extents shape = batch_extents(p.batch);
  shape.push_back(p.heads);
  shape.push_back(p.queries);
  return shape;
}

extents weights_shape(const problem& p, bool matrices) {
  extents shape = lse_shape(p, matrices);
  shape.push_back(p.keys);
  return shape;
}

void check_results(problem& p, const array_view& q, const array_view& k, const array_view& v, const outputs& results,
                   const options& how, bool matrices, const boundaries* packed) {
  if (!results.out && !results.lse && !results.weights && !results.scores) return;
  const read_arrays read(q, k, v, packed, how);
  if (results.out) {
    check_result("out", results.out, p.type, out_shape(p, how.layout, matrices), read);
    p.out = place(results.out, heads_first(results.out, packed ? layout::blhd : how.layout), p.batch);
  }
  if (results.lse) {
    if (p.normalizer != normalizer::softmax)
      refuse("lse", "normalizer softmax, the only one with an LSE", std::string(name_of(p.normalizer)));
    check_result("lse", results.lse, accumulator_of(p.type), lse_shape(p, matrices), read);
    array_view rows = results.lse;  // read as (..., H, L, 1), packed as (L, H, 1)
    rows.shape.push_back(1);
    rows.strides.push_back(0);
    p.lse = place(rows, heads_first(rows, packed ? layout::blhd : layout::bhld), p.batch);
  }
  for (const auto& [name, view, to] :
       {std::tuple{"weights", &results.weights, &p.weights}, std::tuple{"scores", &results.scores, &p.scores}}) {
    if (!*view) continue;
    if (packed) refuse(name, "none beside packed sequences, which have no common shape", "an array");
    check_result(name, *view, p.type, weights_shape(p, matrices), read);
    *to = place(*view, heads_first(*view, layout::bhld), p.batch);
  }
  if (name_of(results.stage).empty())
    refuse("stage", "scaled, capped or biased", std::to_string(static_cast<int>(results.stage)));
  p.stage = results.stage;
  const mutable_array_view* const written[] = {&results.out, &results.lse, &results.weights, &results.scores};
  const char* const names[] = {"out", "lse", "weights", "scores"};
  for (int i = 1; i < 4; ++i) {
    for (int j = 0; j < i; ++j) {
      if (*written[i] && *written[j] && overlaps(*written[i], *written[j]))
        refuse(names[i], "memory apart from the other results", std::string("an array that overlaps ") + names[j]);
    }
  }
}

}  // namespace attend::detail
