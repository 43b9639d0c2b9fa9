#include "scratch.hpp"

#include <new>
#include <utility>

namespace attend::detail {
namespace {

constexpr std::align_val_t line{64};

struct kept_memory {
  aligned_memory memory;
  std::int64_t size = 0;

  void reserve(std::int64_t bytes) {
    if (bytes <= size) return;
    memory.reset();
    size = 0;
    memory.reset(static_cast<char*>(::operator new(static_cast<std::size_t>(bytes), line)));
    size = bytes;
  }
};

thread_local kept_memory for_items;
constexpr int kept_depths = 8;
thread_local kept_memory for_calls[kept_depths];
thread_local int depth = 0;

}  // namespace

void free_aligned::operator()(char* memory) const noexcept { ::operator delete(memory, line); }

char* thread_scratch(std::int64_t bytes) {
  for_items.reserve(bytes);
  return for_items.memory.get();
}

call_scratch::call_scratch(std::int64_t bytes) {
  kept_memory mine;
  if (depth < kept_depths) mine = std::exchange(for_calls[depth], {});
  mine.reserve(bytes);
  ++depth;
  memory_ = std::move(mine.memory);
  size_ = mine.size;
}

call_scratch::~call_scratch() {
  --depth;
  if (depth < kept_depths) for_calls[depth] = {std::move(memory_), size_};
}

}  // namespace attend::detail
