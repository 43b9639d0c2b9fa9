// forward: queries are lanes. The score tile is computed transposed, so softmax runs down columns without a horizontal
// operation and any width costs the same per element.
//
//            lanes (queries x heads of a group) ->            one vector register = one key (or column) for `width` lanes
//   Q^T      [E][lanes]         loaded once per block
//   scores   [tile_keys][lanes] K . Q^T, masked, then weights in place; stays in L1
//   O^T      [Ev][lanes]        V^T . weights
//   m, l     [lanes]            running maximum and denominator
//
// K and V are read in place, one scalar broadcast at a time (stripe.inl); halves are gathered tile by tile as numbers first. Registers: micro_rows x micro_vectors sums, micro_vectors
// operands, one broadcast (see the policy). Sums run per tile, tiles into their chunk. Benchmark: attend bench --filter
// prefill.

template <class S>
struct forward : forward_block<S> {
  using block = forward_block<S>;
  using block::chunk_keys, block::lanes, block::tile_keys, block::width;
  using typename block::scratch, typename block::stripe_keys, typename block::sums, typename block::T, typename block::V;
  using dense = stripe<S, S::micro_vectors>;
  using sparse = stripe<S, 1>;

  static scratch scratch_of(void* memory, const scratch_shape& shape) {
    arena a{static_cast<char*>(memory)};
    scratch s;
    s.queries = a.take<T>(shape.width * lanes);
    s.scores = a.take<T>(tile_keys * lanes);
    s.bits = a.take<typename S::Word>(tile_keys / keys_per_word * lanes);
    s.k_rows = a.take<const void*>(tile_keys);
    s.v_rows = a.take<const void*>(tile_keys);
    s.ahead = a.take<typename block::ahead_cursor>(1);
    s.additive = a.take<T>(shape.additive ? shape.width : 0);
    s.bias = a.take<T>(shape.biases * tile_keys * lanes);
    s.relative = a.take<T>(shape.has_relative ? tile_keys * lanes : 0);
    s.relative_rows = a.take<T>(shape.has_relative ? tile_keys * lanes : 0);
    s.packed_k = a.take<T>(shape.pack_k ? tile_keys * shape.width : 0);
    s.packed_v = a.take<T>(shape.pack_v ? tile_keys * shape.value_width : 0);
    s.bytes = a.used;
    return s;
  }
  static scratch scratch_of(const block_job& job) { return scratch_of(job.scratch, shape_of(job)); }
  static std::int64_t scratch_bytes(const scratch_shape& shape) { return scratch_of(nullptr, shape).bytes; }

  /// Rows of the sums O^T: products of tiles write 16 columns at a time.
  static constexpr std::int64_t value_rows(std::int64_t value_width) {
    if constexpr (requires { typename S::P; }) return (value_width + 15) / 16 * 16;
    return value_width;
  }
  static sums sums_of(partial_sums* memory, std::int64_t value_width) {
    T* const base = static_cast<T*>(memory);
    return {base, base + value_rows(value_width) * lanes, base + (value_rows(value_width) + 1) * lanes};
  }
  static std::int64_t partial_bytes(const scratch_shape& shape) {
    return padded((value_rows(shape.value_width) + 2) * lanes * static_cast<std::int64_t>(sizeof(T)));
  }
  static std::int64_t total_bytes(const scratch_shape& shape) {
    return partial_bytes(shape) + (carries_rest<T> ? partial_bytes(shape) : 0);
  }

  static void load(const block_job& job) {
    const scratch s = scratch_of(job);
    *s.ahead = {};
    if (job.compatibility == compatibility_index::none) return;
    const bool unit = job.compatibility == compatibility_index::cosine;
    const T factor = static_cast<T>(job.query_scale);
    with_input_type<T>(job.stored, [&]<class From>(From*) {
      rows_to_columns<S, lanes, From>(job.lanes.q, 0, job.lanes.count, job.width, job.q_column, unit ? 1 : factor, s.queries);
    });
    if (unit) unit_columns<S, lanes>(s.queries, job.width, factor);
    if (job.compatibility == compatibility_index::additive) load_additive(job, job.width, s.additive);
  }

  /// Reads what a tile's scores are made from: rows of keys and values, and what stands beside them.
  static void read_tile(const block_job& job, const scratch& s, std::int64_t first, int count, tile_kind tile) {
    read_rows<S>(job, s, first, count);
    read_beside(job, s, first, count, tile);
  }

  /// Reads relative biases, and bits where some pairs are excluded.
  static void read_beside(const block_job& job, const scratch& s, std::int64_t first, int count, tile_kind tile) {
    if (job.has_relative && job.lanes.grid.neighborhood) {
      with_number_type<T>(job.relative_stored,
                          [&]<class From>(From*) { relative_neighbors<From>(job, lanes, first, count, s.relative); });
    } else if (job.has_relative) {
      const void* rows[lanes];
      for (int lane = 0; lane < job.lanes.count; ++lane) {
        T* const row = s.relative_rows + lane * tile_keys;
        with_number_type<T>(job.relative_stored, [&]<class From>(From*) { relative_row<From>(job, lane, first, count, row); });
        rows[lane] = row;
      }
      rows_to_columns<S, lanes>(rows, 0, job.lanes.count, count, 1, 1, s.relative);
    }
    if (tile.kind == tile_class::partial) allowed_bits<S, lanes>(job, first, count, tile, s.bits);
  }

  /// Biases of a tile, for sparse stripes.
  static void read_biases(const block_job& job, const scratch& s, std::int64_t first, int count) {
    for (int n = 0; n < job.step_count; ++n) {
      const score_step& step = job.steps[n];
      if (step.kind != score_kind::bias) continue;
      with_number_type<T>(step.stored, [&]<class From>(From*) {
        rows_to_columns<S, lanes, From>(job.lanes.bias[step.number], first * step.step, job.lanes.count, count, step.step, 1,
                                        s.bias + step.number * tile_keys * lanes);
      });
    }
  }

  static tile_kind tile_at(const block_job& job, const lane_bounds& bounds, std::int64_t first, int count) {
    return classify_tile(job.lanes, bounds, first, first + count, job.has_mask, tile_keys);
  }

  /// Every key of a tile, from lane 0 on.
  static stripe_keys every_key(const scratch& s, std::int64_t first, int count) {
    stripe_keys keys{0, count, s.k_rows, s.v_rows, nullptr, first};
    for (int n = 0; n < block::share_groups; ++n) {
      const int end = (n + 1) * block::share_keys;
      keys.group_end[n] = end < count ? end : count;
    }
    return keys;
  }

  /// The stripes of a whole tile.
  template <class Visit>
  static void for_each_stripe(const scratch& s, std::int64_t first, int count, const Visit& visit) {
    stripe_keys keys = every_key(s, first, count);
    for (; keys.lane < lanes; keys.lane += S::micro_vectors * width) visit(keys);
  }

  using Word = typename S::Word;
  static constexpr int tile_words = tile_keys / keys_per_word;

  /// One bit per key that any of the lanes [lane, lane + width) sees; returns how many.
  static int seen_keys(const scratch& s, int lane, int count, Word* seen) {
    int keys = 0;
    for (int n = 0; n * keys_per_word < count; ++n) {
      const Word* const words = s.bits + n * lanes + lane;
      Word any = 0;
      for (int i = 0; i < width; ++i) any |= words[i];
      any &= bit_range(0, count - n * keys_per_word);
      seen[n] = any;
      keys += bits_set(static_cast<std::uint32_t>(any));
    }
    return keys;
  }

  /// The numbers of these keys, and one more that does not matter.
  static void numbers_of(const Word* seen, int count, unsigned char* numbers) {
    int found = 0;
    for (int key = 0; key < count; ++key) {
      numbers[found] = static_cast<unsigned char>(key);
      found += static_cast<int>(seen[key / keys_per_word] >> key % keys_per_word & 1);
    }
  }

  /// A tile whose pairs are partly excluded: by stripes of one vector where these visit at most half of what whole stripes would,
  /// which makes up for their lower speed.
  template <bool marked>
  static void fold_masked_tile(const block_job& job, const scratch& s, std::int64_t first, int count, const sums& result,
                               T* rescale) {
    Word words[S::block_vectors][tile_words] = {};
    int seen[S::block_vectors], total = 0;
    for (int j = 0; j < S::block_vectors; ++j) total += seen[j] = seen_keys(s, j * width, count, words[j]);
    if (2 * total > count * S::block_vectors) {
      for_each_stripe(s, first, count,
                      [&](const stripe_keys& keys) { dense::template fold_keys<marked, true>(job, s, keys, result, rescale); });
      return;
    }
    read_biases(job, s, first, count);
    unsigned char numbers[tile_keys + 1];
    const void *k_rows[tile_keys], *v_rows[tile_keys];
    for (int j = 0; j < S::block_vectors; ++j) {
      if (seen[j] == 0) continue;
      numbers_of(words[j], count, numbers);
      for (int r = 0; r < seen[j]; ++r) {
        k_rows[r] = s.k_rows[numbers[r]];
        v_rows[r] = s.v_rows[numbers[r]];
      }
      stripe_keys keys{j * width, seen[j], k_rows, v_rows, numbers, first};
      int end = 0;
      for (int n = 0; n < block::share_groups; ++n) {
        constexpr int per_word = keys_per_word / block::share_keys;
        const Word group = words[j][n / per_word] >> n % per_word * block::share_keys & ((Word{1} << block::share_keys) - 1);
        keys.group_end[n] = end += bits_set(static_cast<std::uint32_t>(group));
      }
      sparse::template fold_keys<marked, true>(job, s, keys, result, rescale);
    }
  }

  /// Sums before any key.
  static void clear(const block_job& job, const sums& result) {
    const T none = normal::start<S>(job);
    for (std::int64_t i = 0; i < value_rows(job.value_width) * lanes; ++i) result.out[i] = 0;
    for (int i = 0; i < lanes; ++i) {
      result.maximum[i] = none;
      result.denominator[i] = 0;
    }
  }

  /// A whole tile of a block some of whose vectors hold no lane: by stripes of one vector, for the others alone.
  template <bool marked>
  static void fold_thin_tile(const block_job& job, const scratch& s, std::int64_t first, int count, const sums& result,
                             T* rescale) {
    read_biases(job, s, first, count);
    unsigned char numbers[tile_keys];
    for (int key = 0; key < count; ++key) numbers[key] = static_cast<unsigned char>(key);
    stripe_keys keys = every_key(s, first, count);
    keys.numbers = numbers;
    for (; keys.lane < job.lanes.count; keys.lane += width)
      sparse::template fold_keys<marked, false>(job, s, keys, result, rescale);
  }

  template <bool marked>
  static void fold_keys(const block_job& job, std::int64_t begin, std::int64_t end, const sums& result) {
    const scratch s = scratch_of(job);
    const lane_bounds bounds = bounds_of(job.lanes);
    alignas(64) T rescale[lanes];
    clear(job, result);
    for (int i = 0; i < lanes; ++i) rescale[i] = 1;
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_kind tile = tile_at(job, bounds, first, count);
      if (tile.kind == tile_class::skip) continue;
      read_tile(job, s, first, count, tile);
      if (tile.kind == tile_class::partial) {
        fold_masked_tile<marked>(job, s, first, count, result, rescale);
      } else if (job.lanes.count <= lanes - width) {
        fold_thin_tile<marked>(job, s, first, count, result, rescale);
      } else {
        for_each_stripe(s, first, count, [&](const stripe_keys& keys) {
          dense::template fold_keys<marked, false>(job, s, keys, result, rescale);
        });
      }
    }
  }

  static void chunk(const block_job& job, std::int64_t begin, std::int64_t end, partial_sums* memory) {
    const sums result = sums_of(memory, job.value_width);
    fold_keys<false>(job, begin, end, result);
    // 0 * NaN and 0 * Inf are NaN: where a sum is not finite, an excluded value may have leaked in, so the chunk is computed
    // again with excluded pairs selected away. What was allowed comes out as before.
    if (!all_finite<S, S::block_vectors>(result.out, job.value_width * lanes)) fold_keys<true>(job, begin, end, result);
  }

  template <template <class> class Normal>
  static void fold_partials(const block_job& job, partial_sums* total, const partial_sums* next) {
    const sums a = sums_of(total, job.value_width), b = sums_of(const_cast<partial_sums*>(next), job.value_width);
    const sums rest = sums_of(static_cast<char*>(total) + partial_bytes(shape_of(job)), job.value_width);
    alignas(64) T own[lanes], other[lanes];
    for (int j = 0; j < lanes; j += width) {
      const V ma = S::load(a.maximum + j), mb = S::load(b.maximum + j);
      const V m = S::max(ma, mb), base = Normal<S>::base(m);
      S::store(own + j, Normal<S>::shrink(ma, base));
      S::store(other + j, Normal<S>::shrink(mb, base));
      S::store(a.maximum + j, m);
    }
    fold_elements(a.denominator, rest.denominator, b.denominator, lanes, own, other, lanes);
    fold_elements(a.out, rest.out, b.out, job.value_width * lanes, own, other, lanes);
  }

  using fold_function = void (*)(const block_job&, partial_sums*, const partial_sums*);
  static constexpr fold_function folds[] = {
#define ATTEND_NORMALIZER(f) fold_partials<normal::f>,
#include "kernels/functions.def"
  };
  static void fold(const block_job& job, partial_sums* total, const partial_sums* next) {
    folds[static_cast<int>(job.normalizer)](job, total, next);
  }

  static void totals(const block_job& job, const partial_sums* memory, double* maximum, double* denominator) {
    const sums result = sums_of(const_cast<partial_sums*>(memory), job.value_width);
    for (int lane = 0; lane < job.lanes.count; ++lane) {
      maximum[lane] = static_cast<double>(result.maximum[lane]);
      denominator[lane] = static_cast<double>(result.denominator[lane]);
    }
  }

  static void finish(const block_job& job, const partial_sums* memory, const double* factor) {
    const sums result = sums_of(const_cast<partial_sums*>(memory), job.value_width);
    alignas(64) T factors[lanes];
    for (int lane = 0; lane < lanes; ++lane) factors[lane] = lane < job.lanes.count ? static_cast<T>(factor[lane]) : T{0};
    with_input_type<T>(job.stored, [&]<class To>(To*) {
      columns_to_rows<S, lanes, To>(result.out, factors, job.lanes.count, job.value_width, job.lanes.out, 0, job.out_column);
    });
  }

  /// Scores of a stripe -> final weights in place.
  template <template <class> class Normal>
  static void final_weights(const scratch& s, const stripe_keys& keys, const T* maximum, const T* factors) {
    dense::for_each_score(s, keys, [&](V score, int, int lane) __attribute__((always_inline)) {
      typename S::M excluded;
      const V weight = weigh<S, Normal>(score, Normal<S>::base(S::load(maximum + lane)), excluded);
      return S::select(excluded, S::set(0), weight * S::load(factors + lane));
    });
  }

  using final_function = void (*)(const scratch&, const stripe_keys&, const T*, const T*);
  static constexpr final_function final_stripes[] = {
#define ATTEND_NORMALIZER(f) final_weights<normal::f>,
#include "kernels/functions.def"
  };

  /// Writes what `make` leaves in the scores of every tile of keys [begin, end), and `skipped` where a tile is skipped; `read` reads a
  /// tile, `score` makes the scores of a stripe.
  template <class Read, class Score, class Make>
  static void write_tiles(const block_job& job, const scratch& s, std::int64_t begin, std::int64_t end, bool masked, T skipped,
                          const Read& read, const Score& score, const Make& make) {
    const lane_bounds bounds = bounds_of(job.lanes);
    alignas(64) T one[lanes];
    for (int lane = 0; lane < lanes; ++lane) one[lane] = 1;
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_kind tile = masked ? tile_at(job, bounds, first, count) : tile_kind{tile_class::full, false, false};
      if (tile.kind == tile_class::skip) {
        for (int i = 0; i < count * lanes; ++i) s.scores[i] = skipped;
      } else {
        read(first, count, tile);
        for_each_stripe(s, first, count, [&](const stripe_keys& keys) {
          score(keys);
          if (tile.kind == tile_class::partial) dense::exclude(s, keys);
          make(s, keys);
        });
      }
      with_input_type<T>(job.stored, [&]<class To>(To*) {
        columns_to_rows<S, lanes, To>(s.scores, one, job.lanes.count, count, job.lanes.pairs, first * job.pairs_step,
                                      job.pairs_step);
      });
    }
  }

  template <class Make>
  static void write(const block_job& job, std::int64_t begin, std::int64_t end, bool masked, T skipped, const Make& make) {
    const scratch s = scratch_of(job);
    write_tiles(
        job, s, begin, end, masked, skipped,
        [&](std::int64_t first, int count, tile_kind tile) { read_tile(job, s, first, count, tile); },
        [&](const stripe_keys& keys) { dense::scores_of(job, s, keys); }, make);
  }

  /// Calls write(make) for what turns scores into final weights.
  template <class Write>
  static void with_final_weights(const block_job& job, const double* maximum, const double* factor, const Write& write) {
    alignas(64) T m[lanes], factors[lanes];
    for (int lane = 0; lane < lanes; ++lane) {
      const bool used = lane < job.lanes.count;
      m[lane] = used ? static_cast<T>(maximum[lane]) : T{0};
      factors[lane] = used ? static_cast<T>(factor[lane]) : T{0};
    }
    write([&](const scratch& s, const stripe_keys& keys) {
      final_stripes[static_cast<int>(job.normalizer)](s, keys, m, factors);
      if (job.dropout.given) dense::template drop<false>(job, s, keys);
    });
  }
  static void weights(const block_job& job, std::int64_t begin, std::int64_t end, const double* maximum, const double* factor) {
    with_final_weights(job, maximum, factor, [&](const auto& make) { write(job, begin, end, true, T{0}, make); });
  }

  static void scores(const block_job& job, std::int64_t begin, std::int64_t end, bool masked) {
    write(job, begin, end, masked, -infinity<T>, [](const scratch&, const stripe_keys&) {});
  }

  static tile_class mask_class(const lane_map& map, std::int64_t mask_step, std::int64_t first, int count) {
    return mask_class_of<S>(map, mask_step, first, count);
  }

  static constexpr kernel row{lanes, tile_keys, chunk_keys, scratch_bytes, partial_bytes, total_bytes, load,
                              chunk, fold,      totals,     finish,        weights,       scores,      mask_class};
};
