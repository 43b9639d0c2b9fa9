#include "validate.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include "checks.hpp"
#include "overlap.hpp"

namespace attend::detail {
namespace {

using std::to_string;

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

}  // namespace

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
  if (!is_input_type(x.type)) refuse_type(name, input_types, x.type);
  if (x.type != type) refuse_type(name, std::string(name_of(type)) + ", the dtype of q", x.type);
  if (x.shape.rank() < 2) refuse(name, "rank 2 to 8", "shape " + x.shape.to_string() + " of rank " + to_string(x.shape.rank()));
  check_memory(name, x, given);
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

bool is_input_type(dtype type) noexcept {
  return type == dtype::f32 || type == dtype::f64 || type == dtype::f16 || type == dtype::bf16;
}

std::string added_types(dtype inputs) {
  return (inputs == dtype::f32 ? "" : std::string(name_of(inputs)) + " or ") + "float32";
}

void check_added_type(const char* name, const array_view& x, const problem& p) {
  if (x.type != p.type && x.type != dtype::f32) refuse_type(name, added_types(p.type), x.type);
}

std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

void check_sizes(problem& p, const axes& q, const axes& k, const axes& v) {
  p.heads = q.heads();
  p.kv_heads = k.heads();
  p.queries = q.length();
  p.keys = k.length();
  p.width = q.width();
  p.value_width = v.width();
  if (p.width > widest) refuse("q", "a width of at most 2^40", to_string(p.width));
  if (p.value_width > widest) refuse("v", "a width of at most 2^40", to_string(p.value_width));
  if (k.width() != p.width) refuse("k", "the width of q, " + to_string(p.width), to_string(k.width()));
  if (v.heads() != p.kv_heads) refuse("v", "as many heads as k, " + to_string(p.kv_heads), to_string(v.heads()));
  if (v.length() != p.keys) refuse("v", "as many keys as k, " + to_string(p.keys), to_string(v.length()));
  if (p.heads > 0 && (p.kv_heads == 0 || p.heads % p.kv_heads != 0)) {
    refuse("k", "a number of heads that divides the " + to_string(p.heads) + " heads of q", to_string(p.kv_heads));
  }
  p.group = p.kv_heads > 0 ? p.heads / p.kv_heads : 1;
}

void check_mask(problem& p, const options& how) {
  if (!how.mask) return;
  if (how.mask.type != dtype::boolean)
    refuse_type("mask", "booleans (true = attend; numbers to add are `bias`)", how.mask.type);
  p.mask = broadcast("mask", how.mask, p);
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
  check_sizes(p, qa, ka, va);
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
  check_positions(p, how, false);
  check_segments(p, how);
  check_mask(p, how);
  check_scores(p, how);
  p.reproducible = how.reproducible;
  if (how.threads < 0) refuse("threads", "a positive number, or 0 for the default", to_string(how.threads));
  check_results(p, q, k, v, results, how, matrices == 3, nullptr);
  return p;
}

}  // namespace attend::detail
