// What `forward` does to a stripe: `Vectors` vectors of a block's lanes over some keys of a tile. A full tile is cut into stripes of
// micro_vectors vectors over all of its keys, which is what the registers hold best. Where few pairs of a tile are allowed (a
// neighbourhood, a narrow window), stripes of one vector visit only the keys that any of their lanes sees. A pair's numbers are
// the same in both: sums run over the same keys in the same order, less those whose weight is 0.

/// Sizes and memory of a block of the forward kernel.
template <class S>
struct forward_block {
  using T = typename S::T;
  using V = typename S::V;
  static constexpr int width = S::width;
  static constexpr int lanes = S::width * S::block_vectors;
  static constexpr int tile_keys = 96;
  static constexpr std::int64_t chunk_keys = 16 * tile_keys;
  static_assert(common_chunk_keys % chunk_keys == 0);
  static_assert(lanes <= max_lanes && S::block_vectors % S::micro_vectors == 0 && tile_keys % S::micro_rows == 0);
  static_assert(S::micro_vectors > 1, "a stripe of one vector is a sparse one");

  static constexpr int sum_keys = 32, sum_groups = tile_keys / sum_keys;
  static constexpr int share_keys = 8, share_groups = tile_keys / share_keys;

  /// Where in a job's `ahead` its kernel is.
  struct ahead_cursor {
    int run;
    std::int64_t line;
  };

  struct scratch {
    T *queries, *scores, *additive, *bias, *relative, *relative_rows, *packed_k, *packed_v;
    typename S::Word* bits;
    const void **k_rows, **v_rows;
    ahead_cursor* ahead;
    std::int64_t bytes;
  };

  /// A partial result.
  struct sums {
    T *out, *maximum, *denominator;
  };

  /// Lanes from `lane` on, and the keys that they visit: their rows, and their numbers in the tile where they are not all.
  struct stripe_keys {
    int lane, count;
    const void* const* k_rows;
    const void* const* v_rows;
    const unsigned char* numbers;
    std::int64_t first;  // key of the tile
    int begin = 0;       // row of the scores where they begin
    // Sums run by groups of keys of the tile, because long sums of numbers of very different size lose too much: those of values by
    // sum_keys, of weights by share_keys. Where the last key of each of the latter groups stands here.
    int group_end[share_groups] = {};

    /// `some` of the keys from `skipped` on, whose scores alone matter.
    stripe_keys part(int skipped, int some) const {
      return {lane, some, k_rows + skipped, v_rows + skipped, numbers ? numbers + skipped : nullptr, first, begin + skipped};
    }
  };

  // Scores are made, adjusted and compared with the maximum by groups of keys, while they are in the first-level cache.
  static constexpr int group_keys = 48;
};

template <class S, int Vectors>
struct stripe : forward_block<S> {
  using block = forward_block<S>;
  using block::lanes, block::width;
  using typename block::scratch, typename block::stripe_keys, typename block::sums, typename block::T, typename block::V;
  static constexpr bool sparse = Vectors == 1;
  // One vector leaves registers for more rows, which also hide the latency of the sums.
  static constexpr int rows = sparse ? 2 * S::micro_rows : S::micro_rows;

  /// What a call of score_rows covers: columns [begin, end), whose sum is added to what the scores hold, unless they are the first.
  struct part {
    std::int64_t begin, end;
    const T* additive;
  };

  /// scores[r][lane] (+)= F(q[lane], k_rows[r]) for `Rows` keys.
  template <class F, int Rows>
  [[gnu::always_inline]] static inline void score_rows(const void* const* k_rows, const T* queries, const part& of, T* scores) {
    V sum[Rows][Vectors];
    const T* k[Rows];
    for (int r = 0; r < Rows; ++r) {
      k[r] = static_cast<const T*>(k_rows[r]);
      for (int j = 0; j < Vectors; ++j) sum[r][j] = S::set(0);
    }
    queries += of.begin * lanes;
    for (std::int64_t d = of.begin; d < of.end; ++d, queries += lanes) {
      V q[Vectors];
      for (int j = 0; j < Vectors; ++j) q[j] = S::load(queries + j * width);
      const V weight = S::set(F::weighted ? of.additive[d] : T{0});
      for (int r = 0; r < Rows; ++r) {
        const V key = S::set(k[r][d]);
        for (int j = 0; j < Vectors; ++j) sum[r][j] = F::add(sum[r][j], q[j], key, weight);
      }
    }
    if (of.begin > 0) {
      for (int r = 0; r < Rows; ++r) {
        for (int j = 0; j < Vectors; ++j) sum[r][j] = sum[r][j] + S::load(scores + r * lanes + j * width);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (int j = 0; j < Vectors; ++j) S::store(scores + r * lanes + j * width, sum[r][j]);
    }
  }

  static T* scores_at(const scratch& s, const stripe_keys& keys) { return s.scores + keys.begin * lanes + keys.lane; }
  static int number(const stripe_keys& keys, int r) { return sparse ? keys.numbers[r] : keys.begin + r; }

  /// scores[r][lane] = F(queries[lane], rows[r]) for `count` rows of `columns` columns.
  template <class F>
  static void products(const void* const* rows_of, int count, const T* queries, std::int64_t columns, const T* additive,
                       T* scores) {
    std::int64_t begin = 0;
    do {  // once for width 0, too
      const part of{begin, columns - begin < F::columns ? columns : begin + F::columns, additive};
      int r = 0;
      for (; r + rows <= count; r += rows) score_rows<F, rows>(rows_of + r, queries, of, scores + r * lanes);
      if (sparse && r + S::micro_rows <= count) {
        score_rows<F, S::micro_rows>(rows_of + r, queries, of, scores + r * lanes);
        r += S::micro_rows;
      }
      score_rest<F, S::micro_rows - 1>(rows_of + r, count - r, queries, of, scores + r * lanes);
      begin += F::columns;
    } while (begin < columns);
  }

  template <class F>
  static void score(const block_job& job, const scratch& s, const stripe_keys& keys) {
    T* const scores = scores_at(s, keys);
    if constexpr (!F::reads_keys) {
      for (int r = 0; r < keys.count; ++r) {
        for (int j = 0; j < Vectors; ++j) S::store(scores + r * lanes + j * width, S::set(0));
      }
      return;
    }
    products<F>(keys.k_rows, keys.count, s.queries + keys.lane, job.width, s.additive, scores);
  }

  /// The last keys, fewer than a register block.
  template <class F, int Most>
  static void score_rest(const void* const* k_rows, int count, const T* queries, const part& of, T* scores) {
    if (count == Most) {
      score_rows<F, Most>(k_rows, queries, of, scores);
    } else if constexpr (Most > 1) {
      score_rest<F, Most - 1>(k_rows, count, queries, of, scores);
    }
  }

  using score_function = void (*)(const block_job&, const scratch&, const stripe_keys&);
  static constexpr score_function scores[] = {
#define ATTEND_COMPATIBILITY(f) score<compatible::f<S>>,
#include "kernels/functions.def"
  };

  /// x = visit(x, key's number in the tile, lane) for every vector of a stripe's scores.
  template <class Visit>
  [[gnu::always_inline]] static inline void for_each_score(const scratch& s, const stripe_keys& keys, const Visit& visit) {
    T* const own = scores_at(s, keys);
    for (int r = 0; r < keys.count; ++r) {
      const int key = number(keys, r);
      for (int i = 0; i < Vectors * width; i += width) {
        T* const at = own + r * lanes + i;
        S::store(at, visit(S::load(at), key, keys.lane + i));
      }
    }
  }

  /// What a step adds, per key and lane, calling visit(x, numbers) for every vector of a stripe's scores.
  template <class Visit>
  static void for_each_added(const block_job& job, const scratch& s, const stripe_keys& keys, const score_step& step,
                             const Visit& visit) {
    if (sparse || step.kind == score_kind::relative) {
      const T* const from = step.kind == score_kind::relative ? s.relative : s.bias + step.number * block::tile_keys * lanes;
      for_each_score(s, keys, [&](V score, int key, int lane) __attribute__((always_inline)) {
        return visit(score, S::load(from + key * lanes + lane));
      });
      return;
    }
    // A stripe of all keys takes a bias from where it lies: nothing of it is stored.
    T* const own_scores = scores_at(s, keys);
    const auto add = [&](std::int64_t key, int lane, V numbers) __attribute__((always_inline)) {
      T* const at = own_scores + key * lanes + lane;
      S::store(at, visit(S::load(at), numbers));
    };
    const void* const* const rows = job.lanes.bias[step.number] + keys.lane;
    const int own = job.lanes.count - keys.lane;
    const std::int64_t offset = (keys.first + keys.begin) * step.step;
    with_number_type<T>(step.stored, [&]<class From>(From*) __attribute__((always_inline)) {
      for_each_column<S, Vectors * width, From>(rows, offset, own, keys.count, step.step, add);
    });
  }

  static void apply(const block_job& job, const scratch& s, const stripe_keys& keys, const score_step& step) {
    switch (step.kind) {
      case score_kind::soft_cap: {
        const soft_capping<S> capped(step.cap);
        if (capped.large)
          for_each_score(s, keys, [&](V score, int, int) __attribute__((always_inline)) { return capped.of_large(score); });
        else
          for_each_score(s, keys, [&](V score, int, int) __attribute__((always_inline)) { return capped(score); });
        break;
      }
      case score_kind::bias:
      case score_kind::relative: {
        for_each_added(job, s, keys, step,
                       [](V score, V bias) __attribute__((always_inline)) { return biased<S>(score, bias); });
        break;
      }
      case score_kind::alibi: {
        alignas(64) T slope[lanes], distance[lanes];
        for (int lane = keys.lane; lane < keys.lane + Vectors * width; ++lane) {
          const bool used = lane < job.lanes.count;
          slope[lane] = used ? static_cast<T>(job.lanes.slope[lane]) : T{0};
          distance[lane] = used ? static_cast<T>(job.lanes.position[lane] - keys.first) : T{0};
        }
        for_each_score(s, keys, [&](V score, int key, int lane) __attribute__((always_inline)) {
          return sloped<S>(score, S::load(slope + lane), S::load(distance + lane), S::set(static_cast<T>(key)));
        });
        break;
      }
    }
  }

  /// Applies what is left of the scale and the job's steps, calling before(step) for each of these.
  template <class Before>
  static void adjust(const block_job& job, const scratch& s, const stripe_keys& keys, const Before& before) {
    if (job.score_scale != 1) {
      const V factor = S::set(static_cast<T>(job.score_scale));
      for_each_score(s, keys, [&](V score, int, int) __attribute__((always_inline)) { return score * factor; });
    }
    for (int n = 0; n < job.step_count; ++n) {
      before(job.steps[n]);
      apply(job, s, keys, job.steps[n]);
    }
    for (int n = 0; job.excludes_late && n < job.step_count; ++n) {
      if (!job.steps[n].adds) continue;
      for_each_added(job, s, keys, job.steps[n],
                     [](V score, V bias) __attribute__((always_inline)) { return unless_excluded<S>(score, bias); });
    }
  }

  /// A score, or -inf where the lane does not see the key: a selection, so nothing an excluded pair holds survives.
  [[gnu::always_inline]] static inline V seen_score(const scratch& s, V score, int key, int lane) {
    const typename S::Word* const words = s.bits + key / keys_per_word * lanes + lane;
    return S::select_bit(words, key % keys_per_word, score, S::set(-infinity<T>));
  }

  /// Weights that dropout takes away become 0, NaN stays; `marked` as in weigh_keys.
  template <bool marked>
  static void drop(const block_job& job, const scratch& s, const stripe_keys& keys) {
    alignas(64) std::uint64_t query[lanes], head[lanes];
    for (int lane = keys.lane; lane < keys.lane + Vectors * width; ++lane) {
      query[lane] = lane < job.lanes.count ? job.lanes.query[lane] : 0;
      head[lane] = lane < job.lanes.count ? job.lanes.head[lane] : 0;
    }
    T* const own = scores_at(s, keys);
    for (int lane = keys.lane; lane < keys.lane + Vectors * width; lane += width) {
      V kept[4];
      for (int r = 0; r < keys.count;) {
        const int four = number(keys, r) / 4;  // a tile begins at a multiple of four keys
        kept_lanes<S>(job.dropout, keys.first / 4 + four, query + lane, head + lane, kept);
        for (; r < keys.count && number(keys, r) / 4 == four; ++r) {
          T* const at = own + r * lanes + (lane - keys.lane);
          const V weight = S::load(at), left = weight * kept[number(keys, r) % 4];
          S::store(at, marked ? S::select(S::equal(weight, S::set(-infinity<T>)), weight, left) : left);
        }
      }
    }
  }

  /// What of scores precedes their weights: -inf where bits exclude a pair, if `masked`, and `top` moves on to cover them.
  template <template <class> class Normal, bool masked>
  static void raise_keys(const scratch& s, const stripe_keys& keys, T* top) {
    if constexpr (masked || Normal<S>::moves) {
      T* const own_scores = scores_at(s, keys);
      V m[Vectors];
      for (int i = 0; i < Vectors; ++i) m[i] = S::load(top + i * width);
      for (int r = 0; r < keys.count; ++r) {
        for (int i = 0; i < Vectors; ++i) {
          T* const at = own_scores + r * lanes + i * width;
          V score = S::load(at);
          if constexpr (masked) {
            score = seen_score(s, score, number(keys, r), keys.lane + i * width);
            S::store(at, score);
          }
          if constexpr (Normal<S>::moves) m[i] = raise<S, Normal>(m[i], score);
        }
      }
      for (int i = 0; i < Vectors; ++i) S::store(top + i * width, m[i]);
    }
  }

  /// Scores -> weights in place, 0 where a pair is excluded; m becomes `top`, and l moves on; `rescale` is what the sums so far shrink
  /// by. With `marked`, excluded pairs become -inf instead of 0, so that careful sums of values can tell them from weights that
  /// underflowed.
  template <template <class> class Normal, bool marked>
  static void weigh_keys(const scratch& s, const stripe_keys& keys, const T* top, const sums& result, T* rescale) {
    using normal_of = Normal<S>;
    T* const own_scores = scores_at(s, keys);
    T* const maximum = result.maximum + keys.lane;
    T* const denominator = result.denominator + keys.lane;
    rescale += keys.lane;
    V base[Vectors], l[Vectors];
    for (int i = 0; i < Vectors; ++i) {
      const V m = S::load(top + i * width);
      l[i] = S::set(0);
      base[i] = normal_of::base(m);
      S::store(rescale + i * width, normal_of::shrink(S::load(maximum + i * width), base[i]));
      S::store(maximum + i * width, m);
    }
    V part[Vectors];
    for (int i = 0; i < Vectors; ++i) part[i] = S::set(0);
    for (int group = 0, r = 0; group < block::share_groups; ++group) {
      V sum[Vectors];
      for (int i = 0; i < Vectors; ++i) sum[i] = S::set(0);
      for (; r < keys.group_end[group]; ++r) {
        for (int i = 0; i < Vectors; ++i) {
          T* const at = own_scores + r * lanes + i * width;
          typename S::M excluded;
          const V weight = weigh<S, Normal>(S::load(at), base[i], excluded);
          sum[i] = sum[i] + normal_of::share(weight, excluded);
          S::store(at, marked ? S::select(excluded, S::set(-infinity<T>), weight) : weight);
        }
      }
      for (int i = 0; i < Vectors; ++i) part[i] = part[i] + sum[i];
      if ((group + 1) % (block::share_groups / block::sum_groups) != 0) continue;
      for (int i = 0; i < Vectors; ++i) {
        l[i] = l[i] + part[i];
        part[i] = S::set(0);
      }
    }
    for (int i = 0; i < Vectors; ++i) {
      T* const at = denominator + i * width;
      S::store(at, S::fma(S::load(at), S::load(rescale + i * width), l[i]));
    }
  }

  using raise_function = void (*)(const scratch&, const stripe_keys&, T*);
  template <bool masked>
  static constexpr raise_function raises[] = {
#define ATTEND_NORMALIZER(f) raise_keys<normal::f, masked>,
#include "kernels/functions.def"
  };
  using weigh_function = void (*)(const scratch&, const stripe_keys&, const T*, const sums&, T*);
  template <bool marked>
  static constexpr weigh_function weights[] = {
#define ATTEND_NORMALIZER(f) weigh_keys<normal::f, marked>,
#include "kernels/functions.def"
  };

  /// Lines of dense biases and masks that the next tile reads, to be asked for among the products: their rows lie far apart, and
  /// hardware does not see where they go on. One a step, because few can be under way at a time.
  struct lines_ahead {
    static constexpr int most = 4;  // per step
    const char* const* rows[most];  // of the stripe's lanes
    std::int64_t offset[most];      // in bytes
    int count, lanes;
  };

  /// What a step among the products asks for: nothing, lines of this block's rows, or of the next block.
  enum class asks_for { nothing, rows, block };

  /// At most `most` lines of the next block, an even number of which all but the last lie in it.
  static memory_ahead::run next_lines(const block_job& job, typename block::ahead_cursor& at, std::int64_t most) {
    const memory_ahead::run& run = job.ahead.runs[at.run];
    const std::int64_t left = run.lines - at.line, some = left < most ? left : most;
    const memory_ahead::run lines{run.at + at.line * memory_ahead::line, some};
    at.line += some;
    if (at.line == run.lines) ++at.run, at.line = 0;
    return lines;
  }

  /// The lines for part `part` of `parts`.
  static lines_ahead lines_of(const block_job& job, const stripe_keys& keys, std::int64_t part, std::int64_t parts) {
    constexpr int line = 64;
    lines_ahead ahead;
    ahead.count = 0;
    ahead.lanes = job.lanes.count - keys.lane < Vectors * width ? job.lanes.count - keys.lane : Vectors * width;
    const std::int64_t first = keys.first + block::tile_keys, left = job.keys.count - first;
    if (left <= 0 || ahead.lanes <= 0) return ahead;
    const std::int64_t keys_ahead = left < block::tile_keys ? left : block::tile_keys;
    const auto take = [&](const auto* rows, std::int64_t bytes) {
      const std::int64_t lines = (keys_ahead * bytes + line - 1) / line + 1;  // rows begin anywhere in a line
      for (std::int64_t n = lines * part / parts; n < lines * (part + 1) / parts && ahead.count < lines_ahead::most; ++n) {
        ahead.rows[ahead.count] = reinterpret_cast<const char* const*>(rows + keys.lane);
        ahead.offset[ahead.count++] = n + 1 < lines ? first * bytes + n * line : (first + keys_ahead) * bytes - 1;
      }
    };
    for (int n = 0; n < job.step_count; ++n) {
      const score_step& step = job.steps[n];
      if (step.kind == score_kind::bias && step.step == 1) take(job.lanes.bias[step.number], bytes_of(step.stored));
    }
    if (job.has_mask && job.mask_step == 1 && job.lanes.mask_first == 0 &&
        job.lanes.mask_classes[first / block::tile_keys] == tile_class::partial)
      take(job.lanes.mask, 1);
    return ahead;
  }

  /// out[c][lane] = out[c][lane] * rescale[lane] + sum over keys of v_rows[key][c] * weights[key][lane], for `Columns` columns.
  template <int Columns, bool marked, asks_for asks = asks_for::nothing>
  [[gnu::always_inline]] static inline void value_columns(const stripe_keys& keys, const T* weights, std::int64_t column,
                                                          const T* rescale, T* out, const lines_ahead* ahead = nullptr,
                                                          const memory_ahead::run* block = nullptr) {
    alignas(64) T total[Columns][Vectors * width];
    for (int group = 0, r = 0; group < block::sum_groups; ++group) {
      const int end = keys.group_end[(group + 1) * (block::share_groups / block::sum_groups) - 1];
      if (group > 0 && r == end) continue;
      V sum[Columns][Vectors];
      for (int c = 0; c < Columns; ++c) {
        for (int j = 0; j < Vectors; ++j) sum[c][j] = S::set(0);
      }
      for (; r < end; ++r, weights += lanes) {
        if (asks == asks_for::rows && r < ahead->lanes) {
          for (int n = 0; n < ahead->count; ++n) __builtin_prefetch(ahead->rows[n][r] + ahead->offset[n], 0, 2);
        }
        if (asks == asks_for::block && 2 * r < block->lines) {
          __builtin_prefetch(block->at + 2 * r * memory_ahead::line, 0, 2);
          __builtin_prefetch(block->at + (2 * r + 1) * memory_ahead::line, 0, 2);
        }
        const T* const v = static_cast<const T*>(keys.v_rows[r]) + column;
        V w[Vectors];
        for (int j = 0; j < Vectors; ++j) w[j] = S::load(weights + j * width);
        for (int c = 0; c < Columns; ++c) {
          const V value = S::set(v[c]);
          for (int j = 0; j < Vectors; ++j) {
            const V next = S::fma(value, w[j], sum[c][j]);
            sum[c][j] = marked ? S::select(S::equal(w[j], S::set(-infinity<T>)), sum[c][j], next) : next;
          }
        }
      }
      for (int c = 0; c < Columns; ++c) {
        for (int j = 0; j < Vectors; ++j) {
          T* const at = total[c] + j * width;
          S::store(at, group == 0 ? sum[c][j] : S::load(at) + sum[c][j]);
        }
      }
    }
    for (int j = 0; j < Vectors; ++j) {
      const V shrink = S::load(rescale + j * width);
      for (int c = 0; c < Columns; ++c) {
        T* const at = out + c * lanes + j * width;
        S::store(at, S::fma(S::load(at), shrink, S::load(total[c] + j * width)));
      }
    }
  }

  template <bool marked>
  static void values(const block_job& job, const scratch& s, const stripe_keys& keys, const T* rescale, T* out) {
    const T* const own_weights = scores_at(s, keys);
    rescale += keys.lane;
    out += keys.lane;
    std::int64_t c = 0;
    if constexpr (!sparse && !marked) {
      if (job.bias_count > 0 || job.has_mask) {
        for (; c + rows <= job.value_width; c += rows) {
          const lines_ahead ahead = lines_of(job, keys, c / rows, job.value_width / rows);
          value_columns<rows, false, asks_for::rows>(keys, own_weights, c, rescale, out + c * lanes, &ahead);
        }
      }
    }
    if constexpr (!marked) {
      for (; c + rows <= job.value_width && s.ahead->run < job.ahead.count; c += rows) {
        const memory_ahead::run lines = next_lines(job, *s.ahead, 2 * keys.count);
        value_columns<rows, false, asks_for::block>(keys, own_weights, c, rescale, out + c * lanes, nullptr, &lines);
      }
    }
    for (; c + rows <= job.value_width; c += rows) value_columns<rows, marked>(keys, own_weights, c, rescale, out + c * lanes);
    if (sparse && c + S::micro_rows <= job.value_width) {
      value_columns<S::micro_rows, marked>(keys, own_weights, c, rescale, out + c * lanes);
      c += S::micro_rows;
    }
    value_rest<S::micro_rows - 1, marked>(keys, own_weights, c, job.value_width - c, rescale, out + c * lanes);
  }

  /// The last columns, fewer than a register block.
  template <int Most, bool marked>
  static void value_rest(const stripe_keys& keys, const T* own_weights, std::int64_t column, std::int64_t columns,
                         const T* rescale, T* out) {
    if (columns == Most) {
      value_columns<Most, marked>(keys, own_weights, column, rescale, out);
    } else if constexpr (Most > 1) {
      value_rest<Most - 1, marked>(keys, own_weights, column, columns, rescale, out);
    }
  }

  template <class Before>
  static void scores_of(const block_job& job, const scratch& s, const stripe_keys& keys, const Before& before) {
    scores[static_cast<int>(job.compatibility)](job, s, keys);
    adjust(job, s, keys, before);
  }
  static void scores_of(const block_job& job, const scratch& s, const stripe_keys& keys) { scores_of(job, s, keys, nothing); }

  static void nothing(const score_step&) {}

  /// -inf where the bits exclude a pair.
  static void exclude(const scratch& s, const stripe_keys& keys) {
    for_each_score(s, keys,
                   [&](V score, int key, int lane) __attribute__((always_inline)) { return seen_score(s, score, key, lane); });
  }

  template <bool marked, bool masked>
  static void fold_keys(const block_job& job, const scratch& s, const stripe_keys& keys, const sums& result, T* rescale) {
    alignas(64) T top[Vectors * width];
    for (int i = 0; i < Vectors * width; i += width) S::store(top + i, S::load(result.maximum + keys.lane + i));
    const int normalizer = static_cast<int>(job.normalizer);
    for (int r = 0; r < keys.count; r += block::group_keys) {
      const stripe_keys group = keys.part(r, keys.count - r < block::group_keys ? keys.count - r : block::group_keys);
      scores_of(job, s, group);
      raises<masked>[normalizer](s, group, top);
    }
    weights<marked>[normalizer](s, keys, top, result, rescale);
    if (job.dropout.given) drop<marked>(job, s, keys);
    values<marked>(job, s, keys, rescale, result.out);
  }
};
