// Step 5, amx: both products on tiles of 16 x 16 sums, from pairs of bfloat16. Included by a unit, inside its namespace, after
//
//   tile_unit    one of the library's classes of tiles (src/simd/tiles.hpp): eight of 16 rows x 64 bytes; `multiply` adds
//                A (16 rows of 16 pairs) times B (16 rows, one per pair, of 16 lanes) to C (16 x 16 float32)
//   simd         one of its policies of vectors
//   store_pairs  two vectors of float32 as pairs of bfloat16, rounded to nearest
//   bf16         bfloat16 with the conversion from float32
//
//   queries  [2][width / 2][16 lanes] of pairs     B of scores: Q, two columns by two, once per block of 32 queries
//   scores   [tile_keys][32 lanes]                 K . Q^T; A are rows of K where they lie
//   weights  [2][tile_keys / 2][16 lanes] of pairs B of sums: two rows of scores make one row of pairs
//   values   [keys / 32][value_width][32 keys]     A of sums: V transposed, once per head, zeros behind the last key
//   last     [32 keys][width]                      the last keys, where they are fewer than 32, with zeros behind them
//   sums     [value_width][32 lanes]               V^T . weights
//
// Tiles 0 to 3 hold 2 x 2 sums, 4 and 5 two A, 6 and 7 two B: four products for four loads.

using vector = simd::V;

constexpr int tile_rows = 16, pair = 2, depth = 32;  // numbers that one product sums up
constexpr int block = 2 * tile_rows;                 // lanes
constexpr int tile_keys = 256;
constexpr int vectors = block / simd::width;
constexpr std::int64_t tile_step = depth * sizeof(bfloat16_bits), lanes_step = block * sizeof(float);

constexpr std::int64_t rounded_up(std::int64_t n) { return (n + depth - 1) / depth * depth; }

struct tile_memory {
  float *scores, *sums;
  std::uint32_t *queries[2], *weights[2];
  bfloat16_bits *values, *last;
  std::int64_t bytes;
};

/// Parts of the scratch; without any, their bytes alone.
tile_memory divide(const head<bfloat16_bits>& one, void* scratch) {
  char* const base = static_cast<char*>(scratch);
  tile_memory t;
  t.bytes = 0;
  const auto take = [&](std::int64_t bytes) {  // each part is a multiple of 64 bytes
    char* const part = base ? base + t.bytes : nullptr;
    t.bytes += bytes;
    return part;
  };
  t.scores = reinterpret_cast<float*>(take(tile_keys * lanes_step));
  t.sums = reinterpret_cast<float*>(take(one.value_width * lanes_step));
  for (auto& half : t.queries) half = reinterpret_cast<std::uint32_t*>(take(one.width / pair * tile_step));
  for (auto& half : t.weights) half = reinterpret_cast<std::uint32_t*>(take(tile_keys / pair * tile_step));
  t.values = reinterpret_cast<bfloat16_bits*>(take(rounded_up(one.keys) / depth * one.value_width * tile_step));
  t.last = reinterpret_cast<bfloat16_bits*>(take(one.width * tile_step));
  return t;
}

std::int64_t scratch_bytes(const head<bfloat16_bits>& one) { return divide(one, nullptr).bytes; }

void load_keys_and_values(const head<bfloat16_bits>& one, const tile_memory& t) {
  for (std::int64_t first = 0; first < one.keys; first += depth) {
    bfloat16_bits* const to = t.values + first * one.value_width;
    for (std::int64_t d = 0; d < one.value_width; ++d)
      for (std::int64_t j = 0; j < depth; ++j)
        to[d * depth + j] = first + j < one.keys ? one.v[(first + j) * one.value_width + d] : bfloat16_bits{0};
  }
  const std::int64_t whole = one.keys / depth * depth;
  for (std::int64_t n = 0; n < depth * one.width; ++n)
    t.last[n] = n < (one.keys - whole) * one.width ? one.k[whole * one.width + n] : bfloat16_bits{0};
}

void load_queries(const head<bfloat16_bits>& one, std::int64_t first, const tile_memory& t) {
  for (int lane = 0; lane < block; ++lane) {
    std::uint32_t* const to = t.queries[lane / tile_rows] + lane % tile_rows;
    for (std::int64_t d = 0; d < one.width / pair; ++d) {
      std::uint32_t both = 0;
      if (first + lane < one.queries) __builtin_memcpy(&both, one.q + (first + lane) * one.width + d * pair, sizeof both);
      to[d * tile_rows] = both;
    }
  }
}

/// Tiles 0 to 3 += A . B: 32 rows, 32 lanes, sums over `count` numbers. Rows of A are `a_step` bytes apart, and its next 32 columns
/// lie `a_next` numbers on.
[[gnu::always_inline]] inline void add_product(tile_unit& unit, const bfloat16_bits* a, std::int64_t a_step,
                                               std::int64_t a_next, std::uint32_t* const (&b)[2], std::int64_t count) {
  const bfloat16_bits* const lower = a + tile_rows * a_step / static_cast<std::int64_t>(sizeof *a);
  for (std::int64_t d = 0; d < count; d += depth) {
    const std::int64_t column = d / depth * a_next;
    unit.load<4>(a + column, a_step);
    unit.load<6>(b[0] + d / pair * tile_rows, tile_step);
    unit.load<7>(b[1] + d / pair * tile_rows, tile_step);
    unit.load<5>(lower + column, a_step);
    unit.multiply<0, 4, 6>();
    unit.multiply<1, 4, 7>();
    unit.multiply<2, 5, 6>();
    unit.multiply<3, 5, 7>();
  }
}

void store_block(tile_unit& unit, float* to) {
  unit.store<0>(to, lanes_step);
  unit.store<1>(to + tile_rows, lanes_step);
  unit.store<2>(to + tile_rows * block, lanes_step);
  unit.store<3>(to + tile_rows * block + tile_rows, lanes_step);
}

void load_block(tile_unit& unit, const float* from) {
  unit.load<0>(from, lanes_step);
  unit.load<1>(from + tile_rows, lanes_step);
  unit.load<2>(from + tile_rows * block, lanes_step);
  unit.load<3>(from + tile_rows * block + tile_rows, lanes_step);
}

/// Scores of keys [first, first + count), and -inf up to the next multiple of 32.
void fill_scores(tile_unit& unit, const head<bfloat16_bits>& one, const tile_memory& t, std::int64_t first,
                 std::int64_t count) {
  const std::int64_t row_step = one.width * static_cast<std::int64_t>(sizeof(bfloat16_bits));
  for (std::int64_t j = 0; j < count; j += depth) {
    const bfloat16_bits* const keys = j + depth <= count ? one.k + (first + j) * one.width : t.last;
    unit.zero<0>();
    unit.zero<1>();
    unit.zero<2>();
    unit.zero<3>();
    add_product(unit, keys, row_step, depth, t.queries, one.width);
    store_block(unit, t.scores + j * block);
  }
  for (std::int64_t n = count * block; n < rounded_up(count) * block; ++n) t.scores[n] = -infinity<float>;
}

/// Scores become weights, column by column, and the sums so far are multiplied by what the new maximum asks for.
void softmax_columns(const head<bfloat16_bits>& one, const tile_memory& t, std::int64_t count, vector (&maximum)[vectors],
                     vector (&total)[vectors]) {
  const vector factor = simd::set(one.scale * log2_of_e<float>);
  for (int n = 0; n < vectors; ++n) {
    const int lane = n * simd::width;
    const float* const column = t.scores + lane;
    vector largest = maximum[n];
    for (std::int64_t j = 0; j < count; ++j) largest = simd::max(largest, simd::load(column + j * block));
    const vector rescale = exp2_of<simd>((maximum[n] - largest) * factor);
    maximum[n] = largest;

    vector even = total[n] * rescale, odd = simd::set(0);
    std::uint32_t* const weights = t.weights[lane / tile_rows] + lane % tile_rows;
    for (std::int64_t j = 0; j < rounded_up(count); j += pair) {
      const vector first = exp2_of<simd>((simd::load(column + j * block) - largest) * factor);
      const vector second = exp2_of<simd>((simd::load(column + (j + 1) * block) - largest) * factor);
      even += first;
      odd += second;
      store_pairs(weights + j / pair * tile_rows, first, second);
    }
    total[n] = even + odd;

    if (simd::all(simd::equal(rescale, simd::set(1)))) continue;  // no maximum moved
    for (std::int64_t d = 0; d < one.value_width; ++d) {
      float* const sums = t.sums + d * block + lane;
      simd::store(sums, simd::load(sums) * rescale);
    }
  }
}

void add_values(tile_unit& unit, const head<bfloat16_bits>& one, const tile_memory& t, std::int64_t first, std::int64_t count) {
  for (std::int64_t d = 0; d < one.value_width; d += depth) {
    float* const sums = t.sums + d * block;
    load_block(unit, sums);
    add_product(unit, t.values + first * one.value_width + d * depth, tile_step, one.value_width * depth, t.weights, count);
    store_block(unit, sums);
  }
}

void store_results(const head<bfloat16_bits>& one, std::int64_t first, const float* sums, const vector (&total)[vectors]) {
  float inverse[block];
  for (int n = 0; n < vectors; ++n) simd::store(inverse + n * simd::width, simd::set(1) / total[n]);
  for (std::int64_t lane = 0; lane < block && first + lane < one.queries; ++lane)
    for (std::int64_t d = 0; d < one.value_width; ++d)
      one.y[(first + lane) * one.value_width + d] = bf16(sums[d * block + lane] * inverse[lane]).bits;
}

void run(const head<bfloat16_bits>& one, void* scratch) {
  const tile_memory t = divide(one, scratch);
  tile_unit unit;
  load_keys_and_values(one, t);
  for (std::int64_t first = 0; first < one.queries; first += block) {
    load_queries(one, first, t);
    vector maximum[vectors], total[vectors];
    for (int n = 0; n < vectors; ++n) maximum[n] = simd::set(-infinity<float>), total[n] = simd::set(0);
    for (std::int64_t n = 0; n < one.value_width * block; ++n) t.sums[n] = 0;

    for (std::int64_t key = 0; key < one.keys; key += tile_keys) {
      const std::int64_t count = one.keys - key < tile_keys ? one.keys - key : tile_keys;
      fill_scores(unit, one, t, key, count);
      softmax_columns(one, t, count, maximum, total);
      add_values(unit, one, t, key, count);
    }
    store_results(one, first, t.sums, total);
  }
}
