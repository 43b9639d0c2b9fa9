// Segments, score functions, sinks and dropout as tests take them: arrays for each, calls with each, and what scores should be.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/compute.hpp"
#include "support/memory.hpp"

namespace attend::test {

/// The paper's slopes of ALiBi: for a power of two n, the powers of 2^(-8/n); for another number of heads those of the power of
/// two below, then every other one of those of the power of two above, from the first (Press et al., 2022, and their code).
inline std::vector<double> paper_slopes(std::int64_t heads) {
  std::int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (std::int64_t h = 1; h <= power; ++h) slopes.push_back(std::pow(2.0, -8.0 * double(h) / double(power)));
  if (power == heads) return slopes;
  const std::vector<double> above = paper_slopes(2 * power);
  for (std::size_t h = 0; std::int64_t(slopes.size()) < heads; h += 2) slopes.push_back(above[h]);
  return slopes;
}

/// Whether dropout keeps a pair.
inline bool is_kept(const dropout& how, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  return double(detail::philox(*how.seed, j / 4, i, h, b).word[j % 4]) >= how.p * 4294967296.0;
}

/// Ids that a sequence of documents gives its elements: `starts` are the first elements of all but the first document.
inline tensor<std::int64_t> documents(std::int64_t count, const std::vector<std::int64_t>& starts) {
  tensor<std::int64_t> ids({count});
  for (std::int64_t i = 0; i < count; ++i)
    for (const std::int64_t start : starts) ids(i) += i >= start;
  return ids;
}

inline tensor<std::int64_t> random_ids(const extents& shape, std::uint64_t seed, std::int64_t low, std::int64_t high) {
  random_source source(seed);
  tensor<std::int64_t> ids(shape);
  for (std::int64_t& id : ids) id = source.between(low, high);
  return ids;
}

struct named_options {
  std::string name;
  options how;
};

/// Arrays for every option of scores and weights, and calls with each of them; the calls refer to the arrays.
template <class T>
struct score_arrays {
  tensor<std::int64_t> query_documents, key_documents, query_ids, key_ids;  // of all batches; (B, L) and (B, S), some negative
  tensor<T> slopes, sinks, bias, row;
  tensor<std::int64_t> lengths, prefix;

  explicit score_arrays(const sizes& n, std::uint64_t seed = 1)
      : query_documents(documents(n.L, {n.L / 3, n.L / 2 + 1})),
        key_documents(documents(n.S, {n.S / 3, n.S / 2 + 1})),
        query_ids(random_ids({n.B, n.L}, 11 * seed, -1, 2)),
        key_ids(random_ids({n.B, n.S}, 11 * seed + 1, -1, 2)),
        slopes(normal<T>({n.H}, 11 * seed + 2, 0.2)),
        sinks(normal<T>({n.H}, 11 * seed + 3, 2)),
        bias(normal<T>({n.B, 1, n.L, n.S}, 11 * seed + 4, 2)),
        row(normal<T>({n.S}, 11 * seed + 5, 2)),
        lengths({n.B}),
        prefix({n.B}) {
    for (std::int64_t b = 0; b < n.B; ++b) lengths(b) = n.S - n.S * b / (2 * n.B), prefix(b) = b % (n.S + 1);
    for (std::int64_t j = 1; j < n.S; j += 5) row(j) = T(-infinity);
  }

  /// Every option alone, other orders of score functions, and all together. Positions are compared from the last query.
  std::vector<named_options> calls() const {
    const score_list other = {attend::bias(bias), soft_cap(3), alibi(slopes)};
    const score_list several = {soft_cap(4), attend::bias(row), soft_cap(2.5), attend::bias(bias), attend::bias(row)};
    std::vector<named_options> all = {
        {"documents", {.query_segments = query_documents, .key_segments = key_documents}},
        {"segments", {.query_segments = query_ids, .key_segments = key_ids}},
        {"soft cap", {.softcap = 1.5}},
        {"ALiBi of the paper", {.alibi = true}},
        {"ALiBi given", {.alibi = slopes}},
        {"sinks", {.sinks = sinks}},
        {"dropout", {.dropout = {.p = 0.3, .seed = 7}}},
        {"soft cap, bias, ALiBi", {.bias = bias, .softcap = 2, .alibi = true}},
        {"another order", {.score = other}},
        {"two biases", {.bias = bias, .score = {attend::bias(row)}}},
        {"several of each", {.bias = row, .softcap = 3, .alibi = slopes, .score = several}},
        {"causal documents", {.causal = true, .query_segments = query_documents, .key_segments = key_documents}},
        {"all together",
         {.causal = true,
          .window = {40, {}},
          .prefix = prefix,
          .query_segments = query_ids,
          .key_segments = key_ids,
          .key_lengths = lengths,
          .bias = row,
          .scale = 0.4,
          .softcap = 5,
          .alibi = true,
          .sinks = sinks,
          .score = {soft_cap(8), attend::bias(bias)},
          .dropout = {.p = 0.2, .seed = 0x123456789abcdefU}}}};
    for (named_options& one : all) one.how.query_offset = lower_right;
    return all;
  }
};

/// Both kernels meet the reference.
template <class T>
void expect_right(const inputs<T>& x, options how, const std::string& what) {
  const expectation expected(x.q, x.k, x.v, how, true);
  for (const bool reproducible : {false, true}) {
    how.reproducible = reproducible;
    EXPECT_TRUE(expected.met_by(compute(x, how, true))) << what << (reproducible ? ", reproducible" : "");
  }
}

/// Scores at a stage, in memory that held something else before.
template <class T>
tensor<T> scores_of(const array_view& q, const array_view& k, const array_view& v, const options& how, score_stage stage) {
  const extents rows = lse_shape(output_shape(q, k, v, how), how.layout);
  tensor<T> scores(appended(rows, keys_of(k.shape, how.layout)), T(76));
  attention(q, k, v, outputs{.scores = scores, .stage = stage}, how);
  return scores;
}

/// What scores at a stage are, and the sizes of the terms that each is made of.
struct expected_scores {
  tensor<double> scores, sizes;
};

template <class T>
expected_scores score_truth(const array_view& q, const array_view& k, const array_view& v, const options& how,
                            score_stage stage) {
  const detail::problem p = detail::validate(q, k, v, {}, how);
  const extents shape = appended(lse_shape(output_shape(q, k, v, how), how.layout), p.keys);
  expected_scores truth{tensor<double>(shape, -infinity), tensor<double>(shape)};
  const int functions = stage == score_stage::scaled ? 0 : stage == score_stage::capped ? p.capped_count : p.score_count;
  std::int64_t at = 0;
  for_each_index({p.batch.count, p.heads, p.queries}, [&](const extents& one) {
    reference::row<T> row(p, one[0], one[1], one[2]);
    for (std::int64_t j = 0; j < p.keys; ++j, ++at) {
      if (j >= detail::key_length(p, one[0]) || (stage == score_stage::biased && !row.is_allowed(j))) continue;
      const reference::terms score = row.score_of(j, functions);
      truth.scores.data()[at] = score.sum, truth.sizes.data()[at] = score.size;
    }
  });
  return truth;
}

/// The scores are those of the reference, up to what rounding terms of their sizes leaves.
template <class T>
testing::AssertionResult scores_right(const array_view& q, const array_view& k, const array_view& v, const options& how,
                                      score_stage stage) {
  const expected_scores truth = score_truth<T>(q, k, v, how, stage);
  using limits = std::numeric_limits<accumulator<T>>;
  constexpr double epsilon = limits::epsilon(), smallest = limits::min();
  return near(scores_of<T>(q, k, v, how, stage), truth.scores, [&](std::int64_t at) {
    return 8 * epsilon * truth.sizes.data()[at] + smallest + stored_error<T>(truth.scores.data()[at]);
  });
}

}  // namespace attend::test
