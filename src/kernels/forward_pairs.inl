// forward_pairs: `forward` for bfloat16 where the processor multiplies pairs of it. Scores, steps, masks and softmax are those of
// forward, in float32; the two products are not.
//
//   Q        [E / 2][lanes]   pairs of columns, loaded once per block
//   scores   [keys][lanes]    K . Q^T: K is read in place (pair_pack.inl)
//   weights  [keys / 2][lanes of a stripe]  rounded to pairs of keys in registers, as scores become weights
//   O^T      [Ev][lanes]      V^T . weights: V is packed once per head and chunk
//
// A stripe is as many lanes as products work on together. Of a tile whose pairs are partly excluded, a stripe visits the groups of 32 keys that
// some of its lanes sees; other groups would add exactly 0. Values that are not finite stay out of the products, because 0 * NaN is NaN, and
// are added one by one to the lanes that see them. Benchmark: bench/compare, cells in bfloat16.

template <class S, class Products>
struct forward_pairs : forward<S> {
  using base = forward<S>;
  using base::chunk_keys, base::lanes, base::tile_keys, base::width;
  using typename base::stripe_keys, typename base::sums, typename base::T, typename base::V, typename base::Word;
  using numbers = typename base::scratch;
  using stripe_of = stripe<S, Products::vectors>;
  using packed = packed_chunk<S>;
  static_assert(tile_keys % group_keys == 0 && group_keys == keys_per_word && chunk_keys % tile_keys == 0);
  static constexpr int stripe_lanes = Products::vectors * width;

  struct scratch {
    numbers of_numbers;
    std::uint32_t *queries, *weights;
    std::int64_t bytes;
  };
  static scratch scratch_of(void* memory, scratch_shape shape) {
    const std::int64_t pairs = packed::row_blocks(shape.width) * 16;
    shape.width = 0;  // rows of numbers are not needed
    shape.pack_k = shape.pack_v = false;
    scratch s;
    s.of_numbers = base::scratch_of(memory, shape);
    arena a{static_cast<char*>(memory), s.of_numbers.bytes};
    s.queries = a.take<std::uint32_t>(pairs * lanes);
    s.weights = a.take<std::uint32_t>(tile_keys / 2 * stripe_lanes);
    s.bytes = a.used;
    return s;
  }
  static scratch scratch_of(const block_job& job) { return scratch_of(job.scratch, shape_of(job)); }
  static std::int64_t scratch_bytes(const scratch_shape& shape) { return scratch_of(nullptr, shape).bytes; }
  static std::int64_t packed_bytes(const scratch_shape& shape) { return packed(nullptr, shape, chunk_keys).bytes; }
  static void pack(const block_job& job, std::int64_t begin, std::int64_t end, void* memory) {
    packed(memory, shape_of(job), chunk_keys).pack(job, begin, end);
  }

  /// The scale as a factor of queries where it is a power of two, which rounds nothing, and else of scores.
  struct scale_of {
    T queries, scores;
    explicit scale_of(const block_job& job) {
      std::uint64_t bits;
      __builtin_memcpy(&bits, &job.query_scale, sizeof bits);
      const bool power = (bits & ((std::uint64_t{1} << 52) - 1)) == 0 && job.query_scale != 0;
      queries = power ? static_cast<T>(job.query_scale) : T{1};
      scores = power ? T{1} : static_cast<T>(job.query_scale);
    }
  };

  static void load(const block_job& job) {
    const scratch s = scratch_of(job);
    const V factor = S::set(scale_of(job).queries);
    for (int lane = 0; lane < lanes; lane += width) {
      for (std::int64_t first = 0; first < job.width; first += 2 * width) {
        const std::int64_t columns = job.width - first < 2 * width ? job.width - first : 2 * width;
        char gathered[4 * width];
        typename S::P x[width];
        for (int i = 0; i < width; ++i) {
          const bool used = lane + i < job.lanes.count;
          const void* row = gathered;
          if (used) row = static_cast<const bf16*>(job.lanes.q[lane + i]) + first * job.q_column;
          if (used && job.q_column != 1) {
            packed::copy_row(row, job.q_column, columns, 2 * width, gathered);
            row = gathered;
          }
          x[i] = S::load_row(row, used ? static_cast<int>(columns) : 0);
        }
        S::transpose_pairs(x);
        for (int i = 0; i < width; ++i) S::store_pairs(s.queries + (first / 2 + i) * lanes + lane, S::scaled(x[i], factor));
      }
    }
  }

  /// Scores of a stripe's keys, adjusted by the scale and the job's steps; -inf in the rows up to a whole group.
  static void make_scores(const block_job& job, const scratch& s, const packed& from, Products& products,
                          const stripe_keys& keys, std::int64_t tile_of_chunk, bool adjusts) {
    const int groups = (keys.count + group_keys - 1) / group_keys;
    T* const scores = stripe_of::scores_at(s.of_numbers, keys);
    products.scores(from.keys + (tile_of_chunk + keys.begin) / 16, groups, s.queries + keys.lane, packed::row_blocks(job.width),
                    scores);
    for (int r = keys.count; r < groups * group_keys; ++r) {
      for (int i = 0; i < stripe_lanes; i += width) S::store(scores + r * lanes + i, S::set(-infinity<T>));
    }
    if (!adjusts) return;
    if (const T scale = scale_of(job).scores; scale != 1) {
      const V factor = S::set(scale);
      stripe_of::for_each_score(s.of_numbers, keys,
                                [&](V score, int, int) __attribute__((always_inline)) { return score * factor; });
    }
    stripe_of::adjust(job, s.of_numbers, keys);
  }

  /// What of scores precedes their weights, as in stripe.inl, and the scale where `scaled`.
  template <template <class> class Normal, bool masked, bool scaled>
  static void raise_scores(const scratch& s, const stripe_keys& keys, T scale, T* top) {
    const V factor = S::set(scale);
    T* const scores = stripe_of::scores_at(s.of_numbers, keys);
    V m[Products::vectors];
    for (int i = 0; i < Products::vectors; ++i) m[i] = S::load(top + i * width);
    for (int r = 0; r < keys.count; ++r) {
      for (int i = 0; i < Products::vectors; ++i) {
        T* const at = scores + r * lanes + i * width;
        V score = S::load(at);
        if constexpr (scaled) score = score * factor;
        if constexpr (masked) score = stripe_of::seen_score(s.of_numbers, score, keys.begin + r, keys.lane + i * width);
        if constexpr (scaled || masked) S::store(at, score);
        if constexpr (Normal<S>::moves) m[i] = raise<S, Normal>(m[i], score);
      }
    }
    for (int i = 0; i < Products::vectors; ++i) S::store(top + i * width, m[i]);
  }

  /// Scores -> rounded weights, 0 where a pair is excluded; m becomes `top`, l moves on by weights that are not rounded, and the sums so
  /// far shrink where m moved.
  template <template <class> class Normal, bool drops>
  static void weigh_scores(const block_job& job, const scratch& s, const stripe_keys& keys, const T* top, const sums& result) {
    using normal_of = Normal<S>;
    const T* scores = stripe_of::scores_at(s.of_numbers, keys);
    T* const maximum = result.maximum + keys.lane;
    T* const denominator = result.denominator + keys.lane;
    V base_of[Products::vectors], l[Products::vectors], shrink[Products::vectors];
    bool moved = false;
    for (int i = 0; i < Products::vectors; ++i) {
      const V m = S::load(top + i * width);
      base_of[i] = normal_of::base(m);
      shrink[i] = normal_of::shrink(S::load(maximum + i * width), base_of[i]);
      moved = moved || !S::all(S::equal(shrink[i], S::set(1)));
      S::store(maximum + i * width, m);
      l[i] = S::load(denominator + i * width) * shrink[i];
    }
    if (moved) shrink_sums(job, shrink, result.out + keys.lane);
    alignas(64) std::uint64_t query[stripe_lanes], head[stripe_lanes];
    for (int lane = 0; drops && lane < stripe_lanes; ++lane) {
      const bool used = keys.lane + lane < job.lanes.count;
      query[lane] = used ? job.lanes.query[keys.lane + lane] : 0;
      head[lane] = used ? job.lanes.head[keys.lane + lane] : 0;
    }
    std::uint32_t* to = s.weights;
    const int end = (keys.count + group_keys - 1) / group_keys * group_keys;
    for (int r = 0; r < end;
         r += base::share_keys, scores += base::share_keys * lanes, to += base::share_keys / 2 * stripe_lanes) {
      for (int i = 0; i < Products::vectors; ++i) {
        V sum = S::set(0), kept[4];
        for (int n = 0; n < base::share_keys; n += 2) {
          typename S::M excluded;
          V w[2];
          for (int k = 0; k < 2; ++k) {
            w[k] = weigh<S, Normal>(S::load(scores + (n + k) * lanes + i * width), base_of[i], excluded);
            sum = sum + normal_of::share(w[k], excluded);
          }
          if constexpr (drops) {
            if (n % 4 == 0)
              kept_lanes<S>(job.dropout, (keys.first + keys.begin + r + n) / 4, query + i * width, head + i * width, kept);
            for (int k = 0; k < 2; ++k) w[k] = w[k] * kept[n % 4 + k];
          }
          S::store_pairs(to + n / 2 * stripe_lanes + i * width, S::pair_of(w[0], w[1]));
        }
        l[i] = l[i] + sum;
      }
    }
    for (int i = 0; i < Products::vectors; ++i) S::store(denominator + i * width, l[i]);
  }

  static void shrink_sums(const block_job& job, const V (&shrink)[Products::vectors], T* out) {
    for (std::int64_t c = 0; c < job.value_width; ++c, out += lanes) {
      for (int i = 0; i < Products::vectors; ++i) S::store(out + i * width, S::load(out + i * width) * shrink[i]);
    }
  }

  /// Adds values that are not finite, which `packed` left out, to the lanes that see them.
  static void add_unusual(const block_job& job, const scratch& s, const packed& from, const stripe_keys& keys,
                          std::int64_t tile_of_chunk, T* out) {
    for (int start = 0; start < keys.count; start += group_keys) {
      if (!from.unusual[(tile_of_chunk + keys.begin + start) / group_keys]) continue;
      const int count = keys.count - start < group_keys ? keys.count - start : group_keys;
      const void *k_rows[group_keys], *v_rows[group_keys];
      key_rows(job.keys, keys.first + keys.begin + start, count, k_rows, v_rows);
      for (int r = 0; r < count; ++r) {
        const T* const scores = stripe_of::scores_at(s.of_numbers, keys) + (start + r) * lanes;
        const std::uint32_t* const pairs = s.weights + (start + r) / 2 * stripe_lanes;
        for (std::int64_t c = 0; c < job.value_width; ++c) {
          const float value = static_cast<float>(read(static_cast<const bf16*>(v_rows[r]) + c * job.keys.v_column));
          if (value - value == 0) continue;
          for (int lane = 0; lane < stripe_lanes; ++lane) {
            if (scores[lane] == -infinity<T>) continue;
            bf16 weight;
            weight.bits = static_cast<std::uint16_t>(pairs[lane] >> (r % 2 == 0 ? 0 : 16));
            out[c * lanes + keys.lane + lane] += static_cast<float>(weight) * value;
          }
        }
      }
    }
  }

  using raise_function = void (*)(const scratch&, const stripe_keys&, T, T*);
  template <bool masked, bool scaled>
  static constexpr raise_function raises[] = {
#define ATTEND_NORMALIZER(f) raise_scores<normal::f, masked, scaled>,
#include "kernels/functions.def"
  };
  using weigh_function = void (*)(const block_job&, const scratch&, const stripe_keys&, const T*, const sums&);
  template <bool drops>
  static constexpr weigh_function weights_of[] = {
#define ATTEND_NORMALIZER(f) weigh_scores<normal::f, drops>,
#include "kernels/functions.def"
  };

  template <bool masked>
  static void fold_stripe(const block_job& job, const scratch& s, const packed& from, Products& products,
                          const stripe_keys& keys, std::int64_t tile_of_chunk, const sums& result) {
    const bool adjusts = job.step_count > 0;
    make_scores(job, s, from, products, keys, tile_of_chunk, adjusts);
    alignas(64) T top[stripe_lanes];
    for (int i = 0; i < stripe_lanes; i += width) S::store(top + i, S::load(result.maximum + keys.lane + i));
    const int normalizer = static_cast<int>(job.normalizer);
    const T scale = scale_of(job).scores;
    if (adjusts || scale == 1)
      raises<masked, false>[normalizer](s, keys, 1, top);
    else
      raises<masked, true>[normalizer](s, keys, scale, top);
    (job.dropout.given ? weights_of<true> : weights_of<false>)[normalizer](job, s, keys, top, result);
    const std::int64_t blocks = packed::column_blocks(job.value_width);
    products.values(from.values + (tile_of_chunk + keys.begin) / group_keys * blocks * tile_bytes,
                    (keys.count + group_keys - 1) / group_keys, s.weights, blocks, result.out + keys.lane);
    add_unusual(job, s, from, keys, tile_of_chunk, result.out);
  }

  /// The part of a tile's keys, by groups, that some lane of a stripe sees.
  static stripe_keys seen_keys(const scratch& s, stripe_keys keys) {
    int begin = tile_keys, end = 0;
    for (int n = 0; n * group_keys < keys.count; ++n) {
      Word any = 0;
      for (int i = 0; i < stripe_lanes; ++i) any |= s.of_numbers.bits[n * lanes + keys.lane + i];
      if ((any & bit_range(0, keys.count - n * group_keys)) == 0) continue;
      if (n * group_keys < begin) begin = n * group_keys;
      end = (n + 1) * group_keys;
    }
    keys.begin = begin < end ? begin : 0;
    keys.count = end <= begin ? 0 : (end < keys.count ? end : keys.count) - begin;
    return keys;
  }

  static void chunk(const block_job& job, std::int64_t begin, std::int64_t end, partial_sums* memory) {
    const sums result = base::sums_of(memory, job.value_width);
    const scratch s = scratch_of(job);
    const packed from(const_cast<void*>(job.packed), shape_of(job), chunk_keys);
    const lane_bounds bounds = bounds_of(job.lanes);
    base::clear(job, result);
    if (begin == end) return;
    Products products;
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_kind tile = base::tile_at(job, bounds, first, count);
      if (tile.kind == tile_class::skip) continue;
      base::read_beside(job, s.of_numbers, first, count, tile);
      for (int lane = 0; lane < job.lanes.count; lane += stripe_lanes) {
        const stripe_keys all{lane, count, nullptr, nullptr, nullptr, first};
        if (tile.kind == tile_class::full) {
          fold_stripe<false>(job, s, from, products, all, first - begin, result);
        } else if (const stripe_keys keys = seen_keys(s, all); keys.count > 0) {
          fold_stripe<true>(job, s, from, products, keys, first - begin, result);
        }
      }
    }
  }

  /// Writes what `make` leaves in the scores of every tile; see forward.
  template <class Make>
  static void write(const block_job& job, std::int64_t begin, std::int64_t end, bool masked, T skipped, const Make& make) {
    const scratch s = scratch_of(job);
    const packed from(const_cast<void*>(job.packed), shape_of(job), chunk_keys);
    Products products;
    base::write_tiles(
        job, s.of_numbers, begin, end, masked, skipped,
        [&](std::int64_t first, int count, tile_kind tile) { base::read_beside(job, s.of_numbers, first, count, tile); },
        [&](const stripe_keys& keys) { make_scores(job, s, from, products, keys, keys.first - begin, true); }, make);
  }
  static void weights(const block_job& job, std::int64_t begin, std::int64_t end, const double* maximum, const double* factor) {
    base::with_final_weights(job, maximum, factor, [&](const auto& make) { write(job, begin, end, true, T{0}, make); });
  }
  static void scores(const block_job& job, std::int64_t begin, std::int64_t end, bool masked) {
    write(job, begin, end, masked, -infinity<T>, [](const numbers&, const stripe_keys&) {});
  }

  static constexpr kernel row{
      lanes,        tile_keys,    chunk_keys, scratch_bytes, base::partial_bytes, base::total_bytes, load, chunk, base::fold,
      base::totals, base::finish, weights,    scores,        base::mask_class,    packed_bytes,      pack};
};
