// Backward calls that are refused: on whose account, in which words, with nothing written.
#include <gtest/gtest.h>

#include "support/gradients.hpp"
#include "support/refusal.hpp"

namespace attend::test {
namespace {

/// A right backward call that a test makes wrong in one place.
struct backward_mistake {
  tensor<float> q = normal<float>({2, 4, 3, 8}, 1), k = normal<float>({2, 2, 5, 8}, 2), v = normal<float>({2, 2, 5, 6}, 3);
  tensor<float> out{{2, 4, 3, 6}}, dout{{2, 4, 3, 6}}, lse{{2, 4, 3}}, dlse{{2, 4, 3}};
  tensor<float> bias{{3, 5}}, table{{1, 3}}, slopes{{4}}, sinks{{4}}, weights{{8}};
  tensor<float> dq{{2, 4, 3, 8}, 7.0f}, dk{{2, 2, 5, 8}, 7.0f}, dv{{2, 2, 5, 6}, 7.0f};
  tensor<float> dbias{{3, 5}, 7.0f}, dtable{{1, 3}, 7.0f}, dslopes{{4}, 7.0f}, dsinks{{4}, 7.0f}, dfirst{{3, 5}, 7.0f};
  tensor<float> dweights{{8}, 7.0f};
  tensor<double> wide{{2, 4, 3, 6}}, wide_rows{{2, 4, 3}};
  backward_inputs of{.dout = dout, .out = out, .lse = lse, .dlse = dlse};
  gradients to{.dq = dq,
               .dk = dk,
               .dv = dv,
               .dbias = dbias,
               .drelative = dtable,
               .dalibi = dslopes,
               .dsinks = dsinks,
               .dscore = {dfirst}};
  options how{
      .query_offset = 0, .bias = bias, .relative = table, .alibi = slopes, .sinks = sinks, .score = {attend::bias(bias)}};

  void run() const { attention_backward(of, q, k, v, to, how); }
  bool written() const {
    for (const tensor<float>* x : {&dq, &dk, &dv, &dbias, &dtable, &dslopes, &dsinks, &dfirst, &dweights})
      if (!untouched(*x)) return true;
    return false;
  }
};

void expect_refusal_of(const std::string& argument, const std::vector<std::string>& words,
                       const std::function<void(backward_mistake&)>& spoil,
                       argument_error::kind fault = argument_error::kind::value) {
  backward_mistake call;
  spoil(call);
  const auto problem = check_backward(call.of, call.q, call.k, call.v, call.to, call.how);
  ASSERT_TRUE(problem) << argument << ": check finds nothing";
  const std::string text = expect_argument_error(argument, words, fault, [&] { call.run(); });
  EXPECT_EQ(text, *problem);
  EXPECT_FALSE(call.written()) << argument << ": something was written";
}

TEST(backward_refusals, are_none_of_a_right_call) {
  backward_mistake call;
  EXPECT_EQ(check_backward(call.of, call.q, call.k, call.v, call.to, call.how), std::nullopt);
  call.run();
  EXPECT_TRUE(call.written());
}

TEST(backward_refusals, name_what_of_the_forward_is_missing_or_wrong) {
  expect_refusal_of("dout", {"(2, 4, 3, 6)", "none"}, [](auto& c) { c.of.dout = {}; });
  expect_refusal_of("out", {"(2, 4, 3, 6)", "none"}, [](auto& c) { c.of.out = {}; });
  expect_refusal_of("lse", {"(2, 4, 3)", "none"}, [](auto& c) { c.of.lse = {}; });
  expect_refusal_of("dout", {"float32", "float64"}, [](auto& c) { c.of.dout = c.wide; }, type_fault);
  expect_refusal_of("dlse", {"float32", "float64"}, [](auto& c) { c.of.dlse = c.wide_rows; }, type_fault);
  expect_refusal_of("out", {"(2, 4, 3, 6)", "(2, 4, 3, 8)"}, [](auto& c) { c.of.out = c.q; });
  expect_refusal_of("lse", {"(2, 4, 3)", "(3, 5)"}, [](auto& c) { c.of.lse = c.bias; });
  expect_refusal_of("dlse", {"(2, 4, 3)", "(3, 5)"}, [](auto& c) { c.of.dlse = c.bias; });
  expect_refusal_of("dout", {"memory", "null"}, [](auto& c) { c.of.dout.data = nullptr; });
}

TEST(backward_refusals, name_gradients_of_another_shape_or_dtype) {
  expect_refusal_of("dq", {"(2, 4, 3, 8)", "(2, 2, 5, 8)"}, [](auto& c) { c.to.dq = c.dk, c.to.dk = {}; });
  expect_refusal_of("dv", {"(2, 2, 5, 6)"}, [](auto& c) { c.to.dv.shape = {2, 2, 5, 5}; });
  expect_refusal_of("dk", {"float32", "float64"}, [](auto& c) { c.to.dk.type = dtype::f64; }, type_fault);
  expect_refusal_of("dbias", {"float32", "float16"}, [](auto& c) { c.to.dbias.type = dtype::f16; }, type_fault);
  expect_refusal_of("dbias", {"(3, 5)", "(4,)"}, [](auto& c) { c.to.dbias = c.dslopes, c.to.dalibi = {}; });
  expect_refusal_of("drelative", {"(1, 3)"}, [](auto& c) { c.to.drelative.shape = {3, 1}; });
  expect_refusal_of("dsinks", {"(4,)", "(3,)"}, [](auto& c) { c.to.dsinks.shape = {3}; });
  expect_refusal_of("dscore", {"(3, 5)", "(1, 5)"}, [](auto& c) { c.to.dscore[0].shape = {1, 5}; });
}

TEST(backward_refusals, name_gradients_of_what_is_no_array) {
  expect_refusal_of("dbias", {"bias", "none"}, [](auto& c) { c.how.bias = {}; });
  expect_refusal_of("drelative", {"relative", "none"}, [](auto& c) { c.how.relative = {}; });
  expect_refusal_of("dalibi", {"slopes", "none"}, [](auto& c) { c.how.alibi = true; });
  expect_refusal_of("dsinks", {"sinks", "none"}, [](auto& c) { c.how.sinks = {}; });
  expect_refusal_of("dscore", {"score", "none"}, [](auto& c) { c.how.score = {soft_cap(2)}; });
  expect_refusal_of("dscore", {"score", "none"}, [](auto& c) { c.how.score = {}; });
}

TEST(backward_refusals, name_memory_that_overlaps) {
  expect_refusal_of("dq", {"apart from every input", "q"}, [](auto& c) { c.to.dq = c.q; });
  expect_refusal_of("dv", {"apart from every input", "v"}, [](auto& c) { c.to.dv = c.v; });
  expect_refusal_of("dbias", {"apart from every input", "bias"}, [](auto& c) { c.to.dbias = c.bias; });
  expect_refusal_of("dscore", {"other results", "dbias"}, [](auto& c) { c.to.dscore[0] = c.dbias; });
  expect_refusal_of("dk", {"place of its own"}, [](auto& c) { c.to.dk.strides = {0, 0, 8, 1}; });
}

TEST(backward_refusals, name_an_lse_that_the_normalizer_has_not) {
  for (const normalizer kind : {normalizer::mean, normalizer::sum, normalizer::sigmoid, normalizer::relu2, normalizer::abs}) {
    const auto with = [&](auto& c) { c.how.normalizer = kind, c.how.sinks = {}, c.to.dsinks = {}; };
    const std::vector<std::string> words = {"none beside normalizer " + std::string(name_of(kind)), "an array"};
    expect_refusal_of("lse", words, [&](auto& c) { with(c), c.of.dlse = {}; });
    expect_refusal_of("dlse", words, [&](auto& c) { with(c), c.of.lse = {}; });
  }
}

TEST(backward_refusals, name_what_belongs_to_another_compatibility) {
  expect_refusal_of("dadditive", {"compatibility additive", "none"}, [](auto& c) { c.to.dadditive = c.dweights; });
  const auto additive_call = [](auto& c) { c.how.compatibility = additive(c.weights), c.to.dadditive = c.dweights; };
  expect_refusal_of("dadditive", {"(8,)", "(4,)"},
                    [&](auto& c) { additive_call(c), c.to.dadditive = c.dslopes, c.to.dalibi = {}; });
  expect_refusal_of(
      "dadditive", {"float32", "float64"}, [&](auto& c) { additive_call(c), c.to.dadditive.type = dtype::f64; }, type_fault);
  expect_refusal_of("dadditive", {"apart from every input", "additive"},
                    [&](auto& c) { additive_call(c), c.to.dadditive = c.weights; });
  backward_mistake right;
  additive_call(right);
  EXPECT_EQ(check_backward(right.of, right.q, right.k, right.v, right.to, right.how), std::nullopt);
}

TEST(backward_refusals, name_a_seed_that_is_missing) {
  expect_refusal_of("seed", {"dropout", "none"}, [](auto& c) { c.how.dropout = {.p = 0.5}; });
}

TEST(backward_refusals, of_the_forward_are_those_of_the_backward) {
  expect_refusal_of("k", {"width"}, [](auto& c) { c.k = tensor<float>({2, 2, 5, 7}); });
  expect_refusal_of("query_offset", {"upper_left"}, [](auto& c) { c.how.query_offset = {}; });
  expect_refusal_of("threads", {"-1"}, [](auto& c) { c.how.threads = -1; });
}

}  // namespace
}  // namespace attend::test
