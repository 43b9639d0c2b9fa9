// Whatever scratch memory held before, results have the same bits: it is filled with patterns before every work item.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "scratch.hpp"
#include "support/form.hpp"
#include "support/varlen.hpp"

namespace attend::test {
namespace {

/// NaN of either type and -1, and a large finite number of either type.
constexpr int patterns[] = {0xff, 0x7f};

/// Fills what calls keep from one to the next, for as many blocks of memory as a call holds at once.
void dirty_calls(int pattern, int deep = 6) {
  constexpr std::int64_t bytes = 6 << 20;
  if (deep == 0) return;
  detail::call_scratch memory(bytes);
  std::memset(memory.data(), pattern, bytes);
  dirty_calls(pattern, deep - 1);
}

/// Items one after the other, each with scratch that holds a pattern.
struct dirty_scratch : executor {
  int pattern = 0;
  std::int64_t items = 0;

  void parallel_for(std::int64_t count, int, const body& run) override {
    constexpr std::int64_t bytes = 1 << 20;
    for (std::int64_t i = 0; i < count; ++i, ++items) {
      std::memset(detail::thread_scratch(bytes), pattern, bytes);
      run(i);
    }
  }
};

template <class T>
struct scratch : testing::Test {};
TYPED_TEST_SUITE(scratch, sized_types);

/// Both kernels; split keys, whole blocks; widths that fill no vector.
const std::vector<sizes> problems = {{.B = 1, .H = 2, .Hk = 1, .L = 1, .S = 2100, .E = 5, .Ev = 3},
                                     {.B = 2, .H = 4, .Hk = 2, .L = 3, .S = 301, .E = 17, .Ev = 7},
                                     {.B = 1, .H = 2, .Hk = 1, .L = 20, .S = 1600, .E = 3, .Ev = 5},
                                     {.B = 2, .H = 2, .Hk = 2, .L = 70, .S = 99, .E = 9, .Ev = 1}};

/// `call` gives the same with clean memory and with either pattern.
template <class Call>
void expect_unmoved(options how, const Call& call, const std::string& what) {
  const auto want = call(how);
  for (const int pattern : patterns) {
    dirty_scratch dirty;
    dirty.pattern = pattern;
    how.executor = &dirty;
    dirty_calls(pattern);
    EXPECT_TRUE(same_bits(call(how), want)) << what << ", pattern " << pattern;
    EXPECT_GT(dirty.items, 0) << "the executor was not used";
  }
}

TYPED_TEST(scratch, of_any_contents_changes_no_bit_of_scores_and_weights) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const score_arrays<TypeParam> arrays(n);
    for (auto [name, how] : arrays.calls()) {
      for (const bool reproducible : {false, true}) {
        how.reproducible = reproducible;
        expect_unmoved(how, [&](const options& one) { return compute(x, one, true); }, name + ", " + n.to_string());
      }
      expect_unmoved(
          how, [&](const options& one) { return scores_of<TypeParam>(x.q, x.k, x.v, one, score_stage::biased); },
          name + ", scores, " + n.to_string());
    }
  }
}

TYPED_TEST(scratch, of_any_contents_changes_no_bit_of_any_form) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto w = normal<TypeParam>({n.E}, 9), table = normal<TypeParam>({n.H, 31}, 10);
    const auto mask = coins({n.L, n.S}, 11, 0.7);
    for (const options& how : every_form(w, {.query_offset = 20, .mask = mask, .relative = table}))
      expect_unmoved(how, [&](const options& one) { return compute(x, one, true); }, form_of(how) + ", " + n.to_string());
  }
}

TYPED_TEST(scratch, of_any_contents_changes_no_bit_where_rows_are_gathered_or_neighbors) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    unaligned<TypeParam> k(x.k), v(x.v);
    for (const bool nan : {false, true}) {  // an allowed NaN has chunks computed twice
      auto q = copy(x.q);
      if (nan) q(0, 0, 0, 0) = std::numeric_limits<TypeParam>::quiet_NaN();
      expect_unmoved(
          {.causal = true, .query_offset = lower_right},
          [&](const options& one) { return compute<TypeParam>(q, k.view(), v.view(), one, true); },
          "gathered, " + n.to_string());
    }
  }
  const auto cells = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = 143, .S = 143, .E = 4, .Ev = 3});
  for (const grid_size& dilation : {grid_size(1), grid_size(2, 3)})
    expect_unmoved(
        {.grid = {11, 13}, .neighborhood = {.kernel = 3, .dilation = dilation}},
        [&](const options& one) { return compute(cells, one, true); }, "neighborhood");
}

TYPED_TEST(scratch, of_any_contents_changes_no_bit_of_packed_sequences) {
  const sizes heads{.H = 4, .Hk = 2, .E = 5, .Ev = 3};
  const auto x = make_packed<TypeParam>({{0, 0}, {1, 40}, {90, 90}, {5, 3}, {0, 7}, {3, 0}, {2, 2100}, {30, 1700}}, heads);
  const auto of_q = random_ids({x.queries()}, 3, -1, 1), of_k = random_ids({x.keys()}, 4, -1, 1);
  for (const options& how : {options{}, options{.causal = true, .alibi = true},
                             options{.query_segments = of_q, .key_segments = of_k, .dropout = {.p = 0.2, .seed = 3}}})
    expect_unmoved(how, [&](const options& one) { return compute(x, one); }, "packed");
}

}  // namespace
}  // namespace attend::test
