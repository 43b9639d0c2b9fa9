#include "cache_rows.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "checks.hpp"

namespace attend::detail {
namespace {

using std::to_string;

std::int64_t bytes_for(dtype type, const extents& shape) {
  std::int64_t bytes = size_of(type);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (__builtin_mul_overflow(bytes, shape[axis], &bytes))
      refuse("sizes", "fewer than 2^63 bytes", "shape " + shape.to_string() + " of keys or values");
  }
  return bytes;
}

constexpr std::int64_t large_page = std::int64_t{2} << 20;

}  // namespace

void free_cache::operator()(char* memory) const noexcept { ::operator delete(memory, std::align_val_t{alignment}); }

cache_rows::cache_rows(dtype type, const extents& shape) : type_(type), shape_(shape) {
  const std::int64_t bytes = bytes_for(type, shape);
  const bool large = bytes >= 2 * large_page;
  const std::size_t size = static_cast<std::size_t>(bytes), alignment = large ? static_cast<std::size_t>(large_page) : 64;
  memory_ = cache_memory(static_cast<char*>(::operator new(size, std::align_val_t{alignment})), free_cache{alignment});
#if defined(__linux__)
  if (large) madvise(memory_.get(), size, MADV_HUGEPAGE);  // a wish: without it, all is right and slower
#endif
}

array_view cache_rows::view() const noexcept { return array_view(memory_.get(), type_, shape_, contiguous_strides(shape_)); }

char* cache_rows::row(std::int64_t block, std::int64_t head, std::int64_t row) const noexcept {
  return memory_.get() + ((block * shape_[1] + head) * shape_[2] + row) * row_bytes();
}

void cache_rows::write(std::int64_t block, std::int64_t first, std::int64_t count, const array_view& from, std::int64_t batch,
                       std::int64_t begin) const noexcept {
  const int head_axis = from.shape.rank() - 3;
  const std::int64_t bytes = size_of(type_), width = shape_[3], column = from.strides[head_axis + 2];
  const std::int64_t of_batch = head_axis > 0 ? batch * from.strides[0] : 0;
  for (std::int64_t head = 0; head < shape_[1]; ++head) {
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t offset = of_batch + head * from.strides[head_axis] + (begin + n) * from.strides[head_axis + 1];
      const char* const source = static_cast<const char*>(from.data) + offset * bytes;
      char* const to = row(block, head, first + n);
      if (column == 1) {
        std::memcpy(to, source, static_cast<std::size_t>(width * bytes));
      } else {
        for (std::int64_t d = 0; d < width; ++d)
          std::memcpy(to + d * bytes, source + d * column * bytes, static_cast<std::size_t>(bytes));
      }
    }
  }
}

void cache_rows::copy(std::int64_t block, std::int64_t count, std::int64_t from) const noexcept {
  for (std::int64_t head = 0; head < shape_[1]; ++head)
    std::memcpy(row(block, head, 0), row(from, head, 0), static_cast<std::size_t>(count * row_bytes()));
}

void check_cache_sizes(dtype type, std::int64_t kv_heads, std::int64_t dim, std::optional<std::int64_t> value_dim,
                       const std::optional<rotary>& turning) {
  if (!is_input_type(type)) refuse_type("dtype", input_types, type);
  if (kv_heads < 0) refuse("kv_heads", "a number of at least 0", to_string(kv_heads));
  if (dim < 0) refuse("dim", "a number of at least 0", to_string(dim));
  if (value_dim && *value_dim < 0) refuse("value_dim", "a number of at least 0", to_string(*value_dim));
  if (!turning) return;
  if (turning->dimensions == 0 && dim % 2 != 0) refuse("rotary", "an even dim, or dimensions beside it", to_string(dim));
  const extents no_tokens{kv_heads, 0, dim};
  const std::vector<std::int64_t> first{0};
  turned_rows(array_view(nullptr, type, no_tokens, contiguous_strides(no_tokens)), turning, {first, {}}, layout::bhld);
}

turned_rows::turned_rows(const array_view& x, const std::optional<rotary>& how, const places& at, layout order, int threads)
    : view_(x) {
  if (!how) return;
  const extents strides = contiguous_strides(x.shape);
  const std::int64_t bytes = bytes_for(x.type, x.shape), tokens = x.shape[x.shape.rank() - (order == layout::blhd ? 3 : 2)];
  memory_.reset(static_cast<char*>(::operator new(static_cast<std::size_t>(bytes), std::align_val_t{64})));
  std::vector<std::int64_t> positions;
  positions.reserve(at.firsts.size() * static_cast<std::size_t>(tokens));
  for (std::size_t b = 0; b < at.firsts.size(); ++b) {
    const std::int64_t count = at.counts.empty() ? tokens : at.counts[b];
    for (std::int64_t i = 0; i < tokens; ++i) positions.push_back(i < count ? std::max<std::int64_t>(0, at.firsts[b] + i) : 0);
  }
  const extents shape = x.shape.rank() == 3 ? extents{tokens} : extents{static_cast<std::int64_t>(at.firsts.size()), tokens};
  rotary own = *how;
  own.layout = order;
  own.threads = threads;
  view_ = array_view(memory_.get(), x.type, x.shape, strides);
  rotary_embedding(x, mutable_array_view(memory_.get(), x.type, x.shape, strides),
                   token_positions(array_view(positions.data(), dtype::i64, shape, contiguous_strides(shape))), own);
}

turned_queries::turned_queries(problem& p, const array_view& q, const std::optional<rotary>& how,
                               std::span<const std::int64_t> lengths, const options& of_call) {
  if (!how) return;
  std::vector<std::int64_t> firsts;
  for (const std::int64_t length : lengths) firsts.push_back(length - p.queries);
  const array_view& turned = rows_.emplace(q, how, turned_rows::places{firsts, {}}, of_call.layout, of_call.threads).view();
  p.q = place(turned, heads_first(turned, of_call.layout), p.batch);
}

std::int64_t check_tokens(const array_view& k, const array_view& v, dtype type, std::int64_t batch, std::int64_t kv_heads,
                          std::int64_t dim, std::int64_t value_dim) {
  const auto check_one = [&](const char* name, const array_view& x, std::int64_t width) {
    if (!x) refuse(name, "an array", "none");
    if (x.type != type) refuse_type(name, std::string(name_of(type)) + ", the dtype of the cache", x.type);
    const int axes = batch < 0 ? 3 : 4;
    const bool fits = x.shape.rank() == axes && (batch < 0 || x.shape[0] == batch) && x.shape[axes - 3] == kv_heads &&
                      x.shape[axes - 1] == width;
    if (!fits) {
      const std::string rows = to_string(kv_heads) + ", n, " + to_string(width) + ")";
      refuse(name, "shape (" + (batch < 0 ? rows : to_string(batch) + ", " + rows) + " for n new tokens",
             "shape " + x.shape.to_string());
    }
    check_memory(name, x);
    return x.shape[axes - 2];
  };
  const std::int64_t tokens = check_one("k", k, dim), values = check_one("v", v, value_dim);
  if (values != tokens) refuse("v", "as many tokens as k, " + to_string(tokens), to_string(values));
  return tokens;
}

}  // namespace attend::detail
