#include "errors.hpp"

#include <nanobind/nanobind.h>

#include <new>

#include "attend/error.hpp"

namespace attend::python {

void translate(const std::exception_ptr& raised, void* /*unused*/) {
  try {
    std::rethrow_exception(raised);
  } catch (const argument_error& error) {
    PyErr_SetString(error.fault() == argument_error::kind::type ? PyExc_TypeError : PyExc_ValueError, error.what());
  } catch (const interrupted&) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  }
}

void set_python_error() {
  try {
    translate(std::current_exception(), nullptr);
  } catch (nanobind::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace attend::python
