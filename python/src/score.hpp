// Python's arguments about scores: slopes of ALiBi and lists of score functions.
#pragma once

#include <vector>

#include "arrays.hpp"

namespace attend::python {

/// Arrays that views of a call look at, held as long as the call.
using borrowed_arrays = std::vector<borrowed_array>;

/// None or False, True, or an array of slopes, which is held in `kept`. Beside narrower inputs, slopes of float64 are rounded
/// to float32 in `rounded`: so few numbers are often written as float64.
alibi_slopes read_alibi(nb::handle value, std::string_view name, dtype inputs, borrowed_arrays& kept,
                        std::vector<tensor<float>>& rounded);

/// One of attend.soft_cap, attend.alibi and attend.bias, or a list of them; NotImplementedError for functions.
score_list read_score(nb::handle value, dtype inputs, borrowed_arrays& kept, std::vector<tensor<float>>& rounded);

}  // namespace attend::python
