// Gradients of kernels against the reference's: shapes, options, layouts, strides.
#include <gtest/gtest.h>

#include "support/gradients.hpp"
#include "support/score.hpp"

namespace attend::test {
namespace {

template <class T>
struct gradients_of : testing::Test {};
TYPED_TEST_SUITE(gradients_of, stored_types);

TYPED_TEST(gradients_of, every_shape_are_those_of_the_reference) {
  for (const std::int64_t L : {1, 2, 7, 16, 33, 63, 64, 65, 130}) {
    for (const std::int64_t S : {1, 5, 6, 95, 96, 97, 200}) {
      const sizes n{.B = 2, .H = 2, .Hk = 1, .L = L, .S = S, .E = 9, .Ev = 6};
      const backward_call_of<TypeParam> call(n);
      EXPECT_TRUE(gradients_right(call.run({}), call.truth({}))) << n.to_string();
    }
  }
  for (const std::int64_t E : {0, 1, 2, 8, 15, 16, 17, 32, 40, 64, 72, 128, 150}) {
    for (const std::int64_t Ev : {1, 3, 16, 64, 70}) {
      const sizes n{.B = 1, .H = 3, .Hk = 3, .L = 20, .S = 30, .E = E, .Ev = Ev};
      const backward_call_of<TypeParam> call(n);
      EXPECT_TRUE(gradients_right(call.run({}), call.truth({}))) << n.to_string();
    }
  }
}

TYPED_TEST(gradients_of, grouped_heads_are_summed_up) {
  for (const std::int64_t group : {1, 2, 3, 7, 16, 71}) {
    const sizes n{.B = 2, .H = 2 * group, .Hk = 2, .L = 11, .S = 21, .E = 8, .Ev = 8};
    const backward_call_of<TypeParam> call(n);
    EXPECT_TRUE(gradients_right(call.run({}), call.truth({}))) << n.to_string();
  }
}

TYPED_TEST(gradients_of, many_chunks_and_blocks_are_those_of_the_reference) {
  for (const sizes& n : {sizes{.B = 1, .H = 1, .Hk = 1, .L = 70, .S = 1300, .E = 8, .Ev = 8},
                         sizes{.B = 1, .H = 2, .Hk = 1, .L = 1400, .S = 400, .E = 5, .Ev = 7}}) {
    for (const options& how : {options{}, options{.causal = true, .query_offset = lower_right},
                               options{.window = {50, 20}, .query_offset = lower_right}}) {
      const backward_call_of<TypeParam> call(n, how);
      EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << n.to_string();
    }
  }
}

TYPED_TEST(gradients_of, every_option_of_scores_are_those_of_the_reference) {
  for (const sizes& n : {sizes{.B = 2, .H = 4, .Hk = 2, .L = 5, .S = 9, .E = 4, .Ev = 3},
                         sizes{.B = 2, .H = 2, .Hk = 1, .L = 70, .S = 500, .E = 16, .Ev = 8}}) {
    const score_arrays<TypeParam> arrays(n);
    for (const auto& [name, how] : arrays.calls()) {
      const backward_call_of<TypeParam> call(n, how);
      EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << name << ", " << n.to_string();
    }
  }
}

TYPED_TEST(gradients_of, biases_of_every_shape_are_summed_up_over_what_they_are_broadcast_along) {
  for (const sizes& n : {sizes{.B = 3, .H = 6, .Hk = 2, .L = 5, .S = 7, .E = 4, .Ev = 3},
                         sizes{.B = 2, .H = 7, .Hk = 1, .L = 40, .S = 450, .E = 4, .Ev = 4},
                         sizes{.B = 1, .H = 70, .Hk = 1, .L = 3, .S = 10, .E = 4, .Ev = 4}}) {
    for (int axes = 0; axes < 16; ++axes) {
      const extents shape{axes & 1 ? n.B : 1, axes & 2 ? n.H : 1, axes & 4 ? n.L : 1, axes & 8 ? n.S : 1};
      const auto bias = normal<TypeParam>(shape, 9);
      const options how{.bias = bias};
      const backward_call_of<TypeParam> call(n, how);
      EXPECT_TRUE(gradients_right(call.run(how), call.truth(how))) << shape.to_string() << ", " << n.to_string();
    }
  }
}

TYPED_TEST(gradients_of, tables_are_summed_up_by_offset) {
  for (const std::int64_t heads : {1, 4}) {
    const auto table = normal<TypeParam>({heads, 21}, 3), cells = normal<TypeParam>({heads, 5, 7}, 4);
    const sizes n{.B = 2, .H = 4, .Hk = 2, .L = 30, .S = 450, .E = 8, .Ev = 8};
    const options along{.causal = true, .query_offset = lower_right, .relative = table};
    const backward_call_of<TypeParam> call(n, along);
    EXPECT_TRUE(gradients_right(call.run(along), call.truth(along)));
    const sizes square{.B = 2, .H = 4, .Hk = 2, .L = 99, .S = 99, .E = 8, .Ev = 8};
    for (const options& how :
         {options{.grid = {9, 11}, .relative = cells},
          options{.grid = {9, 11}, .neighborhood = {.kernel = {3, 5}, .dilation = {2, 1}}, .relative = cells}}) {
      const backward_call_of<TypeParam> on_grid(square, how);
      EXPECT_TRUE(gradients_right(on_grid.run(how), on_grid.truth(how)));
    }
  }
}

}  // namespace
}  // namespace attend::test
