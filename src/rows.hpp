// Work on rows that do not depend on each other: what merging and rotary embeddings share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "attend/executor.hpp"
#include "attend/tensor.hpp"
#include "elements.hpp"
#include "environment.hpp"

namespace attend::detail {

/// Calls `body(first, last)` for runs of rows that together are [0, rows), on threads where `cost`, about a nanosecond per
/// unit and row, makes it worth while. Throws `std::bad_alloc` where a body does.
template <class Body>
void for_each_run(std::int64_t rows, double cost, int threads, const Body& body) {
  constexpr double worth_a_thread = 1e5, item_cost = 2e4;  // waking a thread costs tens of microseconds
  if (rows == 0) return;
  const double total = cost * static_cast<double>(rows);
  if (threads == 1 || total < worth_a_thread) {
    const default_environment environment;
    body(0, rows);
    return;
  }
  const std::int64_t run = cost >= item_cost ? 1 : std::min(rows, static_cast<std::int64_t>(item_cost / std::max(cost, 1.0)));
  std::atomic<bool> out_of_memory{false};
  default_executor().parallel_for((rows + run - 1) / run, threads, [&](std::int64_t item) noexcept {
    const default_environment environment;
    try {
      body(item * run, std::min(rows, (item + 1) * run));
    } catch (const std::bad_alloc&) {
      out_of_memory.store(true, std::memory_order_relaxed);
    }
  });
  if (out_of_memory.load()) throw std::bad_alloc();
}

/// Offset in elements of element `index`, counted in row-major order over the first `axes` axes of the shape.
inline std::int64_t offset_at(const extents& shape, const extents& strides, int axes, std::int64_t index) noexcept {
  std::int64_t offset = 0;
  for (int axis = axes - 1; axis > 0; --axis) {
    offset += index % shape[axis] * strides[axis];
    index /= shape[axis];
  }
  return axes > 0 ? offset + index * strides[0] : 0;
}

}  // namespace attend::detail
