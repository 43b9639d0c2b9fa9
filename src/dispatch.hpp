// Kernel choice: per kernel, the best available instruction set that has one.
#pragma once

#include "attend/isa.hpp"
#include "attend/types.hpp"
#include "kernels/kernel_table.hpp"

namespace attend::detail {

enum class operation { forward, forward_pairs, few_queries, backward };

const char* name_of(operation op) noexcept;

/// What a kernel is chosen by, beside the instruction set: one line of kernels.def.
struct kernel_key {
  operation op;
  dtype queries, keys, accumulator;

  friend bool operator==(const kernel_key&, const kernel_key&) = default;
};

struct kernel_choice {
  const kernel* entry = nullptr;
  isa set = isa::scalar;
};

struct backward_choice {
  const backward_kernel* entry = nullptr;
  isa set = isa::scalar;
};

/// The best available instruction set's kernel; without an entry where no line of kernels.def has this key, or no available set fills it
/// (forward_pairs). Throws `argument_error` where `ATTEND_ISA` is wrong.
kernel_choice choose_kernel(const kernel_key& key);

/// The same of backward kernels.
backward_choice choose_backward_kernel(const kernel_key& key);

}  // namespace attend::detail
