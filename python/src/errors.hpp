// Errors of the library as Python's own.
#pragma once

#include <exception>

namespace attend::python {

/// Sets Python's error for one of the library's, and lets any other exception pass: a translator of nanobind.
void translate(const std::exception_ptr& raised, void* unused);

/// In a catch block: sets Python's error for the exception at hand, whatever it is.
void set_python_error();

}  // namespace attend::python
