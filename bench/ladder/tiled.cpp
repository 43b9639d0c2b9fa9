// Step 2, tiled: the softmax is corrected as it goes, so that no matrix of scores is needed.
//
//   scores  [tile_keys]      of one query with the keys of one tile, then weights
//   state   [block_queries]  largest score so far, sum of weights so far
//
// A tile of K and V meets a block of queries while it is in the first-level cache.
#include <cmath>

#include "steps.hpp"

namespace attend::kernel_ladder {
namespace {

constexpr std::int64_t block_queries = 64, tile_keys = 64;

struct softmax_state {
  float maximum, sum;
};

std::int64_t scratch_bytes(const head<float>&) {
  return static_cast<std::int64_t>(tile_keys * sizeof(float) + block_queries * sizeof(softmax_state));
}

/// Folds keys [first, end) into the result of query i, whose row of y stays a plain sum until the last tile.
void fold_tile(const head<float>& one, std::int64_t i, std::int64_t first, std::int64_t end, float* scores,
               softmax_state& state) {
  float* const y = one.y + i * one.value_width;
  float maximum = state.maximum;
  for (std::int64_t j = first; j < end; ++j) {
    float score = 0;
    for (std::int64_t d = 0; d < one.width; ++d) score += one.q[i * one.width + d] * one.k[j * one.width + d];
    score *= one.scale;
    scores[j - first] = score;
    maximum = score > maximum ? score : maximum;
  }

  const float rescale = std::exp(state.maximum - maximum);  // 0 at the first tile
  state.maximum = maximum;
  state.sum *= rescale;
  for (std::int64_t d = 0; d < one.value_width; ++d) y[d] *= rescale;

  for (std::int64_t j = first; j < end; ++j) {
    const float weight = std::exp(scores[j - first] - maximum);
    state.sum += weight;
    for (std::int64_t d = 0; d < one.value_width; ++d) y[d] += weight * one.v[j * one.value_width + d];
  }
}

void run(const head<float>& one, void* scratch) {
  softmax_state* const state = static_cast<softmax_state*>(scratch);
  float* const scores = reinterpret_cast<float*>(state + block_queries);

  for (std::int64_t block = 0; block < one.queries; block += block_queries) {
    const std::int64_t block_end = block + block_queries < one.queries ? block + block_queries : one.queries;
    for (std::int64_t i = block; i < block_end; ++i) {
      state[i - block] = {-INFINITY, 0};
      for (std::int64_t d = 0; d < one.value_width; ++d) one.y[i * one.value_width + d] = 0;
    }
    for (std::int64_t first = 0; first < one.keys; first += tile_keys) {
      const std::int64_t end = first + tile_keys < one.keys ? first + tile_keys : one.keys;
      for (std::int64_t i = block; i < block_end; ++i) fold_tile(one, i, first, end, scores, state[i - block]);
    }
    for (std::int64_t i = block; i < block_end; ++i)
      for (std::int64_t d = 0; d < one.value_width; ++d) one.y[i * one.value_width + d] /= state[i - block].sum;
  }
}

}  // namespace

const step<float> tiled = {"tiled", 1, scratch_bytes, run};

}  // namespace attend::kernel_ladder
