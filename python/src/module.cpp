// attend._core: what python/attend is built on. Errors of the library become Python's own here.
#include <nanobind/nanobind.h>

#include <exception>

#include "attend/attend.hpp"
#include "calls.hpp"
#include "python_objects.hpp"

namespace nb = nanobind;

namespace {

void translate(const std::exception_ptr& raised, void*) {
  try {
    std::rethrow_exception(raised);
  } catch (const attend::argument_error& error) {
    PyErr_SetString(error.fault() == attend::argument_error::kind::type ? PyExc_TypeError : PyExc_ValueError, error.what());
  } catch (const attend::interrupted&) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  }
}

}  // namespace

NB_MODULE(_core, module) {
  namespace python = attend::python;
  python::prepare_objects();
  python::prepare_calls();
  nb::register_exception_translator(&translate);

  // None is a value like any other here: the messages about it are ours.
  module.def("attention", &python::attention, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg());
  module.def("scaled_dot_product_attention", &python::scaled_dot_product_attention, nb::arg().none(), nb::arg().none(),
             nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none());
  module.def("plan", &python::plan, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg());
  module.def("positive", &python::positive, nb::arg().none(), nb::arg());
  module.def("require_array", &python::require_array, nb::arg().none(), nb::arg());
  module.def("info", &python::info);
  module.def("set_num_threads", &python::set_thread_count, nb::arg().none());
  module.def("version", [] { return nb::str(attend::version().data(), attend::version().size()); });
  python::define_limits(module);
}
