// few_queries: columns are lanes. For decoding, where a block has at most few_queries_rows rows (queries x heads of a group):
// the time is that of reading K and V once, so every row of keys meets all queries while it is in a register or in L1.
//
//   queries  [rows][E padded]      scores  [rows][tile_keys]      O  [rows][Ev padded]      m, l  [rows]
//
// Scores: 4 keys x few_score_rows queries of dot products at a time, summed across lanes four at once. Values: few_value_rows
// x few_vectors sums over a few keys that stay in L1 while all rows meet them. Tiles are long, so that K and then V are read
// in long straight runs: each change of direction costs the hardware's prefetching a new start. A row's numbers do not depend
// on how many rows share the block. Benchmark: attend bench --filter decode.

template <class S>
struct few_queries : few_rows<S> {
  using base = few_rows<S>;
  using base::adjust_row, base::continue_rows, base::final_rows, base::load, base::padded_columns, base::partial_bytes,
      base::score, base::scratch_bytes, base::scratch_of, base::sums_of, base::tile_at, base::total_bytes;
  using base::chunk_keys, base::prefetch_keys, base::rows, base::tile_keys, base::value_keys, base::width;
  using typename base::scratch, typename base::sums, typename base::T, typename base::V;

  /// What a pass over some keys asks for of as many rows to come: beside key j of [begin, end), lines of row[j].
  struct pass_ahead {
    const void* const* row;
    std::int64_t offset;  // bytes
    int lines, begin, end;
  };

  /// The share of pass `p` of `passes` in `lines` lines from `offset` on of `count` rows: a part of every row, or all of one part of some.
  static pass_ahead share_of_pass(const void* const* row, std::int64_t offset, int lines, int count, int p, int passes) {
    if (lines == 0) return {row, 0, 0, 0, 0};
    if (passes <= lines) {
      const int first = lines * p / passes, end = lines * (p + 1) / passes;
      return {row, offset + first * 64, end - first, 0, count};
    }
    const int parts = passes / lines, part = p / lines;  // of rows
    if (part >= parts) return {row, 0, 0, 0, 0};
    return {row, offset + p % lines * 64, 1, count * part / parts, count * (part + 1) / parts};
  }

  /// Vectors of a row from a column on that is a multiple of theirs, or of a group of codes; the last of them has `rest` columns.
  template <class Row, int Vectors>
  [[gnu::always_inline]] static inline void load_values(const row_reader<S, Row>& row, std::int64_t column, int rest,
                                                        V (&value)[Vectors]) {
    auto group = row.group(column);
    for (int c = 0; c < Vectors; ++c) {
      const std::int64_t at = column + c * width;
      if (is_codes<Row> && c > 0 && c * width % group_columns == 0) group = row.group(at);
      if constexpr (is_codes<Row>)
        value[c] = group.load(at);
      else
        value[c] = c < Vectors - 1 || rest == width ? row.load(at) : row.load_first(at, rest);
    }
  }

  /// sums[r][0..Vectors x width) += the sum of weights[r][key] * v_rows[key] over `count` keys, or becomes it where they are a tile's first.
  /// The last vector has `rest` columns, which V must not be read past.
  template <class Row, int Rows, int Vectors, bool marked, bool whole, bool asks>
  static void value_columns(const void* const* v_rows, std::int64_t columns, const T* weights, int count, std::int64_t column,
                            int rest, bool first, T* sums_, std::int64_t step, const pass_ahead& ahead) {
    V sum[Rows][Vectors];
    for (int r = 0; r < Rows; ++r) {
      for (int c = 0; c < Vectors; ++c) sum[r][c] = S::set(0);
    }
    for (int j = 0; j < count; ++j) {
      if (asks && j >= ahead.begin && j < ahead.end) {
        const char* const at = static_cast<const char*>(ahead.row[j]) + ahead.offset;
        for (int n = 0; n < ahead.lines; ++n) ask_for(at + n * 64);
        if (is_codes<Row> && column == 0) ask_for(static_cast<const char*>(ahead.row[j]) + row_bytes<Row>(columns) - 1);
      }
      const row_reader<S, Row> v(v_rows[j], columns);
      V value[Vectors];
      load_values<Row, Vectors>(v, column, whole ? width : rest, value);
      for (int r = 0; r < Rows; ++r) {
        const T weight = weights[r * tile_keys + j];
        if (marked && weight == -infinity<T>) continue;
        const V w = S::set(weight);
        for (int c = 0; c < Vectors; ++c) sum[r][c] = S::fma(value[c], w, sum[r][c]);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (int c = 0; c < Vectors; ++c) {
        T* const at = sums_ + r * step + c * width;
        S::store(at, first ? sum[r][c] : S::load(at) + sum[r][c]);
      }
    }
  }

  /// Columns [column, column + Vectors x width) of some rows as numbers in `s.few_v`, to which `numbers` points; asks for as many rows to come.
  template <class Row, int Vectors>
  static void convert_values(const block_job& job, const scratch& s, const void* const* v_rows, int count, std::int64_t column,
                             int rest, const void** numbers) {
    T* to = s.few_v;
    for (int j = 0; j < count; ++j, to += Vectors * width) {
      const char* const ahead = static_cast<const char*>(v_rows[prefetch_keys + j]) + bytes_before<Row>(column);
      for (std::int64_t d = 0; column % line<Row> == 0 && d < Vectors * width; d += line<Row>)
        ask_for(ahead + bytes_before<Row>(d));
      const row_reader<S, Row> row(v_rows[j], job.value_width);
      V value[Vectors];
      load_values<Row, Vectors>(row, column, rest, value);
      for (int c = 0; c < Vectors; ++c) S::store(to + c * width, value[c]);
      numbers[j] = to;
    }
  }

  template <class Row, int Vectors, bool marked>
  static void value_rows(const block_job& job, const scratch& s, int begin, int count, std::int64_t column) {
    const std::int64_t step = padded_columns(job.value_width), left = job.value_width - column - (Vectors - 1) * width;
    const int rest = left < width ? static_cast<int>(left) : width;
    const void* const* const v_rows = s.v_rows + begin;
    if (base::template converts<Row>(job, S::few_value_rows)) {
      const void* numbers[value_keys];
      convert_values<Row, Vectors>(job, s, v_rows, count, column, rest, numbers);
      const auto some_rows = [&]<int Rows>(int r) {
        value_columns<T, Rows, Vectors, marked, true, false>(numbers, Vectors * width, s.scores + r * tile_keys + begin, count,
                                                             0, width, begin == 0, s.tile_out + r * step + column, step, {});
      };
      int r = 0;
      for (; r + S::few_value_rows <= job.lanes.count; r += S::few_value_rows)
        some_rows.template operator()<S::few_value_rows>(r);
      for (; r < job.lanes.count; ++r) some_rows.template operator()<1>(r);
      return;
    }
    const int passes = (job.lanes.count + S::few_value_rows - 1) / S::few_value_rows;
    const int lines = column % line<Row> == 0 ? (Vectors * width + line<Row> - 1) / line<Row> : 0;
    const auto some_rows = [&]<int Rows, bool whole, bool asks = true>(int r) {
      const pass_ahead next =
          share_of_pass(v_rows + prefetch_keys, bytes_before<Row>(column), lines, count, r / S::few_value_rows, passes);
      value_columns<Row, Rows, Vectors, marked, whole, asks>(v_rows, job.value_width, s.scores + r * tile_keys + begin, count,
                                                             column, rest, begin == 0, s.tile_out + r * step + column, step,
                                                             next);
    };
    int r = 0;
    for (; r + S::few_value_rows <= job.lanes.count; r += S::few_value_rows) {
      rest == width ? some_rows.template operator()<S::few_value_rows, true>(r)
                    : some_rows.template operator()<S::few_value_rows, false>(r);
    }
    for (; r < job.lanes.count; ++r) {
      rest == width ? some_rows.template operator()<1, true>(r) : some_rows.template operator()<1, false>(r);
    }
  }

  /// out[r] = out[r] * rescale[r] + the tile's weighted sum of values, or that sum where nothing precedes it.
  template <class Row, bool marked>
  static void value_tile(const block_job& job, const scratch& s, int count, const T* rescale, bool first, T* out) {
    const std::int64_t columns = padded_columns(job.value_width);
    for (int begin = 0; begin < count; begin += value_keys) {
      const int some = count - begin < value_keys ? count - begin : value_keys;
      std::int64_t column = 0;
      for (; column + S::few_vectors * width <= columns; column += S::few_vectors * width) {
        value_rows<Row, S::few_vectors, marked>(job, s, begin, some, column);
      }
      if (S::few_vectors > 4 && column + 4 * width <= columns) {
        value_rows<Row, 4, marked>(job, s, begin, some, column);
        column += 4 * width;
      }
      if (column + 2 * width <= columns) {
        value_rows<Row, 2, marked>(job, s, begin, some, column);
        column += 2 * width;
      }
      if (column < columns) value_rows<Row, 1, marked>(job, s, begin, some, column);
    }
    for (int r = 0; r < job.lanes.count; ++r) {
      const V shrink = S::set(rescale[r]);
      for (std::int64_t c = r * columns; c < (r + 1) * columns; c += width) {
        const V sum = S::load(s.tile_out + c);
        S::store(out + c, first ? sum : S::fma(S::load(out + c), shrink, sum));
      }
    }
  }

  template <bool marked>
  static void fold_keys(const block_job& job, std::int64_t begin, std::int64_t end, const sums& result) {
    const scratch s = scratch_of(job);
    const lane_bounds bounds = bounds_of(job.lanes);
    T rescale[rows];
    const T none = normal::start<S>(job);
    bool first_tile = true;
    for (int r = 0; r < job.lanes.count; ++r) {
      result.maximum[r] = none;
      result.denominator[r] = 0;
    }
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_kind tile = tile_at(job, bounds, first, count);
      if (tile.kind == tile_class::skip) continue;
      read_rows<S>(job, s, first, count);
      continue_rows(job, s, first, count, end);
      score(job, s, count);
      for (int r = 0; r < job.lanes.count; ++r) {
        adjust_row(job, s, r, first, count, tile);
        rescale[r] = base::template weigh_rows<marked>[static_cast<int>(job.normalizer)](
            s.scores + r * tile_keys, count, result.maximum[r], result.denominator[r]);
        if (job.dropout.given) base::template drop_row<marked>(job, s, r, first, count);
      }
      if (job.pack_v)
        value_tile<T, marked>(job, s, count, rescale, first_tile, result.out);
      else
        with_row_type<T>(job.v_stored,
                         [&]<class Row>(Row*) { value_tile<Row, marked>(job, s, count, rescale, first_tile, result.out); });
      first_tile = false;
    }
    if (!first_tile) return;
    for (std::int64_t i = 0; i < job.lanes.count * padded_columns(job.value_width); ++i) result.out[i] = 0;
  }

  static void chunk(const block_job& job, std::int64_t begin, std::int64_t end, partial_sums* memory) {
    const sums result = sums_of(memory, job.value_width);
    fold_keys<false>(job, begin, end, result);
    // As in forward: where a sum is not finite, an excluded value may have leaked in.
    if (!all_finite<S, 1>(result.out, job.lanes.count * padded_columns(job.value_width)))
      fold_keys<true>(job, begin, end, result);
  }

  template <template <class> class Normal>
  static void fold_partials(const block_job& job, partial_sums* total, const partial_sums* next) {
    const sums a = sums_of(total, job.value_width), b = sums_of(const_cast<partial_sums*>(next), job.value_width);
    const sums rest = sums_of(static_cast<char*>(total) + partial_bytes(shape_of(job)), job.value_width);
    const std::int64_t columns = padded_columns(job.value_width);
    alignas(64) T own[width], other[width], m[width];
    for (int r = 0; r < job.lanes.count; ++r) {
      const V ma = S::set(a.maximum[r]), mb = S::set(b.maximum[r]);
      const V larger = S::max(ma, mb), base = Normal<S>::base(larger);
      S::store(m, larger);
      S::store(own, Normal<S>::shrink(ma, base));
      S::store(other, Normal<S>::shrink(mb, base));
      a.maximum[r] = m[0];
      fold_elements(a.denominator + r, rest.denominator + r, b.denominator + r, 1, own, other, 1);
      const std::int64_t row = r * columns;
      fold_elements(a.out + row, rest.out + row, b.out + row, columns, own, other, width);
    }
  }

  using fold_function = void (*)(const block_job&, partial_sums*, const partial_sums*);
  static constexpr fold_function folds[] = {
#define ATTEND_NORMALIZER(f) fold_partials<normal::f>,
#include "kernels/functions.def"
  };
  static void fold(const block_job& job, partial_sums* total, const partial_sums* next) {
    folds[static_cast<int>(job.normalizer)](job, total, next);
  }

  static void take_rows(const block_job& job, const partial_sums* of_all, int first, int count, partial_sums* to) {
    const sums all = sums_of(const_cast<partial_sums*>(of_all), job.value_width), own = sums_of(to, job.value_width);
    const std::int64_t columns = padded_columns(job.value_width);
    __builtin_memcpy(own.out, all.out + first * columns, static_cast<std::size_t>(count * columns) * sizeof(T));
    for (int r = 0; r < count; ++r) {
      own.maximum[r] = all.maximum[first + r];
      own.denominator[r] = all.denominator[first + r];
    }
  }

  static void totals(const block_job& job, const partial_sums* memory, double* maximum, double* denominator) {
    const sums result = sums_of(const_cast<partial_sums*>(memory), job.value_width);
    for (int r = 0; r < job.lanes.count; ++r) {
      maximum[r] = static_cast<double>(result.maximum[r]);
      denominator[r] = static_cast<double>(result.denominator[r]);
    }
  }

  /// Columns [first, first + count) of a result's row; -0 becomes 0.
  static void write_row(const block_job& job, void* row, std::int64_t first, std::int64_t step, std::int64_t count,
                        const T* from, T factor) {
    with_input_type<T>(job.stored, [&]<class To>(To*) {
      To* const to = static_cast<To*>(row) + first * step;
      std::int64_t c = 0;
      if (step == 1) {
        for (; c + width <= count; c += width) S::store(to + c, S::load(from + c) * S::set(factor) + S::set(0));
      }
      for (; c < count; ++c) write(to + c * step, static_cast<To>(from[c] * factor + T{0}));
    });
  }

  static void finish(const block_job& job, const partial_sums* memory, const double* factors) {
    const sums result = sums_of(const_cast<partial_sums*>(memory), job.value_width);
    for (int r = 0; r < job.lanes.count; ++r) {
      const T* const sums_of_row = result.out + r * padded_columns(job.value_width);
      write_row(job, job.lanes.out[r], 0, job.out_column, job.value_width, sums_of_row, static_cast<T>(factors[r]));
    }
  }

  /// Writes what `make` leaves in the scores of each row for keys [begin, end), and `skipped` where a tile is skipped.
  template <class Make>
  static void write_rows(const block_job& job, std::int64_t begin, std::int64_t end, bool masked, T skipped, const Make& make) {
    const scratch s = scratch_of(job);
    const lane_bounds bounds = bounds_of(job.lanes);
    for (std::int64_t first = begin; first < end; first += tile_keys) {
      const int count = end - first < tile_keys ? static_cast<int>(end - first) : tile_keys;
      const tile_kind tile = masked ? tile_at(job, bounds, first, count) : tile_kind{tile_class::full, false, false};
      if (tile.kind != tile_class::skip) {
        read_rows<S>(job, s, first, count);
        continue_rows(job, s, first, count, end);
        score(job, s, count);
      }
      for (int r = 0; r < job.lanes.count; ++r) {
        T* const scores = s.scores + r * tile_keys;
        if (tile.kind == tile_class::skip) {
          for (int j = 0; j < count; ++j) scores[j] = skipped;
        } else {
          adjust_row(job, s, r, first, count, tile);
          make(s, r, first, count);
        }
        write_row(job, job.lanes.pairs[r], first, job.pairs_step, count, scores, T{1});
      }
    }
  }

  /// From the scores that the sums were made of: another order of theirs would not fit the maximum.
  static void weights(const block_job& job, std::int64_t begin, std::int64_t end, const double* maximum, const double* factor) {
    write_rows(job, begin, end, true, T{0}, [&](const scratch& s, int r, std::int64_t first, int count) {
      final_rows[static_cast<int>(job.normalizer)](s.scores + r * tile_keys, count, static_cast<T>(maximum[r]),
                                                   static_cast<T>(factor[r]));
      if (job.dropout.given) base::template drop_row<false>(job, s, r, first, count);
    });
  }

  static void scores(const block_job& job, std::int64_t begin, std::int64_t end, bool masked) {
    write_rows(job, begin, end, masked, -infinity<T>, [](const scratch&, int, std::int64_t, int) {});
  }

  static tile_class mask_class(const lane_map& map, std::int64_t mask_step, std::int64_t first, int count) {
    return mask_class_of<S>(map, mask_step, first, count);
  }

  static constexpr kernel row{rows,   tile_keys, chunk_keys, scratch_bytes, partial_bytes, total_bytes, load, chunk,    fold,
                              totals, finish,    weights,    scores,        mask_class,    {},          {},   take_rows};
};
