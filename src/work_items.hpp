// Work items of a call on somebody's threads: what runs forwards and backwards share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <thread>

#include "attend/error.hpp"
#include "attend/executor.hpp"
#include "attend/options.hpp"
#include "environment.hpp"

namespace attend::detail {

class work_items {
 public:
  /// `products`: multiply-adds of the call without masks, by which a thread is worth waking.
  work_items(const options& how, double products) : how_(how), products_(products), caller_(std::this_thread::get_id()) {}

  /// Calls body(i) for every i below `count`. Throws `interrupted`, `std::bad_alloc`.
  template <class Body>
  void for_each(std::int64_t count, Body body) {
    const std::function<void(std::int64_t)> item = [this, &body](std::int64_t i) noexcept {
      if (stopped()) return;
      // Weights of far keys under ALiBi are mostly below the normal numbers, and on some processors each of them costs a hundred
      // cycles. The contract allows 0 instead.
      const default_environment environment(tiny_results::zero);
      try {
        body(i);
      } catch (const std::bad_alloc&) {
        out_of_memory_.store(true, std::memory_order_relaxed);
        stop_.store(true, std::memory_order_relaxed);
      }
    };
    const int threads = threads_asked();
    if (!how_.executor && (threads == 1 || count == 1 || products_ < worth_a_thread)) {
      for (std::int64_t i = 0; i < count; ++i) item(i);
    } else {
      (how_.executor ? *how_.executor : default_executor()).parallel_for(count, threads, item);
    }
    if (out_of_memory_.load()) throw std::bad_alloc();
    if (stop_.load()) throw interrupted();
  }

  int threads_asked() const { return how_.threads > 0 ? how_.threads : num_threads(); }

  /// Whether the call is over early. On the calling thread, asks the caller every few milliseconds.
  bool stopped() noexcept {
    if (how_.interrupt.requested && std::this_thread::get_id() == caller_ && !stop_.load(std::memory_order_relaxed)) {
      const auto now = std::chrono::steady_clock::now();
      if (now - asked_ >= std::chrono::milliseconds(5)) {
        asked_ = now;
        if (how_.interrupt.requested(how_.interrupt.context)) stop_.store(true, std::memory_order_relaxed);
      }
    }
    return stop_.load(std::memory_order_relaxed);
  }

 private:
  // Below this many multiply-adds a call costs less than waking a thread.
  static constexpr double worth_a_thread = 1e6;

  const options& how_;
  const double products_;
  std::atomic<bool> stop_{false}, out_of_memory_{false};
  const std::thread::id caller_;
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

}  // namespace attend::detail
