// Step 8. Masks. An excluded element takes no part in the row's sum; it is as if it were not there. There are several ways to say
// so: booleans, a bias of -inf, or a structure (a triangle, a window, a length, a neighbourhood). The structure also saves work,
// because what it excludes is known without a look at every pair.
#include "ladder.hpp"

using namespace ladder;

static matrix loops(const matrix& q, const matrix& K, const matrix& V) {  // one query
  const matrix s = product(K, q);
  tensor<real> y({1, V.shape()[1]});
  real Z = 0;
  for (int64_t j = 0; j < s.size(); ++j) Z += std::exp(s(0, j) / 3);
  for (int64_t j = 0; j < s.size(); ++j)
    for (int64_t c = 0; c < V.shape()[1]; ++c) y(0, c) += std::exp(real(s(0, j)) / 3) / Z * V(j, c);
  return rounded(y);
}

int main(int argc, char** argv) {
  step s(argc, argv, "8  Masks: booleans, -inf and structures");
  std::vector<panel> panels;
  const int64_t T = 35;  // queries and elements, or the cells of a grid of 7 x 5
  const matrix Q = numbers({T, 9}, 1), K = numbers({T, 9}, 2), V = numbers({T, 3}, 3);
  const auto compare = [&](const char* name, const attend::options& how, auto may_see) {
    tensor<bool> mask({T, T});
    matrix bias({T, T}), left_out({T, 3}), y({T, 3}), shown = weights(Q, K, V, how);
    for (int64_t i = 0; i < T; ++i) {
      std::vector<int64_t> region;
      for (int64_t j = 0; j < T; ++j) {
        mask(i, j) = may_see(i, j);
        if (mask(i, j)) region.push_back(j);
        if (!mask(i, j)) bias(i, j) = -INFINITY, shown(i, j) = NAN;
      }
      set_row(left_out, i, attend::attention(row(Q, i), rows(K, region), rows(V, region)));
      set_row(y, i, loops(row(Q, i), rows(K, region), rows(V, region)));
    }
    const matrix Y = attend::attention(Q, K, V, how), bound = allowed(Q, K, V, how);
    s.compare(text(name, ", masked"), Y, y, bound);
    s.compare(text(name, ", left out"), left_out, y, bound);
    s.same_bits("structure and booleans", attend::attention(Q, K, V, {.mask = mask}), Y);
    s.same_bits("structure and -inf", attend::attention(Q, K, V, {.bias = bias}), Y);
    panels.push_back(heat_map(name, shown));
  };
  compare("j <= i", {.causal = true}, [](int64_t i, int64_t j) { return j <= i; });
  compare("i - 5 <= j <= i + 2", {.window = {5, 2}}, [](int64_t i, int64_t j) { return i - 5 <= j && j <= i + 2; });
  compare("j < 19", {.key_lengths = 19}, [](int64_t, int64_t j) { return j < 19; });
  compare("3 x 3 cells of 7 x 5", {.grid = {7, 5}, .neighborhood = {.kernel = 3}},
          [](int64_t i, int64_t j) { return std::abs(i / 5 - j / 5) <= 1 && std::abs(i % 5 - j % 5) <= 1; });
  s.picture("08_masks", panels);
  // Attention among the pixels of a picture. What lies more than 3 rows or columns away is left out, with its share of the work.
  const tensor<float> x = as<float>(numbers({1, 4096, 64}, 4));
  const attend::options near = {.grid = 64, .neighborhood = {.kernel = 7}};
  const attend::problem_shape shapes = {.q = x.shape(), .k = x.shape(), .v = x.shape()};
  double pairs = 0;
  for (int r = 0; r < 64; ++r) pairs += std::min(63, r + 3) - std::max(0, r - 3) + 1;
  s.work("7 x 7 of 64 x 64 pixels", pairs * pairs, 4096.0 * 4096.0, attend::make_plan(shapes, near).facts(), 0.2);
  s.say("  all pairs ", milliseconds([&] { attend::attention(x, x, x); }), " ms, 7 x 7 ",
        milliseconds([&] { attend::attention(x, x, x, near); }), " ms");
  return s.result();
}
