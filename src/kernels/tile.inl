// What both kernels do around a tile: rows of keys and values, and which lanes see which key.

// Elements of the caller's arrays may lie at any address (a memory-mapped file), so they are moved as bytes. Micro-kernels read
// whole rows in place: where those are not aligned to their elements, `pack_k` and `pack_v` ask for a gathered copy of the tile.
template <class T>
[[gnu::always_inline]] static inline T read(const T* from) {
  T x;
  __builtin_memcpy(&x, from, sizeof x);
  return x;
}
template <class T>
[[gnu::always_inline]] static inline void write(T* to, T x) {
  __builtin_memcpy(to, &x, sizeof x);
}

/// Row pointers of the keys [first, first + count).
template <class T>
static void key_rows(const key_source& keys, std::int64_t first, int count, const T** k_rows, const T** v_rows) {
  for (int done = 0; done < count;) {
    const key_run run = keys.run(keys, first + done);
    const int some = run.count < count - done ? static_cast<int>(run.count) : count - done;
    for (int i = 0; i < some; ++i) {
      k_rows[done + i] = static_cast<const T*>(run.k) + i * run.k_step;
      v_rows[done + i] = static_cast<const T*>(run.v) + i * run.v_step;
    }
    done += some;
  }
}

/// Gathers a tile's rows into `packed` and points there.
template <class T>
static void gather_rows(const T** rows, int count, std::int64_t width, std::int64_t column, T* packed) {
  for (int i = 0; i < count; ++i, packed += width) {
    for (std::int64_t d = 0; d < width; ++d) packed[d] = read(rows[i] + d * column);
    rows[i] = packed;
  }
}

/// One word per key, one bit per lane: set where intervals and the boolean mask allow the pair. Lanes past the count stay 0.
static void allowed_bits(const block_job& job, std::int64_t first, int count, std::uint64_t* bits) {
  const lane_map& lanes = job.lanes;
  for (int j = 0; j < count; ++j) bits[j] = 0;
  for (int lane = 0; lane < lanes.count; ++lane) {
    const std::uint64_t bit = std::uint64_t{1} << lane;
    const auto clip = [first, count](std::int64_t key) {
      const std::int64_t at = key - first;
      return static_cast<int>(at < 0 ? 0 : at > count ? count : at);
    };
    const int prefix_end = clip(lanes.prefix_end[lane]), end = clip(lanes.end[lane]);
    int begin = clip(lanes.begin[lane]);
    if (begin < prefix_end) begin = prefix_end;
    if (!job.has_mask) {
      for (int j = 0; j < prefix_end; ++j) bits[j] |= bit;
      for (int j = begin; j < end; ++j) bits[j] |= bit;
      continue;
    }
    const unsigned char* mask = lanes.mask[lane] + first * job.mask_step;
    const auto some = [&](int from, int to) {
      if (job.mask_step == 1) {
        for (int j = from; j < to; ++j) bits[j] |= static_cast<std::uint64_t>(mask[j] != 0) << lane;
      } else {
        for (int j = from; j < to; ++j) bits[j] |= static_cast<std::uint64_t>(mask[j * job.mask_step] != 0) << lane;
      }
    };
    some(0, prefix_end);
    some(begin, end);
  }
}

/// A score with its bias. A bias of -inf excludes the key: a selection, because NaN - inf would be NaN.
template <class S>
[[gnu::always_inline]] static inline typename S::V biased(typename S::V score, typename S::V bias) {
  const typename S::V excluded = S::set(-infinity<typename S::T>);
  return S::select(S::equal(bias, excluded), excluded, score + bias);
}

/// The bias of one lane for keys [first, first + count), converted, at `to` with a step of `step` elements.
template <class T>
static void bias_row(const block_job& job, int lane, std::int64_t first, int count, T* to, std::int64_t step) {
  const auto copy = [&](const auto* from) {
    from += first * job.bias_step;
    for (int j = 0; j < count; ++j) to[j * step] = static_cast<T>(read(from + j * job.bias_step));
  };
  if (job.bias_is_f32) copy(static_cast<const float*>(job.lanes.bias[lane]));
  else copy(static_cast<const double*>(job.lanes.bias[lane]));
}

static inline std::int64_t padded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Hands out aligned pieces of one block of memory; with no memory it only measures.
struct arena {
  char* at;
  std::int64_t used = 0;

  template <class T>
  T* take(std::int64_t count) {
    char* const piece = at ? at + used : nullptr;
    used += padded(count * static_cast<std::int64_t>(sizeof(T)));
    return reinterpret_cast<T*>(piece);
  }
};
