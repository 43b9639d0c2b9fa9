#include "progress.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

namespace attend::cli {

namespace {
constexpr std::chrono::milliseconds patience{500}, interval{100};
}

progress::progress(std::string label)
    : label_(std::move(label)), terminal_(::isatty(STDERR_FILENO) == 1), start_(clock::now()), last_(start_) {}

progress::~progress() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void progress::parallel_for(std::int64_t count, int max_threads, const body& run) {
  std::atomic<std::int64_t> done{0};
  default_executor().parallel_for(count, max_threads, [&](std::int64_t item) {
    run(item);
    const std::int64_t finished = done.fetch_add(1, std::memory_order_relaxed) + 1;
    // Whoever finds the pen taken goes on working.
    const std::unique_lock<std::mutex> pen(drawing_, std::try_to_lock);
    const clock::time_point now = clock::now();
    if (!pen || now - start_ < patience || now - last_ < interval) return;
    last_ = now;
    draw(static_cast<double>(finished) / static_cast<double>(count));
  });
}

void progress::announce() {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\x1b[K%s ...", label_.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void progress::draw(double fraction) {
  constexpr int width = 30;
  const int full = static_cast<int>(std::lround(fraction * width));
  const double seconds = std::chrono::duration<double>(clock::now() - start_).count();
  std::string bar(static_cast<std::size_t>(full), '#');
  bar.resize(width, '.');
  std::fprintf(stderr, "\r\x1b[K%s [%s] %3.0f %%  %.1f s", label_.c_str(), bar.c_str(), fraction * 100, seconds);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace attend::cli
