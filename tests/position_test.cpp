// Rotary embeddings: the definition's rotation, whatever the layout, the strides and the position, and where angles come from.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <vector>

#include "support/compute.hpp"
#include "support/refusal.hpp"

namespace attend::test {
namespace {

template <class T>
class rotary_embeddings : public testing::Test {};
TYPED_TEST_SUITE(rotary_embeddings, stored_types);

constexpr std::int64_t far_token = std::int64_t{1} << 31;

/// How far a result of rotating the pair (a, b) may be from the truth: half a unit in the last place, in float64 a few of the
/// pair's size.
template <class T>
double turn_bound(double a, double b, double truth) {
  const double size = std::hypot(a, b);
  using limits = std::numeric_limits<T>;
  if (std::is_same_v<T, double>) return 5e-16 * size;
  return static_cast<double>(limits::epsilon()) / 2 * std::abs(truth) + 1e-15 * size +
         static_cast<double>(limits::denorm_min());
}

struct pair_of_turn {
  long double cos, sin;
};

/// Element c of a row turned by `angle(pair)`, in long double, and how far it may be off.
template <class T, class Angle>
std::pair<double, double> turned_element(const T* row, std::int64_t c, std::int64_t width, const rotary& how,
                                         const Angle& angle) {
  const std::int64_t n = how.dimensions == 0 ? width : how.dimensions;
  if (c >= n) return {row[c], 0};
  const std::int64_t m = how.interleaved ? c / 2 : c % (n / 2);
  const bool second = how.interleaved ? c % 2 == 1 : c >= n / 2;
  const long double a = row[how.interleaved ? 2 * m : m], b = row[how.interleaved ? 2 * m + 1 : m + n / 2];
  const pair_of_turn t = angle(m, n / 2);
  const auto truth = static_cast<double>(second ? a * t.sin + b * t.cos : a * t.cos - b * t.sin);
  return {truth, turn_bound<T>(static_cast<double>(a), static_cast<double>(b), truth)};
}

/// The angle of a position, by long double.
auto by_base(long double position, double base) {
  return [=](std::int64_t m, std::int64_t pairs) {
    const long double angle = position * std::pow(static_cast<long double>(base), -static_cast<long double>(m) / pairs);
    return pair_of_turn{std::cos(angle), std::sin(angle)};
  };
}

/// Every token of (B, H, L, E) turned by `angle(b, token)`; `more` is what the truth itself may be off, by the size of a pair.
template <class T, class AngleOf>
testing::AssertionResult is_turned(const tensor<T>& got, const tensor<T>& x, const rotary& how, double more,
                                   const AngleOf& angle_of) {
  if (got.shape() != x.shape()) return testing::AssertionFailure() << got.shape().to_string();
  const std::int64_t B = x.shape()[0], width = x.shape()[3];
  const bool heads_first = how.layout == layout::bhld;
  const std::int64_t H = x.shape()[heads_first ? 1 : 2], L = x.shape()[heads_first ? 2 : 1];
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t i = 0; i < L; ++i) {
        const std::int64_t row = ((b * x.shape()[1] + (heads_first ? h : i)) * x.shape()[2] + (heads_first ? i : h)) * width;
        for (std::int64_t c = 0; c < width; ++c) {
          const auto [truth, bound] = turned_element(x.data() + row, c, width, how, angle_of(b, i));
          const auto is = static_cast<double>(got.data()[row + c]);
          if (!(std::abs(is - truth) <= bound * 1.001 + more * 10))
            return testing::AssertionFailure()
                   << place(x.shape(), row + c) << ": " << is << ", expected " << truth << " within " << bound + more * 10;
        }
      }
    }
  }
  return testing::AssertionSuccess();
}

TYPED_TEST(rotary_embeddings, are_the_definition_for_every_form) {
  using T = TypeParam;
  std::uint64_t seed = 0;
  for (const std::int64_t width : {2, 4, 6, 34, 64, 130}) {
    for (const std::int64_t dimensions : {std::int64_t{0}, std::int64_t{2}, width - 2, width}) {
      if (dimensions > width || (dimensions == 0 && width == 4)) continue;
      for (const bool interleaved : {false, true}) {
        for (const layout order : {layout::bhld, layout::blhd}) {
          for (const double base : {1.0, 10000.0, 500000.0, 3.5, 1e300}) {
            const rotary how{.interleaved = interleaved, .dimensions = dimensions, .base = base, .layout = order};
            const auto x = normal<T>({2, 3, 5, width}, ++seed);
            const auto by_token = [&](std::int64_t, std::int64_t i) { return by_base(static_cast<long double>(-2 + i), base); };
            EXPECT_TRUE(is_turned(rotary_embedding(x, -2, how), x, how, 1e-17, by_token))
                << width << " " << dimensions << " " << interleaved << " " << base;
          }
        }
      }
    }
  }
}

TYPED_TEST(rotary_embeddings, keep_an_odd_rest_as_it_is) {
  using T = TypeParam;
  auto x = normal<T>({1, 2, 3, 7}, 1);
  for (T& value : x) value = std::numeric_limits<T>::quiet_NaN();
  const auto y = rotary_embedding(x, 5, {.dimensions = 4});
  EXPECT_TRUE(same_bits(tensor<T>({1}, y(0, 1, 2, 6)), tensor<T>({1}, x(0, 1, 2, 6))));
}

TYPED_TEST(rotary_embeddings, stand_at_integers_per_token) {
  using T = TypeParam;
  const auto x = normal<T>({2, 3, 4, 16}, 3);
  random_source random(4);
  for (const extents& shape : {extents{4}, extents{1, 4}, extents{2, 4}}) {
    tensor<std::int64_t> positions(shape);
    for (std::int64_t& position : positions) position = random.between(-100000, 100000);
    const auto at = [&](std::int64_t b, std::int64_t i) {
      return by_base(static_cast<long double>(positions.data()[(shape.rank() == 2 && shape[0] == 2 ? b * 4 : 0) + i]), 10000);
    };
    EXPECT_TRUE(is_turned(rotary_embedding(x, positions), x, {}, 2e-14, at)) << shape.to_string();
    const auto spread = strided<std::int64_t>(positions, shape.rank() == 1 ? extents{-3} : extents{1, 7});
    EXPECT_TRUE(
        same_bits(rotary_embedding(x, const_cast<strided<std::int64_t>&>(spread).view()), rotary_embedding(x, positions)));
  }
  tensor<std::int64_t> counted({4});
  for (int i = 0; i < 4; ++i) counted(i) = 1000 + i;
  EXPECT_TRUE(same_bits(rotary_embedding(x, counted), rotary_embedding(x, 1000)));
}

// Angles p / 10^m are integers here, which long double holds exactly: nothing but the library's own error is left.
TYPED_TEST(rotary_embeddings, keep_their_accuracy_at_positions_up_to_two_to_the_31) {
  using T = TypeParam;
  const auto x = normal<T>({1, 2, 1, 8}, 5);
  for (const std::int64_t position : {far_token / 1000 * 1000, -far_token / 1000 * 1000, std::int64_t{123456789000}}) {
    const auto angle = [&](std::int64_t m, std::int64_t) {
      const auto exact = static_cast<long double>(position / (m == 0 ? 1 : m == 1 ? 10 : m == 2 ? 100 : 1000));
      return pair_of_turn{std::cos(exact), std::sin(exact)};
    };
    for (const bool interleaved : {false, true}) {
      const rotary how{.interleaved = interleaved};
      EXPECT_TRUE(is_turned(rotary_embedding(x, position, how), x, how, 1e-17, [&](auto, auto) { return angle; })) << position;
    }
  }
  // Long double's own frequencies are good for a billionth here.
  const auto wide = normal<T>({1, 1, 3, 128}, 6);
  const auto by_token = [](std::int64_t, std::int64_t i) {
    return by_base(static_cast<long double>(far_token - 2 + i), 500000);
  };
  EXPECT_TRUE(is_turned(rotary_embedding(wide, far_token - 2, {.base = 500000}), wide, {.base = 500000}, 1e-10, by_token));
}

TYPED_TEST(rotary_embeddings, make_dot_products_depend_on_the_distance_alone) {
  using T = TypeParam;
  const auto q = normal<T>({1, 64}, 7), k = normal<T>({1, 64}, 8);
  const auto product = [&](std::int64_t at_q, std::int64_t at_k) {
    const auto a = rotary_embedding(q, at_q), b = rotary_embedding(k, at_k);
    double sum = 0;
    for (std::int64_t c = 0; c < 64; ++c) sum += static_cast<double>(a(0, c)) * static_cast<double>(b(0, c));
    return sum;
  };
  const double bound = std::is_same_v<T, double> ? 1e-13 : 80 * static_cast<double>(std::numeric_limits<T>::epsilon());
  EXPECT_NEAR(product(10, 3), product(1000007, 1000000), bound);
  EXPECT_NEAR(product(10, 3), product(far_token, far_token - 7), bound);
  EXPECT_GT(std::abs(product(10, 3) - product(10, 4)), 0.01);
}

TYPED_TEST(rotary_embeddings, take_every_rank) {
  using T = TypeParam;
  const auto x = normal<T>({2, 3, 4, 6}, 9);
  const auto all = rotary_embedding(x, 7);
  const auto same = [&](const extents& shape, layout order) {
    const tensor_view<const T> view(x.data(), shape);
    const auto y = rotary_embedding(view, 7, {.layout = order});
    return std::equal(y.begin(), y.end(), all.begin());
  };
  EXPECT_TRUE(same({6, 4, 6}, layout::bhld) && same({1, 2, 1, 3, 4, 6}, layout::bhld) && same({4, 6}, layout::bhld));
  EXPECT_TRUE(same({4, 6}, layout::blhd) && same({2, 3, 4, 6}, layout::bhld));
  const tensor_view<const T> tokens_first(x.data(), {2, 4, 3, 6}, {72, 6, 24, 1}), packed(x.data(), {4, 3, 6}, {6, 24, 1});
  EXPECT_EQ(rotary_embedding(tokens_first, 7, {.layout = layout::blhd})(1, 3, 2, 5), all(1, 2, 3, 5));
  EXPECT_EQ(rotary_embedding(packed, 7, {.layout = layout::blhd})(3, 2, 5), all(0, 2, 3, 5));
}

TYPED_TEST(rotary_embeddings, in_place_and_in_any_strides_have_the_same_bits) {
  using T = TypeParam;
  const auto x = normal<T>({2, 3, 5, 10}, 10);
  for (const bool interleaved : {false, true}) {
    for (const std::int64_t dimensions : {0, 6}) {
      const rotary how{.interleaved = interleaved, .dimensions = dimensions};
      const auto plain = rotary_embedding(x, 3, how);
      for (const extents& steps : {extents{150, 50, 10, 1}, extents{-1, 2, 7, -40}, extents{600, 200, 40, 3}}) {
        strided<T> from(x, steps), to({2, 3, 5, 10}, {1, -2, 6, 35});
        rotary_embedding(from.view(), to.view(), 3, how);
        EXPECT_TRUE(same_bits(to.values(), plain) && same_bits(from.values(), x) && to.gaps_are_intact());
        rotary_embedding(from.view(), from.view(), 3, how);
        EXPECT_TRUE(same_bits(from.values(), plain) && from.gaps_are_intact()) << steps.to_string();
      }
      unaligned<T> odd(x);
      rotary_embedding(odd.view(), odd.view(), 3, how);
      EXPECT_TRUE(same_bits(odd.values(), plain));
    }
  }
  const tensor_view<const T> repeated(x.data(), {2, 3, 5, 10}, {0, 0, 10, 1});
  EXPECT_EQ(rotary_embedding(repeated, 3)(1, 2, 4, 9), rotary_embedding(x, 3)(0, 0, 4, 9));
}

TYPED_TEST(rotary_embeddings, have_the_same_bits_on_any_number_of_threads_and_in_any_rounding_mode) {
  using T = TypeParam;
  const auto x = normal<T>({3, 7, 60, 64}, 11);
  const auto alone = rotary_embedding(x, 100, {.threads = 1});
  EXPECT_TRUE(same_bits(rotary_embedding(x, 100, {.threads = 5}), alone));
  std::fesetround(FE_DOWNWARD);
  const auto downward = rotary_embedding(x, 100, {.threads = 1}), shared = rotary_embedding(x, 100, {.threads = 3});
  std::fesetround(FE_TONEAREST);
  EXPECT_TRUE(same_bits(downward, alone) && same_bits(shared, alone));
}

// --------------------------------------------------------------------------------------------------- cosines and sines given

/// Tables of (rows..., pairs) of random angles.
template <class T>
std::pair<tensor<T>, tensor<T>> random_tables(const extents& shape, std::uint64_t seed) {
  tensor<T> cos = normal<T>(shape, seed), sin(shape);
  for (std::int64_t n = 0; n < cos.size(); ++n) {
    const auto angle = static_cast<double>(cos.data()[n]);
    cos.data()[n] = static_cast<T>(std::cos(angle)), sin.data()[n] = static_cast<T>(std::sin(angle));
  }
  return {std::move(cos), std::move(sin)};
}

template <class T>
auto from_tables(const tensor<T>& cos, const tensor<T>& sin, std::int64_t row) {
  return [&cos, &sin, row](std::int64_t m, std::int64_t pairs) {
    return pair_of_turn{static_cast<long double>(cos.data()[row * pairs + m]),
                        static_cast<long double>(sin.data()[row * pairs + m])};
  };
}

TYPED_TEST(rotary_embeddings, read_given_tables_by_position) {
  using T = TypeParam;
  const auto x = normal<T>({2, 3, 4, 10}, 12);
  const auto [cos, sin] = random_tables<T>({9, 3}, 13);
  tensor<std::int64_t> positions({2, 4});
  random_source random(14);
  for (std::int64_t& position : positions) position = random.between(0, 8);
  for (const bool interleaved : {false, true}) {
    const rotary how{.interleaved = interleaved, .dimensions = 6, .cos = cos, .sin = sin};
    const auto given = [&](std::int64_t b, std::int64_t i) { return from_tables(cos, sin, positions(b, i)); };
    EXPECT_TRUE(is_turned(rotary_embedding(x, positions, how), x, how, 0, given));
    const auto counted = [&](std::int64_t, std::int64_t i) { return from_tables(cos, sin, 5 + i); };
    EXPECT_TRUE(is_turned(rotary_embedding(x, 5, how), x, how, 0, counted));
  }
}

TYPED_TEST(rotary_embeddings, read_given_tables_by_token) {
  using T = TypeParam;
  const auto x = normal<T>({2, 3, 4, 10}, 15);
  for (const extents& shape : {extents{4, 5}, extents{1, 4, 5}, extents{2, 4, 5}}) {
    const auto [cos, sin] = random_tables<T>(shape, 16);
    const rotary how{.cos = cos, .sin = sin};
    const bool per_batch = shape.rank() == 3 && shape[0] == 2;
    const auto given = [&, &c = cos, &s = sin](std::int64_t b, std::int64_t i) {
      return from_tables(c, s, (per_batch ? 4 * b : 0) + i);
    };
    const auto y = rotary_embedding(x, {}, how);
    EXPECT_TRUE(is_turned(y, x, how, 0, given)) << shape.to_string();
    const extents steps = shape.rank() == 2 ? extents{-1, 9} : extents{30, -1, 5};
    strided<T> spread(cos, steps);
    EXPECT_TRUE(same_bits(rotary_embedding(x, {}, {.cos = spread.view(), .sin = sin}), y));
  }
}

TEST(rotary_tables, of_float32_turn_float64) {
  const auto x = normal<double>({1, 2, 4, 10}, 17);
  const auto [cos, sin] = random_tables<float>({4, 5}, 18);
  const rotary how{.cos = cos, .sin = sin};
  EXPECT_TRUE(is_turned(rotary_embedding(x, {}, how), x, how, 0,
                        [&, &c = cos, &s = sin](std::int64_t, std::int64_t i) { return from_tables(c, s, i); }));
}

TYPED_TEST(rotary_embeddings, pass_nan_to_the_pair_alone) {
  using T = TypeParam;
  auto x = normal<T>({1, 2, 3, 8}, 19);
  const auto before = rotary_embedding(x, 1);
  x(0, 1, 2, 1) = std::numeric_limits<T>::quiet_NaN();
  const auto y = rotary_embedding(x, 1);
  for_each_index(x.shape(), [&](const extents& at) {
    const bool hit = at == extents{0, 1, 2, 1} || at == extents{0, 1, 2, 5};
    const T value = y(at[0], at[1], at[2], at[3]);
    EXPECT_TRUE(hit ? std::isnan(value) : value == before(at[0], at[1], at[2], at[3])) << at.to_string();
  });
}

TYPED_TEST(rotary_embeddings, of_empty_arrays_are_empty) {
  using T = TypeParam;
  for (const extents& shape :
       {extents{0, 4, 5, 6}, extents{2, 0, 5, 6}, extents{2, 4, 0, 6}, extents{2, 4, 5, 0}, extents{0, 0}})
    EXPECT_EQ(rotary_embedding(tensor<T>(shape), 3).size(), 0) << shape.to_string();
  const tensor<T> tables({0, 3}), x({2, 4, 0, 6});
  EXPECT_EQ(rotary_embedding(x, {}, {.cos = tables, .sin = tables}).size(), 0);
  EXPECT_EQ(rotary_embedding(x, 0, {.cos = tables, .sin = tables}).size(), 0);
}

// ---------------------------------------------------------------------------------------------------------------- refusals

struct rotary_call {
  tensor<float> x = normal<float>({2, 3, 4, 6}, 20), out{{2, 3, 4, 6}, 7.0f};
  tensor<float> cos{{9, 3}, 1.0f}, sin{{9, 3}, 0.0f};
  array_view from = x;
  mutable_array_view to = out;
  token_positions positions = 3;
  rotary how;
};

void expect_rotary_refusal(const std::string& argument, const std::vector<std::string>& words,
                           const std::function<void(rotary_call&)>& spoil,
                           argument_error::kind fault = argument_error::kind::value) {
  rotary_call c;
  spoil(c);
  expect_argument_error(argument, words, fault, [&] { rotary_embedding(c.from, c.to, c.positions, c.how); });
  EXPECT_TRUE(untouched(c.out)) << argument << ": something was written";
}

TEST(rotary_refuses, arrays_that_it_cannot_read_or_write) {
  static const tensor<std::int64_t> integers({2, 3, 4, 6});
  static const tensor<float> row({6}), odd({2, 3, 4, 5});
  static tensor<float> other({2, 3, 4, 8});
  static tensor<double> doubles({2, 3, 4, 6});
  expect_rotary_refusal("x", {"array", "none"}, [](rotary_call& c) { c.from = {}; });
  expect_rotary_refusal("x", {"float32", "int64"}, [](rotary_call& c) { c.from = integers; }, type_fault);
  expect_rotary_refusal("x", {"rank"}, [](rotary_call& c) { c.from = row; });
  expect_rotary_refusal("x", {"even", "5"}, [](rotary_call& c) { c.from = odd; });
  expect_rotary_refusal("x", {"null"}, [](rotary_call& c) { c.from.data = nullptr; });
  expect_rotary_refusal("x", {"2^63"}, [](rotary_call& c) { c.from.strides[0] = std::int64_t{1} << 62; });
  expect_rotary_refusal("out", {"array", "none"}, [](rotary_call& c) { c.to = {}; });
  expect_rotary_refusal("out", {"float32", "float64"}, [](rotary_call& c) { c.to = doubles; }, type_fault);
  expect_rotary_refusal("out", {"(2, 3, 4, 6)", "(2, 3, 4, 8)"}, [](rotary_call& c) { c.to = other; });
  expect_rotary_refusal("out", {"null"}, [](rotary_call& c) { c.to.data = nullptr; });
  expect_rotary_refusal("out", {"place of its own"}, [](rotary_call& c) { c.to.strides[0] = 0; });
  expect_rotary_refusal("out", {"overlaps x"}, [](rotary_call& c) { c.to = c.x, c.to.strides[1] = 6, c.to.strides[2] = 18; });
  expect_rotary_refusal("out", {"overlaps x"}, [](rotary_call& c) {
    c.from = tensor_view<float>(c.out.data(), {1, 3, 4, 6}), c.to = tensor_view<float>(c.out.data() + 1, {1, 3, 4, 6});
  });
  expect_rotary_refusal("out", {"place of its own"}, [](rotary_call& c) {  // repeated elements cannot be turned in place
    c.from = tensor_view<float>(c.out.data(), {2, 3, 4, 6}, {0, 24, 6, 1}),
    c.to = tensor_view<float>(c.out.data(), {2, 3, 4, 6}, {0, 24, 6, 1});
  });
}

TEST(rotary_refuses, options_out_of_range) {
  for (const std::int64_t dimensions : {-2, 3, 8})
    expect_rotary_refusal("dimensions", {"even", "6", std::to_string(dimensions)},
                          [&](rotary_call& c) { c.how.dimensions = dimensions; });
  for (const double base : {0.0, -1.0, 0.999, infinity, std::nan("")})
    expect_rotary_refusal("base", {"finite", "1"}, [&](rotary_call& c) { c.how.base = base; });
  expect_rotary_refusal("threads", {"-1"}, [](rotary_call& c) { c.how.threads = -1; });
  expect_rotary_refusal("layout", {"bhld", "9"}, [](rotary_call& c) { c.how.layout = static_cast<layout>(9); });
}

TEST(rotary_refuses, positions_that_do_not_fit) {
  static const tensor<std::int64_t> five({5}), batches({3, 4}), deep({1, 1, 4}), number{extents{}};
  static const tensor<float> floats({4});
  constexpr std::int64_t farthest = std::int64_t{1} << 40;
  expect_rotary_refusal("positions", {"none"}, [](rotary_call& c) { c.positions = {}; });
  expect_rotary_refusal("positions", {"int64", "float32"}, [](rotary_call& c) { c.positions = floats; }, type_fault);
  for (const auto* wrong : {&five, &batches, &deep, &number})
    expect_rotary_refusal("positions", {"(4,)", "(2, 4)", wrong->shape().to_string()},
                          [&](rotary_call& c) { c.positions = *wrong; });
  for (const std::int64_t first :
       {-farthest - 1, farthest - 2, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()})
    expect_rotary_refusal("positions", {std::to_string(farthest), std::to_string(first)},
                          [&](rotary_call& c) { c.positions = first; });
  static tensor<std::int64_t> far({4});
  far(3) = farthest + 1;
  expect_rotary_refusal("positions", {std::to_string(farthest), "among"}, [](rotary_call& c) { c.positions = far; });
}

TEST(rotary_refuses, tables_that_do_not_fit) {
  static const tensor<float> narrow({9, 2}), shorter({8, 3}), deep({1, 9, 3});
  static const tensor<double> doubles({9, 3});
  const auto tables = [](rotary_call& c) { c.how.cos = c.cos, c.how.sin = c.sin; };
  expect_rotary_refusal("sin", {"none"}, [](rotary_call& c) { c.how.cos = c.cos; });
  expect_rotary_refusal("cos", {"none"}, [](rotary_call& c) { c.how.sin = c.sin; });
  expect_rotary_refusal("base", {"no cosines"}, [&](rotary_call& c) { tables(c), c.how.base = 500; });
  expect_rotary_refusal("cos", {"float32", "float64"}, [&](rotary_call& c) { tables(c), c.how.cos = doubles; }, type_fault);
  expect_rotary_refusal("cos", {"(positions, 3)", "(9, 2)"}, [&](rotary_call& c) { tables(c), c.how.cos = narrow; });
  expect_rotary_refusal("sin", {"(positions, 3)", "(8, 3)"}, [&](rotary_call& c) { tables(c), c.how.sin = shorter; });
  expect_rotary_refusal("cos", {"(1, 9, 3)"}, [&](rotary_call& c) { tables(c), c.how.cos = deep; });
  expect_rotary_refusal("cos", {"(4, 3)", "(9, 3)"}, [&](rotary_call& c) { tables(c), c.positions = {}; });
  expect_rotary_refusal("sin", {"null"}, [&](rotary_call& c) { tables(c), c.how.sin.data = nullptr; });
  expect_rotary_refusal("positions", {"0 to 8", "9"}, [&](rotary_call& c) { tables(c), c.positions = 9; });
  expect_rotary_refusal("positions", {"0 to 8", "4 tokens from 6"}, [&](rotary_call& c) { tables(c), c.positions = 6; });
  expect_rotary_refusal("positions", {"0 to 8", "-1"}, [&](rotary_call& c) { tables(c), c.positions = -1; });
  expect_rotary_refusal("out", {"overlaps cos"},
                        [&](rotary_call& c) { tables(c), c.how.cos = tensor_view<float>(c.out.data(), {9, 3}); });
}

}  // namespace
}  // namespace attend::test
