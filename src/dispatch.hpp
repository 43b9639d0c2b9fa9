// Kernel choice: per kernel, the best available instruction set that has one.
#pragma once

#include "attend/isa.hpp"
#include "attend/types.hpp"
#include "kernels/kernel_table.hpp"

namespace attend::detail {

/// What a kernel computes. With the dtype it names a line of kernels.def; storage types of keys, other accumulators,
/// compatibility functions and normalisers join here as they come.
enum class operation { forward, few_queries };

const char* name_of(operation op) noexcept;

struct kernel_choice {
  const kernel* entry;
  isa set;
};

/// Throws `argument_error` where `ATTEND_ISA` is wrong.
kernel_choice choose_kernel(operation op, dtype type);

}  // namespace attend::detail
