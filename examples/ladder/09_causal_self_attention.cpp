// Step 9. Causal self-attention. Filters and elements now come from one sequence x_1 … x_T: there are T filters, and T elements.
//   q_i = W_Q x_i,  k_j = W_K x_j,  v_j = W_V x_j,      y_i = Σ_{j <= i} softmax_{j <= i}(q_i · k_j / √d) v_j.
// The region of position i ends at i, so that y_i depends on nothing that comes later. One position at a time is a sum over a
// region that grows; all positions at once are the matrix form with a triangle as its mask.
#include "ladder.hpp"

using namespace ladder;

static matrix loops(const matrix& Q, const matrix& K, const matrix& V) {
  const matrix S = product(K, Q);
  tensor<real> Y(V.shape());
  for (int64_t i = 0; i < S.shape()[0]; ++i) {
    const auto e = [&](int64_t j) { return std::exp(real(S(i, j)) / std::sqrt(real(Q.shape()[1]))); };
    real Z = 0;
    for (int64_t j = 0; j <= i; ++j) Z += e(j);
    for (int64_t j = 0; j <= i; ++j)
      for (int64_t c = 0; c < V.shape()[1]; ++c) Y(i, c) += e(j) / Z * V(j, c);
  }
  return rounded(Y);
}

int main(int argc, char** argv) {
  step s(argc, argv, "9  Causal self-attention: y_i = Σ_{j <= i} softmax_{j <= i}(q_i · k_j / √d) v_j");
  const auto small = [](double w) { return w / 4; };
  const matrix W_Q = map(numbers({8, 12}, 1), small), W_K = map(numbers({8, 12}, 2), small), W_V = numbers({5, 12}, 3);
  for (const int64_t T : {1, 7, 100, 333}) {
    const matrix X = numbers({T, 12}, 4), Q = project(W_Q, X), K = project(W_K, X), V = project(W_V, X);
    const matrix Y = attend::attention(Q, K, V, {.causal = true}), bound = allowed(Q, K, V, {.causal = true});
    const matrix y = loops(product(W_Q, X), product(W_K, X), product(W_V, X));
    s.compare(text("all positions at once, T = ", T), Y, y, bound);

    matrix one_by_one({T, 5});
    for (int64_t i = 0; i < T; ++i) {  // the region of position i: the first i + 1 rows of K and V
      const tensor_view<const double> K_i(K.data(), {i + 1, 8}), V_i(V.data(), {i + 1, 5});
      set_row(one_by_one, i, attend::attention(row(Q, i), K_i, V_i));
    }
    s.compare(text("one position at a time, T = ", T), one_by_one, y, bound);

    if (T == 1) continue;  // Another end of the sequence: the rows before it keep their bits.
    matrix other = numbers({T, 12}, 5);
    std::copy_n(X.data(), T / 2 * 12, other.data());
    const matrix changed = attend::attention(project(W_Q, other), project(W_K, other), project(W_V, other), {.causal = true});
    s.same_bits(text("y_1 to y_", T / 2, " with another end of x, T = ", T), rows(changed, range(0, T / 2)),
                rows(Y, range(0, T / 2)));
    if (T == 7) {
      matrix w = weights(Q, K, V, {.causal = true});
      for (int64_t i = 0; i < T; ++i) std::fill(&w(i, 0) + i + 1, &w(i, 0) + T, NAN);
      s.picture("09_causal_self_attention",
                {heat_map("x_1 … x_7", X), heat_map("weights, j <= i", w), heat_map("V", V), heat_map("Y", Y)});
    }
  }
  return s.result();
}
