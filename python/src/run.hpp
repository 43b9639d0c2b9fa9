// How every call runs: without the interpreter's lock, and stopped by what a signal's handler raises.
#pragma once

#include <chrono>
#include <optional>

#include "arrays.hpp"

namespace attend::python {

/// Lets Python see to signals while a call runs without the interpreter's lock.
///
/// Taking the lock back costs up to one switching interval (5 ms) where other Python threads are busy, so it is done far
/// less often than the library asks.
class signal_watch {
 public:
  interrupt hook() noexcept { return {&signal_watch::requested, this}; }

 private:
  using steady = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds period{50};

  static bool requested(void* context);

  std::optional<steady::time_point> next_;
};

/// Calls `compute(how)` without the interpreter's lock.
template <class Compute>
void run(options& how, const Compute& compute) {
  signal_watch watch;
  how.interrupt = watch.hook();
  try {
    nb::gil_scoped_release unlocked;
    compute(how);
  } catch (const interrupted&) {
    if (PyErr_Occurred()) throw nb::python_error();  // before anything is destroyed that could call into Python
    throw;
  }
}

}  // namespace attend::python
