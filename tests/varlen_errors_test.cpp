// What is refused of packed sequences: boundaries that are none, options that have no meaning there; with nothing written.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "support/refusal.hpp"
#include "support/varlen.hpp"

namespace attend::test {
namespace {

/// A right packed call of two sequences that a test makes wrong in one place.
struct packed_call {
  packed<float> x = make_packed<float>({{3, 5}, {4, 2}}, {.H = 4, .Hk = 2, .E = 8, .Ev = 6});
  tensor<float> out{{7, 4, 6}, 7.0f}, lse{{7, 4}, 7.0f};
  array_view q = x.q, k = x.k, v = x.v, at_q = x.at_q, at_k = x.at_k;
  outputs results{.out = out, .lse = lse};
  options how;
};

void expect_packed_refusal(const std::string& argument, const std::vector<std::string>& words,
                           const std::function<void(packed_call&)>& spoil,
                           argument_error::kind fault = argument_error::kind::value) {
  packed_call c;
  ASSERT_EQ(check_varlen(c.q, c.k, c.v, c.at_q, c.at_k, c.results, c.how), std::nullopt) << "the call is right so far";
  spoil(c);
  const std::optional<std::string> problem = check_varlen(c.q, c.k, c.v, c.at_q, c.at_k, c.results, c.how);
  ASSERT_TRUE(problem) << argument << ": check_varlen finds nothing";
  const std::string text =
      expect_argument_error(argument, words, fault, [&] { attention_varlen(c.q, c.k, c.v, c.at_q, c.at_k, c.results, c.how); });
  EXPECT_EQ(text, *problem) << "check_varlen says what attention_varlen throws";
  EXPECT_TRUE(untouched(c.out) && untouched(c.lse)) << argument << ": something was written";
}

tensor<std::int64_t> integers(std::initializer_list<std::int64_t> values) {
  tensor<std::int64_t> x({static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), x.begin());
  return x;
}

TEST(refused_of_packed_sequences, are_boundaries_that_do_not_divide_the_rows) {
  const auto with = [](std::initializer_list<std::int64_t> values, bool of_keys = false) {
    auto at = std::make_shared<tensor<std::int64_t>>(integers(values));
    return [at, of_keys](packed_call& c) { (of_keys ? c.at_k : c.at_q) = *at; };
  };
  expect_packed_refusal("cu_seqlens_q", {"from 0", "1"}, with({1, 3, 7}));
  expect_packed_refusal("cu_seqlens_q", {"from 0", "-1"}, with({-1, 3, 7}));
  expect_packed_refusal("cu_seqlens_q", {"fall", "8", "7"}, with({0, 8, 7}));
  expect_packed_refusal("cu_seqlens_q", {"7", "6"}, with({0, 3, 6}));
  expect_packed_refusal("cu_seqlens_q", {"7", "8"}, with({0, 3, 8}));
  expect_packed_refusal("cu_seqlens_k", {"7", "9"}, with({0, 5, 9}, true));
  expect_packed_refusal("cu_seqlens_k", {"fall"}, with({0, -5, 7}, true));
  expect_packed_refusal("cu_seqlens_k", {"fall"}, with({0, std::numeric_limits<std::int64_t>::max(), 7}, true));
  expect_packed_refusal("cu_seqlens_k", {"3", "4"}, with({0, 5, 6, 7}, true));
  expect_packed_refusal("cu_seqlens_k", {"3", "2"}, with({0, 7}, true));
}

TEST(refused_of_packed_sequences, are_boundaries_of_another_shape_or_dtype) {
  static const tensor<std::int64_t> matrix({1, 3}), nothing({0}), number{extents{}};
  static const tensor<float> numbers({3});
  static const tensor<bool> booleans({3});
  for (const array_view& at : {array_view(matrix), array_view(number)}) {
    expect_packed_refusal("cu_seqlens_q", {"n + 1", at.shape.to_string()}, [&](packed_call& c) { c.at_q = at; });
    expect_packed_refusal("cu_seqlens_k", {"n + 1", at.shape.to_string()}, [&](packed_call& c) { c.at_k = at; });
  }
  expect_packed_refusal("cu_seqlens_q", {"n + 1", "(0,)"}, [](packed_call& c) { c.at_q = c.at_k = nothing; });
  expect_packed_refusal("cu_seqlens_k", {"3", "0"}, [](packed_call& c) { c.at_k = nothing; });
  expect_packed_refusal("cu_seqlens_q", {"int64", "float32"}, [](packed_call& c) { c.at_q = numbers; }, type_fault);
  expect_packed_refusal("cu_seqlens_k", {"int64", "bool"}, [](packed_call& c) { c.at_k = booleans; }, type_fault);
  expect_packed_refusal("cu_seqlens_q", {"int64", "none"}, [](packed_call& c) { c.at_q = {}; }, type_fault);
  expect_packed_refusal("cu_seqlens_q", {"null"}, [](packed_call& c) { c.at_q.data = nullptr; });
  expect_packed_refusal("cu_seqlens_k", {"2^63"}, [](packed_call& c) { c.at_k.strides[0] = std::int64_t{1} << 61; });
}

TEST(refused_of_packed_sequences, are_inputs_that_do_not_fit) {
  static const tensor<float> matrix({7, 8}), batched({1, 7, 4, 8}), wide({7, 2, 9}), three({7, 3, 8}), three_v({7, 3, 6}),
      longer({8, 2, 6}), none({7, 0, 8}), none_v({7, 0, 6});
  static const tensor<double> doubles({7, 2, 8});
  expect_packed_refusal("q", {"(total, heads, width)", "(7, 8)"}, [](packed_call& c) { c.q = matrix; });
  expect_packed_refusal("q", {"(total, heads, width)", "(1, 7, 4, 8)"}, [](packed_call& c) { c.q = batched; });
  expect_packed_refusal("k", {"(total, heads, width)"}, [](packed_call& c) { c.k = matrix; });
  expect_packed_refusal("k", {"width", "8", "9"}, [](packed_call& c) { c.k = wide; });
  expect_packed_refusal("k", {"heads", "4", "3"}, [](packed_call& c) { c.k = three, c.v = three_v; });
  expect_packed_refusal("k", {"heads", "0"}, [](packed_call& c) { c.k = none, c.v = none_v; });
  expect_packed_refusal("v", {"keys", "7", "8"}, [](packed_call& c) { c.v = longer; });
  expect_packed_refusal("k", {"float32", "float64"}, [](packed_call& c) { c.k = doubles; }, type_fault);
  expect_packed_refusal("q", {"array", "none"}, [](packed_call& c) { c.q = {}; });
  expect_packed_refusal("v", {"null"}, [](packed_call& c) { c.v.data = nullptr; });
}

TEST(refused_of_packed_sequences, are_options_whose_shape_is_that_of_no_sequence) {
  static const tensor<bool> mask({1}, true);
  static const tensor<float> bias({1});
  static tensor<float> pairs({7, 4, 7});
  expect_packed_refusal("mask", {"packed"}, [](packed_call& c) { c.how.mask = mask; });
  expect_packed_refusal("bias", {"packed"}, [](packed_call& c) { c.how.bias = bias; });
  expect_packed_refusal("score", {"packed"}, [](packed_call& c) { c.how.score = {attend::bias(bias)}; });
  expect_packed_refusal("layout", {"packed"}, [](packed_call& c) { c.how.layout = layout::blhd; });
  expect_packed_refusal("weights", {"packed"}, [](packed_call& c) { c.results.weights = pairs; });
  expect_packed_refusal("scores", {"packed"}, [](packed_call& c) { c.results.scores = pairs; });
}

TEST(refused_of_packed_sequences, are_integers_per_sequence_that_do_not_fit) {
  static const auto three = integers({1, 1, 1}), too_long = integers({5, 3}), negative = integers({-1, 2});
  expect_packed_refusal("key_lengths", {"(2,)", "(3,)"}, [](packed_call& c) { c.how.key_lengths = three; });
  expect_packed_refusal("key_lengths", {"2", "3", "sequence 1"}, [](packed_call& c) { c.how.key_lengths = too_long; });
  expect_packed_refusal("key_lengths", {"-1"}, [](packed_call& c) { c.how.key_lengths = negative; });
  expect_packed_refusal("key_lengths", {"2", "4"}, [](packed_call& c) { c.how.key_lengths = 4; });
  expect_packed_refusal("query_offset", {"(2,)", "(3,)"},
                        [](packed_call& c) { c.how.causal = true, c.how.query_offset = three; });
  expect_packed_refusal("prefix", {"(2,)", "(3,)"}, [](packed_call& c) { c.how.causal = true, c.how.prefix = three; });
  expect_packed_refusal("prefix", {"causal", "window"}, [](packed_call& c) { c.how.prefix = 1; });
  expect_packed_refusal("query_segments", {"(7,)", "(3,)"},
                        [](packed_call& c) { c.how.query_segments = three, c.how.key_segments = c.x.at_k; });
  expect_packed_refusal("grid", {}, [](packed_call& c) { c.how.grid = {2, 2}; });
  expect_packed_refusal("window", {"left", "-1"}, [](packed_call& c) { c.how.window.left = -1; });
  expect_packed_refusal("threads", {"-1"}, [](packed_call& c) { c.how.threads = -1; });
}

TEST(refused_of_packed_sequences, are_results_of_another_shape_or_that_share_memory) {
  static tensor<float> batched({1, 7, 4, 6}), turned({4, 7});
  expect_packed_refusal("out", {"(7, 4, 6)", "(1, 7, 4, 6)"}, [](packed_call& c) { c.results.out = batched; });
  expect_packed_refusal("lse", {"(7, 4)", "(4, 7)"}, [](packed_call& c) { c.results.lse = turned; });
  expect_packed_refusal("out", {"place"}, [](packed_call& c) { c.results.out.strides[0] = 5; });
  expect_packed_refusal("out", {"q"}, [](packed_call& c) { c.results.out = tensor_view<float>(c.x.q.data(), {7, 4, 6}); });
  expect_packed_refusal("lse", {"v"}, [](packed_call& c) { c.results.lse = tensor_view<float>(c.x.v.data() + 50, {7, 4}); });
  expect_packed_refusal("lse", {"out"}, [](packed_call& c) { c.results.lse = tensor_view<float>(c.out.data(), {7, 4}); });
  static tensor<std::int64_t> boundaries({84});
  boundaries(1) = 3, boundaries(2) = 7;
  expect_packed_refusal("out", {"cu_seqlens_q"}, [](packed_call& c) {
    c.at_q = tensor_view<const std::int64_t>(boundaries.data(), {3});
    c.results.out = tensor_view<float>(reinterpret_cast<float*>(boundaries.data()), {7, 4, 6});
  });
  EXPECT_TRUE(boundaries(0) == 0 && boundaries(1) == 3 && boundaries(2) == 7 && boundaries(83) == 0);
}

TEST(refused_of_packed_sequences, come_before_any_work_in_the_reference_and_for_shapes_too) {
  packed_call c;
  const auto wrong = integers({0, 3, 8});
  EXPECT_THROW(reference::attention_varlen(c.q, c.k, c.v, wrong, c.at_k), argument_error);
  EXPECT_THROW(output_shape_varlen(c.q, c.k, c.v, wrong, c.at_k), argument_error);
  const auto truth = reference::attention_varlen(c.q, c.k, c.v, c.at_q, c.at_k);
  EXPECT_THROW(reference::error_bound_varlen(c.q, c.k, c.v, c.at_q, wrong, {}, truth), argument_error);
}

}  // namespace
}  // namespace attend::test
