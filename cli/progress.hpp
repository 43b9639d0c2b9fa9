// A progress bar on a terminal, and nothing in a pipe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "attend/executor.hpp"

namespace attend::cli {

/// Counts the work items that the library's own threads finish. Draws on stderr, once the work has lasted a moment.
class progress : public executor {
 public:
  explicit progress(std::string label);
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  /// Leaves an empty line behind.
  ~progress() override;

  /// This, or nothing where stderr is no terminal: the library then runs as if it were not there.
  executor* if_terminal() noexcept { return terminal_ ? this : nullptr; }

  void parallel_for(std::int64_t count, int max_threads, const body& run) override;

  /// Shows the label alone: for work that tells nothing about how far it is.
  void announce();

 private:
  using clock = std::chrono::steady_clock;

  void draw(double fraction);

  std::string label_;
  bool terminal_;
  clock::time_point start_;
  std::mutex drawing_;
  clock::time_point last_;
  bool drawn_ = false;
};

}  // namespace attend::cli
