// Names, shapes, errors: the small vocabulary of the public headers.
#include "attend/types.hpp"

#include <limits>

#include "attend/attention.hpp"
#include "attend/compatibility.hpp"
#include "attend/error.hpp"
#include "attend/normalizer.hpp"
#include "attend/tensor.hpp"
#include "attend/version.hpp"

#define ATTEND_TEXT_(x) #x
#define ATTEND_TEXT(x) ATTEND_TEXT_(x)

namespace attend {

std::string_view version() noexcept {
  return ATTEND_TEXT(ATTEND_VERSION_MAJOR) "." ATTEND_TEXT(ATTEND_VERSION_MINOR) "." ATTEND_TEXT(ATTEND_VERSION_PATCH);
}

std::string_view name_of(dtype type) noexcept {
  switch (type) {
    case dtype::boolean: return "bool";
    case dtype::i64: return "int64";
    case dtype::f32: return "float32";
    case dtype::f64: return "float64";
    case dtype::f16: return "float16";
    case dtype::bf16: return "bfloat16";
    case dtype::none: break;
  }
  return "none";
}

std::string_view name_of(compatibility_kind kind) noexcept {
  switch (kind) {
    case compatibility_kind::dot: return "dot";
    case compatibility_kind::cosine: return "cosine";
    case compatibility_kind::gaussian: return "gaussian";
    case compatibility_kind::l1: return "l1";
    case compatibility_kind::additive: return "additive";
    case compatibility_kind::none: return "none";
  }
  return "";
}

std::string_view name_of(normalizer kind) noexcept {
  switch (kind) {
    case normalizer::softmax: return "softmax";
    case normalizer::mean: return "mean";
    case normalizer::sum: return "sum";
    case normalizer::sigmoid: return "sigmoid";
    case normalizer::relu2: return "relu2";
    case normalizer::abs: return "abs";
  }
  return "";
}

std::string_view name_of(score_stage stage) noexcept {
  switch (stage) {
    case score_stage::scaled: return "scaled";
    case score_stage::capped: return "capped";
    case score_stage::biased: return "biased";
  }
  return "";
}

extents::extents(std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) push_back(size);
}

void extents::push_back(std::int64_t size) {
  if (rank_ == max_rank) throw argument_error("shape", "at most 8 axes", "9 or more");
  sizes_[static_cast<std::size_t>(rank_++)] = size;
}

std::int64_t extents::count() const {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 16;  // of the widest element, with room to align
  std::int64_t product = 1;
  bool empty = false, overflow = false;
  for (int axis = 0; axis < rank_; ++axis) {
    const std::int64_t size = (*this)[axis];
    if (size < 0) throw argument_error("shape", "sizes of at least 0", to_string());
    empty |= size == 0;
    overflow |= __builtin_mul_overflow(product, size, &product) || product > most;
  }
  if (empty) return 0;
  if (overflow) throw argument_error("shape", "fewer than 2^59 elements", to_string());
  return product;
}

std::string extents::to_string() const {
  std::string text = "(";
  for (int axis = 0; axis < rank_; ++axis) text += (axis ? ", " : "") + std::to_string((*this)[axis]);
  return text + (rank_ == 1 ? ",)" : ")");
}

namespace detail {

extents contiguous_strides(const extents& shape) {
  extents strides = shape;
  std::int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = step;
    if (__builtin_mul_overflow(step, shape[axis] > 0 ? shape[axis] : 1, &step))
      throw argument_error("shape", "fewer than 2^59 elements", shape.to_string());
  }
  return strides;
}

}  // namespace detail

argument_error::argument_error(std::string argument, const std::string& expected, const std::string& received, kind what_kind)
    : std::invalid_argument(argument + ": expected " + expected + ", got " + received),
      argument_(std::move(argument)),
      kind_(what_kind) {}

interrupted::interrupted() : std::runtime_error("attention was interrupted by its caller") {}

}  // namespace attend
