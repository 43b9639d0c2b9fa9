// Memory: a second equal call asks for none, and nothing grows with L x S.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/cache.hpp"
#include "support/varlen.hpp"

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

/// How often a call allocates once all have their scratch.
template <class Call>
std::int64_t allocations_of_a_later(const Call& call) {
  std::int64_t allocated = -1;
  for (int round = 0; round < 1000 && allocated != 0; ++round) allocated = counted(call).count;
  return allocated;
}

TEST(a_second_equal_call, allocates_nothing_with_any_option_of_scores) {
  ATTEND_SKIP_UNLESS_COUNTED();
  for (const sizes& n : {sizes{.B = 2, .H = 4, .Hk = 2, .L = 2, .S = 3000, .E = 16, .Ev = 8},
                         sizes{.B = 2, .H = 2, .Hk = 2, .L = 150, .S = 300, .E = 16, .Ev = 16}}) {
    const auto x = make_inputs<float>(n);
    const score_arrays<float> arrays(n);
    const auto mask = coins({n.B, 1, n.L, n.S}, 3, 0.9);
    tensor<float> out({n.B, n.H, n.L, n.Ev}), lse({n.B, n.H, n.L}), weights({n.B, n.H, n.L, n.S}), scores(weights.shape());
    for (auto [name, how] : arrays.calls()) {
      for (const int threads : {1, 2}) {
        how.threads = threads, how.mask = mask;
        EXPECT_EQ(allocations_of_a_later([&] {
                    attention(x.q, x.k, x.v, outputs{.out = out, .lse = lse, .weights = weights, .scores = scores}, how);
                  }),
                  0)
            << name << ", " << n.to_string() << ", " << threads << " threads";
      }
    }
  }
}

TEST(a_second_equal_call, allocates_nothing_for_packed_sequences) {
  ATTEND_SKIP_UNLESS_COUNTED();
  const auto x =
      make_packed<float>({{0, 3}, {70, 70}, {1, 2000}, {4, 0}, {9, 9}, {130, 1700}}, {.H = 4, .Hk = 2, .E = 8, .Ev = 8});
  const auto of_q = random_ids({x.queries()}, 3, -1, 1), of_k = random_ids({x.keys()}, 4, -1, 1);
  tensor<float> out({x.queries(), 4, 8}), lse({x.queries(), 4});
  for (const int threads : {1, 2}) {
    const options how{.causal = true, .query_segments = of_q, .key_segments = of_k, .alibi = true, .threads = threads};
    EXPECT_EQ(
        allocations_of_a_later([&] { attention_varlen(x.q, x.k, x.v, x.at_q, x.at_k, outputs{.out = out, .lse = lse}, how); }),
        0)
        << threads << " threads";
  }
}

TEST(a_call, allocates_nothing_that_grows_with_queries_times_keys) {
  ATTEND_SKIP_UNLESS_COUNTED();
  const auto bytes_of = [](std::int64_t length, const extents& mask_shape) {
    const sizes n{.B = 1, .H = 2, .Hk = 2, .L = length, .S = length, .E = 16, .Ev = 16};
    const auto x = make_inputs<float>(n);
    const auto mask = coins(mask_shape, 3, 0.9);
    const auto ids = random_ids({length}, 4, 0, 9);
    tensor<float> out({n.B, n.H, n.L, n.Ev}), lse({n.B, n.H, n.L});
    return counted([&] {
             attention(x.q, x.k, x.v, outputs{.out = out, .lse = lse},
                       {.query_segments = ids, .key_segments = ids, .mask = mask, .alibi = true, .threads = 2});
           })
        .bytes;
  };
  for (const std::int64_t length : {64, 512, 1024, 2048, 4096}) {
    for (const extents& shape : {extents{1, length}, extents{length, 1}, extents{length, length}, extents{2, length, length},
                                 extents{1, 1, 1, length}, extents{1, 2, 1, 1}, extents{}})
      EXPECT_LT(bytes_of(length, shape), 2 << 20) << length << " queries and keys, mask " << shape.to_string();
  }
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

template <class T>
void expect_no_converted_tensor() {
  const sizes n{.B = 1, .H = 1, .Hk = 1, .L = 40, .S = quick() ? 20'000 : 80'000, .E = 128, .Ev = 128};
  const auto x = make_inputs<T>(n);
  tensor<T> out({1, 1, n.L, n.Ev});
  if (!reset_peak()) GTEST_SKIP() << "this kernel does not reset the peak of a process";
  const std::int64_t before = status_bytes("VmRSS");
  ASSERT_GT(before, 0);
  attention(x.q, x.k, x.v, outputs{.out = out}, {.threads = 2});
  attention(tensor_view<const T>(x.q.data(), {1, 1, 4, n.E}), x.k, x.v,
            outputs{.out = tensor_view<T>(out.data(), {1, 1, 4, n.Ev})}, {.threads = 2});
  EXPECT_LT(status_bytes("VmHWM") - before, 8 << 20) << "keys in float32 alone would be " << n.S * n.E * 4 << " bytes";
}

TEST(the_peak_of_memory, holds_no_tensor_of_halves_in_float32) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep shadow memory";
#endif
  expect_no_converted_tensor<float16>();
  expect_no_converted_tensor<bfloat16>();
}

TEST(the_peak_of_memory, holds_no_cache_of_codes_in_float32) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep shadow memory";
#endif
  constexpr std::int64_t S = 100'000, E = 128;
  for (const quantization codes : {quantization::int8, quantization::int4}) {
    kv_cache cache({.kv_heads = 1, .capacity = S, .dim = E, .quantized_keys = codes, .quantized_values = codes});
    const auto rows = normal<float>({1, 1, 1000, E}, 1);
    for (std::int64_t at = 0; at < S; at += 1000) cache.append(rows, rows);
    const auto few = normal<float>({1, 1, 1, E}, 2), many = normal<float>({1, 1, 100, E}, 3);
    tensor<float> few_out(few.shape()), many_out(many.shape());
    if (!reset_peak()) GTEST_SKIP() << "this kernel does not reset the peak of memory";
    const std::int64_t before = status_bytes("VmRSS");
    decode(few, cache, outputs{.out = few_out}, {.threads = 2});
    decode(many, cache, outputs{.out = many_out}, {.threads = 2});
    EXPECT_LT(status_bytes("VmHWM") - before, 8 << 20) << "keys in float32 alone would be " << S * E * 4 << " bytes";
  }
}

TEST(a_second_equal_call, allocates_nothing_in_halves) {
  ATTEND_SKIP_UNLESS_COUNTED();
  for (const std::int64_t L : {2, 150}) {
    const sizes n{.B = 2, .H = 4, .Hk = 2, .L = L, .S = 3000, .E = 16, .Ev = 8};
    const auto x = make_inputs<bfloat16>(n);
    tensor<bfloat16> out({n.B, n.H, n.L, n.Ev}), weights({n.B, n.H, n.L, n.S});
    for (const int threads : {1, 2}) {
      EXPECT_EQ(allocations_of_a_later(
                    [&] { attention(x.q, x.k, x.v, outputs{.out = out, .weights = weights}, {.threads = threads}); }),
                0)
          << n.to_string() << ", " << threads << " threads";
    }
  }
}

TEST(a_second_equal_backward_call, allocates_nothing) {
  ATTEND_SKIP_UNLESS_COUNTED();
  const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 100, .S = 900, .E = 16, .Ev = 8};
  const score_arrays<float> arrays(n);
  const auto table = normal<float>({1, 9}, 3);
  tensor<float> dq({n.B, n.H, n.L, n.E}), dk({n.B, n.Hk, n.S, n.E}), dv({n.B, n.Hk, n.S, n.Ev}),
      dout({n.B, n.H, n.L, n.Ev}, 1.0f);
  tensor<float> dbias(arrays.row.shape()), dtable(table.shape()), dslopes({n.H}), dsinks({n.H});
  for (const int threads : {1, 2}) {
    const options how{.query_offset = lower_right,
                      .bias = arrays.row,
                      .relative = table,
                      .softcap = 3,
                      .alibi = arrays.slopes,
                      .sinks = arrays.sinks,
                      .threads = threads};
    const auto x = make_inputs<float>(n);
    const auto y = compute(x, how);
    EXPECT_EQ(
        allocations_of_a_later([&] {
          attention_backward(
              {.dout = dout, .out = y.out, .lse = y.lse}, x.q, x.k, x.v,
              gradients{.dq = dq, .dk = dk, .dv = dv, .dbias = dbias, .drelative = dtable, .dalibi = dslopes, .dsinks = dsinks},
              how);
        }),
        0)
        << threads << " threads";
  }
}

TEST(a_backward_call, asks_for_memory_that_grows_with_queries_alone) {
  ATTEND_SKIP_UNLESS_COUNTED();
  const auto bytes_of = [](std::int64_t length) {
    const sizes n{.B = 1, .H = 1, .Hk = 1, .L = length, .S = length, .E = 16, .Ev = 16};
    const options how{.window = {100, 100}, .threads = 2};
    const auto x = make_inputs<float>(n);
    const auto y = compute(x, how);
    tensor<float> dq(x.q.shape()), dk(x.k.shape()), dv(x.v.shape()), bias({length}), dbias({length});
    options biased = how;
    biased.bias = bias;
    // On a thread of its own, which keeps no memory of earlier calls.
    std::int64_t bytes = 0;
    std::thread([&] {
      bytes = counted([&] {
                attention_backward({.dout = y.out, .out = y.out, .lse = y.lse}, x.q, x.k, x.v,
                                   gradients{.dq = dq, .dk = dk, .dv = dv, .dbias = dbias}, biased);
              }).bytes;
    }).join();
    return bytes;
  };
  // Gradients of queries in flight are a few times those of one chunk, and bounded by a number that does not depend on the length.
  for (const std::int64_t length : {4096, 16384}) EXPECT_LT(bytes_of(length), (48 << 20) + length * 16 * 4 * 20) << length;
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
