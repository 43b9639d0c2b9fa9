// Counts every allocation of the process, whoever makes it, by standing in front of the C library's functions.
#include "support/allocations.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if ATTEND_COUNTS_ALLOCATIONS

namespace {
std::atomic<std::int64_t> count, bytes;

void note(std::size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
}
}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  note(size);
  return __libc_malloc(size);
}
void* calloc(std::size_t items, std::size_t size) {
  note(items * size);
  return __libc_calloc(items, size);
}
void* realloc(void* memory, std::size_t size) {
  note(size);
  return __libc_realloc(memory, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  note(size);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  void* const found = memalign(alignment, size);
  if (!found) return ENOMEM;
  *memory = found;
  return 0;
}
}

namespace attend::test {
allocations allocations_so_far() { return {count.load(), bytes.load()}; }
}  // namespace attend::test

#else

namespace attend::test {
allocations allocations_so_far() { return {}; }
}  // namespace attend::test

#endif
