// The two products of forward_pairs, in two forms that read and write the same memory: tiles (AMX), and vectors of pairs (AVX512_BF16).
// A stripe has `vectors` vectors of lanes; rows of scores and sums are `lanes` floats apart.

/// 16 keys as products read them: rows of pairs, `step` bytes apart, zeros behind the last column.
struct key_tile {
  const char* at;
  std::int64_t step;
};

/// Rows of values, packed: for every 32 keys and 16 columns, 16 rows of the 32 keys of a column.
inline constexpr int group_keys = 32, tile_columns = 16;
inline constexpr std::int64_t row_bytes = 64, tile_bytes = 16 * row_bytes;

template <class S, class Unit>
struct tile_products {
  static constexpr int vectors = 2;
  static_assert(S::micro_vectors == vectors && S::width == 16);
  static constexpr std::int64_t lanes = S::width * S::block_vectors, lane_bytes = lanes * 4, weight_bytes = vectors * row_bytes;

  Unit unit;

  /// scores[key][lane] = K Q^T for `groups` times 32 keys; queries [pair][lane], `blocks` times 16 pairs.
  void scores(const key_tile* keys, int groups, const std::uint32_t* queries, std::int64_t blocks, float* scores) {
    for (int n = 0; n < groups; ++n, keys += 2, scores += group_keys * lanes) {
      unit.template zero<0>();
      unit.template zero<1>();
      unit.template zero<2>();
      unit.template zero<3>();
      const std::uint32_t* q = queries;
      for (std::int64_t b = 0; b < blocks; ++b, q += 16 * lanes) {
        unit.template load<4>(keys[0].at + b * row_bytes, keys[0].step);
        unit.template load<6>(q, lane_bytes);
        unit.template load<7>(q + 16, lane_bytes);
        unit.template load<5>(keys[1].at + b * row_bytes, keys[1].step);
        unit.template multiply<0, 4, 6>();
        unit.template multiply<1, 4, 7>();
        unit.template multiply<2, 5, 6>();
        unit.template multiply<3, 5, 7>();
      }
      unit.template store<0>(scores, lane_bytes);
      unit.template store<1>(scores + 16, lane_bytes);
      unit.template store<2>(scores + 16 * lanes, lane_bytes);
      unit.template store<3>(scores + 16 * lanes + 16, lane_bytes);
    }
  }

  /// out[column][lane] += V^T W for `groups` times 32 keys; weights [pair of keys][lane of the stripe], `blocks` times 16 columns.
  void values(const char* values, int groups, const std::uint32_t* weights, std::int64_t blocks, float* out) {
    const std::int64_t group_bytes = blocks * tile_bytes;
    std::int64_t b = 0;
    for (; b + 2 <= blocks; b += 2, values += 2 * tile_bytes, out += 2 * tile_columns * lanes) {
      float* const below = out + tile_columns * lanes;
      unit.template load<0>(out, lane_bytes);
      unit.template load<1>(out + 16, lane_bytes);
      unit.template load<2>(below, lane_bytes);
      unit.template load<3>(below + 16, lane_bytes);
      for (int n = 0; n < groups; ++n) {
        const std::uint32_t* const w = weights + n * 16 * vectors * S::width;
        unit.template load<4>(values + n * group_bytes, row_bytes);
        unit.template load<6>(w, weight_bytes);
        unit.template load<7>(w + 16, weight_bytes);
        unit.template load<5>(values + n * group_bytes + tile_bytes, row_bytes);
        unit.template multiply<0, 4, 6>();
        unit.template multiply<1, 4, 7>();
        unit.template multiply<2, 5, 6>();
        unit.template multiply<3, 5, 7>();
      }
      unit.template store<0>(out, lane_bytes);
      unit.template store<1>(out + 16, lane_bytes);
      unit.template store<2>(below, lane_bytes);
      unit.template store<3>(below + 16, lane_bytes);
    }
    if (b == blocks) return;
    unit.template load<0>(out, lane_bytes);
    unit.template load<1>(out + 16, lane_bytes);
    for (int n = 0; n < groups; ++n) {
      const std::uint32_t* const w = weights + n * 16 * vectors * S::width;
      unit.template load<4>(values + n * group_bytes, row_bytes);
      unit.template load<6>(w, weight_bytes);
      unit.template load<7>(w + 16, weight_bytes);
      unit.template multiply<0, 4, 6>();
      unit.template multiply<1, 4, 7>();
    }
    unit.template store<0>(out, lane_bytes);
    unit.template store<1>(out + 16, lane_bytes);
  }
};

template <class S>
struct vector_products {
  static constexpr int vectors = S::micro_vectors, rows = S::micro_rows;
  static constexpr std::int64_t lanes = S::width * S::block_vectors;
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

  void scores(const key_tile* keys, int groups, const std::uint32_t* queries, std::int64_t blocks, float* scores) {
    const int count = groups * group_keys;
    const char* at[3 * group_keys];
    for (int r = 0; r < count; ++r) at[r] = keys[r / 16].at + r % 16 * keys[r / 16].step;
    int r = 0;
    for (; r + rows <= count; r += rows) score_rows<rows>(at + r, queries, 16 * blocks, scores + r * lanes);
    for (; r + 2 <= count; r += 2) score_rows<2>(at + r, queries, 16 * blocks, scores + r * lanes);
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

  void values(const char* values, int groups, const std::uint32_t* weights, std::int64_t blocks, float* out) {
    const std::int64_t columns = blocks * tile_columns, group_bytes = blocks * tile_bytes;
    std::int64_t c = 0;
    for (; c + rows <= columns; c += rows)
      value_columns<rows>(values + c * row_bytes, groups, group_bytes, weights, out + c * lanes);
    for (; c + 2 <= columns; c += 2) value_columns<2>(values + c * row_bytes, groups, group_bytes, weights, out + c * lanes);
  }
};
