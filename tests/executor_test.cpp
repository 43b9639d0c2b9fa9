// Threads: the library's own and the caller's, nested and at once, after fork, and stopped half-way.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/varlen.hpp"

namespace attend::test {
namespace {

const sizes many_items{.B = 4, .H = 8, .Hk = 4, .L = 150, .S = 400, .E = 32, .Ev = 32};
const sizes split_items{.B = 1, .H = 2, .Hk = 1, .L = 3, .S = 20'000, .E = 32, .Ev = 32};

/// Items in reverse, one after the other.
struct backwards : executor {
  std::atomic<int> calls = 0;
  std::atomic<int> most = 0;
  void parallel_for(std::int64_t count, int max_threads, const body& run) override {
    ++calls;
    most = std::max(most.load(), max_threads);
    for (std::int64_t i = count - 1; i >= 0; --i) run(i);
  }
};

/// A new thread for each worker of each region.
struct fresh_threads : executor {
  void parallel_for(std::int64_t count, int max_threads, const body& run) override {
    std::atomic<std::int64_t> next = 0;
    std::vector<std::thread> workers;
    for (int n = 0; n < std::max(1, std::min<int>(max_threads, 6)); ++n)
      workers.emplace_back([&] {
        for (std::int64_t i = next++; i < count; i = next++) run(i);
      });
    for (auto& worker : workers) worker.join();
  }
};

TEST(the_default_executor, runs_every_item_once) {
  for (const std::int64_t count : {0, 1, 2, 3, 7, 100, 5000}) {
    for (const int threads : {1, 2, 3, 16}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      default_executor().parallel_for(count, threads, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
      for (const auto& each : runs) ASSERT_EQ(each, 1) << count << " items, " << threads << " threads";
    }
  }
}

TEST(the_default_executor, keeps_to_the_number_of_threads) {
  for (const int threads : {1, 2, 4}) {
    std::atomic<int> now = 0, most = 0;
    default_executor().parallel_for(200, threads, [&](std::int64_t) {
      const int running = ++now;
      for (int seen = most; running > seen && !most.compare_exchange_weak(seen, running);) {
      }
      std::this_thread::yield();
      --now;
    });
    EXPECT_LE(most, threads);
  }
}

TEST(the_default_executor, runs_one_thread_on_the_caller) {
  const auto self = std::this_thread::get_id();
  default_executor().parallel_for(20, 1, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), self); });
}

TEST(the_number_of_threads, can_be_set) {
  const int before = num_threads();
  EXPECT_GE(before, 1);
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  set_num_threads(before);
  EXPECT_EQ(num_threads(), before);
}

/// Run by the test below in a process of its own.
TEST(the_number_of_threads, DISABLED_of_this_process_is_seven) { EXPECT_EQ(num_threads(), 7); }

TEST(the_number_of_threads, is_read_from_the_environment) {
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string command =
      std::string("GTEST_TOTAL_SHARDS=1 GTEST_SHARD_INDEX=0 ATTEND_NUM_THREADS=7 " ATTEND_TEST_EMULATOR " '") + self +
      "' --gtest_also_run_disabled_tests --gtest_filter='*of_this_process_is_seven' > /dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(an_executor_of_the_caller, gives_the_same_bits) {
  for (const sizes& n : {many_items, split_items}) {
    const auto x = make_inputs<float>(n);
    const auto want = compute(x, {.threads = 1}, n.L > 10);
    backwards mine;
    fresh_threads threads;
    EXPECT_TRUE(same_bits(compute(x, {.threads = 4, .executor = &mine}, n.L > 10), want)) << n.to_string();
    EXPECT_GT(mine.calls, 0) << "the caller's executor was not used";
    EXPECT_LE(mine.most, 4);
    EXPECT_TRUE(same_bits(compute(x, {.threads = 5, .executor = &threads}, n.L > 10), want)) << n.to_string();
  }
}

/// Sequences of both kernels, one of them with its keys split.
packed<float> packed_items() {
  sequence_lengths lengths = {{0, 3}, {120, 120}, {1, 9000}, {4, 0}, {60, 3000}};
  for (std::int64_t s = 0; s < 40; ++s) lengths.emplace_back(1 + s % 5, 1 + s % 29);
  return make_packed<float>(lengths, {.H = 4, .Hk = 2, .E = 32, .Ev = 32});
}

TEST(an_executor_of_the_caller, gives_the_same_bits_with_masks_scores_and_packed_sequences) {
  backwards mine;
  fresh_threads threads;
  for (sizes n : {many_items, split_items}) {
    n.S = std::min<std::int64_t>(n.S, 3000);
    const auto x = make_inputs<float>(n);
    const score_arrays<float> arrays(n);
    const auto mask = coins({n.B, 1, n.L, n.S}, 3, 0.7);
    for (auto [name, how] : arrays.calls()) {
      how.mask = mask, how.threads = 1;
      const auto want = compute(x, how);
      how.threads = 5;
      for (executor* each : {static_cast<executor*>(&mine), static_cast<executor*>(&threads)}) {
        how.executor = each;
        EXPECT_TRUE(same_bits(compute(x, how), want)) << name << ", " << n.to_string();
      }
    }
  }
  const auto x = packed_items();
  const auto want = compute(x, {.causal = true, .threads = 1});
  EXPECT_TRUE(same_bits(compute(x, {.causal = true, .threads = 4, .executor = &mine}), want));
  EXPECT_TRUE(same_bits(compute(x, {.causal = true, .threads = 5, .executor = &threads}), want));
}

TEST(an_executor_of_the_caller, is_kept_by_a_plan) {
  const auto x = make_inputs<float>(many_items);
  const auto want = compute(x);
  backwards mine;
  const plan p =
      make_plan({.type = dtype::f32, .q = x.q.shape(), .k = x.k.shape(), .v = x.v.shape()}, {.threads = 2, .executor = &mine});
  tensor<float> out(want.out.shape());
  p.run(x.q, x.k, x.v, out);
  EXPECT_TRUE(same_bits(out, want.out));
  EXPECT_GT(mine.calls, 0);
}

TEST(calls, may_be_nested_in_a_parallel_region) {
  const auto x = make_inputs<float>(many_items), y = make_inputs<float>(split_items);
  const auto want_x = compute(x), want_y = compute(y);
  std::atomic<int> wrong = 0;
  default_executor().parallel_for(8, 4, [&](std::int64_t i) {
    if (!(i % 2 ? same_bits(compute(x), want_x) : same_bits(compute(y), want_y))) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
  fresh_threads threads;
  threads.parallel_for(8, 4, [&](std::int64_t i) {
    default_executor().parallel_for(2, 2, [&](std::int64_t) {
      if (!(i % 2 ? same_bits(compute(x), want_x) : same_bits(compute(y), want_y))) ++wrong;
    });
  });
  EXPECT_EQ(wrong, 0);
}

TEST(calls, may_come_from_many_threads_with_different_options) {
  struct job {
    inputs<float> x;
    options how;
    computed<float> want;
  };
  std::vector<job> jobs;
  const std::vector<options> ways = {{},
                                     {.causal = true, .query_offset = lower_right},
                                     {.window = {9, 3}, .query_offset = 5},
                                     {.scale = 2.0},
                                     {.reproducible = true},
                                     {.threads = 1},
                                     {.threads = 7},
                                     {.key_lengths = 17}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    sizes n = i % 2 ? split_items : many_items;
    n.S = std::min<std::int64_t>(n.S, 4000) - static_cast<std::int64_t>(i);
    job one{make_inputs<float>(n, i + 1), ways[i], {}};
    one.want = compute(one.x, one.how);
    jobs.push_back(std::move(one));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (const job& one : jobs)
    callers.emplace_back([&] {
      for (int round = 0; round < (quick() ? 2 : 6); ++round)
        if (!same_bits(compute(one.x, one.how), one.want)) ++wrong;
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(calls, of_packed_sequences_may_come_from_many_threads) {
  const auto x = packed_items();
  const auto of_q = random_ids({x.queries()}, 3, -1, 1), of_k = random_ids({x.keys()}, 4, -1, 1);
  const std::vector<options> ways = {{},
                                     {.causal = true},
                                     {.query_segments = of_q, .key_segments = of_k},
                                     {.alibi = true, .threads = 7},
                                     {.dropout = {.p = 0.5, .seed = 3}, .threads = 1}};
  std::vector<computed<float>> wanted;
  for (const options& how : ways) wanted.push_back(compute(x, how));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (std::size_t way = 0; way < ways.size(); ++way)
    callers.emplace_back([&, way] {
      for (int round = 0; round < (quick() ? 2 : 4); ++round)
        if (!same_bits(compute(x, ways[way]), wanted[way])) ++wrong;
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(calls, work_in_a_child_after_fork) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer ends a child that starts threads";
#endif
  const auto x = make_inputs<float>(many_items);
  const auto want = compute(x, {.threads = 4});  // the parent's pool now runs
  for (int child = 0; child < 3; ++child) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      alarm(60);  // a hanging child must not hang the tests
      bool right = true;
      for (const int threads : {1, 4, 4}) right = right && same_bits(compute(x, {.threads = threads}), want);
      _exit(right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(same_bits(compute(x, {.threads = 4}), want)) << "the parent goes on";
  }
}

struct asked {
  std::atomic<int> times = 0;
  int until = 0;
  std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> elsewhere = 0;

  static bool stop(void* context) {
    asked& self = *static_cast<asked*>(context);
    if (std::this_thread::get_id() != self.caller) ++self.elsewhere;
    return ++self.times > self.until;
  }
};

/// One item after the other, each later than the last by more than the time between two questions.
struct paced : executor {
  void parallel_for(std::int64_t count, int, const body& run) override {
    for (std::int64_t i = 0; i < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(12));
      run(i);
    }
  }
};

/// Small, but several work items.
const sizes few_items{.B = 1, .H = 5, .Hk = 5, .L = 20, .S = 30, .E = 8, .Ev = 8};

TEST(an_interrupt, stops_the_call_and_nothing_after_it) {
  const auto x = make_inputs<float>(few_items);
  const auto want = compute(x);
  paced slow;
  for (const int until : {0, 1, 3}) {
    asked question{.until = until};
    EXPECT_THROW(compute(x, {.executor = &slow, .interrupt = {&asked::stop, &question}}), interrupted) << until;
    EXPECT_EQ(question.times, until + 1) << "not asked again once it said yes";
    EXPECT_EQ(question.elsewhere, 0);
    EXPECT_TRUE(same_bits(compute(x), want));
  }
}

TEST(an_interrupt, stops_packed_sequences) {
  const auto x = packed_items();
  const auto want = compute(x);
  paced slow;
  for (const int until : {0, 3}) {
    asked question{.until = until};
    EXPECT_THROW(compute(x, {.executor = &slow, .interrupt = {&asked::stop, &question}}), interrupted) << until;
    EXPECT_EQ(question.times, until + 1) << "not asked again once it said yes";
    EXPECT_TRUE(same_bits(compute(x), want));
  }
}

TEST(an_interrupt, that_never_asks_for_a_stop_changes_nothing) {
  const auto x = make_inputs<float>(few_items);
  paced slow;
  asked question{.until = 1'000'000'000};
  EXPECT_TRUE(same_bits(compute(x, {.executor = &slow, .interrupt = {&asked::stop, &question}}), compute(x)));
  EXPECT_GT(question.times, 0);
}

TEST(an_interrupt, stops_a_long_call_on_the_pool) {
  // Many items of a few milliseconds together: some are left when the first question comes.
  const sizes n{.B = 1, .H = 16, .Hk = 4, .L = quick() ? 500 : 1500, .S = 1500, .E = 64, .Ev = 64};
  const auto x = make_inputs<float>(n);
  const auto want = compute(x);
  for (const int threads : {1, 2}) {
    asked question{.until = 0};
    EXPECT_THROW(compute(x, {.threads = threads, .interrupt = {&asked::stop, &question}}), interrupted) << threads;
    EXPECT_EQ(question.elsewhere, 0) << "asked on the calling thread alone";
    EXPECT_TRUE(same_bits(compute(x, {.threads = threads}), want)) << threads;
  }
}

}  // namespace
}  // namespace attend::test
