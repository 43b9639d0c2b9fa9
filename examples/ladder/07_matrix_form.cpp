// Step 7. The matrix form. M vectors of A are M filters on one region. Their queries are the n = M rows of Q (n x d_k); the keys
// and values of the m elements are the rows of K (m x d_k) and V (m x d_v). Written out, in this order:
//   MatMul  S = Q K^T   ->   Scale  S / √d_k   ->   Mask  -inf where excluded   ->   SoftMax  along each row   ->   MatMul  Y = S V.
// Row i of Y is what step 6 makes of query i alone. The call does the same without ever holding the n x m scores.
#include "ladder.hpp"

using namespace ladder;

static matrix stages(step& s, const matrix& Q, const matrix& K, const matrix& V, const tensor<bool>& mask) {
  const int64_t n = Q.shape()[0], m = K.shape()[0], d_k = Q.shape()[1], d_v = V.shape()[1];
  matrix S = product(K, Q);  // row i: K q_i
  for (int64_t i = 0; i < n; ++i) {
    double Z = 0;
    for (int64_t j = 0; j < m; ++j) S(i, j) /= std::sqrt(static_cast<double>(d_k));
    for (int64_t j = 0; j < m; ++j) S(i, j) = mask(i, j) ? S(i, j) : -INFINITY;
    for (int64_t j = 0; j < m; ++j) Z += std::exp(S(i, j));
    for (int64_t j = 0; j < m; ++j) S(i, j) = Z > 0 ? std::exp(S(i, j)) / Z : 0;  // nothing allowed: nothing comes
  }
  s.say("  Q ", size(n, d_k), ", K ", size(m, d_k), ", V ", size(m, d_v), ": MatMul ", size(n, m), ", Scale ", size(n, m),
        ", Mask ", size(n, m), ", SoftMax ", size(n, m), ", MatMul ", size(n, d_v));
  return product(transposed(V), S);
}

template <class Number>
static void compare(step& s, int64_t n, int64_t m) {
  const auto Q = as<Number>(numbers({n, 4}, 1)), K = as<Number>(numbers({m, 4}, 2)), V = as<Number>(numbers({m, 3}, 3));
  const auto mask = map<bool>(numbers({n, m}, 4), [](double x) { return x < 1; });
  const auto Y = attend::attention(Q, K, V, {.mask = mask}),
             Y_again = attend::attention(Q, K, V, {.mask = mask, .reproducible = true});
  const matrix bound = allowed(Q, K, V, {.mask = mask});
  const matrix y = stages(s, as<double>(Q), as<double>(K), as<double>(V), mask);
  s.compare(text("all at once, ", name_of(attend::dtype_of<Number>)), Y, y, bound);

  tensor<Number> single({n, 3}), single_again({n, 3});
  for (int64_t i = 0; i < n; ++i) {
    const tensor_view<const Number> q(&Q(i, 0), {1, 4});
    const tensor_view<const bool> row(&mask(i, 0), {1, m});
    attend::attention(q, K, V, tensor_view<Number>(&single(i, 0), {1, 3}), {.mask = row});
    attend::attention(q, K, V, tensor_view<Number>(&single_again(i, 0), {1, 3}), {.mask = row, .reproducible = true});
  }
  s.compare(text(n, " single calls"), single, y, bound);
  s.same_bits("single calls and all at once, reproducible", single_again, Y_again);
}

int main(int argc, char** argv) {
  step s(argc, argv, "7  The matrix form: Y = SoftMax(Mask(Q K^T / √d_k)) V");
  for (const auto& [n, m] : {std::pair(1, 1), {7, 9}, {33, 101}}) compare<double>(s, n, m), compare<float>(s, n, m);
  const matrix Q = numbers({7, 4}, 1), K = numbers({9, 4}, 2), V = numbers({9, 3}, 3);
  const auto mask = map<bool>(numbers({7, 9}, 4), [](double x) { return x < 1; });
  const matrix w = shown_weights(Q, K, V, {.mask = mask}), Y = attend::attention(Q, K, V, {.mask = mask});
  s.picture("07_matrix_form", {heat_map("Q", Q), heat_map("K", K), heat_map("SoftMax(Mask(Q K^T / √d_k))", w), heat_map("V", V),
                               heat_map("Y", Y)});
  return s.result();
}
