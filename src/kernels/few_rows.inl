// What `few_queries` does to the rows of a block before their values: memory, scores, weights. Columns of queries and keys are lanes.

/// Columns of a row in a line of the cache.
template <class Row>
inline constexpr int line = 64 / static_cast<int>(sizeof(Row));
template <>
inline constexpr int line<int8_codes> = 64;
template <>
inline constexpr int line<int4_codes> = 128;

/// Bytes of a row.
template <class Row>
static constexpr std::int64_t row_bytes(std::int64_t columns) {
  return is_codes<Row> ? quantized_row_bytes(512 / line<Row>, columns) : columns * (64 / line<Row>);
}

/// Asks for a line of memory, into the second-level cache.
[[gnu::always_inline]] static inline void ask_for(const char* line) { __builtin_prefetch(line, 0, 2); }

/// Bytes before a column that is the first of a line of its row.
template <class Row>
static constexpr std::int64_t bytes_before(std::int64_t column) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(column) / line<Row>) * 64;
}

template <class S>
struct few_rows {
  using T = typename S::T;
  using V = typename S::V;
  static constexpr int width = S::width;
  static constexpr int rows = few_queries_rows;
  static constexpr int tile_keys = 256;
  static constexpr std::int64_t chunk_keys = 4 * tile_keys;
  static_assert(common_chunk_keys % chunk_keys == 0);
  static constexpr int prefetch_keys = 16;
  static constexpr int value_keys = 16;  // keys whose values stay in L1 while every row meets them, and are added up one by one
  static constexpr int share_vectors =
      8;  // weights that a lane adds up one by one; long sums of very different numbers lose too much
  static_assert(tile_keys % value_keys == 0);

  static constexpr std::int64_t padded_columns(std::int64_t columns) { return (columns + width - 1) / width * width; }

  struct scratch {
    T *queries, *scores, *tile_out, *additive, *bias, *relative, *numbers, *kept, *packed_k, *packed_v, *few_k, *few_v;
    const void **k_rows, **v_rows;
    std::int64_t bytes;
  };
  static scratch scratch_of(void* memory, const scratch_shape& shape) {
    arena a{static_cast<char*>(memory)};
    scratch s;
    s.queries = a.take<T>(rows * padded_columns(shape.width));
    s.scores = a.take<T>(rows * tile_keys);
    s.k_rows = a.take<const void*>(tile_keys + prefetch_keys + 4);
    s.v_rows = a.take<const void*>(tile_keys + prefetch_keys + 4);
    s.tile_out = a.take<T>(rows * padded_columns(shape.value_width));
    s.additive = a.take<T>(shape.additive ? padded_columns(shape.width) : 0);
    s.bias = a.take<T>(shape.biases * tile_keys);
    s.numbers = a.take<T>(tile_keys);
    s.kept = a.take<T>(shape.dropout ? tile_keys + 4 * width : 0);
    s.relative = a.take<T>(shape.has_relative ? tile_keys : 0);
    s.packed_k = a.take<T>(shape.pack_k ? tile_keys * shape.width : 0);
    s.packed_v = a.take<T>(shape.pack_v ? tile_keys * shape.value_width : 0);
    s.few_k = a.take<T>(4 * padded_columns(shape.width));
    s.few_v = a.take<T>(value_keys * S::few_vectors * width);
    s.bytes = a.used;
    return s;
  }
  static scratch scratch_of(const block_job& job) { return scratch_of(job.scratch, shape_of(job)); }
  static std::int64_t scratch_bytes(const scratch_shape& shape) { return scratch_of(nullptr, shape).bytes; }

  struct sums {
    T *out, *maximum, *denominator;
  };
  static sums sums_of(partial_sums* memory, std::int64_t value_width) {
    T* const base = static_cast<T*>(memory);
    const std::int64_t out = rows * padded_columns(value_width);
    return {base, base + out, base + out + rows};
  }
  static std::int64_t partial_bytes(const scratch_shape& shape) {
    return padded(rows * (padded_columns(shape.value_width) + 2) * static_cast<std::int64_t>(sizeof(T)));
  }
  static std::int64_t total_bytes(const scratch_shape& shape) {
    return partial_bytes(shape) + (carries_rest<T> ? partial_bytes(shape) : 0);
  }

  static void load(const block_job& job) {
    const scratch s = scratch_of(job);
    for (int n = 0; n < job.step_count; ++n) {
      if (job.steps[n].kind != score_kind::alibi) continue;
      for (int j = 0; j < tile_keys; ++j) s.numbers[j] = static_cast<T>(j);
    }
    if (job.compatibility == compatibility_index::none) return;
    const std::int64_t columns = padded_columns(job.width);
    const bool unit = job.compatibility == compatibility_index::cosine;
    const T factor = static_cast<T>(job.query_scale);
    T* to = s.queries;
    for (int r = 0; r < job.lanes.count; ++r, to += columns) {
      with_input_type<T>(job.stored, [&]<class From>(From*) {
        const From* const row = static_cast<const From*>(job.lanes.q[r]);
        std::int64_t d = 0;
        if constexpr (loads_vectors<From, T>) {
          if (job.q_column == 1) {
            for (; d + width <= job.width; d += width) S::store(to + d, S::load(row + d));
          }
        }
        for (; d < job.width; ++d) to[d] = static_cast<T>(read(row + d * job.q_column));
      });
      if (unit) unit_row<S>(to, job.width);
      for (std::int64_t d = job.width; d < columns; ++d) to[d] = 0;
      for (std::int64_t d = 0; d < columns; d += width) S::store(to + d, S::load(to + d) * S::set(factor));
    }
    if (job.compatibility == compatibility_index::additive) load_additive(job, columns, s.additive);
  }

  // Rows that are needed soon are asked for: evenly among the products, each pass over the rows asking in its part of the columns. Into the
  // second-level cache, whose requests in flight are more than those of the first: on Zen 4 one row of float32 reads 1.4 times as fast as with
  // hardware's prefetching alone, and four rows over pages of 16 keys 1.6 times as fast as with requests to the first level.
  struct prefetch {
    const char* lines[4];  // at column d, lines[i] is asked for, step times as many bytes further on as lie before d
    std::int64_t step;
    std::int64_t begin, end;  // columns
  };

  /// parts[r]: the column from which the pass over query r asks, if it is the first of a pass; parts[r + 1] at the end of one: to which.
  template <class Row>
  static void divide_columns(std::int64_t columns, int queries, std::int64_t* parts) {
    for (int r = 0; r < queries; ++r) parts[r] = columns * r / queries / line<Row> * line<Row>;
    parts[queries] = columns;
  }

  /// Four rows of keys to come: in the order of memory where one follows the other, which hardware prefetchers then join.
  template <class Row>
  static prefetch four_rows(const void* const* rows, std::int64_t columns) {
    const auto row = [rows](int i) { return static_cast<const char*>(rows[i]); };
    if (!is_codes<Row> && row(3) - row(0) == 3 * row_bytes<Row>(columns))
      return {{row(0), row(0) + 64, row(0) + 128, row(0) + 192}, 4, 0, 0};
    return {{row(0), row(1), row(2), row(3)}, 1, 0, 0};
  }

  /// scores[r][0..4) = F(queries[r], k[0..4)) for `Rows` queries.
  template <class F, class Row, int Rows, bool asks>
  static void score_keys(const void* const* k, const T* queries, const T* additive, std::int64_t columns, T* scores,
                         const prefetch& ahead) {
    const std::int64_t query_step = padded_columns(columns), whole = columns / width * width;
    V sum[Rows][4];
    for (int r = 0; r < Rows; ++r) {
      for (int i = 0; i < 4; ++i) sum[r][i] = S::set(0);
    }
    const row_reader<S, Row> k0(k[0], columns), k1(k[1], columns), k2(k[2], columns), k3(k[3], columns);
    const auto add = [&](std::int64_t d, V x0, V x1, V x2, V x3) __attribute__((always_inline)) {
      const V weight = F::weighted ? S::load(additive + d) : S::set(0);
      if (Rows > 1) {  // or else compilers load them again for every row, and loads are the limit
        S::keep(x0);
        S::keep(x1);
        S::keep(x2);
        S::keep(x3);
      }
      for (int r = 0; r < Rows; ++r) {
        const V q = S::load(queries + r * query_step + d);
        sum[r][0] = F::add(sum[r][0], q, x0, weight);
        sum[r][1] = F::add(sum[r][1], q, x1, weight);
        sum[r][2] = F::add(sum[r][2], q, x2, weight);
        sum[r][3] = F::add(sum[r][3], q, x3, weight);
      }
    };
    constexpr int step = is_codes<Row> ? group_columns : width;  // codes have a scale for several vectors
    std::int64_t d = 0;
    for (; d + step <= columns; d += step) {
      if (asks && d >= ahead.begin && d < ahead.end && d % line<Row> == 0) {
        const std::int64_t further = bytes_before<Row>(d) * ahead.step;
        for (int i = 0; i < 4; ++i) ask_for(ahead.lines[i] + further);
        if (is_codes<Row> && d == 0) {  // scales
          for (int i = 0; i < 4; ++i) ask_for(ahead.lines[i] + row_bytes<Row>(columns) - 1);
        }
      }
      const auto g0 = k0.group(d), g1 = k1.group(d), g2 = k2.group(d), g3 = k3.group(d);
      for (std::int64_t c = d; c < d + step; c += width) add(c, g0.load(c), g1.load(c), g2.load(c), g3.load(c));
    }
    for (; d < whole; d += width) add(d, k0.load(d), k1.load(d), k2.load(d), k3.load(d));
    if (whole < columns) {
      const int rest = static_cast<int>(columns - whole);
      add(whole, k0.load_first(whole, rest), k1.load_first(whole, rest), k2.load_first(whole, rest),
          k3.load_first(whole, rest));
    }
    for (int r = 0; r < Rows; ++r) S::store_sums(scores + r * tile_keys, sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
  }

  /// Whether rows become numbers once for all queries, as it pays where many meet them.
  template <class Row>
  static bool converts(const block_job& job, int rows_at_once) {
    return !is_same<Row, T> && job.lanes.count > (is_codes<Row> ? 1 : 2) * rows_at_once;
  }

  /// Four rows of keys as numbers in `s.few_k`, to which `numbers` points; asks for four rows to come.
  template <class Row>
  static void convert_keys(const block_job& job, const scratch& s, const void* const* k, const prefetch& ahead,
                           const void** numbers) {
    const std::int64_t columns = job.width;
    T* to = s.few_k;
    for (int i = 0; i < 4; ++i, to += padded_columns(columns)) {
      const row_reader<S, Row> row(k[i], columns);
      for (std::int64_t d = 0; d < columns; d += line<Row>) ask_for(ahead.lines[i] + bytes_before<Row>(d) * ahead.step);
      if (is_codes<Row>) ask_for(ahead.lines[i] + row_bytes<Row>(columns) - 1);
      constexpr int step = is_codes<Row> ? group_columns : width;
      std::int64_t d = 0;
      for (; d + step <= columns; d += step) {
        const auto group = row.group(d);
        for (std::int64_t c = d; c < d + step; c += width) S::store(to + c, group.load(c));
      }
      for (; d + width <= columns; d += width) S::store(to + d, row.load(d));
      if (d < columns) S::store(to + d, row.load_first(d, static_cast<int>(columns - d)));
      numbers[i] = to;
    }
  }

  /// Scores of four keys, from j on, of all queries.
  template <class F, class Row, bool asks>
  [[gnu::always_inline]] static inline void score_rows(const block_job& job, const scratch& s, const void* const* k, int j,
                                                       prefetch& ahead, const std::int64_t* parts) {
    const auto some_rows = [&]<int Rows>(int r) __attribute__((always_inline)) {
      if (asks) {
        ahead.begin = parts[r];
        ahead.end = parts[r + Rows];
      }
      score_keys<F, Row, Rows, asks>(k, s.queries + r * padded_columns(job.width), s.additive, job.width,
                                     s.scores + r * tile_keys + j, ahead);
    };
    int r = 0;
    for (; r + S::few_score_rows <= job.lanes.count; r += S::few_score_rows)
      some_rows.template operator()<S::few_score_rows>(r);
    for (; r + 2 <= job.lanes.count; r += 2) some_rows.template operator()<2>(r);
    if (r < job.lanes.count) some_rows.template operator()<1>(r);
  }

  template <class F, class Row = T>
  static void score_tile(const block_job& job, const scratch& s, int count) {
    if constexpr (!F::reads_keys) {
      for (int i = 0; i < job.lanes.count * tile_keys; i += width) S::store(s.scores + i, S::set(0));
      return;
    }
    const int whole = count / 4 * 4;
    std::int64_t parts[rows + 1];
    divide_columns<Row>(job.width, job.lanes.count, parts);
    const auto some_keys = [&](const void* const* k, int j) __attribute__((always_inline)) {
      prefetch ahead = four_rows<Row>(s.k_rows + j + prefetch_keys, job.width);
      if (converts<Row>(job, S::few_score_rows)) {
        const void* numbers[4];
        convert_keys<Row>(job, s, k, ahead, numbers);
        score_rows<F, T, false>(job, s, numbers, j, ahead, parts);
      } else {
        score_rows<F, Row, true>(job, s, k, j, ahead, parts);
      }
    };
    for (int j = 0; j < whole; j += 4) some_keys(s.k_rows + j, j);
    if (whole < count) {  // the last group repeats a key
      const void* last[4];
      for (int i = 0; i < 4; ++i) last[i] = s.k_rows[whole + i < count ? whole + i : count - 1];
      some_keys(last, whole);
    }
  }

  using score_function = void (*)(const block_job&, const scratch&, int);
  static constexpr score_function score_tiles[] = {
#define ATTEND_COMPATIBILITY(f) score_tile<compatible::f<S>>,
#include "kernels/functions.def"
  };

  /// Scores of a tile. Halves and codes lie where they are for dot products alone (route.cpp); other functions have them gathered.
  static void score(const block_job& job, const scratch& s, int count) {
    if (job.compatibility != compatibility_index::dot || job.pack_k)
      score_tiles[static_cast<int>(job.compatibility)](job, s, count);
    else
      with_row_type<T>(job.k_stored, [&]<class Row>(Row*) { score_tile<compatible::dot<S>, Row>(job, s, count); });
  }

  /// Behind a tile's rows stand those that are read next, to be asked for in time: after the keys the values, after the values
  /// the next tile's keys.
  static void continue_rows(const block_job& job, const scratch& s, std::int64_t first, int count, std::int64_t end) {
    constexpr int more = prefetch_keys + 4;
    for (int i = 0; i < more; ++i) s.k_rows[count + i] = s.v_rows[i < count ? i : count - 1];
    const std::int64_t left = end - first - count;
    const int following = left < more ? static_cast<int>(left) : more;
    const void* unused[more];
    key_rows(job.keys, first + count, following, s.v_rows + count, unused);
    const std::int64_t step = job.keys.k_step * job.keys.k_bytes;
    for (int i = following; i < more; ++i)
      s.v_rows[count + i] = job.ahead.keys ? job.ahead.keys + (i - following) * step : s.v_rows[count - 1];
  }

  /// x = visit(x, key's number in the tile) for every vector of a row's scores.
  template <class Visit>
  [[gnu::always_inline]] static inline void for_each_score(T* scores, int count, const Visit& visit) {
    for (int j = 0; j < count; j += width) S::store(scores + j, visit(S::load(scores + j), j));
  }

  static const T* added(const scratch& s, const score_step& step) {
    return step.kind == score_kind::relative ? s.relative : s.bias + step.number * tile_keys;
  }

  /// One step of the scores of row r, reading what it adds.
  static void apply(const block_job& job, const scratch& s, int r, std::int64_t first, int count, const score_step& step) {
    T* const scores = s.scores + r * tile_keys;
    const auto add = [&] {
      const T* const from = added(s, step);
      for_each_score(scores, count,
                     [&](V score, int j) __attribute__((always_inline)) { return biased<S>(score, S::load(from + j)); });
    };
    switch (step.kind) {
      case score_kind::soft_cap: {
        const soft_capping<S> capped(step.cap);
        if (capped.large)
          for_each_score(scores, count, [&](V score, int) __attribute__((always_inline)) { return capped.of_large(score); });
        else
          for_each_score(scores, count, [&](V score, int) __attribute__((always_inline)) { return capped(score); });
        break;
      }
      case score_kind::bias: {
        with_number_type<T>(step.stored, [&]<class From>(From*) {
          const From* const from = static_cast<const From*>(job.lanes.bias[step.number][r]);
          T* const to = s.bias + step.number * tile_keys;
          for (int j = 0; j < count; ++j) to[j] = static_cast<T>(read(from + (first + j) * step.step));
        });
        add();
        break;
      }
      case score_kind::relative:
        with_number_type<T>(job.relative_stored,
                            [&]<class From>(From*) { relative_row<From>(job, r, first, count, s.relative); });
        add();
        break;
      case score_kind::alibi: {
        const V slope = S::set(static_cast<T>(job.lanes.slope[r])),
                distance = S::set(static_cast<T>(job.lanes.position[r] - first));
        for_each_score(scores, count, [&](V score, int j) __attribute__((always_inline)) {
          return sloped<S>(score, slope, distance, S::load(s.numbers + j));
        });
        break;
      }
    }
  }

  /// Applies what is left of the scale and the job's steps to row r, and puts -inf where the row does not see a key, and behind the
  /// last key up to a full vector.
  static void adjust_row(const block_job& job, const scratch& s, int r, std::int64_t first, int count, tile_kind tile) {
    T* const scores = s.scores + r * tile_keys;
    if (job.score_scale != 1) {
      const V factor = S::set(static_cast<T>(job.score_scale));
      for_each_score(scores, count, [&](V score, int) __attribute__((always_inline)) { return score * factor; });
    }
    for (int n = 0; n < job.step_count; ++n) apply(job, s, r, first, count, job.steps[n]);
    for (int n = 0; job.excludes_late && n < job.step_count; ++n) {
      if (!job.steps[n].adds) continue;
      const T* const from = added(s, job.steps[n]);
      for_each_score(scores, count, [&](V score, int j) __attribute__((always_inline)) {
        return unless_excluded<S>(score, S::load(from + j));
      });
    }
    if (tile.structured) {
      const std::int64_t begin = job.lanes.begin[r] - first, end = job.lanes.end[r] - first,
                         prefix = job.lanes.prefix_end[r] - first;
      for (int j = 0; j < count; ++j) scores[j] = j < prefix || (j >= begin && j < end) ? scores[j] : -infinity<T>;
      const grid_map& grid = job.lanes.grid;
      for (int j = 0; grid.neighborhood && j < count; ++j) {
        const bool seen = has_cell(grid, grid.neighbors[r], grid.column_step, first + j, first + j + 1);
        scores[j] = seen ? scores[j] : -infinity<T>;
      }
    }
    if (tile.structured && job.lanes.scattered) {
      for (int j = 0; j < count; j += keys_per_word) {
        const int some = count - j < keys_per_word ? count - j : keys_per_word;
        const std::uint32_t bits = segment_bits(job, job.lanes.segment[r], first + j, some);
        for (int i = 0; i < some; ++i) scores[j + i] = bits >> i & 1 ? scores[j + i] : -infinity<T>;
      }
    }
    if (tile.reads_mask) {
      const std::int64_t column = first - job.lanes.mask_first;  // of the tile's first key
      const unsigned char* const mask = job.lanes.mask[r] + column * job.mask_step;
      for (int j = column < 0 ? static_cast<int>(-column) : 0; j < count; ++j)
        scores[j] = mask[j * job.mask_step] ? scores[j] : -infinity<T>;
    }
    for (int j = count; j % width != 0; ++j) scores[j] = -infinity<T>;
  }

  /// Scores of one row -> weights in place (-inf where excluded, if `marked`); returns what the sums so far shrink by.
  template <template <class> class Normal, bool marked>
  static T weigh_row(T* scores, int count, T& maximum, T& denominator) {
    using normal_of = Normal<S>;
    alignas(64) T shrink[width];
    T largest = maximum;
    if constexpr (normal_of::moves) {
      V top = S::set(maximum);
      for (int j = 0; j < count; j += width) top = raise<S, Normal>(top, S::load(scores + j));
      largest = S::largest(top);
    }
    const V base = normal_of::base(S::set(largest));
    S::store(shrink, normal_of::shrink(S::set(maximum), base));
    maximum = largest;
    V l = S::set(0);
    for (int j = 0; j < count;) {
      const int end = count - j < share_vectors * width ? count : j + share_vectors * width;
      V part = S::set(0);
      for (; j < end; j += width) {
        typename S::M excluded;
        const V weight = weigh<S, Normal>(S::load(scores + j), base, excluded);
        part = part + normal_of::share(weight, excluded);
        S::store(scores + j, marked ? S::select(excluded, S::set(-infinity<T>), weight) : weight);
      }
      l = l + part;
    }
    denominator = denominator * shrink[0] + S::sum(l);
    return shrink[0];
  }

  using weigh_function = T (*)(T*, int, T&, T&);
  template <bool marked>
  static constexpr weigh_function weigh_rows[] = {
#define ATTEND_NORMALIZER(f) weigh_row<normal::f, marked>,
#include "kernels/functions.def"
  };

  static tile_kind tile_at(const block_job& job, const lane_bounds& bounds, std::int64_t first, int count) {
    return classify_tile(job.lanes, bounds, first, first + count, job.has_mask, tile_keys);
  }

  /// Weights of a row that dropout takes away become 0, NaN stays; `marked` as in weigh_row.
  template <bool marked>
  static void drop_row(const block_job& job, const scratch& s, int r, std::int64_t first, int count) {
    kept_row<S>(job, r, first, count, s.kept);
    for_each_score(s.scores + r * tile_keys, count, [&](V weight, int j) __attribute__((always_inline)) {
      const V kept = weight * S::load(s.kept + j);
      return marked ? S::select(S::equal(weight, S::set(-infinity<T>)), weight, kept) : kept;
    });
  }

  /// Scores of one row -> its final weights in place.
  template <template <class> class Normal>
  static void final_row(T* scores, int count, T maximum, T factor) {
    const V base = Normal<S>::base(S::set(maximum));
    for_each_score(scores, count, [&](V score, int) __attribute__((always_inline)) {
      typename S::M excluded;
      const V weight = weigh<S, Normal>(score, base, excluded);
      return S::select(excluded, S::set(0), weight * S::set(factor));
    });
  }

  using final_function = void (*)(T*, int, T, T);
  static constexpr final_function final_rows[] = {
#define ATTEND_NORMALIZER(f) final_row<normal::f>,
#include "kernels/functions.def"
  };
};
