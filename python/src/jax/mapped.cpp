// Calls under vmap, which puts axes before those of every buffer.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "operands.hpp"

namespace attend::python::jax {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool same_everywhere(const named_buffer& buffer) {
  return std::ranges::all_of(buffer.mapped, [](std::int64_t size) { return size == 1; });
}

/// Whether all places of vmap are one call. They are not where a place has numbers of its own that no batch has (sinks, say), or
/// sums of its own (their gradients), where shapes name all batch axes, and under dropout, which counts batches.
bool is_one_call(const call_facts& call, const named_buffers& operands, const named_buffers& results, int rank) {
  if (call.values.dropout.p > 0) return false;
  if (static_cast<std::size_t>(rank) + results.all().front().mapped.size() > std::size_t{max_rank}) return false;
  for (const named_buffer& result : results.all())
    if (!is_one_of(result.name, {"out", "lse", "dq", "dk", "dv"})) return false;
  return std::ranges::all_of(operands.all(), [](const named_buffer& operand) {
    if (grows_with_batch(operand.name)) return true;
    if (is_one_of(operand.name, {"query_offset", "prefix", "key_lengths"}) && operand.shape.rank() > 0) return false;
    if (is_one_of(operand.name, {"query_segments", "key_segments"}) && operand.shape.rank() > 1) return false;
    return same_everywhere(operand);
  });
}

}  // namespace

bool grows_with_batch(std::string_view name) noexcept {
  return is_one_of(name, {"q", "k", "v", "mask", "bias", "out", "lse", "dout", "dlse", "dq", "dk", "dv"});
}

mutable_array_view named_buffers::folded(const named_buffer& buffer) const {
  mutable_array_view all = at_place(buffer);
  extents shape, strides;
  std::int64_t step = buffer.shape.count();
  for (const std::int64_t size : buffer.mapped) step *= size;
  // Masks and biases broadcast. All others have the shape of their gradients.
  const bool broadcasts = is_one_of(buffer.name, {"mask", "bias"});
  for (std::size_t axis = 0; axis < mapped_axes_; ++axis) {
    const std::int64_t size = buffer.mapped[axis];
    if (size > 0) step /= size;
    shape.push_back(broadcasts ? size : folded_sizes_[axis]);
    strides.push_back(size == 1 ? 0 : step);
  }
  const int rank = folded_rank_ - is_one_of(buffer.name, {"lse", "dlse"});
  for (int axis = all.shape.rank(); axis < rank; ++axis) {
    shape.push_back(1);
    strides.push_back(0);
  }
  for (int axis = 0; axis < all.shape.rank(); ++axis) {
    shape.push_back(all.shape[axis]);
    strides.push_back(all.strides[axis]);
  }
  all.shape = shape;
  all.strides = strides;
  return all;
}

void run_mapped(const call_facts& call, named_buffers& operands, named_buffers& results, const std::function<void()>& run) {
  if (results.all().empty()) return;
  const std::vector<std::int64_t> sizes = results.all().front().mapped;
  if (sizes.empty()) return run();
  int rank = 3;
  for (const named_buffer& operand : operands.all())
    if (is_one_of(operand.name, {"q", "k", "v"})) rank = std::max(rank, operand.shape.rank());
  if (is_one_call(call, operands, results, rank)) {
    operands.fold(sizes, rank);
    results.fold(sizes, rank);
    return run();
  }
  std::int64_t places = 1;
  for (const std::int64_t size : sizes) places *= size;
  std::vector<std::int64_t> place(sizes.size());
  for (std::int64_t n = 0; n < places; ++n) {
    std::int64_t rest = n;
    for (std::size_t axis = sizes.size(); axis-- > 0; rest /= sizes[axis]) place[axis] = rest % sizes[axis];
    operands.move_to(place);
    results.move_to(place);
    run();
  }
}

}  // namespace attend::python::jax
