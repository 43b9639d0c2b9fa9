// Keys and values of a chunk as products of pairs read them, made once for all blocks of a head that a thread computes one after
// another. Keys stay where they are unless a tile of them would reach past a row's last column or the last key, or cross lines of the cache.

template <class S>
struct packed_chunk {
  key_tile* keys;  // one per 16 keys
  char* values;    // [keys / 32][columns / 16][16 columns][32 keys], 0 where a number is not finite
  // Whether some value of a group of 32 keys is not finite.
  bool* unusual;
  char *zeros, *copies;
  std::int64_t bytes;

  static std::int64_t row_blocks(std::int64_t width) { return (width + 31) / 32; }
  static std::int64_t column_blocks(std::int64_t value_width) { return (value_width + tile_columns - 1) / tile_columns; }

  packed_chunk(void* memory, const scratch_shape& shape, std::int64_t most_keys) {
    arena a{static_cast<char*>(memory)};
    const std::int64_t row = row_blocks(shape.width) * row_bytes;
    keys = a.take<key_tile>(most_keys / 16);
    values = a.take<char>(most_keys / group_keys * column_blocks(shape.value_width) * tile_bytes);
    unusual = a.take<bool>(most_keys / group_keys);
    zeros = a.take<char>(row);
    copies = a.take<char>(most_keys * row);
    bytes = a.used;
  }

  /// Columns [first, first + count) of a row, zeros behind them, in 2 * padded bytes.
  static void copy_row(const void* from, std::int64_t column, std::int64_t count, std::int64_t padded, char* to) {
    const bf16* const row = static_cast<const bf16*>(from);
    if (column == 1) {
      __builtin_memcpy(to, row, static_cast<std::size_t>(2 * count));
    } else {
      for (std::int64_t d = 0; d < count; ++d) {
        const bf16 x = read(row + d * column);
        __builtin_memcpy(to + 2 * d, &x, sizeof x);
      }
    }
    __builtin_memset(to + 2 * count, 0, static_cast<std::size_t>(2 * (padded - count)));
  }

  void pack_keys(const block_job& job, const void* const* rows, int count, key_tile& tile, char* copy) const {
    const auto at = [&](int i) { return static_cast<const char*>(rows[i]); };
    const std::int64_t row = row_blocks(job.width) * row_bytes;
    if (count <= 0) {
      tile = {zeros, 0};
      return;
    }
    // A row of a tile that crosses a line of the cache takes twice as long, each time.
    const auto on_line = [](std::int64_t address) { return address % row_bytes == 0; };
    bool in_place = count == 16 && !job.pack_k && on_line(reinterpret_cast<std::intptr_t>(rows[0])) && on_line(at(1) - at(0));
    for (int i = 2; in_place && i < 16; ++i) in_place = at(i) - at(i - 1) == at(1) - at(0);
    if (in_place) {
      tile = {at(0), at(1) - at(0)};
      return;
    }
    for (int i = 0; i < 16; ++i) {
      if (i < count)
        copy_row(rows[i], job.keys.k_column, job.width, row / 2, copy + i * row);
      else
        __builtin_memset(copy + i * row, 0, static_cast<std::size_t>(row));
    }
    tile = {copy, row};
  }

  /// 32 columns of 32 adjacent numbers each, where all are finite: two tiles.
  static bool pack_finite(const void* const* rows, std::int64_t first, char* to) {
    typename S::P lower[S::width], upper[S::width];
    bool all_finite = true;
    for (int i = 0; i < S::width; ++i) {
      const auto row = [&](int key) { return S::load_row(static_cast<const bf16*>(rows[key]) + first, 2 * tile_columns); };
      const typename S::P a = row(2 * i), b = row(2 * i + 1);
      all_finite = S::finite(a) && S::finite(b) && all_finite;
      S::pair_columns(a, b, lower[i], upper[i]);
    }
    if (!all_finite) return false;
    S::transpose_pairs(lower);
    S::transpose_pairs(upper);
    const auto column = [to](int n) { return reinterpret_cast<std::uint32_t*>(to + n * row_bytes); };
    for (int i = 0; i < S::width; ++i) {
      S::store_pairs(column(S::first_column(i)), lower[i]);
      S::store_pairs(column(S::first_column(i) + 4), upper[i]);
    }
    return true;
  }

  void pack_values(const block_job& job, const void* const* rows, int count, char* to, bool& all_finite) const {
    const std::int64_t step = job.keys.v_column;
    for (std::int64_t first = 0; first < job.value_width; first += tile_columns, to += tile_bytes) {
      if (step == 1 && count == group_keys && first + 2 * tile_columns <= job.value_width && pack_finite(rows, first, to)) {
        first += tile_columns;
        to += tile_bytes;
        continue;
      }
      const int columns = static_cast<int>(job.value_width - first < tile_columns ? job.value_width - first : tile_columns);
      char gathered[group_keys][2 * tile_columns];
      const void* at[group_keys];
      for (int i = 0; i < group_keys; ++i) {
        at[i] = i < count ? static_cast<const bf16*>(rows[i]) + first * step : nullptr;
        if (step == 1 || !at[i]) continue;
        copy_row(at[i], step, columns, tile_columns, gathered[i]);
        at[i] = gathered[i];
      }
      typename S::P x[S::width];
      for (int i = 0; i < S::width; ++i) x[i] = S::pair_rows(at[2 * i], at[2 * i + 1], columns, all_finite);
      S::transpose_pairs(x);
      for (int i = 0; i < S::width; ++i) S::store_pairs(reinterpret_cast<std::uint32_t*>(to + i * row_bytes), x[i]);
    }
  }

  void pack(const block_job& job, std::int64_t begin, std::int64_t end) {
    const std::int64_t row = row_blocks(job.width) * row_bytes, group_bytes = column_blocks(job.value_width) * tile_bytes;
    __builtin_memset(zeros, 0, static_cast<std::size_t>(row));
    for (std::int64_t done = 0; done < end - begin; done += group_keys) {
      const std::int64_t left = end - begin - done;
      const int count = left < group_keys ? static_cast<int>(left) : group_keys;
      const void *k_rows[group_keys], *v_rows[group_keys];
      key_rows(job.keys, begin + done, count, k_rows, v_rows);
      for (int half = 0; half < group_keys; half += 16) {
        const int some = count - half < 16 ? count - half : 16;
        pack_keys(job, k_rows + half, some, keys[(done + half) / 16], copies + (done + half) * row);
      }
      bool all_finite = true;
      pack_values(job, v_rows, count, values + done / group_keys * group_bytes, all_finite);
      unusual[done / group_keys] = !all_finite;
    }
  }
};
