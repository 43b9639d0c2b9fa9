// The caller's arrays, read and written in place.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <string_view>

#include "attend/attend.hpp"

namespace attend::python {

namespace nb = nanobind;

/// What the caller's elements are, as far as attention tells them apart.
struct element_type {
  enum class kind : std::uint8_t { other, boolean, signed_integer, unsigned_integer, floating, brain_floating };
  kind what = kind::other;
  std::int64_t bytes = 1;

  bool is_integer() const noexcept { return what == kind::signed_integer || what == kind::unsigned_integer; }
};

/// The elements of inputs and of what stands beside them, as messages name them.
inline constexpr const char* float_types = "float32, float64, float16 or bfloat16";

/// A NumPy array, or anything on the CPU with `__dlpack__`, held for as long as this lives. Nothing is copied.
/// Make and destroy with the interpreter locked. Throws `argument_error`, which calls the array `name`.
class borrowed_array {
 public:
  borrowed_array(nb::handle object, std::string_view name);
  borrowed_array(borrowed_array&& other) noexcept;
  borrowed_array& operator=(borrowed_array&&) = delete;
  ~borrowed_array();

  /// Whether `object` is of a kind that can be borrowed (it may still turn out unreadable).
  static bool is_array(nb::handle object);
  /// Throws the TypeError "name: expected an array ..." where it is not.
  static void require_array(nb::handle object, std::string_view name);

  const extents& shape() const noexcept { return shape_; }

  /// Views with the element type that attention knows, `none` for any other.
  array_view view() const;
  mutable_array_view mutable_view() const;

  /// Throws the TypeError "name: expected ..., got <dtype>" where `right` does not hold.
  void require(bool right, const std::string& expected) const;
  /// Throws where the elements are not those that are computed with.
  void require_floating() const;
  void require_boolean() const;
  /// Throws where the array must not be written to.
  void require_writable() const;

  const element_type& element() const noexcept { return element_; }

  /// The elements of an array of integers, row-major. Throws where they are none, or beyond 64 bits.
  tensor<std::int64_t> integers() const;

  /// The same where they lie; only for int64.
  array_view int64_view() const { return {data_, dtype::i64, shape_, strides_}; }

 private:
  void read_buffer();
  void take_buffer(const Py_buffer& buffer);
  void read_dlpack();
  [[noreturn]] void refuse_export(const std::string& reason) const;
  template <class Managed>
  void take_capsule(nb::handle capsule, const char* used_name);
  template <class Managed>
  void take(Managed* managed);
  void read_content(const void* content);
  void check_extent() const;
  void release() noexcept;
  std::string dtype_text() const;
  dtype known_type() const noexcept;

  nb::handle object_;
  std::string_view name_;
  void* data_ = nullptr;
  element_type element_;
  extents shape_;
  extents strides_;
  bool writable_ = false;
  std::optional<Py_buffer> buffer_;
  void* managed_ = nullptr;
  void (*deleter_)(void* managed) = nullptr;
};

/// An array of integers of any type: int64 is read where it lies, the others from a copy.
class integer_array {
 public:
  integer_array(nb::handle object, std::string_view name);
  /// The boundaries of packed sequences: int32 or int64, a TypeError otherwise.
  static integer_array boundaries(nb::handle object, std::string_view name);

  array_view view() const { return in_place_ ? array_.int64_view() : array_view(copy_.view()); }

 private:
  explicit integer_array(borrowed_array&& array);

  borrowed_array array_;
  bool in_place_;
  tensor<std::int64_t> copy_;
};

}  // namespace attend::python
