// Sequences over pages whose keys are, chunk by chunk, the same pages: their rows can read these together.
#pragma once

#include <cstdint>

#include "problem.hpp"
#include "scratch.hpp"

namespace attend::detail {

/// Sequences that have chunk `chunk` in common: `count` of them, at most as many as one block has room for.
struct key_sharers {
  std::int64_t chunk, count;
  const std::int64_t* sequences;
};

/// Whether the keys of a call may be read by several sequences at once: nothing that a kernel is told once for all of a block's rows may depend on the
/// sequence.
bool can_share_keys(const problem& p) noexcept;

/// Who shares what in `chunks` chunks of `chunk_keys` keys from chunk `first` on.
class shared_keys {
 public:
  shared_keys(const problem& p, std::int64_t chunk_keys, std::int64_t chunks, std::int64_t most_sequences);

  void find(std::int64_t first, std::int64_t chunks) noexcept;
  std::int64_t count() const noexcept { return count_; }
  const key_sharers& operator[](std::int64_t i) const noexcept { return sharers_[i]; }

 private:
  void find_in(std::int64_t chunk, std::int64_t* order) noexcept;

  const problem& p_;
  const std::int64_t chunk_keys_, most_;
  call_scratch memory_;
  key_sharers* sharers_;
  std::int64_t* orders_;
  std::int64_t count_ = 0;
};

}  // namespace attend::detail
