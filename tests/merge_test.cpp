// Merging: the weighted mean of its definition, whatever the strides, for every kind of part.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <vector>

#include "support/compute.hpp"
#include "support/refusal.hpp"

namespace attend::test {
namespace {

template <class T>
class merging : public testing::Test {};
TYPED_TEST_SUITE(merging, stored_types);

template <class T>
constexpr T nan_of = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr T infinity_of = std::numeric_limits<T>::infinity();

template <class T>
struct parts {
  std::vector<tensor<T>> outs;
  std::vector<tensor<accumulator<T>>> lses;

  void add(tensor<T> out, tensor<accumulator<T>> lse) {
    outs.push_back(std::move(out));
    lses.push_back(std::move(lse));
  }
  extents rows() const { return lses[0].shape(); }
  std::int64_t columns() const { return outs[0].shape()[outs[0].shape().rank() - 1]; }
};

template <class T>
parts<T> random_parts(std::size_t count, const extents& rows, std::int64_t columns, std::uint64_t seed, double spread = 5) {
  parts<T> all;
  for (std::size_t part = 0; part < count; ++part)
    all.add(normal<T>(appended(rows, columns), 100 * seed + part),
            normal<accumulator<T>>(rows, 100 * seed + 50 + part, spread));
  return all;
}

/// Finite parts alone. In long double, without the running maximum's help where it is not needed.
template <class T>
testing::AssertionResult is_weighted_mean(const merged<T>& got, const parts<T>& from) {
  constexpr long double half_unit = std::numeric_limits<T>::epsilon() / 2,
                        half_unit_of_logs = std::numeric_limits<accumulator<T>>::epsilon() / 2;
  const long double own = std::is_same_v<T, double> ? 1e-16L * static_cast<long double>(from.outs.size() + 10) : 1e-14L;
  const long double tiny =
      std::is_same_v<T, accumulator<T>> ? 0 : static_cast<long double>(std::numeric_limits<T>::denorm_min());
  if (got.out.shape() != from.outs[0].shape() || got.lse.shape() != from.rows()) return testing::AssertionFailure() << "shapes";
  for (std::int64_t row = 0; row < from.lses[0].size(); ++row) {
    long double top = -INFINITY, sum = 0;
    for (const auto& lse : from.lses) top = std::max<long double>(top, lse.data()[row]);
    for (const auto& lse : from.lses) sum += std::exp(static_cast<long double>(lse.data()[row]) - top);
    const long double log_sum = top + std::log(sum);
    if (const long double off = std::abs(got.lse.data()[row] - log_sum);
        !(off <= half_unit_of_logs * std::abs(log_sum) * 1.001L + own * std::max(1.0L, std::abs(log_sum))))
      return testing::AssertionFailure() << "lse of row " << row << ": " << got.lse.data()[row] << ", expected "
                                         << static_cast<double>(log_sum);
    for (std::int64_t c = 0; c < from.columns(); ++c) {
      long double mean = 0, largest_part = 0;
      for (std::size_t part = 0; part < from.outs.size(); ++part) {
        const long double value = from.outs[part].data()[row * from.columns() + c];
        mean += std::exp(static_cast<long double>(from.lses[part].data()[row]) - log_sum) * value;
        largest_part = std::max(largest_part, std::abs(value));
      }
      const T is = got.out.data()[row * from.columns() + c];
      if (!(std::abs(is - mean) <= half_unit * std::abs(mean) * 1.001L + own * largest_part + tiny))
        return testing::AssertionFailure() << "out of row " << row << ", column " << c << ": " << is << ", expected "
                                           << static_cast<double>(mean);
    }
  }
  return testing::AssertionSuccess();
}

TYPED_TEST(merging, is_the_weighted_mean_rounded_once) {
  using T = TypeParam;
  std::uint64_t seed = 0;
  for (const std::size_t count : {1, 2, 3, 7, 20}) {
    for (const extents& rows : {extents{}, extents{5}, extents{3, 2}, extents{2, 3, 7}, extents{1, 2, 1, 2, 1, 2, 3}}) {
      for (const std::int64_t columns : {1, 2, 63, 64, 65, 130}) {
        const auto x = random_parts<T>(count, rows, columns, ++seed);
        EXPECT_TRUE(is_weighted_mean(merge(x.outs, x.lses), x)) << count << " parts " << rows.to_string() << " " << columns;
      }
    }
  }
  const auto far = random_parts<T>(4, {50}, 3, 999, 300);  // weights that underflow
  EXPECT_TRUE(is_weighted_mean(merge(far.outs, far.lses), far));
}

TYPED_TEST(merging, of_one_part_returns_its_bits) {
  using T = TypeParam;
  auto x = random_parts<T>(1, {4, 9}, 33, 1);
  x.outs[0](0, 0, 0) = nan_of<T>, x.outs[0](0, 0, 1) = infinity_of<T>, x.outs[0](1, 2, 3) = -infinity_of<T>;
  x.outs[0](2, 2, 2) = std::numeric_limits<T>::max(), x.outs[0](2, 2, 3) = std::numeric_limits<T>::denorm_min();
  using logs = std::numeric_limits<accumulator<T>>;
  x.lses[0](3, 3) = logs::max(), x.lses[0](3, 4) = logs::lowest();
  const auto got = merge(x.outs, x.lses);
  EXPECT_TRUE(same_bits(got.out, x.outs[0]));
  EXPECT_TRUE(same_bits(got.lse, x.lses[0]));
}

TYPED_TEST(merging, takes_nothing_from_a_part_whose_lse_is_minus_infinity) {
  using T = TypeParam;
  for (const T garbage : {T(0), T(3), nan_of<T>, infinity_of<T>}) {
    for (const bool first : {true, false}) {
      auto x = random_parts<T>(2, {3, 5}, 17, 2);
      const std::size_t nothing = first ? 0 : 1, kept = first ? 1 : 0;
      x.outs[nothing] = tensor<T>(x.outs[0].shape(), garbage),
      x.lses[nothing] = tensor<accumulator<T>>(x.rows(), -infinity_of<accumulator<T>>);
      const auto got = merge(x.outs, x.lses);
      EXPECT_TRUE(same_bits(got.out, x.outs[kept])) << garbage;
      EXPECT_TRUE(same_bits(got.lse, x.lses[kept])) << garbage;
    }
  }
}

TYPED_TEST(merging, of_parts_that_are_all_nothing_is_nothing) {
  using T = TypeParam;
  parts<T> x;
  for (int part = 0; part < 3; ++part)
    x.add(tensor<T>({2, 3, 4}, nan_of<T>), tensor<accumulator<T>>({2, 3}, -infinity_of<accumulator<T>>));
  const auto got = merge(x.outs, x.lses);
  EXPECT_TRUE(same_bits(got.out, tensor<T>({2, 3, 4}, T(0))));
  EXPECT_TRUE(same_bits(got.lse, x.lses[0]));
}

TYPED_TEST(merging, passes_nan_on_and_gives_nan_for_an_infinite_lse_in_that_row_alone) {
  using T = TypeParam;
  for (const accumulator<T> bad : {nan_of<accumulator<T>>, infinity_of<accumulator<T>>}) {
    for (std::size_t part = 0; part < 3; ++part) {
      auto x = random_parts<T>(3, {4}, 6, 3);
      const auto before = merge(x.outs, x.lses);
      x.lses[part](2) = bad;
      const auto got = merge(x.outs, x.lses);
      for (std::int64_t row = 0; row < 4; ++row) {
        for (std::int64_t c = 0; c < 6; ++c) {
          if (row == 2)
            EXPECT_TRUE(std::isnan(got.out(row, c)));
          else
            EXPECT_EQ(got.out(row, c), before.out(row, c));
        }
        EXPECT_EQ(std::isnan(got.lse(row)), row == 2);
      }
    }
  }
  auto x = random_parts<T>(2, {2}, 3, 4);
  x.outs[1](1, 2) = nan_of<T>, x.outs[0](0, 0) = infinity_of<T>;
  const auto got = merge(x.outs, x.lses);
  EXPECT_TRUE(std::isnan(got.out(1, 2)) && std::isfinite(got.out(1, 1)) && std::isfinite(got.out(0, 1)));
  EXPECT_EQ(got.out(0, 0), infinity_of<T>);
  x.outs[1](0, 0) = -infinity_of<T>;
  EXPECT_TRUE(std::isnan(merge(x.outs, x.lses).out(0, 0)));
}

TYPED_TEST(merging, of_the_largest_numbers_stays_in_range) {
  using T = TypeParam;
  constexpr T most = std::numeric_limits<T>::max();
  for (const std::size_t count : {2, 3, 5, 11, 17, 49}) {  // eleven equal weights add up to more than 1
    for (const T value : {most, -most}) {
      parts<T> x;
      for (std::size_t part = 0; part < count; ++part) {
        const double log = count < 11 ? 0.1 * static_cast<double>(part) : 0;
        x.add(tensor<T>({1, 2}, value), tensor<accumulator<T>>({1}, static_cast<accumulator<T>>(log)));
        x.outs.back()(0, 1) = part % 2 ? value : -value;
      }
      const auto got = merge(x.outs, x.lses);
      EXPECT_TRUE(std::isfinite(got.out(0, 0)) && std::isfinite(got.out(0, 1)));
      EXPECT_NEAR(static_cast<double>(got.out(0, 0) / value), 1, 1e-14);
    }
  }
  parts<T> high;
  constexpr auto most_of_logs = std::numeric_limits<accumulator<T>>::max();
  for (int part = 0; part < 2; ++part) high.add(tensor<T>({1, 1}, T(part)), tensor<accumulator<T>>({1}, most_of_logs));
  EXPECT_EQ(merge(high.outs, high.lses).lse(0), most_of_logs);
  EXPECT_EQ(merge(high.outs, high.lses).out(0, 0), T(0.5));
}

TYPED_TEST(merging, gives_zeros_no_sign) {
  using T = TypeParam;
  parts<T> x;
  for (int part = 0; part < 2; ++part) x.add(tensor<T>({2, 70}, T(-0.0)), tensor<accumulator<T>>({2}, accumulator<T>(part)));
  EXPECT_TRUE(same_bits(merge(x.outs, x.lses).out, tensor<T>({2, 70}, T(0))));
}

TYPED_TEST(merging, does_not_depend_on_the_order_of_parts_beyond_rounding) {
  using T = TypeParam;
  auto x = random_parts<T>(5, {6}, 9, 5);
  std::swap(x.outs[0], x.outs[4]), std::swap(x.lses[0], x.lses[4]);
  std::swap(x.outs[1], x.outs[3]), std::swap(x.lses[1], x.lses[3]);
  EXPECT_TRUE(is_weighted_mean(merge(x.outs, x.lses), x));
}

TYPED_TEST(merging, reads_and_writes_any_strides_and_nothing_else) {
  using T = TypeParam;
  const auto x = random_parts<T>(3, {2, 3}, 70, 6);
  const auto plain = merge(x.outs, x.lses);
  const extents steps[] = {{1000, -300, 2}, {-3, 7, 30}, {211, 70, -1}}, log_steps[] = {{-1, 5}, {3, 1}, {0, 0}};
  std::vector<strided<T>> outs;
  std::vector<strided<accumulator<T>>> lses;
  std::vector<array_view> out_views, lse_views;
  for (std::size_t part = 0; part < 3; ++part) outs.emplace_back(x.outs[part], steps[part]);
  for (std::size_t part = 0; part < 2; ++part) lses.emplace_back(x.lses[part], log_steps[part]);
  for (auto& out : outs) out_views.emplace_back(out.view());
  for (auto& lse : lses) lse_views.emplace_back(lse.view());
  lse_views.emplace_back(x.lses[2]);
  for (const extents& out_steps : {extents{210, 70, 1}, extents{-1, -3, 40}, extents{500, 150, 2}}) {
    strided<T> out({2, 3, 70}, out_steps);
    strided<accumulator<T>> lse({2, 3}, {-4, 11});
    merge(out_views, lse_views, {.out = out.view(), .lse = lse.view()});
    EXPECT_TRUE(same_bits(out.values(), plain.out) && same_bits(lse.values(), plain.lse)) << out_steps.to_string();
    EXPECT_TRUE(out.gaps_are_intact() && lse.gaps_are_intact());
  }
  const unaligned<T> odd(x.outs[0]);
  const unaligned<accumulator<T>> odd_lse(x.lses[0]);
  unaligned<T> odd_out(x.outs[0].shape());
  const array_view from[] = {const_cast<unaligned<T>&>(odd).view(), x.outs[1], x.outs[2]};
  const array_view logs[] = {const_cast<unaligned<accumulator<T>>&>(odd_lse).view(), x.lses[1], x.lses[2]};
  merge(from, logs, {.out = odd_out.view()});
  EXPECT_TRUE(same_bits(odd_out.values(), plain.out));
}

TYPED_TEST(merging, gives_each_result_without_the_other) {
  using T = TypeParam;
  const auto x = random_parts<T>(2, {3}, 5, 7);
  const auto both = merge(x.outs, x.lses);
  const array_view outs[] = {x.outs[0], x.outs[1]}, lses[] = {x.lses[0], x.lses[1]};
  tensor<T> out({3, 5});
  tensor<accumulator<T>> lse({3});
  merge(outs, lses, {.out = out});
  merge(outs, lses, {.lse = lse});
  EXPECT_TRUE(same_bits(out, both.out) && same_bits(lse, both.lse));
}

TYPED_TEST(merging, has_the_same_bits_on_any_number_of_threads_and_in_any_rounding_mode) {
  using T = TypeParam;
  const auto x = random_parts<T>(3, {40, 50}, 65, 8);
  const int threads = num_threads();
  set_num_threads(1);
  const auto alone = merge(x.outs, x.lses);
  set_num_threads(5);
  const auto shared = merge(x.outs, x.lses);
  set_num_threads(threads);
  std::fesetround(FE_UPWARD);
  const auto upward = merge(x.outs, x.lses);
  const int mode = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(mode, FE_UPWARD);
  EXPECT_TRUE(same_bits(alone.out, shared.out) && same_bits(alone.lse, shared.lse));
  EXPECT_TRUE(same_bits(alone.out, upward.out) && same_bits(alone.lse, upward.lse));
}

TYPED_TEST(merging, parts_of_attention_is_attention) {
  using T = TypeParam;
  const auto x = make_inputs<T>({.B = 2, .H = 4, .Hk = 2, .L = 5, .S = 30, .E = 8, .Ev = 6});
  const tensor<bool> mask = coins({2, 4, 5, 30}, 9, 0.3);
  const auto part = [](const auto& all, int axis, std::int64_t first, std::int64_t count) {
    auto view = all.view();
    view.data += first * view.strides[axis], view.shape[axis] = count;
    return view;
  };
  const std::vector<std::int64_t> cuts = {0, 1, 1, 4, 22, 30};  // one part is empty
  parts<T> some;
  for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
    const std::int64_t first = cuts[n], count = cuts[n + 1] - first;
    auto got = compute<T>(x.q, part(x.k, 2, first, count), part(x.v, 2, first, count), {.mask = part(mask, 3, first, count)});
    some.add(std::move(got.out), std::move(got.lse));
  }
  auto all = merge(some.outs, some.lses);
  EXPECT_TRUE(as_reference(computed<T>{std::move(all.out), std::move(all.lse), {}}, x.q, x.k, x.v, {.mask = mask}));
}

TYPED_TEST(merging, of_empty_arrays_writes_what_there_is) {
  using T = TypeParam;
  for (const extents& shape : {extents{0, 4}, extents{3, 0}, extents{0}, extents{2, 0, 5}}) {
    extents rows;
    for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows.push_back(shape[axis]);
    parts<T> x;
    for (int part = 0; part < 2; ++part) x.add(tensor<T>(shape), tensor<accumulator<T>>(rows, 1));
    const auto got = merge(x.outs, x.lses);
    EXPECT_EQ(got.out.size(), 0);
    for (const auto lse : got.lse) EXPECT_EQ(lse, static_cast<accumulator<T>>(1 + std::log(2.0)));
  }
}

// ---------------------------------------------------------------------------------------------------------------- refusals

struct merge_call {
  tensor<float> y[2], l[2], out{{2, 3}, 7.0f}, lse{{2}, 7.0f};
  std::vector<array_view> outs, lses;
  outputs results{.out = out, .lse = lse};

  merge_call() {
    for (int part = 0; part < 2; ++part) {
      y[part] = tensor<float>({2, 3}, 1.0f), l[part] = tensor<float>({2}, 1.0f);
      outs.emplace_back(y[part]), lses.emplace_back(l[part]);
    }
  }
};

void expect_merge_refusal(const std::string& argument, const std::vector<std::string>& words,
                          const std::function<void(merge_call&)>& spoil,
                          argument_error::kind fault = argument_error::kind::value) {
  merge_call c;
  spoil(c);
  expect_argument_error(argument, words, fault, [&] { merge(c.outs, c.lses, c.results); });
  EXPECT_TRUE(untouched(c.out) && untouched(c.lse)) << argument << ": something was written";
}

TEST(merging_refuses, parts_that_do_not_fit_each_other) {
  static const tensor<float> wide({2, 4}), number{extents{}}, three({3}), matrix({2, 1});
  static const tensor<double> doubles({2, 3}), double_logs({2});
  static const tensor<std::int64_t> integers({2, 3});
  expect_merge_refusal("outs, lses", {"2 and 1"}, [](merge_call& c) { c.lses.pop_back(); });
  expect_merge_refusal("outs, lses", {"0 and 0"}, [](merge_call& c) { c.outs.clear(), c.lses.clear(); });
  expect_merge_refusal("outs[0]", {"array", "none"}, [](merge_call& c) { c.outs[0] = {}; });
  expect_merge_refusal("lses[1]", {"array", "none"}, [](merge_call& c) { c.lses[1] = {}; });
  expect_merge_refusal("outs[0]", {"float32", "int64"}, [](merge_call& c) { c.outs[0] = integers; }, type_fault);
  expect_merge_refusal("outs[1]", {"float32", "float64"}, [](merge_call& c) { c.outs[1] = doubles; }, type_fault);
  expect_merge_refusal("lses[0]", {"float32", "float64"}, [](merge_call& c) { c.lses[0] = double_logs; }, type_fault);
  expect_merge_refusal("outs[0]", {"rank"}, [](merge_call& c) { c.outs[0] = number; });
  expect_merge_refusal("outs[1]", {"(2, 3)", "(2, 4)"}, [](merge_call& c) { c.outs[1] = wide; });
  expect_merge_refusal("lses[1]", {"(2,)", "(3,)"}, [](merge_call& c) { c.lses[1] = three; });
  expect_merge_refusal("lses[0]", {"(2,)", "(2, 1)"}, [](merge_call& c) { c.lses[0] = matrix; });
  expect_merge_refusal("outs[1]", {"null"}, [](merge_call& c) { c.outs[1].data = nullptr; });
  expect_merge_refusal("outs[1]", {"2^63"}, [](merge_call& c) { c.outs[1].strides[0] = std::int64_t{1} << 62; });
  expect_merge_refusal("lses[1]", {"strides"}, [](merge_call& c) { c.lses[1].strides = {}; });
  expect_merge_refusal("shape", {"at least 0", "-1"}, [](merge_call& c) { c.outs[0].shape[0] = -1; });
}

TEST(merging_refuses, sizes_that_do_not_fit_63_bits) {
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  float one = 1;
  const array_view out = tensor_view<float>(&one, {huge, huge, 0}, {0, 0, 0}),
                   lse = tensor_view<float>(&one, {huge, huge}, {0, 0});
  EXPECT_THROW(merge(std::span(&out, 1), std::span(&lse, 1), outputs{}), argument_error);
}

TEST(merging_refuses, results_that_it_cannot_write) {
  static const tensor<double> doubles({2, 3});
  static tensor<double> other({2, 3});
  static tensor<float> wide({2, 4}), weights({2, 3});
  expect_merge_refusal("out", {"float32", "float64"}, [](merge_call& c) { c.results.out = other; }, type_fault);
  expect_merge_refusal("out", {"(2, 3)", "(2, 4)"}, [](merge_call& c) { c.results.out = wide; });
  expect_merge_refusal("lse", {"(2,)", "(2, 4)"}, [](merge_call& c) { c.results.lse = wide; });
  expect_merge_refusal("out", {"null"}, [](merge_call& c) { c.results.out.data = nullptr; });
  expect_merge_refusal("out", {"place of its own"}, [](merge_call& c) { c.results.out.strides = {0, 1}; });
  expect_merge_refusal("out", {"overlaps outs[1]"}, [](merge_call& c) { c.results.out = c.y[1]; });
  expect_merge_refusal("out", {"overlaps lses[0]"},
                       [](merge_call& c) { c.lses[0] = tensor_view<float>(c.out.data() + 1, {2}, {1}); });
  expect_merge_refusal("lse", {"overlaps lses[1]"}, [](merge_call& c) { c.results.lse = c.l[1]; });
  expect_merge_refusal("lse", {"overlaps out"},
                       [](merge_call& c) { c.results.lse = tensor_view<float>(c.out.data() + 4, {2}, {1}); });
  expect_merge_refusal("weights", {"none"}, [](merge_call& c) { c.results.weights = weights; });
  expect_merge_refusal("scores", {"none"}, [](merge_call& c) { c.results.scores = weights; });
}

}  // namespace
}  // namespace attend::test
