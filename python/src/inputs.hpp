// The arrays that a call attends with.
#pragma once

#include "arrays.hpp"
#include "entry.hpp"

namespace attend::python {

/// The three inputs of a call, which have numbers that are computed with.
struct inputs {
  explicit inputs(const argument_slots& arguments)
      : query(arguments.input(0), "q"), key(arguments.input(1), "k"), value(arguments.input(2), "v") {
    for (const borrowed_array* array : {&query, &key, &value}) array->require_floating();
  }
  array_view q() const { return query.view(); }
  array_view k() const { return key.view(); }
  array_view v() const { return value.view(); }

  borrowed_array query, key, value;
};

}  // namespace attend::python
