// How often this process has asked for memory. Sanitizers have a say of their own in that, so with them nothing is counted.
#pragma once

#include <cstdint>
#include <cstdlib>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ATTEND_COUNTS_ALLOCATIONS 1
#else
#define ATTEND_COUNTS_ALLOCATIONS 0
#endif

namespace attend::test {

struct allocations {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};

/// On all threads, since the process began.
allocations allocations_so_far();

}  // namespace attend::test
