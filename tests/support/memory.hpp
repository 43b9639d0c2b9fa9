// Arrays at places of the test's choice: with any strides inside a patterned buffer, or against a page that may not be touched.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

#include "attend/tensor.hpp"

namespace attend::test {

/// Calls `visit(index)` for every index of the shape, in row-major order.
template <class Visit>
void for_each_index(const extents& shape, const Visit& visit) {
  const std::int64_t count = shape.count();
  extents at = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) at[axis] = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    visit(at);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (++at[axis] < shape[axis]) break;
      at[axis] = 0;
    }
  }
}

inline std::int64_t offset_of(const extents& index, const extents& strides) {
  std::int64_t offset = 0;
  for (int axis = 0; axis < index.rank(); ++axis) offset += index[axis] * strides[axis];
  return offset;
}

/// An array with strides of any sign inside a buffer whose other bytes hold a pattern.
template <class T>
class strided {
 public:
  strided(const extents& shape, const extents& strides) : shape_(shape), strides_(strides) {
    std::int64_t low = 0, high = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) (strides[axis] < 0 ? low : high) += (shape[axis] - 1) * strides[axis];
    first_ = shape.count() == 0 ? margin : margin - low;
    buffer_.resize(static_cast<std::size_t>(shape.count() == 0 ? 2 * margin : high - low + 1 + 2 * margin) * sizeof(T),
                   pattern);
  }
  /// With these values; the last written wins where strides overlap.
  strided(const tensor<T>& values, const extents& strides) : strided(values.shape(), strides) {
    std::int64_t n = 0;
    for_each_index(shape_, [&](const extents& at) { view().data[offset_of(at, strides_)] = values.data()[n++]; });
  }

  tensor_view<T> view() { return {reinterpret_cast<T*>(buffer_.data()) + first_, shape_, strides_}; }

  /// The elements, row-major.
  tensor<T> values() {
    tensor<T> x(shape_);
    std::int64_t n = 0;
    for_each_index(shape_, [&](const extents& at) { x.data()[n++] = view().data[offset_of(at, strides_)]; });
    return x;
  }

  /// Whether every byte that is no element still holds the pattern.
  bool gaps_are_intact() {
    std::vector<unsigned char> rest = buffer_;
    for_each_index(shape_, [&](const extents& at) {
      std::memset(rest.data() + (first_ + offset_of(at, strides_)) * static_cast<std::int64_t>(sizeof(T)), pattern, sizeof(T));
    });
    for (unsigned char byte : rest)
      if (byte != pattern) return false;
    return true;
  }

 private:
  static constexpr std::int64_t margin = 64;
  static constexpr unsigned char pattern = 0xa7;

  extents shape_, strides_;
  std::int64_t first_ = 0;
  std::vector<unsigned char> buffer_;
};

/// A row-major copy that begins one byte past where elements should.
template <class T>
class unaligned {
 public:
  explicit unaligned(const tensor<T>& values) : unaligned(values.shape()) {
    std::memcpy(buffer_.data() + 1, values.data(), static_cast<std::size_t>(values.size()) * sizeof(T));
  }
  explicit unaligned(const extents& shape) : shape_(shape), buffer_(static_cast<std::size_t>(shape.count()) * sizeof(T) + 1) {}

  mutable_array_view view() { return {buffer_.data() + 1, dtype_of<T>, shape_, detail::contiguous_strides(shape_)}; }
  tensor<T> values() const {
    tensor<T> x(shape_);
    std::memcpy(x.data(), buffer_.data() + 1, static_cast<std::size_t>(x.size()) * sizeof(T));
    return x;
  }

 private:
  extents shape_;
  std::vector<unsigned char> buffer_;
};

enum class side { ends_at_page, begins_at_page };

/// A copy whose last element ends, or whose first element begins, where a page begins (ends) that faults when it is touched.
template <class T>
class guarded {
 public:
  guarded(const tensor<T>& values, side where) : guarded(values.shape(), where) {
    std::memcpy(first_, values.data(), static_cast<std::size_t>(values.size()) * sizeof(T));
  }
  guarded(const extents& shape, side where) : shape_(shape) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = static_cast<std::size_t>(shape.count()) * sizeof(T), body = (bytes + page - 1) / page * page;
    mapped_ = body + 2 * page;
    base_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    unsigned char* const usable = static_cast<unsigned char*>(base_) + page;
    if (body != 0 && mprotect(usable, body, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
    first_ = reinterpret_cast<T*>(where == side::begins_at_page ? usable : usable + body - bytes);
  }
  guarded(guarded&& other) noexcept : shape_(other.shape_), base_(other.base_), mapped_(other.mapped_), first_(other.first_) {
    other.base_ = nullptr;
  }
  guarded(const guarded&) = delete;
  guarded& operator=(const guarded&) = delete;
  ~guarded() {
    if (base_ != nullptr) munmap(base_, mapped_);
  }

  tensor_view<T> view() const { return {first_, shape_}; }
  tensor<T> values() const {
    tensor<T> x(shape_);
    std::memcpy(x.data(), first_, static_cast<std::size_t>(shape_.count()) * sizeof(T));
    return x;
  }

 private:
  extents shape_;
  void* base_ = nullptr;
  std::size_t mapped_ = 0;
  T* first_ = nullptr;
};

}  // namespace attend::test
