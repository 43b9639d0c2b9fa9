// Executes a backward call: chunks of keys over blocks of queries, on somebody's threads.
#pragma once

#include "attend/options.hpp"
#include "gradient_problem.hpp"

namespace attend::detail {

/// Computes every gradient of the problem. Throws `interrupted`, `std::bad_alloc`.
void run_backward(const gradient_problem& g, const options& how);

}  // namespace attend::detail
