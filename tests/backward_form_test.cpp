// Gradients of the general form: every normalizer and compatibility function against the reference.
#include <gtest/gtest.h>

#include "support/form.hpp"
#include "support/gradients.hpp"
#include "support/poison.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct gradients_of_forms : testing::Test {};
TYPED_TEST_SUITE(gradients_of_forms, stored_types);

TYPED_TEST(gradients_of_forms, are_those_of_the_reference_for_every_shape) {
  for (const sizes& n : {sizes{.B = 2, .H = 2, .Hk = 1, .L = 1, .S = 7, .E = 5, .Ev = 3},
                         sizes{.B = 1, .H = 1, .Hk = 1, .L = 7, .S = 96, .E = 2, .Ev = 1},
                         sizes{.B = 1, .H = 3, .Hk = 1, .L = 22, .S = 97, .E = 17, .Ev = 16},
                         sizes{.B = 1, .H = 2, .Hk = 2, .L = 65, .S = 33, .E = 40, .Ev = 9},
                         sizes{.B = 1, .H = 1, .Hk = 1, .L = 70, .S = 500, .E = 8, .Ev = 8}}) {
    const auto w = normal<TypeParam>({n.E}, 3);
    for (const options& how : every_form(w)) {
      const backward_call_of<TypeParam> call(n, how);
      EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << form_of(how) << ", " << n.to_string();
    }
  }
}

TYPED_TEST(gradients_of_forms, are_those_of_the_reference_with_every_option) {
  const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 23, .S = 120, .E = 8, .Ev = 5};
  const score_arrays<TypeParam> arrays(n);
  for (const normalizer kind : normalizers) {
    for (const auto& [name, with] : arrays.calls()) {
      options how = with;
      how.normalizer = kind;
      if (kind != normalizer::softmax) how.sinks = {};
      const backward_call_of<TypeParam> call(n, how);
      EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << name << ", " << form_of(how);
    }
  }
  const auto w = normal<TypeParam>({n.E}, 3), table = normal<TypeParam>({4, 9}, 4);
  options several = arrays.calls().back().how;  // all together
  several.relative = table;
  for (const compatibility& f : compatibilities(w)) {
    several.compatibility = f;
    const backward_call_of<TypeParam> call(n, several);
    EXPECT_TRUE(gradients_right(call.run(several), call.truth(several))) << form_of(several);
  }
}

TYPED_TEST(gradients_of_forms, do_not_depend_on_threads) {
  const sizes n{.B = 2, .H = 2, .Hk = 1, .L = 90, .S = 800, .E = 8, .Ev = 9};
  const auto w = normal<TypeParam>({n.E}, 3);
  for (options how : every_form(w, {.causal = true, .query_offset = lower_right})) {
    how.threads = 1;
    const backward_call_of<TypeParam> call(n, how);
    const auto expected = call.run(how);
    for (const int threads : {2, 3, 0}) {
      how.threads = threads;
      EXPECT_TRUE(same_gradients(call.run(how), expected)) << threads << " threads, " << form_of(how);
    }
  }
}

TYPED_TEST(gradients_of_forms, do_not_depend_on_what_is_wanted_beside) {
  const sizes n{.B = 1, .H = 2, .Hk = 1, .L = 20, .S = 500, .E = 9, .Ev = 8};
  const auto w = normal<TypeParam>({n.E}, 3);
  for (const options& how : every_form(w)) {
    const backward_call_of<TypeParam> call(n, how);
    const auto all = call.run(how);
    tensor<TypeParam> dq(all.dq.shape()), dk(all.dk.shape()), dv(all.dv.shape());
    tensor<accumulator<TypeParam>> dw({n.E});
    attention_backward(call.given(), call.x.q, call.x.k, call.x.v, gradients{.dq = dq}, how);
    attention_backward(call.given(), call.x.q, call.x.k, call.x.v, gradients{.dk = dk}, how);
    attention_backward(call.given(), call.x.q, call.x.k, call.x.v, gradients{.dv = dv}, how);
    EXPECT_TRUE(same_bits(dq, all.dq)) << form_of(how);
    EXPECT_TRUE(same_bits(dk, all.dk)) << form_of(how);
    EXPECT_TRUE(same_bits(dv, all.dv)) << form_of(how);
    if (!how.compatibility.weights) continue;
    attention_backward(call.given(), call.x.q, call.x.k, call.x.v, gradients{.dadditive = dw}, how);
    EXPECT_TRUE(same_bits(dw, all.dadditive)) << form_of(how);
  }
}

TYPED_TEST(gradients_of_forms, do_not_depend_on_what_excluded_pairs_hold) {
  const sizes n{.B = 1, .H = 2, .Hk = 1, .L = 70, .S = 410, .E = 8, .Ev = 8};
  // Keys that nobody sees and a query that sees nothing.
  const auto excluded = [](std::int64_t, std::int64_t j) { return j % 7 == 3 || j > 400; };
  tensor<bool> mask({n.L, n.S}, true);
  for (std::int64_t i = 0; i < n.L; ++i)
    for (std::int64_t j = 0; j < n.S; ++j) mask(i, j) = !excluded(0, j) && i != 20;
  const auto w = normal<TypeParam>({n.E}, 3);
  const auto slopes = normal<TypeParam>({n.H}, 4, 0.2);
  const score_list list = {alibi(slopes), soft_cap(3)};  // whose slopes are NaN where scores are
  for (const options& how : every_form(w, {.query_offset = 340, .key_lengths = 405, .mask = mask, .score = list})) {
    backward_call_of<TypeParam> call(n, how);
    const auto expected = call.run(how);
    for (const double poison : {std::numeric_limits<double>::quiet_NaN(), infinity}) {
      call.x = poisoned(make_inputs<TypeParam>(n), static_cast<TypeParam>(poison), excluded);
      for (std::int64_t d = 0; d < 8; ++d) call.x.q(0, 0, 20, d) = call.dout(0, 1, 20, d) = static_cast<TypeParam>(poison);
      const auto got = call.run(how);
      EXPECT_TRUE(same_gradients(got, expected)) << poison << ", " << form_of(how);
      for (std::int64_t d = 0; d < 8; ++d) {
        for (std::int64_t h = 0; h < n.H; ++h) EXPECT_EQ(double(got.dq(0, h, 20, d)), 0) << form_of(how);
        for (const std::int64_t j : {3, 402, 409}) EXPECT_EQ(double(got.dk(0, 0, j, d)), 0) << form_of(how);
        EXPECT_EQ(double(got.dv(0, 0, 405, d)), 0) << form_of(how);
      }
    }
  }
}

TYPED_TEST(gradients_of_forms, pass_on_a_nan_that_is_allowed) {
  const sizes n{.B = 1, .H = 2, .Hk = 1, .L = 20, .S = 130, .E = 4, .Ev = 4};
  const auto w = normal<TypeParam>({n.E}, 3);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (const options& how : every_form(w, {.causal = true, .query_offset = lower_right})) {
    for (int where = 0; where < 4; ++where) {
      auto x = make_inputs<TypeParam>(n);
      if (where == 0) x.q(0, 1, 5, 2) = static_cast<TypeParam>(nan);
      if (where == 1) x.k(0, 0, 7, 1) = static_cast<TypeParam>(nan);
      if (where == 2) x.v(0, 0, 9, 3) = static_cast<TypeParam>(nan);
      backward_call_of<TypeParam> call(std::move(x), how);
      if (where == 3) call.dout(0, 0, 4, 1) = static_cast<TypeParam>(nan);
      EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << where << ", " << form_of(how);
    }
  }
}

TYPED_TEST(gradients_of_forms, where_a_function_has_a_corner_are_zero) {
  const sizes n{.B = 1, .H = 1, .Hk = 1, .L = 5, .S = 7, .E = 6, .Ev = 4};
  const auto zero = [](const auto& all) { return std::all_of(all.begin(), all.end(), [](auto e) { return double(e) == 0; }); };
  // Scores of 0: relu2 and abs have no weights.
  for (const normalizer kind : {normalizer::relu2, normalizer::abs}) {
    const options how{.scale = 0.0, .normalizer = kind};
    const backward_call_of<TypeParam> call(n, how);
    const auto by = call.run(how);
    EXPECT_TRUE(zero(by.dq) && zero(by.dk) && zero(by.dv)) << form_of(how);
  }
  // Equal elements of l1, zero vectors of cosine: by the definition of the reference.
  for (const compatibility& f : {compatibility::l1, compatibility::cosine}) {
    auto x = make_inputs<TypeParam>(n);
    for (std::int64_t d = 0; d < n.E; ++d) {
      if (f.kind == compatibility_kind::l1) x.k(0, 0, 2, d) = x.q(0, 0, 3, d);
      if (f.kind == compatibility_kind::cosine) x.q(0, 0, 3, d) = x.k(0, 0, 2, d) = TypeParam(0);
    }
    const options how{.compatibility = f, .normalizer = normalizer::sigmoid};
    const backward_call_of<TypeParam> call(std::move(x), how);
    const auto by = call.run(how);
    EXPECT_TRUE(gradients_right(by, call.truth(how))) << form_of(how);
    if (f.kind != compatibility_kind::cosine) continue;
    for (std::int64_t d = 0; d < n.E; ++d) EXPECT_TRUE(double(by.dq(0, 0, 3, d)) == 0 && double(by.dk(0, 0, 2, d)) == 0);
  }
}

TYPED_TEST(gradients_of_forms, of_large_and_small_scores_stay_in_range) {
  const sizes n{.B = 1, .H = 1, .Hk = 1, .L = 9, .S = 20, .E = 4, .Ev = 4};
  const double most = sizeof(accumulator<TypeParam>) == 8 ? 1e120 : 1e15;
  for (const double scale : {most, 1 / most}) {
    for (const normalizer kind : {normalizer::relu2, normalizer::abs, normalizer::mean}) {
      const options how{.scale = scale, .normalizer = kind};
      const backward_call_of<TypeParam> call(n, how);
      if (kind == normalizer::mean && sizeof(TypeParam) == 2) continue;  // dv leaves the range of halves
      EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << scale << ", " << form_of(how);
    }
  }
}

}  // namespace
}  // namespace attend::test
