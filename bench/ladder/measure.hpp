// How fast every contender is, beside the others and beside this machine's multiply-adds.
#pragma once

#include <string>

#include "contenders.hpp"

namespace attend::kernel_ladder {

/// Measures with one thread; returns a table in Markdown and a line on what it holds for. Round by round, each contender runs for
/// at least 50 ms between two measurements of the peak, of which the larger counts; ratios are taken within a round before their
/// median is. Cycles per score are divided by leaving work out: scores to compute (E = 0), then half of the values as well.
/// Throws `std::runtime_error` where a result is wrong: it is compared with float64 before any time is taken.
std::string measure(const sizes& shape, int rounds);

}  // namespace attend::kernel_ladder
