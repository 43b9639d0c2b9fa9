// The floating-point environment that work items run in.
#pragma once

#include <cfenv>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attend::detail {

/// What becomes of results below the normal numbers; `zero` where that saves time. On AArch64 it would flush operands, too, of which a
/// tiny query times a huge key is made, and saves little.
enum class tiny_results { kept, zero };

/// Rounding and flushing modes of the default environment in a scope, whatever the thread had set.
class default_environment {
 public:
  explicit default_environment([[maybe_unused]] tiny_results tiny = tiny_results::kept) noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
#if defined(__x86_64__)
    if (tiny == tiny_results::zero) _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_ON);
#endif
  }
  ~default_environment() { std::fesetenv(&saved_); }
  default_environment(const default_environment&) = delete;
  default_environment& operator=(const default_environment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace attend::detail
