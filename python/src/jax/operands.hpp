// What XLA hands to a handler: attributes, and buffers by name at one place of the axes that vmap has put before theirs.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "attend/attend.hpp"
#include "xla/ffi/api/ffi.h"

namespace attend::python::jax {

namespace ffi = ::xla::ffi;

/// The attributes of a call: names of its buffers, one word each with spaces between, the rank of its q, and its options that are
/// plain values.
struct call_facts {
  /// Throws where there are attributes that this version does not know.
  explicit call_facts(const ffi::Dictionary& attributes);

  std::string_view operands, results;
  std::int64_t rank;
  options values;
};

/// A row-major buffer. Every vmap puts an axis before those of every buffer of a call: as long as the map, or 1 where the buffer
/// is the same all over it.
struct named_buffer {
  std::string_view name;
  char* data;
  ffi::DataType type;
  std::vector<std::int64_t> mapped = {};  ///< sizes of the axes of vmap
  extents shape = {};                     ///< what the call itself sees
};

/// The operands or the results of a call: at one place of the axes of vmap, or, folded, all places at once as batch axes.
class named_buffers {
 public:
  named_buffers(const ffi::RemainingArgs& arguments, const call_facts& call);
  named_buffers(const ffi::RemainingRets& results, const call_facts& call, const named_buffers& operands);

  const std::vector<named_buffer>& all() const noexcept { return buffers_; }
  void move_to(const std::vector<std::int64_t>& place) { place_ = place; }
  /// Axes of vmap of these sizes become batch axes, before the others of arrays of `rank` axes (..., heads, rows, columns).
  void fold(const std::vector<std::int64_t>& sizes, int rank);
  bool is_folded() const noexcept { return folded_rank_ > 0; }

  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
  /// An array that is not given where there is none of this name.
  mutable_array_view view(std::string_view name) const;
  /// Integers of any type.
  tensor<std::int64_t> integers(std::string_view name) const;
  const named_buffer* find(std::string_view name) const noexcept;

 private:
  void add(std::string_view name, const ffi::AnyBuffer& buffer);
  const char* data_at_place(const named_buffer& buffer) const;
  mutable_array_view at_place(const named_buffer& buffer) const;
  mutable_array_view folded(const named_buffer& buffer) const;

  std::vector<named_buffer> buffers_;
  std::size_t mapped_axes_ = 0;
  std::vector<std::int64_t> place_;
  std::vector<std::int64_t> folded_sizes_;
  int folded_rank_ = 0;
};

/// Whether this buffer of a call has, or broadcasts over, the call's batch axes.
bool grows_with_batch(std::string_view name) noexcept;

/// Runs a call whose operands and results are looked at through `view`: once where the axes of vmap are batch axes like any
/// other, or once for each of their places. Either way each has the bits that it has alone.
void run_mapped(const call_facts& call, named_buffers& operands, named_buffers& results, const std::function<void()>& run);

/// The options of a call at the place where its operands are looked at, and what they look at.
class operand_options {
 public:
  operand_options(const options& values, const named_buffers& operands);
  operand_options(const operand_options&) = delete;
  operand_options& operator=(const operand_options&) = delete;

  options how;

 private:
  std::vector<tensor<std::int64_t>> kept_;
};

}  // namespace attend::python::jax
