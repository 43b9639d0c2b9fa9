// forward_pairs: `forward` for bfloat16 where the processor multiplies pairs of it. Scores, steps, masks and softmax are those of
// forward, in float32; the two products are not.
//
//   Q        [E / 2][lanes]      pairs of columns, loaded once per block
//   scores   [keys][lanes]       K . Q^T: K is read in place (pair_pack.inl)
//   weights  [keys / 2][lanes]   rounded to pairs of keys in registers, as scores become weights
//   O^T      [Ev][lanes]         V^T . weights: V is packed once per head and chunk
//
// While scores of a tile become weights, the values of the tile before are multiplied, and then the scores of the tile after: steps of these
// products (pair_products.inl) stand among the instructions of the softmax, so that tile unit and vector units work at the same time. The
// next scores may take the place of scores that are weights already.
//
// Of a tile whose pairs are partly excluded, a block visits the groups of 32 keys from the first to the last that some of its lanes
// sees; other groups would add exactly 0. Values that are not finite stay out of the products, because 0 * NaN is NaN, and are added one
// by one to the lanes that see them. Benchmark: bench/compare, cells in bfloat16.

template <class S, class Products>
struct forward_pairs : forward<S> {
  using base = forward<S>;
  using base::lanes, base::tile_keys, base::width;
  using typename base::stripe_keys, typename base::sums, typename base::T, typename base::V, typename base::Word;
  using numbers = typename base::scratch;
  using packed = packed_chunk<S>;
  static constexpr int vectors = Products::vectors;
  // Long, because a partial result costs more beside faster products. It is held against the precision of bfloat16.
  static constexpr std::int64_t chunk_keys = 32 * tile_keys;
  static_assert(common_chunk_keys % chunk_keys == 0);
  using block = stripe<S, vectors>;  // one stripe has all lanes of a block
  static_assert(vectors * width == lanes);
  static_assert(tile_keys % group_keys == 0 && group_keys == keys_per_word && chunk_keys % tile_keys == 0);

  struct scratch {
    numbers of_numbers;
    std::uint32_t *queries, *weights[2];  // weights of a tile, and of the one before
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
    for (std::uint32_t*& weights : s.weights) weights = a.take<std::uint32_t>(tile_keys / 2 * lanes);
    s.bytes = a.used;
    return s;
  }
  static scratch scratch_of(const block_job& job) { return scratch_of(job.scratch, shape_of(job)); }
  static std::int64_t scratch_bytes(const scratch_shape& shape) { return scratch_of(nullptr, shape).bytes; }
  static std::int64_t packed_bytes(const scratch_shape& shape) { return packed(nullptr, shape, chunk_keys).bytes; }
  static void pack(const block_job& job, std::int64_t begin, std::int64_t end, void* memory) {
    packed(memory, shape_of(job), chunk_keys).pack(job, begin, end);
  }

  /// The scale in two factors: a power of two with its sign, by which queries are multiplied, which rounds nothing; and what is left for
  /// the scores, from 1 to 2.
  struct scale_of {
    T queries, scores;
    explicit scale_of(const block_job& job) {
      std::uint64_t bits;
      __builtin_memcpy(&bits, &job.query_scale, sizeof bits);
      bits &= ~((std::uint64_t{1} << 52) - 1);
      double power;
      __builtin_memcpy(&power, &bits, sizeof power);
      queries = static_cast<T>(power);
      scores = power != 0 ? static_cast<T>(job.query_scale / power) : T{1};
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

  static int groups_of(const stripe_keys& keys) { return (keys.count + group_keys - 1) / group_keys; }

  /// The product that makes these keys' scores; `chunk`: the first of the keys that are packed.
  static score_product scores_of(const block_job& job, const scratch& s, const packed& from, const stripe_keys& keys,
                                 std::int64_t chunk) {
    return {from.keys + (keys.first + keys.begin - chunk) / 16, groups_of(keys), s.queries, packed::row_blocks(job.width),
            block::scores_at(s.of_numbers, keys)};
  }

  /// The product that adds these keys' values.
  static value_product values_of(const block_job& job, const packed& from, const stripe_keys& keys, std::int64_t chunk,
                                 const std::uint32_t* weights, T* out) {
    const std::int64_t blocks = packed::column_blocks(job.value_width), group_bytes = blocks * tile_bytes;
    const char* const values = from.values + (keys.first + keys.begin - chunk) / group_keys * group_bytes;
    return {values, groups_of(keys), weights, blocks, out, group_bytes};
  }

  /// Products under way: all of `values`, then all of `scores`.
  struct work {
    Products& products;
    value_product values;
    score_product scores;
    int of_values = 0, of_scores = 0;  // steps that are left

    explicit work(Products& with) : products(with) {}
    void start(const value_product& product) {
      values = product;
      of_values = Products::steps(product);
    }
    void start(const score_product& product) {
      scores = product;
      of_scores = Products::steps(product);
    }
    int left() const { return of_values + of_scores; }
    [[gnu::always_inline]] inline void step() {
      if (of_values > 0) {
        --of_values;
        products.step(values);
      } else {
        --of_scores;
        products.step(scores);
      }
    }
    /// Only where no step of the values is taken yet: both would be in the same tiles.
    void finish_scores() {
      for (; of_scores > 0; --of_scores) products.step(scores);
    }
    void finish() {
      while (left() > 0) step();
    }
  };

  /// What precedes masks, once the products of scores are made: -inf in the rows up to a whole group, the scale unless `late`, the job's
  /// steps.
  static void adjust(const block_job& job, const scratch& s, const stripe_keys& keys, bool late) {
    T* const scores = block::scores_at(s.of_numbers, keys);
    for (int i = keys.count * lanes; i < groups_of(keys) * group_keys * lanes; i += width)
      S::store(scores + i, S::set(-infinity<T>));
    if (const T scale = scale_of(job).scores; !late && scale != 1) {
      const V factor = S::set(scale);
      block::for_each_score(s.of_numbers, keys,
                            [&](V score, int, int) __attribute__((always_inline)) { return score * factor; });
    }
    block::adjust(job, s.of_numbers, keys, block::nothing);
  }

  /// Scores, times the scale if they are to be `scaled` -> rounded weights, 0 where a pair is excluded; l moves on by weights that are not
  /// rounded. m is what it is to be. Meanwhile, `meanwhile` is done.
  template <template <class> class Normal, bool drops, bool scaled>
  static void weigh_scores(const block_job& job, const scratch& s, const stripe_keys& keys, T scale, const sums& result,
                           std::uint32_t* to, work& meanwhile) {
    using normal_of = Normal<S>;
    const T* scores = block::scores_at(s.of_numbers, keys);
    const V factor = S::set(scale);
    V base_of[vectors], l[vectors];
    for (int i = 0; i < vectors; ++i) {
      base_of[i] = normal_of::base(S::load(result.maximum + i * width));
      l[i] = S::load(result.denominator + i * width);
    }
    alignas(64) std::uint64_t query[lanes], head[lanes];
    for (int lane = 0; drops && lane < lanes; ++lane) {
      query[lane] = lane < job.lanes.count ? job.lanes.query[lane] : 0;
      head[lane] = lane < job.lanes.count ? job.lanes.head[lane] : 0;
    }
    constexpr int share_keys = base::share_keys;
    const int end = groups_of(keys) * group_keys, steps = meanwhile.left();
    int due = 0;
    for (int r = 0; r < end; r += share_keys, scores += share_keys * lanes, to += share_keys / 2 * lanes) {
      for (int i = 0; i < vectors; ++i) {
        V sum = S::set(0), kept[4];
        for (int n = 0; n < share_keys; n += 2) {
          V w[2];
          for (int k = 0; k < 2; ++k) {
            typename S::M excluded;
            const V score = S::load(scores + (n + k) * lanes + i * width);
            w[k] = weigh<S, Normal>(scaled ? score * factor : score, base_of[i], excluded);
            sum = sum + normal_of::share(w[k], excluded);
          }
          if constexpr (drops) {
            if (n % 4 == 0)
              kept_lanes<S>(job.dropout, (keys.first + keys.begin + r + n) / 4, query + i * width, head + i * width, kept);
            for (int k = 0; k < 2; ++k) w[k] = w[k] * kept[n % 4 + k];
          }
          S::store_pairs(to + n / 2 * lanes + i * width, S::pair_of(w[0], w[1]));
        }
        l[i] = l[i] + sum;
      }
      for (due += share_keys * steps; due >= end; due -= end) meanwhile.step();
    }
    for (int i = 0; i < vectors; ++i) S::store(result.denominator + i * width, l[i]);
  }

  /// Whether m moves on to cover scores up to `top`, and what was summed so far shrinks by.
  template <template <class> class Normal>
  static bool moves_maximum(V m, V top, V& next, V& shrink) {
    next = top;
    if constexpr (requires { Normal<S>::patience; }) next = S::select(S::less(top, m + S::set(Normal<S>::patience)), m, top);
    shrink = Normal<S>::shrink(m, Normal<S>::base(next));
    return !S::all(S::equal(shrink, S::set(1)));
  }

  /// Masks scores if `masked`, and m moves on to cover them, times the scale that they still lack.
  template <template <class> class Normal, bool masked>
  static void raise_maximum(const block_job& job, const scratch& s, const stripe_keys& keys, T scale, const sums& result,
                            work& meanwhile) {
    alignas(64) T top[lanes];
    const T none = normal::start<S>(job);
    for (int i = 0; i < lanes; i += width) S::store(top + i, S::set(none));
    block::template raise_keys<Normal, masked>(s.of_numbers, keys, top);
    if constexpr (Normal<S>::moves) {
      V shrink[vectors];
      bool moved = false;
      for (int i = 0; i < vectors; ++i) {
        T* const maximum = result.maximum + i * width;
        const V m = S::load(maximum);
        V next;
        const bool this_one = moves_maximum<Normal>(m, S::max(S::load(top + i * width) * S::set(scale), m), next, shrink[i]);
        moved = moved || this_one;
        S::store(maximum, next);
      }
      if (!moved) return;
      meanwhile.finish();  // values of weights against the former m
      for (int i = 0; i < vectors; ++i) {
        T* const l = result.denominator + i * width;
        S::store(l, S::load(l) * shrink[i]);
      }
      for (std::int64_t c = 0; c < job.value_width; ++c) {
        T* const out = result.out + c * lanes;
        for (int i = 0; i < vectors; ++i) S::store(out + i * width, S::load(out + i * width) * shrink[i]);
      }
    }
  }

  static bool holds_unusual(const packed& from, const stripe_keys& keys, std::int64_t chunk) {
    const bool* const unusual = from.unusual + (keys.first + keys.begin - chunk) / group_keys;
    bool any = false;
    for (int n = 0; n < groups_of(keys); ++n) any = any || unusual[n];
    return any;
  }

  /// Adds values that are not finite, which `packed` left out, to the lanes that see them.
  static void add_unusual(const block_job& job, const scratch& s, const stripe_keys& keys, const std::uint32_t* weights,
                          T* out) {
    for (int r = 0; r < keys.count; ++r) {
      const void *k_row, *v_row;
      key_rows(job.keys, keys.first + keys.begin + r, 1, &k_row, &v_row);
      const T* const scores = block::scores_at(s.of_numbers, keys) + r * lanes;
      const std::uint32_t* const pairs = weights + r / 2 * lanes;
      for (std::int64_t c = 0; c < job.value_width; ++c) {
        const float value = static_cast<float>(read(static_cast<const bf16*>(v_row) + c * job.keys.v_column));
        if (value - value == 0) continue;
        for (int lane = 0; lane < lanes; ++lane) {
          if (scores[lane] == -infinity<T>) continue;
          bf16 weight;
          weight.bits = static_cast<std::uint16_t>(pairs[lane] >> (r % 2 == 0 ? 0 : 16));
          out[c * lanes + lane] += static_cast<float>(weight) * value;
        }
      }
    }
  }

  using raise_function = void (*)(const block_job&, const scratch&, const stripe_keys&, T, const sums&, work&);
  template <bool masked>
  static constexpr raise_function raises[] = {
#define ATTEND_NORMALIZER(f) raise_maximum<normal::f, masked>,
#include "kernels/functions.def"
  };
  using weigh_function = void (*)(const block_job&, const scratch&, const stripe_keys&, T, const sums&, std::uint32_t*, work&);
  template <bool drops, bool scaled>
  static constexpr weigh_function weights_of[] = {
#define ATTEND_NORMALIZER(f) weigh_scores<normal::f, drops, scaled>,
#include "kernels/functions.def"
  };
  static weigh_function weights_for(const block_job& job, bool scaled) {
    const int f = static_cast<int>(job.normalizer);
    if (job.dropout.given) return scaled ? weights_of<true, true>[f] : weights_of<true, false>[f];
    return scaled ? weights_of<false, true>[f] : weights_of<false, false>[f];
  }

  /// The part of a tile's keys, by groups, that some lane sees.
  static stripe_keys seen_keys(const scratch& s, stripe_keys keys) {
    int begin = tile_keys, end = 0;
    for (int n = 0; n * group_keys < keys.count; ++n) {
      Word any = 0;
      for (int i = 0; i < lanes; ++i) any |= s.of_numbers.bits[n * lanes + i];
      if ((any & bit_range(0, keys.count - n * group_keys)) == 0) continue;
      if (n * group_keys < begin) begin = n * group_keys;
      end = (n + 1) * group_keys;
    }
    keys.begin = begin < end ? begin : 0;
    keys.count = end <= begin ? 0 : (end < keys.count ? end : keys.count) - begin;
    return keys;
  }

  /// The tiles of a chunk that some lane sees, one after another.
  struct walk {
    const block_job& job;
    const scratch& s;
    std::int64_t first, end;
    const lane_bounds bounds = bounds_of(job.lanes);
    stripe_keys keys{};
    bool masked = false;

    /// The next tile, and what stands beside it; what stood beside the one before is gone.
    bool next() {
      for (; first < end; first += tile_keys) {
        const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
        const tile_kind tile = base::tile_at(job, bounds, first, count);
        if (tile.kind == tile_class::skip) continue;
        base::read_beside(job, s.of_numbers, first, count, tile);
        masked = tile.kind == tile_class::partial;
        keys = stripe_keys{0, count, nullptr, nullptr, nullptr, first};
        if (masked) keys = seen_keys(s, keys);
        if (keys.count == 0) continue;
        first += tile_keys;
        return true;
      }
      return false;
    }
  };

  static void chunk(const block_job& job, std::int64_t begin, std::int64_t end, partial_sums* memory) {
    const sums result = base::sums_of(memory, job.value_width);
    const scratch s = scratch_of(job);
    const packed from(const_cast<void*>(job.packed), shape_of(job), chunk_keys);
    base::clear(job, result);
    walk tiles{job, s, begin, end};
    if (begin == end || !tiles.next()) return;
    const int normalizer = static_cast<int>(job.normalizer);
    const bool late = job.step_count == 0;  // steps read scores that have their scale
    const T scale = late ? scale_of(job).scores : T{1};
    const weigh_function make_weights = weights_for(job, scale != 1);
    Products products;
    work meanwhile(products);
    meanwhile.start(scores_of(job, s, from, tiles.keys, begin));
    for (int tile = 0;; ++tile) {
      const stripe_keys keys = tiles.keys;
      std::uint32_t* const weights = s.weights[tile % 2];
      meanwhile.finish_scores();
      adjust(job, s, keys, late);
      (tiles.masked ? raises<true> : raises<false>)[normalizer](job, s, keys, scale, result, meanwhile);
      const bool more = tiles.next(), unusual = holds_unusual(from, keys, begin);
      const bool in_place =
          more && !unusual && keys.begin == 0 && tiles.keys.begin == 0 && groups_of(tiles.keys) <= groups_of(keys);
      if (in_place) meanwhile.start(scores_of(job, s, from, tiles.keys, begin));
      make_weights(job, s, keys, scale, result, weights, meanwhile);
      if (unusual) add_unusual(job, s, keys, weights, result.out);
      meanwhile.start(values_of(job, from, keys, begin, weights, result.out));
      if (!more) break;
      if (!in_place) meanwhile.start(scores_of(job, s, from, tiles.keys, begin));
    }
    meanwhile.finish();
  }

  /// Writes what `make` leaves in the scores of every tile; see forward.
  template <class Make>
  static void write(const block_job& job, std::int64_t begin, std::int64_t end, bool masked, T skipped, const Make& make) {
    const scratch s = scratch_of(job);
    const packed from(const_cast<void*>(job.packed), shape_of(job), chunk_keys);
    Products products;
    work meanwhile(products);
    base::write_tiles(
        job, s.of_numbers, begin, end, masked, skipped,
        [&](std::int64_t first, int count, tile_kind tile) { base::read_beside(job, s.of_numbers, first, count, tile); },
        [&](const stripe_keys& keys) {
          meanwhile.start(scores_of(job, s, from, keys, begin));
          meanwhile.finish();
          adjust(job, s, keys, false);
        },
        make);
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
