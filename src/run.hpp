// Executes a route: blocks of rows over chunks of keys, on somebody's threads.
#pragma once

#include "attend/options.hpp"
#include "problem.hpp"
#include "route.hpp"

namespace attend::detail {

/// Bytes of scratch that one thread needs for a part at most.
std::int64_t thread_bytes(const part& work) noexcept;

/// Computes every result of the problem. Throws `interrupted`, `std::bad_alloc`.
void run(const problem& p, const route& r, const options& how);

}  // namespace attend::detail
