// Where elements lie changes no bit: strides of every kind, both layouts, batch axes of any number, outputs with gaps.
#include <gtest/gtest.h>

#include <vector>

#include "support/form.hpp"
#include "support/memory.hpp"

namespace attend::test {
namespace {

template <class T>
struct strides : testing::Test {};
TYPED_TEST_SUITE(strides, stored_types);

const std::vector<sizes> problems = {{.B = 2, .H = 4, .Hk = 2, .L = 1, .S = 40, .E = 17, .Ev = 9},
                                     {.B = 2, .H = 2, .Hk = 1, .L = 3, .S = 300, .E = 16, .Ev = 16},
                                     {.B = 2, .H = 2, .Hk = 2, .L = 70, .S = 110, .E = 33, .Ev = 31}};

/// Ways to place (A, B, C, D), in elements.
std::vector<extents> placements(const extents& n) {
  const std::int64_t a = n[1] * n[2] * n[3], b = n[2] * n[3], c = n[3];
  return {{a * 3 + 7, b * 3, c * 3, 3},                       // odd column stride
          {a, b, 1, n[2]},                                    // columns and rows exchanged
          {1, n[0], n[0] * n[1] * n[3], n[0] * n[1]},         // batch innermost
          {-a, -b, -c, -1},                                   // backwards
          {n[1] * n[2] * (c + 5), c + 5, n[1] * (c + 5), 1},  // heads inside rows, padded
          {a, b, -c, 1},
          {a * 2, b * 2, c * 2, -2}};
}

TYPED_TEST(strides, of_inputs_change_no_bit) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const bool reproducible : {false, true}) {
      const options how{.reproducible = reproducible};
      const auto want = compute(x, how, true);
      const auto of_q = placements(x.q.shape()), of_k = placements(x.k.shape()), of_v = placements(x.v.shape());
      for (std::size_t i = 0; i < of_q.size(); ++i) {
        strided<TypeParam> q(x.q, of_q[i]), k(x.k, of_k[i]), v(x.v, of_v[i]);
        const auto placed = [&](const array_view& a, const array_view& b, const array_view& c) {
          return compute<TypeParam>(a, b, c, how, true);
        };
        EXPECT_TRUE(same_bits(placed(q.view(), x.k, x.v), want)) << "q " << of_q[i].to_string() << ", " << n.to_string();
        EXPECT_TRUE(same_bits(placed(x.q, k.view(), x.v), want)) << "k " << of_k[i].to_string() << ", " << n.to_string();
        EXPECT_TRUE(same_bits(placed(x.q, x.k, v.view()), want)) << "v " << of_v[i].to_string() << ", " << n.to_string();
        EXPECT_TRUE(same_bits(placed(q.view(), k.view(), v.view()), want))
            << "all " << of_q[i].to_string() << ", " << n.to_string();
      }
    }
  }
}

TYPED_TEST(strides, of_inputs_change_no_bit_of_any_form) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto w = normal<TypeParam>({n.E}, 5);
    const auto of_q = placements(x.q.shape()), of_k = placements(x.k.shape()), of_v = placements(x.v.shape());
    std::size_t i = 0;
    for (const options& how : every_form(w)) {
      const auto want = compute(x, how, true);
      strided<TypeParam> q(x.q, of_q[i]), k(x.k, of_k[i]), v(x.v, of_v[i]), out(want.out.shape(), of_q[i]);
      unaligned<TypeParam> far_q(x.q), far_k(x.k), far_v(x.v);
      const auto same = [&](const array_view& a, const array_view& b, const array_view& c) {
        return same_bits(compute<TypeParam>(a, b, c, how, true), want);
      };
      EXPECT_TRUE(same(q.view(), x.k, x.v)) << form_of(how) << ", q " << of_q[i].to_string() << ", " << n.to_string();
      EXPECT_TRUE(same(x.q, k.view(), x.v)) << form_of(how) << ", k " << of_k[i].to_string() << ", " << n.to_string();
      EXPECT_TRUE(same(q.view(), k.view(), v.view())) << form_of(how) << ", v " << of_v[i].to_string() << ", " << n.to_string();
      EXPECT_TRUE(same(far_q.view(), far_k.view(), far_v.view())) << form_of(how) << ", unaligned, " << n.to_string();
      i = (i + 1) % of_q.size();
    }
  }
}

TYPED_TEST(strides, of_the_weights_of_additive_change_no_bit) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto w = normal<TypeParam>({n.E}, 6);
    const auto with = [&](const array_view& weights, bool reproducible) {
      return compute(x, {.compatibility = additive(weights), .reproducible = reproducible}, true);
    };
    for (const bool reproducible : {false, true}) {
      const auto want = with(w, reproducible);
      for (const std::int64_t step : {-1, 2, -3, 7}) {
        strided<TypeParam> placed(w, {step});
        EXPECT_TRUE(same_bits(with(placed.view(), reproducible), want)) << step << ", " << n.to_string();
      }
      EXPECT_TRUE(same_bits(with(unaligned<TypeParam>(w).view(), reproducible), want)) << n.to_string();
      const tensor<TypeParam> one({n.E}, w(0));
      const tensor_view<const TypeParam> repeated(w.data(), {n.E}, {0});
      EXPECT_TRUE(same_bits(with(repeated, reproducible), with(one, reproducible))) << n.to_string();
    }
  }
}

TYPED_TEST(strides, of_zero_repeat_an_element) {
  for (const sizes& n : problems) {
    const auto row = normal<TypeParam>({n.S, n.E}, 1), value = normal<TypeParam>({n.Ev}, 2),
               query = normal<TypeParam>({n.E}, 3);
    const tensor_view<const TypeParam> q(query.data(), {n.B, n.H, n.L, n.E}, {0, 0, 0, 1});
    const tensor_view<const TypeParam> k(row.data(), {n.B, n.Hk, n.S, n.E}, {0, 0, n.E, 1});
    const tensor_view<const TypeParam> v(value.data(), {n.B, n.Hk, n.S, n.Ev}, {0, 0, 0, 1});
    const tensor_view<const TypeParam> one(value.data(), {n.B, n.Hk, n.S, n.Ev}, {0, 0, 0, 0});
    EXPECT_TRUE(as_reference(compute<TypeParam>(q, k, v, {}, true), q, k, v)) << n.to_string();
    EXPECT_TRUE(as_reference(compute<TypeParam>(q, k, one, {}, true), q, k, one)) << n.to_string();
  }
}

TYPED_TEST(strides, of_zero_repeat_an_element_in_every_form) {
  for (const sizes& n : problems) {
    const auto row = normal<TypeParam>({n.S, n.E}, 7), value = normal<TypeParam>({n.Ev}, 8),
               query = normal<TypeParam>({n.E}, 9);
    const tensor_view<const TypeParam> q(query.data(), {n.B, n.H, n.L, n.E}, {0, 0, 0, 1});
    const tensor_view<const TypeParam> k(row.data(), {n.B, n.Hk, n.S, n.E}, {0, 0, n.E, 1});
    const tensor_view<const TypeParam> flat(row.data(), {n.B, n.Hk, n.S, n.E}, {0, 0, 1, 0});  // one number a key
    const tensor_view<const TypeParam> v(value.data(), {n.B, n.Hk, n.S, n.Ev}, {0, 0, 0, 1});
    const auto w = normal<TypeParam>({n.E}, 10);
    const std::vector<options> forms = every_form(w);
    for (std::size_t i = 0; i < forms.size(); i += 7) {  // every compatibility, each with another normalizer
      const options& how = forms[i];
      EXPECT_TRUE(as_reference(compute<TypeParam>(q, k, v, how), q, k, v, how)) << form_of(how) << ", " << n.to_string();
      EXPECT_TRUE(as_reference(compute<TypeParam>(q, flat, v, how), q, flat, v, how)) << form_of(how) << ", " << n.to_string();
    }
  }
}

TYPED_TEST(strides, that_overlap_read_a_sliding_window) {
  const auto samples = normal<TypeParam>({400}, 1);
  const tensor_view<const TypeParam> x(samples.data(), {1, 1, 300, 16}, {0, 0, 1, 1});
  for (const std::int64_t L : {2, 80}) {
    const tensor_view<const TypeParam> q(samples.data(), {1, 1, L, 16}, {0, 0, 3, 1});
    EXPECT_TRUE(as_reference(compute<TypeParam>(q, x, x), q, x, x));
  }
}

TYPED_TEST(strides, of_results_leave_the_gaps_alone) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const bool reproducible : {false, true}) {
      const options how{.reproducible = reproducible};
      const auto want = compute(x, how, true);
      for (const extents& placement : placements(want.out.shape())) {
        const extents of_weights = placements(want.weights.shape())[2];
        strided<TypeParam> out(want.out.shape(), placement);
        strided<accumulator<TypeParam>> lse(want.lse.shape(), {-n.H * n.L * 2, n.L * 2, 2});
        strided<TypeParam> weights(want.weights.shape(), of_weights);
        attention(x.q, x.k, x.v, outputs{.out = out.view(), .lse = lse.view(), .weights = weights.view()}, how);
        EXPECT_TRUE(same_bits(out.values(), want.out)) << placement.to_string() << ", " << n.to_string();
        EXPECT_TRUE(same_bits(lse.values(), want.lse)) << n.to_string();
        EXPECT_TRUE(same_bits(weights.values(), want.weights)) << n.to_string();
        EXPECT_TRUE(out.gaps_are_intact() && lse.gaps_are_intact() && weights.gaps_are_intact()) << placement.to_string();
      }
    }
  }
}

TYPED_TEST(strides, wide_apart_use_offsets_of_64_bits) {
  // Slots 2^31 + 8 elements apart in reserved memory, of which only the pages in use are ever backed.
  constexpr std::int64_t apart = (std::int64_t{1} << 31) + 8;
  const std::size_t bytes = static_cast<std::size_t>(2 * apart + 4096) * sizeof(TypeParam);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "this process may not reserve " << (bytes >> 30) << " GiB of addresses";
  const sizes n{.B = 3, .H = 2, .Hk = 2, .L = 5, .S = 7, .E = 8, .Ev = 8};
  const auto x = make_inputs<TypeParam>(n);
  const tensor_view<TypeParam> k(static_cast<TypeParam*>(memory), x.k.shape(), {apart, n.S * n.E, n.E, 1});
  for_each_index(x.k.shape(), [&](const extents& at) { k(at[0], at[1], at[2], at[3]) = x.k(at[0], at[1], at[2], at[3]); });
  EXPECT_TRUE(same_bits(compute<TypeParam>(x.q, k, x.v, {}, true), compute(x, {}, true)));
  const tensor_view<TypeParam> rows(static_cast<TypeParam*>(memory), {1, 2, 3, 8}, {64, 64, apart, 1});
  for_each_index(rows.shape, [&](const extents& at) { rows(at[0], at[1], at[2], at[3]) = x.q(0, at[1], at[2], at[3]); });
  EXPECT_TRUE(as_reference(compute<TypeParam>(rows, rows, rows, {}, true), rows, rows, rows));
  munmap(memory, bytes);
}

TYPED_TEST(strides, begin_at_any_address) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    const auto bias = normal<TypeParam>({n.L, n.S}, 4);
    for (const bool reproducible : {false, true}) {
      options how{.bias = bias, .reproducible = reproducible};
      const auto want = compute(x, how, true);
      unaligned<TypeParam> q(x.q), k(x.k), v(x.v), added(bias), out(want.out.shape()), weights(want.weights.shape());
      unaligned<accumulator<TypeParam>> lse(want.lse.shape());
      how.bias = added.view();
      attention(q.view(), k.view(), v.view(), outputs{.out = out.view(), .lse = lse.view(), .weights = weights.view()}, how);
      EXPECT_TRUE(same_bits(computed<TypeParam>{out.values(), lse.values(), weights.values()}, want)) << n.to_string();
      EXPECT_TRUE(as_reference(want, q.view(), k.view(), v.view(), how)) << n.to_string();
    }
  }
}

TYPED_TEST(strides, layouts_hold_the_same_numbers) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n, 1, layout::blhd);
    const options how{.layout = layout::blhd};
    const auto got = compute(x, how, true);
    EXPECT_EQ(got.out.shape(), (extents{n.B, n.L, n.H, n.Ev}));
    EXPECT_EQ(got.lse.shape(), (extents{n.B, n.H, n.L}));
    const auto turned = [](const tensor<TypeParam>& t) {
      const extents& s = t.shape();
      return tensor_view<const TypeParam>(t.data(), {s[0], s[2], s[1], s[3]}, {s[1] * s[2] * s[3], s[3], s[2] * s[3], 1});
    };
    const auto want = compute<TypeParam>(turned(x.q), turned(x.k), turned(x.v), {}, true);
    for_each_index(want.out.shape(), [&](const extents& at) {
      ASSERT_EQ(got.out(at[0], at[2], at[1], at[3]), want.out(at[0], at[1], at[2], at[3])) << n.to_string();
    });
    EXPECT_TRUE(same_bits(got.lse, want.lse));
    EXPECT_TRUE(same_bits(got.weights, want.weights));
    EXPECT_TRUE(as_reference(got, x.q, x.k, x.v, how)) << n.to_string();
  }
}

TYPED_TEST(strides, layouts_of_rank_two_three_and_five) {
  const options how{.layout = layout::blhd};
  const auto matrix = normal<TypeParam>({6, 5}, 1);
  EXPECT_TRUE(
      same_bits(compute<TypeParam>(matrix, matrix, matrix, how, true), compute<TypeParam>(matrix, matrix, matrix, {}, true)));
  const auto heads = normal<TypeParam>({6, 4, 5}, 2), keys = normal<TypeParam>({9, 2, 5}, 3);
  const auto y = compute<TypeParam>(heads, keys, keys, how, true);
  EXPECT_EQ(y.out.shape(), (extents{6, 4, 5}));
  EXPECT_EQ(y.lse.shape(), (extents{4, 6}));
  EXPECT_TRUE(as_reference(y, heads, keys, keys, how));
  const auto many = normal<TypeParam>({2, 3, 6, 4, 5}, 4), shared = normal<TypeParam>({3, 9, 2, 5}, 5);
  EXPECT_TRUE(as_reference(compute<TypeParam>(many, shared, shared, how, true), many, shared, shared, how));
}

TYPED_TEST(strides, batch_axes_broadcast_up_to_rank_eight) {
  const auto expanded = [](const tensor<TypeParam>& x, const extents& batch) {  // dense, by stride 0 and a copy
    extents shape = batch, steps;
    for (int axis = 3; axis > 0; --axis) shape.push_back(x.shape()[x.shape().rank() - axis]);
    const extents own = detail::contiguous_strides(x.shape());
    const int shift = shape.rank() - x.shape().rank();
    for (int axis = 0; axis < shape.rank(); ++axis)
      steps.push_back(axis < shift || (axis < shape.rank() - 3 && x.shape()[axis - shift] == 1) ? 0 : own[axis - shift]);
    tensor<TypeParam> y(shape);
    std::int64_t n = 0;
    for_each_index(shape, [&](const extents& at) { y.data()[n++] = x.data()[offset_of(at, steps)]; });
    return y;
  };
  struct {
    extents q, k, v, batch;
  } const all[] = {{{2, 1, 3, 1, 2, 4, 3, 5}, {3, 1, 2, 2, 7, 5}, {2, 2, 1, 1, 1, 2, 7, 4}, {2, 2, 3, 1, 2}},
                   {{4, 2, 3, 5}, {2, 7, 5}, {4, 2, 7, 5}, {4}},
                   {{2, 3, 5}, {3, 2, 7, 5}, {1, 1, 2, 7, 5}, {1, 3}},
                   {{2, 3, 5}, {0, 2, 7, 5}, {2, 7, 5}, {0}}};
  for (const auto& one : all) {
    const auto q = normal<TypeParam>(one.q, 1), k = normal<TypeParam>(one.k, 2), v = normal<TypeParam>(one.v, 3);
    const auto y = compute<TypeParam>(q, k, v, {}, true);
    EXPECT_EQ(y.out.shape().rank(), one.batch.rank() + 3);
    EXPECT_TRUE(
        same_bits(y, compute<TypeParam>(expanded(q, one.batch), expanded(k, one.batch), expanded(v, one.batch), {}, true)))
        << one.q.to_string();
    EXPECT_TRUE(as_reference(y, q, k, v)) << one.q.to_string();
  }
}

TYPED_TEST(strides, outputs_may_be_wanted_alone) {
  for (const sizes& n : problems) {
    const auto x = make_inputs<TypeParam>(n);
    for (const bool reproducible : {false, true}) {
      const options how{.reproducible = reproducible};
      const auto want = compute(x, how, true);
      tensor<TypeParam> out(want.out.shape()), weights(want.weights.shape());
      tensor<accumulator<TypeParam>> lse(want.lse.shape());
      attention(x.q, x.k, x.v, outputs{.out = out}, how);
      attention(x.q, x.k, x.v, outputs{.lse = lse}, how);
      attention(x.q, x.k, x.v, outputs{.weights = weights}, how);
      attention(x.q, x.k, x.v, outputs{}, how);
      EXPECT_TRUE(same_bits(out, want.out)) << n.to_string();
      EXPECT_TRUE(same_bits(lse, want.lse)) << n.to_string();
      EXPECT_TRUE(same_bits(weights, want.weights)) << n.to_string();
      EXPECT_TRUE(same_bits(attend::attention(x.q, x.k, x.v, how), want.out)) << "the library's own result";
    }
  }
}

}  // namespace
}  // namespace attend::test
