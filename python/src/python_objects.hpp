// What is looked up of NumPy and torch, and Python's objects as text for messages.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "attend/types.hpp"

namespace attend::python {

namespace nb = nanobind;

/// Objects that every call needs, looked up once.
struct known_objects {
  nb::object ndarray, masked_array, empty, float16, float32, float64;  ///< NumPy's
  nb::object bfloat16;                                                 ///< the dtype of ml_dtypes, once it is needed
  nb::object tensor_class;                                             ///< torch's, once the caller has imported it
  nb::object torch, ml_dtypes, exchange_api;                           ///< names
  nb::object bhld, clip, dot, softmax, one;                            ///< defaults, as Python itself keeps one object of each
  nb::object max_version;                                              ///< of DLPack
};

/// Looks them up; called once, while the module is made.
void prepare_objects();
known_objects& known();

bool is_instance_of(nb::handle object, const nb::object& type);
bool is_numpy(nb::handle object);
bool is_torch(nb::handle object);

/// Whether a NumPy dtype is bfloat16, which NumPy has from ml_dtypes alone.
bool is_bfloat16(nb::handle type);

/// NumPy's dtype for results. Imports ml_dtypes for bfloat16.
nb::object numpy_dtype(dtype type);

/// "list", "numpy.ndarray": how messages name what came.
std::string type_text(nb::handle object);

/// `str`.
std::string text_of(nb::handle object);

/// `repr`, cut where it is long.
std::string short_repr(nb::handle object);

/// The error that Python has raised, as text, and cleared.
std::string take_python_error();

}  // namespace attend::python
