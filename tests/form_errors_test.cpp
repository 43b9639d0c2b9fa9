// What the general form refuses: compatibility functions, normalizers, grids, neighbourhoods and tables that are not right.
#include <gtest/gtest.h>

#include <vector>

#include "support/refusal.hpp"

namespace attend::test {
namespace {

/// As many queries as keys: 12, a grid of 3 x 4.
void on_a_grid(call& c) {
  static const tensor<float> q = normal<float>({2, 4, 12, 8}, 1), k = normal<float>({2, 2, 12, 8}, 2),
                             v = normal<float>({2, 2, 12, 6}, 3);
  c.q_view = q, c.k_view = k, c.v_view = v;
  c.out = tensor<float>({2, 4, 12, 6}, 7.0f), c.lse = tensor<float>({2, 4, 12}, 7.0f),
  c.weights = tensor<float>({2, 4, 12, 12}, 7.0f);
  c.results = {.out = c.out, .lse = c.lse, .weights = c.weights};
  c.how.grid = {3, 4};
}

void expect_refusal_on_a_grid(const std::string& argument, const std::vector<std::string>& words,
                              const std::function<void(call&)>& spoil,
                              argument_error::kind fault = argument_error::kind::value) {
  expect_refusal(
      argument, words,
      [&](call& c) {
        on_a_grid(c);
        ASSERT_EQ(check(c.q_view, c.k_view, c.v_view, c.results, c.how), std::nullopt) << "the call is right so far";
        spoil(c);
      },
      fault);
}

TEST(refused, are_functions_that_do_not_exist) {
  expect_refusal("compatibility", {"77"}, [](call& c) { c.how.compatibility.kind = static_cast<compatibility_kind>(77); });
  expect_refusal("normalizer", {"99"}, [](call& c) { c.how.normalizer = static_cast<normalizer>(99), c.results.lse = {}; });
}

TEST(refused, are_widths_of_a_gaussian_that_are_not_above_0) {
  for (const double sigma : {0.0, -0.0, -1.5, infinity, -infinity, std::numeric_limits<double>::quiet_NaN()})
    expect_refusal("sigma", {"finite", "above 0"}, [&](call& c) { c.how.compatibility = gaussian(sigma); });
}

TEST(refused, are_weights_of_additive_that_do_not_fit) {
  static const tensor<float> short_one({7}), matrix({1, 8}), number{extents{}};
  static const tensor<double> doubles({8});
  static const tensor<std::int64_t> integers({8});
  static const tensor<bool> booleans({8});
  expect_refusal("additive", {"none"}, [](call& c) { c.how.compatibility.kind = compatibility_kind::additive; });
  for (const array_view& weights : {array_view(short_one), array_view(matrix), array_view(number)})
    expect_refusal("additive", {"(8,)", weights.shape.to_string()}, [&](call& c) { c.how.compatibility = additive(weights); });
  expect_refusal("additive", {"float32", "float64"}, [](call& c) { c.how.compatibility = additive(doubles); }, type_fault);
  expect_refusal("additive", {"float32", "int64"}, [](call& c) { c.how.compatibility = additive(integers); }, type_fault);
  expect_refusal("additive", {"float32", "bool"}, [](call& c) { c.how.compatibility = additive(booleans); }, type_fault);
  expect_refusal("additive", {"null"}, [](call& c) { c.how.compatibility = additive(tensor_view<const float>(nullptr, {8})); });
  expect_refusal("additive", {"2^63"}, [](call& c) {
    static const float one = 1;
    c.how.compatibility = additive(tensor_view<const float>(&one, {8}, {std::int64_t{1} << 61}));
  });
}

TEST(refused, are_scales_that_are_not_finite_with_every_compatibility) {
  static const tensor<float> w({8});
  for (const compatibility& f : {compatibility::cosine, gaussian(1), compatibility::l1, additive(w), compatibility::none}) {
    for (const double scale : {infinity, std::numeric_limits<double>::quiet_NaN()})
      expect_refusal("scale", {"finite"}, [&](call& c) { c.how.compatibility = f, c.how.scale = scale; });
  }
}

TEST(refused, is_an_lse_that_no_normalizer_but_softmax_has) {
  for (const normalizer z : {normalizer::mean, normalizer::sum, normalizer::sigmoid, normalizer::relu2, normalizer::abs}) {
    expect_refusal("lse", {"softmax", std::string(name_of(z))}, [&](call& c) { c.how.normalizer = z; });
    call c;
    c.how.normalizer = z, c.results.lse = {};
    EXPECT_EQ(check(c.q_view, c.k_view, c.v_view, c.results, c.how), std::nullopt) << name_of(z);
  }
}

TEST(refused, are_grids_that_are_not_the_queries_and_keys) {
  expect_refusal("grid", {"(1, 3)", "3 queries", "5 keys"}, [](call& c) { c.how.grid = {1, 3}; });
  expect_refusal("grid", {"(1, 5)", "3 queries", "5 keys"}, [](call& c) { c.how.grid = {1, 5}; });
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  for (const grid_size& grid :
       {grid_size(3, 5), grid_size(4, 4), grid_size(0, 0), grid_size(12), grid_size(-3, -4), grid_size(huge, huge)})
    expect_refusal_on_a_grid("grid", {"L = S", "12 queries", "12 keys"}, [&](call& c) { c.how.grid = grid; });
}

TEST(refused, are_neighborhoods_without_a_grid) {
  expect_refusal("neighborhood", {"grid", "none"}, [](call& c) { c.how.neighborhood = {.kernel = 3}; });
  expect_refusal_on_a_grid("neighborhood", {"grid", "none"},
                           [](call& c) { c.how.grid = {}, c.how.neighborhood = {.kernel = 3}; });
}

TEST(refused, are_kernels_and_dilations_of_impossible_sizes) {
  for (const grid_size& kernel :
       {grid_size(2), grid_size(0), grid_size(-1), grid_size(3, 4), grid_size(2, 3), grid_size(3, -3)})
    expect_refusal_on_a_grid("neighborhood", {"odd"}, [&](call& c) { c.how.neighborhood = {.kernel = kernel}; });
  for (const grid_size& dilation : {grid_size(0), grid_size(-1), grid_size(1, 0), grid_size(-2, 1)})
    expect_refusal_on_a_grid("dilation", {"at least 1"},
                             [&](call& c) { c.how.neighborhood = {.kernel = 3, .dilation = dilation}; });
  expect_refusal_on_a_grid("border", {"clip", "shift", "9"},
                           [](call& c) { c.how.neighborhood = {.kernel = 3, .border = static_cast<border>(9)}; });
}

TEST(refused, are_shifted_kernels_that_do_not_fit) {
  const std::vector<std::pair<grid_size, grid_size>> wrong = {{5, 1}, {{5, 1}, 1}, {{1, 5}, 1},
                                                              {3, 2}, {{1, 3}, 2}, {{3, 1}, 2}};
  for (const auto& [kernel, dilation] : wrong) {
    expect_refusal_on_a_grid("neighborhood", {"shifted", "(3, 4)"}, [&](call& c) {
      c.how.neighborhood = {.kernel = kernel, .dilation = dilation, .border = border::shift};
    });
    call c;
    on_a_grid(c);
    c.how.neighborhood = {.kernel = kernel, .dilation = dilation};
    EXPECT_EQ(check(c.q_view, c.k_view, c.v_view, c.results, c.how), std::nullopt) << "clipped, every kernel fits";
  }
  call c;
  on_a_grid(c);
  c.how.neighborhood = {.kernel = {3, 1}, .dilation = {1, 4}, .border = border::shift};
  EXPECT_EQ(check(c.q_view, c.k_view, c.v_view, c.results, c.how), std::nullopt);
}

TEST(refused, are_tables_that_do_not_fit) {
  static const std::vector<extents> wrong_lines = {{9}, {1, 8}, {1, 0}, {2, 9}, {3, 9}, {0, 9}, {4, 3, 3}, {1, 1, 9}, {}};
  for (const extents& shape : wrong_lines) {
    const tensor<float> table(shape);
    expect_refusal("relative", {"4 or 1", "2R+1", shape.to_string()},
                   [&](call& c) { c.how.query_offset = 0, c.how.relative = table; });
  }
  static const std::vector<extents> wrong_planes = {{3, 3},    {1, 9},    {1, 2, 3}, {1, 3, 4},
                                                    {2, 3, 3}, {0, 3, 3}, {1, 0, 3}, {1, 1, 3, 3}};
  for (const extents& shape : wrong_planes) {
    const tensor<float> table(shape);
    expect_refusal_on_a_grid("relative", {"4 or 1", "2C+1", shape.to_string()}, [&](call& c) { c.how.relative = table; });
  }
}

TEST(refused, are_tables_of_another_dtype_or_without_memory) {
  static const tensor<double> doubles({1, 9});
  static const tensor<std::int64_t> integers({1, 9});
  static const tensor<bool> booleans({1, 9});
  const auto with = [](const array_view& table) {
    return [table](call& c) { c.how.query_offset = 0, c.how.relative = table; };
  };
  expect_refusal("relative", {"float32", "float64"}, with(doubles), type_fault);
  expect_refusal("relative", {"float32", "int64"}, with(integers), type_fault);
  expect_refusal("relative", {"float32", "bool"}, with(booleans), type_fault);
  expect_refusal("relative", {"null"}, with(tensor_view<const float>(nullptr, {1, 9})));
  static const float one = 1;
  expect_refusal("relative", {"2^63"}, with(tensor_view<const float>(&one, {4, 9}, {1, std::int64_t{1} << 61})));
}

TEST(refused, is_a_table_along_a_sequence_without_an_anchor) {
  static const tensor<float> table({1, 9});
  expect_refusal("query_offset", {"upper_left", "lower_right", "3", "5"}, [](call& c) { c.how.relative = table; });
  const auto square = make_inputs<float>({.L = 4, .S = 4, .E = 2, .Ev = 2});
  EXPECT_FALSE(check(square.q, square.k, square.v, outputs{}, {.relative = table}));
}

TEST(refused, are_results_that_share_memory_with_tables_or_weights) {
  expect_refusal("out", {"relative"}, [](call& c) {
    c.how.query_offset = 0;
    c.how.relative = tensor_view<const float>(c.out.data() + 20, {1, 9});
  });
  expect_refusal("lse", {"relative"}, [](call& c) {
    c.how.query_offset = 0;
    c.how.relative = tensor_view<const float>(c.lse.data() + 3, {1, 9});
  });
  expect_refusal("weights", {"relative"}, [](call& c) {
    c.how.query_offset = 0;
    c.how.relative = tensor_view<const float>(c.weights.data() + 100, {1, 9}, {1, -5});
  });
  expect_refusal("out", {"additive"},
                 [](call& c) { c.how.compatibility = additive(tensor_view<const float>(c.out.data(), {8})); });
  expect_refusal("weights", {"additive"},
                 [](call& c) { c.how.compatibility = additive(tensor_view<const float>(c.weights.data() + 5, {8}, {0})); });
}

TEST(refused, come_before_any_work_in_the_reference_for_the_general_form_too) {
  call c;
  const tensor<float> table({2, 9});
  EXPECT_THROW(reference::attention(c.q_view, c.k_view, c.v_view, {.compatibility = gaussian(0)}), argument_error);
  EXPECT_THROW(reference::attention(c.q_view, c.k_view, c.v_view, {.query_offset = 0, .relative = table}), argument_error);
  EXPECT_THROW(reference::attention(c.q_view, c.k_view, c.v_view, {.neighborhood = {.kernel = 3}}), argument_error);
}

}  // namespace
}  // namespace attend::test
