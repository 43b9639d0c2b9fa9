// Step 6. The common form. The filter comes from a domain A, the elements from a domain B, of other widths; three matrices make
// them meet: q = W_Q a, k_i = W_K b_i, v_i = W_V b_i. A softmax makes the weights positive, and their sum 1:
//   y = Σ_i w_i v_i,    w_i = e^{s_i} / Σ_j e^{s_j},    s_i = f(q, k_i), most often q · k_i / √d.
#include "ladder.hpp"

using namespace ladder;
using kind = attend::compatibility_kind;
static const tensor<double> u = numbers({4}, 6);  // of the additive function, Σ_c u_c tanh(q_c + k_c)

static real score(kind f, const matrix& q, const matrix& K, int64_t i) {
  real dot = 0, qq = 0, kk = 0, square = 0, distance = 0, additive = 0;
  for (int64_t c = 0; c < 4; ++c) {
    const real x = q(0, c), k = K(i, c);
    dot += x * k, qq += x * x, kk += k * k, distance += std::abs(x - k), square += (x - k) * (x - k);
    additive += u(c) * std::tanh(x + k);
  }
  if (f == kind::dot) return dot / 2;  // √d = 2
  if (f == kind::cosine) return dot / std::sqrt(qq * kk);
  return f == kind::gaussian ? -square / 2 : f == kind::l1 ? -distance : f == kind::additive ? additive : 0;
}

static matrix loops(kind f, const matrix& q, const matrix& K, const matrix& V) {
  tensor<real> y({1, V.shape()[1]});
  real Z = 0;
  for (int64_t i = 0; i < V.shape()[0]; ++i) Z += std::exp(score(f, q, K, i));
  for (int64_t i = 0; i < V.shape()[0]; ++i)
    for (int64_t c = 0; c < V.shape()[1]; ++c) y(0, c) += std::exp(score(f, q, K, i)) / Z * V(i, c);
  return rounded(y);
}

int main(int argc, char** argv) {
  step s(argc, argv, "6  The common form: y = Σ_i softmax_i(f(W_Q a, W_K b_i)) W_V b_i");
  const matrix W_Q = numbers({4, 5}, 1), W_K = numbers({4, 7}, 2), W_V = numbers({3, 7}, 3), W = numbers({4, 4}, 4);
  const matrix a = numbers({1, 5}, 5), q = project(W_Q, a), q_W = project(transposed(W), q);
  for (const int64_t N : {1, 7, 50}) {
    const matrix B = numbers({N, 7}, 7), K = project(W_K, B), V = project(W_V, B), W_k = product(W, K);
    s.compare("k_i = W_K b_i", K, product(W_K, B), four_ulp(product(absolute(W_K), absolute(B))));
    for (auto f : {compatibility::dot, compatibility::cosine, compatibility::l1, compatibility::none, gaussian(1), additive(u)})
      s.compare(text(name_of(f.kind)), attend::attention(q, K, V, {.compatibility = f}), loops(f.kind, q, K, V),
                allowed(q, K, V, {.compatibility = f}));
    s.compare("bilinear, q W k = (W^T q) k", attend::attention(q_W, K, V), loops(kind::dot, q, W_k, V), allowed(q_W, K, V));
  }
  const matrix e = table({1, 4}, {1, 0, 2, 0}), across = table({1, 4}, {0, 3, 0, -1});
  const double zero = attend::attention(e, across, identity(1), {.normalizer = normalizer::sum})(0, 0);
  s.claim(zero == 0, "vectors at right angles have the score ", zero);
  // Why 1/√d: the variance of scores grows with d, and the softmax comes to take one element and leave the others.
  matrix top({2, 5}), I = identity(100);  // with I as the values, the result is the weights
  for (int64_t n = 0, d = 1; n < 5; ++n, d *= 4) {
    const matrix Q = numbers({100, d}, 8), K = numbers({100, d}, 9);
    const real var = mean_square(attend::attention(Q, K, I, {.scale = 1, .normalizer = normalizer::sum}));
    const matrix sharp = attend::attention(Q, K, I, {.scale = 1}), soft = attend::attention(Q, K, I);
    top(0, n) = mean_largest(sharp), top(1, n) = mean_largest(soft);
    s.claim(4 * std::abs(var - d) < d, "d = ", d, ": variance ", var, ", top weight ", top(0, n), ", with 1/√d ", top(1, n));
    if (d == 256) s.picture("06_weights", {heat_map("softmax of q·k, d = 256", sharp), heat_map("softmax of q·k/√d", soft)});
  }
  s.claim(top(0, 4) > 0.8 && top(1, 4) < 0.1, "at d = 256, one weight of 100 takes nearly all without the scale");
  s.picture("06_common_form", {bars("largest of 100 weights", {"1", "4", "16", "64", "256"}, top, {"q·k", "q·k/√d"})});
  return s.result();
}
