// The two products by which gradients are added up: over the keys of a tile for its queries, over the lanes of a tile for its keys. Both add
// to what is there, by parts of a few terms, because long sums of numbers of very different size lose too much.
//
// With `marked`, pairs whose mark is -inf are left out; otherwise their factor is 0.

template <class S>
struct backward_products : forward_block<S> {
  using block = forward_block<S>;
  using block::lanes, block::width;
  using typename block::T, typename block::V;
  static constexpr int part = 32;  // terms
  // Of sums at a time. Where pairs are marked, speed does not matter, and bits do not depend on it.
  template <bool marked>
  static constexpr int at_once = marked ? 1 : S::micro_rows;

  /// Numbers in a row that is read by vectors.
  static constexpr std::int64_t padded_columns(std::int64_t columns) { return (columns + width - 1) / width * width; }

  /// out[c][lane] += sum over r of rows[r][column + c] * x[r][lane], for `Columns` columns and the lanes of a stripe.
  template <int Columns, bool marked>
  [[gnu::always_inline]] static inline void over_keys(const void* const* rows, int count, const T* x, const T* marks,
                                                      std::int64_t column, T* out) {
    constexpr int vectors = S::micro_vectors;
    for (int begin = 0; begin < count; begin += part) {
      const int end = begin + part < count ? begin + part : count;
      V sum[Columns][vectors];
      for (int c = 0; c < Columns; ++c) {
        for (int j = 0; j < vectors; ++j) sum[c][j] = S::set(0);
      }
      for (int r = begin; r < end; ++r) {
        const T* const row = static_cast<const T*>(rows[r]) + column;
        V w[vectors];
        for (int j = 0; j < vectors; ++j) w[j] = S::load(x + r * lanes + j * width);
        for (int c = 0; c < Columns; ++c) {
          const V number = S::set(row[c]);
          for (int j = 0; j < vectors; ++j) {
            const V next = S::fma(number, w[j], sum[c][j]);
            if constexpr (marked) {
              const V mark = S::load(marks + r * lanes + j * width);
              sum[c][j] = S::select(S::equal(mark, S::set(-infinity<T>)), sum[c][j], next);
            } else {
              sum[c][j] = next;
            }
          }
        }
      }
      for (int c = 0; c < Columns; ++c) {
        for (int j = 0; j < vectors; ++j) {
          T* const at = out + c * lanes + j * width;
          S::store(at, S::load(at) + sum[c][j]);
        }
      }
    }
  }

  template <int Most, bool marked>
  static void over_keys_rest(const void* const* rows, int count, const T* x, const T* marks, std::int64_t column,
                             std::int64_t columns, T* out) {
    if (columns == Most) {
      over_keys<Most, marked>(rows, count, x, marks, column, out);
    } else if constexpr (Most > 1) {
      over_keys_rest<Most - 1, marked>(rows, count, x, marks, column, columns, out);
    }
  }

  /// out[c][lane] += sum over r of rows[r][c] * x[r][lane], for every column and the lanes of a stripe.
  template <bool marked>
  static void add_over_keys(const void* const* rows, int count, const T* x, const T* marks, std::int64_t columns, T* out) {
    constexpr int most = at_once<marked>;
    std::int64_t c = 0;
    for (; c + most <= columns; c += most) over_keys<most, marked>(rows, count, x, marks, c, out + c * lanes);
    if constexpr (most > 1) over_keys_rest<most - 1, marked>(rows, count, x, marks, c, columns - c, out + c * lanes);
  }

  /// out[r][c] += sum over lanes of x[r][lane] * rows[lane][c], for `Rows` keys and `Vectors` vectors of columns.
  template <int Rows, int Vectors, bool marked>
  [[gnu::always_inline]] static inline void over_lanes(const T* x, const T* marks, const T* rows, std::int64_t columns,
                                                       int count, T* out) {
    for (int begin = 0; begin < count; begin += part) {
      const int end = begin + part < count ? begin + part : count;
      V sum[Rows][Vectors];
      for (int r = 0; r < Rows; ++r) {
        for (int j = 0; j < Vectors; ++j) sum[r][j] = S::set(0);
      }
      for (int lane = begin; lane < end; ++lane) {
        const T* const row = rows + lane * columns;
        V w[Vectors];
        for (int j = 0; j < Vectors; ++j) w[j] = S::load(row + j * width);
        for (int r = 0; r < Rows; ++r) {
          if (marked && marks[r * lanes + lane] == -infinity<T>) continue;
          const V number = S::set(x[r * lanes + lane]);
          for (int j = 0; j < Vectors; ++j) sum[r][j] = S::fma(number, w[j], sum[r][j]);
        }
      }
      for (int r = 0; r < Rows; ++r) {
        for (int j = 0; j < Vectors; ++j) {
          T* const at = out + r * columns + j * width;
          S::store(at, S::load(at) + sum[r][j]);
        }
      }
    }
  }

  /// Every column, for `Rows` keys.
  template <int Rows, bool marked>
  static void over_lanes_rows(const T* x, const T* marks, const T* rows, std::int64_t columns, int count, T* out) {
    std::int64_t c = 0;
    for (; c + S::micro_vectors * width <= columns; c += S::micro_vectors * width)
      over_lanes<Rows, S::micro_vectors, marked>(x, marks, rows + c, columns, count, out + c);
    for (; c < columns; c += width) over_lanes<Rows, 1, marked>(x, marks, rows + c, columns, count, out + c);
  }

  template <int Most, bool marked>
  static void over_lanes_rest(const T* x, const T* marks, const T* rows, std::int64_t columns, int count, int keys, T* out) {
    if (keys == Most) {
      over_lanes_rows<Most, marked>(x, marks, rows, columns, count, out);
    } else if constexpr (Most > 1) {
      over_lanes_rest<Most - 1, marked>(x, marks, rows, columns, count, keys, out);
    }
  }

  /// out[key][c] += sum over lanes of x[key][lane] * rows[lane][c], for `keys` keys; `columns` is a multiple of a vector's.
  template <bool marked>
  static void add_over_lanes(const T* x, const T* marks, const T* rows, std::int64_t columns, int count, int keys, T* out) {
    constexpr int most = at_once<marked>;
    int r = 0;
    for (; r + most <= keys; r += most)
      over_lanes_rows<most, marked>(x + r * lanes, marks + r * lanes, rows, columns, count, out + r * columns);
    if constexpr (most > 1)
      over_lanes_rest<most - 1, marked>(x + r * lanes, marks + r * lanes, rows, columns, count, keys - r, out + r * columns);
  }
};
