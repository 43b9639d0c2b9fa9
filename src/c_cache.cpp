// The C ABI of caches. A handle is the C++ object.
#include <algorithm>
#include <vector>

#include "attend/c.h"
#include "attend/kv_cache.hpp"
#include "c_convert.hpp"

using namespace attend::detail;  // the conversions

struct attend_cache {
  attend::kv_cache cache;
};
struct attend_paged_cache {
  attend::paged_kv_cache cache;
};

namespace {

std::optional<std::int64_t> optional_of(const std::int64_t* value) {
  return value ? std::optional<std::int64_t>(*value) : std::nullopt;
}

std::optional<attend::rotary> optional_rotary(const attend_rotary* given) {
  return given ? std::optional<attend::rotary>(read_rotary(given)) : std::nullopt;
}

attend::quantization read_quantization(const char* name, std::int32_t value) {
  constexpr int kinds = 3;
  static_assert(static_cast<int>(attend::quantization::int8) == ATTEND_INT8 &&
                static_cast<int>(attend::quantization::int4) == ATTEND_INT4 && ATTEND_INT4 == kinds - 1);
  return static_cast<attend::quantization>(read_word(name, value, kinds));
}

attend::batch_integers read_lengths(const attend_integers* lengths) {
  return lengths ? read_integers("lengths", *lengths) : attend::batch_integers();
}

}  // namespace

attend_status attend_cache_create(const attend_cache_sizes* sizes, attend_cache** cache) {
  return status_of([&] {
    attend_cache*& handle = needed("cache", cache);
    const attend_cache_sizes given = read_struct("sizes", &needed("sizes", sizes));
    check_reserved(given.reserved);
    handle =
        new attend_cache{attend::kv_cache({.batch = given.batch,
                                           .kv_heads = given.kv_heads,
                                           .capacity = given.capacity,
                                           .dim = given.dim,
                                           .value_dim = optional_of(given.value_dim),
                                           .type = read_dtype("dtype", given.dtype),
                                           .window = optional_of(given.window),
                                           .quantized_keys = read_quantization("quantized_keys", given.quantized_keys),
                                           .quantized_values = read_quantization("quantized_values", given.quantized_values),
                                           .rotary = optional_rotary(given.rotary)})};
  });
}

void attend_cache_destroy(attend_cache* cache) { delete cache; }

attend_status attend_cache_append(attend_cache* cache, const attend_array* k, const attend_array* v,
                                  const attend_integers* lengths) {
  return status_of([&] { needed("cache", cache).cache.append(read_array("k", k), read_array("v", v), read_lengths(lengths)); });
}

attend_status attend_cache_truncate(attend_cache* cache, const attend_integers* lengths) {
  return status_of([&] { needed("cache", cache).cache.truncate(read_lengths(lengths)); });
}

attend_status attend_cache_reset(attend_cache* cache) {
  return status_of([&] { needed("cache", cache).cache.reset(); });
}

attend_status attend_cache_lengths(const attend_cache* cache, std::int64_t* lengths) {
  return status_of([&] { std::ranges::copy(needed("cache", cache).cache.lengths(), &needed("lengths", lengths)); });
}

attend_status attend_decode(const attend_array* q, attend_cache* cache, const attend_results* results,
                            const attend_options* options) {
  return status_of([&] {
    attend::kv_cache& held = needed("cache", cache).cache;
    attend::decode(read_array("q", q), held, read_results(&needed("results", results)), c_options(options).get());
  });
}

attend_status attend_paged_cache_create(const attend_paged_cache_sizes* sizes, attend_paged_cache** cache) {
  return status_of([&] {
    attend_paged_cache*& handle = needed("cache", cache);
    const attend_paged_cache_sizes given = read_struct("sizes", &needed("sizes", sizes));
    check_reserved(given.reserved);
    handle = new attend_paged_cache{
        attend::paged_kv_cache({.pages = given.pages,
                                .page_size = given.page_size,
                                .kv_heads = given.kv_heads,
                                .dim = given.dim,
                                .value_dim = optional_of(given.value_dim),
                                .type = read_dtype("dtype", given.dtype),
                                .quantized_keys = read_quantization("quantized_keys", given.quantized_keys),
                                .quantized_values = read_quantization("quantized_values", given.quantized_values),
                                .rotary = optional_rotary(given.rotary)})};
  });
}

void attend_paged_cache_destroy(attend_paged_cache* cache) { delete cache; }

attend_status attend_paged_cache_new_sequence(attend_paged_cache* cache, std::int64_t* sequence) {
  return status_of([&] {
    std::int64_t& made = needed("sequence", sequence);
    made = static_cast<std::int64_t>(needed("cache", cache).cache.new_sequence());
  });
}

attend_status attend_paged_cache_fork(attend_paged_cache* cache, std::int64_t sequence, std::int64_t* fork) {
  return status_of([&] {
    std::int64_t& made = needed("fork", fork);
    made = static_cast<std::int64_t>(needed("cache", cache).cache.fork(attend::sequence_id{sequence}));
  });
}

attend_status attend_paged_cache_free(attend_paged_cache* cache, std::int64_t sequence) {
  return status_of([&] { needed("cache", cache).cache.free(attend::sequence_id{sequence}); });
}

attend_status attend_paged_cache_append(attend_paged_cache* cache, std::int64_t sequence, const attend_array* k,
                                        const attend_array* v) {
  return status_of(
      [&] { needed("cache", cache).cache.append(attend::sequence_id{sequence}, read_array("k", k), read_array("v", v)); });
}

attend_status attend_paged_cache_truncate(attend_paged_cache* cache, std::int64_t sequence, std::int64_t length) {
  return status_of([&] { needed("cache", cache).cache.truncate(attend::sequence_id{sequence}, length); });
}

attend_status attend_paged_cache_length(const attend_paged_cache* cache, std::int64_t sequence, std::int64_t* length) {
  return status_of([&] { needed("length", length) = needed("cache", cache).cache.length(attend::sequence_id{sequence}); });
}

attend_status attend_paged_cache_free_pages(const attend_paged_cache* cache, std::int64_t* pages) {
  return status_of([&] { needed("pages", pages) = needed("cache", cache).cache.free_pages(); });
}

attend_status attend_decode_paged(const attend_array* q, const attend_paged_cache* cache, const std::int64_t* sequences,
                                  std::size_t count, const attend_results* results, const attend_options* options) {
  return status_of([&] {
    const attend::paged_kv_cache& held = needed("cache", cache).cache;
    std::vector<attend::sequence_id> ids;
    if (count > 0) needed("sequences", sequences);
    for (std::size_t n = 0; n < count; ++n) ids.push_back(attend::sequence_id{sequences[n]});
    attend::decode(read_array("q", q), held, ids, read_results(&needed("results", results)), c_options(options).get());
  });
}
