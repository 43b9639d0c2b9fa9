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
#include "elements.hpp"
#include "quantize.hpp"

namespace attend::detail {
namespace {

using std::to_string;

std::int64_t bytes_for(std::int64_t of_element, const extents& shape) {
  std::int64_t bytes = of_element;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (__builtin_mul_overflow(bytes, shape[axis], &bytes))
      refuse("sizes", "fewer than 2^63 bytes", "shape " + shape.to_string() + " of keys or values");
  }
  return bytes;
}

constexpr std::int64_t large_page = std::int64_t{2} << 20;

}  // namespace

void free_cache::operator()(char* memory) const noexcept { ::operator delete(memory, std::align_val_t{alignment}); }

cache_rows::cache_rows(dtype type, quantization codes, const extents& shape) : type_(type), codes_(codes), shape_(shape) {
  const bool plain = codes == quantization::none;
  row_bytes_ = plain ? bytes_for(size_of(type), {shape[3]}) : quantized_row_bytes(bits_of(codes), shape[3]);
  const std::int64_t bytes = bytes_for(row_bytes_, {shape[0], shape[1], shape[2]});
  const bool large = bytes >= 2 * large_page;
  const std::size_t size = static_cast<std::size_t>(bytes), alignment = large ? static_cast<std::size_t>(large_page) : 64;
  memory_ = cache_memory(static_cast<char*>(::operator new(size, std::align_val_t{alignment})), free_cache{alignment});
#if defined(__linux__)
  if (large) madvise(memory_.get(), size, MADV_HUGEPAGE);  // a wish: without it, all is right and slower
#endif
}

held_rows cache_rows::held() const noexcept {
  const bool plain = codes_ == quantization::none;
  const extents shape{shape_[0], shape_[1], shape_[2], plain ? shape_[3] : row_bytes_};
  return {array_view(memory_.get(), plain ? type_ : dtype::boolean, shape, contiguous_strides(shape)), shape_[3], codes_};
}

char* cache_rows::row(std::int64_t block, std::int64_t head, std::int64_t row) const noexcept {
  return memory_.get() + ((block * shape_[1] + head) * shape_[2] + row) * row_bytes_;
}

/// Columns are `step` bytes apart.
void cache_rows::write_row(const char* from, std::int64_t step, char* to) const noexcept {
  const std::int64_t width = shape_[3];
  if (codes_ == quantization::none) {
    const std::int64_t bytes = size_of(type_);
    if (step == bytes) {
      std::memcpy(to, from, static_cast<std::size_t>(width * bytes));
    } else {
      for (std::int64_t d = 0; d < width; ++d) std::memcpy(to + d * bytes, from + d * step, static_cast<std::size_t>(bytes));
    }
    return;
  }
  const int bits = bits_of(codes_);
  char* scale = to + code_bytes(bits, width);
  with_type(type_, [&]<class From>(From) {
    for (std::int64_t first = 0; first < width; first += group_columns, scale += group_bytes(bits)) {
      float x[group_columns];
      const int count = static_cast<int>(std::min<std::int64_t>(width - first, group_columns));
      for (int d = 0; d < count; ++d) x[d] = static_cast<float>(load<From>(from + (first + d) * step));
      std::fill(x + count, x + group_columns, x[0]);
      quantize_group(bits, x, count, to + first * bits / 8, scale);
    }
  });
}

void cache_rows::write(std::int64_t block, std::int64_t first, std::int64_t count, const array_view& from, std::int64_t batch,
                       std::int64_t begin) const noexcept {
  const int head_axis = from.shape.rank() - 3;
  const std::int64_t bytes = size_of(type_);
  const std::int64_t of_batch = head_axis > 0 ? batch * from.strides[0] : 0;
  for (std::int64_t head = 0; head < shape_[1]; ++head) {
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t offset = of_batch + head * from.strides[head_axis] + (begin + n) * from.strides[head_axis + 1];
      write_row(static_cast<const char*>(from.data) + offset * bytes, from.strides[head_axis + 2] * bytes,
                row(block, head, first + n));
    }
  }
}

void cache_rows::copy(std::int64_t block, std::int64_t count, std::int64_t from) const noexcept {
  for (std::int64_t head = 0; head < shape_[1]; ++head)
    std::memcpy(row(block, head, 0), row(from, head, 0), static_cast<std::size_t>(count * row_bytes()));
}

void check_rows(const row_sizes& sizes, const std::optional<rotary>& turning) {
  if (!is_input_type(sizes.type)) refuse_type("dtype", input_types, sizes.type);
  const std::int64_t dim = sizes.dim;
  if (sizes.kv_heads < 0) refuse("kv_heads", "a number of at least 0", to_string(sizes.kv_heads));
  if (dim < 0 || dim > widest) refuse("dim", "a number from 0 to 2^40", to_string(dim));
  if (sizes.value_dim && (*sizes.value_dim < 0 || *sizes.value_dim > widest))
    refuse("value_dim", "a number from 0 to 2^40", to_string(*sizes.value_dim));
  for (const auto& [name, codes] : {std::pair{"quantized_keys", sizes.keys}, std::pair{"quantized_values", sizes.values}}) {
    if (codes > quantization::int4) refuse(name, "none, int8 or int4", to_string(static_cast<int>(codes)));
    if (codes != quantization::none && sizes.type == dtype::f64)
      refuse(name, "none beside float64, which no code comes near", codes == quantization::int8 ? "int8" : "int4");
  }
  if (!turning) return;
  if (turning->dimensions == 0 && dim % 2 != 0) refuse("rotary", "an even dim, or dimensions beside it", to_string(dim));
  const extents no_tokens{sizes.kv_heads, 0, dim};
  const std::vector<std::int64_t> first{0};
  turned_rows(array_view(nullptr, sizes.type, no_tokens, contiguous_strides(no_tokens)), turning, {first, {}}, layout::bhld);
}

turned_rows::turned_rows(const array_view& x, const std::optional<rotary>& how, const places& at, layout order, int threads)
    : view_(x) {
  if (!how) return;
  const extents strides = contiguous_strides(x.shape);
  const std::int64_t bytes = bytes_for(size_of(x.type), x.shape),
                     tokens = x.shape[x.shape.rank() - (order == layout::blhd ? 3 : 2)];
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
