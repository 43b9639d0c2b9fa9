#include "caches.hpp"

#include <vector>

namespace generate {

namespace {

using clock = std::chrono::steady_clock;

/// An `attend::kv_cache` per layer; with a window a ring, whose size does not depend on the length of the text.
class contiguous_caches : public caches {
 public:
  contiguous_caches(const cache_sizes& sizes, const cache_options& how) : options_{.threads = how.threads} {
    for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
      caches_.emplace_back(attend::kv_cache_sizes{.kv_heads = sizes.kv_heads,
                                                  .capacity = how.window ? *how.window + most_tokens_at_a_time - 1 : how.tokens,
                                                  .dim = sizes.head_width,
                                                  .window = how.window,
                                                  .rotary = attend::rotary{.base = sizes.rotary_base}});
    }
  }

 private:
  void do_append(std::size_t layer, const attend::array_view& k, const attend::array_view& v) override {
    caches_[layer].append(k, v);
  }
  void do_decode(std::size_t layer, const attend::array_view& q, const attend::mutable_array_view& out) override {
    attend::decode(q, caches_[layer], {.out = out}, options_);
  }

  std::vector<attend::kv_cache> caches_;
  attend::options options_;
};

/// One pool of pages, in which every layer is a sequence. A window narrows what is seen; all tokens stay.
class paged_caches : public caches {
 public:
  paged_caches(const cache_sizes& sizes, const cache_options& how)
      : pool_({.pages = sizes.layers * ((how.tokens + page_size - 1) / page_size),
               .page_size = page_size,
               .kv_heads = sizes.kv_heads,
               .dim = sizes.head_width,
               .rotary = attend::rotary{.base = sizes.rotary_base}}),
        options_{.threads = how.threads} {
    if (how.window) options_.window = {*how.window - 1, 0};
    for (std::int64_t layer = 0; layer < sizes.layers; ++layer) sequences_.push_back(pool_.new_sequence());
  }

 private:
  static constexpr std::int64_t page_size = 16;

  /// One sequence has no batch axis.
  static attend::array_view without_batch(const attend::array_view& x) {
    return {x.data, x.type, {x.shape[1], x.shape[2], x.shape[3]}, {x.strides[1], x.strides[2], x.strides[3]}};
  }
  void do_append(std::size_t layer, const attend::array_view& k, const attend::array_view& v) override {
    pool_.append(sequences_[layer], without_batch(k), without_batch(v));
  }
  void do_decode(std::size_t layer, const attend::array_view& q, const attend::mutable_array_view& out) override {
    attend::decode(q, pool_, {&sequences_[layer], 1}, {.out = out}, options_);
  }

  attend::paged_kv_cache pool_;
  attend::options options_;
  std::vector<attend::sequence_id> sequences_;
};

}  // namespace

void caches::append(std::size_t layer, const attend::array_view& k, const attend::array_view& v) {
  const clock::time_point begin = clock::now();
  do_append(layer, k, v);
  time_ += clock::now() - begin;
}

void caches::decode(std::size_t layer, const attend::array_view& q, const attend::mutable_array_view& out) {
  const clock::time_point begin = clock::now();
  do_decode(layer, q, out);
  time_ += clock::now() - begin;
}

std::unique_ptr<caches> make_caches(const cache_sizes& sizes, const cache_options& how) {
  if (how.kind == cache_kind::paged) return std::make_unique<paged_caches>(sizes, how);
  return std::make_unique<contiguous_caches>(sizes, how);
}

}  // namespace generate
