// The arrays that results are returned in.
#pragma once

#include "arrays.hpp"

namespace attend::python {

/// Makes results of the kind that `like` is: torch tensors, NumPy arrays, or arrays of the producer's own library.
class result_factory {
 public:
  explicit result_factory(nb::handle like);

  /// An array and the memory to write it through.
  struct fresh {
    nb::object array;
    mutable_array_view view;
  };
  fresh make(const extents& shape, dtype type) const;
  /// What to hand to the caller once the array is written.
  nb::object finish(nb::object array) const;

 private:
  enum class kind : std::uint8_t { numpy, torch, foreign };
  nb::handle like_;
  kind kind_;
};

}  // namespace attend::python
