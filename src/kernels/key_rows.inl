// Rows of keys and values: where they lie, how they are read as vectors of numbers, and how a tile of them is gathered.

/// Row pointers of the keys [first, first + count).
static void key_rows(const key_source& keys, std::int64_t first, int count, const void** k_rows, const void** v_rows) {
  for (int done = 0; done < count;) {
    const key_run run = keys.run(keys, first + done);
    const int some = run.count < count - done ? static_cast<int>(run.count) : count - done;
    const std::int64_t k_bytes = run.k_step * keys.k_bytes, v_bytes = run.v_step * keys.v_bytes;
    for (int i = 0; i < some; ++i) {
      k_rows[done + i] = static_cast<const char*>(run.k) + i * k_bytes;
      v_rows[done + i] = static_cast<const char*>(run.v) + i * v_bytes;
    }
    done += some;
  }
}

/// A row of keys or values as vectors of numbers.
template <class S, class Row>
struct row_reader {
  row_reader(const void* row, std::int64_t) : at(static_cast<const Row*>(row)) {}
  [[gnu::always_inline]] typename S::V load(std::int64_t column) const { return S::load(at + column); }
  [[gnu::always_inline]] typename S::V load_first(std::int64_t column, int count) const {
    return S::load_first(at + column, count);
  }
  /// What reads the columns of the group that begins at `column`.
  [[gnu::always_inline]] row_reader group(std::int64_t) const { return *this; }
  const Row* at;
};

/// A number in bfloat16, the upper half of float32's bits.
[[gnu::always_inline]] static inline float read_scale(const bf16* from) {
  const std::uint32_t bits = std::uint32_t{read(from).bits} << 16;
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

/// Behind a row's last column stand codes, whose numbers do not matter, up to a full vector.
template <class S, class Codes>
struct codes_reader {
  [[gnu::always_inline]] typename S::V load(std::int64_t column) const {
    return static_cast<const Codes*>(this)->group(column).load(column);
  }
  [[gnu::always_inline]] typename S::V load_first(std::int64_t column, int) const { return load(column); }
};
template <class S>
struct row_reader<S, int8_codes> : codes_reader<S, row_reader<S, int8_codes>> {
  row_reader(const void* row, std::int64_t columns)
      : codes(static_cast<const signed char*>(row)), scales(reinterpret_cast<const bf16*>(codes + code_bytes(8, columns))) {}
  struct group_reader {
    [[gnu::always_inline]] typename S::V load(std::int64_t column) const { return S::load_int8(codes + column) * scale; }
    const signed char* codes;
    typename S::V scale;
  };
  [[gnu::always_inline]] group_reader group(std::int64_t column) const {
    return {codes, S::set(read_scale(scales + column / group_columns))};
  }
  const signed char* codes;
  const bf16* scales;
};
template <class S>
struct row_reader<S, int4_codes> : codes_reader<S, row_reader<S, int4_codes>> {
  row_reader(const void* row, std::int64_t columns)
      : codes(static_cast<const unsigned char*>(row)), scales(reinterpret_cast<const bf16*>(codes + code_bytes(4, columns))) {}
  struct group_reader {
    [[gnu::always_inline]] typename S::V load(std::int64_t column) const {
      const std::int64_t in_codes = column % padded_codes;
      return S::fma(S::load_int4(codes + (column - in_codes) / 2, static_cast<int>(in_codes)), scale, minimum);
    }
    const unsigned char* codes;
    typename S::V scale, minimum;
  };
  [[gnu::always_inline]] group_reader group(std::int64_t column) const {
    const bf16* const of_group = scales + column / group_columns * 2;
    return {codes, S::set(read_scale(of_group)), S::set(read_scale(of_group + 1))};
  }
  const unsigned char* codes;
  const bf16* scales;
};

/// Gathers rows of codes into `packed` as numbers.
template <class S, class Codes>
static void gather_codes(const void** rows, int count, std::int64_t width, typename S::T* packed) {
  for (int i = 0; i < count; ++i, packed += width) {
    const row_reader<S, Codes> row(rows[i], width);
    for (std::int64_t first = 0; first < width; first += group_columns) {
      const auto group = row.group(first);
      const std::int64_t end = first + group_columns < width ? first + group_columns : width;
      std::int64_t d = first;
      for (; d + S::width <= end; d += S::width) S::store(packed + d, group.load(d));
      if (d < end) S::store_first(packed + d, static_cast<int>(end - d), group.load(d));
    }
    rows[i] = packed;
  }
}

/// Gathers a tile's rows into `packed` as numbers of the accumulator, and points there.
template <class S, class From>
static void gather_rows(const void** rows, int count, std::int64_t width, std::int64_t column, typename S::T* packed) {
  using T = typename S::T;
  for (int i = 0; i < count; ++i, packed += width) {
    const From* const row = static_cast<const From*>(rows[i]);
    std::int64_t d = 0;
    if (column == 1 && sizeof(From) == sizeof(T)) {
      __builtin_memcpy(packed, row, static_cast<std::size_t>(width) * sizeof(T));
      d = width;
    } else if (column == 1) {
      for (; d + S::width <= width; d += S::width) S::store(packed + d, S::load(row + d));
    }
    for (; d < width; ++d) packed[d] = static_cast<T>(read(row + d * column));
    rows[i] = packed;
  }
}

/// Gathers the rows of a tile as numbers of the accumulator into `packed`, and points there.
template <class S>
static void gather(element stored, const void** rows, int count, std::int64_t width, std::int64_t column,
                   typename S::T* packed) {
  with_row_type<typename S::T>(stored, [&]<class From>(From*) {
    if constexpr (is_codes<From>)
      gather_codes<S, From>(rows, count, width, packed);
    else
      gather_rows<S, From>(rows, count, width, column, packed);
  });
}

/// Rows of keys alone, as they are, in packed_k. Of a job that packs keys.
template <class S, class Scratch>
static void read_keys(const block_job& job, const Scratch& s, std::int64_t first, int count) {
  key_rows(job.keys, first, count, s.k_rows, s.v_rows);
  gather<S>(job.k_stored, s.k_rows, count, job.width, job.keys.k_column, s.packed_k);
}

/// Row pointers of a tile, as micro-kernels read them: adjacent, aligned columns, brought to length 1 for cosine.
template <class S, class Scratch>
static void read_rows(const block_job& job, const Scratch& s, std::int64_t first, int count) {
  using T = typename S::T;
  key_rows(job.keys, first, count, s.k_rows, s.v_rows);
  if (job.pack_k) gather<S>(job.k_stored, s.k_rows, count, job.width, job.keys.k_column, s.packed_k);
  if (job.compatibility == compatibility_index::cosine) {
    for (int i = 0; i < count; ++i) unit_row<S>(s.packed_k + i * job.width, job.width);
  } else if (job.key_scale != 1) {
    const T factor = static_cast<T>(job.key_scale);
    for (std::int64_t i = 0; i < count * job.width; ++i) s.packed_k[i] *= factor;
  }
  if (job.pack_v) gather<S>(job.v_stored, s.v_rows, count, job.value_width, job.keys.v_column, s.packed_v);
}
