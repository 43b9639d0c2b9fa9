// Which keys a query may see by structure: windows along a sequence, neighbourhoods on a grid.
//
// ```cpp
// attend::tensor<float> x({4, 8 * 8, 16}, 0.5f);  // an image of 8 x 8 cells, row by row: 4 heads, 16 numbers a cell
// auto y = attend::attention(x, x, x, {.grid = {8, 8}, .neighborhood = {.kernel = 3, .border = attend::border::shift}});
// ```
#pragma once

#include <cstdint>
#include <optional>

namespace attend {

/// Keys that a query at position p may see: p - left <= j <= p + right, both ends included; empty = unbounded on that side.
struct window {
  std::optional<std::int64_t> left;
  std::optional<std::int64_t> right;

  window() = default;
  /// Both sides are named, so that one number cannot be taken for a window of that size.
  window(std::optional<std::int64_t> left_side, std::optional<std::int64_t> right_side) : left(left_side), right(right_side) {}

  explicit operator bool() const noexcept { return left || right; }
};

/// Two sizes along the rows and columns of a grid: {rows, columns}, or n for {n, n}. Not given by default.
struct grid_size {
  std::int64_t rows = 0, columns = 0;
  bool given = false;

  grid_size() = default;
  grid_size(std::int64_t both) : grid_size(both, both) {}
  grid_size(std::int64_t along_rows, std::int64_t along_columns) : rows(along_rows), columns(along_columns), given(true) {}

  explicit operator bool() const noexcept { return given; }
};

/// What happens where a neighbourhood reaches over the edge of the grid: it has fewer cells there, or it moves inside, so that
/// every cell has as many neighbours (Hassani et al., Neighborhood Attention Transformer, 2023).
enum class border : std::uint8_t { clip, shift };

/// The cells around each cell of a grid that its query may see.
struct neighborhood {
  grid_size kernel = {};   ///< odd sizes in cells; none: all cells
  grid_size dilation = 1;  ///< from one cell of the kernel to the next
  /// A shifted kernel moves among the cells with the same remainder by the dilation, and has to fit there.
  attend::border border = attend::border::clip;

  explicit operator bool() const noexcept { return kernel.given; }
};

}  // namespace attend
