#include "readers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "python_objects.hpp"

namespace attend::python {
namespace {

/// What Python itself would take as an integer, as an int of its own.
nb::object index_of(nb::handle value) {
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  return index;
}

/// An integer as it is, or the nearest that fits 64 bits and the direction in which it did not fit.
std::int64_t saturate(nb::handle value, int& overflow) {
  const long long number = PyLong_AsLongLongAndOverflow(index_of(value).ptr(), &overflow);
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

}  // namespace

void refuse_type(std::string_view name, const std::string& expected, nb::handle got) {
  throw argument_error(std::string(name), expected, type_text(got), argument_error::kind::type);
}

void refuse_value(std::string_view name, const std::string& expected, nb::handle got) {
  throw argument_error(std::string(name), expected, short_repr(got));
}

bool is_flag(nb::handle value) {
  static constexpr std::string_view numpy_names[] = {"numpy.bool", "numpy.bool_"};
  return PyBool_Check(value.ptr()) || std::ranges::find(numpy_names, Py_TYPE(value.ptr())->tp_name) != std::end(numpy_names);
}

bool read_flag(nb::handle value, std::string_view name) {
  if (value.ptr() == Py_True) return true;
  if (value.ptr() == Py_False) return false;
  if (!is_flag(value)) refuse_type(name, "True or False", value);
  return PyObject_IsTrue(value.ptr()) == 1;
}

bool is_word(nb::handle value, std::string_view word) {
  if (!PyUnicode_Check(value.ptr())) return false;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (!text) PyErr_Clear();  // a lone surrogate is no word of ours
  return text && std::string_view(text, static_cast<std::size_t>(size)) == word;
}

std::optional<double> read_number(nb::handle value, std::string_view name) {
  if (value.is_none()) return std::nullopt;
  if (PyFloat_CheckExact(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
  const PyNumberMethods* as_number = Py_TYPE(value.ptr())->tp_as_number;
  const bool number = as_number && (as_number->nb_float || as_number->nb_index);
  if (!number || is_flag(value) || PyComplex_Check(value.ptr())) refuse_type(name, "a number", value);
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

double read_probability(nb::handle value, std::string_view name) {
  const std::optional<double> number = read_number(value, name);
  if (!number) refuse_type(name, "a probability in [0, 1]", value);
  if (!(*number >= 0 && *number <= 1)) refuse_value(name, "a probability in [0, 1]", value);
  return *number;
}

bool is_integer(nb::handle value) {
  if (PyLong_CheckExact(value.ptr())) return true;
  if (is_flag(value) || !PyIndex_Check(value.ptr())) return false;
  if (nb::steal(PyNumber_Index(value.ptr())).is_valid()) return true;
  PyErr_Clear();  // an array of several elements, or of floats
  return false;
}

std::int64_t read_integer(nb::handle value, std::string_view name) {
  if (!is_integer(value)) refuse_type(name, "an integer", value);
  int overflow = 0;
  const std::int64_t number = saturate(value, overflow);
  if (overflow != 0) refuse_value(name, "an integer of 64 bits", value);
  return number;
}

std::uint64_t read_seed(nb::handle value) {
  if (!is_integer(value)) refuse_type("seed", "an integer or None", value);
  const unsigned long long seed = PyLong_AsUnsignedLongLong(index_of(value).ptr());
  if (seed == static_cast<unsigned long long>(-1) && PyErr_Occurred()) {
    PyErr_Clear();
    refuse_value("seed", "an integer from 0 to 2**64 - 1", value);
  }
  return seed;
}

int read_thread_count(nb::handle value) {
  if (!is_integer(value)) refuse_type("threads", "an integer", value);
  int overflow = 0;
  const std::int64_t count = saturate(value, overflow);
  if (count < 1) refuse_value("threads", "at least 1", value);
  return static_cast<int>(std::min<std::int64_t>(count, std::numeric_limits<int>::max()));
}

window read_window(nb::handle value) {
  if (!PyTuple_Check(value.ptr()) && !PyList_Check(value.ptr())) refuse_type("window", "a pair (left, right)", value);
  if (nb::len(value) != 2) refuse_value("window", "a pair (left, right)", value);
  return {read_side(nb::object(value[0])), read_side(nb::object(value[1]))};
}

layout read_layout(nb::handle value) {
  if (!PyUnicode_Check(value.ptr())) refuse_type("layout", "'bhld' or 'blhd'", value);
  if (is_word(value, "bhld")) return layout::bhld;
  if (is_word(value, "blhd")) return layout::blhd;
  refuse_value("layout", "'bhld' or 'blhd'", value);
}

dtype dtype_named(std::string_view name) {
  for (dtype type : {dtype::f32, dtype::f64, dtype::f16, dtype::bf16}) {
    if (name == name_of(type)) return type;
  }
  throw argument_error("dtype", float_types, std::string(name), argument_error::kind::type);
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

nb::object as_integer_array(nb::handle list, std::string_view name) {
  nb::object numpy = nb::module_::import_("numpy");
  try {
    nb::object array = numpy.attr("asarray")(list);
    // NumPy makes floats of a list that is empty, which is still no list of floats.
    if (nb::cast<std::int64_t>(array.attr("size")) == 0) array = array.attr("astype")("int64");
    return array;
  } catch (nb::python_error&) {
    refuse_value(name, "an integer, or integers of the batch axes' shape", list);
  }
}

}  // namespace attend::python
