// Step 10. Many heads. Step 7 runs h = 8 times on the same sequence, each time with matrices of its own, so that each head looks
// for something else; a last matrix joins their results:
//   O_h = Attention(X (W_Q^h)^T, X (W_K^h)^T, X (W_V^h)^T)   (T x 64),      Y = [O_1 … O_8] W_O^T   (T x 512).
// This is the multi-head attention of Vaswani et al., Attention Is All You Need, 2017: 8 heads of 64 on a width of 512.
#include "ladder.hpp"

using namespace ladder;
constexpr int64_t heads = 8, d = 64, width = heads * d;

// One head in plain loops; row i sees the elements before `seen(i)`.
template <class Seen>
static matrix loops(const matrix& Q, const matrix& K, const matrix& V, const Seen& seen) {
  const matrix S = product(K, Q);
  tensor<real> O(V.shape());
  for (int64_t i = 0; i < S.shape()[0]; ++i) {
    real Z = 0;
    for (int64_t j = 0; j < seen(i); ++j) Z += std::exp(real(S(i, j)) / 8);  // √d = 8
    for (int64_t j = 0; j < seen(i); ++j)
      for (int64_t c = 0; c < d; ++c) O(i, c) += std::exp(real(S(i, j)) / 8) / Z * V(j, c);
  }
  return rounded(O);
}

static matrix layer(std::uint64_t seed) {
  return map(numbers({width, width}, seed), [](double w) { return w / std::sqrt(double{width}); });
}

int main(int argc, char** argv) {
  step s(argc, argv, "10  Many heads: 8 of 64 on a width of 512");
  const matrix W_Q = layer(1), W_K = layer(2), W_V = layer(3), W_O = layer(4);
  for (const int64_t T : {1, 13}) {
    const matrix X = numbers({T, width}, 5);
    const auto all_of_them = [T](int64_t) { return T; };
    const auto those_up_to = [](int64_t i) { return i + 1; };
    matrix O({T, width}), o({T, width}), all({T, width});
    std::vector<panel> panels;
    for (int64_t h = 0; h < heads; ++h) {  // the matrices of head h are 64 rows of the whole ones
      const matrix W_Q_h = rows(W_Q, range(h * d, d)), W_K_h = rows(W_K, range(h * d, d)), W_V_h = rows(W_V, range(h * d, d));
      const matrix Q = project(W_Q_h, X), K = project(W_K_h, X), V = project(W_V_h, X);
      const matrix q = product(W_Q_h, X), k = product(W_K_h, X), v = product(W_V_h, X);
      const matrix O_h = attend::attention(Q, K, V), o_h = loops(q, k, v, all_of_them);
      s.compare(text("O_1 to O_8, T = ", T), O_h, o_h, allowed(Q, K, V));
      s.compare(text("O_1 to O_8, causal, T = ", T), attend::attention(Q, K, V, {.causal = true}), loops(q, k, v, those_up_to),
                allowed(Q, K, V, {.causal = true}));
      for (int64_t i = 0; i < T; ++i) std::copy_n(&O_h(i, 0), d, &O(i, h * d)), std::copy_n(&o_h(i, 0), d, &o(i, h * d));
      panels.push_back(heat_map(text("head ", h + 1, ": weights"), shown_weights(Q, K, V, {.causal = true})));
    }
    s.compare(text("Y = O W_O^T, T = ", T), project(W_O, O), product(W_O, o), allowed_projection(W_O, O));
    // All heads in one call: each reads and writes its 64 columns of the whole matrices.
    const matrix Q = project(W_Q, X), K = project(W_K, X), V = project(W_V, X);
    const auto by_head = [T](auto* x) { return tensor_view(x, {heads, T, d}, {d, width, 1}); };
    attend::attention(by_head(Q.data()), by_head(K.data()), by_head(V.data()), by_head(all.data()));
    s.same_bits("O of 8 heads in one call and of 8 calls", all, O);
    if (T > 1) s.picture("10_many_heads", panels);
  }
  return s.result();
}
