// Step 3, lanes: queries are lanes. The tile of scores is transposed, so that neighbours in memory always meet the same fate.
//
//   queries  [width][block]       Q transposed and scaled, once per block of queries
//   scores   [tile_keys][block]   K . Q^T, then weights
//   sums     [value_width][block] V^T . weights
//   maximum, total, rescale [block]
//
// No intrinsics: the compiler vectorises each loop over lanes, with the vectors that every processor of the architecture has.
#include <cmath>

#include "steps.hpp"

namespace attend::kernel_ladder {
namespace {

constexpr int block = 64, tile_keys = 64;
constexpr int group = 16;  // lanes whose sums stay in registers

struct tile_memory {
  float *queries, *scores, *sums, *maximum, *total, *rescale;
};

tile_memory divide(const head<float>& one, void* scratch) {
  tile_memory t;
  t.queries = static_cast<float*>(scratch);
  t.scores = t.queries + one.width * block;
  t.sums = t.scores + tile_keys * block;
  t.maximum = t.sums + one.value_width * block;
  t.total = t.maximum + block;
  t.rescale = t.total + block;
  return t;
}

std::int64_t scratch_bytes(const head<float>& one) {
  return (one.width + tile_keys + one.value_width + 3) * block * static_cast<std::int64_t>(sizeof(float));
}

/// sums[lane] += numbers[0] * rows[0][lane] + numbers[step] * rows[1][lane] + ...: keys with queries, and values with weights.
void add_products(const float* numbers, std::int64_t step, const float* rows, std::int64_t count, float* sums) {
  for (int lane = 0; lane < block; lane += group) {
    float sum[group];
    for (int n = 0; n < group; ++n) sum[n] = sums[lane + n];
    for (std::int64_t i = 0; i < count; ++i)
      for (int n = 0; n < group; ++n) sum[n] += numbers[i * step] * rows[i * block + lane + n];
    for (int n = 0; n < group; ++n) sums[lane + n] = sum[n];
  }
}

void load_queries(const head<float>& one, std::int64_t first, const tile_memory& t) {
  for (int lane = 0; lane < block; ++lane) {
    const bool exists = first + lane < one.queries;
    for (std::int64_t d = 0; d < one.width; ++d)
      t.queries[d * block + lane] = exists ? one.scale * one.q[(first + lane) * one.width + d] : 0;
  }
}

void softmax_columns(const tile_memory& t, int count) {
  float maximum[block];
  for (int lane = 0; lane < block; ++lane) maximum[lane] = t.maximum[lane];
  for (int j = 0; j < count; ++j)
    for (int lane = 0; lane < block; ++lane) {
      const float score = t.scores[j * block + lane];
      maximum[lane] = score > maximum[lane] ? score : maximum[lane];
    }
  for (int lane = 0; lane < block; ++lane) {
    t.rescale[lane] = std::exp(t.maximum[lane] - maximum[lane]);
    t.maximum[lane] = maximum[lane];
    t.total[lane] *= t.rescale[lane];
  }
  for (int j = 0; j < count; ++j)
    for (int lane = 0; lane < block; ++lane) {
      const float weight = std::exp(t.scores[j * block + lane] - maximum[lane]);
      t.scores[j * block + lane] = weight;
      t.total[lane] += weight;
    }
}

void run(const head<float>& one, void* scratch) {
  const tile_memory t = divide(one, scratch);
  for (std::int64_t first = 0; first < one.queries; first += block) {
    load_queries(one, first, t);
    for (int lane = 0; lane < block; ++lane) t.maximum[lane] = -INFINITY, t.total[lane] = 0;
    for (std::int64_t d = 0; d < one.value_width * block; ++d) t.sums[d] = 0;

    for (std::int64_t key = 0; key < one.keys; key += tile_keys) {
      const int count = static_cast<int>(one.keys - key < tile_keys ? one.keys - key : tile_keys);
      for (int j = 0; j < count; ++j) {
        float* const scores = t.scores + j * block;
        for (int lane = 0; lane < block; ++lane) scores[lane] = 0;
        add_products(one.k + (key + j) * one.width, 1, t.queries, one.width, scores);
      }
      softmax_columns(t, count);
      for (std::int64_t d = 0; d < one.value_width; ++d) {
        float* const sums = t.sums + d * block;
        for (int lane = 0; lane < block; ++lane) sums[lane] *= t.rescale[lane];
        add_products(one.v + key * one.value_width + d, one.value_width, t.scores, count, sums);
      }
    }

    const std::int64_t count = one.queries - first < block ? one.queries - first : block;
    for (std::int64_t lane = 0; lane < count; ++lane)
      for (std::int64_t d = 0; d < one.value_width; ++d)
        one.y[(first + lane) * one.value_width + d] = t.sums[d * block + lane] / t.total[lane];
  }
}

}  // namespace

const step<float> lanes = {"lanes", 1, scratch_bytes, run};

}  // namespace attend::kernel_ladder
