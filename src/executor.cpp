// The default executor: a small pool. Workers wait on a condition variable after a short spin; each call posts itself, works
// on its own items and waits for whoever helped. After fork the child starts with an empty pool. Workers live as long as the
// process.
#include "attend/executor.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "attend/error.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attend {
namespace {

constexpr int most_threads = 1024;

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // takes about as long; `yield` does nothing on most processors
#endif
}

/// One parallel_for: lives on its caller's stack while it is posted.
struct posted_call {
  const executor::body* run;
  std::int64_t count;
  int wanted;  // helpers at most
  std::atomic<std::int64_t> next{0};
  std::atomic<int> helping{0};  // changed under the pool's mutex only

  void work() {
    for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*run)(i);
  }
};

class pool {
 public:
  void run(std::int64_t count, int threads, const executor::body& body) {
    posted_call call{.run = &body, .count = count, .wanted = static_cast<int>(std::min<std::int64_t>(threads, count)) - 1};
    {
      const std::lock_guard lock(mutex_);
      grow(call.wanted);
      calls_.push_back(&call);
      posted_.fetch_add(1, std::memory_order_release);
    }
    call.wanted == 1 ? wake_.notify_one() : wake_.notify_all();
    call.work();
    for (int i = 0; i < spins && call.helping.load(std::memory_order_acquire) > 0; ++i) relax();
    std::unique_lock lock(mutex_);
    calls_.erase(std::find(calls_.begin(), calls_.end(), &call));
    idle_.wait(lock, [&] { return call.helping.load(std::memory_order_relaxed) == 0; });
  }

  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }

 private:
  static constexpr int spins = 2000;  // tens of microseconds: a following call finds workers awake

  void grow(int workers) {
    while (workers_ < std::min(workers, most_threads)) {
      // Signals are the application's business: no worker takes one.
      sigset_t all, mine;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &mine);
      try {
        std::thread([this] { serve(); }).detach();
        ++workers_;
      } catch (const std::system_error&) {
        workers = 0;  // the call is done by those there are
      }
      pthread_sigmask(SIG_SETMASK, &mine, nullptr);
    }
  }

  posted_call* open_call() {
    for (posted_call* call : calls_) {
      if (call->helping.load(std::memory_order_relaxed) < call->wanted &&
          call->next.load(std::memory_order_relaxed) < call->count)
        return call;
    }
    return nullptr;
  }

  [[noreturn]] void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      posted_call* call = open_call();
      if (!call) {
        const std::uint64_t seen = posted_.load(std::memory_order_relaxed);
        lock.unlock();
        for (int i = 0; i < spins && posted_.load(std::memory_order_relaxed) == seen; ++i) relax();
        lock.lock();
        wake_.wait(lock, [&] { return (call = open_call()) != nullptr; });
      }
      call->helping.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      call->work();
      lock.lock();
      if (call->helping.fetch_sub(1, std::memory_order_release) == 1) idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::vector<posted_call*> calls_;
  std::atomic<std::uint64_t> posted_{0};
  int workers_ = 0;
};

// Never destroyed: workers may still wait in it when the process ends.
pool* current_pool = nullptr;

pool& default_pool() {
  static std::once_flag once;
  std::call_once(once, [] {
    current_pool = new pool;
    pthread_atfork([] { current_pool->before_fork(); }, [] { current_pool->after_fork_in_parent(); },
                   [] { current_pool = new pool; });  // the parent's threads do not exist here
  });
  return *current_pool;
}

class default_threads final : public executor {
 public:
  void parallel_for(std::int64_t count, int max_threads, const body& run) override {
    if (count <= 0) return;
    if (max_threads <= 1 || count == 1) {
      for (std::int64_t i = 0; i < count; ++i) run(i);
    } else {
      default_pool().run(count, max_threads, run);
    }
  }
};

int initial_threads() {
  if (const char* const text = std::getenv("ATTEND_NUM_THREADS"); text && *text) {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end != '\0' || value < 1 || value > most_threads)
      throw argument_error("ATTEND_NUM_THREADS", "a number from 1 to " + std::to_string(most_threads), text);
    return static_cast<int>(value);
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::atomic<int> chosen_threads{0};  // 0: not chosen yet

}  // namespace

executor& default_executor() {
  static default_threads threads;
  return threads;
}

int num_threads() {
  if (const int chosen = chosen_threads.load(std::memory_order_relaxed)) return chosen;
  static const int initial = initial_threads();
  return initial;
}

void set_num_threads(int threads) {
  if (threads < 1) throw argument_error("threads", "a number of at least 1", std::to_string(threads));
  chosen_threads.store(threads, std::memory_order_relaxed);
}

}  // namespace attend
