// What both kernels do around a tile: types in memory, which lanes see which key, and columns that become rows.

// Elements of the caller's arrays may lie at any address (a memory-mapped file), so they are moved as bytes. Micro-kernels
// read whole rows in place: where those are not aligned to their elements, `pack_k` and `pack_v` ask for a gathered copy of
// the tile.
template <class T>
[[gnu::always_inline]] static inline T read(const T* from) {
  T x;
  __builtin_memcpy(&x, from, sizeof x);
  return x;
}
template <class T>
[[gnu::always_inline]] static inline void write(T* to, T x) {
  __builtin_memcpy(to, &x, sizeof x);
}

/// Types of rows of codes.
struct int8_codes;
struct int4_codes;
template <class Row>
inline constexpr bool is_codes = false;
template <>
inline constexpr bool is_codes<int8_codes> = true;
template <>
inline constexpr bool is_codes<int4_codes> = true;

/// Calls use(pointer) with a null pointer to the type that inputs and results of a kernel with accumulator T are stored as.
template <class T, class Use>
[[gnu::always_inline]] static inline void with_input_type(element stored, const Use& use) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (stored == element::f16) return use(static_cast<f16*>(nullptr));
    if (stored == element::bf16) return use(static_cast<bf16*>(nullptr));
  }
  use(static_cast<T*>(nullptr));
}
/// The same for rows of keys or values, which may be codes beside float32.
template <class T, class Use>
[[gnu::always_inline]] static inline void with_row_type(element stored, const Use& use) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (stored == element::int8) return use(static_cast<int8_codes*>(nullptr));
    if (stored == element::int4) return use(static_cast<int4_codes*>(nullptr));
  }
  with_input_type<T>(stored, use);
}
/// The same for numbers that stand beside inputs, which may also be float32.
template <class T, class Use>
[[gnu::always_inline]] static inline void with_number_type(element stored, const Use& use) {
  if (sizeof(T) != sizeof(float) && stored == element::f32) return use(static_cast<float*>(nullptr));
  with_input_type<T>(stored, use);
}

template <class A, class B>
inline constexpr bool is_same = false;
template <class A>
inline constexpr bool is_same<A, A> = true;

template <bool first, class A, class B>
struct choice {
  using type = A;
};
template <class A, class B>
struct choice<false, A, B> {
  using type = B;
};
template <bool first, class A, class B>
using chosen = typename choice<first, A, B>::type;

/// Whether a policy of accumulator T loads vectors of `From`.
template <class From, class T>
inline constexpr bool loads_vectors = sizeof(From) == sizeof(T) || sizeof(From) == sizeof(f16);

static scratch_shape shape_of(const block_job& job) {
  return {job.width,         job.value_width,  job.pack_k,
          job.pack_v,        job.has_relative, job.compatibility == compatibility_index::additive,
          job.dropout.given, job.bias_count};
}

/// Bits [begin, end) of a word, both clipped to 0 .. 32.
[[gnu::always_inline]] static inline std::uint32_t bit_range(std::int64_t begin, std::int64_t end) {
  const auto below = [](std::int64_t n) { return n <= 0 ? 0 : n >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << n) - 1; };
  return below(end) & ~below(begin);
}

/// Sums of neighbouring bits, of pairs, and of bytes by the product: sets without an instruction for it would call a function.
[[gnu::always_inline]] static inline int bits_set(std::uint32_t x) {
  x -= x >> 1 & 0x55555555;
  x = (x & 0x33333333) + (x >> 2 & 0x33333333);
  return static_cast<int>(((x + (x >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24);
}

inline constexpr int keys_per_word = 32;

/// Calls visit(number in the tile, row, column) for every neighbour of a lane's query among keys [first, first + count).
template <class Visit>
static void for_each_neighbor(const grid_map& grid, int lane, std::int64_t first, int count, const Visit& visit) {
  const grid_cells& cells = grid.neighbors[lane];
  const std::int64_t last_row = (first + count - 1) / grid.columns;
  for (std::int64_t row = step_from(first / grid.columns, cells.first_row, grid.row_step);
       row <= cells.last_row && row <= last_row; row += grid.row_step) {
    const std::int64_t start = row * grid.columns - first;  // of the row, in the tile
    for (std::int64_t column = step_from(-start, cells.first_column, grid.column_step);
         column <= cells.last_column && start + column < count; column += grid.column_step)
      visit(static_cast<int>(start + column), row, column);
  }
}

/// Bits of the keys [key, key + count), at most 32, that belong to a segment.
static std::uint32_t segment_bits(const block_job& job, std::int64_t segment, std::int64_t key, int count) {
  const std::int64_t* const ids = static_cast<const std::int64_t*>(job.segments) + key * job.segment_step;
  std::uint32_t bits = 0;
  for (int j = 0; j < count; ++j) bits |= static_cast<std::uint32_t>(read(ids + j * job.segment_step) == segment) << j;
  return bits;
}

/// Bits of the keys [key, key + count), at most 32, that a row of the boolean mask allows whose first column is key `first`.
template <class S>
static std::uint32_t mask_bits(const unsigned char* row, std::int64_t first, std::int64_t step, std::int64_t key, int count) {
  if (key < first) {
    const int before = first - key < count ? static_cast<int>(first - key) : count;
    const std::uint32_t rest = before < count ? mask_bits<S>(row, first, step, first, count - before) << before : 0;
    return bit_range(0, before) | rest;
  }
  const unsigned char* const mask = row + (key - first) * step;
  if (step == 1 && count == keys_per_word) return S::nonzero_bytes(mask);
  std::uint32_t bits = 0;
  for (int j = 0; j < count; ++j) bits |= static_cast<std::uint32_t>(mask[j * step] != 0) << j;
  return bits;
}

/// The class of keys [first, first + count) by the boolean mask alone.
template <class S>
static tile_class mask_class_of(const lane_map& lanes, std::int64_t step, std::int64_t first, int count) {
  std::uint32_t any = 0, missing = 0;
  for (int start = 0; start < count; start += keys_per_word) {
    const int some = count - start < keys_per_word ? count - start : keys_per_word;
    const unsigned char* last = nullptr;
    for (int lane = 0; lane < lanes.count; ++lane) {
      if (lanes.mask[lane] == last) continue;  // heads of a group often share a row
      last = lanes.mask[lane];
      const std::uint32_t bits = mask_bits<S>(last, lanes.mask_first, step, first + start, some);
      any |= bits;
      missing |= ~bits & bit_range(0, some);
      if (any != 0 && missing != 0) return tile_class::partial;
    }
  }
  return any == 0 ? tile_class::skip : missing == 0 ? tile_class::full : tile_class::partial;
}

/// One word per lane and 32 keys, one bit per key: set where the masks that have to be looked at allow the pair. `words` is
/// [count / 32, rounded up][lanes]; lanes past the count get 0.
template <class S, int lanes>
static void allowed_bits(const block_job& job, std::int64_t first, int count, tile_kind tile, typename S::Word* words) {
  using Word = typename S::Word;
  const lane_map& map = job.lanes;
  const int stored = (count + keys_per_word - 1) / keys_per_word;
  for (int i = 0; i < stored * lanes; ++i) words[i] = 0;
  if (!tile.structured) {
    for (int start = 0; start < count; start += keys_per_word, words += lanes) {
      const int some = count - start < keys_per_word ? count - start : keys_per_word;
      for (int lane = 0; lane < map.count; ++lane)
        words[lane] = static_cast<Word>(mask_bits<S>(map.mask[lane], map.mask_first, job.mask_step, first + start, some));
    }
    return;
  }
  if (map.grid.neighborhood) {
    for (int lane = 0; lane < map.count; ++lane) {
      for_each_neighbor(map.grid, lane, first, count, [&](int key, std::int64_t, std::int64_t) {
        words[key / keys_per_word * lanes + lane] |= Word{1} << key % keys_per_word;
      });
    }
    if (!map.grid.restricted && !tile.reads_mask) return;
  }
  for (int start = 0; start < count; start += keys_per_word, words += lanes) {
    const std::int64_t key = first + start;
    const int some = count - start < keys_per_word ? count - start : keys_per_word;
    for (int lane = 0; lane < map.count; ++lane) {
      std::uint32_t allowed = bit_range(map.begin[lane] - key, map.end[lane] - key) | bit_range(0, map.prefix_end[lane] - key);
      if (map.grid.neighborhood) allowed &= static_cast<std::uint32_t>(words[lane]);
      if (tile.reads_mask) allowed &= mask_bits<S>(map.mask[lane], map.mask_first, job.mask_step, key, some);
      if (map.scattered && allowed != 0) allowed &= segment_bits(job, map.segment[lane], key, some);
      words[lane] = static_cast<Word>(allowed);
    }
  }
}

/// Calls visit(column, lane, numbers of lanes [lane, lane + width)) for every column of `lanes` rows of `From`, of which those past
/// `count` do not matter; columns `step` apart.
template <class S, int lanes, class From, class Visit>
[[gnu::always_inline]] static inline void for_each_column(const void* const* rows, std::int64_t offset, int count,
                                                          std::int64_t columns, std::int64_t step, const Visit& visit) {
  using T = typename S::T;
  using V = typename S::V;
  const auto row = [&](int lane) { return static_cast<const From*>(rows[lane]) + offset; };
  int shared = 1;  // lanes that have the first one's row
  while (shared < count && rows[shared] == rows[0]) ++shared;
  if (shared == count && count > 1) {  // a bias per key
    for (std::int64_t c = 0; c < columns; ++c) {
      const V x = S::set(static_cast<T>(read(row(0) + c * step)));
      for (int lane = 0; lane < lanes; lane += S::width) visit(c, lane, x);
    }
    return;
  }
  for (int lane = 0; lane < lanes; lane += S::width) {
    if (lane >= count) {
      for (std::int64_t c = 0; c < columns; ++c) visit(c, lane, S::set(0));
      continue;
    }
    if (!loads_vectors<From, T> || step != 1) {
      for (std::int64_t c = 0; c < columns; ++c) {
        alignas(64) T x[S::width];
        for (int i = 0; i < S::width; ++i) x[i] = lane + i < count ? static_cast<T>(read(row(lane + i) + c * step)) : T{0};
        visit(c, lane, S::load(x));
      }
      continue;
    }
    // Straight from the rows: what they were staged in would push as much else out of the first-level cache.
    using Row = chosen<loads_vectors<From, T>, From, T>;  // From, where this is reached
    const Row* own[S::width];
    for (int i = 0; i < S::width; ++i) own[i] = static_cast<const Row*>(rows[lane + i < count ? lane + i : count - 1]) + offset;
    V x[S::width];
    std::int64_t c = 0;
    for (; c + S::width <= columns; c += S::width) {
      if constexpr (sizeof(Row) == sizeof(T)) {
        S::load_columns(own, c, x);
      } else {
        for (int i = 0; i < S::width; ++i) x[i] = S::load(own[i] + c);
        S::transpose(x);
      }
      for (int i = 0; i < S::width; ++i) visit(c + i, lane, x[i]);
    }
    if (c == columns) continue;
    const int some = static_cast<int>(columns - c);
    for (int i = 0; i < S::width; ++i) x[i] = S::load_first(own[i] + c, some);
    S::transpose(x);
    for (int i = 0; i < some; ++i) visit(c + i, lane, x[i]);
  }
}

/// to[column][lane] = factor * rows[lane][column]; for the rest see above.
template <class S, int lanes, class From = typename S::T>
static void rows_to_columns(const void* const* rows, std::int64_t offset, int count, std::int64_t columns, std::int64_t step,
                            typename S::T factor, typename S::T* to) {
  for_each_column<S, lanes, From>(rows, offset, count, columns, step,
                                  [&](std::int64_t column, int lane, typename S::V x) __attribute__((always_inline)) {
                                    S::store(to + column * lanes + lane, x * S::set(factor));
                                  });
}

/// rows[lane][column] = factors[lane] * from[column][lane] + 0 for the first `count` lanes, stored as `To`. Adding 0 turns -0 into 0: its sign
/// would tell which tiles a row was computed with.
template <class S, int lanes, class To>
static void columns_to_rows(const typename S::T* from, const typename S::T* factors, int count, std::int64_t columns,
                            void* const* rows, std::int64_t offset, std::int64_t step) {
  using T = typename S::T;
  using V = typename S::V;
  const auto row = [&](int lane) { return static_cast<To*>(rows[lane]) + offset; };
  for (int lane = 0; lane < count; lane += S::width) {
    const int rows_here = count - lane < S::width ? count - lane : S::width;
    if (step != 1) {
      for (int i = lane; i < lane + rows_here; ++i) {
        for (std::int64_t c = 0; c < columns; ++c)
          write(row(i) + c * step, static_cast<To>(from[c * lanes + i] * factors[i] + T{0}));
      }
      continue;
    }
    const V factor = S::load(factors + lane);
    for (std::int64_t c = 0; c < columns; c += S::width) {
      const int some = columns - c < S::width ? static_cast<int>(columns - c) : S::width;
      V x[S::width];
      for (int i = 0; i < S::width; ++i)
        x[i] = i < some ? S::load(from + (c + i) * lanes + lane) * factor + S::set(0) : S::set(0);
      S::transpose(x);
      for (int i = 0; i < rows_here; ++i) {
        if (some == S::width)
          S::store(row(lane + i) + c, x[i]);
        else
          S::store_first(row(lane + i) + c, some, x[i]);
      }
    }
  }
}

/// to[r] = the row of the table at offset o + r, for offsets clipped to [-reach, reach]. `table` points at offset 0.
template <class From, class T>
static void relative_run(const From* table, std::int64_t step, std::int64_t reach, std::int64_t o, std::int64_t count, T* to) {
  const auto clip = [](std::int64_t x, std::int64_t low, std::int64_t high) { return x < low ? low : x > high ? high : x; };
  const std::int64_t left = clip(-reach - o, 0, count), right = clip(reach + 1 - o, left, count);
  const T before = static_cast<T>(read(table - reach * step)), behind = static_cast<T>(read(table + reach * step));
  for (std::int64_t r = 0; r < left; ++r) to[r] = before;
  constexpr std::int64_t short_run = 16;  // which a call costs more than
  if (step == 1 && sizeof(From) == sizeof(T) && right - left > short_run)
    __builtin_memcpy(to + left, table + (o + left), static_cast<std::size_t>(right - left) * sizeof(T));
  else
    for (std::int64_t r = left; r < right; ++r) to[r] = static_cast<T>(read(table + (o + r) * step));
  for (std::int64_t r = right; r < count; ++r) to[r] = behind;
}

struct grid_cell {
  std::int64_t row, column;
};
/// Where a key stands. Asked for every lane of a tile, whose first key is often the grid's: a division costs as much as a dozen biases.
static grid_cell cell_of(const grid_map& grid, std::int64_t key) {
  const std::int64_t row = key < grid.columns ? 0 : key / grid.columns;
  return {row, key - row * grid.columns};
}

/// to[r] = a lane's relative bias at key first + r: run by run of keys in one row of the grid.
template <class From, class T>
static void relative_row(const block_job& job, int lane, std::int64_t first, int count, T* to) {
  const grid_map& grid = job.lanes.grid;
  const From* const table = static_cast<const From*>(job.lanes.relative[lane]);
  const std::int64_t reach = job.relative_rows;
  auto [row, column] = cell_of(grid, first);
  for (std::int64_t r = 0; r < count; ++row, column = 0) {
    const std::int64_t left = count - r, some = grid.columns - column < left ? grid.columns - column : left;
    const std::int64_t down = row - grid.row[lane], clipped = down < -reach ? -reach : down > reach ? reach : down;
    relative_run(table + clipped * job.relative_row_step, job.relative_column_step, job.relative_columns,
                 column - grid.column[lane], some, to + r);
    r += some;
  }
}

/// to[key][lane] = the relative bias where a key is a neighbour of the lane's query; other pairs are excluded anyway.
template <class From, class T>
static void relative_neighbors(const block_job& job, int lanes, std::int64_t first, int count, T* to) {
  const grid_map& grid = job.lanes.grid;
  const auto clip = [](std::int64_t x, std::int64_t reach) { return x < -reach ? -reach : x > reach ? reach : x; };
  for (int lane = 0; lane < job.lanes.count; ++lane) {
    const From* const table = static_cast<const From*>(job.lanes.relative[lane]);
    for_each_neighbor(grid, lane, first, count, [&](int key, std::int64_t row, std::int64_t column) {
      const std::int64_t down = clip(row - grid.row[lane], job.relative_rows),
                         right = clip(column - grid.column[lane], job.relative_columns);
      to[key * lanes + lane] = static_cast<T>(read(table + down * job.relative_row_step + right * job.relative_column_step));
    });
  }
}

/// Weights of additive, as numbers of the accumulator; zeros behind them.
template <class T>
static void load_additive(const block_job& job, std::int64_t padded_width, T* to) {
  with_number_type<T>(job.additive_stored, [&]<class From>(From*) {
    const From* const from = static_cast<const From*>(job.additive);
    for (std::int64_t d = 0; d < job.width; ++d) to[d] = static_cast<T>(read(from + d * job.additive_step));
  });
  for (std::int64_t d = job.width; d < padded_width; ++d) to[d] = 0;
}

// A call over a million keys folds a thousand chunks. Rounded to float32 each time, equal values would drift by more than the
// contract allows, so totals of float32 carry what their elements lost: a second array behind those of a partial result.
template <class T>
inline constexpr bool carries_rest = sizeof(T) == sizeof(float);

/// total[i] = total[i] * own + next[i] * other, for own[i % period] and other[i % period].
template <class T>
static void fold_elements(T* total, T* rest, const T* next, std::int64_t count, const T* own, const T* other, int period) {
  for (std::int64_t i = 0; i < count; i += period) {
    for (int j = 0; j < period; ++j) {
      if constexpr (carries_rest<T>) {
        const double exact =
            (static_cast<double>(total[i + j]) + static_cast<double>(rest[i + j])) * static_cast<double>(own[j]) +
            static_cast<double>(next[i + j]) * static_cast<double>(other[j]);
        total[i + j] = static_cast<T>(exact);
        const double lost = exact - static_cast<double>(total[i + j]);
        rest[i + j] = lost * 0 == 0 ? static_cast<T>(lost) : T{0};  // nothing beside infinities and NaN
      } else {
        total[i + j] = total[i + j] * own[j] + next[i + j] * other[j];
      }
    }
  }
}

/// Whether all of `count` numbers are finite: 0 * NaN and 0 * Inf are NaN. `Sums` sums at a time, so that none waits for the last; `count`
/// is a multiple of as many vectors.
template <class S, int Sums>
static bool all_finite(const typename S::T* x, std::int64_t count) {
  typename S::V sum[Sums];
  for (int j = 0; j < Sums; ++j) sum[j] = S::set(0);
  for (std::int64_t i = 0; i < count; i += Sums * S::width) {
    for (int j = 0; j < Sums; ++j) sum[j] = S::fma(S::load(x + i + j * S::width), S::set(0), sum[j]);
  }
  for (int j = 1; j < Sums; ++j) sum[0] = sum[0] + sum[j];
  return S::all(S::equal(sum[0], sum[0]));
}

static inline std::int64_t padded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Hands out aligned pieces of one block of memory; with no memory it only measures.
struct arena {
  char* at;
  std::int64_t used = 0;

  template <class T>
  T* take(std::int64_t count) {
    char* const piece = at ? at + used : nullptr;
    used += padded(count * static_cast<std::int64_t>(sizeof(T)));
    return reinterpret_cast<T*>(piece);
  }
};
