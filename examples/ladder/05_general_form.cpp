// Step 5. The general form. What an element is found by and what it gives need not be the same: two functions make both of x_i,
//   k_i = φ_k(x_i),  v_i = φ_v(x_i),      y = (1/N) Σ_i f(q, k_i) v_i.
// k_i and v_i stay bound to one position i. q belongs to the filter. φ_k, φ_v and f do not know N, and no order of the elements
// is special. Step 4 is this form with φ_k(x) = φ_v(x) = x and f a dot product.
#include "ladder.hpp"

using namespace ladder;

static matrix phi_k(const matrix& W_k, const matrix& X) {
  return map(product(W_k, X), [](double x) { return std::max(0.0, x); });
}

static matrix phi_v(const matrix& W_v, const matrix& X) {
  return map(product(W_v, X), [](double x) { return std::tanh(x); });
}

// What component c adds to f(q, k).
static real part(attend::compatibility_kind f, real q, real k) {
  return f == compatibility::dot.kind ? q * k : f == compatibility::l1.kind ? -std::abs(q - k) : -(q - k) * (q - k) / 2;
}

int main(int argc, char** argv) {
  step s(argc, argv, "5  The general form: y = (1/N) Σ_i f(q, k_i) v_i with k_i = φ_k(x_i), v_i = φ_v(x_i)");
  const matrix q = absolute(numbers({1, 4}, 1)), W_k = numbers({4, 5}, 2), W_v = numbers({3, 5}, 3);
  for (const auto& f : {compatibility::dot, compatibility::l1, gaussian(1)}) {
    const attend::options how = {.scale = 1, .compatibility = f, .normalizer = normalizer::mean};
    for (const int64_t N : {1, 7, 100, 1000}) {
      const matrix X = numbers({N, 5}, 4), K = phi_k(W_k, X), V = phi_v(W_v, X);
      tensor<real> y({1, 3}), size({1, 3});
      for (int64_t i = 0; i < N; ++i) {
        real w = 0;
        for (int64_t c = 0; c < 4; ++c) w += part(f.kind, q(0, c), K(i, c));
        for (int64_t c = 0; c < 3; ++c) y(0, c) += w * V(i, c) / real(N), size(0, c) += std::abs(w * V(i, c)) / real(N);
      }
      const matrix bound = N <= 100 ? four_ulp(rounded(size)) : allowed(q, K, V, how);
      s.compare(text(name_of(f.kind), ", N = ", N), attend::attention(q, K, V, how), rounded(y), bound);
      // The elements in the opposite order, by strides that run backwards: k_i and v_i still belong together.
      const tensor_view<const double> K_back(&K(N - 1, 0), K.shape(), {-4, 1}), V_back(&V(N - 1, 0), V.shape(), {-3, 1});
      s.compare("the elements in the opposite order", attend::attention(q, K_back, V_back, how), rounded(y), bound);
      if (N == 7 && f.kind == compatibility::dot.kind)
        s.picture("05_general_form", {heat_map("X", X), heat_map("K = φ_k(X)", K), heat_map("V = φ_v(X)", V),
                                      heat_map("weights f(q, k_i) / N", weights(q, K, V, how), N, 1)});
    }
  }
  return s.result();
}
