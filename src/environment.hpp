// The floating-point environment that work items run in.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace attend::detail {

/// What becomes of results below the normal numbers; `zero` where that saves time. On AArch64 it would flush operands, too, of which a
/// tiny query times a huge key is made, and saves little.
enum class tiny_results { kept, zero };

/// Rounding and flushing modes of the default environment in a scope, whatever the thread had set.
class default_environment {
 public:
#if defined(__x86_64__)
  // The register of vector arithmetic alone: nothing here computes with the older unit, whose modes take ten times as long to change.
  explicit default_environment(tiny_results tiny = tiny_results::kept) noexcept : saved_(_mm_getcsr()) {
    constexpr unsigned all_masked = _MM_MASK_MASK;  // round to nearest, nothing flushed, no exception taken
    _mm_setcsr(tiny == tiny_results::zero ? all_masked | _MM_FLUSH_ZERO_ON : all_masked);
  }
  ~default_environment() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  explicit default_environment(tiny_results = tiny_results::kept) noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~default_environment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif

 public:
  default_environment(const default_environment&) = delete;
  default_environment& operator=(const default_environment&) = delete;
};

}  // namespace attend::detail
