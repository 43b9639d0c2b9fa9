// few_queries: columns are lanes. For decoding, where a block has at most few_queries_rows rows (queries x heads of a group):
// the time is that of reading K and V once, so every row of keys meets all queries while it is in a register or in L1.
//
//   queries  [rows][E padded]      scores  [rows][tile_keys]      O  [rows][Ev padded]      m, l  [rows]
//
// Scores: 4 keys x few_score_rows queries of dot products at a time, summed across lanes four at once. Values: few_value_rows
// x few_vectors sums over a few keys that stay in L1 while all rows meet them. Tiles are long, so that K and then V are read
// in long straight runs: each change of direction costs the hardware's prefetching a new start. A row's numbers do not depend
// on how many rows share the block. Benchmark: bench/run.py --filter decode.

template <class S>
struct few_queries {
  using T = typename S::T;
  using V = typename S::V;
  static constexpr int width = S::width;
  static constexpr int rows = few_queries_rows;
  static constexpr int tile_keys = 256;
  static constexpr std::int64_t chunk_keys = 4 * tile_keys;
  static constexpr int prefetch_keys = 16;
  static constexpr int value_keys = 16;  // keys whose values stay in L1 while every row meets them
  static constexpr int sum_keys = 64;    // added up one by one; longer sums of equal numbers would drift too far
  static_assert(tile_keys % sum_keys == 0 && sum_keys % value_keys == 0);

  static constexpr std::int64_t padded_columns(std::int64_t columns) { return (columns + width - 1) / width * width; }

  struct scratch {
    T *queries, *scores, *tile_out, *additive, *bias, *relative, *packed_k, *packed_v;
    const T **k_rows, **v_rows;
    std::int64_t bytes;
  };
  static scratch scratch_of(void* memory, const scratch_shape& shape) {
    arena a{static_cast<char*>(memory)};
    scratch s;
    s.queries = a.take<T>(rows * padded_columns(shape.width));
    s.scores = a.take<T>(rows * tile_keys);
    s.k_rows = a.take<const T*>(tile_keys + prefetch_keys + 4);
    s.v_rows = a.take<const T*>(tile_keys + prefetch_keys + 4);
    s.tile_out = a.take<T>(rows * padded_columns(shape.value_width));
    s.additive = a.take<T>(shape.additive ? padded_columns(shape.width) : 0);
    s.bias = a.take<T>(shape.has_bias ? tile_keys : 0);
    s.relative = a.take<T>(shape.has_relative ? tile_keys : 0);
    s.packed_k = a.take<T>(shape.pack_k ? tile_keys * shape.width : 0);
    s.packed_v = a.take<T>(shape.pack_v ? tile_keys * shape.value_width : 0);
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
    if (job.compatibility == compatibility_index::none) return;
    const scratch s = scratch_of(job);
    const std::int64_t columns = padded_columns(job.width);
    const bool unit = job.compatibility == compatibility_index::cosine;
    const T factor = static_cast<T>(job.query_scale);
    T* to = s.queries;
    for (int r = 0; r < job.lanes.count; ++r, to += columns) {
      const T* const row = static_cast<const T*>(job.lanes.q[r]);
      for (std::int64_t d = 0; d < job.width; ++d) to[d] = read(row + d * job.q_column);
      if (unit) unit_row<S>(to, job.width);
      for (std::int64_t d = 0; d < job.width; ++d) to[d] *= factor;
      for (std::int64_t d = job.width; d < columns; ++d) to[d] = 0;
    }
    if (job.compatibility == compatibility_index::additive) load_additive(job, columns, s.additive);
  }

  // With several rows at work on each key, too few loads are in flight to keep memory busy, so rows that are needed soon are
  // asked for: evenly among the products, each pass over the rows asking in its part of the columns. One row alone needs no
  // help.
  struct prefetch {
    const T* lines[4];  // at column d, lines[i] + d * step is asked for
    std::int64_t step;
    std::int64_t begin, end;  // columns
  };
  static constexpr int line = 64 / static_cast<int>(sizeof(T));

  /// The columns in which the pass over rows [r, r + some) of `count` asks.
  static void set_part(prefetch& ahead, std::int64_t columns, int r, int some, int count) {
    ahead.begin = columns * r / count / line * line;
    ahead.end = r + some >= count ? columns : columns * (r + some) / count / line * line;
  }

  /// Four rows of keys to come: in the order of memory where one follows the other, which hardware prefetchers then join.
  static prefetch four_rows(const T* const* rows, std::int64_t columns) {
    if (rows[3] - rows[0] == 3 * columns) return {{rows[0], rows[0] + line, rows[0] + 2 * line, rows[0] + 3 * line}, 4, 0, 0};
    return {{rows[0], rows[1], rows[2], rows[3]}, 1, 0, 0};
  }

  /// scores[r][0..4) = F(queries[r], k[0..4)) for `Rows` queries.
  template <class F, int Rows, bool asks>
  static void score_keys(const T* const* k, const T* queries, const T* additive, std::int64_t columns, T* scores,
                         const prefetch& ahead) {
    const std::int64_t query_step = padded_columns(columns), whole = columns / width * width;
    V sum[Rows][4];
    for (int r = 0; r < Rows; ++r) {
      for (int i = 0; i < 4; ++i) sum[r][i] = S::set(0);
    }
    const T *const k0 = k[0], *const k1 = k[1], *const k2 = k[2], *const k3 = k[3];
    const auto add = [&](std::int64_t d, V x0, V x1, V x2, V x3) __attribute__((always_inline)) {
      const V weight = F::weighted ? S::load(additive + d) : S::set(0);
      for (int r = 0; r < Rows; ++r) {
        const V q = S::load(queries + r * query_step + d);
        sum[r][0] = F::add(sum[r][0], q, x0, weight);
        sum[r][1] = F::add(sum[r][1], q, x1, weight);
        sum[r][2] = F::add(sum[r][2], q, x2, weight);
        sum[r][3] = F::add(sum[r][3], q, x3, weight);
      }
    };
    for (std::int64_t d = 0; d < whole; d += width) {
      if (asks && d >= ahead.begin && d < ahead.end && d % line == 0) {
        for (int i = 0; i < 4; ++i) __builtin_prefetch(ahead.lines[i] + d * ahead.step);
      }
      add(d, S::load(k0 + d), S::load(k1 + d), S::load(k2 + d), S::load(k3 + d));
    }
    if (whole < columns) {
      const int rest = static_cast<int>(columns - whole);
      add(whole, S::load_first(k0 + whole, rest), S::load_first(k1 + whole, rest), S::load_first(k2 + whole, rest),
          S::load_first(k3 + whole, rest));
    }
    for (int r = 0; r < Rows; ++r) S::store_sums(scores + r * tile_keys, sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
  }

  template <class F>
  static void score_tile(const block_job& job, const scratch& s, int count) {
    if constexpr (!F::reads_keys) {
      for (int i = 0; i < job.lanes.count * tile_keys; i += width) S::store(s.scores + i, S::set(0));
      return;
    }
    const std::int64_t query_step = padded_columns(job.width);
    const int whole = count / 4 * 4;
    const auto some_keys = [&](const T* const* k, int j) __attribute__((always_inline)) {
      prefetch ahead = four_rows(s.k_rows + j + prefetch_keys, job.width);
      const auto some_rows = [&]<int Rows, bool asks>(int r) __attribute__((always_inline)) {
        set_part(ahead, job.width, r, Rows, job.lanes.count);
        score_keys<F, Rows, asks>(k, s.queries + r * query_step, s.additive, job.width, s.scores + r * tile_keys + j, ahead);
      };
      int r = 0;
      for (; r + S::few_score_rows <= job.lanes.count; r += S::few_score_rows)
        some_rows.template operator()<S::few_score_rows, true>(r);
      for (; r + 2 <= job.lanes.count; r += 2) some_rows.template operator()<2, true>(r);
      if (r < job.lanes.count) some_rows.template operator()<1, true>(r);
    };
    if (job.lanes.count == 1) {
      for (int j = 0; j < whole; j += 4)
        score_keys<F, 1, false>(s.k_rows + j, s.queries, s.additive, job.width, s.scores + j, {});
    } else {
      for (int j = 0; j < whole; j += 4) some_keys(s.k_rows + j, j);
    }
    if (whole < count) {  // the last group repeats a key
      const T* last[4];
      for (int i = 0; i < 4; ++i) last[i] = s.k_rows[whole + i < count ? whole + i : count - 1];
      some_keys(last, whole);
    }
  }

  using score_function = void (*)(const block_job&, const scratch&, int);
  static constexpr score_function score_tiles[] = {
#define ATTEND_COMPATIBILITY(f) score_tile<compatible::f<S>>,
#include "kernels/functions.def"
  };

  /// Behind a tile's rows stand those that are read next, to be asked for in time: after the keys the values, after the values
  /// the next tile's keys.
  static void continue_rows(const block_job& job, const scratch& s, std::int64_t first, int count, std::int64_t end) {
    constexpr int more = prefetch_keys + 4;
    for (int i = 0; i < more; ++i) s.k_rows[count + i] = s.v_rows[i < count ? i : count - 1];
    const std::int64_t left = end - first - count;
    const int following = left < more ? static_cast<int>(left) : more;
    const T* unused[more];
    key_rows(job.keys, first + count, following, s.v_rows + count, unused);
    for (int i = following; i < more; ++i) s.v_rows[count + i] = s.v_rows[count - 1];
  }

  /// Applies what is left of the scale to row r, adds its biases and puts -inf where the row does not see a key, and behind the
  /// last key up to a full vector.
  static void mask_row(const block_job& job, const scratch& s, int r, std::int64_t first, int count, bool partial_tile) {
    T* const scores = s.scores + r * tile_keys;
    if (job.score_scale != 1) {
      for (int j = 0; j < count; ++j) scores[j] = scores[j] * static_cast<T>(job.score_scale);
    }
    if (job.has_bias) {
      const auto read_bias = [&](const auto* from) {
        for (int j = 0; j < count; ++j) s.bias[j] = static_cast<T>(read(from + (first + j) * job.bias_step));
      };
      job.bias_is_f32 ? read_bias(static_cast<const float*>(job.lanes.bias[r]))
                      : read_bias(static_cast<const T*>(job.lanes.bias[r]));
      for (int j = 0; j < count; j += width) S::store(scores + j, biased<S>(S::load(scores + j), S::load(s.bias + j)));
    }
    if (job.has_relative) {
      job.relative_is_f32 ? relative_row<float>(job, r, first, count, s.relative)
                          : relative_row<T>(job, r, first, count, s.relative);
      const T* const bias = job.has_bias ? s.bias : s.relative;
      for (int j = 0; j < count; j += width)
        S::store(scores + j, biased<S>(S::load(scores + j), S::load(s.relative + j), S::load(bias + j)));
    }
    if (partial_tile) {
      const std::int64_t begin = job.lanes.begin[r] - first, end = job.lanes.end[r] - first,
                         prefix = job.lanes.prefix_end[r] - first;
      for (int j = 0; j < count; ++j) scores[j] = j < prefix || (j >= begin && j < end) ? scores[j] : -infinity<T>;
      const grid_map& grid = job.lanes.grid;
      for (int j = 0; grid.neighborhood && j < count; ++j) {
        const bool seen = has_cell(grid, grid.neighbors[r], grid.column_step, first + j, first + j + 1);
        scores[j] = seen ? scores[j] : -infinity<T>;
      }
    }
    if (job.has_mask) {
      const unsigned char* const mask = job.lanes.mask[r] + first * job.mask_step;
      for (int j = 0; j < count; ++j) scores[j] = mask[j * job.mask_step] ? scores[j] : -infinity<T>;
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
    for (int j = 0; j < count; j += width) {
      typename S::M excluded;
      const V weight = weigh<S, Normal>(S::load(scores + j), base, excluded);
      l = l + normal_of::share(weight, excluded);
      S::store(scores + j, marked ? S::select(excluded, S::set(-infinity<T>), weight) : weight);
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

  /// What one of `passes` passes over some keys asks for of as many rows to come: its share of them, one part of a row per key.
  struct pass_ahead {
    const T* const* row;
    int part, passes;
    std::int64_t columns;  // of a part
    std::int64_t first;    // column
  };

  /// sums[r][0..Vectors x width) += weights[r][key] * v_rows[key] over `count` keys, beginning at 0 where they are the part's first.
  /// The last vector has `rest` columns, which V must not be read past.
  template <int Rows, int Vectors, bool marked, bool whole, bool asks>
  static void value_columns(const T* const* v_rows, const T* weights, int count, std::int64_t column, int rest, bool first,
                            T* sums_, std::int64_t step, pass_ahead ahead) {
    V sum[Rows][Vectors];
    for (int r = 0; r < Rows; ++r) {
      for (int c = 0; c < Vectors; ++c) sum[r][c] = first ? S::set(0) : S::load(sums_ + r * step + c * width);
    }
    for (int j = 0; j < count; ++j) {
      if (asks) {
        const T* const part = *ahead.row + ahead.first + ahead.part * ahead.columns;
        for (std::int64_t d = 0; d < ahead.columns; d += line) __builtin_prefetch(part + d);
        if (++ahead.part == ahead.passes) {
          ahead.part = 0;
          ++ahead.row;
        }
      }
      const T* const v = v_rows[j] + column;
      V value[Vectors];
      for (int c = 0; c < Vectors - 1; ++c) value[c] = S::load(v + c * width);
      value[Vectors - 1] = whole ? S::load(v + (Vectors - 1) * width) : S::load_first(v + (Vectors - 1) * width, rest);
      for (int r = 0; r < Rows; ++r) {
        const T weight = weights[r * tile_keys + j];
        if (marked && weight == -infinity<T>) continue;
        const V w = S::set(weight);
        for (int c = 0; c < Vectors; ++c) sum[r][c] = S::fma(value[c], w, sum[r][c]);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (int c = 0; c < Vectors; ++c) S::store(sums_ + r * step + c * width, sum[r][c]);
    }
  }

  template <int Vectors, bool marked>
  static void value_rows(const block_job& job, const scratch& s, int begin, int count, std::int64_t column) {
    const std::int64_t step = padded_columns(job.value_width), left = job.value_width - column - (Vectors - 1) * width;
    const int rest = left < width ? static_cast<int>(left) : width;
    const T* const* const v_rows = s.v_rows + begin;
    const int passes = (job.lanes.count + S::few_value_rows - 1) / S::few_value_rows;
    const std::int64_t part = (Vectors * width / passes + line - 1) / line * line;
    const auto some_rows = [&]<int Rows, bool whole, bool asks = true>(int r) {
      const int units = r / S::few_value_rows * count;
      const pass_ahead next{v_rows + prefetch_keys + units / passes, units % passes, passes, part, column};
      value_columns<Rows, Vectors, marked, whole, asks>(v_rows, s.scores + r * tile_keys + begin, count, column, rest,
                                                        begin % sum_keys == 0, s.tile_out + r * step + column, step, next);
    };
    if (job.lanes.count == 1) {
      rest == width ? some_rows.template operator()<1, true, false>(0) : some_rows.template operator()<1, false, false>(0);
      return;
    }
    int r = 0;
    for (; r + S::few_value_rows <= job.lanes.count; r += S::few_value_rows) {
      rest == width ? some_rows.template operator()<S::few_value_rows, true>(r)
                    : some_rows.template operator()<S::few_value_rows, false>(r);
    }
    for (; r < job.lanes.count; ++r) {
      rest == width ? some_rows.template operator()<1, true>(r) : some_rows.template operator()<1, false>(r);
    }
  }

  /// out[r] = out[r] * rescale[r] + the tile's weighted sum of values, by parts of sum_keys.
  template <bool marked>
  static void value_tile(const block_job& job, const scratch& s, int count, const T* rescale, T* out) {
    const std::int64_t columns = padded_columns(job.value_width);
    for (int begin = 0; begin < count; begin += value_keys) {
      const int some = count - begin < value_keys ? count - begin : value_keys;
      std::int64_t column = 0;
      for (; column + S::few_vectors * width <= columns; column += S::few_vectors * width) {
        value_rows<S::few_vectors, marked>(job, s, begin, some, column);
      }
      if (S::few_vectors > 4 && column + 4 * width <= columns) {
        value_rows<4, marked>(job, s, begin, some, column);
        column += 4 * width;
      }
      if (column + 2 * width <= columns) {
        value_rows<2, marked>(job, s, begin, some, column);
        column += 2 * width;
      }
      if (column < columns) value_rows<1, marked>(job, s, begin, some, column);
      const int end = begin + some;
      if (end % sum_keys != 0 && end != count) continue;
      for (int r = 0; r < job.lanes.count; ++r) {
        const V shrink = S::set(end <= sum_keys ? rescale[r] : T{1});
        for (std::int64_t c = r * columns; c < (r + 1) * columns; c += width) {
          S::store(out + c, S::fma(S::load(out + c), shrink, S::load(s.tile_out + c)));
        }
      }
    }
  }

  template <bool marked>
  static void fold_keys(const block_job& job, std::int64_t begin, std::int64_t end, const sums& result) {
    const scratch s = scratch_of(job);
    const lane_bounds bounds = bounds_of(job.lanes);
    T rescale[rows];
    const T none = normal::start<S>(job);
    for (std::int64_t i = 0; i < job.lanes.count * padded_columns(job.value_width); ++i) result.out[i] = 0;
    for (int r = 0; r < job.lanes.count; ++r) {
      result.maximum[r] = none;
      result.denominator[r] = 0;
    }
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_class kind = classify(job.lanes, bounds, first, first + count);
      if (kind == tile_class::skip) continue;
      read_rows<S>(job, s, first, count);
      continue_rows(job, s, first, count, end);
      score_tiles[static_cast<int>(job.compatibility)](job, s, count);
      for (int r = 0; r < job.lanes.count; ++r) {
        mask_row(job, s, r, first, count, kind == tile_class::partial);
        rescale[r] = weigh_rows<marked>[static_cast<int>(job.normalizer)](s.scores + r * tile_keys, count, result.maximum[r],
                                                                          result.denominator[r]);
      }
      value_tile<marked>(job, s, count, rescale, result.out);
    }
  }

  static void chunk(const block_job& job, std::int64_t begin, std::int64_t end, partial_sums* memory) {
    const sums result = sums_of(memory, job.value_width);
    fold_keys<false>(job, begin, end, result);
    // As in forward: where a sum is not finite, an excluded value may have leaked in.
    V probe = S::set(0);
    const std::int64_t elements = job.lanes.count * padded_columns(job.value_width);
    for (std::int64_t i = 0; i < elements; i += width) probe = S::fma(S::load(result.out + i), S::set(0), probe);
    if (!S::all(S::equal(probe, probe))) fold_keys<true>(job, begin, end, result);
  }

  template <template <class> class Normal>
  static void fold_partials(const block_job& job, partial_sums* total, const partial_sums* next) {
    const sums a = sums_of(total, job.value_width), b = sums_of(const_cast<partial_sums*>(next), job.value_width);
    const sums rest = sums_of(static_cast<char*>(total) + partial_bytes(shape_of(job)), job.value_width);
    const std::int64_t columns = padded_columns(job.value_width);
    alignas(64) T own[width], other[width], m[width];
    for (int r = 0; r < job.lanes.count; ++r) {
      const V ma = S::set(a.maximum[r]), mb = S::set(b.maximum[r]);
      const V larger = S::max(ma, mb), base = Normal<S>::base(larger);
      S::store(m, larger);
      S::store(own, Normal<S>::shrink(ma, base));
      S::store(other, Normal<S>::shrink(mb, base));
      a.maximum[r] = m[0];
      fold_elements(a.denominator + r, rest.denominator + r, b.denominator + r, 1, own, other, 1);
      const std::int64_t row = r * columns;
      fold_elements(a.out + row, rest.out + row, b.out + row, columns, own, other, width);
    }
  }

  using fold_function = void (*)(const block_job&, partial_sums*, const partial_sums*);
  static constexpr fold_function folds[] = {
#define ATTEND_NORMALIZER(f) fold_partials<normal::f>,
#include "kernels/functions.def"
  };
  static void fold(const block_job& job, partial_sums* total, const partial_sums* next) {
    folds[static_cast<int>(job.normalizer)](job, total, next);
  }

  static void finish(const block_job& job, const partial_sums* memory, double* maximum, double* denominator) {
    const sums result = sums_of(const_cast<partial_sums*>(memory), job.value_width);
    for (int r = 0; r < job.lanes.count; ++r) {
      maximum[r] = static_cast<double>(result.maximum[r]);
      denominator[r] = static_cast<double>(result.denominator[r]);
      if (!job.has_out) continue;
      T* const row = static_cast<T*>(job.lanes.out[r]);
      const T* const sum = result.out + r * padded_columns(job.value_width);
      const T factor = normal::final_factor<S>(job, result.denominator[r]);
      for (std::int64_t c = 0; c < job.value_width; ++c)
        write(row + c * job.out_column, sum[c] * factor + T{0});  // -0 becomes 0
    }
  }

  /// Scores of one row -> its final weights, written for keys [first, first + count).
  template <template <class> class Normal>
  static void final_row(const block_job& job, T* scores, int count, T maximum, T inverse, T* to) {
    const V base = Normal<S>::base(S::set(maximum));
    for (int j = 0; j < count; j += width) {
      typename S::M excluded;
      const V weight = weigh<S, Normal>(S::load(scores + j), base, excluded);
      S::store(scores + j, S::select(excluded, S::set(0), weight * S::set(inverse)));
    }
    for (int j = 0; j < count; ++j) write(to + j * job.weights_step, scores[j]);
  }

  using final_function = void (*)(const block_job&, T*, int, T, T, T*);
  static constexpr final_function final_rows[] = {
#define ATTEND_NORMALIZER(f) final_row<normal::f>,
#include "kernels/functions.def"
  };

  /// From the scores that the sums were made of: another order of theirs would not fit the maximum.
  static void weights(const block_job& job, std::int64_t begin, std::int64_t end, const double* maximum,
                      const double* denominator) {
    const scratch s = scratch_of(job);
    const lane_bounds bounds = bounds_of(job.lanes);
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_class kind = classify(job.lanes, bounds, first, first + count);
      if (kind != tile_class::skip) {
        read_rows<S>(job, s, first, count);
        continue_rows(job, s, first, count, end);
        score_tiles[static_cast<int>(job.compatibility)](job, s, count);
      }
      for (int r = 0; r < job.lanes.count; ++r) {
        T* const to = static_cast<T*>(job.lanes.weights[r]) + first * job.weights_step;
        if (kind == tile_class::skip) {
          for (int j = 0; j < count; ++j) write(to + j * job.weights_step, T{0});
          continue;
        }
        mask_row(job, s, r, first, count, kind == tile_class::partial);
        final_rows[static_cast<int>(job.normalizer)](job, s.scores + r * tile_keys, count, static_cast<T>(maximum[r]),
                                                     normal::final_factor<S>(job, static_cast<T>(denominator[r])), to);
      }
    }
  }

  static constexpr kernel row{rows, tile_keys, chunk_keys, scratch_bytes, partial_bytes, total_bytes,
                              load, chunk,     fold,       finish,        weights};
};
