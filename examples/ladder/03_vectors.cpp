// Step 3. Elements become vectors. The sums stay what they are, each element is now a row of D numbers, and so is each result:
//   y_c = Σ_j W_cj x_j.
// For a layer, row c of W is a filter, and it makes one vector y_c out of all the x_j; for a picture, a cell holds red, green
// and blue. In the call only the width of x has changed. Every component goes the way that the single numbers went before.
#include "ladder.hpp"

using namespace ladder;

static matrix layer(const matrix& W, const matrix& X) {
  tensor<real> Y({W.shape()[0], X.shape()[1]});
  for (int64_t c = 0; c < W.shape()[0]; ++c)
    for (int64_t j = 0; j < W.shape()[1]; ++j)
      for (int64_t d = 0; d < X.shape()[1]; ++d) Y(c, d) += real(W(c, j)) * X(j, d);
  return rounded(Y);
}

// n x n filter F over a picture of 64 x 64 cells of three numbers.
static matrix window(const matrix& F, const matrix& x) {
  const int64_t R = F.shape()[1] / 2;
  tensor<real> y({4096, 3});
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t c = 0; c < 64; ++c)
      for (int64_t a = std::max(-R, -r); a <= std::min(R, 63 - r); ++a)
        for (int64_t b = std::max(-R, -c); b <= std::min(R, 63 - c); ++b)
          for (int64_t d = 0; d < 3; ++d) y(r * 64 + c, d) += real(F(0, a + R, b + R)) * x((r + a) * 64 + c + b, d);
  return rounded(y);
}

int main(int argc, char** argv) {
  step s(argc, argv, "3  Elements become vectors: y_c = Σ_j W_cj x_j");
  attend::options given = {.compatibility = compatibility::none, .normalizer = normalizer::sum};
  const auto compare = [&](const std::string& what, const matrix& W, const auto& X, const matrix& x) {
    const matrix q({W.shape()[0], 0}), k({W.shape()[1], 0});
    given.bias = W;
    matrix Y = attend::attention(q, k, X, given);
    s.compare(what, Y, layer(W, x), four_ulp(layer(absolute(W), absolute(x))));
    return Y;
  };
  for (const int64_t N : {1, 7, 64}) {  // a perceptron of two layers: N vectors, 9 vectors inside, 3 vectors as the result
    const matrix W_1 = numbers({9, N}, 1), W_2 = numbers({3, 9}, 2), X = numbers({N, 5}, 3);
    const matrix H = map(compare(text("layer 1, N = ", N), W_1, X, X), [](double y) { return std::max(0.0, y); });
    compare(text("layer 2, N = ", N), W_2, H, H);
    matrix x({N, 1});  // one component alone: step 1 on that column
    for (int64_t j = 0; j < N; ++j) x(j, 0) = X(j, 4);
    compare("layer 1 on the last components alone", W_1, tensor_view<const double>(X.data() + 4, {N, 1}, {5, 1}), x);
  }
  const matrix cat = colour_picture(), none({4096, 0});
  for (const int64_t n : {1, 3, 5}) {
    const matrix F = map(numbers({1, n, n}, 4), [](double w) { return w * w / 25; });
    given.grid = 64, given.neighborhood = {.kernel = n}, given.bias = {}, given.relative = F;
    const matrix y = attend::attention(none, none, cat, given);
    s.compare(size(n, n) + " on 64 x 64 cells of 3 numbers", y, window(F, cat), four_ulp(window(F, absolute(cat))));
    if (n == 5) s.picture("03_vectors", {photograph("x", cat, 64, 64), heat_map("F", F, 5, 5), photograph("y", y, 64, 64)});
  }
  return s.result();
}
