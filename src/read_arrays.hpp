// What a call reads, as far as results must not lie on it.
#pragma once

#include <string>

#include "checks.hpp"
#include "overlap.hpp"

namespace attend::detail {

/// Arrays that results must not overlap, by name.
class read_arrays {
 public:
  read_arrays(const array_view& q, const array_view& k, const array_view& v, const boundaries* packed, const options& how) {
    add("q", q);
    add("k", k);
    add("v", v);
    if (packed) {
      add("cu_seqlens_q", packed->queries);
      add(packed->keys_name, packed->keys);
    }
    add("query_offset", how.query_offset, integers_[0]);
    add("prefix", how.prefix, integers_[1]);
    add("key_lengths", how.key_lengths, integers_[2]);
    add("query_segments", how.query_segments);
    add("key_segments", how.key_segments);
    add("mask", how.mask);
    add("bias", how.bias);
    add("relative", how.relative);
    add("alibi", how.alibi.given());
    add("sinks", how.sinks);
    add("additive", how.compatibility.weights);
    for (const score_step& step : how.score) {
      add("score", step.numbers);
      add("score", step.slopes.given());
    }
  }

  /// One more, which has to live as long as this.
  void add(const char* name, const array_view& view) {
    if (!view) return;
    names_[count_] = name;
    views_[count_++] = &view;
  }

  /// Refuses a result that lies on one of them.
  void check(const char* name, const mutable_array_view& x) const {
    for (int i = 0; i < count_; ++i) {
      if (overlaps(x, *views_[i]))
        refuse(name, "memory apart from every input", std::string("an array that overlaps ") + names_[i]);
    }
  }

 private:
  void add(const char* name, const batch_integers& given, array_view& view) {
    if (given.is_array()) add(name, view = given.values());
  }

  static constexpr int most = 20 + 2 * score_list::max_size;
  const char* names_[most];
  const array_view* views_[most];
  array_view integers_[3];
  int count_ = 0;
};

}  // namespace attend::detail
