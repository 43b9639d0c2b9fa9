// What is refused of segments, score functions, sinks, dropout and scores: who, what was expected, what came; nothing written.
#include <gtest/gtest.h>

#include <vector>

#include "support/refusal.hpp"

namespace attend::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(refused, are_segments_of_one_side_alone) {
  static const tensor<std::int64_t> of_q({3}), of_k({5});
  expect_refusal("key_segments", {"none"}, [](call& c) { c.how.query_segments = of_q; });
  expect_refusal("query_segments", {"none"}, [](call& c) { c.how.key_segments = of_k; });
}

TEST(refused, are_segments_of_another_shape_or_dtype) {
  static const tensor<std::int64_t> of_q({3}), of_k({5});
  static const std::vector<extents> wrong = {{5}, {4}, {1, 3}, {2, 1}, {3, 3}, {2, 4, 3}, {2, 4}, {}, {0}};
  for (const extents& shape : wrong) {
    const tensor<std::int64_t> ids(shape);
    expect_refusal("query_segments", {"(3,)", "(2, 3)", shape.to_string()},
                   [&](call& c) { c.how.query_segments = ids, c.how.key_segments = of_k; });
  }
  static const tensor<std::int64_t> each_k({2, 4}), of_queries({2, 3});
  expect_refusal("key_segments", {"(5,)", "(2, 5)", "(2, 4)"},
                 [](call& c) { c.how.query_segments = of_q, c.how.key_segments = each_k; });
  expect_refusal("key_segments", {"(5,)", "(2, 5)", "(2, 3)"},
                 [](call& c) { c.how.query_segments = of_queries, c.how.key_segments = of_queries; });
  static const tensor<float> numbers({3});
  static const tensor<bool> booleans({5});
  expect_refusal(
      "query_segments", {"int64", "float32"}, [](call& c) { c.how.query_segments = numbers, c.how.key_segments = of_k; },
      type_fault);
  expect_refusal(
      "key_segments", {"int64", "bool"}, [](call& c) { c.how.query_segments = of_q, c.how.key_segments = booleans; },
      type_fault);
  expect_refusal("query_segments", {"null"}, [](call& c) {
    c.how.query_segments = tensor_view<const std::int64_t>(nullptr, {3}), c.how.key_segments = of_k;
  });
  expect_refusal("key_segments", {"2^63"}, [](call& c) {
    c.how.query_segments = of_q;
    c.how.key_segments = tensor_view<const std::int64_t>(of_k.data(), {5}, {std::int64_t{1} << 61});
  });
}

TEST(refused, are_soft_caps_that_are_not_above_0) {
  for (const double cap : {0.0, -0.0, -2.0, infinity, -infinity, nan}) {
    expect_refusal("softcap", {"finite", "above 0"}, [&](call& c) { c.how.softcap = cap; });
    expect_refusal("score", {"finite", "above 0"}, [&](call& c) { c.how.score = {soft_cap(1), soft_cap(cap)}; });
  }
}

TEST(refused, are_slopes_that_do_not_fit) {
  static const std::vector<extents> wrong = {{3}, {2}, {1}, {4, 1}, {1, 4}, {}};
  for (const extents& shape : wrong) {
    const tensor<float> slopes(shape);
    expect_refusal("alibi", {"(4,)", shape.to_string()}, [&](call& c) { c.how.query_offset = 0, c.how.alibi = slopes; });
    expect_refusal("score", {"(4,)", shape.to_string()},
                   [&](call& c) { c.how.query_offset = 0, c.how.score = {alibi(slopes)}; });
  }
  static const tensor<double> doubles({4});
  static const tensor<std::int64_t> integers({4});
  expect_refusal("alibi", {"float32", "float64"}, [](call& c) { c.how.query_offset = 0, c.how.alibi = doubles; }, type_fault);
  expect_refusal("alibi", {"float32", "int64"}, [](call& c) { c.how.query_offset = 0, c.how.alibi = integers; }, type_fault);
  expect_refusal(
      "score", {"float32", "float64"}, [](call& c) { c.how.query_offset = 0, c.how.score = {alibi(doubles)}; }, type_fault);
  expect_refusal("alibi", {"null"},
                 [](call& c) { c.how.query_offset = 0, c.how.alibi = tensor_view<const float>(nullptr, {4}); });
}

TEST(refused, is_alibi_without_an_anchor_where_the_lengths_differ) {
  const std::vector<std::string> choices = {"upper_left", "lower_right", "3", "5"};
  expect_refusal("query_offset", choices, [](call& c) { c.how.alibi = true; });
  expect_refusal("query_offset", choices, [](call& c) { c.how.score = {alibi()}; });
  const auto square = make_inputs<float>({.L = 4, .S = 4, .E = 2, .Ev = 2});
  EXPECT_FALSE(check(square.q, square.k, square.v, outputs{}, {.alibi = true}));
}

TEST(refused, is_alibi_in_two_places) {
  expect_refusal("alibi", {}, [](call& c) { c.how.query_offset = 0, c.how.alibi = true, c.how.score = {alibi()}; });
  expect_refusal("score", {}, [](call& c) { c.how.query_offset = 0, c.how.score = {alibi(), soft_cap(1), alibi()}; });
  expect_refusal("score", {}, [](call& c) { c.how.query_offset = 0, c.how.score = {alibi(false)}; });
}

TEST(refused, are_biases_of_a_list_that_do_not_fit) {
  static const std::vector<extents> wrong = {{6}, {4, 5}, {3, 3, 5}, {1, 2, 4, 3, 5}, {0}};
  for (const extents& shape : wrong) {
    const tensor<float> numbers(shape);
    expect_refusal("score", {"(2, 4, 3, 5)", shape.to_string()}, [&](call& c) { c.how.score = {attend::bias(numbers)}; });
  }
  static const tensor<double> doubles({5});
  static const tensor<bool> booleans({5});
  expect_refusal("score", {"float32", "float64"}, [](call& c) { c.how.score = {attend::bias(doubles)}; }, type_fault);
  expect_refusal("score", {"float32", "bool"}, [](call& c) { c.how.score = {attend::bias(booleans)}; }, type_fault);
  expect_refusal("score", {"none"}, [](call& c) { c.how.score = {attend::bias(array_view())}; }, type_fault);
  expect_refusal("score", {"null"}, [](call& c) { c.how.score = {attend::bias(tensor_view<const float>(nullptr, {5}))}; });
  expect_refusal("score", {"77"}, [](call& c) {
    score_step step;
    step.what = static_cast<score_step::kind>(77);
    c.how.score = {step};
  });
}

TEST(refused, are_lists_of_more_score_functions_than_they_hold) {
  score_list list;
  for (int n = 0; n < score_list::max_size; ++n) list.push_back(soft_cap(1));
  try {
    list.push_back(soft_cap(1));
    ADD_FAILURE() << "expected argument_error";
  } catch (const argument_error& error) {
    EXPECT_EQ(error.argument(), "score");
    EXPECT_NE(std::string(error.what()).find("at most 8"), std::string::npos) << error.what();
  }
  EXPECT_EQ(list.size(), 8) << "nothing was added";
  const score_step one = soft_cap(1);
  EXPECT_THROW((score_list{one, one, one, one, one, one, one, one, one}), argument_error);
}

TEST(refused, are_sinks_that_do_not_fit) {
  static const std::vector<extents> wrong = {{3}, {2}, {1}, {4, 1}, {2, 4}, {}};
  for (const extents& shape : wrong) {
    const tensor<float> sinks(shape);
    expect_refusal("sinks", {"(4,)", shape.to_string()}, [&](call& c) { c.how.sinks = sinks; });
  }
  static const tensor<double> doubles({4});
  static const tensor<std::int64_t> integers({4});
  static const tensor<float> right_ones({4});
  expect_refusal("sinks", {"float32", "float64"}, [](call& c) { c.how.sinks = doubles; }, type_fault);
  expect_refusal("sinks", {"float32", "int64"}, [](call& c) { c.how.sinks = integers; }, type_fault);
  expect_refusal("sinks", {"null"}, [](call& c) { c.how.sinks = tensor_view<const float>(nullptr, {4}); });
  for (const normalizer z : {normalizer::mean, normalizer::sum, normalizer::sigmoid, normalizer::relu2, normalizer::abs}) {
    expect_refusal("sinks", {"softmax", std::string(name_of(z))},
                   [&](call& c) { c.how.sinks = right_ones, c.how.normalizer = z, c.results.lse = {}; });
  }
}

TEST(refused, are_probabilities_that_are_none) {
  for (const double p : {-1e-9, 1.0000001, 2.0, -infinity, infinity, nan})
    expect_refusal("dropout_p", {"0 to 1"}, [&](call& c) { c.how.dropout = {.p = p, .seed = 1}; });
  for (const double p : {0.0, 1e-300, 1.0}) {
    call c;
    c.how.dropout = {.p = p, .seed = 1};
    EXPECT_EQ(check(c.q_view, c.k_view, c.v_view, c.results, c.how), std::nullopt) << p;
  }
}

TEST(refused, are_scores_of_another_shape_dtype_or_stage) {
  static tensor<float> rows({2, 4, 3, 4}), right_ones({2, 4, 3, 5}, 7.0f);
  static tensor<double> doubles({2, 4, 3, 5});
  expect_refusal("scores", {"(2, 4, 3, 5)", "(2, 4, 3, 4)"}, [](call& c) { c.results.scores = rows; });
  expect_refusal("scores", {"float32", "float64"}, [](call& c) { c.results.scores = doubles; }, type_fault);
  expect_refusal("scores", {"null"}, [](call& c) { c.results.scores = tensor_view<float>(nullptr, {2, 4, 3, 5}); });
  expect_refusal("scores", {"place"},
                 [](call& c) { c.results.scores = tensor_view<float>(right_ones.data(), {2, 4, 3, 5}, {60, 15, 4, 1}); });
  expect_refusal("stage", {"scaled", "capped", "biased", "9"},
                 [](call& c) { c.results.scores = right_ones, c.results.stage = static_cast<score_stage>(9); });
  EXPECT_TRUE(untouched(right_ones));
}

TEST(refused, are_results_that_share_memory_with_what_scores_are_made_of) {
  const auto at = [](const tensor<float>& x, const extents& shape, std::int64_t first = 0) {
    return tensor_view<const float>(x.data() + first, shape);
  };
  expect_refusal("out", {"sinks"}, [&](call& c) { c.how.sinks = at(c.out, {4}, 100); });
  expect_refusal("lse", {"alibi"}, [&](call& c) { c.how.query_offset = 0, c.how.alibi = at(c.lse, {4}, 20); });
  expect_refusal("weights", {"score"}, [&](call& c) { c.how.score = {attend::bias(at(c.weights, {3, 5}, 7))}; });
  expect_refusal("out", {"score"}, [&](call& c) { c.how.query_offset = 0, c.how.score = {alibi(at(c.out, {4}, 3))}; });
  expect_refusal("out", {"query_segments"}, [](call& c) {
    static const tensor<std::int64_t> of_k({5});
    const auto* ids = reinterpret_cast<const std::int64_t*>(c.out.data());
    c.how.query_segments = tensor_view<const std::int64_t>(ids, {3}), c.how.key_segments = of_k;
  });
  expect_refusal("weights", {"key_segments"}, [](call& c) {
    static const tensor<std::int64_t> of_q({3});
    const auto* ids = reinterpret_cast<const std::int64_t*>(c.weights.data());
    c.how.query_segments = of_q, c.how.key_segments = tensor_view<const std::int64_t>(ids, {5});
  });
  expect_refusal("scores", {"weights"}, [](call& c) { c.results.scores = c.weights; });
  expect_refusal("scores", {"q"}, [](call& c) {
    static tensor<float> both({2, 4, 3, 8});
    c.q_view = both, c.results.scores = tensor_view<float>(both.data(), {2, 4, 3, 5});
  });
}

TEST(refused, come_before_any_work_in_the_reference_and_in_plans_too) {
  call c;
  const tensor<float> three({3});
  for (const options& how : {options{.softcap = -1}, options{.sinks = three}, options{.score = {soft_cap(0)}},
                             options{.dropout = {.p = 2}}, options{.alibi = true}, options{.query_segments = three}}) {
    EXPECT_THROW(reference::attention(c.q_view, c.k_view, c.v_view, how), argument_error);
    EXPECT_THROW(make_plan({.q = c.q.shape(), .k = c.k.shape(), .v = c.v.shape()}, how), argument_error);
  }
}

}  // namespace
}  // namespace attend::test
