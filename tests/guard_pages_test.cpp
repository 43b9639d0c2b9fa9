// Nothing outside the tensors is touched, nor any key past a length: every buffer borders on a page that faults.
#include <gtest/gtest.h>

#include <vector>

#include "support/form.hpp"
#include "support/memory.hpp"

namespace attend::test {
namespace {

template <class T>
struct guard_pages : testing::Test {};
TYPED_TEST_SUITE(guard_pages, sized_types);

/// The call with every array at a guard page gives the bits of the call without.
template <class T>
void expect_inside(const sizes& n, side where, const options& how = {}, const extents& mask_shape = {},
                   const extents& bias_shape = {}, bool masked = false) {
  const auto x = make_inputs<T>(n, 1, how.layout);
  const auto mask = coins(mask_shape, 5, 0.8);
  const auto bias = normal<T>(bias_shape, 6);
  options plain = how, near = how;
  const guarded<T> q(x.q, where), k(x.k, where), v(x.v, where), placed_bias(bias, where);
  const guarded<bool> placed_mask(mask, where);
  if (masked) {
    plain.mask = mask, plain.bias = bias;
    near.mask = placed_mask.view(), near.bias = placed_bias.view();
  }
  const auto want = compute(x, plain, true);
  const guarded<T> out(want.out.shape(), where), weights(want.weights.shape(), where);
  const guarded<accumulator<T>> lse(want.lse.shape(), where);
  attention(q.view(), k.view(), v.view(), outputs{.out = out.view(), .lse = lse.view(), .weights = weights.view()}, near);
  EXPECT_TRUE(same_bits(out.values(), want.out)) << n.to_string();
  EXPECT_TRUE(same_bits(lse.values(), want.lse)) << n.to_string();
  EXPECT_TRUE(same_bits(weights.values(), want.weights)) << n.to_string();
}

const std::vector<side> sides = {side::ends_at_page, side::begins_at_page};

TYPED_TEST(guard_pages, are_never_touched_at_any_width) {
  for (const side where : sides) {
    for (std::int64_t width = 1; width <= 130; width += quick() ? 7 : width < 70 ? 1 : 3) {
      for (const std::int64_t L : {1, 5, 65}) {
        expect_inside<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = 11, .E = width, .Ev = 5}, where);
        expect_inside<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = 11, .E = 3, .Ev = width}, where);
      }
    }
  }
}

TYPED_TEST(guard_pages, are_never_touched_at_any_number_of_keys) {
  for (const side where : sides) {
    for (std::int64_t S = 1; S <= 200; S += quick() ? 9 : S < 100 ? 1 : 5) {
      for (const std::int64_t L : {1, 6, 33})
        expect_inside<TypeParam>({.B = 1, .H = 1, .Hk = 1, .L = L, .S = S, .E = 17, .Ev = 15}, where);
    }
    for (const std::int64_t S : {1535, 1536, 1537})
      expect_inside<TypeParam>({.B = 1, .H = 1, .Hk = 1, .L = 2, .S = S, .E = 3, .Ev = 3}, where);
  }
}

TYPED_TEST(guard_pages, are_never_touched_at_any_number_of_queries) {
  for (const side where : sides) {
    for (std::int64_t L = 1; L <= 140; L += quick() ? 9 : 1) {
      expect_inside<TypeParam>({.B = 1, .H = 2, .Hk = 2, .L = L, .S = 9, .E = 7, .Ev = 6}, where);
      expect_inside<TypeParam>({.B = 1, .H = 3, .Hk = 1, .L = L, .S = 9, .E = 7, .Ev = 6}, where, {.layout = layout::blhd});
      expect_inside<TypeParam>({.B = 1, .H = 2, .Hk = 2, .L = L, .S = 9, .E = 7, .Ev = 6}, where, {.reproducible = true});
    }
  }
}

TYPED_TEST(guard_pages, behind_masks_and_biases_are_never_touched) {
  for (const side where : sides) {
    for (const std::int64_t L : {1, 5, 70}) {
      for (const std::int64_t S : {1, 7, 15, 16, 17, 31, 63, 64, 65, 95, 96, 97, 113, 129, 200}) {
        const sizes n{.B = 2, .H = 3, .Hk = 3, .L = L, .S = S, .E = 8, .Ev = 4};
        const std::vector<extents> shapes = {{S},          {L, 1},       {},        {3, 1, 1}, {2, 3, 1, S},
                                             {2, 1, 1, 1}, {2, 3, L, S}, {3, L, S}, {1, S},    {2, 1, L, 1}};
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          expect_inside<TypeParam>(n, where, {.causal = i % 2 == 0, .query_offset = lower_right}, shapes[i],
                                   shapes[(i + 3) % shapes.size()], true);
        }
      }
    }
  }
}

TYPED_TEST(guard_pages, behind_the_key_length_are_never_touched) {
  // K and V claim more keys than are mapped; the length says how many there are.
  for (std::int64_t length = 0; length <= 200; length += quick() ? 13 : 3) {
    for (const std::int64_t L : {1, 4, 65}) {
      const sizes n{.B = 1, .H = 1, .Hk = 1, .L = L, .S = length, .E = 19, .Ev = 13};
      const auto x = make_inputs<TypeParam>(n);
      const guarded<TypeParam> k(x.k, side::ends_at_page), v(x.v, side::ends_at_page);
      const tensor_view<const TypeParam> long_k(k.view().data, {1, 1, 100'000, n.E}),
          long_v(v.view().data, {1, 1, 100'000, n.Ev});
      const auto want = compute(x);
      const auto got = compute<TypeParam>(x.q, long_k, long_v, {.key_lengths = length});
      EXPECT_TRUE(same_bits(got, want)) << n.to_string();
    }
  }
}

TYPED_TEST(guard_pages, behind_the_last_column_of_strided_rows_are_never_touched) {
  // Rows of a wider matrix: the last row ends at the guard page, the gap after it is not mapped.
  for (const std::int64_t width : {1, 3, 8, 13, 16, 17, 31, 33, 64, 65}) {
    for (const std::int64_t L : {1, 5, 70}) {
      const std::int64_t S = 37, step = width + 11;
      const auto spread = [&](std::int64_t rows, std::uint64_t seed) {
        return guarded<TypeParam>(normal<TypeParam>({(rows - 1) * step + width}, seed), side::ends_at_page);
      };
      const auto q = spread(L, 1), k = spread(S, 2), v = spread(S, 3), out = spread(L, 4);
      const auto rows = [&](const guarded<TypeParam>& x, std::int64_t count) {
        return tensor_view<TypeParam>(x.view().data, {count, width}, {step, 1});
      };
      attention(rows(q, L), rows(k, S), rows(v, S), rows(out, L));
      const auto want = compute<TypeParam>(rows(q, L), rows(k, S), rows(v, S));
      for (std::int64_t i = 0; i < L; ++i)
        for (std::int64_t c = 0; c < width; ++c) EXPECT_EQ(rows(out, L)(i, c), want.out(i, c)) << width;
    }
  }
}

/// The call with every input at a guard page, and what it gives: nothing but reads is in question.
template <class T>
computed<T> guarded_call(const inputs<T>& x, side where, const options& how) {
  const guarded<T> q(x.q, where), k(x.k, where), v(x.v, where);
  return compute<T>(q.view(), k.view(), v.view(), how, true);
}

TYPED_TEST(guard_pages, are_never_touched_in_any_form) {
  for (const side where : sides) {
    for (const std::int64_t width : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65}) {
      for (const std::int64_t L : {1, 5, 65}) {
        for (const std::int64_t S : {11, 97}) {
          if (S > 11 && (quick() || width > 17)) continue;
          const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = S, .E = width, .Ev = 3});
          const auto w = normal<TypeParam>({width}, 7);
          const guarded<TypeParam> near_w(w, where);
          const auto plain = every_form(w), near = every_form(near_w.view());
          for (std::size_t i = 0; i < plain.size(); ++i) {
            if (i % 6 != static_cast<std::size_t>(width + L) % 6) continue;  // every compatibility, normalizers in turn
            EXPECT_TRUE(same_bits(guarded_call(x, where, near[i]), compute(x, plain[i], true)))
                << form_of(plain[i]) << ", width " << width;
          }
        }
      }
    }
  }
}

TYPED_TEST(guard_pages, around_tables_are_never_touched) {
  for (const side where : sides) {
    for (const std::int64_t L : {1, 5, 70}) {
      for (const std::int64_t reach : {0, 1, 2, 7, 8, 15, 16, 31, 64, 200}) {
        for (const std::int64_t heads : {1, 2}) {
          const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = L, .S = 130, .E = 3, .Ev = 3});
          const auto table = normal<TypeParam>({heads, 2 * reach + 1}, 8);
          const guarded<TypeParam> near(table, where);
          for (const std::int64_t first : {-100, 0, 60, 300}) {
            const auto want = compute(x, {.query_offset = first, .relative = table}, true);
            EXPECT_TRUE(same_bits(guarded_call(x, where, {.query_offset = first, .relative = near.view()}), want))
                << reach << ", L " << L;
          }
        }
      }
    }
    for (const grid_size& grid : {grid_size(1, 1), grid_size(3, 2), grid_size(9, 8), grid_size(1, 70), grid_size(7, 30)}) {
      const std::int64_t cells = grid.rows * grid.columns;
      const auto x = make_inputs<TypeParam>({.B = 1, .H = 2, .Hk = 1, .L = cells, .S = cells, .E = 3, .Ev = 3});
      for (const auto& [rows, columns] : {std::pair{0, 0}, std::pair{1, 1}, std::pair{2, 8}, std::pair{40, 40}}) {
        for (const neighborhood& around : {neighborhood{}, neighborhood{.kernel = {3, 5}}}) {
          const auto table = normal<TypeParam>({2, 2 * rows + 1, 2 * columns + 1}, 9);
          const guarded<TypeParam> near(table, where);
          const auto want = compute(x, {.grid = grid, .neighborhood = around, .relative = table}, true);
          const options how{.grid = grid, .neighborhood = around, .relative = near.view()};
          EXPECT_TRUE(same_bits(guarded_call(x, where, how), want)) << grid.rows << " x " << grid.columns << ", " << rows;
        }
      }
    }
  }
}

TYPED_TEST(guard_pages, in_place_of_queries_and_keys_that_none_does_not_read) {
  // All of q and k lies where nothing may be touched.
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, 16 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  for (const std::int64_t L : {1, 5, 70}) {
    const auto v = normal<TypeParam>({1, 2, 100, 3}, 10), bias = normal<TypeParam>({L, 100}, 11);
    const tensor_view<const TypeParam> q(static_cast<TypeParam*>(memory), {1, 2, L, 4}),
        k(static_cast<TypeParam*>(memory), {1, 2, 100, 4});
    const tensor<TypeParam> some_q(q.shape), some_k(k.shape);
    for (const normalizer z : normalizers) {
      const options how{.bias = bias, .compatibility = compatibility::none, .normalizer = z};
      const auto got = compute<TypeParam>(q, k, v, how, true);
      EXPECT_TRUE(same_bits(got, compute<TypeParam>(some_q, some_k, v, how, true))) << attend::name_of(z);
      EXPECT_TRUE(as_reference(got, q, k, v, how)) << attend::name_of(z);
    }
  }
  munmap(memory, 16 * page);
}

TYPED_TEST(guard_pages, behind_the_key_length_are_never_touched_in_any_form) {
  for (const std::int64_t length : {0, 1, 16, 95, 96, 97, 130}) {
    for (const std::int64_t L : {1, 4, 65}) {
      const sizes n{.B = 1, .H = 1, .Hk = 1, .L = L, .S = length, .E = 5, .Ev = 3};
      const auto x = make_inputs<TypeParam>(n);
      const auto w = normal<TypeParam>({n.E}, 12);
      const guarded<TypeParam> k(x.k, side::ends_at_page), v(x.v, side::ends_at_page);
      const tensor_view<const TypeParam> long_k(k.view().data, {1, 1, 100'000, n.E}),
          long_v(v.view().data, {1, 1, 100'000, n.Ev});
      for (options how : every_form(w)) {
        const auto want = compute(x, how);
        how.key_lengths = length;
        EXPECT_TRUE(same_bits(compute<TypeParam>(x.q, long_k, long_v, how), want)) << form_of(how) << ", " << n.to_string();
      }
    }
  }
}

}  // namespace
}  // namespace attend::test
