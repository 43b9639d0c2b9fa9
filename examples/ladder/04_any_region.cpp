// Step 4. A region of any size. So far a filter was a list of weights, and its length fixed how many elements it takes. Now a
// filter computes the weight of an element from the element itself, w_i = f_filter(x_i). With f_filter(x) = q · x,
//   y = Σ_i (q · x_i) x_i
// has the d components of q as its only parameters, for any N. A sum grows with N, until it overflows; the mean,
//   y = (1/N) Σ_i (q · x_i) x_i,
// does not.
// As attention: q is the query, and x_i is the key and the value of position i.
#include "ladder.hpp"

using namespace ladder;

// Row 0: Σ_i (q · x_i) x_i / divisor. Row 1: the same of absolute values, Σ_i |w_i x_i|, by which rounding errors go.
template <class Number>
static matrix loops(const tensor<Number>& q, const tensor<Number>& X, int64_t divisor) {
  tensor<real> y({2, X.shape()[1]});
  for (int64_t i = 0; i < X.shape()[0]; ++i) {
    real w = 0;
    for (int64_t c = 0; c < X.shape()[1]; ++c) w += real(q(0, c)) * X(i, c) / real(divisor);
    for (int64_t c = 0; c < X.shape()[1]; ++c) y(0, c) += w * X(i, c), y(1, c) += std::abs(w * X(i, c));
  }
  return rounded(y);
}

int main(int argc, char** argv) {
  step s(argc, argv, "4  A region of any size: y = Σ_i (q · x_i) x_i, and the mean");
  const attend::options sum = {.scale = 1, .normalizer = normalizer::sum}, mean = {.scale = 1, .normalizer = normalizer::mean};
  const auto compare = [&s](const std::string& what, const auto& q, const auto& X, const attend::options& how) {
    const int64_t N = X.shape()[0];
    const matrix y = loops(q, X, how.normalizer == normalizer::mean ? N : 1);
    s.compare(what, attend::attention(q, X, X, how), row(y, 0), N <= 100 ? four_ulp(row(y, 1)) : allowed(q, X, X, how));
  };
  const matrix q = numbers({1, 3}, 1);  // one filter for everything
  for (const int64_t N : {1, 7, 1000}) {
    const matrix X = numbers({N, 3}, 2), W = numbers({1, N}, 3);
    compare(text("sum, N = ", N), q, X, sum);
    compare(text("mean, N = ", N), q, X, mean);
    s.say("  parameters: the filter q ", q.size(), "; a row of W (step 1) ", W.size(), "; a 3 x 3 filter (step 2) ", 3 * 3,
          ", and it needs a grid");
    if (N == 7)
      s.picture("04_any_region",
                {heat_map("q", q), heat_map("x₁ … x₇", X), heat_map("w_i = q · x_i", weights(q, X, X, sum), 7, 1),
                 heat_map("y = Σ w_i x_i", attend::attention(q, X, X, sum))});
  }
  // float32 ends at 3.4e38. A thousand elements near 1e36, whose first component, near 1, becomes their weight:
  const matrix noise = numbers({1000, 3}, 4);
  tensor<float> X({1000, 3}), first({1, 3});
  first(0, 0) = 1;
  for (int64_t i = 0; i < 3000; ++i) X.data()[i] = static_cast<float>((1 + noise.data()[i] / 10) * (i % 3 == 0 ? 1 : 1e36));
  const tensor<float> y = attend::attention(first, X, X, sum);
  s.claim(std::isinf(y(0, 1)) && std::isinf(y(0, 2)), "float32, values near 1e36, N = 1000: the sum overflows to ", y(0, 1));
  compare("float32, the mean of the same", first, X, mean);
  return s.result();
}
