// Gradients over packed sequences: those of the reference, and the bits of each sequence alone.
#include <gtest/gtest.h>

#include "support/form.hpp"
#include "support/gradients.hpp"
#include "support/varlen.hpp"

namespace attend::test {
namespace {

template <class T>
struct packed_gradients : testing::Test {};
TYPED_TEST_SUITE(packed_gradients, stored_types);

/// A packed call and what its gradients begin from.
template <class T>
struct packed_backward {
  packed<T> x;
  computed<T> y;
  tensor<T> dout;
  tensor<accumulator<T>> dlse;
  bool has_lse;

  packed_backward(const sequence_lengths& lengths, const sizes& n, const options& how)
      : x(make_packed<T>(lengths, n)),
        y(compute(x, how)),
        dout(normal<T>(y.out.shape(), 7)),
        dlse(normal<accumulator<T>>(y.lse.shape(), 8)),
        has_lse(how.normalizer == normalizer::softmax) {}

  owned_gradients<T> run(const options& how) const {
    backward_inputs of{.dout = dout, .out = y.out};
    if (has_lse) of.lse = y.lse, of.dlse = dlse;
    return attention_varlen_backward(of, x.q, x.k, x.v, x.at_q, x.at_k, how);
  }
  reference::gradients truth(const options& how) const {
    return reference::attention_varlen_backward(dout, has_lse ? array_view(dlse) : array_view(), x.q, x.k, x.v, x.at_q, x.at_k,
                                                how);
  }
};

const sequence_lengths unequal = {{0, 3}, {70, 70}, {1, 900}, {4, 0}, {9, 9}, {130, 500}};
const sizes widths{.H = 4, .Hk = 2, .E = 8, .Ev = 9};

TYPED_TEST(packed_gradients, are_those_of_the_reference_with_every_option) {
  const auto slopes = normal<TypeParam>({4}, 1, 0.2), sinks = normal<TypeParam>({4}, 2), table = normal<TypeParam>({4, 9}, 3);
  const auto of_q = random_ids({214}, 4, -1, 1), of_k = random_ids({1482}, 5, -1, 1);
  for (const options& how :
       {options{}, options{.causal = true, .window = {40, 0}}, options{.query_segments = of_q, .key_segments = of_k},
        options{.causal = true, .relative = table, .softcap = 2, .alibi = slopes, .sinks = sinks},
        options{.dropout = {.p = 0.4, .seed = 5}}}) {
    const packed_backward<TypeParam> call(unequal, widths, how);
    EXPECT_TRUE(gradients_right(call.run(how), call.truth(how)));
  }
}

TYPED_TEST(packed_gradients, are_those_of_the_reference_for_every_form) {
  const auto w = normal<TypeParam>({widths.E}, 6);
  for (const options& how : every_form(w, {.causal = true, .scale = 0.3})) {
    const packed_backward<TypeParam> call(unequal, widths, how);
    EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << form_of(how);
  }
}

TYPED_TEST(packed_gradients, have_the_bits_of_each_sequence_alone) {
  const options how{.causal = true};
  const packed_backward<TypeParam> call(unequal, widths, how);
  const auto whole = call.run(how);
  options alone = how;
  alone.layout = layout::blhd, alone.query_offset = lower_right;
  const auto bits_of = [](const tensor<TypeParam>& one, const tensor<TypeParam>& all, std::int64_t first) {
    const std::int64_t row = all.shape()[1] * all.shape()[2];
    return std::memcmp(one.data(), all.data() + first * row, std::size_t(one.size()) * sizeof(TypeParam)) == 0;
  };
  for (std::int64_t s = 0; s < call.x.count(); ++s) {
    const auto rows = [&](const auto& x) { return sequence_of(x, call.x.at_q, s); };
    const std::int64_t L = call.x.at_q(s + 1) - call.x.at_q(s);
    tensor<accumulator<TypeParam>> lse({1, 4, L}), dlse({1, 4, L});
    for_each_index(lse.shape(), [&](const extents& at) {
      lse(0, at[1], at[2]) = call.y.lse(call.x.at_q(s) + at[2], at[1]);
      dlse(0, at[1], at[2]) = call.dlse(call.x.at_q(s) + at[2], at[1]);
    });
    const auto one =
        attention_backward({.dout = rows(call.dout), .out = rows(call.y.out), .lse = lse, .dlse = dlse}, rows(call.x.q),
                           sequence_of(call.x.k, call.x.at_k, s), sequence_of(call.x.v, call.x.at_k, s), alone);
    EXPECT_TRUE(bits_of(one.dq, whole.dq, call.x.at_q(s))) << s;
    EXPECT_TRUE(bits_of(one.dk, whole.dk, call.x.at_k(s))) << s;
    EXPECT_TRUE(bits_of(one.dv, whole.dv, call.x.at_k(s))) << s;
  }
}

TYPED_TEST(packed_gradients, have_the_same_bits_for_any_number_of_threads) {
  const packed_backward<TypeParam> call(unequal, widths, {});
  const auto expected = call.run({.threads = 1});
  for (const int threads : {2, 3, 4}) EXPECT_TRUE(same_gradients(call.run({.threads = threads}), expected)) << threads;
}

TEST(packed_backward_calls, are_refused_by_name) {
  const packed_backward<float> call({{2, 3}, {4, 5}}, widths, {});
  const backward_inputs of{.dout = call.dout, .out = call.y.out, .lse = call.y.lse};
  const tensor<float> one_row({6, 4});
  const auto text = [&](const backward_inputs& with, const array_view& starts) {
    return check_varlen_backward(with, call.x.q, call.x.k, call.x.v, starts, call.x.at_k, {}).value_or("");
  };
  EXPECT_EQ(text(of, call.x.at_q), "");
  EXPECT_EQ(text(of, {}).rfind("cu_seqlens_q: expected", 0), 0u);
  EXPECT_EQ(text({.dout = call.dout, .out = call.y.out, .lse = call.x.q}, call.x.at_q).rfind("lse: expected shape (6, 4)", 0),
            0u);
}

}  // namespace
}  // namespace attend::test
