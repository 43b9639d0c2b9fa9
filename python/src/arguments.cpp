#include "arguments.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "form.hpp"
#include "python_objects.hpp"

namespace attend::python {
namespace {

bool is_bool(nb::handle value) {
  static constexpr std::string_view numpy_names[] = {"numpy.bool", "numpy.bool_"};
  return PyBool_Check(value.ptr()) || std::ranges::find(numpy_names, Py_TYPE(value.ptr())->tp_name) != std::end(numpy_names);
}

/// An integer as it is, or the nearest that fits 64 bits and the direction in which it did not fit.
std::int64_t saturate(nb::handle value, int& overflow) {
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow > 0) return std::numeric_limits<std::int64_t>::max();
  if (overflow < 0) return std::numeric_limits<std::int64_t>::min();
  if (number == -1 && PyErr_Occurred()) throw nb::python_error();
  return number;
}

/// One side of a window. No problem is as long as 2^62 keys, so that longer sides mean the same, and sums of them fit 64 bits.
std::optional<std::int64_t> read_side(nb::handle value) {
  constexpr std::int64_t longest = std::int64_t{1} << 62;
  if (value.is_none()) return std::nullopt;
  if (!is_integer(value)) refuse_type("window", "a pair of integers or None", value);
  int overflow = 0;
  const std::int64_t side = saturate(value, overflow);
  if (side < 0) refuse_value("window", "sides of at least 0, or None for no bound", value);
  return std::min(side, longest);
}

window read_window(nb::handle value) {
  if (!PyTuple_Check(value.ptr()) && !PyList_Check(value.ptr())) refuse_type("window", "a pair (left, right)", value);
  if (nb::len(value) != 2) refuse_value("window", "a pair (left, right)", value);
  return {read_side(nb::object(value[0])), read_side(nb::object(value[1]))};
}

layout read_layout(nb::handle value) {
  if (!PyUnicode_Check(value.ptr())) refuse_type("layout", "'bhld' or 'blhd'", value);
  if (PyUnicode_CompareWithASCIIString(value.ptr(), "bhld") == 0) return layout::bhld;
  if (PyUnicode_CompareWithASCIIString(value.ptr(), "blhd") == 0) return layout::blhd;
  refuse_value("layout", "'bhld' or 'blhd'", value);
}

/// A list or tuple as an array; NumPy makes floats of one that is empty, which is still no list of floats.
nb::object as_array(nb::handle list, std::string_view name) {
  nb::object numpy = nb::module_::import_("numpy");
  try {
    nb::object array = numpy.attr("asarray")(list);
    if (nb::cast<std::int64_t>(array.attr("size")) == 0) array = array.attr("astype")("int64");
    return array;
  } catch (nb::python_error&) {
    refuse_value(name, "an integer, or integers of the batch axes' shape", list);
  }
}

}  // namespace

void refuse_type(std::string_view name, const std::string& expected, nb::handle got) {
  throw argument_error(std::string(name), expected, type_text(got), argument_error::kind::type);
}

void refuse_value(std::string_view name, const std::string& expected, nb::handle got) {
  throw argument_error(std::string(name), expected, short_repr(got));
}

bool is_integer(nb::handle value) {
  if (PyLong_CheckExact(value.ptr())) return true;
  if (is_bool(value) || !PyIndex_Check(value.ptr())) return false;
  if (nb::steal(PyNumber_Index(value.ptr())).is_valid()) return true;
  PyErr_Clear();  // an array of several elements, or of floats
  return false;
}

bool read_flag(nb::handle value, std::string_view name) {
  if (value.ptr() == Py_True) return true;
  if (value.ptr() == Py_False) return false;
  if (!is_bool(value)) refuse_type(name, "True or False", value);
  return PyObject_IsTrue(value.ptr()) == 1;
}

std::optional<double> read_number(nb::handle value, std::string_view name) {
  if (value.is_none()) return std::nullopt;
  if (PyFloat_CheckExact(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
  const PyNumberMethods* as_number = Py_TYPE(value.ptr())->tp_as_number;
  const bool number = as_number && (as_number->nb_float || as_number->nb_index);
  if (!number || is_bool(value) || PyComplex_Check(value.ptr())) refuse_type(name, "a number", value);
  if (nb::hasattr(value, "requires_grad") && nb::cast<bool>(value.attr("requires_grad"))) {
    throw argument_error(std::string(name), "a number that requires no gradient", "one that does; attend.torch is for those");
  }
  const double result = PyFloat_AsDouble(value.ptr());
  if (result == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    refuse_value(name, "a number that float64 can hold", value);
  }
  return result;
}

double read_positive(nb::handle value, std::string_view name) {
  const std::optional<double> number = read_number(value, name);
  if (!number) refuse_type(name, "a number", value);
  if (!(*number > 0) || !std::isfinite(*number)) refuse_value(name, "a finite number above 0", value);
  return *number;
}

std::int64_t read_integer(nb::handle value, std::string_view name) {
  if (!is_integer(value)) refuse_type(name, "an integer", value);
  int overflow = 0;
  const std::int64_t number = saturate(value, overflow);
  if (overflow != 0) refuse_value(name, "an integer of 64 bits", value);
  return number;
}

int read_thread_count(nb::handle value) {
  if (!is_integer(value)) refuse_type("threads", "an integer", value);
  int overflow = 0;
  const std::int64_t count = saturate(value, overflow);
  if (count < 1) refuse_value("threads", "at least 1", value);
  return static_cast<int>(std::min<std::int64_t>(count, std::numeric_limits<int>::max()));
}

extents read_shape(nb::handle value, std::string_view name) {
  if (PyUnicode_Check(value.ptr()) || !PySequence_Check(value.ptr())) refuse_type(name, "a sequence of sizes", value);
  const std::size_t rank = nb::len(value);
  if (rank > static_cast<std::size_t>(max_rank)) refuse_value(name, "at most " + std::to_string(max_rank) + " sizes", value);
  extents shape;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t size = read_integer(nb::object(value[axis]), name);
    if (size < 0) refuse_value(name, "sizes of at least 0", value);
    shape.push_back(size);
  }
  return shape;
}

option_arguments::option_arguments(const nb::tuple& packed) {
  nb::handle* const fields[] = {&mask,        &bias,          &causal,       &window,   &query_offset, &prefix,
                                &key_lengths, &grid,          &neighborhood, &dilation, &border,       &relative,
                                &scale,       &compatibility, &normalizer,   &layout,   &reproducible, &threads};
  if (packed.size() != std::size(fields))
    throw std::logic_error("attend._core: the packed options are not those of this build");
  for (std::size_t n = 0; n < std::size(fields); ++n) *fields[n] = packed[n];
}

call_options::call_options(const option_arguments& arguments) {
  // What is not given keeps its default untouched: a tiny call takes little longer than reading its arguments.
  how.causal = read_flag(arguments.causal, "causal");
  if (!arguments.window.is_none()) how.window = read_window(arguments.window);
  if (!arguments.query_offset.is_none()) how.query_offset = position(arguments.query_offset);
  if (!arguments.prefix.is_none()) how.prefix = per_batch(arguments.prefix, "prefix", prefix_);
  if (!arguments.key_lengths.is_none()) how.key_lengths = per_batch(arguments.key_lengths, "key_lengths", key_lengths_);
  if (!arguments.grid.is_none()) how.grid = read_grid(arguments.grid);
  const bool next_cells = arguments.dilation.is(known().one) && arguments.border.is(known().clip);
  if (!arguments.neighborhood.is_none() || !next_cells)
    how.neighborhood = read_neighborhood(arguments.neighborhood, arguments.dilation, arguments.border);
  if (!arguments.scale.is_none()) how.scale = read_number(arguments.scale, "scale");
  if (!arguments.compatibility.is(known().dot)) how.compatibility = read_compatibility(arguments.compatibility, additive_);
  if (!arguments.normalizer.is(known().softmax)) how.normalizer = read_normalizer(arguments.normalizer);
  if (!arguments.layout.is(known().bhld)) how.layout = read_layout(arguments.layout);
  how.reproducible = read_flag(arguments.reproducible, "reproducible");
  if (!arguments.threads.is_none()) how.threads = read_thread_count(arguments.threads);
  if (!arguments.mask.is_none()) {
    mask_.emplace(arguments.mask, "mask");
    mask_->require_boolean();
    how.mask = mask_->view();
  }
  if (!arguments.bias.is_none()) {
    bias_.emplace(arguments.bias, "bias");
    bias_->require_floating();
    how.bias = bias_->view();
  }
  if (!arguments.relative.is_none()) {
    relative_.emplace(arguments.relative, "relative");
    relative_->require_floating();
    how.relative = relative_->view();
  }
}

void call_options::set_mask_or_bias(nb::handle object, std::string_view name) {
  borrowed_array array(object, name);
  const dtype type = array.view().type;
  array.require(type != dtype::none, "booleans (true = attend), float32 or float64 (added)");
  auto& kept = type == dtype::boolean ? mask_ : bias_;
  kept.emplace(std::move(array));
  (type == dtype::boolean ? how.mask : how.bias) = kept->view();
}

batch_integers call_options::per_batch(nb::handle value, std::string_view name, tensor<std::int64_t>& storage) {
  if (PyLong_CheckExact(value.ptr())) return read_integer(value, name);
  nb::object made;
  if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) value = made = as_array(value, name);
  if (borrowed_array::is_array(value)) {
    storage = borrowed_array(value, name).integers();
    if (storage.shape().rank() == 0) return storage();
    return storage;
  }
  if (is_integer(value)) return read_integer(value, name);
  refuse_type(name, "an integer, or integers of the batch axes' shape", value);
}

query_position call_options::position(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) {
    if (PyUnicode_CompareWithASCIIString(value.ptr(), "upper_left") == 0) return upper_left;
    if (PyUnicode_CompareWithASCIIString(value.ptr(), "lower_right") == 0) return lower_right;
    refuse_value("query_offset", "an integer, one per batch, 'upper_left' or 'lower_right'", value);
  }
  const batch_integers given = per_batch(value, "query_offset", query_offset_);
  return given.is_array() ? query_position(given.values()) : query_position(given.value());
}

}  // namespace attend::python
