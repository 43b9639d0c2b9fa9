// What attend.jax is built on; in builds that have the headers of XLA's foreign function interface.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace attend::python::jax {

namespace nb = nanobind;

/// Checks a call while JAX traces it: the shape of out, and the options that are plain values, as attributes for the handlers.
/// Arrays stand in for those that JAX has not computed yet: they have shapes and dtypes, and no numbers. Options are packed in
/// the order of option_arguments.
nb::tuple trace(nb::handle q, nb::handle k, nb::handle v, nb::handle return_lse, const nb::tuple& packed);

/// A seed that is an integer, checked.
std::uint64_t seed(nb::handle value);

/// What XLA calls, as capsules: the handlers of attention and of its gradients.
nb::tuple handlers();

}  // namespace attend::python::jax
