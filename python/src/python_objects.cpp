#include "python_objects.hpp"

#include <utility>

#include "dlpack.hpp"

namespace attend::python {
namespace {

// Lives as long as the process: there is no order in which a module may drop such references.
known_objects* objects = nullptr;

/// A new reference to a str, as text; what no UTF-8 can say is left out.
std::string utf8(PyObject* made) {
  nb::object text = nb::steal(made);
  Py_ssize_t size = 0;
  const char* bytes = made ? PyUnicode_AsUTF8AndSize(made, &size) : nullptr;
  if (!bytes) {
    PyErr_Clear();
    return "?";
  }
  return {bytes, static_cast<std::size_t>(size)};
}

/// The one str of this text that Python's own constants are.
nb::object interned(const char* text) {
  nb::object made = nb::steal(PyUnicode_InternFromString(text));
  if (!made.is_valid()) throw nb::python_error();
  return made;
}

/// A module that somebody has imported, or an invalid handle.
nb::handle imported(const nb::object& name) {
  PyObject* module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name.ptr());
  if (!module) PyErr_Clear();
  return module == Py_None ? nullptr : module;  // None: whoever put it there forbids the import
}

}  // namespace

void prepare_objects() {
  if (objects) return;
  const nb::object numpy = nb::module_::import_("numpy");
  const nb::object dtype = numpy.attr("dtype");
  objects = new known_objects{
      .ndarray = numpy.attr("ndarray"),
      .masked_array = nb::module_::import_("numpy.ma").attr("MaskedArray"),
      .empty = numpy.attr("empty"),
      .float16 = dtype("float16"),
      .float32 = dtype("float32"),
      .float64 = dtype("float64"),
      .bfloat16 = {},
      .tensor_class = {},
      .torch = nb::str("torch"),
      .ml_dtypes = nb::str("ml_dtypes"),
      .exchange_api = nb::str("__dlpack_c_exchange_api__"),
      .bhld = interned("bhld"),
      .clip = interned("clip"),
      .dot = interned("dot"),
      .softmax = interned("softmax"),
      .one = nb::int_(1),
      .max_version = nb::make_tuple(static_cast<int>(dlpack::major_version), static_cast<int>(dlpack::minor_version)),
  };
}

known_objects& known() { return *objects; }

bool is_instance_of(nb::handle object, const nb::object& type) {
  return PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(type.ptr())) != 0;
}

bool is_numpy(nb::handle object) { return is_instance_of(object, known().ndarray); }

/// Whoever has a torch tensor has imported torch: it is never imported here.
bool is_torch(nb::handle object) {
  if (!known().tensor_class.is_valid()) {
    const nb::handle torch = imported(known().torch);
    if (!torch.is_valid()) return false;
    nb::object tensor = nb::getattr(torch, "Tensor", nb::none());
    if (!PyType_Check(tensor.ptr())) return false;
    known().tensor_class = std::move(tensor);
  }
  return is_instance_of(object, known().tensor_class);
}

bool is_bfloat16(nb::handle type) {
  if (!imported(known().ml_dtypes).is_valid()) return false;
  return type.equal(numpy_dtype(dtype::bf16));
}

nb::object numpy_dtype(dtype type) {
  switch (type) {
    case dtype::f16: return known().float16;
    case dtype::f32: return known().float32;
    case dtype::f64: return known().float64;
    default: break;
  }
  if (!known().bfloat16.is_valid()) {
    known().bfloat16 = nb::module_::import_("numpy").attr("dtype")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
  }
  return known().bfloat16;
}

std::string type_text(nb::handle object) {
  if (object.is_none()) return "None";
  return Py_TYPE(object.ptr())->tp_name;
}

std::string text_of(nb::handle object) { return utf8(PyObject_Str(object.ptr())); }

std::string short_repr(nb::handle object) {
  constexpr std::size_t longest = 60;
  std::string text = utf8(PyObject_Repr(object.ptr()));
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

std::string take_python_error() {
  nb::python_error error;
  return text_of(error.value());
}

}  // namespace attend::python
