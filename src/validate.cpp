#include "validate.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "checks.hpp"
#include "overlap.hpp"

namespace attend::detail {
namespace {

using std::to_string;
// Positions stay below farthest_position + 2^59 queries, so that adding or subtracting a side below unbounded_side fits 64 bits.
constexpr std::int64_t farthest_position = std::int64_t{1} << 61, unbounded_side = std::int64_t{1} << 62;
constexpr int read_arrays = 7;                          // arrays that results must not overlap
constexpr std::int64_t widest = std::int64_t{1} << 40;  // columns: tiles of this width can still be counted in bytes

/// q, k, v or out as axes (batch..., H, L, E), whatever the layout and rank.
struct axes {
  extents shape, strides;
  int batch_axes() const noexcept { return shape.rank() - 3; }
  std::int64_t heads() const noexcept { return shape[shape.rank() - 3]; }
  std::int64_t length() const noexcept { return shape[shape.rank() - 2]; }
  std::int64_t width() const noexcept { return shape[shape.rank() - 1]; }
};

axes heads_first(const array_view& x, layout order) {
  axes a;
  if (x.shape.rank() == 2) {
    a.shape = {1, x.shape[0], x.shape[1]};
    a.strides = {0, x.strides[0], x.strides[1]};
    return a;
  }
  a.shape = x.shape;
  a.strides = x.strides;
  if (order == layout::blhd) {
    const int head = x.shape.rank() - 3;
    std::swap(a.shape[head], a.shape[head + 1]);
    std::swap(a.strides[head], a.strides[head + 1]);
  }
  return a;
}

void check_input(const char* name, const array_view& x, dtype type, inputs given) {
  if (!x) refuse(name, "an array", "none");
  if (x.type != dtype::f32 && x.type != dtype::f64) refuse_type(name, "float32 or float64", x.type);
  if (x.type != type) refuse_type(name, std::string(name_of(type)) + ", the dtype of q", x.type);
  if (x.shape.rank() < 2) refuse(name, "rank 2 to 8", "shape " + x.shape.to_string() + " of rank " + to_string(x.shape.rank()));
  check_memory(name, x, given);
}

/// Broadcasts the batch axes of x into `batch`, from the right.
void widen(batch_shape& batch, const axes& x, const char* name) {
  const int own = x.batch_axes();
  if (own > batch.axes) {
    std::int64_t sizes[max_batch_axes];
    for (int axis = 0; axis < own; ++axis) sizes[axis] = axis < own - batch.axes ? 1 : batch.sizes[axis - (own - batch.axes)];
    std::copy(sizes, sizes + own, batch.sizes);
    batch.axes = own;
  }
  for (int axis = 0; axis < own; ++axis) {
    std::int64_t& size = batch.sizes[batch.axes - own + axis];
    if (size == 1) size = x.shape[axis];
    if (x.shape[axis] != 1 && x.shape[axis] != size) {
      refuse(name, "batch axes that broadcast with those of the arrays before it",
             "shape " + x.shape.to_string() + " (as batch axes, heads, length, width)");
    }
  }
}

operand place(const array_view& x, const axes& a, const batch_shape& batch) {
  operand o;
  o.data = const_cast<void*>(x.data);  // written to only where the view was a writable one
  o.type = x.type;
  const int shift = batch.axes - a.batch_axes();
  for (int axis = 0; axis < a.batch_axes(); ++axis) o.batch[shift + axis] = a.shape[axis] == 1 ? 0 : a.strides[axis];
  const int last = a.shape.rank() - 1;
  o.head = a.strides[last - 2];
  o.row = a.strides[last - 1];
  o.column = a.strides[last];
  return o;
}

extents batch_extents(const batch_shape& batch) {
  extents shape;
  for (int axis = 0; axis < batch.axes; ++axis) shape.push_back(batch.sizes[axis]);
  return shape;
}

/// A mask or bias against (batch..., H, L, S) by NumPy's rule; it may not enlarge anything.
operand broadcast(const char* name, const array_view& x, const problem& p) {
  check_memory(name, x);
  extents full;
  for (int axis = p.batch.axes; axis < 1; ++axis) full.push_back(1);
  for (int axis = 0; axis < p.batch.axes; ++axis) full.push_back(p.batch.sizes[axis]);
  for (const std::int64_t size : {p.heads, p.queries, p.keys}) full.push_back(size);

  const int shift = full.rank() - x.shape.rank();
  bool fits = shift >= 0;
  for (int axis = 0; fits && axis < x.shape.rank(); ++axis) fits = x.shape[axis] == 1 || x.shape[axis] == full[shift + axis];
  if (!fits)
    refuse(name, "a shape that broadcasts to " + full.to_string() + " as (..., head, query, key)", x.shape.to_string());

  operand o;
  o.data = const_cast<void*>(x.data);
  o.type = x.type;
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    const std::int64_t stride = x.shape[axis] == 1 ? 0 : x.strides[axis];
    const int from_right = x.shape.rank() - 1 - axis;
    if (from_right == 0)
      o.column = stride;
    else if (from_right == 1)
      o.row = stride;
    else if (from_right == 2)
      o.head = stride;
    else if (p.batch.axes > 0)
      o.batch[p.batch.axes - 1 - (from_right - 3)] = stride;
  }
  return o;
}

batch_values per_batch(const char* name, const batch_integers& given, const problem& p, std::int64_t low, std::int64_t high) {
  batch_values values;
  if (!given.is_array()) {
    values.value = given.given() ? given.value() : 0;
    if (values.value < low || values.value > high)
      refuse(name, "values from " + to_string(low) + " to " + to_string(high), to_string(values.value));
    return values;
  }
  const auto& view = given.values();
  check_memory(name, view);
  const extents shape = batch_extents(p.batch);
  if (view.shape.rank() != 0 && view.shape != shape)
    refuse(name,
           (p.batch.axes > 0 ? "one integer, or one per batch: shape " + shape.to_string()
                             : std::string("one integer, because arrays of rank 2 and 3 have no batch axis")),
           "shape " + view.shape.to_string());
  values.data = view.data;
  for (int axis = 0; axis < view.shape.rank(); ++axis) values.strides[axis] = view.strides[axis];
  for (std::int64_t b = 0; b < p.batch.count; ++b) {
    const std::int64_t value = batch_value(p.batch, b, values);
    if (value < low || value > high)
      refuse(name, "values from " + to_string(low) + " to " + to_string(high), to_string(value) + " for batch " + to_string(b));
  }
  return values;
}

void check_positions(problem& p, const options& how) {
  for (const auto& [side, word] : {std::pair{how.window.left, "left"}, std::pair{how.window.right, "right"}}) {
    if (side && *side < 0)
      refuse("window", std::string("a ") + word + " side of at least 0, or none for unbounded", to_string(*side));
  }
  p.causal = how.causal;
  if (how.window.left && *how.window.left < unbounded_side) p.left = how.window.left;
  if (how.window.right && *how.window.right < unbounded_side) p.right = how.window.right;

  p.has_lengths = how.key_lengths.given();
  p.lengths = per_batch("key_lengths", how.key_lengths, p, 0, p.keys);
  p.longest = 0;
  for (std::int64_t b = 0; b < (p.lengths.data ? p.batch.count : 1); ++b) p.longest = std::max(p.longest, key_length(p, b));
  p.has_prefix = how.prefix.given();
  if (p.has_prefix && !how.causal && !how.window) refuse("prefix", "causal or window beside it", "neither");
  p.prefix = per_batch("prefix", how.prefix, p, 0, std::numeric_limits<std::int64_t>::max());

  if (how.query_offset.word()) {
    p.lower_right = *how.query_offset.word() == lower_right;
  } else if (how.query_offset.given()) {
    p.offset = per_batch("query_offset", how.query_offset, p, -farthest_position, farthest_position);
  } else if ((how.causal || how.window || (how.relative && !how.grid)) && p.queries != p.keys) {
    refuse("query_offset",
           "an integer, one per batch, \"upper_left\" (query 0 at key 0) or \"lower_right\" (last query at the last key) where "
           "positions are "
           "compared and L != S",
           "none for " + to_string(p.queries) + " queries and " + to_string(p.keys) + " keys");
  }
}

void check_result(const char* name, const mutable_array_view& x, dtype type, const extents& shape,
                  const array_view (&arrays)[read_arrays], const char* const (&names)[read_arrays]) {
  if (x.type != type) refuse_type(name, std::string(name_of(type)), x.type);
  if (x.shape != shape) refuse(name, "shape " + shape.to_string(), x.shape.to_string());
  check_memory(name, x);
  if (shape.count() == 0) return;
  if (!distinct_elements(x))
    refuse(name, "every element in a place of its own",
           "strides " + x.strides.to_string() + " for shape " + x.shape.to_string());
  for (int i = 0; i < read_arrays; ++i) {
    if (arrays[i] && overlaps(x, arrays[i]))
      refuse(name, std::string("memory apart from every input"), std::string("an array that overlaps ") + names[i]);
  }
}

}  // namespace

void refuse(const char* argument, const std::string& expected, const std::string& received) {
  throw argument_error(argument, expected, received);
}

void refuse_type(const char* argument, const std::string& expected, dtype received) {
  throw argument_error(argument, expected, std::string(name_of(received)), argument_error::kind::type);
}

void check_memory(const char* name, const array_view& x, inputs given) {
  if (x.shape.rank() != x.strides.rank())
    refuse(name, "as many strides as axes", to_string(x.strides.rank()) + " strides for shape " + x.shape.to_string());
  if (x.shape.count() == 0) return;
  if (!x.data && given == inputs::data) refuse(name, "memory for shape " + x.shape.to_string(), "a null pointer");
  if (!byte_span(x))
    refuse(name, "a byte span below 2^63", "shape " + x.shape.to_string() + " with strides " + x.strides.to_string());
}

void check_added_type(const char* name, const array_view& x, const problem& p) {
  if (x.type != p.type && x.type != dtype::f32)
    refuse_type(name, p.type == dtype::f32 ? "float32" : "float64 or float32", x.type);
}

extents out_shape(const problem& p, layout order, bool matrices) {
  if (matrices) return {p.queries, p.value_width};
  extents shape = batch_extents(p.batch);
  shape.push_back(order == layout::bhld ? p.heads : p.queries);
  shape.push_back(order == layout::bhld ? p.queries : p.heads);
  shape.push_back(p.value_width);
  return shape;
}

extents lse_shape(const problem& p, bool matrices) {
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

key_intervals allowed_intervals(const problem& p, std::int64_t position, std::int64_t length, std::int64_t prefix) noexcept {
  key_intervals allowed{0, length, std::min(prefix, length)};
  if (p.causal) allowed.end = std::min(allowed.end, position + 1);
  if (p.right) allowed.end = std::min(allowed.end, position + *p.right + 1);
  if (p.left) allowed.begin = std::max<std::int64_t>(0, position - *p.left);
  if (allowed.begin >= allowed.end) allowed.begin = allowed.end = 0;
  return allowed;
}

problem validate(const array_view& q, const array_view& k, const array_view& v, const outputs& results, const options& how,
                 inputs given) {
  check_input("q", q, q.type, given);
  check_input("k", k, q.type, given);
  check_input("v", v, q.type, given);
  const int matrices = (q.shape.rank() == 2) + (k.shape.rank() == 2) + (v.shape.rank() == 2);
  if (matrices == 1 || matrices == 2) {
    refuse("q, k, v", "rank 2 for all or for none",
           "shapes " + q.shape.to_string() + ", " + k.shape.to_string() + ", " + v.shape.to_string());
  }
  const axes qa = heads_first(q, how.layout), ka = heads_first(k, how.layout), va = heads_first(v, how.layout);

  problem p;
  p.type = q.type;
  p.heads = qa.heads();
  p.kv_heads = ka.heads();
  p.queries = qa.length();
  p.keys = ka.length();
  p.width = qa.width();
  p.value_width = va.width();
  if (p.width > widest) refuse("q", "a width of at most 2^40", to_string(p.width));
  if (p.value_width > widest) refuse("v", "a width of at most 2^40", to_string(p.value_width));
  if (ka.width() != p.width) refuse("k", "the width of q, " + to_string(p.width), to_string(ka.width()));
  if (va.heads() != p.kv_heads) refuse("v", "as many heads as k, " + to_string(p.kv_heads), to_string(va.heads()));
  if (va.length() != p.keys) refuse("v", "as many keys as k, " + to_string(p.keys), to_string(va.length()));
  if (p.heads > 0 && (p.kv_heads == 0 || p.heads % p.kv_heads != 0)) {
    refuse("k", "a number of heads that divides the " + to_string(p.heads) + " heads of q", to_string(p.kv_heads));
  }
  p.group = p.kv_heads > 0 ? p.heads / p.kv_heads : 1;
  widen(p.batch, qa, "q");
  widen(p.batch, ka, "k");
  widen(p.batch, va, "v");
  p.batch.count = batch_extents(p.batch).count();
  p.q = place(q, qa, p.batch);
  p.k = place(k, ka, p.batch);
  p.v = place(v, va, p.batch);
  lse_shape(p, false).count();  // the number of rows fits 64 bits

  check_functions(p, how);
  check_region(p, how);
  check_positions(p, how);
  if (how.mask) {
    if (how.mask.type != dtype::boolean)
      refuse_type("mask", "booleans (true = attend; numbers to add are `bias`)", how.mask.type);
    p.mask = broadcast("mask", how.mask, p);
  }
  if (how.bias) {
    check_added_type("bias", how.bias, p);
    p.bias = broadcast("bias", how.bias, p);
  }
  p.reproducible = how.reproducible;
  if (how.threads < 0) refuse("threads", "a positive number, or 0 for the default", to_string(how.threads));

  const array_view of_additive = p.additive_weights ? how.compatibility.weights : array_view{};
  const array_view arrays[] = {q, k, v, how.mask, how.bias, how.relative, of_additive};
  const char* const names[] = {"q", "k", "v", "mask", "bias", "relative", "additive"};
  if (results.out) {
    check_result("out", results.out, p.type, out_shape(p, how.layout, matrices == 3), arrays, names);
    p.out = place(results.out, heads_first(results.out, how.layout), p.batch);
  }
  if (results.lse) {
    if (p.normalizer != normalizer::softmax)
      refuse("lse", "normalizer softmax, the only one with an LSE", std::string(name_of(p.normalizer)));
    check_result("lse", results.lse, p.type, lse_shape(p, matrices == 3), arrays, names);
    array_view rows = results.lse;  // read as (..., H, L, 1)
    rows.shape.push_back(1);
    rows.strides.push_back(0);
    p.lse = place(rows, heads_first(rows, layout::bhld), p.batch);
  }
  if (results.weights) {
    check_result("weights", results.weights, p.type, weights_shape(p, matrices == 3), arrays, names);
    p.weights = place(results.weights, heads_first(results.weights, layout::bhld), p.batch);
  }
  const mutable_array_view* const written[] = {&results.out, &results.lse, &results.weights};
  const char* const result_names[] = {"out", "lse", "weights"};
  for (int i = 1; i < 3; ++i) {
    for (int j = 0; j < i; ++j) {
      if (*written[i] && *written[j] && overlaps(*written[i], *written[j])) {
        refuse(result_names[i], "memory apart from the other results",
               std::string("an array that overlaps ") + result_names[j]);
      }
    }
  }
  return p;
}

}  // namespace attend::detail
