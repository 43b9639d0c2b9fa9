// Step 4, avx512: the algorithm and the memory of step 3, with registers of 16 numbers, sums that share what they load, and an
// exponential for 16 numbers at once.
//
//   queries  [width][block]       Q transposed and scaled, once per block of queries
//   scores   [tile_keys][block]   K . Q^T, then weights; 24 KB, which stay in the first-level cache
//   sums     [value_width][block] V^T . weights
//
// Registers: 6 x 4 sums, 4 operands, 1 broadcast: 29 of 32. Vectors and their arithmetic are the library's policy of AVX-512, the
// exponential is its own, too.
#include "simd/avx512.hpp"
#include "steps.hpp"

namespace attend::kernel_ladder {
namespace {

#include "kernels/exponential.inl"

using simd = detail::avx512::simd<float>;
using vector = simd::V;

constexpr int vectors = 4, block = vectors * simd::width, tile_keys = 96, rows = 6;

struct tile_memory {
  float *queries, *scores, *sums;
};

tile_memory divide(const head<float>& one, void* scratch) {
  float* const first = static_cast<float*>(scratch);
  return {first, first + one.width * block, first + (one.width + tile_keys) * block};
}

std::int64_t scratch_bytes(const head<float>& one) {
  return (one.width + tile_keys + one.value_width) * block * static_cast<std::int64_t>(sizeof(float));
}

/// What a product is made from: number (r, i) meets lanes[i], for `count` i, and adds to sums[r].
struct product {
  const float* numbers;
  std::int64_t row_step, step;  // between the numbers of r and r + 1, of i and i + 1
  const float* lanes;
  std::int64_t count;
  float* sums;
};

/// Rows [r, r + n) of a product: each vector of lanes that is loaded serves n rows, each number that is broadcast serves 4 vectors.
template <int n>
[[gnu::always_inline]] inline void add_rows(const product& p, std::int64_t r, const vector* rescale) {
  vector sum[n][vectors];
  float* const to = p.sums + r * block;
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j)
      sum[i][j] = rescale ? simd::load(to + i * block + j * simd::width) * rescale[j] : simd::set(0);
  const float* number = p.numbers + r * p.row_step;
  const float* from = p.lanes;
  for (std::int64_t k = 0; k < p.count; ++k, number += p.step, from += block) {
    vector lanes[vectors];
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) lanes[j] = simd::load(from + j * simd::width);
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) {
      const vector x = simd::set(number[i * p.row_step]);
#pragma GCC unroll 8
      for (int j = 0; j < vectors; ++j) sum[i][j] = simd::fma(x, lanes[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) simd::store(to + i * block + j * simd::width, sum[i][j]);
}

/// sums = sums * rescale + the product, of which `count` rows exist; without `rescale`, the product alone.
void add_product(const product& p, std::int64_t count, const vector* rescale) {
  std::int64_t r = 0;
  for (; r + rows <= count; r += rows) add_rows<rows>(p, r, rescale);
  for (; r + 2 <= count; r += 2) add_rows<2>(p, r, rescale);
  if (r < count) add_rows<1>(p, r, rescale);
}

void load_queries(const head<float>& one, std::int64_t first, float* queries) {
  for (int lane = 0; lane < block; ++lane) {
    const bool exists = first + lane < one.queries;
    for (std::int64_t d = 0; d < one.width; ++d)
      queries[d * block + lane] = exists ? one.scale * one.q[(first + lane) * one.width + d] : 0;
  }
}

/// Scores become weights, column by column; returns in `rescale` what earlier sums are multiplied by.
void softmax_columns(float* scores, int count, vector (&maximum)[vectors], vector (&total)[vectors],
                     vector (&rescale)[vectors]) {
  const vector log2e = simd::set(log2_of_e<float>);
  for (int j = 0; j < vectors; ++j) {
    float* const column = scores + j * simd::width;
    vector largest = maximum[j];
    for (int key = 0; key < count; ++key) largest = simd::max(largest, simd::load(column + key * block));
    rescale[j] = exp2_of<simd>((maximum[j] - largest) * log2e);
    maximum[j] = largest;
    vector sum = total[j] * rescale[j];
#pragma GCC unroll 4
    for (int key = 0; key < count; ++key) {
      const vector weight = exp2_of<simd>((simd::load(column + key * block) - largest) * log2e);
      simd::store(column + key * block, weight);
      sum += weight;
    }
    total[j] = sum;
  }
}

void store_results(const head<float>& one, std::int64_t first, const float* sums, const vector (&total)[vectors]) {
  float inverse[block];
  for (int j = 0; j < vectors; ++j) simd::store(inverse + j * simd::width, simd::set(1) / total[j]);
  const std::int64_t count = one.queries - first < block ? one.queries - first : block;
  for (std::int64_t lane = 0; lane < count; ++lane)
    for (std::int64_t d = 0; d < one.value_width; ++d)
      one.y[(first + lane) * one.value_width + d] = sums[d * block + lane] * inverse[lane];
}

void run(const head<float>& one, void* scratch) {
  const tile_memory t = divide(one, scratch);
  for (std::int64_t first = 0; first < one.queries; first += block) {
    load_queries(one, first, t.queries);
    vector maximum[vectors], total[vectors], rescale[vectors];
    for (int j = 0; j < vectors; ++j) maximum[j] = simd::set(-infinity<float>), total[j] = simd::set(0);
    for (std::int64_t n = 0; n < one.value_width * block; ++n) t.sums[n] = 0;

    for (std::int64_t key = 0; key < one.keys; key += tile_keys) {
      const int count = static_cast<int>(one.keys - key < tile_keys ? one.keys - key : tile_keys);
      add_product({one.k + key * one.width, one.width, 1, t.queries, one.width, t.scores}, count, nullptr);
      softmax_columns(t.scores, count, maximum, total, rescale);
      add_product({one.v + key * one.value_width, 1, one.value_width, t.scores, count, t.sums}, one.value_width, rescale);
    }
    store_results(one, first, t.sums, total);
  }
}

}  // namespace

const step<float> avx512 = {"avx512", 1, scratch_bytes, run};

}  // namespace attend::kernel_ladder
