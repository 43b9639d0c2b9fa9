// What gradients do not depend on: threads, strides, what excluded pairs hold; and what empty rows give.
#include <gtest/gtest.h>

#include <vector>

#include "support/gradients.hpp"
#include "support/memory.hpp"
#include "support/poison.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct bits_of_gradients : testing::Test {};
TYPED_TEST_SUITE(bits_of_gradients, stored_types);

TYPED_TEST(bits_of_gradients, any_number_of_threads) {
  for (const sizes& n : {sizes{.B = 2, .H = 4, .Hk = 2, .L = 70, .S = 900, .E = 8, .Ev = 9},
                         sizes{.B = 1, .H = 1, .Hk = 1, .L = 200, .S = 1300, .E = 16, .Ev = 8}}) {
    const score_arrays<TypeParam> arrays(n);
    const auto table = normal<TypeParam>({n.H, 31}, 8);
    options how = arrays.calls().back().how;  // all together
    how.relative = table;
    how.bias = arrays.bias;
    for (const options& base : {options{}, how}) {
      options one = base;
      one.threads = 1;
      const backward_call_of<TypeParam> call(n, one);
      const auto expected = call.run(one);
      for (const int threads : {2, 3, 4, 16, 0}) {
        options more = base;
        more.threads = threads;
        EXPECT_TRUE(same_gradients(call.run(more), expected)) << threads << " threads, " << n.to_string();
      }
    }
  }
}

/// The part of a row-major array that belongs to batch b.
template <class T>
tensor<T> batch(const tensor<T>& x, std::int64_t b) {
  extents shape = x.shape();
  shape[0] = 1;
  tensor<T> own(shape);
  std::copy_n(x.data() + b * own.size(), own.size(), own.data());
  return own;
}

TYPED_TEST(bits_of_gradients, a_batch_whole_or_one_by_one) {
  const sizes n{.B = 3, .H = 4, .Hk = 2, .L = 40, .S = 450, .E = 8, .Ev = 8};
  const options how{.causal = true, .query_offset = lower_right};
  const backward_call_of<TypeParam> call(n, how);
  const auto whole = call.run(how);
  for (std::int64_t b = 0; b < n.B; ++b) {
    const auto out = batch(call.out, b), dout = batch(call.dout, b);
    const auto lse = batch(call.lse, b), dlse = batch(call.dlse, b);
    const auto one = attention_backward({.dout = dout, .out = out, .lse = lse, .dlse = dlse}, batch(call.x.q, b),
                                        batch(call.x.k, b), batch(call.x.v, b), how);
    EXPECT_TRUE(same_bits(one.dq, batch(whole.dq, b)));
    EXPECT_TRUE(same_bits(one.dk, batch(whole.dk, b)));
    EXPECT_TRUE(same_bits(one.dv, batch(whole.dv, b)));
  }
}

TYPED_TEST(bits_of_gradients, what_is_wanted_beside) {
  const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 20, .S = 500, .E = 8, .Ev = 8};
  const backward_call_of<TypeParam> call(n);
  const auto all = call.run({});
  tensor<TypeParam> dq(all.dq.shape()), dk(all.dk.shape()), dv(all.dv.shape());
  attention_backward(call.given(), call.x.q, call.x.k, call.x.v, gradients{.dq = dq});
  attention_backward(call.given(), call.x.q, call.x.k, call.x.v, gradients{.dk = dk});
  attention_backward(call.given(), call.x.q, call.x.k, call.x.v, gradients{.dv = dv});
  EXPECT_TRUE(same_bits(dq, all.dq));
  EXPECT_TRUE(same_bits(dk, all.dk));
  EXPECT_TRUE(same_bits(dv, all.dv));
}

TYPED_TEST(bits_of_gradients, any_strides) {
  const sizes n{.B = 2, .H = 2, .Hk = 1, .L = 9, .S = 13, .E = 5, .Ev = 6};
  const backward_call_of<TypeParam> call(n);
  const auto expected = call.run({});
  const auto turned = [](const extents& shape) {  // columns far apart, rows backwards
    return extents{2 * shape[1] * shape[2] * shape[3], shape[2], -1, shape[1] * shape[2]};
  };
  strided<TypeParam> q(call.x.q, turned(call.x.q.shape())), k(call.x.k, turned(call.x.k.shape())),
      v(call.x.v, turned(call.x.v.shape())), out(call.out, turned(call.out.shape())),
      dout(call.dout, turned(call.dout.shape())), dq(call.x.q.shape(), turned(call.x.q.shape())),
      dk(call.x.k.shape(), turned(call.x.k.shape())), dv(call.x.v.shape(), turned(call.x.v.shape()));
  strided<accumulator<TypeParam>> lse(call.lse, {1, 4, 8}), dlse(call.dlse, {60, -2, 5});
  attention_backward({.dout = dout.view(), .out = out.view(), .lse = lse.view(), .dlse = dlse.view()}, q.view(), k.view(),
                     v.view(), gradients{.dq = dq.view(), .dk = dk.view(), .dv = dv.view()});
  EXPECT_TRUE(same_bits(dq.values(), expected.dq));
  EXPECT_TRUE(same_bits(dk.values(), expected.dk));
  EXPECT_TRUE(same_bits(dv.values(), expected.dv));
  EXPECT_TRUE(dq.gaps_are_intact() && dk.gaps_are_intact() && dv.gaps_are_intact());
}

TYPED_TEST(bits_of_gradients, unaligned_memory) {
  const sizes n{.B = 1, .H = 2, .Hk = 1, .L = 9, .S = 13, .E = 5, .Ev = 6};
  const backward_call_of<TypeParam> call(n);
  const auto expected = call.run({});
  unaligned<TypeParam> q(call.x.q), k(call.x.k), v(call.x.v), out(call.out), dout(call.dout), dq(call.x.q.shape()),
      dk(call.x.k.shape()), dv(call.x.v.shape());
  unaligned<accumulator<TypeParam>> lse(call.lse), dlse(call.dlse);
  attention_backward({.dout = dout.view(), .out = out.view(), .lse = lse.view(), .dlse = dlse.view()}, q.view(), k.view(),
                     v.view(), gradients{.dq = dq.view(), .dk = dk.view(), .dv = dv.view()});
  EXPECT_TRUE(same_bits(dq.values(), expected.dq));
  EXPECT_TRUE(same_bits(dk.values(), expected.dk));
  EXPECT_TRUE(same_bits(dv.values(), expected.dv));
}

TYPED_TEST(bits_of_gradients, what_excluded_keys_hold) {
  const sizes n{.B = 2, .H = 2, .Hk = 1, .L = 70, .S = 500, .E = 8, .Ev = 8};
  const auto excluded = [](std::int64_t, std::int64_t j) { return j % 7 == 3 || j > 480; };
  tensor<bool> mask({n.S}, true);
  for (std::int64_t j = 0; j < n.S; ++j) mask(j) = !excluded(0, j);
  const options how{.mask = mask};
  backward_call_of<TypeParam> call(n, how);
  const auto expected = call.run(how);
  for (const double poison : {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity}) {
    call.x = poisoned(make_inputs<TypeParam>(n), static_cast<TypeParam>(poison), excluded);
    const auto got = call.run(how);
    EXPECT_TRUE(same_gradients(got, expected)) << poison;
    for (std::int64_t j = 0; j < n.S; ++j) {
      for (std::int64_t d = 0; excluded(0, j) && d < 8; ++d) {
        EXPECT_EQ(double(got.dk(0, 0, j, d)), 0);
        EXPECT_EQ(double(got.dv(1, 0, j, d)), 0);
      }
    }
  }
}

TYPED_TEST(bits_of_gradients, what_queries_hold_that_a_key_is_excluded_from) {
  const sizes n{.B = 1, .H = 2, .Hk = 1, .L = 90, .S = 300, .E = 8, .Ev = 8};
  // Query 20 sees no key, query 30 the last few alone: whatever they hold reaches no other key.
  tensor<bool> mask({n.L, n.S}, true);
  for (std::int64_t j = 0; j < n.S; ++j) mask(20, j) = false, mask(30, j) = j >= 290;
  const options how{.mask = mask};
  backward_call_of<TypeParam> call(n, how);
  for (std::int64_t h = 0; h < n.H; ++h) {
    for (std::int64_t d = 0; d < 8; ++d) call.x.q(0, h, 30, d) = call.dout(0, h, 30, d) = TypeParam(0);
    call.dlse(0, h, 30) = 0;
  }
  call.dlse(0, 0, 20) = 0;
  const auto expected = call.run(how);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t d = 0; d < 8; ++d) {
    for (const std::int64_t i : {20, 30}) call.x.q(0, 0, i, d) = call.dout(0, 1, i, d) = static_cast<TypeParam>(nan);
  }
  call.dlse(0, 0, 20) = static_cast<accumulator<TypeParam>>(nan);
  const auto got = call.run(how);
  for (std::int64_t j = 0; j < n.S; ++j) {
    for (std::int64_t d = 0; d < 8; ++d) {
      EXPECT_EQ(std::isnan(double(got.dk(0, 0, j, d))), j >= 290) << j;
      EXPECT_EQ(std::isnan(double(got.dv(0, 0, j, d))), j >= 290) << j;
    }
  }
  for (std::int64_t i = 0; i < n.L; ++i) {
    for (std::int64_t d = 0; d < 8; ++d) {
      for (std::int64_t h = 0; h < n.H; ++h) {
        if (i == 30) {
          EXPECT_TRUE(std::isnan(double(got.dq(0, h, i, d))));
        } else {
          EXPECT_EQ(double(got.dq(0, h, i, d)), i == 20 ? 0 : double(expected.dq(0, h, i, d))) << i;
        }
      }
    }
  }
}

TYPED_TEST(bits_of_gradients, a_nan_that_is_allowed_reaches_what_the_reference_says) {
  const sizes n{.B = 1, .H = 2, .Hk = 1, .L = 20, .S = 130, .E = 4, .Ev = 4};
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (int where = 0; where < 4; ++where) {
    auto x = make_inputs<TypeParam>(n);
    if (where == 0) x.q(0, 1, 5, 2) = static_cast<TypeParam>(nan);
    if (where == 1) x.k(0, 0, 7, 1) = static_cast<TypeParam>(nan);
    if (where == 2) x.v(0, 0, 9, 3) = static_cast<TypeParam>(nan);
    const options how{.causal = true, .query_offset = lower_right};
    backward_call_of<TypeParam> call(std::move(x), how);
    if (where == 3) call.dout(0, 0, 4, 1) = static_cast<TypeParam>(nan);
    EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << where;
  }
}

TYPED_TEST(bits_of_gradients, empty_dimensions) {
  for (const sizes& n : {sizes{.B = 0}, sizes{.L = 0}, sizes{.S = 0}, sizes{.E = 0}, sizes{.Ev = 0}, sizes{.H = 0}}) {
    const auto bias = normal<TypeParam>({1}, 3), sinks = normal<TypeParam>({n.H}, 4);
    const options how{.bias = bias, .sinks = sinks};
    const backward_call_of<TypeParam> call(n, how);
    EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << n.to_string();
  }
}

TYPED_TEST(bits_of_gradients, broadcast_batches_are_summed_up) {
  const auto q = normal<TypeParam>({1, 2, 5, 4}, 1), k = normal<TypeParam>({2, 1, 1, 7, 4}, 2),
             v = normal<TypeParam>({3, 1, 7, 6}, 3), dout = normal<TypeParam>({2, 3, 2, 5, 6}, 4);
  const auto dlse = normal<accumulator<TypeParam>>({2, 3, 2, 5}, 5);
  const auto y = compute<TypeParam>(q, k, v);
  const auto got = attention_backward({.dout = dout, .out = y.out, .lse = y.lse, .dlse = dlse}, q, k, v);
  EXPECT_TRUE(gradients_right(got, reference::attention_backward(dout, dlse, q, k, v)));
}

}  // namespace
}  // namespace attend::test
