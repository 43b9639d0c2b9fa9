// Step 1. A fully connected layer: every component of its result is a weighted sum of the inputs,
//   y_c = Σ_j W_cj x_j.
// Row c of W is a filter with one weight per input. A layer's bias is the weight of one more input, which is always 1.
// As attention: the elements are the numbers x_j; nothing is asked of them (queries and keys have no components, so every score
// is 0); the weights W are added to the scores; the normaliser leaves them as they are.
#include "ladder.hpp"

using namespace ladder;

static matrix attention_form(const matrix& W, const matrix& x) {
  const matrix q({W.shape()[0], 0}), k({W.shape()[1], 0});
  return attend::attention(q, k, x, {.bias = W, .compatibility = compatibility::none, .normalizer = normalizer::sum});
}

static matrix loops(const matrix& W, const matrix& x) {
  tensor<real> y({W.shape()[0], 1});
  for (int64_t c = 0; c < W.shape()[0]; ++c)
    for (int64_t j = 0; j < W.shape()[1]; ++j) y(c, 0) += real(W(c, j)) * x(j, 0);
  return rounded(y);
}

// max(0, y) of every component, and the 1 that carries the next layer's bias.
static matrix relu_and_one(const matrix& y) {
  matrix h({y.size() + 1, 1}, 1.0);
  for (int64_t c = 0; c < y.size(); ++c) h(c, 0) = std::max(0.0, y(c, 0));
  return h;
}

static int64_t largest(const matrix& y) { return std::max_element(y.begin(), y.end()) - y.begin(); }

int main(int argc, char** argv) {
  step s(argc, argv, "1  A fully connected layer: y_c = Σ_j W_cj x_j");
  const auto compare = [&s](const std::string& what, const matrix& W, const matrix& x) {
    s.compare(what, attention_form(W, x), loops(W, x), four_ulp(loops(absolute(W), absolute(x))));
  };
  for (const int64_t d : {1, 7, 64}) compare(text("one component, inputs: ", d), numbers({1, d}, 1), numbers({d, 1}, 2));

  // A perceptron of two layers reads 8 x 8 pictures of digits. Both sides run from the pixels to the ten results.
  const matrix W_1 = load("perceptron_w_1.txt"), W_2 = load("perceptron_w_2.txt"), digits = load("digits_test.txt");
  const int64_t pictures = digits.shape()[0];
  int64_t right = 0, right_of_loops = 0;
  for (int64_t p = 0; p < pictures; ++p) {
    matrix x({65, 1}, 1.0);  // 64 pixels and the 1
    for (int64_t j = 0; j < 64; ++j) x(j, 0) = digits(p, j) / 16;
    const matrix h = relu_and_one(attention_form(W_1, x)), y = attention_form(W_2, h);
    compare("layer 1 of the perceptron, 32 x 65", W_1, x);
    compare("layer 2 of the perceptron, 10 x 33", W_2, h);
    right += largest(y) == std::lround(digits(p, 64));
    right_of_loops += largest(loops(W_2, relu_and_one(loops(W_1, x)))) == std::lround(digits(p, 64));
    if (p == 0)
      s.picture("01_fully_connected", {heat_map("a picture x", x, 8, 8), heat_map("W₁, a row per filter", W_1),
                                       heat_map("one row of W₁ over the pixels", row(W_1, 1), 8, 8),
                                       bars("y = W₂ h", {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, y)});
  }
  s.claim(right == right_of_loops && 10 * right > 9 * pictures, "digits read rightly, of ", pictures, ": attention ", right,
          ", loops ", right_of_loops);
  return s.result();
}
