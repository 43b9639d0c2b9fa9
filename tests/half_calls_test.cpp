// Calls in bfloat16 and float16. Kernels read and write these, and compute in float32: so a call gives what float32 gives for the same
// numbers, rounded once, bit for bit and for every option.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/c_call.hpp"
#include "support/form.hpp"
#include "support/poison.hpp"
#include "support/varlen.hpp"

namespace attend::test {
namespace {

template <class T>
struct calls_in : testing::Test {};
using half_types = testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(calls_in, half_types);

template <class To, class From>
tensor<To> converted(const tensor<From>& x) {
  tensor<To> y(x.shape());
  std::transform(x.begin(), x.end(), y.begin(), [](From value) { return static_cast<To>(value); });
  return y;
}

template <class T>
inputs<float> widened(const inputs<T>& x) {
  return {converted<float>(x.q), converted<float>(x.k), converted<float>(x.v)};
}

template <class T>
computed<T> rounded(const computed<float>& x) {
  return {converted<T>(x.out), copy(x.lse), x.weights.size() > 0 ? converted<T>(x.weights) : tensor<T>(x.weights.shape())};
}

/// Whether a kernel computes the call that multiplies pairs of bfloat16, and so rounds otherwise than float32 does.
template <class T>
bool by_pairs(const inputs<T>& x, const options& how) {
  return make_plan({.type = dtype_of<T>, .q = x.q.shape(), .k = x.k.shape(), .v = x.v.shape()}, how).facts().kernel ==
         "forward_pairs";
}

/// The call in T is that in float32, rounded; by the kernel of few rows where it serves, and by that of many. Products of pairs are held to the
/// reference instead, and did not give float32's bits, where there are enough of them to tell.
template <class T>
void expect_rounded(const inputs<T>& x, options how, const inputs<float>& wide, options wide_how, const std::string& what) {
  for (const bool reproducible : {false, true}) {
    how.reproducible = wide_how.reproducible = reproducible;
    const auto got = compute(x, how, true), in_float = rounded<T>(compute(wide, wide_how, true));
    if (by_pairs(x, how)) {
      EXPECT_TRUE(as_reference(got, x.q, x.k, x.v, how)) << what;
      EXPECT_TRUE(x.q.shape()[2] < 16 || !same_bits(got.out, in_float.out)) << what << ": products of pairs were not used";
      continue;
    }
    EXPECT_TRUE(same_bits(got, in_float)) << what << (reproducible ? ", reproducible" : "");
    for (const score_stage stage : {score_stage::scaled, score_stage::capped, score_stage::biased}) {
      EXPECT_TRUE(same_bits(scores_of<T>(x.q, x.k, x.v, how, stage),
                            converted<T>(scores_of<float>(wide.q, wide.k, wide.v, wide_how, stage))))
          << what << (reproducible ? ", reproducible, " : ", ") << name_of(stage);
    }
  }
}

const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 300, .E = 72, .Ev = 40},
                                     {.B = 2, .H = 3, .Hk = 1, .L = 5, .S = 1100, .E = 17, .Ev = 33},
                                     {.B = 2, .H = 2, .Hk = 1, .L = 70, .S = 200, .E = 35, .Ev = 21}};

TYPED_TEST(calls_in, any_option_of_scores_are_those_in_float32) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto wide = widened(x);
    const score_arrays<TypeParam> own(n);
    score_arrays<float> in_float(n);
    in_float.slopes = converted<float>(own.slopes), in_float.sinks = converted<float>(own.sinks);
    in_float.bias = converted<float>(own.bias), in_float.row = converted<float>(own.row);
    const auto calls = own.calls(), same = in_float.calls();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::string what = calls[i].name + ", " + n.to_string();
      expect_rounded(x, calls[i].how, wide, same[i].how, what);
      expect_rounded(x, same[i].how, wide, same[i].how, what + ", beside arrays of float32");
    }
  }
}

TYPED_TEST(calls_in, any_form_are_those_in_float32) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto wide = widened(x);
    const auto w = normal<TypeParam>({n.E}, 5);
    const auto in_float = converted<float>(w);
    const auto forms = every_form(w), same = every_form(in_float);
    for (std::size_t i = 0; i < forms.size(); ++i) {
      if (forms[i].normalizer != normalizer::softmax && i % 7 != 0) continue;  // every normalizer, once
      expect_rounded(x, forms[i], wide, same[i], form_of(forms[i]) + ", " + n.to_string());
    }
  }
}

TYPED_TEST(calls_in, any_table_are_those_in_float32) {
  const grid_size grid(9, 8);
  const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = 72, .S = 72, .E = 9, .Ev = 8});
  const auto few = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = 3, .S = 300, .E = 9, .Ev = 8});
  auto table = normal<TypeParam>({2, 5, 7}, 6), row = normal<TypeParam>({2, 41}, 7);
  table(1, 2, 2) = row(0, 30) = TypeParam(-infinity);
  const auto wide_table = converted<float>(table), wide_row = converted<float>(row);
  for (const neighborhood& around : {neighborhood{}, neighborhood{.kernel = {3, 5}}}) {
    const options how{.grid = grid, .neighborhood = around, .relative = table};
    options wide_how = how;
    wide_how.relative = wide_table;
    expect_rounded(x, how, widened(x), wide_how, "grid");
    expect_rounded(x, wide_how, widened(x), wide_how, "grid, table of float32");
  }
  for (const inputs<TypeParam>* one : {&x, &few})
    expect_rounded(*one, {.query_offset = 20, .relative = row}, widened(*one), {.query_offset = 20, .relative = wide_row},
                   "row");
}

TYPED_TEST(calls_in, nan_and_infinity_are_those_in_float32) {
  using limits = std::numeric_limits<TypeParam>;
  for (const sizes& n : problems) {
    const auto mask = coins({n.S}, 3, 0.6);
    for (const TypeParam poison : {limits::quiet_NaN(), limits::infinity(), limits::lowest(), limits::denorm_min()}) {
      for (const bool excluded : {false, true}) {
        const auto x =
            poisoned(make_inputs<TypeParam>(n), poison, [&](auto, auto j) { return j % 7 == 3 && mask(j) != excluded; });
        const auto wide = widened(x);
        for (const bool reproducible : {false, true}) {
          const options how{.mask = mask, .reproducible = reproducible};
          if (by_pairs(x, how)) {
            // Of the lowest number, sums overflow before they are divided.
            const bool overflows = poison == limits::lowest() && !excluded;
            EXPECT_TRUE(overflows || right(x, how)) << poison << ", " << n.to_string();
            continue;
          }
          const auto got = compute(x, how), want = rounded<TypeParam>(compute(wide, how));
          for (std::int64_t i = 0; i < got.out.size(); ++i) {
            const float a = got.out.data()[i], b = want.out.data()[i];
            ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)))
                << poison << ", " << n.to_string() << ": " << a << ", " << b;
          }
        }
      }
    }
  }
}

TYPED_TEST(calls_in, packed_sequences_are_those_in_float32) {
  const sequence_lengths lengths = {{0, 3}, {70, 70}, {1, 2000}, {4, 0}, {9, 9}, {130, 1700}, {1, 1}};
  const auto x = make_packed<TypeParam>(lengths, {.H = 4, .Hk = 2, .E = 9, .Ev = 7});
  auto wide = make_packed<float>(lengths, {.H = 4, .Hk = 2, .E = 9, .Ev = 7});
  wide.q = converted<float>(x.q), wide.k = converted<float>(x.k), wide.v = converted<float>(x.v);
  for (const bool reproducible : {false, true}) {
    const options how{.causal = true, .alibi = true, .reproducible = reproducible};
    EXPECT_TRUE(right(x, how)) << reproducible;
    const bool pairs = dtype_of<TypeParam> == dtype::bf16 && available_isas().back() >= isa::avx512_bf16;
    if (!pairs) {
      EXPECT_TRUE(same_bits(compute(x, how), rounded<TypeParam>(compute(wide, how)))) << reproducible;
    }
  }
}

TYPED_TEST(calls_in, scores_beyond_the_largest_half_do_not_overflow) {
  for (const std::int64_t L : {1, 70}) {
    const sizes n{.B = 1, .H = 1, .Hk = 1, .L = L, .S = 130, .E = 64, .Ev = 5};
    auto x = make_inputs<TypeParam>(n);
    for (auto* const values : {&x.q, &x.k})
      for (TypeParam& value : *values) value = TypeParam(300 + 8 * double(value));  // scores of 64 * 300^2
    const options how{.scale = 1};
    const auto y = compute(x, how);
    EXPECT_TRUE(as_reference(y, x.q, x.k, x.v, how));
    for (const float lse : y.lse) EXPECT_TRUE(lse > 4e6 && std::isfinite(lse)) << lse;
  }
}

TYPED_TEST(calls_in, c_are_those_of_cpp) {
  const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = 3, .S = 9, .E = 5, .Ev = 6});
  const auto want = compute(x);
  tensor<TypeParam> out(want.out.shape());
  tensor<float> lse(want.lse.shape());
  c_array q{array_view(x.q)}, k{array_view(x.k)}, v{array_view(x.v)}, to{array_view(out)}, logs{array_view(lse)};
  attend_results results = ATTEND_INIT(attend_results);
  results.out = to.get(), results.lse = logs.get();
  ASSERT_EQ(attend_attention(q.get(), k.get(), v.get(), &results, nullptr), ATTEND_OK) << attend_last_error();
  EXPECT_TRUE(same_bits(out, want.out) && same_bits(lse, want.lse));
}

TYPED_TEST(calls_in, which_dtypes_disagree_are_refused) {
  static const auto same = normal<TypeParam>({2, 4, 3, 8}, 1);
  static const tensor<double> doubles({3, 5});
  static const tensor<TypeParam> halves({3, 5});
  static tensor<TypeParam> logs({2, 4, 3});
  const std::string name(name_of(dtype_of<TypeParam>));
  expect_refusal("k", {name, "float32"}, [](call& c) { c.q_view = same; }, type_fault);
  expect_refusal("bias", {"float32", name}, [](call& c) { c.how.bias = halves; }, type_fault);
  expect_refusal("lse", {"float32", name}, [](call& c) { c.results.lse = logs; }, type_fault);
  const auto x = make_inputs<TypeParam>({.B = 1, .H = 1, .Hk = 1, .L = 3, .S = 5, .E = 2, .Ev = 2});
  const auto why = [&](const outputs& results, const options& how) { return check(x.q, x.k, x.v, results, how).value_or(""); };
  EXPECT_NE(why({}, {.bias = doubles}).find("bias: expected " + name + " or float32, got float64"), std::string::npos);
  tensor<TypeParam> half_logs({1, 1, 3});
  EXPECT_NE(why({.lse = half_logs}, {}).find("lse: expected float32, got " + name), std::string::npos);
}

TYPED_TEST(calls_in, plans_say_what_runs_and_keep_scratch_apart_from_lengths) {
  const auto facts_of = [](std::int64_t L, std::int64_t S) {
    return make_plan({.type = dtype_of<TypeParam>, .q = {1, L, 64}, .k = {1, S, 64}, .v = {1, S, 64}}).facts();
  };
  EXPECT_EQ(facts_of(1, 100).kernel, "few_queries");
  const bool pairs = facts_of(100, 100).kernel == "forward_pairs";
  EXPECT_TRUE(pairs || facts_of(100, 100).kernel == "forward");
  EXPECT_EQ(facts_of(100, 100).type, dtype_of<TypeParam>);
  const isa set = make_plan({.type = dtype::f32, .q = {4, 4}, .k = {4, 4}, .v = {4, 4}}).facts().set;
  for (const std::int64_t L : {1, 1000}) {
    if (L == 1 || !pairs) {
      EXPECT_EQ(facts_of(L, 1000).set, set) << "halves are served by the set that serves float32";
    }
    EXPECT_EQ(facts_of(L, 10'000).scratch_bytes_per_thread, facts_of(L, 100'000).scratch_bytes_per_thread);
    EXPECT_LT(facts_of(L, 100'000).scratch_bytes_per_thread, pairs ? 2 << 20 : 1 << 20);
  }
}

}  // namespace
}  // namespace attend::test
