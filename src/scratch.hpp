// Memory that calls reuse: one block per thread for work items, and blocks per thread for what a call shares among its items.
#pragma once

#include <cstdint>
#include <memory>

namespace attend::detail {

struct free_aligned {
  void operator()(char* memory) const noexcept;
};
using aligned_memory = std::unique_ptr<char[], free_aligned>;

/// At least `bytes` bytes of this thread's, aligned to 64; valid until the thread asks again. Throws `std::bad_alloc`.
char* thread_scratch(std::int64_t bytes);

/// Memory for the time of one scope. Each depth of nested scopes on a thread keeps its memory from call to call, so that equal calls
/// allocate once.
class call_scratch {
 public:
  explicit call_scratch(std::int64_t bytes);
  ~call_scratch();
  call_scratch(const call_scratch&) = delete;
  call_scratch& operator=(const call_scratch&) = delete;
  char* data() const noexcept { return memory_.get(); }

 private:
  aligned_memory memory_;
  std::int64_t size_ = 0;
};

}  // namespace attend::detail
