// The C ABI trusts nothing: sizes, pointers and numbers are checked before they are used, and what is wrong is a status, never
// a signal.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/c_call.hpp"

namespace attend::test {
namespace {

/// The struct as a program with a header of `size` bytes passes it: memory of that size exactly.
template <class Struct>
std::unique_ptr<char[]> resized(const Struct& given, std::size_t size) {
  auto memory = std::make_unique<char[]>(std::max(size, sizeof(std::size_t)));
  std::memcpy(memory.get(), &given, std::min(size, sizeof given));
  std::memcpy(memory.get(), &size, sizeof size);
  return memory;
}

template <class Struct>
const Struct* as(const std::unique_ptr<char[]>& memory) {
  return reinterpret_cast<const Struct*>(memory.get());
}

// --------------------------------------------------------------------------------------------------------------------- sizes

/// Runs `use` with the struct in sizes that are right and wrong.
template <class Struct>
void test_sizes(const std::string& name, const Struct& given, const std::function<attend_status(const Struct*)>& use) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{4}, std::size_t{9}, sizeof given + 4, std::size_t{4104},
                                 std::size_t{1} << 40, ~std::size_t{0} - 7}) {
    auto memory = resized(given, std::min<std::size_t>(size, 8192));  // what the size claims is not there
    std::memcpy(memory.get(), &size, sizeof size);
    EXPECT_EQ(use(as<Struct>(memory)), ATTEND_ERROR_ARGUMENT) << name << ", size " << size;
    EXPECT_EQ(std::string(attend_last_error()).rfind(name + ": expected ", 0), 0u) << attend_last_error();
  }
  EXPECT_EQ(use(as<Struct>(resized(given, sizeof given))), ATTEND_OK) << attend_last_error();
  for (const std::size_t size : {sizeof given + 8, sizeof given + 64, std::size_t{4096}}) {
    const auto memory = resized(given, size);
    EXPECT_EQ(use(as<Struct>(memory)), ATTEND_OK) << name << ", larger, zeros: " << attend_last_error();
    for (const std::size_t at : {sizeof given, size - 1}) {
      memory[at] = 1;
      EXPECT_EQ(use(as<Struct>(memory)), ATTEND_ERROR_ARGUMENT) << name << ", larger, a value at byte " << at;
      memory[at] = 0;
    }
  }
}

TEST(sizes_of_structs, are_checked_in_every_struct) {
  c_call c;
  test_sizes<attend_array>(
      "q", c.q.c, [&](const attend_array* q) { return attend_attention(q, c.k.get(), c.v.get(), &c.results, &c.how); });
  test_sizes<attend_array>("out", c.out.c, [&](const attend_array* out) {
    attend_results results = c.results;
    results.out = out;
    return attend_attention(c.q.get(), c.k.get(), c.v.get(), &results, &c.how);
  });
  test_sizes<attend_results>("results", c.results, [&](const attend_results* results) {
    return attend_attention(c.q.get(), c.k.get(), c.v.get(), results, &c.how);
  });
  test_sizes<attend_options>("options", c.how, [&](const attend_options* how) {
    return attend_attention(c.q.get(), c.k.get(), c.v.get(), &c.results, how);
  });
  attend_score step = ATTEND_INIT(attend_score);
  step.kind = ATTEND_SOFT_CAP, step.cap = 2;
  test_sizes<attend_score>("score", step, [&](const attend_score* score) {
    attend_options how = c.how;
    how.score = &score, how.score_count = 1;
    return attend_attention(c.q.get(), c.k.get(), c.v.get(), &c.results, &how);
  });
  attend_executor mine = ATTEND_INIT(attend_executor);
  mine.parallel_for = [](void*, std::int64_t count, std::int32_t, void (*body)(void*, std::int64_t), void* work) {
    for (std::int64_t i = 0; i < count; ++i) body(work, i);
  };
  test_sizes<attend_executor>("executor", mine, [&](const attend_executor* executor) {
    attend_options how = c.how;
    how.executor = executor;
    return attend_attention(c.q.get(), c.k.get(), c.v.get(), &c.results, &how);
  });
  const std::int64_t first = 3;
  const attend_integers positions = {&first, nullptr};
  test_sizes<attend_rotary>("options", ATTEND_INIT(attend_rotary), [&](const attend_rotary* how) {
    return attend_rotary_embedding(c.q.get(), c.q.get(), &positions, how);
  });
}

TEST(sizes_of_structs, that_are_smaller_leave_what_they_lack_at_its_default) {
  c_call c;
  const auto plain = compute<float>(c.cpp.q, c.cpp.k, c.cpp.v),
             first = compute<float>(c.cpp.q, c.cpp.k, c.cpp.v, {.causal = true, .query_offset = upper_left});
  attend_options how = ATTEND_INIT(attend_options);
  how.causal = 1, how.anchor = ATTEND_UPPER_LEFT;
  const double scale = 0.1;
  how.scale = &scale, how.threads = -5;  // past the end of the smaller struct
  c.results.lse = c.results.weights = nullptr;
  const auto small = resized(how, 16), header = resized(how, 8);
  ASSERT_EQ(attend_attention(c.q.get(), c.k.get(), c.v.get(), &c.results, as<attend_options>(small)), ATTEND_OK)
      << attend_last_error();
  EXPECT_TRUE(same_bits(c.cpp.out, first.out));
  ASSERT_EQ(attend_attention(c.q.get(), c.k.get(), c.v.get(), &c.results, as<attend_options>(header)), ATTEND_OK)
      << attend_last_error();
  EXPECT_TRUE(same_bits(c.cpp.out, plain.out));

  c.out.c.strides = reinterpret_cast<const std::int64_t*>(8);  // past the end of the smaller array
  const auto array = resized(c.out.c, offsetof(attend_array, strides));
  c.results.out = as<attend_array>(array);
  EXPECT_EQ(c.run(), ATTEND_OK) << attend_last_error();
  for (std::size_t size = 8; size <= sizeof(attend_array); size += 8) {  // whatever is lacking, it is no signal
    const auto cut = resized(c.q.c, size);
    const attend_status status = attend_attention(as<attend_array>(cut), c.k.get(), c.v.get(), &c.results, nullptr);
    EXPECT_EQ(status == ATTEND_OK, size >= offsetof(attend_array, strides)) << size << ": " << attend_last_error();
  }
}

TEST(sizes_of_structs, of_facts_say_how_much_is_written) {
  const c_call c;
  attend_facts all = ATTEND_INIT(attend_facts);
  ASSERT_EQ(attend_plan_facts(c.q.get(), c.k.get(), c.v.get(), nullptr, &all), ATTEND_OK) << attend_last_error();
  for (const std::size_t size :
       {std::size_t{8}, std::size_t{16}, sizeof all - 8, sizeof all, sizeof all + 8, std::size_t{4096}}) {
    std::vector<unsigned char> memory(size + 8, 0xa7);
    std::memcpy(memory.data(), &size, sizeof size);
    ASSERT_EQ(attend_plan_facts(c.q.get(), c.k.get(), c.v.get(), nullptr, reinterpret_cast<attend_facts*>(memory.data())),
              ATTEND_OK);
    const attend_facts* facts = reinterpret_cast<const attend_facts*>(memory.data());
    EXPECT_EQ(facts->size, size);
    if (size > 16) {
      EXPECT_STREQ(facts->kernel, all.kernel);
    }
    if (size >= sizeof all) {
      EXPECT_EQ(facts->bytes, all.bytes);
    }
    for (std::size_t at = sizeof all; at < size; ++at) EXPECT_EQ(memory[at], 0) << at;
    for (std::size_t at = size; at < memory.size(); ++at) EXPECT_EQ(memory[at], 0xa7) << at;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{12}, std::size_t{4104}}) {
    all.size = size;
    EXPECT_EQ(attend_plan_facts(c.q.get(), c.k.get(), c.v.get(), nullptr, &all), ATTEND_ERROR_ARGUMENT) << size;
  }
}

// ------------------------------------------------------------------------------------------------------------------ refusals

TEST(the_c_abi, refuses_null_pointers) {
  const c_call c;
  const auto *q = c.q.get(), *k = c.k.get(), *v = c.v.get();
  const auto* none = static_cast<const attend_array*>(nullptr);
  std::int64_t shape[8];
  std::int32_t rank;
  std::size_t length;
  char text[10];
  attend_facts facts = ATTEND_INIT(attend_facts);
  const attend_array* const arrays[] = {k, none};
  const attend_status refused[] = {
      attend_attention(none, k, v, &c.results, nullptr),
      attend_attention(q, none, v, &c.results, nullptr),
      attend_attention(q, k, none, &c.results, nullptr),
      attend_attention(q, k, v, nullptr, nullptr),
      attend_check(none, k, v, &c.results, nullptr),
      attend_attention_varlen(none, none, none, none, none, &c.results, nullptr),
      attend_attention_varlen(q, k, v, none, none, &c.results, nullptr),
      attend_attention_varlen(q, k, v, none, none, nullptr, nullptr),
      attend_check_varlen(q, none, v, none, none, nullptr, nullptr),
      attend_output_shape(q, k, none, nullptr, shape, &rank),
      attend_output_shape(q, k, v, nullptr, nullptr, &rank),
      attend_output_shape(q, k, v, nullptr, shape, nullptr),
      attend_output_shape_varlen(q, k, v, none, none, nullptr, shape, &rank),
      attend_output_shape_varlen(q, k, v, none, none, nullptr, nullptr, nullptr),
      attend_merge(nullptr, nullptr, 0, &c.results),
      attend_merge(nullptr, arrays, 2, &c.results),
      attend_merge(arrays, nullptr, 2, &c.results),
      attend_merge(arrays, arrays, 2, &c.results),
      attend_merge(arrays, arrays, 1, nullptr),
      attend_rotary_embedding(none, q, nullptr, nullptr),
      attend_rotary_embedding(q, none, nullptr, nullptr),
      attend_rotary_embedding(q, q, nullptr, nullptr),
      attend_plan_facts(none, k, v, nullptr, &facts),
      attend_plan_facts(q, k, v, nullptr, nullptr),
      attend_plan_describe(q, k, none, nullptr, text, sizeof text, &length),
      attend_plan_describe(q, k, v, nullptr, nullptr, 10, &length),
      attend_plan_describe(q, k, v, nullptr, nullptr, 0, nullptr),
      attend_plan_describe(q, k, v, nullptr, text, sizeof text, nullptr),
  };
  for (std::size_t n = 0; n < std::size(refused); ++n) EXPECT_EQ(refused[n], ATTEND_ERROR_ARGUMENT) << n;
  EXPECT_EQ(attend_check(q, k, v, nullptr, nullptr), ATTEND_OK) << "results that are not wanted";
  EXPECT_FALSE(c.written());
}

TEST(the_c_abi, refuses_arrays_that_are_none) {
  for (const std::int32_t type : {0, -1, 7, 1000})
    expect_c_refusal("q", [&](c_call& c) { c.q.c.dtype = type; }, ATTEND_ERROR_TYPE);
  expect_c_refusal("q", [](c_call& c) { c.q.c.dtype = ATTEND_INT64; }, ATTEND_ERROR_TYPE);
  expect_c_refusal("k", [](c_call& c) { c.k.c.dtype = ATTEND_FLOAT64; }, ATTEND_ERROR_TYPE);
  expect_c_refusal("out", [](c_call& c) { c.out.c.dtype = ATTEND_FLOAT64; }, ATTEND_ERROR_TYPE);
  for (const std::int32_t rank : {-1, 9, 1 << 30}) expect_c_refusal("v", [&](c_call& c) { c.v.c.rank = rank; });
  expect_c_refusal("k", [](c_call& c) { c.k.c.rank = 1; });
  expect_c_refusal("q", [](c_call& c) { c.q.c.shape = nullptr; });
  expect_c_refusal("q", [](c_call& c) { c.q.c.data = nullptr; });
  expect_c_refusal("q", [](c_call& c) { c.q.shape[3] = -8; });
  expect_c_refusal("k", [](c_call& c) {
    c.k.shape = {1 << 30, 1 << 30, 1 << 30, 8}, c.k.c.strides = nullptr, c.k.c.shape = c.k.shape.data();
  });
  expect_c_refusal("v", [](c_call& c) { c.v.strides[0] = std::int64_t{1} << 62; });
  expect_c_refusal("q, k, v", [](c_call& c) { c.v.c.rank = 2; });
}

TEST(the_c_abi, refuses_results_that_cannot_be_written) {
  expect_c_refusal("out", [](c_call& c) { c.out.c.data = nullptr; });
  expect_c_refusal("out", [](c_call& c) { c.out.shape[3] = 5; });
  expect_c_refusal("out", [](c_call& c) { c.out.strides[0] = 0; });
  expect_c_refusal("out", [](c_call& c) { c.out.c.data = c.cpp.q.data(); });
  expect_c_refusal("lse", [](c_call& c) { c.lse.c.data = c.cpp.out.data(); });
  expect_c_refusal("weights", [](c_call& c) { c.weights.c.rank = 3; });
  expect_c_refusal("lse", [](c_call& c) { c.how.normalizer = ATTEND_MEAN; });
  expect_c_refusal("stage", [](c_call& c) { c.results.stage = 3; });
  expect_c_refusal("stage", [](c_call& c) { c.results.stage = -1; });
  expect_c_refusal("reserved", [](c_call& c) { c.results.reserved = 1; });
}

TEST(the_c_abi, refuses_options_that_say_nothing_or_two_things) {
  static const std::int64_t two = 2, minus = -1;
  static const double nan = std::nan("");
  static const tensor<float> floats({2}), heads({4});
  static const tensor<std::int64_t> integers({2}), three({3});
  static const c_array c_floats{floats}, c_heads{heads}, c_integers{integers}, c_three{three};
  static attend_executor nobody = ATTEND_INIT(attend_executor);
  const auto bad_words = {-1, 2, 99};
  for (const int word : bad_words) {
    expect_c_refusal("causal", [&](c_call& c) { c.how.causal = word; });
    expect_c_refusal("alibi", [&](c_call& c) { c.how.alibi = word; });
    expect_c_refusal("reproducible", [&](c_call& c) { c.how.reproducible = word; });
    expect_c_refusal("layout", [&](c_call& c) { c.how.layout = word; });
    expect_c_refusal("border", [&](c_call& c) { c.how.border = word; });
  }
  for (const int word : {-1, 6, 1 << 20}) {
    expect_c_refusal("compatibility", [&](c_call& c) { c.how.compatibility = word; });
    expect_c_refusal("normalizer", [&](c_call& c) { c.how.normalizer = word; });
  }
  expect_c_refusal("anchor", [](c_call& c) { c.how.anchor = 3; });
  expect_c_refusal("query_offset", [](c_call& c) { c.how.anchor = 1, c.how.query_offset.value = &two; });
  expect_c_refusal("query_offset", [](c_call& c) { c.how.query_offset = {&two, c_integers.get()}; });
  expect_c_refusal("key_lengths", [](c_call& c) { c.how.key_lengths.values = c_floats.get(); }, ATTEND_ERROR_TYPE);
  expect_c_refusal("key_lengths", [](c_call& c) { c.how.key_lengths.values = c_three.get(); });
  expect_c_refusal("key_lengths", [](c_call& c) { c.how.key_lengths.value = &minus; });
  expect_c_refusal("key_lengths", [](c_call& c) {
    static c_array off{integers};
    off.c.data = reinterpret_cast<char*>(off.c.data) + 4;
    c.how.key_lengths.values = off.get();
  });
  expect_c_refusal("alibi", [](c_call& c) { c.how.alibi = 1, c.how.alibi_slopes = c_heads.get(), c.how.anchor = 1; });
  expect_c_refusal("mask", [](c_call& c) { c.how.mask = c_floats.get(); }, ATTEND_ERROR_TYPE);
  expect_c_refusal("scale", [](c_call& c) { c.how.scale = &nan; });
  expect_c_refusal("sigma", [](c_call& c) {
    static const double zero = 0;
    c.how.compatibility = ATTEND_GAUSSIAN, c.how.sigma = &zero;
  });
  expect_c_refusal("threads", [](c_call& c) { c.how.threads = -1; });
  expect_c_refusal("executor", [](c_call& c) { c.how.executor = &nobody; });
  expect_c_refusal("interrupt", [](c_call& c) { c.how.interrupt_context = &c; });
  expect_c_refusal("query_segments",
                   [](c_call& c) { c.how.query_segments = c_integers.get(), c.how.key_segments = c_integers.get(); });
}

TEST(the_c_abi, refuses_score_lists_that_are_none) {
  static const tensor<float> numbers({3, 5});
  static const c_array array{numbers};
  static attend_score step = ATTEND_INIT(attend_score);
  static const attend_score* steps[] = {&step, &step, &step, &step, &step, &step, &step, &step, &step};
  const auto with = [](std::int32_t kind, double cap, const attend_array* given) {
    return [=](c_call& c) {
      step.kind = kind, step.cap = cap, step.numbers = given;
      c.how.score = steps, c.how.score_count = 1;
    };
  };
  for (const std::int32_t kind : {0, 4, -1}) expect_c_refusal("score", with(kind, 1, nullptr));
  expect_c_refusal("score", with(ATTEND_SOFT_CAP, 1, array.get()));
  expect_c_refusal("score", with(ATTEND_BIAS, 0, nullptr));
  expect_c_refusal("score", with(ATTEND_BIAS, 1, array.get()));
  expect_c_refusal("score", with(ATTEND_ALIBI, 1, nullptr));
  expect_c_refusal("score", [](c_call& c) { c.how.score_count = 1; });
  expect_c_refusal("score", [](c_call& c) { c.how.score = steps; });
  expect_c_refusal("score", [](c_call& c) { c.how.score = steps, c.how.score_count = -1; });
  expect_c_refusal("score", [](c_call& c) {
    static const attend_score* nothing[] = {nullptr};
    c.how.score = nothing, c.how.score_count = 1;
  });
  expect_c_refusal("score", [&](c_call& c) { with(ATTEND_SOFT_CAP, 1, nullptr)(c), c.how.score_count = 9; });
}

// --------------------------------------------------------------------------------------------------------- zero-sized shapes

TEST(the_c_abi, gives_a_status_for_every_zero_sized_shape) {
  float memory[64] = {}, result[64];
  for (int bits = 0; bits < 256; ++bits) {
    const auto size = [&](int bit, std::int64_t full) { return bits >> bit & 1 ? 0 : full; };
    const std::int64_t B = size(0, 2), H = size(1, 2), Hk = size(2, 1), L = size(3, 2), S = size(4, 3), E = size(5, 2),
                       Ev = size(6, 2);
    const bool of_sums = bits >> 7 & 1;
    const c_array q(tensor_view<const float>(memory, {B, H, L, E}), false),
        k(tensor_view<const float>(memory, {B, Hk, S, E}), false), v(tensor_view<const float>(memory, {B, Hk, S, Ev}), false);
    std::fill(std::begin(result), std::end(result), 7.0f);
    const c_array out{array_view(tensor_view<const float>(result, {B, H, L, Ev}))};
    attend_results results = ATTEND_INIT(attend_results);
    results.out = out.get();
    attend_options how = ATTEND_INIT(attend_options);
    how.normalizer = of_sums ? ATTEND_SUM : ATTEND_SOFTMAX;
    const attend_status expected = H > 0 && Hk == 0 ? ATTEND_ERROR_ARGUMENT : ATTEND_OK;
    EXPECT_EQ(attend_check(q.get(), k.get(), v.get(), &results, &how), expected) << bits << attend_last_error();
    EXPECT_EQ(attend_attention(q.get(), k.get(), v.get(), &results, &how), expected) << bits << attend_last_error();
    for (std::int64_t n = 0; expected == ATTEND_OK && n < B * H * L * Ev; ++n) EXPECT_EQ(result[n], 0) << bits;
    EXPECT_EQ(result[B * H * L * Ev], 7) << bits;
    attend_facts facts = ATTEND_INIT(attend_facts);
    std::int64_t shape[8];
    std::int32_t rank = -1;
    std::size_t length = 0;
    EXPECT_EQ(attend_plan_facts(q.get(), k.get(), v.get(), &how, &facts), expected) << bits;
    EXPECT_EQ(attend_plan_describe(q.get(), k.get(), v.get(), &how, nullptr, 0, &length), expected) << bits;
    EXPECT_EQ(attend_output_shape(q.get(), k.get(), v.get(), &how, shape, &rank), expected) << bits;
    if (expected == ATTEND_OK) {
      EXPECT_TRUE(length > 0 && rank == 4 && shape[2] == L && shape[3] == Ev) << bits;
    }
  }
}

TEST(the_c_abi, gives_a_status_for_packed_calls_of_nothing) {
  float memory[64] = {};
  const std::int64_t zeros[4] = {};
  for (const std::int64_t sequences : {0, 1, 3}) {
    for (const std::int64_t H : {0, 2}) {
      const c_array q(tensor_view<const float>(memory, {0, H, 4}), false),
          k(tensor_view<const float>(memory, {0, 1, 4}), false);
      const c_array at(tensor_view<const std::int64_t>(zeros, {sequences + 1}), false);
      attend_results results = ATTEND_INIT(attend_results);
      const c_array out(tensor_view<const float>(memory, {0, H, 4}), false);
      results.out = out.get();
      EXPECT_EQ(attend_attention_varlen(q.get(), k.get(), k.get(), at.get(), at.get(), &results, nullptr), ATTEND_OK)
          << attend_last_error();
      EXPECT_EQ(attend_check_varlen(q.get(), k.get(), k.get(), at.get(), at.get(), nullptr, nullptr), ATTEND_OK);
    }
  }
  const c_array q(tensor_view<const float>(memory, {0, 2, 4}), false), none(tensor_view<const std::int64_t>(zeros, {0}), false);
  EXPECT_EQ(attend_check_varlen(q.get(), q.get(), q.get(), none.get(), none.get(), nullptr, nullptr), ATTEND_ERROR_ARGUMENT);
}

}  // namespace
}  // namespace attend::test
