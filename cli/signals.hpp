// Signals while a result is written.
#pragma once

#include <array>
#include <csignal>

namespace attend::cli {

/// While it lives, signals that ask the process to end wait; afterwards they end it. So that Ctrl-C during the short time in which a
/// result is written leaves the whole result, and no temporary file.
class signals_wait {
 public:
  signals_wait();
  signals_wait(const signals_wait&) = delete;
  signals_wait& operator=(const signals_wait&) = delete;
  ~signals_wait();

 private:
  static constexpr std::array<int, 3> ending{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, ending.size()> before_{};
};

}  // namespace attend::cli
