// Who runs the work: the library's own threads, or the caller's.
//
// ```cpp
// struct in_this_thread : attend::executor {
//   void parallel_for(std::int64_t count, int, const body& run) override {
//     for (std::int64_t i = 0; i < count; ++i) run(i);
//   }
// } mine;
// attend::tensor<float> q({4, 8}, 1.0f);
// auto y = attend::attention(q, q, q, {.executor = &mine});
// ```
#pragma once

#include <cstdint>
#include <functional>

namespace attend {

/// The one interface to threads. An implementation may run the items in any order and at the same time.
class executor {
 public:
  /// Runs one work item; never throws.
  using body = std::function<void(std::int64_t item)>;

  virtual ~executor() = default;

  /// Calls `run(i)` once for every i in [0, count) with at most `max_threads` at a time and returns when all have returned.
  virtual void parallel_for(std::int64_t count, int max_threads, const body& run) = 0;
};

/// The library's own pool: started on first use, alive after `fork`, shared by all calling threads.
executor& default_executor();

/// Threads that a call uses where its options do not say: `set_num_threads`, else `ATTEND_NUM_THREADS`, else the CPUs this
/// process may run on.
int num_threads();

/// Sets that number for the process. Throws `argument_error` below 1.
void set_num_threads(int threads);

}  // namespace attend
