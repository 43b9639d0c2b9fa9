// attend._core: what python/attend is built on. Errors of the library become Python's own here.
#include <nanobind/nanobind.h>

#include "attend/attend.hpp"
#include "calls.hpp"
#include "entry.hpp"
#include "errors.hpp"
#include "jax/calls.hpp"
#include "python_objects.hpp"
#include "results.hpp"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  namespace python = attend::python;
  python::prepare_objects();
  python::prepare_results();
  nb::register_exception_translator(&python::translate);

  // None is a value like any other here: the messages about it are ours.
  module.def("entry", &python::entry);
  module.def("merge", &python::merge, nb::arg().none(), nb::arg().none());
  module.def("rotary_embedding", &python::rotary_embedding, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(),
             nb::arg(), nb::arg());
  module.def("scaled_dot_product_attention", &python::scaled_dot_product_attention, nb::arg().none(), nb::arg().none(),
             nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none());
  module.def("plan", &python::plan, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg());
  module.def("positive", &python::positive, nb::arg().none(), nb::arg());
  module.def("require_array", &python::require_array, nb::arg().none(), nb::arg());
  module.def("info", &python::info);
  module.def("set_num_threads", &python::set_thread_count, nb::arg().none());
  module.def("version", [] { return nb::str(attend::version().data(), attend::version().size()); });
  python::define_caches(module);
  python::define_limits(module);
#ifdef ATTEND_JAX
  nb::module_ jax = module.def_submodule("jax");
  jax.def("trace", &python::jax::trace, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg());
  jax.def("seed", &python::jax::seed);
  jax.def("handlers", &python::jax::handlers);
#endif
}
