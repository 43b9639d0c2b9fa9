// Python's arguments of the general form: which cells of a grid a query sees, and how a query and a key become a weight.
#pragma once

#include <optional>

#include "arrays.hpp"

namespace attend::python {

/// A pair (rows, columns).
grid_size read_grid(nb::handle value);

/// Sizes of the kernel, or None, beside which a dilation or a border is refused.
neighborhood read_neighborhood(nb::handle kernel, nb::handle dilation, nb::handle border);

/// A word, or an object of attend.gaussian or attend.additive, whose array is borrowed through `weights`.
compatibility read_compatibility(nb::handle value, std::optional<borrowed_array>& weights);

/// A word.
normalizer read_normalizer(nb::handle value);

}  // namespace attend::python
