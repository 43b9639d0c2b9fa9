// Measuring: threads that start together, bursts short enough to fit between disturbances, the best of them counts.
#include "limits.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "attend/error.hpp"
#include "limits_loops.hpp"

#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#endif

namespace attend::limits {
namespace {

using steady = std::chrono::steady_clock;

constexpr int bursts = 7;
constexpr int fma_attempts = 3;
constexpr double burst_seconds = 4e-3;
constexpr double clock_seconds = 1e-3;
constexpr int read_passes = 5;

/// Binds the calling thread to the processor that is the `thread`-th of those it may use: two threads that happen to share one
/// would halve the peak. Where that cannot be done, the operating system places the threads.
void bind_to_processor([[maybe_unused]] int thread) {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int skip = thread % std::max(1, CPU_COUNT(&allowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    return;
  }
#endif
}

using meeting_point = std::barrier<>;

/// Runs `work(thread, start)` on `threads` threads of their own and returns when all have. At `start` they wait for each other;
/// a thread that never came into being is taken out of that count, so that the others end and the error is reported.
void run_together(int threads, const std::function<void(int, meeting_point&)>& work) {
  meeting_point start(threads);
  std::vector<std::jthread> crew;
  crew.reserve(static_cast<std::size_t>(threads));
  try {
    for (int thread = 0; thread < threads; ++thread) {
      crew.emplace_back([&work, &start, thread] {
        bind_to_processor(thread);
        work(thread, start);
      });
    }
  } catch (...) {
    for (auto missing = static_cast<std::size_t>(threads) - crew.size(); missing > 0; --missing) start.arrive_and_drop();
    throw;
  }
}

constexpr int additions_per_step = 64;

/// Additions of which each needs the one before: one per cycle on every processor of today. The addend is a register, because
/// some processors fold chains of constants without executing them.
void dependent_additions(std::int64_t steps) {
  std::uint64_t sum = 0, one = 1;
  asm volatile("" : "+r"(one));
  for (std::int64_t step = 0; step < steps; ++step) {
#if defined(__x86_64__)
    asm volatile(".rept 64\n\tadd %1, %0\n\t.endr" : "+r"(sum) : "r"(one) : "cc");
#elif defined(__aarch64__)
    asm volatile(".rept 64\n\tadd %0, %0, %1\n\t.endr" : "+r"(sum) : "r"(one));
#else
    for (int i = 0; i < additions_per_step; ++i) {
      sum += one;
      asm volatile("" : "+r"(sum));
    }
#endif
  }
}

/// When one thread worked.
struct interval {
  steady::time_point begin, end;

  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

template <class Work>
interval timed(const Work& work) {
  interval time;
  time.begin = steady::now();
  work();
  time.end = steady::now();
  return time;
}

/// From the first thread's begin to the last thread's end.
interval hull(const interval& a, const interval& b) { return {std::min(a.begin, b.begin), std::max(a.end, b.end)}; }

/// How many steps of `run(steps)` take about `seconds`; warms the unit up on the way.
template <class Run>
std::int64_t calibrate(double seconds, const Run& run) {
  std::int64_t steps = 64;
  for (;;) {
    const double spent = timed([&] { run(steps); }).seconds();
    if (spent > seconds / 8)
      return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(steps) * seconds / spent));
    steps *= 4;
  }
}

double clock_of(std::int64_t steps) {
  return additions_per_step * static_cast<double>(steps) / timed([&] { dependent_additions(steps); }).seconds();
}

bool has(isa set) noexcept {
#if defined(__x86_64__)
  switch (set) {  // these ask the operating system as well
    case isa::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case isa::avx512: return __builtin_cpu_supports("avx512f");
    default: return set == isa::scalar;
  }
#elif defined(__aarch64__)
  return set == isa::scalar || set == isa::neon;
#else
  return set == isa::scalar;
#endif
}

const loops& loops_of(isa set) {
  if (!has(set)) throw argument_error("set", "one with multiply-add loops that this machine has", std::string(name_of(set)));
#if defined(__x86_64__)
  if (set == isa::avx512) return avx512_loops;
  if (set == isa::avx2) return avx2_loops;
#endif
  return baseline_loops;
}

bool detected(isa set) {
  const std::vector<isa> sets = detected_isas();
  return std::find(sets.begin(), sets.end(), set) != sets.end();
}

/// The loop of products of bfloat16 of this set.
const bf16_loop& bf16_loop_of(isa set) {
  if (set != isa::avx512_bf16 && set != isa::amx_bf16)
    throw argument_error("set", "avx512_bf16 or amx_bf16 for bfloat16", std::string(name_of(set)));
  if (!detected(set)) throw argument_error("set", "one that this machine has", std::string(name_of(set)));
#if defined(__x86_64__)
  return set == isa::amx_bf16 ? amx_bf16_loop : dpbf16_loop;
#else
  throw argument_error("set", "one of this processor", std::string(name_of(set)));  // never detected
#endif
}

void require_threads(int threads) {
  if (threads < 1) throw argument_error("threads", "at least 1", std::to_string(threads));
}

/// What one thread did in one burst of `measure_fma`.
struct burst {
  interval multiplying;
  double flops = 0;  // not per second
  double clock = 0;
};

/// What a loop does, for any type and set.
struct loop_counts {
  dtype type;
  int lanes;               ///< as in `fma_rate`
  double flops_of_a_step;  ///< 2 for each multiply-add
};

/// One thread's part of `measure_fma`.
template <class Run>
std::array<burst, bursts> multiply_add_bursts(const loop_counts& counts, const Run& run, meeting_point& start) {
  const std::int64_t steps = calibrate(burst_seconds, run);
  const std::int64_t clock_steps = calibrate(clock_seconds, dependent_additions);
  std::array<burst, bursts> done;
  for (burst& one : done) {
    start.arrive_and_wait();
    one.multiplying = timed([&] { run(steps); });
    one.flops = counts.flops_of_a_step * static_cast<double>(steps);
    one.clock = clock_of(clock_steps);
  }
  return done;
}

/// The same over values of its own.
template <class Element>
std::array<burst, bursts> multiply_add_bursts(const loop_counts& counts, void (*loop)(std::int64_t, Element*),
                                              meeting_point& start) {
  alignas(widest_vector) Element values[static_cast<std::size_t>(accumulators) * widest_vector / sizeof(Element)];
  std::iota(std::begin(values), std::end(values), Element(1));
  for (Element& value : values) value = Element(1) / value;  // different: equal chains would be one
  return multiply_add_bursts(counts, [&](std::int64_t steps) { loop(steps, values); }, start);
}

/// How many instructions a thread starts per cycle, from what a thread reached of one per cycle. Rounded up, so that a disturbed peak
/// cannot pass as a clean one of fewer units; 0.05 is the noise of the clock. Vector units start at least one; of products of bfloat16
/// some processors start one in two cycles, and two threads of a core share it.
double units_of(double reached, dtype type) {
  if (type == dtype::bf16)
    for (const double part : {0.25, 0.5})
      if (reached <= part * 1.05) return part;
  return std::max(1.0, std::ceil(reached - 0.05));
}

template <class Bursts>
fma_rate measure_once(const loop_counts& counts, int threads, const Bursts& bursts_of_a_thread) {
  fma_rate result;
  result.lanes = counts.lanes;
  std::vector<std::array<burst, bursts>> done(static_cast<std::size_t>(threads));
  run_together(threads,
               [&](int thread, meeting_point& start) { done[static_cast<std::size_t>(thread)] = bursts_of_a_thread(start); });

  double fastest = 0;  // of one thread
  for (std::size_t round = 0; round < bursts; ++round) {
    interval whole = done[0][round].multiplying;
    double flops = 0, clock = 0;
    for (const auto& thread : done) {
      const burst& one = thread[round];
      whole = hull(whole, one.multiplying);
      flops += one.flops;
      clock += one.clock / threads;
      fastest = std::max(fastest, one.flops / one.multiplying.seconds());
    }
    result.flops = std::max(result.flops, flops / whole.seconds());
    result.clock = std::max(result.clock, clock);
  }
  const double one_unit = 2.0 * result.lanes * result.clock;
  result.units = units_of(fastest / one_unit, counts.type);
  result.validity = result.flops / (one_unit * result.units * threads);
  return result;
}

fma_rate measure_once(dtype type, int threads, isa set) {
  if (type == dtype::bf16) {
    const bf16_loop& loop = bf16_loop_of(set);
    const loop_counts counts{type, loop.lanes, 2.0 * loop.multiply_adds};
    return measure_once(counts, threads, [&](meeting_point& start) { return multiply_add_bursts(counts, loop.run, start); });
  }
  const loops& loop = loops_of(set);
  const int lanes = static_cast<int>(loop.vector_bytes / static_cast<std::size_t>(size_of(type)));
  const loop_counts counts{type, lanes, 2.0 * lanes * accumulators};
  return measure_once(counts, threads, [&](meeting_point& start) {
    return type == dtype::f32 ? multiply_add_bursts(counts, loop.fma_f32, start)
                              : multiply_add_bursts(counts, loop.fma_f64, start);
  });
}

struct release {
  void operator()(void* memory) const noexcept { std::free(memory); }
};

std::unique_ptr<std::byte[], release> allocate(std::size_t bytes) {
  constexpr std::size_t huge_page = std::size_t{1} << 21;
  const std::size_t whole = (bytes + huge_page - 1) / huge_page * huge_page;
  std::unique_ptr<std::byte[], release> memory(static_cast<std::byte*>(std::aligned_alloc(huge_page, whole)));
  if (!memory) throw std::bad_alloc();
#if defined(__linux__)
  // The limit is that of memory, not of address translation. A kernel that refuses changes the figure only.
  (void)madvise(memory.get(), whole, MADV_HUGEPAGE);
#endif
  return memory;
}

}  // namespace

isa widest_isa() noexcept {
  for (isa set : {isa::avx512, isa::avx2, isa::neon})
    if (has(set)) return set;
  return isa::scalar;
}

fma_rate measure_fma(dtype type, int threads, isa set) {
  require_threads(threads);
  if (type != dtype::f32 && type != dtype::f64 && type != dtype::bf16)
    throw argument_error("type", "float32, float64 or bfloat16", std::string(name_of(type)), argument_error::kind::type);
  fma_rate best;
  for (int attempt = 0; attempt < fma_attempts && best.validity < valid_from; ++attempt) {
    const fma_rate now = measure_once(type, threads, set);
    if (now.validity > best.validity) best = now;
  }
  return best;
}

double fma_peak(dtype type, int threads) { return measure_fma(type, threads).flops; }

double read_bandwidth(int threads, std::size_t bytes) {
  require_threads(threads);
  const std::size_t steps = bytes / read_step / static_cast<std::size_t>(threads);  // of one thread
  if (steps < 1) throw argument_error("bytes", "at least 512 per thread", std::to_string(bytes));
  const std::size_t part = steps * read_step;
  const auto memory = allocate(part * static_cast<std::size_t>(threads));
  const loops& loop = loops_of(widest_isa());

  std::vector<std::array<interval, read_passes>> times(static_cast<std::size_t>(threads));
  run_together(threads, [&](int thread, meeting_point& start) {
    const auto mine = static_cast<std::size_t>(thread);
    std::byte* const data = memory.get() + mine * part;
    std::fill_n(data, part, std::byte{1});  // pages come into being beside the thread that reads them
    for (interval& time : times[mine]) {
      start.arrive_and_wait();
      time = timed([&] {
        const std::uint64_t sum = loop.read(static_cast<std::int64_t>(steps), data);
        asm volatile("" : : "r"(sum));
      });
    }
  });

  std::array<double, read_passes> rates;
  for (std::size_t pass = 0; pass < read_passes; ++pass) {
    interval whole = times[0][pass];
    for (const auto& thread : times) whole = hull(whole, thread[pass]);
    rates[pass] = static_cast<double>(part) * threads / whole.seconds();
  }
  std::nth_element(rates.begin(), rates.begin() + read_passes / 2, rates.end());
  return rates[read_passes / 2];
}

double clock_frequency() {
  const std::int64_t steps = calibrate(clock_seconds, dependent_additions);
  double best = 0;
  for (int burst = 0; burst < bursts; ++burst) best = std::max(best, clock_of(steps));
  return best;
}

measured measure(int threads) {
  const fma_rate f32 = measure_fma(dtype::f32, threads), f64 = measure_fma(dtype::f64, threads);
  measured result;
  result.fma_f32 = f32.flops;
  result.fma_f64 = f64.flops;
  result.read = read_bandwidth(threads);
  result.clock = std::max(f32.clock, f64.clock);
  result.validity_f32 = f32.validity;
  result.validity_f64 = f64.validity;
  if (detected(isa::avx512_bf16)) result.dpbf16 = measure_fma(dtype::bf16, threads, isa::avx512_bf16);
  if (detected(isa::amx_bf16)) result.amx_bf16 = measure_fma(dtype::bf16, threads, isa::amx_bf16);
  result.threads = threads;
  result.set = widest_isa();
  return result;
}

}  // namespace attend::limits
