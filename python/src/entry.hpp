// Functions that python/attend/__init__.py declares and that run here: calling one costs no frame, no tuple and no look-up of
// defaults, so that an option which a call does not give costs nothing.
#pragma once

#include <nanobind/nanobind.h>

namespace attend::python {

namespace nb = nanobind;

/// Arguments by their place: the inputs of a call, its options in the order of option_arguments, what it gives back.
struct argument_slots {
  /// q, k, v, cu_seqlens_*, block_table, cache, sequences, dout, lse, dlse, wanted; ...; out, return_*
  static constexpr int inputs = 12, options = 26, results = 4;
  static constexpr int count = inputs + options + results;

  PyObject* values[count];

  nb::handle input(int n) const { return values[n]; }
  PyObject* const* first_option() const { return values + inputs; }
  PyObject* const* first_result() const { return values + inputs + options; }
};

/// The decorator: a callable with the declaration's parameters, defaults, name and docstring. What to run is known by the name.
nb::object entry(nb::handle declaration);

}  // namespace attend::python
