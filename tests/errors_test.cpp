// Each precondition is refused with the argument's name, what was expected and what came, and nothing is written.
#include <gtest/gtest.h>

#include <vector>

#include "support/refusal.hpp"

namespace attend::test {
namespace {

TEST(a_right_call, is_not_refused) {
  call c;
  EXPECT_EQ(check(c.q_view, c.k_view, c.v_view, c.results, c.how), std::nullopt);
  attention(c.q_view, c.k_view, c.v_view, c.results, c.how);
  EXPECT_FALSE(untouched(c.out));
}

TEST(refused, are_missing_inputs) {
  expect_refusal("q", {"array", "none"}, [](call& c) { c.q_view = {}; });
  expect_refusal("k", {"array", "none"}, [](call& c) { c.k_view = {}; });
  expect_refusal("v", {"array", "none"}, [](call& c) { c.v_view = {}; });
}

TEST(refused, are_null_pointers_with_elements) {
  expect_refusal("q", {}, [](call& c) { c.q_view.data = nullptr; });
  expect_refusal("k", {}, [](call& c) { c.k_view.data = nullptr; });
  expect_refusal("v", {}, [](call& c) { c.v_view.data = nullptr; });
  expect_refusal("out", {}, [](call& c) { c.results.out.data = nullptr; });
  expect_refusal("lse", {}, [](call& c) { c.results.lse.data = nullptr; });
  expect_refusal("mask", {}, [](call& c) { c.how.mask = tensor_view<const bool>(nullptr, {3, 5}); });
  expect_refusal("bias", {}, [](call& c) { c.how.bias = tensor_view<const float>(nullptr, {3, 5}); });
  expect_refusal("key_lengths", {}, [](call& c) { c.how.key_lengths = tensor_view<const std::int64_t>(nullptr, {2}); });
}

TEST(refused, are_other_dtypes) {
  static const tensor<std::int64_t> integers({2, 4, 3, 8});
  static const tensor<bool> booleans({2, 2, 5, 8});
  static const tensor<double> doubles({2, 2, 5, 8}), values({2, 2, 5, 6});
  expect_refusal("q", {"float32", "int64"}, [](call& c) { c.q_view = integers; }, type_fault);
  expect_refusal("k", {"float32", "bool"}, [](call& c) { c.k_view = booleans; }, type_fault);
  expect_refusal("k", {"float32", "float64"}, [](call& c) { c.k_view = doubles; }, type_fault);
  expect_refusal("v", {"float32", "float64"}, [](call& c) { c.v_view = values; }, type_fault);
}

TEST(refused, are_ranks_below_two_and_mixed_with_two) {
  static const tensor<float> row({8}), matrix({5, 8}), number{extents{}};
  expect_refusal("q", {"rank", "(8,)"}, [](call& c) { c.q_view = row; });
  expect_refusal("k", {"rank", "()"}, [](call& c) { c.k_view = number; });
  expect_refusal("q, k, v", {"rank 2", "(5, 8)"}, [](call& c) { c.k_view = matrix; });
  EXPECT_THROW((extents{1, 1, 1, 1, 1, 1, 1, 1, 1}), argument_error);
}

TEST(refused, are_shapes_that_do_not_fit_each_other) {
  static const tensor<float> wide({2, 2, 5, 9}), three_heads({2, 3, 5, 8}), three_values({2, 3, 5, 6}), longer({2, 2, 6, 6}),
      shorter({2, 2, 4, 6}), no_heads({2, 0, 5, 8}), no_values({2, 0, 5, 6}), batch_k({3, 2, 5, 8}), batch_v({3, 2, 5, 6}),
      empty({2, 2, 0, 6});
  expect_refusal("k", {"width", "8", "9"}, [](call& c) { c.k_view = wide; });
  expect_refusal("v", {"keys", "5", "6"}, [](call& c) { c.v_view = longer; });
  expect_refusal("v", {"keys", "5", "4"}, [](call& c) { c.v_view = shorter; });
  expect_refusal("v", {"keys", "5", "0"}, [](call& c) { c.v_view = empty; });
  expect_refusal("v", {"heads", "2", "3"}, [](call& c) { c.v_view = three_values; });
  expect_refusal("k", {"heads", "4", "3"}, [](call& c) { c.k_view = three_heads, c.v_view = three_values; });
  expect_refusal("k", {"heads", "4", "0"}, [](call& c) { c.k_view = no_heads, c.v_view = no_values; });
  expect_refusal("k", {"batch", "(3, 2, 5, 8)"}, [](call& c) { c.k_view = batch_k; });
  expect_refusal("v", {"batch", "(3, 2, 5, 6)"}, [](call& c) { c.v_view = batch_v; });
}

TEST(refused, are_spans_and_sizes_beyond_63_bits) {
  constexpr std::int64_t huge = std::int64_t{1} << 61;
  expect_refusal("q", {"2^63"}, [](call& c) { c.q_view.strides[0] = huge; });
  expect_refusal("k", {"2^63"}, [](call& c) { c.k_view.strides[2] = -huge; });
  expect_refusal("v", {"2^63"}, [](call& c) { c.v_view.strides[0] = c.v_view.strides[1] = std::int64_t{1} << 60; });
  expect_refusal("out", {"2^63"}, [](call& c) { c.results.out.strides[0] = huge; });
  expect_refusal("mask", {"2^63"}, [](call& c) {
    static const bool truth = true;
    c.how.mask = tensor_view<const bool>(&truth, {3, 5}, {std::int64_t{1} << 62, 1});
  });
  EXPECT_THROW((extents{std::int64_t{1} << 40, std::int64_t{1} << 40}.count()), argument_error);
  EXPECT_THROW((extents{-1, 2}.count()), argument_error);
  EXPECT_THROW((tensor<float>({std::int64_t{1} << 40, std::int64_t{1} << 40})), argument_error);
  float one = 1;
  const tensor_view<const float> q(&one, {std::int64_t{1} << 58, 8}, {0, 0}), k(&one, {5, 8}, {0, 0});
  EXPECT_TRUE(check(q, k, k, outputs{}, {})) << "2^61 elements of the query";
  const tensor_view<const float> wide(&one, {5, std::int64_t{1} << 57}, {0, 0}), rows(&one, {64, 8}, {0, 0});
  EXPECT_THROW(output_shape(rows, k, wide), argument_error) << "2^63 elements of the output";
  const tensor_view<const float> many(&one, {std::int64_t{1} << 31, 1, 1, 8}, {0, 0, 0, 0});
  const tensor_view<const float> more(&one, {std::int64_t{1} << 31, 1, 1, 1, 8}, {0, 0, 0, 0, 0});
  EXPECT_TRUE(check(more, many, many, outputs{}, {})) << "2^62 sequences";
}

TEST(refused, are_masks_that_are_not_booleans_and_biases_that_are_not_numbers) {
  static const tensor<float> numbers({3, 5});
  static const tensor<std::int64_t> integers({3, 5});
  static const tensor<bool> booleans({3, 5});
  static const tensor<double> doubles({3, 5});
  expect_refusal("mask", {"booleans", "float32"}, [](call& c) { c.how.mask = numbers; }, type_fault);
  expect_refusal("mask", {"booleans", "int64"}, [](call& c) { c.how.mask = integers; }, type_fault);
  expect_refusal("bias", {"float32", "bool"}, [](call& c) { c.how.bias = booleans; }, type_fault);
  expect_refusal("bias", {"float32", "int64"}, [](call& c) { c.how.bias = integers; }, type_fault);
  expect_refusal("bias", {"float32", "float64"}, [](call& c) { c.how.bias = doubles; }, type_fault);
}

TEST(refused, are_masks_that_do_not_broadcast_or_would_enlarge) {
  static const std::vector<extents> wrong = {{6},          {4, 5},          {3, 4},          {3, 3, 5},
                                             {3, 4, 3, 5}, {2, 2, 4, 3, 5}, {1, 2, 4, 3, 5}, {0}};
  for (const extents& shape : wrong) {
    const tensor<bool> mask(shape);
    const tensor<float> bias(shape);
    expect_refusal("mask", {"(2, 4, 3, 5)", shape.to_string()}, [&](call& c) { c.how.mask = mask; });
    expect_refusal("bias", {"(2, 4, 3, 5)", shape.to_string()}, [&](call& c) { c.how.bias = bias; });
  }
}

TEST(refused, are_numbers_out_of_range) {
  for (const double scale : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()})
    expect_refusal("scale", {"finite"}, [&](call& c) { c.how.scale = scale; });
  expect_refusal("window", {"left", "-1"}, [](call& c) { c.how.window.left = -1, c.how.query_offset = 0; });
  expect_refusal("window", {"right", "-2"}, [](call& c) { c.how.window.right = -2, c.how.query_offset = 0; });
  expect_refusal("threads", {"-1"}, [](call& c) { c.how.threads = -1; });
  expect_refusal("key_lengths", {"0", "5", "6"}, [](call& c) { c.how.key_lengths = 6; });
  expect_refusal("key_lengths", {"-1"}, [](call& c) { c.how.key_lengths = -1; });
  expect_refusal("prefix", {"-1"}, [](call& c) { c.how.causal = true, c.how.query_offset = 0, c.how.prefix = -1; });
}

TEST(refused, are_arrays_per_batch_of_another_shape_or_range) {
  static const tensor<std::int64_t> three({3}), square({2, 2});
  static tensor<std::int64_t> bad({2});
  bad(1) = 9;
  expect_refusal("key_lengths", {"(2,)", "(3,)"}, [](call& c) { c.how.key_lengths = three; });
  expect_refusal("key_lengths", {"(2,)", "(2, 2)"}, [](call& c) { c.how.key_lengths = square; });
  expect_refusal("key_lengths", {"5", "9"}, [](call& c) { c.how.key_lengths = bad; });
  expect_refusal("query_offset", {"(2,)", "(3,)"}, [](call& c) { c.how.causal = true, c.how.query_offset = three; });
  expect_refusal("prefix", {"(2,)", "(3,)"},
                 [](call& c) { c.how.causal = true, c.how.query_offset = 0, c.how.prefix = three; });
}

TEST(refused, are_positions_without_an_anchor_where_the_lengths_differ) {
  const std::vector<std::string> choices = {"upper_left", "lower_right", "3", "5"};
  expect_refusal("query_offset", choices, [](call& c) { c.how.causal = true; });
  expect_refusal("query_offset", choices, [](call& c) { c.how.window = {1, {}}; });
  expect_refusal("query_offset", choices, [](call& c) { c.how.causal = true, c.how.prefix = 1; });
  const auto square = make_inputs<float>({.L = 4, .S = 4, .E = 2, .Ev = 2});
  EXPECT_FALSE(check(square.q, square.k, square.v, outputs{}, {.causal = true}));
}

TEST(refused, is_a_prefix_without_causal_or_window) {
  expect_refusal("prefix", {"causal", "window"}, [](call& c) { c.how.prefix = 2; });
}

TEST(refused, are_results_of_another_shape_or_dtype) {
  static tensor<float> longer({2, 4, 4, 6}), matrix({3, 6}), flat({2, 12}), rows({2, 4, 3, 4});
  static tensor<double> doubles({2, 4, 3, 6}), double_lse({2, 4, 3});
  expect_refusal("out", {"(2, 4, 3, 6)", "(2, 4, 4, 6)"}, [](call& c) { c.results.out = longer; });
  expect_refusal("out", {"(2, 4, 3, 6)", "(3, 6)"}, [](call& c) { c.results.out = matrix; });
  expect_refusal("out", {"float32", "float64"}, [](call& c) { c.results.out = doubles; }, type_fault);
  expect_refusal("lse", {"(2, 4, 3)", "(2, 12)"}, [](call& c) { c.results.lse = flat; });
  expect_refusal("lse", {"float32", "float64"}, [](call& c) { c.results.lse = double_lse; }, type_fault);
  expect_refusal("weights", {"(2, 4, 3, 5)", "(2, 4, 3, 4)"}, [](call& c) { c.results.weights = rows; });
}

TEST(refused, are_results_that_share_memory_with_an_input) {
  // One buffer of 40 rows of 8: q, k and v are rows 0-5, 10-15, 20-25.
  static tensor<float> rows = normal<float>({40, 8}, 1);
  const auto view = [](std::int64_t first, std::int64_t step = 8) {
    return tensor_view<float>(rows.data() + first * 8, {6, 8}, {step, 1});
  };
  const auto before = copy(rows);
  const std::vector<std::pair<tensor_view<float>, const char*>> shared = {
      {view(0), "q"},  {view(10), "k"},     {view(20), "v"},    {view(3), "q"},     {view(15), "k"},
      {view(19), "v"}, {view(25, -8), "v"}, {view(0, 16), "q"}, {view(17, 16), "v"}};
  for (const auto& [out, input] : shared) {
    const auto problem = check(view(0), view(10), view(20), outputs{.out = out}, {});
    ASSERT_TRUE(problem);
    EXPECT_EQ(problem->rfind("out: expected ", 0), 0u) << *problem;
    EXPECT_NE(problem->find(input), std::string::npos) << *problem;
    EXPECT_THROW(attention(view(0), view(10), view(20), outputs{.out = out}, {}), argument_error);
  }
  EXPECT_TRUE(same_bits(rows, before)) << "nothing is written";
  EXPECT_FALSE(check(view(0), view(10), view(20), outputs{.out = view(30)}, {}));
  // Columns of one wide matrix interleave without touching.
  tensor<float> wide({6, 32});
  const auto columns = [&](std::int64_t first) { return tensor_view<float>(wide.data() + first, {6, 8}, {32, 1}); };
  EXPECT_FALSE(check(columns(0), columns(8), columns(16), outputs{.out = columns(24)}, {}));
  EXPECT_TRUE(check(columns(0), columns(8), columns(16), outputs{.out = columns(23)}, {}));
}

TEST(refused, are_results_that_share_memory_with_masks_or_each_other) {
  expect_refusal("out", {"bias"}, [](call& c) { c.how.bias = tensor_view<const float>(c.out.data() + 7, {3, 5}); });
  expect_refusal("out", {"mask"},
                 [](call& c) { c.how.mask = tensor_view<const bool>(reinterpret_cast<const bool*>(c.out.data()), {3, 5}); });
  expect_refusal("lse", {"out"}, [](call& c) { c.results.lse = tensor_view<float>(c.out.data(), {2, 4, 3}); });
  expect_refusal("weights", {"lse"}, [](call& c) {
    static float memory[120] = {};
    c.results.weights = tensor_view<float>(memory, {2, 4, 3, 5});
    c.results.lse = tensor_view<float>(memory + 100, {2, 2, 3}, {6, 3, 1});
    c.results.lse = tensor_view<float>(memory + 96, {2, 4, 3});
  });
}

TEST(refused, are_results_that_share_memory_with_integers_per_batch) {
  static tensor<std::int64_t> memory({100}, 1);
  const tensor_view<const std::int64_t> integers(memory.data() + 3, {2});
  const auto on_them = [](call& c) {
    c.how.causal = true, c.how.query_offset = 0;
    c.results.out = tensor_view<float>(reinterpret_cast<float*>(memory.data()), {2, 4, 3, 6});
  };
  expect_refusal("out", {"key_lengths"}, [&](call& c) { on_them(c), c.how.key_lengths = integers; });
  expect_refusal("out", {"query_offset"}, [&](call& c) { on_them(c), c.how.query_offset = integers; });
  expect_refusal("out", {"prefix"}, [&](call& c) { on_them(c), c.how.prefix = integers; });
  EXPECT_EQ(memory(50), 1) << "nothing is written";
}

TEST(refused, are_results_whose_elements_share_a_place) {
  expect_refusal("out", {"place"}, [](call& c) { c.results.out.strides[0] = 0; });
  expect_refusal("out", {"place"}, [](call& c) { c.results.out.strides[2] = 5; });
  expect_refusal("lse", {"place"}, [](call& c) { c.results.lse.strides[1] = 1; });
}

TEST(refused, come_before_any_work_in_the_reference_too) {
  call c;
  EXPECT_THROW(reference::attention(c.q_view, c.k_view, c.v_view, {.causal = true}), argument_error);
  EXPECT_THROW(reference::attention(c.q_view, c.k_view, c.q_view), argument_error);
  const auto truth = reference::attention(c.q_view, c.k_view, c.v_view);
  EXPECT_THROW(reference::error_bound(c.q_view, c.q_view, c.q_view, {}, truth), argument_error);
}

TEST(errors, are_invalid_arguments_with_a_name) {
  const argument_error error("scale", "a finite number", "inf");
  EXPECT_STREQ(error.what(), "scale: expected a finite number, got inf");
  EXPECT_EQ(error.argument(), "scale");
  EXPECT_EQ(error.fault(), argument_error::kind::value);
  EXPECT_NE(dynamic_cast<const std::invalid_argument*>(&error), nullptr);
  EXPECT_THROW(set_num_threads(0), argument_error);
  EXPECT_THROW(set_num_threads(-3), argument_error);
}

}  // namespace
}  // namespace attend::test
