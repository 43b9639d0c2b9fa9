// The pass itself. Products are plain loops, so that what is not attention can be read at a glance.
#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace generate {

namespace {

using rows = std::vector<float>;  // one row per token

// Sixteen sums side by side: the compiler may not reorder a single sum, and so could not use vectors for it.
float dot(const float* a, const float* b, std::size_t n) {
  constexpr std::size_t lanes = 16;
  float sums[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// W x of every row x.
rows product(const matrix& w, std::span<const float> x) {
  const auto from = static_cast<std::size_t>(w.columns), to = static_cast<std::size_t>(w.rows), tokens = x.size() / from;
  rows y(tokens * to);
  for (std::size_t row = 0; row < to; ++row) {
    for (std::size_t t = 0; t < tokens; ++t) y[t * to + row] = dot(&w.numbers[row * from], &x[t * from], from);
  }
  return y;
}

/// Each row over the root of its mean square, times a weight per column.
rows normalized(std::span<const float> x, const std::vector<float>& weight) {
  constexpr float epsilon = 1e-5f;
  const std::size_t width = weight.size();
  rows y(x.size());
  for (std::size_t at = 0; at < x.size(); at += width) {
    const float scale = 1 / std::sqrt(dot(&x[at], &x[at], width) / static_cast<float>(width) + epsilon);
    for (std::size_t i = 0; i < width; ++i) y[at + i] = x[at + i] * scale * weight[i];
  }
  return y;
}

void add(rows& x, const rows& y) { std::ranges::transform(x, y, x.begin(), std::plus<>()); }

/// SwiGLU: down(silu(gate x) * up x).
rows mlp(const layer& w, const rows& x) {
  rows inner = product(w.gate, x);
  const rows up = product(w.up, x);
  std::ranges::transform(inner, up, inner.begin(), [](float g, float u) { return g / (1 + std::exp(-g)) * u; });
  return product(w.down, inner);
}

}  // namespace

std::vector<float> model::scores_after(std::span<const std::size_t> tokens, caches& memory) const {
  const auto width = static_cast<std::size_t>(embedding_.columns), count = tokens.size();
  rows x(count * width);
  for (std::size_t t = 0; t < count; ++t) std::copy_n(&embedding_.numbers[tokens[t] * width], width, &x[t * width]);

  for (std::size_t at = 0; at < layers_.size(); ++at) {
    const layer& w = layers_[at];
    const rows h = normalized(x, w.attention_norm);
    const rows q = product(w.q, h), k = product(w.k, h), v = product(w.v, h);
    rows y(q.size());
    // A row holds its heads one behind the other. The caches read them where they are: strides say where the next token is.
    const auto heads = [&](auto* data, std::int64_t number) {
      const std::int64_t step = number * cache_.head_width;
      return attend::tensor_view(data, {1, number, static_cast<std::int64_t>(count), cache_.head_width},
                                 {static_cast<std::int64_t>(count) * step, cache_.head_width, step, 1});
    };
    memory.append(at, heads(k.data(), cache_.kv_heads), heads(v.data(), cache_.kv_heads));
    memory.decode(at, heads(q.data(), heads_), heads(y.data(), heads_));
    add(x, product(w.o, y));
    add(x, mlp(w, normalized(x, w.mlp_norm)));
  }
  return product(embedding_, normalized(std::span(x).last(width), norm_));
}

}  // namespace generate
