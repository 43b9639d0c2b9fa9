// Gradients through the C ABI: the bits of C++, refusals as status and text, nothing written.
#include <gtest/gtest.h>

#include "support/c_call.hpp"
#include "support/gradients.hpp"
#include "support/varlen.hpp"

namespace attend::test {
namespace {

TEST(c_gradients, have_the_bits_of_cpp) {
  const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 5, .S = 9, .E = 8, .Ev = 6};
  const auto bias = normal<float>({5, 9}, 1), slopes = normal<float>({4}, 2), sinks = normal<float>({4}, 3),
             table = normal<float>({4, 3}, 4);
  const score_list list = {soft_cap(2), attend::bias(bias)};
  const options how{.query_offset = 1, .bias = bias, .relative = table, .alibi = slopes, .sinks = sinks, .score = list};
  const backward_call_of<float> call(n, how);
  const auto expected = call.run(how);

  owned_gradients<float> got;
  got.dq = tensor<float>(expected.dq.shape()), got.dk = tensor<float>(expected.dk.shape());
  got.dv = tensor<float>(expected.dv.shape()), got.dbias = tensor<float>(bias.shape());
  got.drelative = tensor<float>(table.shape()), got.dalibi = tensor<float>({4}), got.dsinks = tensor<float>({4});
  got.dscore[1] = tensor<float>(bias.shape());
  const c_array q(call.x.q), k(call.x.k), v(call.x.v), dout(call.dout), out(call.out), lse(call.lse), dlse(call.dlse);
  const c_array dq(got.dq), dk(got.dk), dv(got.dv), dbias(got.dbias), drelative(got.drelative), dalibi(got.dalibi),
      dsinks(got.dsinks), dscore(got.dscore[1]), b(bias), t(table), s(slopes), k_sinks(sinks);
  attend_backward_inputs of = ATTEND_INIT(attend_backward_inputs);
  of.dout = dout.get(), of.out = out.get(), of.lse = lse.get(), of.dlse = dlse.get();
  attend_gradients to = ATTEND_INIT(attend_gradients);
  to.dq = dq.get(), to.dk = dk.get(), to.dv = dv.get(), to.dbias = dbias.get(), to.drelative = drelative.get();
  to.dalibi = dalibi.get(), to.dsinks = dsinks.get();
  const attend_array* const by_place[] = {nullptr, dscore.get()};
  to.dscore = by_place, to.dscore_count = 2;
  attend_score cap = ATTEND_INIT(attend_score), first = ATTEND_INIT(attend_score);
  cap.kind = ATTEND_SOFT_CAP, cap.cap = 2, first.kind = ATTEND_BIAS, first.numbers = b.get();
  const attend_score* const scores[] = {&cap, &first};
  const std::int64_t offset = 1;
  attend_options options = ATTEND_INIT(attend_options);
  options.query_offset.value = &offset, options.bias = b.get(), options.relative = t.get(), options.alibi_slopes = s.get();
  options.sinks = k_sinks.get(), options.score = scores, options.score_count = 2;
  ASSERT_EQ(attend_attention_backward(&of, q.get(), k.get(), v.get(), &to, &options), ATTEND_OK) << attend_last_error();
  EXPECT_TRUE(same_gradients(got, expected));
}

TEST(c_gradients, of_the_general_form_have_the_bits_of_cpp_and_no_lse) {
  const sizes n{.B = 1, .H = 2, .Hk = 1, .L = 5, .S = 9, .E = 8, .Ev = 6};
  const auto weights = normal<float>({8}, 1);
  const options how{.compatibility = additive(weights), .normalizer = normalizer::relu2};
  const backward_call_of<float> call(n, how);
  const auto expected = call.run(how);
  tensor<float> to_q(expected.dq.shape()), to_weights({8});
  const c_array q(call.x.q), k(call.x.k), v(call.x.v), dout(call.dout), out(call.out), w(weights), dq(to_q), dw(to_weights);
  attend_backward_inputs of = ATTEND_INIT(attend_backward_inputs);
  of.dout = dout.get(), of.out = out.get();
  attend_gradients to = ATTEND_INIT(attend_gradients);
  to.dq = dq.get(), to.dadditive = dw.get();
  attend_options options = ATTEND_INIT(attend_options);
  options.compatibility = ATTEND_ADDITIVE, options.additive = w.get(), options.normalizer = ATTEND_RELU2;
  ASSERT_EQ(attend_attention_backward(&of, q.get(), k.get(), v.get(), &to, &options), ATTEND_OK) << attend_last_error();
  EXPECT_TRUE(same_bits(to_q, expected.dq));
  EXPECT_TRUE(same_bits(to_weights, expected.dadditive));
  const auto rows = normal<float>({1, 2, 5}, 2);
  const c_array lse(rows);
  of.lse = lse.get();
  EXPECT_EQ(attend_attention_backward(&of, q.get(), k.get(), v.get(), &to, &options), ATTEND_ERROR_ARGUMENT);
  EXPECT_EQ(std::string(attend_last_error()).rfind("lse: expected none beside normalizer relu2", 0), 0u) << attend_last_error();
}

TEST(c_gradients, over_packed_sequences_have_the_bits_of_cpp) {
  const auto x = make_packed<float>({{3, 4}, {0, 2}, {5, 1}}, {.H = 2, .Hk = 1, .E = 4, .Ev = 3});
  const auto y = compute(x);
  const auto expected = attention_varlen_backward({.dout = y.out, .out = y.out, .lse = y.lse}, x.q, x.k, x.v, x.at_q, x.at_k);
  tensor<float> to_q(x.q.shape()), to_v(x.v.shape());
  const c_array q(x.q), k(x.k), v(x.v), at_q(x.at_q), at_k(x.at_k), out(y.out), lse(y.lse), dq(to_q), dv(to_v);
  attend_backward_inputs of = ATTEND_INIT(attend_backward_inputs);
  of.dout = of.out = out.get(), of.lse = lse.get();
  attend_gradients to = ATTEND_INIT(attend_gradients);
  to.dq = dq.get(), to.dv = dv.get();
  ASSERT_EQ(attend_attention_varlen_backward(&of, q.get(), k.get(), v.get(), at_q.get(), at_k.get(), &to, nullptr), ATTEND_OK)
      << attend_last_error();
  EXPECT_TRUE(same_bits(to_q, expected.dq));
  EXPECT_TRUE(same_bits(to_v, expected.dv));
}

TEST(c_gradients, are_refused_by_name_with_nothing_written) {
  const backward_call_of<float> call(sizes{.B = 1, .H = 2, .Hk = 2, .L = 3, .S = 4, .E = 4, .Ev = 4});
  tensor<float> written({1, 2, 3, 4}, 7.0f);
  const c_array q(call.x.q), k(call.x.k), v(call.x.v), dout(call.dout), out(call.out), lse(call.lse), dq(written);
  attend_backward_inputs of = ATTEND_INIT(attend_backward_inputs);
  of.dout = dout.get(), of.out = out.get(), of.lse = lse.get();
  attend_gradients to = ATTEND_INIT(attend_gradients);
  to.dq = dq.get();
  const auto refusal = [&](const attend_backward_inputs* from, const attend_gradients* results) {
    EXPECT_EQ(attend_attention_backward(from, q.get(), k.get(), v.get(), results, nullptr), ATTEND_ERROR_ARGUMENT);
    const std::string text = attend_last_error();
    return text.substr(0, text.find(':'));
  };
  EXPECT_EQ(refusal(nullptr, &to), "of");
  EXPECT_EQ(refusal(&of, nullptr), "results");
  attend_backward_inputs without = of;
  without.lse = nullptr;
  EXPECT_EQ(refusal(&without, &to), "lse");
  attend_gradients wrong = to;
  wrong.dbias = dq.get();
  EXPECT_EQ(refusal(&of, &wrong), "dbias");
  wrong = to, wrong.dscore_count = 9;
  EXPECT_EQ(refusal(&of, &wrong), "dscore");
  wrong = to, wrong.dscore_count = 1;
  EXPECT_EQ(refusal(&of, &wrong), "dscore");
  EXPECT_TRUE(untouched(written));
}

}  // namespace
}  // namespace attend::test
