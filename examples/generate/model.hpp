// The language model: weights from a file, and one pass of new tokens through its layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "caches.hpp"

namespace generate {

/// Row-major; a layer of the network computes y = W x.
struct matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> numbers;
};

struct layer {
  std::vector<float> attention_norm, mlp_norm;
  matrix q, k, v, o, gate, up, down;
};

/// A decoder as Llama has it: RMSNorm, rotary embeddings, grouped-query attention, SwiGLU, one table of embeddings for both ends.
class model {
 public:
  /// Reads what train.py writes; the shapes of the tensors are the model's sizes. Throws `attend::io::error`.
  explicit model(const std::filesystem::path& weights);

  /// The byte of each token.
  std::span<const unsigned char> vocabulary() const { return vocabulary_; }
  const cache_sizes& cache() const { return cache_; }
  /// Tokens of the longest text that it was trained on; it has never seen a key that was farther away.
  std::int64_t context() const { return context_; }

  /// Appends tokens, from 1 to `most_tokens_at_a_time`, to the caches; scores of what may follow the last of them, one per token of the vocabulary.
  std::vector<float> scores_after(std::span<const std::size_t> tokens, caches& memory) const;

 private:
  std::vector<unsigned char> vocabulary_;
  cache_sizes cache_;
  std::int64_t heads_ = 0, context_ = 0;
  matrix embedding_;
  std::vector<layer> layers_;
  std::vector<float> norm_;
};

}  // namespace generate
