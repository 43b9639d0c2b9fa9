// forward: queries are lanes. The score tile is computed transposed, so softmax runs down columns without a horizontal
// operation and any width costs the same per element.
//
//            lanes (queries x heads of a group) ->            one vector register = one key (or column) for `width` lanes
//   Q^T      [E][lanes]         loaded once per block
//   scores   [tile_keys][lanes] K . Q^T, masked, then weights in place; stays in L1
//   O^T      [Ev][lanes]        V^T . weights
//   m, l     [lanes]            running maximum and denominator
//
// K and V are read in place, one scalar broadcast at a time. Registers: micro_rows x micro_vectors sums, micro_vectors
// operands, one broadcast (see the policy). Sums run per tile, tiles into their chunk. Benchmark: bench/run.py --filter
// prefill.

template <class S>
struct forward {
  using T = typename S::T;
  using V = typename S::V;
  static constexpr int width = S::width;
  static constexpr int lanes = S::width * S::block_vectors;
  static constexpr int tile_keys = 96;
  static constexpr std::int64_t chunk_keys = 16 * tile_keys;
  static_assert(lanes <= max_lanes && S::block_vectors % S::micro_vectors == 0 && tile_keys % S::micro_rows == 0);

  struct scratch {
    T *queries, *scores, *additive, *bias, *relative, *packed_k, *packed_v;
    typename S::Word* bits;
    const T **k_rows, **v_rows;
    std::int64_t bytes;
  };
  static scratch scratch_of(void* memory, const scratch_shape& shape) {
    arena a{static_cast<char*>(memory)};
    scratch s;
    s.queries = a.take<T>(shape.width * lanes);
    s.scores = a.take<T>(tile_keys * lanes);
    s.bits = a.take<typename S::Word>(tile_keys / keys_per_word * lanes);
    s.k_rows = a.take<const T*>(tile_keys);
    s.v_rows = a.take<const T*>(tile_keys);
    s.additive = a.take<T>(shape.additive ? shape.width : 0);
    s.bias = a.take<T>(shape.has_bias || shape.has_relative ? tile_keys * lanes : 0);
    s.relative = a.take<T>(shape.has_relative ? tile_keys * lanes : 0);
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
    return {base, base + value_width * lanes, base + (value_width + 1) * lanes};
  }
  static std::int64_t partial_bytes(const scratch_shape& shape) {
    return padded((shape.value_width + 2) * lanes * static_cast<std::int64_t>(sizeof(T)));
  }

  static void load(const block_job& job) {
    if (job.compatibility == compatibility_index::none) return;
    const scratch s = scratch_of(job);
    const bool unit = job.compatibility == compatibility_index::cosine;
    const T factor = static_cast<T>(job.query_scale);
    rows_to_columns<S, lanes>(job.lanes.q, 0, job.lanes.count, job.width, job.q_column, unit ? 1 : factor, s.queries);
    if (unit) unit_columns<T, lanes>(s.queries, job.width, factor);
    if (job.compatibility == compatibility_index::additive) load_additive(job, job.width, s.additive);
  }

  /// scores[r][lane] = F(q[lane], k_rows[r]) for `Rows` keys and micro_vectors vectors of lanes.
  template <class F, int Rows>
  static void score_rows(const T* const* k_rows, const T* queries, const T* additive, std::int64_t columns, T* scores) {
    V sum[Rows][S::micro_vectors];
    const T* k[Rows];
    for (int r = 0; r < Rows; ++r) {
      k[r] = k_rows[r];
      for (int j = 0; j < S::micro_vectors; ++j) sum[r][j] = S::set(0);
    }
    for (std::int64_t d = 0; d < columns; ++d, queries += lanes) {
      V q[S::micro_vectors];
      for (int j = 0; j < S::micro_vectors; ++j) q[j] = S::load(queries + j * width);
      const V weight = S::set(F::weighted ? additive[d] : T{0});
      for (int r = 0; r < Rows; ++r) {
        const V key = S::set(k[r][d]);
        for (int j = 0; j < S::micro_vectors; ++j) sum[r][j] = F::add(sum[r][j], q[j], key, weight);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (int j = 0; j < S::micro_vectors; ++j) S::store(scores + r * lanes + j * width, sum[r][j]);
    }
  }

  template <class F>
  static void score_tile(const block_job& job, const scratch& s, int count) {
    if constexpr (!F::reads_keys) {
      for (int i = 0; i < count * lanes; i += width) S::store(s.scores + i, S::set(0));
      return;
    }
    for (int j = 0; j < S::block_vectors; j += S::micro_vectors) {
      const T* const queries = s.queries + j * width;
      T* const scores = s.scores + j * width;
      int r = 0;
      for (; r + S::micro_rows <= count; r += S::micro_rows)
        score_rows<F, S::micro_rows>(s.k_rows + r, queries, s.additive, job.width, scores + r * lanes);
      score_rest<F, S::micro_rows - 1>(s.k_rows + r, count - r, queries, s.additive, job.width, scores + r * lanes);
    }
  }

  /// The last keys of a tile, fewer than a register block.
  template <class F, int Most>
  static void score_rest(const T* const* k_rows, int count, const T* queries, const T* additive, std::int64_t columns,
                         T* scores) {
    if (count == Most) {
      score_rows<F, Most>(k_rows, queries, additive, columns, scores);
    } else if constexpr (Most > 1) {
      score_rest<F, Most - 1>(k_rows, count, queries, additive, columns, scores);
    }
  }

  using score_function = void (*)(const block_job&, const scratch&, int);
  static constexpr score_function score_tiles[] = {
#define ATTEND_COMPATIBILITY(f) score_tile<compatible::f<S>>,
#include "kernels/functions.def"
  };

  /// Scores of a tile, -inf where a lane does not see a key: a selection, so nothing an excluded pair holds survives.
  static void scores_of(const block_job& job, const scratch& s, std::int64_t first, int count, bool partial_tile) {
    read_rows<S>(job, s, first, count);
    score_tiles[static_cast<int>(job.compatibility)](job, s, count);
    if (job.score_scale != 1) {
      const V factor = S::set(static_cast<T>(job.score_scale));
      for (int i = 0; i < count * lanes; i += width) S::store(s.scores + i, S::load(s.scores + i) * factor);
    }
    const auto add_bias = [&] {
      for (int i = 0; i < count * lanes; i += width)
        S::store(s.scores + i, biased<S>(S::load(s.scores + i), S::load(s.bias + i)));
    };
    if (job.has_bias) {
      const auto read_bias = job.bias_is_f32 ? rows_to_columns<S, lanes, float> : rows_to_columns<S, lanes, T>;
      read_bias(job.lanes.bias, first * job.bias_step, job.lanes.count, count, job.bias_step, 1, s.bias);
      add_bias();
    }
    if (job.has_relative) {
      const void* rows[lanes];
      for (int lane = 0; lane < job.lanes.count; ++lane) {
        T* const row = s.relative + lane * tile_keys;
        job.relative_is_f32 ? relative_row<float>(job, lane, first, count, row) : relative_row<T>(job, lane, first, count, row);
        rows[lane] = row;
      }
      rows_to_columns<S, lanes>(rows, 0, job.lanes.count, count, 1, 1, s.bias);
      add_bias();
    }
    if (!partial_tile && !job.has_mask) return;
    allowed_bits<S, lanes>(job, first, count, s.bits);
    for (int r = 0; r < count; ++r) {
      const typename S::Word* const words = s.bits + r / keys_per_word * lanes;
      T* const row = s.scores + r * lanes;
      for (int j = 0; j < lanes; j += width) {
        S::store(row + j, S::select_bit(words + j, r % keys_per_word, S::load(row + j), S::set(-infinity<T>)));
      }
    }
  }

  /// Scores -> weights in place; m and l move on; `rescale` is what the sums so far shrink by. With `marked`, excluded pairs
  /// become -inf instead of 0, so that the careful value tile can tell them from weights that underflowed.
  template <template <class> class Normal, bool marked>
  static void weigh_tile(const block_job& job, T* scores, int count, const sums& result, T* rescale) {
    using normal_of = Normal<S>;
    constexpr int some = S::micro_vectors;
    const V factor = S::set(static_cast<T>(job.weight_factor));
    for (int j = 0; j < lanes; j += some * width) {
      V base[some], l[some];
      for (int i = 0; i < some; ++i) base[i] = l[i] = S::set(0);
      if constexpr (normal_of::against_maximum) {
        V m[some];
        for (int i = 0; i < some; ++i) m[i] = S::load(result.maximum + j + i * width);
        for (int r = 0; r < count; ++r) {
          for (int i = 0; i < some; ++i) m[i] = S::max(S::load(scores + r * lanes + j + i * width), m[i]);
        }
        for (int i = 0; i < some; ++i) {
          T* const maximum = result.maximum + j + i * width;
          base[i] = safe_maximum<S>(m[i]);
          S::store(rescale + j + i * width, weight_of<S>(S::load(maximum) - base[i]));
          S::store(maximum, m[i]);
        }
      }
      for (int r = 0; r < count; ++r) {
        for (int i = 0; i < some; ++i) {
          T* const at = scores + r * lanes + j + i * width;
          typename S::M excluded;
          const V weight = weigh<S, Normal>(S::load(at), base[i], factor, excluded);
          l[i] = l[i] + normal_of::share(weight, excluded);
          S::store(at, marked ? S::select(excluded, S::set(-infinity<T>), weight) : weight);
        }
      }
      for (int i = 0; i < some; ++i) {
        T* const at = result.denominator + j + i * width;
        S::store(at, S::fma(S::load(at), S::load(rescale + j + i * width), l[i]));
      }
    }
  }

  using weigh_function = void (*)(const block_job&, T*, int, const sums&, T*);
  template <bool marked>
  static constexpr weigh_function weigh_tiles[] = {
#define ATTEND_NORMALIZER(f) weigh_tile<normal::f, marked>,
#include "kernels/functions.def"
  };

  /// out[c][lane] = out[c][lane] * rescale[lane] + sum over keys of v_rows[key][c] * weights[key][lane], for `Columns` columns.
  template <int Columns, bool marked>
  static void value_columns(const T* const* v_rows, const T* weights, int count, std::int64_t column, const T* rescale,
                            T* out) {
    V sum[Columns][S::micro_vectors];
    for (int c = 0; c < Columns; ++c) {
      for (int j = 0; j < S::micro_vectors; ++j) sum[c][j] = S::set(0);
    }
    for (int r = 0; r < count; ++r, weights += lanes) {
      const T* const v = v_rows[r] + column;
      V w[S::micro_vectors];
      for (int j = 0; j < S::micro_vectors; ++j) w[j] = S::load(weights + j * width);
      for (int c = 0; c < Columns; ++c) {
        const V value = S::set(v[c]);
        for (int j = 0; j < S::micro_vectors; ++j) {
          const V next = S::fma(value, w[j], sum[c][j]);
          sum[c][j] = marked ? S::select(S::equal(w[j], S::set(-infinity<T>)), sum[c][j], next) : next;
        }
      }
    }
    for (int j = 0; j < S::micro_vectors; ++j) {
      const V shrink = S::load(rescale + j * width);
      for (int c = 0; c < Columns; ++c) {
        T* const at = out + c * lanes + j * width;
        S::store(at, S::fma(S::load(at), shrink, sum[c][j]));
      }
    }
  }

  template <bool marked>
  static void value_tile(const block_job& job, const scratch& s, int count, const T* rescale, T* out) {
    for (int j = 0; j < lanes; j += S::micro_vectors * width) {
      const T* const weights = s.scores + j;
      std::int64_t c = 0;
      for (; c + S::micro_rows <= job.value_width; c += S::micro_rows) {
        value_columns<S::micro_rows, marked>(s.v_rows, weights, count, c, rescale + j, out + c * lanes + j);
      }
      value_rest<S::micro_rows - 1, marked>(s.v_rows, weights, count, c, job.value_width - c, rescale + j, out + c * lanes + j);
    }
  }

  /// The last columns, fewer than a register block.
  template <int Most, bool marked>
  static void value_rest(const T* const* v_rows, const T* weights, int count, std::int64_t column, std::int64_t columns,
                         const T* rescale, T* out) {
    if (columns == Most) {
      value_columns<Most, marked>(v_rows, weights, count, column, rescale, out);
    } else if constexpr (Most > 1) {
      value_rest<Most - 1, marked>(v_rows, weights, count, column, columns, rescale, out);
    }
  }

  template <bool marked>
  static void fold_keys(const block_job& job, std::int64_t begin, std::int64_t end, const sums& result) {
    const scratch s = scratch_of(job);
    const lane_bounds bounds = bounds_of(job.lanes);
    alignas(64) T rescale[lanes];
    const T none = normal::against_maximum<S>(job.normalizer) ? -infinity<T> : T{0};
    for (std::int64_t i = 0; i < job.value_width * lanes; ++i) result.out[i] = 0;
    for (int i = 0; i < lanes; ++i) {
      result.maximum[i] = none;
      result.denominator[i] = 0;
      rescale[i] = 1;
    }
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_class kind = classify(job.lanes, bounds, first, first + count);
      if (kind == tile_class::skip) continue;
      scores_of(job, s, first, count, kind == tile_class::partial);
      weigh_tiles<marked>[static_cast<int>(job.normalizer)](job, s.scores, count, result, rescale);
      value_tile<marked>(job, s, count, rescale, result.out);
    }
  }

  static void chunk(const block_job& job, std::int64_t begin, std::int64_t end, partial_sums* memory) {
    const sums result = sums_of(memory, job.value_width);
    fold_keys<false>(job, begin, end, result);
    // 0 * NaN and 0 * Inf are NaN: where a sum is not finite, an excluded value may have leaked in, so the chunk is computed
    // again with excluded pairs selected away. What was allowed comes out as before.
    V probe = S::set(0);
    for (std::int64_t i = 0; i < job.value_width * lanes; i += width) probe = S::fma(S::load(result.out + i), S::set(0), probe);
    if (!S::all(S::equal(probe, probe))) fold_keys<true>(job, begin, end, result);
  }

  static void fold(const block_job& job, partial_sums* into, const partial_sums* next) {
    const sums a = sums_of(into, job.value_width), b = sums_of(const_cast<partial_sums*>(next), job.value_width);
    for (int j = 0; j < lanes; j += width) {
      const V ma = S::load(a.maximum + j), mb = S::load(b.maximum + j);
      const V m = S::max(ma, mb), base = safe_maximum<S>(m);
      const V shrink_a = weight_of<S>(ma - base), shrink_b = weight_of<S>(mb - base);
      S::store(a.maximum + j, m);
      S::store(a.denominator + j, S::fma(S::load(a.denominator + j), shrink_a, S::load(b.denominator + j) * shrink_b));
      for (std::int64_t c = 0; c < job.value_width; ++c) {
        T* const at = a.out + c * lanes + j;
        S::store(at, S::fma(S::load(at), shrink_a, S::load(b.out + c * lanes + j) * shrink_b));
      }
    }
  }

  static void finish(const block_job& job, const partial_sums* memory, double* maximum, double* denominator) {
    const sums result = sums_of(const_cast<partial_sums*>(memory), job.value_width);
    alignas(64) T inverse[lanes];
    for (int lane = 0; lane < lanes; ++lane) inverse[lane] = normal::final_factor<S>(job, result.denominator[lane]);
    for (int lane = 0; lane < job.lanes.count; ++lane) {
      maximum[lane] = static_cast<double>(result.maximum[lane]);
      denominator[lane] = static_cast<double>(result.denominator[lane]);
    }
    if (job.has_out)
      columns_to_rows<S, lanes>(result.out, inverse, job.lanes.count, job.value_width, job.lanes.out, 0, job.out_column);
  }

  /// Scores of a tile -> final weights in place.
  template <template <class> class Normal>
  static void final_weights(const block_job& job, T* scores, int count, const T* base, const T* inverse) {
    const V factor = S::set(static_cast<T>(job.weight_factor));
    for (int i = 0; i < count * lanes; i += width) {
      typename S::M excluded;
      const V weight = weigh<S, Normal>(S::load(scores + i), S::load(base + i % lanes), factor, excluded);
      S::store(scores + i, S::select(excluded, S::set(0), weight * S::load(inverse + i % lanes)));
    }
  }

  using final_function = void (*)(const block_job&, T*, int, const T*, const T*);
  static constexpr final_function final_tiles[] = {
#define ATTEND_NORMALIZER(f) final_weights<normal::f>,
#include "kernels/functions.def"
  };

  static void weights(const block_job& job, std::int64_t begin, std::int64_t end, const double* maximum,
                      const double* denominator) {
    const scratch s = scratch_of(job);
    const lane_bounds bounds = bounds_of(job.lanes);
    alignas(64) T base[lanes], inverse[lanes], one[lanes];
    for (int lane = 0; lane < lanes; ++lane) {
      const bool used = lane < job.lanes.count;
      base[lane] = used && maximum[lane] != -infinity<double> ? static_cast<T>(maximum[lane]) : T{0};
      inverse[lane] = used ? normal::final_factor<S>(job, static_cast<T>(denominator[lane])) : T{0};
      one[lane] = 1;
    }
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_class kind = classify(job.lanes, bounds, first, first + count);
      if (kind == tile_class::skip) {
        for (int i = 0; i < count * lanes; ++i) s.scores[i] = 0;
      } else {
        scores_of(job, s, first, count, kind == tile_class::partial);
        final_tiles[static_cast<int>(job.normalizer)](job, s.scores, count, base, inverse);
      }
      columns_to_rows<S, lanes>(s.scores, one, job.lanes.count, count, job.lanes.weights, first * job.weights_step,
                                job.weights_step);
    }
  }

  static constexpr kernel row{lanes, tile_keys, chunk_keys, scratch_bytes, partial_bytes, load, chunk, fold, finish, weights};
};
