#include "signals.hpp"

namespace attend::cli {

namespace {
volatile std::sig_atomic_t waiting = 0;
void note(int number) { waiting = number; }
}  // namespace

signals_wait::signals_wait() {
  waiting = 0;
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < ending.size(); ++i) {
    ::sigaction(ending[i], nullptr, &before_[i]);
    // What the parent chose to ignore (nohup) stays ignored.
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(ending[i], &action, nullptr);
  }
}

signals_wait::~signals_wait() {
  for (std::size_t i = 0; i < ending.size(); ++i) ::sigaction(ending[i], &before_[i], nullptr);
  if (waiting != 0) std::raise(waiting);
}

}  // namespace attend::cli
