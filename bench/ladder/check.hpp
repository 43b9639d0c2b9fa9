// Every contender against float64.
#pragma once

#include <string>
#include <vector>

namespace attend::kernel_ladder {

enum class verdict { right, wrong, skipped };

/// Compares these contenders, or all where none is named, on shapes that tiles divide and do not, and prints a line for each. Wrong
/// where one is, skipped where none of them can run here. Throws `argument_error` for a name that is none.
verdict check(const std::vector<std::string>& names);

}  // namespace attend::kernel_ladder
