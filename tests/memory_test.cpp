// Memory: a second equal call asks for none, and nothing grows with L x S.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/compute.hpp"

namespace attend::test {
namespace {

/// Allocations of `run`.
template <class Run>
allocations counted(const Run& run) {
  const allocations before = allocations_so_far();
  run();
  const allocations after = allocations_so_far();
  return {after.count - before.count, after.bytes - before.bytes};
}

#define ATTEND_SKIP_UNLESS_COUNTED() \
  if (!ATTEND_COUNTS_ALLOCATIONS) GTEST_SKIP() << "this build does not count allocations"

TEST(the_counter, sees_what_is_allocated) {
  ATTEND_SKIP_UNLESS_COUNTED();
  const allocations seen = counted([] { tensor<float> x({1000}); });
  EXPECT_EQ(seen.count, 1);
  EXPECT_EQ(seen.bytes, 4000);
}

TEST(a_second_equal_call, allocates_nothing) {
  ATTEND_SKIP_UNLESS_COUNTED();
  const std::vector<sizes> problems = {{.B = 1, .H = 2, .Hk = 1, .L = 1, .S = 100, .E = 64, .Ev = 64},
                                       {.B = 1, .H = 4, .Hk = 2, .L = 2, .S = 9000, .E = 64, .Ev = 48},
                                       {.B = 2, .H = 4, .Hk = 4, .L = 300, .S = 300, .E = 64, .Ev = 64},
                                       {.B = 1, .H = 1, .Hk = 1, .L = 80, .S = 8000, .E = 17, .Ev = 33}};
  for (const sizes& n : problems) {
    const auto x = make_inputs<float>(n);
    const auto mask = coins({n.L, n.S}, 3, 0.9);
    const auto bias = normal<float>({n.S}, 4);
    tensor<float> out({n.B, n.H, n.L, n.Ev}), lse({n.B, n.H, n.L}), weights({n.B, n.H, n.L, n.S});
    for (const options& how : {options{.threads = 1}, options{.threads = 2}, options{.threads = 4},
                               options{.causal = true, .query_offset = lower_right, .mask = mask, .bias = bias, .threads = 2},
                               options{.reproducible = true, .threads = 2}}) {
      const auto call = [&] { attention(x.q, x.k, x.v, outputs{.out = out, .lse = lse, .weights = weights}, how); };
      // Which worker takes part is a matter of chance, and each makes its scratch the first time it does: sooner or later all have.
      std::int64_t allocated = -1;
      for (int round = 0; round < 1000 && allocated != 0; ++round) allocated = counted(call).count;
      EXPECT_EQ(allocated, 0) << n.to_string() << ", " << how.threads << " threads";
    }
  }
}

TEST(a_call, allocates_nothing_that_grows_with_queries_times_keys) {
  ATTEND_SKIP_UNLESS_COUNTED();
  const auto bytes_of = [](std::int64_t length) {
    const sizes n{.B = 1, .H = 2, .Hk = 2, .L = length, .S = length, .E = 16, .Ev = 16};
    const auto x = make_inputs<float>(n);
    const auto mask = coins({1, n.S}, 3, 0.9);
    tensor<float> out({n.B, n.H, n.L, n.Ev}), lse({n.B, n.H, n.L});
    return counted([&] { attention(x.q, x.k, x.v, outputs{.out = out, .lse = lse}, {.mask = mask, .threads = 2}); }).bytes;
  };
  bytes_of(64);
  for (const std::int64_t length : {512, 1024, 2048, 4096})
    EXPECT_LT(bytes_of(length), 2 << 20) << length << " queries and keys";
}

/// A line of /proc/self/status in bytes.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1)) * 1024;
  return -1;
}

/// The peak of resident memory begins anew; false where the kernel does not offer that.
bool reset_peak() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5" << std::flush;
  return refs.good();
}

TEST(the_peak_of_memory, stays_below_eight_megabytes_for_16384_queries_and_keys) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep shadow memory";
#endif
  const std::int64_t length = quick() ? 4096 : 16384;
  const sizes n{.B = 1, .H = 1, .Hk = 1, .L = length, .S = length, .E = 32, .Ev = 32};
  const auto x = make_inputs<float>(n);
  tensor<float> out({1, 1, length, 32}), lse({1, 1, length});
  const tensor<bool> mask({1, 1, length, 1}, true);
  if (!reset_peak()) GTEST_SKIP() << "this kernel does not reset the peak of a process";
  const std::int64_t before = status_bytes("VmRSS");
  ASSERT_GT(before, 0);
  for (const options& how : {options{}, options{.causal = true, .mask = mask}, options{.threads = 4}})
    attention(x.q, x.k, x.v, outputs{.out = out, .lse = lse}, how);
  EXPECT_LT(status_bytes("VmHWM") - before, 8 << 20);
}

TEST(the_plan, reports_the_scratch_that_a_call_uses) {
  const auto facts_of = [](std::int64_t L, std::int64_t S) {
    return make_plan({.type = dtype::f32, .q = {1, L, 64}, .k = {1, S, 64}, .v = {1, S, 64}}).facts();
  };
  EXPECT_EQ(facts_of(1000, 1000).scratch_bytes_per_thread, facts_of(100'000, 100'000).scratch_bytes_per_thread);
  EXPECT_LT(facts_of(100'000, 100'000).scratch_bytes_per_thread, 2 << 20);
  EXPECT_LT(facts_of(1, 10'000'000).shared_scratch_bytes, 8 << 20);
}

}  // namespace
}  // namespace attend::test
