#include "entry.hpp"

#include <structmember.h>  // T_PYSSIZET

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <stdexcept>
#include <string>

#include "arguments.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "python_objects.hpp"

namespace attend::python {
namespace {

using run_function = nb::object (*)(const argument_slots& arguments);

constexpr const char* slot_names[] = {"q",
                                      "k",
                                      "v",
                                      "cu_seqlens_q",
                                      "cu_seqlens_k",
                                      "block_table",
                                      "cache",
                                      "sequences",
                                      "dout",
                                      "lse",
                                      "dlse",
                                      "wanted",
                                      "mask",
                                      "bias",
                                      "causal",
                                      "window",
                                      "query_offset",
                                      "prefix",
                                      "query_segments",
                                      "key_segments",
                                      "key_lengths",
                                      "grid",
                                      "neighborhood",
                                      "dilation",
                                      "border",
                                      "relative",
                                      "scale",
                                      "softcap",
                                      "alibi",
                                      "sinks",
                                      "score",
                                      "compatibility",
                                      "normalizer",
                                      "dropout_p",
                                      "seed",
                                      "layout",
                                      "reproducible",
                                      "threads",
                                      "out",
                                      "return_lse",
                                      "return_weights",
                                      "return_scores"};
static_assert(std::size(slot_names) == argument_slots::count && argument_slots::options == option_arguments::count);

/// A callable of Python. It lives as long as the process, and so does what it refers to.
struct entry_object {
  PyObject base;
  PyObject* attributes;  ///< __dict__
  vectorcallfunc call;
  PyObject* declaration;
  run_function run;
  int parameters;
  int positional;                          ///< so many of them, from the first on, may be given by their place
  PyObject* names[argument_slots::count];  ///< of the parameters, in the order of the declaration
  int slots[argument_slots::count];        ///< of the parameters
  argument_slots defaults;                 ///< null where a parameter has none
};

/// Python itself calls the declaration, and finds that the arguments do not fit it: the error has Python's own words.
PyObject* refuse(const entry_object& self, PyObject* const* arguments, std::size_t count, PyObject* keywords) {
  nb::object result = nb::steal(PyObject_Vectorcall(self.declaration, arguments, count, keywords));
  if (result.is_valid()) PyErr_SetString(PyExc_SystemError, "attend._core: a declaration took arguments that it does not have");
  return nullptr;
}

int parameter_named(const entry_object& self, PyObject* name) {
  for (int n = 0; n < self.parameters; ++n) {
    if (self.names[n] == name) return n;
  }
  for (int n = 0; n < self.parameters; ++n) {  // a name that was made at run time
    if (PyUnicode_Compare(self.names[n], name) == 0) return n;
  }
  return -1;
}

PyObject* call(PyObject* object, PyObject* const* arguments, std::size_t count_and_flag, PyObject* keywords) {
  const auto& self = *reinterpret_cast<entry_object*>(object);
  const auto count = static_cast<int>(PyVectorcall_NARGS(count_and_flag));
  if (count > self.positional) return refuse(self, arguments, count_and_flag, keywords);
  argument_slots given = self.defaults;
  for (int n = 0; n < count; ++n) given.values[self.slots[n]] = arguments[n];
  const int named = keywords ? static_cast<int>(PyTuple_GET_SIZE(keywords)) : 0;
  for (int n = 0; n < named; ++n) {
    const int parameter = parameter_named(self, PyTuple_GET_ITEM(keywords, n));
    const bool fits = parameter >= count;  // it is known, and not given by its place, too
    if (!fits) return refuse(self, arguments, count_and_flag, keywords);
    given.values[self.slots[parameter]] = arguments[count + n];
  }
  for (int n = 0; n < self.positional; ++n) {
    if (!given.values[self.slots[n]]) return refuse(self, arguments, count_and_flag, keywords);
  }
  try {
    return self.run(given).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

/// A function in a class becomes a method; this, too, is how `help` and `inspect` know a function.
PyObject* bind(PyObject* self, PyObject* instance, PyObject* /*type*/) {
  if (!instance || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

PyObject* represent(PyObject* self) {
  return PyUnicode_FromFormat("<function attend.%S>", nb::object(nb::handle(self).attr("__qualname__")).ptr());
}

/// By its name, as functions are pickled and copied.
PyObject* reduce(PyObject* self, PyObject* /*none*/) { return PyObject_GetAttrString(self, "__qualname__"); }

PyTypeObject* make_type() {
  static PyMemberDef members[] = {{"__dictoffset__", T_PYSSIZET, offsetof(entry_object, attributes), READONLY, nullptr},
                                  {"__vectorcalloffset__", T_PYSSIZET, offsetof(entry_object, call), READONLY, nullptr},
                                  {}};
  static PyGetSetDef properties[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr}, {}};
  static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                                {Py_tp_repr, reinterpret_cast<void*>(represent)},
                                {Py_tp_members, members},
                                {Py_tp_getset, properties},
                                {Py_tp_methods, methods},
                                {0, nullptr}};
  static PyType_Spec spec = {"attend._core.function", sizeof(entry_object), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw nb::python_error();
  return reinterpret_cast<PyTypeObject*>(type);
}

int slot_named(const std::string& name) {
  const auto* const found = std::ranges::find(slot_names, name);
  if (found == std::end(slot_names)) throw std::logic_error("attend._core: no build of this has a parameter " + name);
  return static_cast<int>(found - std::begin(slot_names));
}

run_function runner_of(const std::string& name) {
  if (name == "attention") return attention;
  if (name == "attention_varlen") return attention_varlen;
  if (name == "decode") return decode;
  if (name == "attention_backward") return attention_backward;
  if (name == "attention_varlen_backward") return attention_varlen_backward;
  throw std::logic_error("attend._core: this build does not run " + name);
}

}  // namespace

nb::object entry(nb::handle declaration) {
  static PyTypeObject* const type = make_type();
  nb::object made = nb::steal(PyType_GenericAlloc(type, 0));
  if (!made.is_valid()) throw nb::python_error();
  auto& self = *reinterpret_cast<entry_object*>(made.ptr());
  self.call = call;
  self.declaration = nb::borrow(declaration).release().ptr();
  self.run = runner_of(text_of(declaration.attr("__name__")));

  // What a function does not declare is off in it.
  for (PyObject*& value : self.defaults.values) value = Py_None;
  self.defaults.values[slot_named("causal")] = Py_False;
  self.defaults.values[slot_named("dilation")] = nb::int_(1).release().ptr();
  self.defaults.values[slot_named("border")] = nb::str("clip").release().ptr();
  self.defaults.values[slot_named("dropout_p")] = nb::float_(0.0).release().ptr();
  self.defaults.values[slot_named("layout")] = known().bhld.ptr();
  self.defaults.values[slot_named("return_weights")] = Py_False;

  const nb::object code = declaration.attr("__code__"), names = code.attr("co_varnames");
  const nb::object given = declaration.attr("__defaults__"), by_name = declaration.attr("__kwdefaults__");
  self.positional = nb::cast<int>(code.attr("co_argcount"));
  self.parameters = self.positional + nb::cast<int>(code.attr("co_kwonlyargcount"));
  const int required = self.positional - (given.is_none() ? 0 : static_cast<int>(nb::len(given)));
  for (int n = 0; n < self.parameters; ++n) {
    const nb::object name = names[n];
    self.names[n] = nb::object(name).release().ptr();
    self.slots[n] = slot_named(text_of(name));
    nb::object value;
    if (n >= self.positional) {
      value = by_name[name];
    } else if (n >= required) {
      value = given[n - required];
    }
    self.defaults.values[self.slots[n]] = value.release().ptr();
  }
  nb::module_::import_("functools").attr("update_wrapper")(made, declaration);
  return made;
}

}  // namespace attend::python
