// Shapes, tensors and views: the vocabulary of every call.
#include <gtest/gtest.h>

#include <numeric>
#include <type_traits>

#include "attend/attend.hpp"

namespace attend::test {
namespace {

TEST(extents, hold_up_to_eight_sizes) {
  extents shape{2, 3};
  EXPECT_EQ(shape.rank(), 2);
  EXPECT_EQ(shape.count(), 6);
  shape.push_back(4);
  shape[0] = 5;
  EXPECT_EQ(shape, (extents{5, 3, 4}));
  EXPECT_NE(shape, (extents{5, 3}));
  EXPECT_EQ(extents{}.count(), 1) << "a number";
  EXPECT_EQ((extents{1, 2, 3, 4, 5, 6, 7, 8}).rank(), max_rank);
  EXPECT_THROW((extents{1, 2, 3, 4, 5, 6, 7, 8}).push_back(9), argument_error);
  EXPECT_THROW((extents{1, 1, 1, 1, 1, 1, 1, 1, 1}), argument_error);
}

TEST(extents, print_as_python_does) {
  EXPECT_EQ((extents{2, 8, 128, 64}).to_string(), "(2, 8, 128, 64)");
  EXPECT_EQ(extents{7}.to_string(), "(7,)");
  EXPECT_EQ(extents{}.to_string(), "()");
}

TEST(extents, count_without_overflow) {
  constexpr std::int64_t big = std::int64_t{1} << 32;
  EXPECT_THROW((extents{big, big}).count(), argument_error);
  EXPECT_THROW((extents{std::int64_t{1} << 61}).count(), argument_error) << "times 16 bytes";
  EXPECT_EQ((extents{0, 5}).count(), 0);
  EXPECT_THROW((extents{3, -1}).count(), argument_error);
}

TEST(dtypes, have_names_and_sizes) {
  EXPECT_EQ(name_of(dtype::f32), "float32");
  EXPECT_EQ(name_of(dtype::f64), "float64");
  EXPECT_EQ(name_of(dtype::boolean), "bool");
  EXPECT_EQ(name_of(dtype::i64), "int64");
  EXPECT_EQ(name_of(dtype::none), "none");
  static_assert(size_of(dtype::f32) == 4 && size_of(dtype::f64) == 8 && size_of(dtype::boolean) == 1 &&
                size_of(dtype::i64) == 8);
  static_assert(dtype_of<float> == dtype::f32 && dtype_of<int> == dtype::none);
}

TEST(tensors, are_row_major_and_filled) {
  tensor<float> x({2, 3, 4}, 1.5f);
  EXPECT_EQ(x.size(), 24);
  for (const float value : x) EXPECT_EQ(value, 1.5f);
  std::iota(x.begin(), x.end(), 0.0f);
  EXPECT_EQ(x(1, 2, 3), 23);
  EXPECT_EQ(x(1, 0, 0), 12);
  const tensor<double> zeros({3});
  for (const double value : zeros) EXPECT_EQ(value, 0);
  EXPECT_EQ(tensor<float>().size(), 0);
  EXPECT_EQ(tensor<float>({0, 4}).size(), 0);
}

TEST(tensors, move_and_are_not_copied_by_accident) {
  static_assert(!std::is_copy_constructible_v<tensor<float>> && std::is_nothrow_move_constructible_v<tensor<float>>);
  tensor<float> x({2, 2}, 3);
  const float* const memory = x.data();
  const tensor<float> y = std::move(x);
  EXPECT_EQ(y.data(), memory);
  EXPECT_EQ(y(1, 1), 3);
}

TEST(views, read_through_any_strides) {
  float memory[12];
  std::iota(memory, memory + 12, 0.0f);
  const tensor_view<float> turned(memory, {4, 3}, {1, 4});
  EXPECT_EQ(turned(2, 1), 6);
  const tensor_view<float> backwards(memory + 11, {12}, {-1});
  EXPECT_EQ(backwards(0), 11);
  EXPECT_EQ(backwards(11), 0);
  const tensor_view<float> same(memory, {5, 5}, {0, 0});
  EXPECT_EQ(same(4, 4), 0);
  backwards(11) = 9;
  EXPECT_EQ(memory[0], 9);
  const tensor_view<const float> read_only = turned;
  EXPECT_EQ(read_only(0, 0), 9);
  static_assert(!std::is_constructible_v<tensor_view<float>, tensor_view<const float>>);
}

TEST(array_views, keep_the_element_type_as_a_value) {
  tensor<double> x({2, 3});
  const array_view read = x;
  EXPECT_EQ(read.type, dtype::f64);
  EXPECT_EQ(read.shape, (extents{2, 3}));
  EXPECT_EQ(read.strides, (extents{3, 1}));
  EXPECT_EQ(read.data, x.data());
  const mutable_array_view write = x;
  EXPECT_EQ(array_view(write).data, x.data());
  EXPECT_FALSE(array_view{});
  EXPECT_TRUE(array_view(tensor<float>({0, 3}))) << "given, though without elements";
  static_assert(tensor_like<tensor<float>> && tensor_like<tensor_view<const double>> && !tensor_like<int>);
}

TEST(the_version, is_that_of_the_headers) {
  EXPECT_EQ(version(), std::to_string(ATTEND_VERSION_MAJOR) + "." + std::to_string(ATTEND_VERSION_MINOR) + "." +
                           std::to_string(ATTEND_VERSION_PATCH));
}

}  // namespace
}  // namespace attend::test
