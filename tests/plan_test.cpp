// A plan says what will run, its numbers fit together, and running it is the call.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/compute.hpp"

namespace attend::test {
namespace {

plan plan_for(const sizes& n, const options& how = {}, dtype type = dtype::f32) {
  return make_plan({.type = type, .q = {n.B, n.H, n.L, n.E}, .k = {n.B, n.Hk, n.S, n.E}, .v = {n.B, n.Hk, n.S, n.Ev}}, how);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Counts that any plan must satisfy.
void expect_consistent(const sizes& n, const options& how, dtype type) {
  const plan_facts f = plan_for(n, how, type).facts();
  const std::string what = n.to_string() + ", " + f.kernel;
  EXPECT_EQ(f.operation, "forward");
  EXPECT_TRUE(f.kernel == "forward" || f.kernel == "forward_pairs" || f.kernel == "few_queries") << what;
  EXPECT_TRUE(f.kernel != "forward_pairs" || (type == dtype::bf16 && f.set >= isa::avx512_bf16)) << what;
  EXPECT_FALSE(f.reason.empty()) << what;
  EXPECT_EQ(f.type, type);
  EXPECT_EQ(f.batch, n.B);
  EXPECT_EQ(f.heads, n.H);
  EXPECT_EQ(f.kv_heads, n.Hk);
  EXPECT_EQ(f.queries, n.L);
  EXPECT_EQ(f.keys, n.S);
  EXPECT_EQ(f.width, n.E);
  EXPECT_EQ(f.value_width, n.Ev);
  EXPECT_GT(f.lanes, 0) << what;
  EXPECT_GT(f.tile_keys, 0) << what;
  EXPECT_GE(f.chunk_keys, f.tile_keys) << what;
  EXPECT_EQ(f.chunk_keys % f.tile_keys, 0) << what << ": a chunk is whole tiles";
  EXPECT_GE(f.lane_blocks * f.lanes, n.L * n.H / std::max<std::int64_t>(n.Hk, 1)) << what << ": every row has a lane";
  EXPECT_EQ(f.tiles_skipped + f.tiles_full + f.tiles_partial, n.B * n.Hk * f.lane_blocks * ceil_div(n.S, f.tile_keys)) << what;
  EXPECT_GE(f.scratch_bytes_per_thread, 0) << what;
  EXPECT_EQ(f.shared_scratch_bytes > 0, f.split_keys) << what;
  EXPECT_GE(f.flops, 0) << what;
  const double elements =
      double(n.B) * (double(n.H) * double(n.L) * double(n.E + n.Ev) + double(n.Hk) * double(n.S) * double(n.E + n.Ev));
  EXPECT_DOUBLE_EQ(f.bytes, elements * double(size_of(type))) << what;
}

const std::vector<sizes> problems = {{.B = 1, .H = 8, .Hk = 8, .L = 256, .S = 256, .E = 64, .Ev = 64},
                                     {.B = 2, .H = 32, .Hk = 8, .L = 1, .S = 4096, .E = 128, .Ev = 128},
                                     {.B = 3, .H = 6, .Hk = 2, .L = 3, .S = 100, .E = 7, .Ev = 9},
                                     {.B = 1, .H = 3, .Hk = 1, .L = 333, .S = 5001, .E = 80, .Ev = 33},
                                     {.B = 5, .H = 71, .Hk = 1, .L = 2, .S = 1, .E = 1, .Ev = 1}};

TEST(a_plan, has_numbers_that_fit_together) {
  for (const sizes& n : problems) {
    for (const dtype type : {dtype::f32, dtype::f64, dtype::f16, dtype::bf16}) {
      for (const bool reproducible : {false, true}) {
        expect_consistent(n, {.reproducible = reproducible}, type);
        expect_consistent(n, {.causal = true, .query_offset = lower_right, .reproducible = reproducible}, type);
        expect_consistent(n, {.window = {64, 0}, .query_offset = upper_left, .reproducible = reproducible}, type);
      }
    }
  }
}

TEST(a_plan, takes_few_queries_for_decoding_and_forward_for_prefill) {
  EXPECT_EQ(plan_for({.H = 8, .Hk = 8, .L = 1, .S = 4096, .E = 64, .Ev = 64}).facts().kernel, "few_queries");
  EXPECT_EQ(plan_for({.H = 8, .Hk = 8, .L = 2048, .S = 2048, .E = 64, .Ev = 64}).facts().kernel, "forward");
}

TEST(a_plan, of_one_kernel_serves_every_length_where_reproducible) {
  const std::string kernel =
      plan_for({.H = 4, .Hk = 4, .L = 2048, .S = 64, .E = 64, .Ev = 64}, {.reproducible = true}).facts().kernel;
  for (const std::int64_t L : {1, 2, 5, 17, 64, 1000})
    EXPECT_EQ(plan_for({.H = 4, .Hk = 4, .L = L, .S = 64, .E = 64, .Ev = 64}, {.reproducible = true}).facts().kernel, kernel)
        << L;
}

TEST(a_plan, uses_the_best_available_instruction_set) {
  const auto sets = available_isas(), compiled = compiled_isas();
  const isa used = plan_for(problems[0]).facts().set;
  EXPECT_NE(std::find(sets.begin(), sets.end(), used), sets.end());
  isa best = isa::scalar;
  for (const isa set : compiled)
    if (set < isa::avx512_bf16 && std::find(sets.begin(), sets.end(), set) != sets.end()) best = set;
  EXPECT_EQ(used, best);
}

TEST(a_plan, does_not_depend_on_batch_heads_or_threads) {
  const plan_facts one = plan_for({.B = 1, .H = 2, .Hk = 1, .L = 5, .S = 1000, .E = 64, .Ev = 64}).facts();
  const plan_facts many = plan_for({.B = 9, .H = 20, .Hk = 10, .L = 5, .S = 7, .E = 64, .Ev = 64}, {.threads = 5}).facts();
  EXPECT_EQ(one.kernel, many.kernel);
  EXPECT_EQ(one.lanes, many.lanes);
  EXPECT_EQ(one.tile_keys, many.tile_keys);
  EXPECT_EQ(one.chunk_keys, many.chunk_keys);
}

TEST(a_plan, without_masks_computes_every_tile) {
  for (const sizes& n : problems) {
    const plan_facts f = plan_for(n).facts();
    EXPECT_EQ(f.tiles_skipped, 0) << n.to_string();
    const double pairs = double(n.B) * double(n.H) * double(n.L) * double(n.S);
    EXPECT_GE(f.flops, 2 * pairs * double(n.E + n.Ev)) << n.to_string();
  }
}

TEST(a_plan, of_a_causal_square_skips_nearly_half) {
  const plan_facts f = plan_for({.B = 1, .H = 1, .Hk = 1, .L = 8192, .S = 8192, .E = 64, .Ev = 64}, {.causal = true}).facts();
  const double all = double(f.tiles_skipped + f.tiles_full + f.tiles_partial);
  EXPECT_GT(double(f.tiles_skipped) / all, 0.47);
  EXPECT_LT(double(f.tiles_partial) / all, 0.05);
}

TEST(a_plan, of_a_window_costs_length_times_window) {
  const auto work = [](std::int64_t L) {
    const plan_facts f = plan_for({.B = 1, .H = 1, .Hk = 1, .L = L, .S = L, .E = 64, .Ev = 64}, {.window = {255, 0}}).facts();
    return f.tiles_full + f.tiles_partial;
  };
  const std::int64_t at_8k = work(8192), at_16k = work(16384);
  EXPECT_NEAR(double(at_16k) / double(at_8k), 2, 0.05) << "twice the length is twice the work";
  const plan_facts f =
      plan_for({.B = 1, .H = 1, .Hk = 1, .L = 8192, .S = 8192, .E = 64, .Ev = 64}, {.window = {255, 0}}).facts();
  const std::int64_t per_block = ceil_div(255 + f.lanes, f.tile_keys) + 1;
  EXPECT_LE(at_8k, f.lane_blocks * per_block);
}

TEST(a_plan, skips_what_key_lengths_exclude) {
  tensor<std::int64_t> lengths({2});
  lengths(0) = 100, lengths(1) = 0;
  const sizes n{.B = 2, .H = 1, .Hk = 1, .L = 512, .S = 9600, .E = 64, .Ev = 64};
  const plan_facts f = plan_for(n, {.key_lengths = lengths}).facts();
  EXPECT_LE(f.tiles_full + f.tiles_partial, f.lane_blocks * ceil_div(100, f.tile_keys));
}

TEST(a_plan, can_be_printed) {
  const std::string text = plan_for(problems[1]).describe();
  for (const char* word : {"few_queries", "float32", "4096", "128"})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  EXPECT_GT(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST(a_plan, of_every_zero_sized_shape_can_be_printed_and_run) {
  for (int zeros = 0; zeros < 128; ++zeros) {
    const auto size = [&](int bit, std::int64_t otherwise) { return zeros >> bit & 1 ? std::int64_t{0} : otherwise; };
    const sizes n{.B = size(0, 2),
                  .H = size(1, 4),
                  .Hk = size(2, 2),
                  .L = size(3, 3),
                  .S = size(4, 5),
                  .E = size(5, 4),
                  .Ev = size(6, 3)};
    for (const options& how : {options{}, options{.causal = true, .window = {2, 1}, .query_offset = lower_right, .prefix = 1},
                               options{.key_lengths = 0}, options{.reproducible = true}}) {
      if (n.H > 0 && n.Hk == 0) {
        EXPECT_THROW(plan_for(n, how), argument_error) << n.to_string();
        continue;
      }
      const plan p = plan_for(n, how);
      EXPECT_FALSE(p.describe().empty());
      EXPECT_GE(p.facts().work_items, 0) << n.to_string();
      const auto x = make_inputs<float>(n);
      EXPECT_FALSE(check(x.q, x.k, x.v, outputs{}, how)) << n.to_string();
      const auto want = reference::attention(x.q, x.k, x.v, how, true);
      computed<float> y{tensor<float>(want.out.shape(), 7), tensor<float>(want.lse.shape(), 7),
                        tensor<float>(want.weights.shape(), 7)};
      p.run(x.q, x.k, x.v, outputs{.out = y.out, .lse = y.lse, .weights = y.weights});
      EXPECT_TRUE(as_reference(y, x.q, x.k, x.v, how)) << n.to_string();
    }
  }
}

TEST(a_plan, runs_with_the_bits_of_the_call) {
  for (const sizes& n : problems) {
    const options how{.causal = true, .query_offset = lower_right, .scale = 0.2};
    const auto x = make_inputs<double>(n);
    const auto want = compute(x, how, true);
    const plan p = plan_for(n, how, dtype::f64);
    const plan copied = p;  // a value
    for (const plan* each : {&p, &copied}) {
      computed<double> y{tensor<double>(want.out.shape()), tensor<double>(want.lse.shape()),
                         tensor<double>(want.weights.shape())};
      each->run(x.q, x.k, x.v, outputs{.out = y.out, .lse = y.lse, .weights = y.weights});
      EXPECT_TRUE(same_bits(y, want)) << n.to_string();
    }
    tensor<double> alone(want.out.shape());
    p.run(x.q, x.k, x.v, alone);
    EXPECT_TRUE(same_bits(alone, want.out)) << n.to_string();
  }
}

TEST(a_plan, runs_on_many_threads_at_once) {
  const sizes n{.B = 1, .H = 4, .Hk = 2, .L = 40, .S = 300, .E = 32, .Ev = 32};
  const plan p = plan_for(n);
  const auto x = make_inputs<float>(n);
  const auto want = compute(x);
  std::vector<tensor<float>> got;
  for (int i = 0; i < 6; ++i) got.emplace_back(want.out.shape());
  std::vector<std::thread> callers;
  for (auto& out : got)
    callers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) p.run(x.q, x.k, x.v, out);
    });
  for (auto& caller : callers) caller.join();
  for (const auto& out : got) EXPECT_TRUE(same_bits(out, want.out));
}

TEST(a_plan, refuses_other_shapes_and_dtypes) {
  const sizes n{.B = 1, .H = 2, .Hk = 2, .L = 4, .S = 6, .E = 8, .Ev = 8};
  const plan p = plan_for(n);
  const auto x = make_inputs<float>(n), longer = make_inputs<float>({.B = 1, .H = 2, .Hk = 2, .L = 5, .S = 6, .E = 8, .Ev = 8});
  const auto wide = make_inputs<double>(n);
  tensor<float> out({1, 2, 4, 8}, 7), longer_out({1, 2, 5, 8}, 7);
  tensor<double> wide_out({1, 2, 4, 8}, 7);
  EXPECT_THROW(p.run(longer.q, x.k, x.v, longer_out), argument_error);
  EXPECT_THROW(p.run(wide.q, wide.k, wide.v, wide_out), argument_error);
  EXPECT_THROW(p.run(x.q, x.k, x.v, longer_out), argument_error);
  for (const float value : longer_out) EXPECT_EQ(value, 7);
  for (const double value : wide_out) EXPECT_EQ(value, 7);
  EXPECT_NO_THROW(p.run(x.q, x.k, x.v, out));
}

TEST(a_plan, refuses_what_the_call_refuses) {
  EXPECT_THROW(plan_for({.H = 3, .Hk = 2}), argument_error);
  EXPECT_THROW(plan_for({.L = 2, .S = 3}, {.causal = true}), argument_error);
  EXPECT_THROW(plan_for({}, {}, dtype::i64), argument_error);
  EXPECT_THROW(make_plan({.type = dtype::f32, .q = {4}, .k = {4, 4}, .v = {4, 4}}), argument_error);
}

}  // namespace
}  // namespace attend::test
