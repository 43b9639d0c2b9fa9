// Whoever computes the ladder's problem: its steps, and the library they lead to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "attend/attend.hpp"
#include "attend/reference.hpp"

namespace attend::kernel_ladder {

struct sizes {
  std::int64_t heads, queries, keys, width, value_width;
};

/// Inputs of one element type, what float64 makes of them, and how far from it a result may be: `reference::error_bound`.
template <class T>
struct task {
  /// Numbers are even in [-amplitude, amplitude] and always the same.
  task(const sizes& shape, double amplitude);

  sizes shape;
  tensor<T> q, k, v;
  tensor<double> truth, bound;
};

struct tasks {
  tasks(const sizes& shape, double amplitude) : f32(shape, amplitude), bf16(shape, amplitude) {}

  task<float> f32;
  task<bfloat16> bf16;
};

/// A contender with its task, memory for its result and its scratch.
class calculation {
 public:
  virtual ~calculation() = default;
  /// Computes all heads, one after the other, with one thread.
  virtual void run() = 0;
  virtual std::int64_t scratch_bytes() const = 0;
  /// The largest difference between the result and float64, in parts of its bound; infinite where the result is not a number.
  virtual double part_of_bound() const = 0;
};

struct contender {
  std::string_view name;
  dtype type;
  isa needs;                    ///< not less than this
  bool timed;                   ///< or here for tests alone
  std::string_view before;      ///< whose time it is compared with; empty for the first
  std::int64_t width_multiple;  ///< of E and Ev
  /// Null where this build has no such code. The tasks have to outlive what it returns.
  std::unique_ptr<calculation> (*prepare)(const tasks& work);

  bool takes(const sizes& shape) const { return shape.width % width_multiple == 0 && shape.value_width % width_multiple == 0; }
  /// Whether this build and this processor can run it. On x86-64, asking is also what asks the operating system for tiles.
  bool is_here() const;
};

/// In the order of the ladder.
const std::vector<contender>& contenders();

}  // namespace attend::kernel_ladder
