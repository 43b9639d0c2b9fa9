// The two products of forward_pairs, in two forms that read and write the same memory: tiles (AMX), and vectors of pairs (AVX512_BF16).
// Rows of scores and sums are a block's lanes long.
//
// A product is cut into steps, which are taken one at a time among the vector instructions of the softmax: a tile unit works beside them, and
// what it waits for (its own latency, the second-level cache) passes meanwhile.

/// 16 keys as products read them: rows of pairs, `step` bytes apart, zeros behind the last column.
struct key_tile {
  const char* at;
  std::int64_t step;
};

/// Rows of values, packed: for every 32 keys and 16 columns, 16 rows of the 32 keys of a column.
inline constexpr int group_keys = 32, tile_columns = 16;
inline constexpr std::int64_t row_bytes = 64, tile_bytes = 16 * row_bytes;

/// scores[key][lane] = K Q^T for `groups` times 32 keys; queries [pair][lane], `blocks` times 16 pairs.
struct score_product {
  const key_tile* keys;
  int groups;
  const std::uint32_t* queries;
  std::int64_t blocks;
  float* scores;
  std::int64_t done = 0;  // blocks of the keys that are next
};

/// out[column][lane] += V^T W for `groups` times 32 keys; weights [pair of keys][lane], `blocks` times 16 columns.
struct value_product {
  const char* values;
  int groups;
  const std::uint32_t* weights;
  std::int64_t blocks;
  float* out;
  std::int64_t group_bytes;
  int done = 0;  // groups of the columns that are next
};

template <class S, class Unit>
struct tile_products {
  static constexpr int vectors = S::block_vectors;
  static_assert(vectors == 4 && S::width == 16);
  static constexpr std::int64_t lanes = S::width * vectors, lane_bytes = lanes * 4;

  Unit unit;

  static int steps(const score_product& of) { return group_keys / 16 * of.groups * static_cast<int>(of.blocks); }
  static int steps(const value_product& of) { return of.groups * static_cast<int>(of.blocks); }

  /// 16 keys by 32 pairs of columns; scores are there once all blocks are.
  [[gnu::always_inline]] inline void step(score_product& of) {
    if (of.done == 0) {
      unit.template zero<0>();
      unit.template zero<1>();
      unit.template zero<2>();
      unit.template zero<3>();
    }
    multiply(of.keys->at + of.done * row_bytes, of.keys->step, of.queries + of.done * 16 * lanes);
    if (++of.done < of.blocks) return;
    store(of.scores);
    of.done = 0;
    ++of.keys;
    of.scores += 16 * lanes;
  }

  /// 16 columns by 32 keys; sums are there once all groups are.
  [[gnu::always_inline]] inline void step(value_product& of) {
    if (of.done == 0) {
      unit.template load<0>(of.out, lane_bytes);
      unit.template load<1>(of.out + 16, lane_bytes);
      unit.template load<2>(of.out + 32, lane_bytes);
      unit.template load<3>(of.out + 48, lane_bytes);
    }
    multiply(of.values + of.done * of.group_bytes, row_bytes, of.weights + of.done * 16 * lanes);
    if (++of.done < of.groups) return;
    store(of.out);
    of.done = 0;
    of.values += tile_bytes;
    of.out += tile_columns * lanes;
  }

 private:
  /// Sums of all lanes += a b. `a` comes from the second-level cache, `b` from the first.
  [[gnu::always_inline]] inline void multiply(const char* a, std::int64_t step, const std::uint32_t* b) {
    unit.template load<4>(a, step);
    unit.template load<5>(b, lane_bytes);
    unit.template multiply<0, 4, 5>();
    unit.template load<6>(b + 16, lane_bytes);
    unit.template multiply<1, 4, 6>();
    unit.template load<7>(b + 32, lane_bytes);
    unit.template multiply<2, 4, 7>();
    unit.template load<5>(b + 48, lane_bytes);
    unit.template multiply<3, 4, 5>();
  }
  [[gnu::always_inline]] inline void store(float* to) {
    unit.template store<0>(to, lane_bytes);
    unit.template store<1>(to + 16, lane_bytes);
    unit.template store<2>(to + 32, lane_bytes);
    unit.template store<3>(to + 48, lane_bytes);
  }
};

template <class S>
struct vector_products {
  static constexpr int vectors = S::block_vectors, rows = S::micro_rows;
  static constexpr std::int64_t lanes = S::width * vectors;
  static_assert(group_keys % rows > 0 && tile_columns % rows > 0);
  using V = typename S::V;
  using P = typename S::P;

  template <int Rows>
  [[gnu::always_inline]] static inline void score_rows(const char* const* keys, const std::uint32_t* queries,
                                                       std::int64_t pairs, float* scores) {
    V sum[Rows][vectors];
    for (int r = 0; r < Rows; ++r) {
      for (int j = 0; j < vectors; ++j) sum[r][j] = S::set(0);
    }
    for (std::int64_t p = 0; p < pairs; ++p, queries += lanes) {
      P q[vectors];
      for (int j = 0; j < vectors; ++j) q[j] = S::load_pairs(queries + j * S::width);
      for (int r = 0; r < Rows; ++r) {
        const P key = S::set_pair(keys[r] + 4 * p);
        for (int j = 0; j < vectors; ++j) sum[r][j] = S::multiply_pairs(sum[r][j], key, q[j]);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (int j = 0; j < vectors; ++j) S::store(scores + r * lanes + j * S::width, sum[r][j]);
    }
  }

  static int steps(const score_product& of) { return of.groups; }
  static int steps(const value_product& of) { return static_cast<int>(of.blocks); }

  /// 32 keys.
  [[gnu::noinline]] void step(score_product& of) {
    const char* at[group_keys];
    for (int r = 0; r < group_keys; ++r) at[r] = of.keys[r / 16].at + r % 16 * of.keys[r / 16].step;
    int r = 0;
    for (; r + rows <= group_keys; r += rows) score_rows<rows>(at + r, of.queries, 16 * of.blocks, of.scores + r * lanes);
    score_rows<group_keys % rows>(at + r, of.queries, 16 * of.blocks, of.scores + r * lanes);
    of.keys += group_keys / 16;
    of.scores += group_keys * lanes;
  }

  template <int Columns>
  [[gnu::always_inline]] static inline void value_columns(const char* values, int groups, std::int64_t group_bytes,
                                                          const std::uint32_t* weights, float* out) {
    V sum[Columns][vectors];
    for (int c = 0; c < Columns; ++c) {
      for (int j = 0; j < vectors; ++j) sum[c][j] = S::load(out + c * lanes + j * S::width);
    }
    for (int n = 0; n < groups; ++n, values += group_bytes) {
      for (int p = 0; p < group_keys / 2; ++p, weights += vectors * S::width) {
        P w[vectors];
        for (int j = 0; j < vectors; ++j) w[j] = S::load_pairs(weights + j * S::width);
        for (int c = 0; c < Columns; ++c) {
          const P value = S::set_pair(values + c * row_bytes + 4 * p);
          for (int j = 0; j < vectors; ++j) sum[c][j] = S::multiply_pairs(sum[c][j], value, w[j]);
        }
      }
    }
    for (int c = 0; c < Columns; ++c) {
      for (int j = 0; j < vectors; ++j) S::store(out + c * lanes + j * S::width, sum[c][j]);
    }
  }

  /// 16 columns.
  [[gnu::noinline]] void step(value_product& of) {
    int c = 0;
    for (; c + rows <= tile_columns; c += rows)
      value_columns<rows>(of.values + c * row_bytes, of.groups, of.group_bytes, of.weights, of.out + c * lanes);
    value_columns<tile_columns % rows>(of.values + c * row_bytes, of.groups, of.group_bytes, of.weights, of.out + c * lanes);
    of.values += tile_bytes;
    of.out += tile_columns * lanes;
  }
};
