#include "run.hpp"

namespace attend::python {

bool signal_watch::requested(void* context) {
  auto& self = *static_cast<signal_watch*>(context);
  const steady::time_point now = steady::now();
  if (!self.next_) self.next_ = now + period;  // a short call never asks, and never looks at the clock
  if (now < *self.next_) return false;
  nb::gil_scoped_acquire locked;
  const bool raised = PyErr_CheckSignals() != 0;  // leaves what the handler raised as this thread's error
  self.next_ = steady::now() + period;
  return raised;
}

}  // namespace attend::python
