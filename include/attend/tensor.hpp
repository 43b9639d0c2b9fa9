// Tensors and strided views: memory of the caller's, or owned.
//
// ```cpp
// attend::tensor<float> x({3, 4}, 1.0f);                        // owned, row-major
// x(2, 3) = 5.0f;
// float mine[2 * 8] = {};
// attend::tensor_view<float> y(mine, {2, 4}, {8, 2});           // every second column of the caller's array
// attend::array_view any = y;                                   // the element type is kept as a value
// assert(any.type == attend::dtype::f32 && any.shape[0] == 2);
// ```
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "attend/types.hpp"

namespace attend {

namespace detail {
/// Row-major strides, in elements.
extents contiguous_strides(const extents& shape);
}  // namespace detail

/// Memory of somebody else's, with a shape and strides in elements; any stride is allowed, 0 and negative included.
/// `data` points at element (0, ..., 0). A copy is cheap and views the same memory.
template <class T>
struct tensor_view {
  using element_type = T;
  using value_type = std::remove_const_t<T>;

  T* data = nullptr;
  extents shape;
  extents strides;

  tensor_view() = default;
  tensor_view(T* first, const extents& sizes) : data(first), shape(sizes), strides(detail::contiguous_strides(sizes)) {}
  tensor_view(T* first, const extents& sizes, const extents& steps) : data(first), shape(sizes), strides(steps) {}
  /// A writable view reads as a constant one.
  template <class U>
    requires std::same_as<const U, T>
  tensor_view(const tensor_view<U>& other) : data(other.data), shape(other.shape), strides(other.strides) {}

  template <std::integral... Index>
  T& operator()(Index... index) const noexcept {
    std::int64_t offset = 0;
    int axis = 0;
    ((offset += static_cast<std::int64_t>(index) * strides[axis++]), ...);
    return data[offset];
  }

  tensor_view view() const noexcept { return *this; }
};

/// An owned, row-major array; movable, not copied by accident.
template <class T>
class tensor {
 public:
  using element_type = T;
  using value_type = T;

  tensor() = default;
  /// Elements are value-initialised, or copies of `fill`. Throws `argument_error` where the size overflows, `std::bad_alloc`.
  explicit tensor(const extents& shape, T fill = T{}) : shape_(shape), data_(std::make_unique_for_overwrite<T[]>(elements())) {
    std::fill_n(data_.get(), elements(), fill);
  }
  tensor(tensor&&) noexcept = default;
  tensor& operator=(tensor&&) noexcept = default;

  const extents& shape() const noexcept { return shape_; }
  std::int64_t size() const { return data_ ? shape_.count() : 0; }
  T* data() noexcept { return data_.get(); }
  const T* data() const noexcept { return data_.get(); }
  T* begin() noexcept { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const noexcept { return data(); }
  const T* end() const { return data() + size(); }

  tensor_view<T> view() noexcept { return {data(), shape_}; }
  tensor_view<const T> view() const noexcept { return {data(), shape_}; }

  template <std::integral... Index>
  T& operator()(Index... index) noexcept {
    return view()(index...);
  }
  template <std::integral... Index>
  const T& operator()(Index... index) const noexcept {
    return view()(index...);
  }

 private:
  std::size_t elements() const { return static_cast<std::size_t>(shape_.count()); }

  extents shape_;
  std::unique_ptr<T[]> data_;
};

/// Anything with a typed strided view: `tensor<T>`, `tensor_view<T>`.
template <class X>
concept tensor_like = requires(X& x) {
  typename std::remove_cvref_t<X>::value_type;
  x.view();
} && dtype_of<typename std::remove_cvref_t<X>::value_type> != dtype::none;

/// A view whose element type is a value: what the compiled library works on. Not given where `type` is `none`.
template <class Void>
struct basic_array_view {
  Void* data = nullptr;
  dtype type = dtype::none;
  extents shape;
  extents strides;

  basic_array_view() = default;
  basic_array_view(Void* first, dtype element, const extents& sizes, const extents& steps)
      : data(first), type(element), shape(sizes), strides(steps) {}
  template <tensor_like X>
  basic_array_view(X&& x) {
    const auto view = x.view();
    static_assert(std::is_const_v<Void> || !std::is_const_v<typename decltype(view)::element_type>,
                  "a writable array is needed here");
    data = view.data;
    type = dtype_of<typename decltype(view)::value_type>;
    shape = view.shape;
    strides = view.strides;
  }
  template <class U>
    requires std::same_as<const U, Void>
  basic_array_view(const basic_array_view<U>& other)
      : data(other.data), type(other.type), shape(other.shape), strides(other.strides) {}

  /// Whether an array was given at all (it may still have no elements).
  explicit operator bool() const noexcept { return type != dtype::none; }
};

using array_view = basic_array_view<const void>;
using mutable_array_view = basic_array_view<void>;

}  // namespace attend
