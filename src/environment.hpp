// The floating-point environment that work items run in.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attend::detail {

/// What becomes of results below the normal numbers.
enum class tiny_results { kept, zero };

/// Rounding and flushing modes of the default environment in a scope, whatever the thread had set.
class default_environment {
 public:
  explicit default_environment([[maybe_unused]] tiny_results tiny = tiny_results::kept) noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
#if defined(__x86_64__)
    if (tiny == tiny_results::zero) _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_ON);
#elif defined(__aarch64__)
    if (tiny == tiny_results::zero) {  // there, operands below the normal numbers become 0 as well
      constexpr std::uint64_t flush_to_zero = std::uint64_t{1} << 24;
      std::uint64_t control;
      asm volatile("mrs %0, fpcr" : "=r"(control));
      asm volatile("msr fpcr, %0" : : "r"(control | flush_to_zero));
    }
#endif
  }
  ~default_environment() { std::fesetenv(&saved_); }
  default_environment(const default_environment&) = delete;
  default_environment& operator=(const default_environment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace attend::detail
