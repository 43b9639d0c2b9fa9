// Step 2. A convolution: each cell of the result is a weighted sum over a window of the picture,
//   y(r, c) = Σ_{a,b} F(a, b) x(r + a, c + b),    a and b from -R to R; outside the picture there is nothing.
// A filter F is a table of weights by offset: small, and the same for every cell and for pictures of any size.
// As attention: the elements are the cells of a grid, the region of a cell is its neighbourhood, F is a table relative to it.
#include "ladder.hpp"

using namespace ladder;

static tensor<double> loops(const tensor<double>& F, const tensor<double>& x, const attend::grid_size& grid) {
  const int64_t R = F.shape()[1] / 2;
  tensor<real> y({F.shape()[0], x.size(), 1});  // filters, cells
  for (int64_t h = 0; h < F.shape()[0]; ++h)
    for (int64_t r = 0; r < grid.rows; ++r)
      for (int64_t c = 0; c < grid.columns; ++c)
        for (int64_t a = std::max(-R, -r); a <= std::min(R, grid.rows - 1 - r); ++a)
          for (int64_t b = std::max(-R, -c); b <= std::min(R, grid.columns - 1 - c); ++b)
            y(h, r * grid.columns + c, 0) += real(F(h, a + R, b + R)) * x(0, (r + a) * grid.columns + c + b, 0);
  return rounded(y);
}

int main(int argc, char** argv) {
  step s(argc, argv, "2  A convolution: y(r, c) = Σ F(a, b) x(r + a, c + b)");
  attend::options how = {.compatibility = compatibility::none, .normalizer = normalizer::sum}, whole = how;
  for (const attend::grid_size grid : {attend::grid_size(1, 1), {7, 5}, {64, 64}})
    for (const int64_t n : {1, 3, 5}) {
      const tensor<double> x = grid.rows == 64 ? grey_picture() : numbers({1, grid.rows * grid.columns, 1}, 2);
      const tensor<double> F = numbers({2, n, n}, 1), q({2, x.size(), 0}), k({1, x.size(), 0});  // two filters: two heads
      how.grid = grid, how.neighborhood = {.kernel = n}, how.relative = F;
      s.compare("two filters " + size(n, n) + " on " + size(grid.rows, grid.columns), attend::attention(q, k, x, how),
                loops(F, x, grid), four_ulp(loops(absolute(F), absolute(x), grid)));
    }
  // The same as a matrix over the picture as a vector: column j answers a picture that is 1 in cell j and else 0. Every cell's
  // sum is a row of it. No order of the cells is special: other columns and elements in step give the same sums.
  const tensor<double> F = table({1, 3, 3}, {-1, 0, 1, -2, 0, 2, -1, 0, 1}), x = numbers({1, 35, 1}, 2), none({1, 35, 0}),
                       y = loops(F, x, {7, 5});
  tensor<double> band({35, 35}), mixed({35, 35}), mixed_x({1, 35, 1});
  for (int64_t j = 0; j < 35; ++j) {
    tensor<double> unit({1, 35, 1});
    unit(0, j, 0) = 1;
    for (int64_t i = 0; i < 35; ++i) band(i, j) = mixed(i, (11 * j + 3) % 35) = loops(F, unit, {7, 5})(0, i, 0);
    mixed_x(0, (11 * j + 3) % 35, 0) = x(0, j, 0);
  }
  const tensor<double> bound = four_ulp(loops(absolute(F), absolute(x), {7, 5}));
  whole.bias = band;
  s.compare("3 x 3 on 7 x 5 as a band matrix, 35 x 35", attend::attention(none, none, x, whole), y, bound);
  whole.bias = mixed;
  s.compare("the cells in another order", attend::attention(none, none, mixed_x, whole), y, bound);
  // What it saves on the cat: a filter of ones counts the multiplications on a picture of ones.
  const tensor<double> count = loops(tensor<double>({1, 3, 3}, 1.0), tensor<double>({1, 4096, 1}, 1.0), {64, 64});
  how.neighborhood = {.kernel = 3}, how.relative = F;
  const attend::problem_shape shapes = {.type = attend::dtype::f64, .q = {1, 4096, 0}, .k = {1, 4096, 0}, .v = {1, 4096, 1}};
  s.work("3 x 3 on 64 x 64", std::accumulate(count.begin(), count.end(), 0.0), 4096.0 * 4096.0,
         attend::make_plan(shapes, how).facts(), 0.1);
  const tensor<double> cat = grey_picture(), q({1, 4096, 0}), edges = attend::attention(q, q, cat, how);
  s.picture("02_convolution", {photograph("x", cat, 64, 64), heat_map("F", F, 3, 3), heat_map("y", edges, 64, 64),
                               heat_map("F as a matrix over 7 × 5 cells", band)});
  return s.result();
}
