// backward: gradients from scores that are made again, tile by tile. As in `forward`, queries are lanes; the forward's own steps make a tile's
// scores, then
//
//   P  [tile_keys][lanes]  weights e^(s - lse), dropped as in the forward
//   dS [tile_keys][lanes]  P (dP - mean), for dP = V . dO^T and mean = sum(dO * O) - dlse; then back through the steps of scores
//   dQ^T [E][lanes]        += K^T . dS     query sums: of one block over the keys of one chunk
//   dK [chunk][E]          += dS . Q       key sums: of one chunk, over the blocks of queries one after another
//   dV [chunk][Ev]         += P . dO
//
// That is softmax over dot products; other normalisers make P and dS of scores, and other compatibility functions dQ and dK of dS, by the steps of
// backward_form.inl.
//
// Scratch of a block: Q^T and dO^T for the first two products, rows of Q and dO, filled up to whole vectors, for the last two; K and V are
// read in place, or gathered tile by tile. Registers as in `forward`: all five products are micro_rows x micro_vectors sums
// (backward_products.inl).

template <class S>
struct backward : backward_form<S> {
  using form = backward_form<S>;
  using block_of = forward_block<S>;
  using products = backward_products<S>;
  using forwards = forward<S>;
  using dense = stripe<S, S::micro_vectors>;
  using products::lanes, products::width, products::tile_keys, products::padded_columns;
  using typename products::stripe_keys, typename products::T, typename products::V;
  // Shorter than forward's: sums of a chunk's keys stay in the second-level cache, and a call has more of them to spread over threads.
  static constexpr std::int64_t chunk_keys = 4 * tile_keys;
  static_assert(common_chunk_keys % chunk_keys == 0);
  static constexpr int stripe_lanes = S::micro_vectors * width;

  struct scratch {
    typename block_of::scratch of_forward;  // `scores` hold P
    T *dout_columns, *q_rows, *dout_rows, *by_score, *slopes, *base, *factor, *mean;
    std::int64_t bytes;
  };
  static scratch scratch_of(void* memory, const scratch_shape& shape) {
    scratch s;
    s.of_forward = forwards::scratch_of(memory, shape);
    arena a{static_cast<char*>(memory), s.of_forward.bytes};
    s.dout_columns = a.take<T>(shape.value_width * lanes);
    s.q_rows = a.take<T>(padded_columns(shape.width) * lanes);
    s.dout_rows = a.take<T>(padded_columns(shape.value_width) * lanes);
    s.by_score = a.take<T>(tile_keys * lanes);
    s.slopes = a.take<T>(shape.caps * tile_keys * lanes);
    s.base = a.take<T>(lanes);
    s.factor = a.take<T>(lanes);
    s.mean = a.take<T>(lanes);
    s.bytes = a.used;
    return s;
  }
  static scratch_shape shape_of_job(const backward_job& job) {
    scratch_shape shape = shape_of(job);
    shape.caps = job.caps;
    return shape;
  }
  static std::int64_t scratch_bytes(const scratch_shape& shape) { return scratch_of(nullptr, shape).bytes; }

  /// Key sums: dK, then dV.
  static std::int64_t key_numbers(std::int64_t columns) { return chunk_keys * padded_columns(columns); }
  static std::int64_t key_bytes(const scratch_shape& shape) {
    return padded((key_numbers(shape.width) + key_numbers(shape.value_width)) * static_cast<std::int64_t>(sizeof(T)));
  }
  static T* value_sums(const backward_job& job, key_sums* sums) { return static_cast<T*>(sums) + key_numbers(job.width); }

  /// Query sums: dQ^T, then the gradient by a lane's slope of ALiBi, then what a lane adds to the gradient by each weight of additive.
  static std::int64_t query_numbers(const scratch_shape& shape) {
    return (shape.width + 1 + (shape.additive ? shape.width : 0)) * lanes;
  }
  static std::int64_t query_bytes(const scratch_shape& shape) {
    return padded(query_numbers(shape) * static_cast<std::int64_t>(sizeof(T)));
  }
  template <class Sums>  // of a partial result or of a total
  static Sums* slope_sums(const backward_job& job, Sums* sums) {
    return sums + job.width * lanes;
  }
  template <class Sums>
  static Sums* additive_sums(const backward_job& job, Sums* sums) {
    return slope_sums(job, sums) + lanes;
  }

  /// to[lane][column] = rows[lane][column], filled up with zeros.
  template <class From>
  static void copy_rows(const void* const* rows, int count, std::int64_t columns, std::int64_t step, T* to) {
    const std::int64_t stored = padded_columns(columns);
    for (int lane = 0; lane < count; ++lane, to += stored) {
      const From* const row = static_cast<const From*>(rows[lane]);
      std::int64_t c = 0;
      if (step == 1) {
        for (; c + width <= columns; c += width) S::store(to + c, S::load(row + c));
        if (c < columns) S::store(to + c, S::load_first(row + c, static_cast<int>(columns - c)));
        continue;
      }
      for (; c < columns; ++c) to[c] = static_cast<T>(read(row + c * step));
      for (; c < stored; ++c) to[c] = 0;
    }
  }

  /// Brings the queries of a block and what reaches them into scratch.
  static void load(const backward_job& job, const scratch& s) {
    forwards::load(job);
    const int count = job.lanes.count;
    with_input_type<T>(job.stored, [&]<class From>(From*) {
      rows_to_columns<S, lanes, From>(job.dout, 0, count, job.value_width, job.dout_column, 1, s.dout_columns);
      if (job.compatibility == compatibility_index::dot) copy_rows<From>(job.lanes.q, count, job.width, job.q_column, s.q_rows);
      copy_rows<From>(job.dout, count, job.value_width, job.dout_column, s.dout_rows);
    });
    if (job.compatibility != compatibility_index::dot && job.compatibility != compatibility_index::none)
      form::load_rows(job, s.of_forward.queries, s.q_rows);
    for (int lane = 0; lane < lanes; ++lane) {
      s.base[lane] = lane < count ? static_cast<T>(job.base[lane])
                                  : infinity<T>;  // lanes that are not there weigh nothing or are not read
      s.factor[lane] = lane < count ? static_cast<T>(job.factor[lane]) : T{0};
      s.mean[lane] = lane < count ? static_cast<T>(job.mean[lane]) : T{0};
    }
    if (job.normalizer != normalizer_index::relu2 && job.normalizer != normalizer_index::abs) return;
    for (int lane = 0; lane < lanes; lane += width) S::store(s.base + lane, inverse_power<S>(S::load(s.base + lane)));
  }

  /// Scores -> weights before dropout, and gradients by dropped weights -> gradients by scores, in place.
  template <template <class> class Normal, bool marked>
  static void differentiate_pairs(const backward_job& job, const scratch& s, const stripe_keys& keys) {
    const V kept = S::set(static_cast<T>(job.kept_factor));
    dense::for_each_score(s.of_forward, keys, [&](V score, int key, int lane) __attribute__((always_inline)) {
      T* const at = s.by_score + key * lanes + lane;
      const typename S::M excluded = S::equal(score, S::set(-infinity<T>));
      const derivative::of_row<S> row{S::load(s.base + lane), S::load(s.factor + lane), S::load(s.mean + lane)};
      const derivative::pair<S> own = Normal<S>::of(score, S::load(at), kept, row);
      S::store(at, S::select(excluded, S::set(0), own.by_score));
      return S::select(excluded, S::set(marked ? -infinity<T> : T{0}), own.weight);
    });
  }
  using pair_function = void (*)(const backward_job&, const scratch&, const stripe_keys&);
  template <bool marked>
  static constexpr pair_function pair_functions[] = {
#define ATTEND_NORMALIZER(f) differentiate_pairs<derivative::f, marked>,
#include "kernels/functions.def"
  };

  /// P and, by the scores behind all steps, dS of a stripe. With `marked`, excluded pairs have -inf in P.
  template <bool marked>
  static void weigh(const backward_job& job, const scratch& s, const stripe_keys& keys, bool masked) {
    T* slopes = s.slopes;
    dense::scores_of(job, s.of_forward, keys, [&](const score_step& step) {
      if (step.kind != score_kind::soft_cap) return;
      const soft_capping<S> capped(step.cap);
      dense::for_each_score(s.of_forward, keys, [&](V score, int key, int lane) __attribute__((always_inline)) {
        S::store(slopes + key * lanes + lane, capped.slope(score));
        return score;
      });
      slopes += tile_keys * lanes;
    });
    if (masked) dense::exclude(s.of_forward, keys);
    dense::template products<compatible::dot<S>>(keys.v_rows, keys.count, s.dout_columns + keys.lane, job.value_width, nullptr,
                                                 s.by_score + keys.lane);
    typename block_of::scratch by_weight = s.of_forward;
    by_weight.scores = s.by_score;
    if (job.dropout.given) dense::template drop<false>(job, by_weight, keys);
    pair_functions<marked>[static_cast<int>(job.normalizer)](job, s, keys);
    if (job.dropout.given) dense::template drop<marked>(job, s.of_forward, keys);
  }

  /// x = visit(x, key, lane) for every vector of a stripe's dS.
  template <class Visit>
  [[gnu::always_inline]] static inline void for_each_gradient(const scratch& s, const stripe_keys& keys, const Visit& visit) {
    typename block_of::scratch by_score = s.of_forward;
    by_score.scores = s.by_score;
    dense::for_each_score(by_score, keys, visit);
  }

  /// Adds up -|position - key| dS of each lane.
  static void add_slopes(const backward_job& job, const scratch& s, const stripe_keys& keys, T* sums) {
    alignas(64) T distance[lanes];
    for (int lane = keys.lane; lane < keys.lane + stripe_lanes; ++lane)
      distance[lane] = lane < job.lanes.count ? static_cast<T>(job.lanes.position[lane] - keys.first) : T{0};
    for_each_gradient(s, keys, [&](V by, int key, int lane) __attribute__((always_inline)) {
      S::store(sums + lane, sloped<S>(S::load(sums + lane), by, S::load(distance + lane), S::set(static_cast<T>(key))));
      return by;
    });
  }

  /// Adds a lane's numbers of `count` keys in one row of the grid, the first of them o columns from the query, to the sums of the
  /// table's row, which points at offset 0: those beyond the table to its edges.
  static void add_run(const T* by, std::int64_t count, std::int64_t o, std::int64_t reach, double* sums) {
    const auto within = [count](std::int64_t x) { return x < 0 ? 0 : x > count ? count : x; };
    const std::int64_t left = within(-reach - o), right = within(reach + 1 - o);
    std::int64_t r = 0;
    for (; r < left; ++r) sums[-reach] += static_cast<double>(by[r * lanes]);
    for (; r < right; ++r) sums[o + r] += static_cast<double>(by[r * lanes]);
    for (; r < count; ++r) sums[reach] += static_cast<double>(by[r * lanes]);
  }

  /// Adds dS to the sums of the table, where each key stands from the lane's query.
  static void add_to_table(const backward_job& job, const scratch& s, const stripe_keys& keys) {
    const grid_map& grid = job.lanes.grid;
    const auto clip = [](std::int64_t x, std::int64_t reach) { return x < -reach ? -reach : x > reach ? reach : x; };
    for (int lane = keys.lane; lane < keys.lane + stripe_lanes && lane < job.lanes.count; ++lane) {
      const T* const by = s.by_score + lane;
      const auto add = [&](int key, std::int64_t row, std::int64_t column) __attribute__((always_inline)) {
        const std::int64_t down = clip(row - grid.row[lane], job.relative_rows);
        const std::int64_t along = clip(column - grid.column[lane], job.relative_columns);
        job.table[lane][down * job.table_row_step + along] += static_cast<double>(by[key * lanes]);
      };
      if (grid.neighborhood) {
        for_each_neighbor(grid, lane, keys.first, keys.count, add);
        continue;
      }
      auto [row, column] = cell_of(grid, keys.first);
      for (int key = 0; key < keys.count; ++row, column = 0) {
        const std::int64_t left = keys.count - key, some = grid.columns - column < left ? grid.columns - column : left;
        double* const sums = job.table[lane] + clip(row - grid.row[lane], job.relative_rows) * job.table_row_step;
        add_run(by + key * lanes, some, column - grid.column[lane], job.relative_columns, sums);
        key += static_cast<int>(some);
      }
    }
  }

  /// From the gradient behind all steps to that before step `first`, adding up what belongs to the steps on the way.
  static void step_back(const backward_job& job, const scratch& s, const stripe_keys& keys, int first, T* by_slope) {
    const T* slopes = s.slopes + job.caps * tile_keys * lanes;
    for (int n = job.step_count - 1; n >= first; --n) {
      switch (job.steps[n].kind) {
        case score_kind::soft_cap:
          slopes -= tile_keys * lanes;
          for_each_gradient(s, keys, [&](V by, int key, int lane) __attribute__((always_inline)) {
            // The slope of an excluded pair may be NaN: what is 0 stays so.
            return S::select(S::equal(by, S::set(0)), by, by * S::load(slopes + key * lanes + lane));
          });
          break;
        case score_kind::alibi:
          if (by_slope && job.wants_slope) add_slopes(job, s, keys, by_slope);
          break;
        case score_kind::relative:
          if (by_slope && job.table[0]) add_to_table(job, s, keys);
          break;
        case score_kind::bias: break;
      }
    }
  }

  /// Calls visit(keys) for the stripes of lanes that are there.
  template <class Visit>
  static void for_each_stripe(const backward_job& job, const scratch& s, std::int64_t first, int count, const Visit& visit) {
    stripe_keys keys = forwards::every_key(s.of_forward, first, count);
    for (; keys.lane < job.lanes.count; keys.lane += stripe_lanes) visit(keys);
  }

  /// Calls visit(first, count, masked) for the tiles of keys [begin, end) in which some pair is allowed, once their rows are at hand.
  template <class Visit>
  static void for_each_tile(const backward_job& job, const scratch& s, std::int64_t begin, std::int64_t end,
                            const Visit& visit) {
    const lane_bounds bounds = bounds_of(job.lanes);
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_kind tile = forwards::tile_at(job, bounds, first, count);
      if (tile.kind == tile_class::skip) continue;
      forwards::read_tile(job, s.of_forward, first, count, tile);
      visit(first, count, tile.kind == tile_class::partial);
    }
  }

  template <bool marked>
  static void add_block(const backward_job& job, std::int64_t begin, std::int64_t end, key_sums* sums, query_sums* queries) {
    const scratch s = scratch_of(job.scratch, shape_of_job(job));
    load(job, s);
    T* const by_query = static_cast<T*>(queries);
    const std::int64_t numbers = query_numbers(shape_of_job(job));
    for (std::int64_t i = 0; i < numbers; ++i) by_query[i] = 0;
    const std::int64_t k_columns = padded_columns(job.width), v_columns = padded_columns(job.value_width);
    for_each_tile(job, s, begin, end, [&](std::int64_t first, int count, bool masked) {
      const typename block_of::scratch& tile = s.of_forward;
      const typename form::tile pairs{tile.k_rows, count,        job.lanes.count, s.by_score,
                                      tile.scores, tile.queries, s.q_rows,        job.width};
      for_each_stripe(job, s, first, count, [&](const stripe_keys& keys) {
        weigh<marked>(job, s, keys, masked);
        step_back(job, s, keys, 0, slope_sums(job, by_query));
        if (job.wants_q) form::template add_over_keys<marked>(job.compatibility, pairs, keys.lane, by_query);
        if (job.wants_additive) form::template add_to_weights<marked>(pairs, keys.lane, additive_sums(job, by_query));
      });
      if (job.dv.first) {
        products::template add_over_lanes<marked>(tile.scores, tile.scores, s.dout_rows, v_columns, job.lanes.count, count,
                                                  value_sums(job, sums) + (first - begin) * v_columns);
      }
      if (job.dk.first) {
        form::template add_over_lanes<marked>(job.compatibility, pairs, static_cast<T*>(sums) + (first - begin) * k_columns);
      }
    });
  }

  static bool block(const backward_job& job, std::int64_t begin, std::int64_t end, key_sums* sums, query_sums* queries) {
    if (job.careful)
      add_block<true>(job, begin, end, sums, queries);
    else
      add_block<false>(job, begin, end, sums, queries);
    return all_finite<S, S::block_vectors>(static_cast<const T*>(queries), query_numbers(shape_of_job(job)));
  }

  /// Calls visit(first number, count) for the sums of keys and of values.
  template <class Visit>
  static void for_each_sum(const backward_job& job, std::int64_t count, const Visit& visit) {
    visit(std::int64_t{0}, count * padded_columns(job.width));
    visit(key_numbers(job.width), count * padded_columns(job.value_width));
  }

  static void clear(const backward_job& job, std::int64_t count, key_sums* sums) {
    for_each_sum(job, count, [&](std::int64_t first, std::int64_t numbers) {
      T* const own = static_cast<T*>(sums) + first;
      for (std::int64_t i = 0; i < numbers; ++i) own[i] = 0;
    });
  }

  /// total <- total + next, or next alone; `rest` is what the total lost.
  static void add_sums(bool first, T* total, T* rest, const T* next, std::int64_t numbers) {
    alignas(64) T one[width];
    for (int i = 0; i < width; ++i) one[i] = 1;
    if (first) {
      for (std::int64_t i = 0; i < numbers; ++i) total[i] = next[i], rest[i] = 0;
    } else {
      fold_elements(total, rest, next, numbers, one, one, width);
    }
  }

  static void settle(const backward_job& job, std::int64_t count, bool first, key_sums* sums, key_sums* totals) {
    T* const total = static_cast<T*>(totals);
    T* const rest = total + key_bytes(shape_of_job(job)) / static_cast<std::int64_t>(sizeof(T));
    for_each_sum(job, count, [&](std::int64_t at, std::int64_t numbers) {
      add_sums(first, total + at, rest + at, static_cast<T*>(sums) + at, numbers);
    });
    clear(job, count, sums);
  }

  static bool finite(const backward_job& job, std::int64_t count, const key_sums* sums) {
    bool all = true;
    for_each_sum(job, count, [&](std::int64_t first, std::int64_t numbers) {
      all = all && all_finite<S, 1>(static_cast<const T*>(sums) + first, numbers);
    });
    return all;
  }

  /// Rows [begin, begin + count) <- factor * sums + 0; see columns_to_rows.
  static void write_rows(const written_rows& to, std::int64_t begin, std::int64_t count, std::int64_t columns, T factor,
                         const T* sums) {
    if (!to.first) return;
    const std::int64_t stored = padded_columns(columns);
    with_input_type<T>(to.stored, [&]<class To>(To*) {
      for (std::int64_t key = 0; key < count; ++key, sums += stored) {
        To* const row = static_cast<To*>(to.first) + (begin + key) * to.step;
        for (std::int64_t c = 0; c < columns; c += width) {
          const V x = S::fma(S::load(sums + c), S::set(factor), S::set(0));
          const int some = columns - c < width ? static_cast<int>(columns - c) : width;
          if (to.column == 1) {
            S::store_first(row + c, some, x);
            continue;
          }
          alignas(64) T numbers[width];
          S::store(numbers, x);
          for (int i = 0; i < some; ++i) write(row + (c + i) * to.column, static_cast<To>(numbers[i]));
        }
      }
    });
  }

  /// What is left to do of sums that need the keys again: tile by tile, as they are.
  static void end_keys(const backward_job& job, std::int64_t begin, std::int64_t count, T* sums) {
    const bool unit = job.compatibility == compatibility_index::cosine;
    if (!job.dk.first || (!unit && job.compatibility != compatibility_index::additive)) return;
    const typename block_of::scratch s = scratch_of(job.scratch, shape_of_job(job)).of_forward;
    if (!unit) load_additive(job, job.width, s.additive);
    // Behind the last key that is there, nothing may be read, and sums are 0.
    const std::int64_t end = begin + count < job.keys.count ? begin + count : job.keys.count;
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int some = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      if (unit) read_keys<S>(job, s, first, some);
      form::end_keys(job, s.packed_k, some, s.additive, sums + (first - begin) * padded_columns(job.width));
    }
  }

  static void finish_keys(const backward_job& job, std::int64_t begin, std::int64_t count, key_sums* sums) {
    T* const own = static_cast<T*>(sums);
    end_keys(job, begin, count, own);
    write_rows(job.dk, begin, count, job.width, form::factors_of(job).key, own);
    write_rows(job.dv, begin, count, job.value_width, form::in_range(job.kept_factor), own + key_numbers(job.width));
  }

  static void fold(const backward_job& job, bool first, query_sums* total, const query_sums* next) {
    T* const own = static_cast<T*>(total);
    T* const rest = own + query_bytes(shape_of_job(job)) / static_cast<std::int64_t>(sizeof(T));
    add_sums(first, own, rest, static_cast<const T*>(next), query_numbers(shape_of_job(job)));
  }

  static void finish_queries(const backward_job& job, query_sums* total, double* by_slope, double* by_additive) {
    T* const own = static_cast<T*>(total);
    for (int lane = 0; job.wants_slope && lane < job.lanes.count; ++lane)
      by_slope[lane] = static_cast<double>(slope_sums(job, own)[lane]);
    for (std::int64_t d = 0; job.wants_additive && d < job.width; ++d) {
      by_additive[d] = 0;
      for (int lane = 0; lane < job.lanes.count; ++lane)
        by_additive[d] += static_cast<double>(additive_sums(job, own)[d * lanes + lane]);
      by_additive[d] *= job.score_scale;
    }
    if (!job.wants_q) return;
    const typename block_of::scratch s = scratch_of(job.scratch, shape_of_job(job)).of_forward;
    if (job.compatibility == compatibility_index::additive) load_additive(job, job.width, s.additive);
    form::end_queries(job, s.queries, s.additive, own);
    alignas(64) T factors[lanes];
    for (int lane = 0; lane < lanes; ++lane) factors[lane] = form::factors_of(job).query;
    with_input_type<T>(job.dq_stored, [&]<class To>(To*) {
      columns_to_rows<S, lanes, To>(own, factors, job.lanes.count, job.width, job.dq, 0, job.dq_column);
    });
  }

  static void pairs(const backward_job& job, std::int64_t begin, std::int64_t end, int number, double* const* rows,
                    std::int64_t step) {
    const scratch s = scratch_of(job.scratch, shape_of_job(job));
    load(job, s);
    for_each_tile(job, s, begin, end, [&](std::int64_t first, int count, bool masked) {
      for_each_stripe(job, s, first, count, [&](const stripe_keys& keys) {
        weigh<false>(job, s, keys, masked);
        step_back(job, s, keys, number + 1, nullptr);
      });
      for (int lane = 0; lane < job.lanes.count; ++lane) {
        double* const row = rows[lane] + (first - begin) * step;
        for (int key = 0; key < count; ++key) row[key * step] += static_cast<double>(s.by_score[key * lanes + lane]);
      }
    });
  }

  static constexpr backward_kernel row{
      lanes,  tile_keys,   chunk_keys, scratch_bytes,  key_bytes, query_bytes,          clear,         block, settle,
      finite, finish_keys, fold,       finish_queries, pairs,     forwards::mask_class, &forwards::row};
};
