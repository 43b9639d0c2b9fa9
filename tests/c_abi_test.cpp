// The C ABI is the C++ API: every member of a struct arrives, and every function computes what its namesake does.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/c_call.hpp"

namespace attend::test {
namespace {

TEST(the_c_abi, computes_what_cpp_computes) {
  c_call c;
  ASSERT_EQ(c.run(), ATTEND_OK) << attend_last_error();
  const auto cpp = compute<float>(c.cpp.q, c.cpp.k, c.cpp.v, {}, true);
  EXPECT_TRUE(same_bits(c.cpp.out, cpp.out) && same_bits(c.cpp.lse, cpp.lse) && same_bits(c.cpp.weights, cpp.weights));
  EXPECT_EQ(attend_attention(c.q.get(), c.k.get(), c.v.get(), &c.results, nullptr), ATTEND_OK) << "NULL options";
  c_array q(c.cpp.q_view, false), k(c.cpp.k_view, false), out(array_view(c.cpp.results.out), false);
  c.results = ATTEND_INIT(attend_results), c.results.out = out.get();
  c.cpp.out = tensor<float>(c.cpp.out.shape(), 7.0f), out.c.data = c.cpp.out.data();
  ASSERT_EQ(attend_attention(q.get(), k.get(), c.v.get(), &c.results, nullptr), ATTEND_OK) << "NULL strides";
  EXPECT_TRUE(same_bits(c.cpp.out, cpp.out));
}

TEST(the_c_abi, reads_strides_of_any_sign) {
  c_call c;
  const auto cpp = compute<float>(c.cpp.q, c.cpp.k, c.cpp.v);
  strided<float> q(c.cpp.q, {-200, 48, 16, -2}), out({2, 4, 3, 6}, {1, 2, -40, 120});
  c_array q_view(q.view()), out_view(array_view(out.view()));
  c.results.out = out_view.get();
  ASSERT_EQ(attend_attention(q_view.get(), c.k.get(), c.v.get(), &c.results, nullptr), ATTEND_OK) << attend_last_error();
  EXPECT_TRUE(same_bits(out.values(), cpp.out) && out.gaps_are_intact());
}

/// What an option is in C and in C++; both are about the inputs of `call`.
struct option_case {
  const char* name;
  std::function<void(attend_options&)> c;
  std::function<void(options&)> cpp;
};

TEST(the_c_abi, brings_every_option_over) {
  static const std::int64_t two = 2, one = 1, zero = 0;
  static const tensor<std::int64_t> per_batch = [] {
    tensor<std::int64_t> x({2});
    x(0) = 1, x(1) = 4;
    return x;
  }();
  static const tensor<std::int64_t> ids_q = [] {
    tensor<std::int64_t> x({3});
    x(1) = 1;
    return x;
  }();
  static const tensor<std::int64_t> ids_k = [] {
    tensor<std::int64_t> x({5});
    x(2) = 1;
    return x;
  }();
  static const tensor<bool> mask = coins({3, 5}, 1);
  static const tensor<float> bias_numbers = normal<float>({4, 3, 5}, 2), table = normal<float>({4, 5}, 3),
                             by_head = normal<float>({4}, 4), w = normal<float>({8}, 5);
  static const c_array c_batch{per_batch}, c_ids_q{ids_q}, c_ids_k{ids_k}, c_mask{mask}, c_bias{bias_numbers}, c_table{table},
      c_heads{by_head}, c_w{w};
  static const double half = 0.5, cap = 1.5;
  static const std::uint64_t seed = 0x123456789abcdefU;
  static attend_score cap_step = ATTEND_INIT(attend_score), bias_step = ATTEND_INIT(attend_score),
                      paper_step = ATTEND_INIT(attend_score), slopes_step = ATTEND_INIT(attend_score);
  cap_step.kind = ATTEND_SOFT_CAP, cap_step.cap = cap;
  bias_step.kind = ATTEND_BIAS, bias_step.numbers = c_bias.get();
  paper_step.kind = ATTEND_ALIBI;
  slopes_step.kind = ATTEND_ALIBI, slopes_step.numbers = c_heads.get();
  static const attend_score* const steps[] = {&bias_step, &cap_step, &slopes_step, &paper_step};

  const auto at = [](attend_options& c) { c.anchor = ATTEND_LOWER_RIGHT; };
  const auto at_cpp = [](options& how) { how.query_offset = lower_right; };
  const option_case cases[] = {
      {"causal, lower right", [&](auto& c) { at(c), c.causal = 1; }, [&](auto& how) { at_cpp(how), how.causal = true; }},
      {"causal, upper left", [](auto& c) { c.anchor = ATTEND_UPPER_LEFT, c.causal = 1; },
       [](auto& how) { how.query_offset = upper_left, how.causal = true; }},
      {"causal, offset", [](auto& c) { c.query_offset.value = &one, c.causal = 1; },
       [](auto& how) { how.query_offset = 1, how.causal = true; }},
      {"causal, offsets", [](auto& c) { c.query_offset.values = c_batch.get(), c.causal = 1; },
       [](auto& how) { how.query_offset = per_batch, how.causal = true; }},
      {"window left", [&](auto& c) { at(c), c.window_left = &zero; }, [&](auto& how) { at_cpp(how), how.window.left = 0; }},
      {"window right", [&](auto& c) { at(c), c.window_right = &one; }, [&](auto& how) { at_cpp(how), how.window.right = 1; }},
      {"prefix", [&](auto& c) { at(c), c.causal = 1, c.prefix.value = &two; },
       [&](auto& how) { at_cpp(how), how.causal = true, how.prefix = 2; }},
      {"prefixes", [&](auto& c) { c.query_offset.value = &zero, c.causal = 1, c.prefix.values = c_batch.get(); },
       [&](auto& how) { how.query_offset = 0, how.causal = true, how.prefix = per_batch; }},
      {"segments", [](auto& c) { c.query_segments = c_ids_q.get(), c.key_segments = c_ids_k.get(); },
       [](auto& how) { how.query_segments = ids_q, how.key_segments = ids_k; }},
      {"key length", [](auto& c) { c.key_lengths.value = &two; }, [](auto& how) { how.key_lengths = 2; }},
      {"key lengths", [](auto& c) { c.key_lengths.values = c_batch.get(); }, [](auto& how) { how.key_lengths = per_batch; }},
      {"mask", [](auto& c) { c.mask = c_mask.get(); }, [](auto& how) { how.mask = mask; }},
      {"bias", [](auto& c) { c.bias = c_bias.get(); }, [](auto& how) { how.bias = bias_numbers; }},
      {"relative", [&](auto& c) { at(c), c.relative = c_table.get(); }, [&](auto& how) { at_cpp(how), how.relative = table; }},
      {"scale", [](auto& c) { c.scale = &half; }, [](auto& how) { how.scale = 0.5; }},
      {"softcap", [](auto& c) { c.softcap = &cap; }, [](auto& how) { how.softcap = 1.5; }},
      {"alibi", [&](auto& c) { at(c), c.alibi = 1; }, [&](auto& how) { at_cpp(how), how.alibi = true; }},
      {"slopes", [&](auto& c) { at(c), c.alibi_slopes = c_heads.get(); }, [&](auto& how) { at_cpp(how), how.alibi = by_head; }},
      {"sinks", [](auto& c) { c.sinks = c_heads.get(); }, [](auto& how) { how.sinks = by_head; }},
      {"score", [&](auto& c) { at(c), c.score = steps, c.score_count = 3; },
       [&](auto& how) { at_cpp(how), how.score = {attend::bias(bias_numbers), soft_cap(1.5), attend::alibi(by_head)}; }},
      {"score, paper's slopes", [&](auto& c) { at(c), c.score = steps + 3, c.score_count = 1; },
       [&](auto& how) { at_cpp(how), how.score = {attend::alibi()}; }},
      {"cosine", [](auto& c) { c.compatibility = ATTEND_COSINE; },
       [](auto& how) { how.compatibility = compatibility::cosine; }},
      {"l1", [](auto& c) { c.compatibility = ATTEND_L1; }, [](auto& how) { how.compatibility = compatibility::l1; }},
      {"none", [](auto& c) { c.compatibility = ATTEND_NONE, c.mask = c_mask.get(); },
       [](auto& how) { how.compatibility = compatibility::none, how.mask = mask; }},
      {"gaussian", [](auto& c) { c.compatibility = ATTEND_GAUSSIAN, c.sigma = &cap; },
       [](auto& how) { how.compatibility = gaussian(1.5); }},
      {"additive", [](auto& c) { c.compatibility = ATTEND_ADDITIVE, c.additive = c_w.get(); },
       [](auto& how) { how.compatibility = additive(w); }},
      {"mean", [](auto& c) { c.normalizer = ATTEND_MEAN; }, [](auto& how) { how.normalizer = normalizer::mean; }},
      {"sum", [](auto& c) { c.normalizer = ATTEND_SUM; }, [](auto& how) { how.normalizer = normalizer::sum; }},
      {"sigmoid", [](auto& c) { c.normalizer = ATTEND_SIGMOID; }, [](auto& how) { how.normalizer = normalizer::sigmoid; }},
      {"relu2", [](auto& c) { c.normalizer = ATTEND_RELU2; }, [](auto& how) { how.normalizer = normalizer::relu2; }},
      {"abs", [](auto& c) { c.normalizer = ATTEND_ABS; }, [](auto& how) { how.normalizer = normalizer::abs; }},
      {"dropout", [](auto& c) { c.dropout_p = 0.5, c.dropout_seed = &seed; },
       [](auto& how) { how.dropout = {.p = 0.5, .seed = seed}; }},
      {"threads", [](auto& c) { c.threads = 2, c.scale = &half; }, [](auto& how) { how.threads = 2, how.scale = 0.5; }},
  };
  const auto plain = compute<float>(call().q, call().k, call().v);
  for (const option_case& one_case : cases) {
    c_call c;
    one_case.c(c.how);
    c.results.weights = nullptr;
    options how;
    one_case.cpp(how);
    if (how.normalizer != normalizer::softmax) c.results.lse = nullptr;
    ASSERT_EQ(c.run(), ATTEND_OK) << one_case.name << ": " << attend_last_error();
    const auto cpp = compute<float>(c.cpp.q, c.cpp.k, c.cpp.v, how);
    EXPECT_TRUE(same_bits(c.cpp.out, cpp.out)) << one_case.name;
    EXPECT_FALSE(same_bits(c.cpp.out, plain.out)) << one_case.name << " changes nothing";
  }

  // A grid, whose queries are its keys; rows of 3, and its border.
  const auto x = normal<float>({2, 9, 4}, 6);
  static const std::int64_t grid[] = {3, 3}, wide[] = {1, 3}, steps_of_one[] = {1, 1}, steps_of_two[] = {2, 2};
  for (const auto* dilation : {static_cast<const std::int64_t*>(nullptr), steps_of_one, steps_of_two}) {
    for (const int edge : {ATTEND_CLIP, ATTEND_SHIFT}) {
      tensor<float> y({2, 9, 4});
      const c_array in(x), out{array_view(y)};
      attend_results results = ATTEND_INIT(attend_results);
      attend_options how = ATTEND_INIT(attend_options);
      results.out = out.get();
      const bool fits = !(dilation == steps_of_two && edge == ATTEND_SHIFT);
      how.grid = grid, how.neighborhood = wide, how.dilation = dilation, how.border = edge;
      ASSERT_EQ(attend_attention(in.get(), in.get(), in.get(), &results, &how), fits ? ATTEND_OK : ATTEND_ERROR_ARGUMENT);
      if (!fits) continue;
      const neighborhood near{
          .kernel = {1, 3}, .dilation = dilation == steps_of_two ? 2 : 1, .border = static_cast<border>(edge)};
      EXPECT_TRUE(same_bits(y, attention(x, x, x, {.grid = 3, .neighborhood = near})));
    }
  }

  // The layout, and a dimension that tells it.
  const auto tokens = normal<float>({1, 5, 3, 8}, 7);
  tensor<float> y({1, 5, 3, 8});
  const c_array in(tokens), out{array_view(y)};
  attend_results results = ATTEND_INIT(attend_results);
  attend_options how = ATTEND_INIT(attend_options);
  results.out = out.get(), how.layout = ATTEND_BLHD, how.reproducible = 1;
  ASSERT_EQ(attend_attention(in.get(), in.get(), in.get(), &results, &how), ATTEND_OK) << attend_last_error();
  EXPECT_TRUE(same_bits(y, attention(tokens, tokens, tokens, {.layout = layout::blhd, .reproducible = true})));
}

TEST(the_c_abi, gives_scores_of_every_stage) {
  const std::pair<int, score_stage> stages[] = {
      {ATTEND_BIASED, score_stage::biased}, {ATTEND_SCALED, score_stage::scaled}, {ATTEND_CAPPED, score_stage::capped}};
  const double cap = 1.5;
  for (const auto& [number, stage] : stages) {
    c_call c;
    tensor<float> mine({2, 4, 3, 5}), same({2, 4, 3, 5});
    const c_array scores{array_view(mine)};
    c.results.scores = scores.get(), c.results.stage = number, c.how.softcap = &cap, c.how.causal = 1,
    c.how.anchor = ATTEND_UPPER_LEFT;
    ASSERT_EQ(c.run(), ATTEND_OK) << attend_last_error();
    attention(c.cpp.q, c.cpp.k, c.cpp.v, outputs{.scores = same, .stage = stage},
              {.causal = true, .query_offset = upper_left, .softcap = 1.5});
    EXPECT_TRUE(same_bits(mine, same)) << number;
  }
}

TEST(the_c_abi, runs_on_the_callers_executor_and_asks_for_interrupts) {
  struct seen {
    int calls = 0, most = 0, asked = 0;
    std::int64_t items = 0;
    bool stop = false;
  } seen;
  c_call c;
  attend_executor mine = ATTEND_INIT(attend_executor);
  mine.context = &seen;
  mine.parallel_for = [](void* context, std::int64_t count, std::int32_t most, void (*body)(void*, std::int64_t), void* work) {
    auto& saw = *static_cast<struct seen*>(context);
    saw.calls += 1, saw.most = most, saw.items += count;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // longer than the library goes without asking
    for (std::int64_t i = count - 1; i >= 0; --i) body(work, i);
  };
  c.how.executor = &mine, c.how.threads = 3;
  c.how.interrupt = [](void* context) -> std::int32_t {
    return ++static_cast<struct seen*>(context)->asked, static_cast<struct seen*>(context)->stop;
  };
  c.how.interrupt_context = &seen;
  ASSERT_EQ(c.run(), ATTEND_OK) << attend_last_error();
  EXPECT_TRUE(seen.calls > 0 && seen.most == 3 && seen.items > 0 && seen.asked > 0);
  EXPECT_TRUE(same_bits(c.cpp.out, compute<float>(c.cpp.q, c.cpp.k, c.cpp.v).out));
  seen.stop = true;
  EXPECT_EQ(c.run(), ATTEND_INTERRUPTED);
  EXPECT_NE(std::string(attend_last_error()).find("interrupted"), std::string::npos);
}

TEST(the_c_abi, keeps_the_last_error_per_thread) {
  const std::string before = (attend_set_num_threads(-3), attend_last_error());
  EXPECT_NE(before.find("-3"), std::string::npos);
  std::string fresh = "?", own;
  std::thread([&] {
    fresh = attend_last_error();
    attend_set_num_threads(-4);
    own = attend_last_error();
  }).join();
  EXPECT_EQ(fresh, "");
  EXPECT_NE(own.find("-4"), std::string::npos);
  EXPECT_EQ(attend_last_error(), before);
  const int threads = attend_num_threads();
  EXPECT_EQ(attend_set_num_threads(threads), ATTEND_OK);
  EXPECT_EQ(attend_last_error(), before) << "a call that succeeds leaves it";
}

TEST(the_c_abi, merges_turns_and_packs_as_cpp_does) {
  const auto y = normal<float>({2, 3, 5}, 1), z = normal<float>({2, 3, 5}, 2), ly = normal<float>({2, 3}, 3),
             lz = normal<float>({2, 3}, 4);
  tensor<float> out({2, 3, 5}), lse({2, 3});
  const c_array c_y(y), c_z(z), c_ly(ly), c_lz(lz), c_out{array_view(out)}, c_lse{array_view(lse)};
  const attend_array *const outs[] = {c_y.get(), c_z.get()}, *const lses[] = {c_ly.get(), c_lz.get()};
  attend_results results = ATTEND_INIT(attend_results);
  results.out = c_out.get(), results.lse = c_lse.get();
  ASSERT_EQ(attend_merge(outs, lses, 2, &results), ATTEND_OK) << attend_last_error();
  const std::vector<tensor_view<const float>> parts = {y.view(), z.view()}, logs = {ly.view(), lz.view()};
  const auto all = merge(parts, logs);
  EXPECT_TRUE(same_bits(out, all.out) && same_bits(lse, all.lse));

  const auto x = normal<float>({3, 4, 10}, 5), cos = normal<float>({9, 3}, 6), sin = normal<float>({9, 3}, 7);
  tensor<float> turned({3, 4, 10});
  tensor<std::int64_t> positions({3});
  positions(0) = 4, positions(2) = 8;
  const c_array c_x(x), c_turned{array_view(turned)}, c_positions(positions), c_cos(cos), c_sin(sin);
  const attend_integers at = {nullptr, c_positions.get()};
  attend_rotary how = ATTEND_INIT(attend_rotary);
  how.dimensions = 6, how.layout = ATTEND_BLHD, how.interleaved = 1, how.threads = 1;
  ASSERT_EQ(attend_rotary_embedding(c_x.get(), c_turned.get(), &at, &how), ATTEND_OK) << attend_last_error();
  rotary same{.interleaved = true, .dimensions = 6, .layout = layout::blhd};
  EXPECT_TRUE(same_bits(turned, rotary_embedding(x, positions, same)));
  const double base = 50;
  how.base = &base, same.base = 50;
  ASSERT_EQ(attend_rotary_embedding(c_x.get(), c_turned.get(), &at, &how), ATTEND_OK);
  EXPECT_TRUE(same_bits(turned, rotary_embedding(x, positions, same)));
  how.base = nullptr, how.cos = c_cos.get(), how.sin = c_sin.get(), same.base = 10000, same.cos = cos, same.sin = sin;
  ASSERT_EQ(attend_rotary_embedding(c_x.get(), c_turned.get(), &at, &how), ATTEND_OK);
  EXPECT_TRUE(same_bits(turned, rotary_embedding(x, positions, same)));
  const std::int64_t first = 0;
  const attend_integers both = {&first, c_positions.get()};
  EXPECT_EQ(attend_rotary_embedding(c_x.get(), c_turned.get(), &both, &how), ATTEND_ERROR_ARGUMENT);

  const auto q = normal<float>({7, 4, 8}, 8), k = normal<float>({9, 2, 8}, 9);
  tensor<std::int64_t> at_q({3}), at_k({3});
  at_q(1) = 2, at_q(2) = 7, at_k(1) = 6, at_k(2) = 9;
  tensor<float> packed({7, 4, 8});
  const c_array c_q(q), c_k(k), c_at_q(at_q), c_at_k(at_k), c_packed{array_view(packed)};
  attend_results of_packed = ATTEND_INIT(attend_results);
  of_packed.out = c_packed.get();
  attend_options causal = ATTEND_INIT(attend_options);
  causal.causal = 1;
  ASSERT_EQ(attend_attention_varlen(c_q.get(), c_k.get(), c_k.get(), c_at_q.get(), c_at_k.get(), &of_packed, &causal),
            ATTEND_OK)
      << attend_last_error();
  EXPECT_TRUE(same_bits(packed, attention_varlen(q, k, k, at_q, at_k, {.causal = true})));
  std::int64_t shape[8];
  std::int32_t rank;
  ASSERT_EQ(attend_output_shape_varlen(c_q.get(), c_k.get(), c_k.get(), c_at_q.get(), c_at_k.get(), &causal, shape, &rank),
            ATTEND_OK);
  EXPECT_TRUE(rank == 3 && shape[0] == 7 && shape[1] == 4 && shape[2] == 8);
}

TEST(the_c_abi, knows_what_cpp_knows) {
  EXPECT_EQ(attend_version(), version());
  EXPECT_EQ(attend_num_threads(), num_threads());
  const problem_shape shapes{dtype::f64, {1, 8, 300, 64}, {1, 2, 700, 64}, {1, 2, 700, 32}};
  const tensor_view<const double> q(nullptr, shapes.q), k(nullptr, shapes.k), v(nullptr, shapes.v);
  const c_array c_q(q), c_k(k), c_v(v);
  attend_options how = ATTEND_INIT(attend_options);
  how.causal = 1, how.anchor = ATTEND_LOWER_RIGHT;
  attend_facts facts = ATTEND_INIT(attend_facts);
  ASSERT_EQ(attend_plan_facts(c_q.get(), c_k.get(), c_v.get(), &how, &facts), ATTEND_OK) << attend_last_error();
  const plan p = make_plan(shapes, {.causal = true, .query_offset = lower_right});
  const plan_facts same = p.facts();
  EXPECT_EQ(facts.operation, same.operation);
  EXPECT_EQ(facts.kernel, same.kernel);
  EXPECT_EQ(facts.reason, same.reason);
  EXPECT_EQ(facts.isa, name_of(same.set));
  EXPECT_EQ(facts.dtype, ATTEND_FLOAT64);
  const std::int64_t in_c[] = {facts.batch,
                               facts.heads,
                               facts.kv_heads,
                               facts.queries,
                               facts.keys,
                               facts.width,
                               facts.value_width,
                               facts.lanes,
                               facts.tile_keys,
                               facts.chunk_keys,
                               facts.lane_blocks,
                               facts.work_items,
                               facts.tiles_skipped,
                               facts.tiles_full,
                               facts.tiles_partial,
                               facts.scratch_bytes_per_thread,
                               facts.shared_scratch_bytes,
                               facts.split_keys,
                               facts.compatibility,
                               facts.normalizer};
  const std::int64_t in_cpp[] = {same.batch,
                                 same.heads,
                                 same.kv_heads,
                                 same.queries,
                                 same.keys,
                                 same.width,
                                 same.value_width,
                                 same.lanes,
                                 same.tile_keys,
                                 same.chunk_keys,
                                 same.lane_blocks,
                                 same.work_items,
                                 same.tiles_skipped,
                                 same.tiles_full,
                                 same.tiles_partial,
                                 same.scratch_bytes_per_thread,
                                 same.shared_scratch_bytes,
                                 same.split_keys,
                                 0,
                                 0};
  for (std::size_t n = 0; n < std::size(in_c); ++n) EXPECT_EQ(in_c[n], in_cpp[n]) << n;
  EXPECT_EQ(facts.flops, same.flops);
  EXPECT_EQ(facts.bytes, same.bytes);
  std::size_t length = 0;
  ASSERT_EQ(attend_plan_describe(c_q.get(), c_k.get(), c_v.get(), &how, nullptr, 0, &length), ATTEND_OK);
  std::string text(length + 1, '?');
  ASSERT_EQ(attend_plan_describe(c_q.get(), c_k.get(), c_v.get(), &how, text.data(), text.size(), &length), ATTEND_OK);
  EXPECT_EQ(text.c_str(), p.describe());
  const c_array mixed(tensor_view<const float>(nullptr, shapes.k));
  EXPECT_EQ(attend_plan_facts(c_q.get(), mixed.get(), c_v.get(), &how, &facts), ATTEND_ERROR_TYPE);
}

}  // namespace
}  // namespace attend::test
