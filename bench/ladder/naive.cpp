// Step 1, naive: the definition, one matrix after the other.
//
//   weights  [queries][keys]  scores, then weights, all of them at once
#include <cmath>

#include "steps.hpp"

namespace attend::kernel_ladder {
namespace {

std::int64_t scratch_bytes(const head<float>& one) { return one.queries * one.keys * static_cast<std::int64_t>(sizeof(float)); }

void run(const head<float>& one, void* scratch) {
  float* const weights = static_cast<float*>(scratch);

  for (std::int64_t i = 0; i < one.queries; ++i) {
    for (std::int64_t j = 0; j < one.keys; ++j) {
      float score = 0;
      for (std::int64_t d = 0; d < one.width; ++d) score += one.q[i * one.width + d] * one.k[j * one.width + d];
      weights[i * one.keys + j] = one.scale * score;
    }
  }

  for (std::int64_t i = 0; i < one.queries; ++i) {
    float* const row = weights + i * one.keys;
    float maximum = row[0], sum = 0;
    for (std::int64_t j = 1; j < one.keys; ++j) maximum = row[j] > maximum ? row[j] : maximum;
    for (std::int64_t j = 0; j < one.keys; ++j) sum += row[j] = std::exp(row[j] - maximum);
    for (std::int64_t j = 0; j < one.keys; ++j) row[j] /= sum;
  }

  for (std::int64_t i = 0; i < one.queries; ++i) {
    float* const y = one.y + i * one.value_width;
    for (std::int64_t d = 0; d < one.value_width; ++d) y[d] = 0;
    for (std::int64_t j = 0; j < one.keys; ++j) {
      const float weight = weights[i * one.keys + j];
      for (std::int64_t d = 0; d < one.value_width; ++d) y[d] += weight * one.v[j * one.value_width + d];
    }
  }
}

}  // namespace

const step<float> naive = {"naive", 1, scratch_bytes, run};

}  // namespace attend::kernel_ladder
