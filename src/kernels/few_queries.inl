// few_queries: columns are lanes. For decoding, where a block has at most few_queries_rows rows (queries x heads of a group): the
// time is that of reading K and V once, so every row of keys meets all queries while it is in a register or in L1.
//
//   queries  [rows][E padded]      scores  [rows][tile_keys]      O  [rows][Ev padded]      m, l  [rows]
//
// Scores: 4 keys x few_rows queries of dot products at a time, summed across lanes four at once. Values: few_rows x few_vectors
// sums over a tile, one pass over full rows of V where Ev <= few_vectors x width. A row's numbers do not depend on how many rows
// share the block. Benchmark: bench/run.py --filter decode.

template <class S>
struct few_queries {
  using T = typename S::T;
  using V = typename S::V;
  static constexpr int width = S::width;
  static constexpr int rows = few_queries_rows;
  static constexpr int tile_keys = 64;
  static constexpr std::int64_t chunk_keys = 8 * tile_keys;

  static constexpr std::int64_t padded_columns(std::int64_t columns) { return (columns + width - 1) / width * width; }

  struct scratch {
    T *queries, *scores, *bias, *packed_k, *packed_v;
    const T **k_rows, **v_rows, **next_k_rows, **next_v_rows;
    std::int64_t bytes;
  };
  static scratch scratch_of(void* memory, const scratch_shape& shape) {
    arena a{static_cast<char*>(memory)};
    scratch s;
    s.queries = a.take<T>(rows * padded_columns(shape.width));
    s.scores = a.take<T>(rows * tile_keys);
    s.k_rows = a.take<const T*>(tile_keys);
    s.v_rows = a.take<const T*>(tile_keys);
    s.next_k_rows = a.take<const T*>(tile_keys);
    s.next_v_rows = a.take<const T*>(tile_keys);
    s.bias = a.take<T>(shape.has_bias ? tile_keys : 0);
    s.packed_k = a.take<T>(shape.pack_k ? tile_keys * shape.width : 0);
    s.packed_v = a.take<T>(shape.pack_v ? tile_keys * shape.value_width : 0);
    s.bytes = a.used;
    return s;
  }
  static scratch scratch_of(const block_job& job) { return scratch_of(job.scratch, {job.width, job.value_width, job.pack_k, job.pack_v, job.has_bias}); }
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

  static void load(const block_job& job) {
    const std::int64_t columns = padded_columns(job.width);
    T* to = scratch_of(job).queries;
    const T factor = static_cast<T>(job.scale);
    for (int r = 0; r < job.lanes.count; ++r, to += columns) {
      const T* const row = static_cast<const T*>(job.lanes.q[r]);
      for (std::int64_t d = 0; d < job.width; ++d) to[d] = read(row + d * job.q_column) * factor;
      for (std::int64_t d = job.width; d < columns; ++d) to[d] = 0;
    }
  }

  /// scores[r][0..4) = queries[r] . k[0..4) for `Rows` queries.
  template <int Rows>
  static void score_keys(const T* const* k, const T* queries, std::int64_t columns, T* scores) {
    const std::int64_t query_step = padded_columns(columns), whole = columns / width * width;
    V sum[Rows][4];
    for (int r = 0; r < Rows; ++r) {
      for (int i = 0; i < 4; ++i) sum[r][i] = S::set(0);
    }
    const auto step = [&](std::int64_t d, const V (&key)[4]) __attribute__((always_inline)) {
      for (int r = 0; r < Rows; ++r) {
        const V q = S::load(queries + r * query_step + d);
        for (int i = 0; i < 4; ++i) sum[r][i] = S::fma(key[i], q, sum[r][i]);
      }
    };
    for (std::int64_t d = 0; d < whole; d += width) {
      const V key[4] = {S::load(k[0] + d), S::load(k[1] + d), S::load(k[2] + d), S::load(k[3] + d)};
      step(d, key);
    }
    if (whole < columns) {
      const int rest = static_cast<int>(columns - whole);
      const V key[4] = {S::load_first(k[0] + whole, rest), S::load_first(k[1] + whole, rest), S::load_first(k[2] + whole, rest),
                        S::load_first(k[3] + whole, rest)};
      step(whole, key);
    }
    for (int r = 0; r < Rows; ++r) S::store_sums(scores + r * tile_keys, sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
  }

  /// Asks for a row that is needed soon: while keys are at work, memory delivers values, and the other way round.
  [[gnu::always_inline]] static inline void prefetch_row(const T* row, std::int64_t columns) {
    for (std::int64_t d = 0; d < columns; d += 64 / static_cast<std::int64_t>(sizeof(T))) __builtin_prefetch(row + d);
  }

  static void score_tile(const block_job& job, const scratch& s, int count) {
    for (int j = count; j % 4 != 0; ++j) s.k_rows[j] = s.k_rows[count - 1];  // the last group repeats a key
    const std::int64_t query_step = padded_columns(job.width);
    for (int j = 0; j < count; j += 4) {
      for (int i = j; !job.pack_v && i < j + 4 && i < count; ++i) prefetch_row(s.v_rows[i], job.value_width);
      int r = 0;
      for (; r + S::few_rows <= job.lanes.count; r += S::few_rows) {
        score_keys<S::few_rows>(s.k_rows + j, s.queries + r * query_step, job.width, s.scores + r * tile_keys + j);
      }
      for (; r < job.lanes.count; ++r) score_keys<1>(s.k_rows + j, s.queries + r * query_step, job.width, s.scores + r * tile_keys + j);
    }
  }

  /// Adds the bias of row r and puts -inf where the row does not see a key, and behind the last key up to a full vector.
  static void mask_row(const block_job& job, const scratch& s, int r, std::int64_t first, int count, bool partial_tile) {
    T* const scores = s.scores + r * tile_keys;
    if (job.has_bias) {
      bias_row(job, r, first, count, s.bias, 1);
      for (int j = 0; j < count; j += width) S::store(scores + j, biased<S>(S::load(scores + j), S::load(s.bias + j)));
    }
    if (partial_tile) {
      const std::int64_t begin = job.lanes.begin[r] - first, end = job.lanes.end[r] - first, prefix = job.lanes.prefix_end[r] - first;
      for (int j = 0; j < count; ++j) scores[j] = j < prefix || (j >= begin && j < end) ? scores[j] : -infinity<T>;
    }
    if (job.has_mask) {
      const unsigned char* const mask = job.lanes.mask[r] + first * job.mask_step;
      for (int j = 0; j < count; ++j) scores[j] = mask[j * job.mask_step] ? scores[j] : -infinity<T>;
    }
    for (int j = count; j % width != 0; ++j) scores[j] = -infinity<T>;
  }

  /// Scores of one row -> weights in place (-1 where excluded, if `marked`); returns what the sums so far shrink by.
  template <bool marked>
  static T softmax_row(T* scores, int count, T& maximum, T& denominator) {
    V top = S::set(maximum);
    for (int j = 0; j < count; j += width) top = S::max(S::load(scores + j), top);
    const V m = S::set(S::largest(top)), base = safe_maximum<S>(m);
    alignas(64) T shrink[width];
    S::store(shrink, weight_of<S>(S::set(maximum) - base));
    V l = S::set(0);
    for (int j = 0; j < count; j += width) {
      const V score = S::load(scores + j), weight = weight_of<S>(score - base);
      l = l + weight;
      S::store(scores + j, marked ? S::select(S::equal(score, S::set(-infinity<T>)), S::set(-1), weight) : weight);
    }
    maximum = S::largest(top);
    denominator = denominator * shrink[0] + S::sum(l);
    return shrink[0];
  }

  /// out[r][0..Vectors x width) = out * rescale[r] + sum over keys of weights[r][key] * v_rows[key]; `rest` columns in the last
  /// vector, which V must not be read past.
  template <int Rows, int Vectors, bool marked>
  static void value_columns(const T* const* v_rows, const T* weights, int count, std::int64_t column, int rest, const T* rescale, T* out,
                            std::int64_t out_step, const T* const* next_k_rows, std::int64_t next_width) {
    V sum[Rows][Vectors];
    for (int r = 0; r < Rows; ++r) {
      for (int c = 0; c < Vectors; ++c) sum[r][c] = S::set(0);
    }
    const auto step = [&](int j, const V (&value)[Vectors]) __attribute__((always_inline)) {
      for (int r = 0; r < Rows; ++r) {
        const T weight = weights[r * tile_keys + j];
        if (marked && weight < 0) continue;
        const V w = S::set(weight);
        for (int c = 0; c < Vectors; ++c) sum[r][c] = S::fma(value[c], w, sum[r][c]);
      }
    };
    if (rest == width) {
      for (int j = 0; j < count; ++j) {
        V value[Vectors];
        for (int c = 0; c < Vectors; ++c) value[c] = S::load(v_rows[j] + column + c * width);
        if (next_k_rows) prefetch_row(next_k_rows[j], next_width);
        step(j, value);
      }
    } else {
      for (int j = 0; j < count; ++j) {
        V value[Vectors];
        for (int c = 0; c < Vectors - 1; ++c) value[c] = S::load(v_rows[j] + column + c * width);
        value[Vectors - 1] = S::load_first(v_rows[j] + column + (Vectors - 1) * width, rest);
        step(j, value);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (int c = 0; c < Vectors; ++c) {
        T* const at = out + r * out_step + c * width;
        S::store(at, S::fma(S::load(at), S::set(rescale[r]), sum[r][c]));
      }
    }
  }

  template <int Vectors, bool marked>
  static void value_rows(const block_job& job, const scratch& s, int count, std::int64_t column, const T* rescale, T* out,
                         const T* const* next_k_rows) {
    const std::int64_t out_step = padded_columns(job.value_width), left = job.value_width - column - (Vectors - 1) * width;
    const int rest = left < width ? static_cast<int>(left) : width;
    const auto ahead = [&](int r) { return r == 0 && column == 0 ? next_k_rows : nullptr; };  // once per tile
    int r = 0;
    for (; r + S::few_rows <= job.lanes.count; r += S::few_rows) {
      value_columns<S::few_rows, Vectors, marked>(s.v_rows, s.scores + r * tile_keys, count, column, rest, rescale + r,
                                                  out + r * out_step + column, out_step, ahead(r), job.width);
    }
    for (; r < job.lanes.count; ++r) {
      value_columns<1, Vectors, marked>(s.v_rows, s.scores + r * tile_keys, count, column, rest, rescale + r, out + r * out_step + column,
                                        out_step, ahead(r), job.width);
    }
  }

  template <bool marked>
  static void value_tile(const block_job& job, const scratch& s, int count, const T* rescale, T* out, const T* const* next_k_rows) {
    std::int64_t column = 0;
    const std::int64_t columns = padded_columns(job.value_width);
    for (; column + S::few_vectors * width <= columns; column += S::few_vectors * width) {
      value_rows<S::few_vectors, marked>(job, s, count, column, rescale, out, next_k_rows);
    }
    if (S::few_vectors > 4 && column + 4 * width <= columns) {
      value_rows<4, marked>(job, s, count, column, rescale, out, next_k_rows);
      column += 4 * width;
    }
    if (column + 2 * width <= columns) {
      value_rows<2, marked>(job, s, count, column, rescale, out, next_k_rows);
      column += 2 * width;
    }
    if (column < columns) value_rows<1, marked>(job, s, count, column, rescale, out, next_k_rows);
  }

  template <bool marked>
  static void fold_keys(const block_job& job, std::int64_t begin, std::int64_t end, const sums& result) {
    scratch s = scratch_of(job);
    const lane_bounds bounds = bounds_of(job.lanes);
    T rescale[rows];
    for (std::int64_t i = 0; i < job.lanes.count * padded_columns(job.value_width); ++i) result.out[i] = 0;
    for (int r = 0; r < job.lanes.count; ++r) {
      result.maximum[r] = -infinity<T>;
      result.denominator[r] = 0;
    }
    const auto keys_from = [end](std::int64_t first) { return end - first < tile_keys ? static_cast<int>(end - first) : tile_keys; };
    const auto next_tile = [&](std::int64_t first) {
      while (first < end && classify(bounds, first, first + keys_from(first)) == tile_class::skip) first += tile_keys;
      return first;
    };
    std::int64_t first = next_tile(begin);
    if (first < end) key_rows(job.keys, first, keys_from(first), s.k_rows, s.v_rows);
    while (first < end) {
      const int count = keys_from(first);
      const std::int64_t following = next_tile(first + tile_keys);
      if (following < end) key_rows(job.keys, following, keys_from(following), s.next_k_rows, s.next_v_rows);
      const bool ahead = following < end && keys_from(following) == tile_keys && !job.pack_k;

      if (job.pack_k) gather_rows(s.k_rows, count, job.width, job.keys.k_column, s.packed_k);
      if (job.pack_v) gather_rows(s.v_rows, count, job.value_width, job.keys.v_column, s.packed_v);
      score_tile(job, s, count);
      const bool partial_tile = classify(bounds, first, first + count) == tile_class::partial;
      for (int r = 0; r < job.lanes.count; ++r) {
        mask_row(job, s, r, first, count, partial_tile);
        rescale[r] = softmax_row<marked>(s.scores + r * tile_keys, count, result.maximum[r], result.denominator[r]);
      }
      value_tile<marked>(job, s, count, rescale, result.out, ahead ? s.next_k_rows : nullptr);

      first = following;
      const T** const k_rows = s.k_rows;
      const T** const v_rows = s.v_rows;
      s.k_rows = s.next_k_rows;
      s.v_rows = s.next_v_rows;
      s.next_k_rows = k_rows;
      s.next_v_rows = v_rows;
    }
  }

  static void chunk(const block_job& job, std::int64_t begin, std::int64_t end, partial_sums* memory) {
    const sums result = sums_of(memory, job.value_width);
    fold_keys<false>(job, begin, end, result);
    // As in forward: where a sum is not finite, an excluded value may have leaked in.
    V probe = S::set(0);
    const std::int64_t elements = job.lanes.count * padded_columns(job.value_width);
    for (std::int64_t i = 0; i < elements; i += width) probe = S::fma(S::load(result.out + i), S::set(0), probe);
    if (S::equal(probe, probe) != ~std::uint64_t{0} >> (64 - width)) fold_keys<true>(job, begin, end, result);
  }

  static void fold(const block_job& job, partial_sums* into, const partial_sums* next) {
    const sums a = sums_of(into, job.value_width), b = sums_of(const_cast<partial_sums*>(next), job.value_width);
    const std::int64_t columns = padded_columns(job.value_width);
    for (int r = 0; r < job.lanes.count; ++r) {
      const V ma = S::set(a.maximum[r]), mb = S::set(b.maximum[r]);
      const V m = S::max(ma, mb), base = safe_maximum<S>(m);
      const V shrink_a = weight_of<S>(ma - base), shrink_b = weight_of<S>(mb - base);
      alignas(64) T value[width];
      S::store(value, m);
      a.maximum[r] = value[0];
      S::store(value, S::fma(S::set(a.denominator[r]), shrink_a, S::set(b.denominator[r]) * shrink_b));
      a.denominator[r] = value[0];
      for (std::int64_t c = r * columns; c < (r + 1) * columns; c += width) {
        S::store(a.out + c, S::fma(S::load(a.out + c), shrink_a, S::load(b.out + c) * shrink_b));
      }
    }
  }

  static void finish(const block_job& job, const partial_sums* memory, double* maximum, double* denominator) {
    const sums result = sums_of(const_cast<partial_sums*>(memory), job.value_width);
    for (int r = 0; r < job.lanes.count; ++r) {
      maximum[r] = static_cast<double>(result.maximum[r]);
      denominator[r] = static_cast<double>(result.denominator[r]);
      if (!job.has_out) continue;
      T* const row = static_cast<T*>(job.lanes.out[r]);
      const T* const sum = result.out + r * padded_columns(job.value_width);
      const T inverse = result.denominator[r] == 0 ? T{0} : 1 / result.denominator[r];
      for (std::int64_t c = 0; c < job.value_width; ++c) write(row + c * job.out_column, sum[c] * inverse + T{0});  // -0 becomes 0
    }
  }

  /// Weights are written by the forward kernel, whatever computed the sums.
  static constexpr kernel row{rows, tile_keys, chunk_keys, scratch_bytes, partial_bytes, load, chunk, fold, finish, nullptr};
};
