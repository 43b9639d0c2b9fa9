#include "arguments.hpp"

#include <string>

#include "form.hpp"
#include "python_objects.hpp"
#include "readers.hpp"

namespace attend::python {

option_arguments::option_arguments(PyObject* const* values) {
  nb::handle* const fields[] = {
      &mask,  &bias,          &causal,     &window,    &query_offset, &prefix, &query_segments, &key_segments, &key_lengths,
      &grid,  &neighborhood,  &dilation,   &border,    &relative,     &scale,  &softcap,        &alibi,        &sinks,
      &score, &compatibility, &normalizer, &dropout_p, &seed,         &layout, &reproducible,   &threads};
  static_assert(std::size(fields) == count);
  for (int n = 0; n < count; ++n) *fields[n] = values[n];
}

call_options::call_options(const option_arguments& arguments, dtype inputs) {
  // What is not given keeps its default untouched: a tiny call takes little longer than reading its arguments.
  how.causal = read_flag(arguments.causal, "causal");
  if (!arguments.window.is_none()) how.window = read_window(arguments.window);
  if (!arguments.query_offset.is_none()) how.query_offset = position(arguments.query_offset);
  if (!arguments.prefix.is_none()) how.prefix = per_batch(arguments.prefix, "prefix");
  if (!arguments.query_segments.is_none()) how.query_segments = integers(arguments.query_segments, "query_segments");
  if (!arguments.key_segments.is_none()) how.key_segments = integers(arguments.key_segments, "key_segments");
  if (!arguments.key_lengths.is_none()) how.key_lengths = per_batch(arguments.key_lengths, "key_lengths");
  if (!arguments.grid.is_none()) how.grid = read_grid(arguments.grid);
  const bool next_cells = arguments.dilation.is(known().one) && arguments.border.is(known().clip);
  if (!arguments.neighborhood.is_none() || !next_cells)
    how.neighborhood = read_neighborhood(arguments.neighborhood, arguments.dilation, arguments.border);
  if (!arguments.scale.is_none()) how.scale = read_number(arguments.scale, "scale");
  if (!arguments.softcap.is_none()) how.softcap = read_number(arguments.softcap, "softcap");
  if (!arguments.alibi.is_none()) how.alibi = read_alibi(arguments.alibi, "alibi", inputs, borrowed_, slopes_);
  if (!arguments.sinks.is_none()) how.sinks = numbers(arguments.sinks, "sinks");
  if (!arguments.score.is_none()) how.score = read_score(arguments.score, inputs, borrowed_, slopes_);
  if (!arguments.compatibility.is(known().dot)) how.compatibility = read_compatibility(arguments.compatibility, additive_);
  if (!arguments.normalizer.is(known().softmax)) how.normalizer = read_normalizer(arguments.normalizer);
  how.dropout.p = read_probability(arguments.dropout_p, "dropout_p");
  if (!arguments.seed.is_none()) how.dropout.seed = read_seed(arguments.seed);
  if (!arguments.layout.is(known().bhld)) how.layout = read_layout(arguments.layout);
  how.reproducible = read_flag(arguments.reproducible, "reproducible");
  if (!arguments.threads.is_none()) how.threads = read_thread_count(arguments.threads);
  if (!arguments.mask.is_none()) {
    const borrowed_array& mask = borrowed_.emplace_back(arguments.mask, "mask");
    mask.require_boolean();
    how.mask = mask.view();
  }
  if (!arguments.bias.is_none()) how.bias = numbers(arguments.bias, "bias");
  if (!arguments.relative.is_none()) how.relative = numbers(arguments.relative, "relative");
}

void call_options::set_mask_or_bias(nb::handle object, std::string_view name) {
  const borrowed_array& array = borrowed_.emplace_back(object, name);
  const array_view view = array.view();
  array.require(view.type != dtype::none, "booleans (true = attend), or numbers to add of query's dtype or float32");
  (view.type == dtype::boolean ? how.mask : how.bias) = view;
}

array_view call_options::numbers(nb::handle object, std::string_view name) {
  const borrowed_array& array = borrowed_.emplace_back(object, name);
  array.require_floating();
  return array.view();
}

array_view call_options::integers(nb::handle object, std::string_view name) {
  return integers_.emplace_back(object, name).view();
}

batch_integers call_options::per_batch(nb::handle value, std::string_view name) {
  if (PyLong_CheckExact(value.ptr())) return read_integer(value, name);
  nb::object made;
  if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) value = made = as_integer_array(value, name);
  if (borrowed_array::is_array(value)) {
    const tensor<std::int64_t>& values = per_batch_.emplace_back(borrowed_array(value, name).integers());
    if (values.shape().rank() == 0) return values();
    return values;
  }
  if (is_integer(value)) return read_integer(value, name);
  refuse_type(name, "an integer, or integers of the batch axes' shape", value);
}

query_position call_options::position(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) {
    if (is_word(value, "upper_left")) return upper_left;
    if (is_word(value, "lower_right")) return lower_right;
    refuse_value("query_offset", "an integer, one per batch, 'upper_left' or 'lower_right'", value);
  }
  const batch_integers given = per_batch(value, "query_offset");
  return given.is_array() ? query_position(given.values()) : query_position(given.value());
}

}  // namespace attend::python
