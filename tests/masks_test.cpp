// What excludes keys: causal, windows, prefixes, lengths, booleans and biases, alone and together, against the reference.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "support/compute.hpp"
#include "support/memory.hpp"

namespace attend::test {
namespace {

template <class T>
struct masks : testing::Test {};
TYPED_TEST_SUITE(masks, element_types);

/// Few queries, one block of lanes, several: with and without a tile boundary among the keys.
const std::vector<sizes> problems = {
    {.B = 3, .H = 4, .Hk = 2, .L = 1, .S = 9, .E = 8, .Ev = 6},
    {.B = 3, .H = 2, .Hk = 1, .L = 3, .S = 250, .E = 8, .Ev = 6},
    {.B = 3, .H = 2, .Hk = 1, .L = 40, .S = 31, .E = 8, .Ev = 6},
    {.B = 3, .H = 2, .Hk = 2, .L = quick() ? 70 : 150, .S = quick() ? 110 : 230, .E = 5, .Ev = 7}};

template <class T>
void expect_right(const std::function<options(const sizes&)>& make, const std::string& what) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<T>(n);
    for (const bool reproducible : {false, true}) {
      options how = make(n);
      how.reproducible = reproducible;
      EXPECT_TRUE(right(x, how, true)) << what << ": " << n.to_string() << (reproducible ? ", reproducible" : "");
    }
  }
}

template <class T>
void expect_right(const options& how, const std::string& what) {
  expect_right<T>([&](const sizes&) { return how; }, what);
}

tensor<std::int64_t> integers(std::initializer_list<std::int64_t> values) {
  tensor<std::int64_t> x({static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), x.begin());
  return x;
}

const std::vector<query_position>& offsets() {
  static const tensor<std::int64_t> each = integers({-7, 3, 400});
  static const std::vector<query_position> all = {upper_left, lower_right, 0, 1, -1, -3, 8, 95, 96, 97, 229, 1000, -1000, each};
  return all;
}

TYPED_TEST(masks, causal_is_right_at_every_offset) {
  for (const query_position& at : offsets()) expect_right<TypeParam>({.causal = true, .query_offset = at}, "causal");
}

TYPED_TEST(masks, windows_are_right_at_every_offset) {
  const std::vector<window> windows = {{0, 0},  {0, {}},  {{}, 0}, {2, 1},  {95, 0},
                                       {96, 1}, {3, 120}, {{}, 5}, {5, {}}, {1'000'000, 2}};
  for (const query_position& at : offsets()) {
    for (const window& w : windows) expect_right<TypeParam>({.window = w, .query_offset = at}, "window");
  }
}

TYPED_TEST(masks, causal_and_window_intersect) {
  for (const window& w : std::vector<window>{{0, 0}, {7, 9}, {100, {}}, {{}, 3}}) {
    expect_right<TypeParam>({.causal = true, .window = w, .query_offset = lower_right}, "causal, window");
  }
}

TYPED_TEST(masks, windows_of_any_size_do_not_overflow) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const window& w : std::vector<window>{{most, 0}, {0, most}, {most, most}, {most - 1, {}}, {std::int64_t(1) << 40, 0}}) {
    expect_right<TypeParam>({.window = w, .query_offset = upper_left}, "window up to 2^63-1");
    expect_right<TypeParam>({.causal = true, .window = w, .query_offset = lower_right}, "causal, window up to 2^63-1");
  }
}

TYPED_TEST(masks, offsets_of_any_size_do_not_overflow) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t at : {most, most - 1, most / 2, least, least + 1, least / 2}) {
    options how{.causal = true, .window = {5, {}}, .query_offset = query_position(at)};
    for (const sizes& n : problems) {
      const auto x = make_inputs<TypeParam>(n);
      // Positions that leave 64 bits may be refused, never misread: nothing is visible from so far away.
      if (check(x.q, x.k, x.v, outputs{}, how)) continue;
      for (const auto value : compute(x, how).out) ASSERT_EQ(value, 0) << "query_offset " << at;
    }
  }
}

TYPED_TEST(masks, prefixes_are_seen_beside_causal_and_window) {
  const auto each = integers({0, 2, 1000});
  for (const batch_integers& prefix :
       {batch_integers(0), batch_integers(1), batch_integers(5), batch_integers(97), batch_integers(each)}) {
    expect_right<TypeParam>({.causal = true, .query_offset = lower_right, .prefix = prefix}, "prefix, causal");
    expect_right<TypeParam>({.window = {3, 2}, .query_offset = upper_left, .prefix = prefix}, "prefix, window");
    expect_right<TypeParam>({.causal = true, .window = {1, {}}, .query_offset = 4, .prefix = prefix}, "prefix, causal, window");
    expect_right<TypeParam>({.causal = true, .query_offset = -60, .prefix = prefix}, "prefix, causal before the keys");
  }
}

TYPED_TEST(masks, key_lengths_are_right) {
  for (const std::int64_t length : {0, 1, 5, 9}) expect_right<TypeParam>({.key_lengths = length}, "one length");
  const auto each = integers({9, 0, 5});
  expect_right<TypeParam>({.key_lengths = each}, "a length per batch");
  expect_right<TypeParam>({.causal = true, .query_offset = lower_right, .key_lengths = each},
                          "the last query stands at the last key");
  expect_right<TypeParam>({.window = {2, 1}, .query_offset = lower_right, .key_lengths = each}, "window, lengths");
  expect_right<TypeParam>(
      [&](const sizes& n) { return options{.causal = true, .query_offset = upper_left, .prefix = n.S, .key_lengths = n.S}; },
      "whole length");
}

TYPED_TEST(masks, lengths_and_offsets_may_have_any_batch_axes_and_strides) {
  const auto q = normal<TypeParam>({2, 3, 2, 4, 5}, 1), k = normal<TypeParam>({3, 1, 7, 5}, 2),
             v = normal<TypeParam>({2, 1, 1, 7, 3}, 3);
  tensor<std::int64_t> lengths({2, 3}), offset({3, 2});
  for (std::int64_t i = 0; i < 6; ++i) lengths.data()[i] = (5 * i) % 8, offset.data()[i] = i - 2;
  const tensor_view<const std::int64_t> turned(offset.data(), {2, 3}, {1, 2});
  const options how{.causal = true, .query_offset = turned, .key_lengths = lengths};
  EXPECT_TRUE(as_reference(compute<TypeParam>(q, k, v, how, true), q, k, v, how));
}

/// Shapes that broadcast against (B, H, L, S), as axes of size n or 1 from the right.
std::vector<extents> broadcast_shapes(const sizes& n) {
  std::vector<extents> all = {{}};
  const std::int64_t full[] = {n.B, n.H, n.L, n.S};
  for (int rank = 1; rank <= 4; ++rank) {
    for (int kept = 0; kept < 1 << rank; ++kept) {
      extents shape;
      for (int axis = 0; axis < rank; ++axis) shape.push_back(kept >> axis & 1 ? full[4 - rank + axis] : 1);
      all.push_back(shape);
    }
  }
  return all;
}

TYPED_TEST(masks, boolean_masks_of_every_broadcast_shape_are_right) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const extents& shape : broadcast_shapes(n)) {
      const auto mask = coins(shape, 5, 0.7);
      EXPECT_TRUE(right(x, {.mask = mask}, true)) << n.to_string() << ", mask " << shape.to_string();
      EXPECT_TRUE(right(x, {.mask = mask, .reproducible = true}, true)) << n.to_string() << ", mask " << shape.to_string();
    }
  }
}

TYPED_TEST(masks, biases_of_every_broadcast_shape_are_right) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const extents& shape : broadcast_shapes(n)) {
      auto bias = normal<TypeParam>(shape, 5, 2);
      random_source source(6);
      for (TypeParam& value : bias)
        if (source.coin(0.2)) value = static_cast<TypeParam>(-infinity);
      EXPECT_TRUE(right(x, {.bias = bias}, true)) << n.to_string() << ", bias " << shape.to_string();
      EXPECT_TRUE(right(x, {.bias = bias, .reproducible = true}, true)) << n.to_string() << ", bias " << shape.to_string();
    }
  }
}

TEST(masks_of_double, take_a_float32_bias) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<double>(n);
    const auto bias = normal<float>({n.H, n.L, n.S}, 7, 2);
    tensor<double> wide(bias.shape());
    std::copy(bias.begin(), bias.end(), wide.begin());
    EXPECT_TRUE(right(x, {.bias = bias}, true)) << n.to_string();
    EXPECT_TRUE(same_bits(compute(x, {.bias = bias}, true), compute(x, {.bias = wide}, true))) << n.to_string();
  }
}

TYPED_TEST(masks, and_biases_may_have_any_strides) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const extents shape{n.B, n.H, n.L, n.S};
    const auto mask = coins(shape, 8, 0.6);
    const auto bias = normal<TypeParam>(shape, 9);
    const auto want = compute(x, {.mask = mask, .bias = bias}, true);
    const std::vector<extents> orders = {{n.H * n.L * n.S, n.L * n.S, 1, n.L},                       // transposed
                                         {n.H * n.L * n.S * 3, n.L * n.S * 3, n.S * 3, 3},           // every third
                                         {n.H * n.L * n.S, n.L * n.S, n.S, -1},                      // backwards
                                         {-n.H * n.L * (n.S + 5), n.L * (n.S + 5), -(n.S + 5), 1}};  // padded rows, upside down
    for (const extents& strides : orders) {
      strided<bool> placed_mask(mask, strides);
      strided<TypeParam> placed_bias(bias, strides);
      const options how{.mask = placed_mask.view(), .bias = placed_bias.view()};
      EXPECT_TRUE(same_bits(compute(x, how, true), want)) << n.to_string() << ", strides " << strides.to_string();
    }
  }
}

TYPED_TEST(masks, axes_of_size_one_and_stride_zero_broadcast) {
  const sizes n{.B = 2, .H = 3, .Hk = 3, .L = 5, .S = 7, .E = 8, .Ev = 4};
  const auto x = make_inputs<TypeParam>(n);
  const auto rows = normal<TypeParam>({2, 5}, 5, 10);
  const tensor_view<const TypeParam> bias(rows.data(), {2, 1, 5, 1},
                                          {5, 12345, 1, 99999});  // the stride of an axis of size 1 has no meaning
  const tensor_view<const TypeParam> zero(rows.data(), {2, 3, 5, 7}, {5, 0, 1, 0});
  EXPECT_TRUE(right(x, {.bias = bias}, true));
  EXPECT_TRUE(same_bits(compute(x, {.bias = bias}, true), compute(x, {.bias = zero}, true)));
  const bool truth = true, lie = false;
  const tensor_view<const bool> all(&truth, {2, 3, 5, 7}, {0, 0, 0, 0}), none(&lie, {2, 3, 5, 7}, {0, 0, 0, 0});
  EXPECT_TRUE(same_bits(compute(x, {.mask = all}, true), compute(x, {}, true)));
  for (const auto value : compute(x, {.mask = none}, true).out) EXPECT_EQ(value, 0);
}

TYPED_TEST(masks, all_combined_are_the_intersection) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n, 3);
    const auto mask = coins({n.B, 1, n.L, n.S}, 4, 0.8);
    auto bias = normal<TypeParam>({n.H, 1, n.S}, 5);
    bias(0, 0, n.S / 2) = static_cast<TypeParam>(-infinity);
    const auto lengths = integers({n.S, n.S / 2, 1}), prefix = integers({2, 0, 3}), offset = integers({n.S - n.L, 3, -1});
    for (const double scale : {0.3, -0.7, 0.0}) {
      const options how{.causal = true,
                        .window = {20, 4},
                        .query_offset = offset,
                        .prefix = prefix,
                        .key_lengths = lengths,
                        .mask = mask,
                        .bias = bias,
                        .scale = scale};
      EXPECT_TRUE(right(x, how, true)) << n.to_string() << ", scale " << scale;
    }
  }
}

TYPED_TEST(masks, rows_that_lose_every_key_are_zero_with_lse_minus_infinity) {
  const sizes n{.B = 1, .H = 2, .Hk = 1, .L = 70, .S = 150, .E = 8, .Ev = 5};
  const auto x = make_inputs<TypeParam>(n);
  tensor<bool> mask({n.L, 1}, true);
  tensor<TypeParam> bias({n.L, 1});
  for (std::int64_t i = 0; i < n.L; i += 3) mask(i, 0) = false, bias(i, 0) = static_cast<TypeParam>(-infinity);
  for (const options& how : {options{.mask = mask}, options{.bias = bias}}) {
    const auto y = compute(x, how, true);
    EXPECT_TRUE(as_reference(y, x.q, x.k, x.v, how));
    for (std::int64_t i = 0; i < n.L; i += 3) {
      EXPECT_EQ(double(y.lse(0, 1, i)), -infinity);
      for (std::int64_t c = 0; c < n.Ev; ++c) EXPECT_EQ(y.out(0, 1, i, c), 0);
      for (std::int64_t j = 0; j < n.S; ++j) EXPECT_EQ(y.weights(0, 1, i, j), 0);
    }
  }
}

TYPED_TEST(masks, a_row_whose_first_blocks_are_excluded_starts_late) {
  for (const std::int64_t L : {1, 33, 600, 1025}) {
    const auto x = make_inputs<TypeParam>({.L = L, .S = 2000, .E = 2, .Ev = 2});
    EXPECT_TRUE(right(x, {.window = {9, 0}, .query_offset = 2000 - L})) << L;
    tensor<bool> last({2000});
    last(1999) = true;
    const auto y = compute(x, {.mask = last});
    for (std::int64_t i = 0; i < L; ++i) EXPECT_EQ(y.out(0, 0, i, 1), x.v(0, 0, 1999, 1)) << "one key takes all, bit for bit";
  }
}

}  // namespace
}  // namespace attend::test
