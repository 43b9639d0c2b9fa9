// Element types, shapes and layouts.
//
// ```cpp
// attend::extents shape{2, 8, 128, 64};            // B, H, L, E
// assert(shape.rank() == 4 && shape[3] == 64);
// assert(attend::name_of(attend::dtype::f32) == "float32");
// ```
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "attend/half.hpp"

namespace attend {

/// What an array holds. `none` marks an array that was not given.
enum class dtype : std::uint8_t { none, boolean, i64, f32, f64, f16, bf16 };

/// "float32", "float64", "float16", "bfloat16", "bool", "int64"; "none" where there is no array.
std::string_view name_of(dtype type) noexcept;

/// How a cache stores keys or values: as numbers of its dtype, or as codes of 8 or 4 bits with a scale per row and 32 columns.
enum class quantization : std::uint8_t { none, int8, int4 };

/// Bits of a code; 0 for `none`.
constexpr int bits_of(quantization codes) noexcept {
  return codes == quantization::int8 ? 8 : codes == quantization::int4 ? 4 : 0;
}

/// Bytes of one element; 0 for `none`.
constexpr std::int64_t size_of(dtype type) noexcept {
  switch (type) {
    case dtype::boolean: return 1;
    case dtype::f16:
    case dtype::bf16: return 2;
    case dtype::f32: return 4;
    case dtype::i64:
    case dtype::f64: return 8;
    case dtype::none: break;
  }
  return 0;
}

template <class T>
inline constexpr dtype dtype_of = dtype::none;
template <>
inline constexpr dtype dtype_of<bool> = dtype::boolean;
template <>
inline constexpr dtype dtype_of<std::int64_t> = dtype::i64;
template <>
inline constexpr dtype dtype_of<float> = dtype::f32;
template <>
inline constexpr dtype dtype_of<double> = dtype::f64;
template <>
inline constexpr dtype dtype_of<float16> = dtype::f16;
template <>
inline constexpr dtype dtype_of<bfloat16> = dtype::bf16;

/// What sums, softmax and LSE of inputs are held in: float64 for float64, float32 for all others.
constexpr dtype accumulator_of(dtype type) noexcept { return type == dtype::f64 ? dtype::f64 : dtype::f32; }
template <class T>
using accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// An array's rank may be 0 (a broadcast mask) to 8; q, k and v have rank 2 to 8.
inline constexpr int max_rank = 8;

/// Order of the last axes of q, k, v and out: (..., heads, length, width) or (..., length, heads, width).
enum class layout : std::uint8_t { bhld, blhd };

/// A shape: up to `max_rank` sizes, outermost first. Throws `argument_error` for more.
class extents {
 public:
  extents() = default;
  extents(std::initializer_list<std::int64_t> sizes);

  int rank() const noexcept { return rank_; }
  std::int64_t operator[](int axis) const noexcept { return sizes_[static_cast<std::size_t>(axis)]; }
  std::int64_t& operator[](int axis) noexcept { return sizes_[static_cast<std::size_t>(axis)]; }
  /// Appends an axis after the innermost. Throws `argument_error` beyond `max_rank`.
  void push_back(std::int64_t size);

  /// Product of the sizes; throws `argument_error` where it, or it times 16 bytes, does not fit 63 bits or a size is negative.
  std::int64_t count() const;

  /// "(2, 8, 128, 64)"
  std::string to_string() const;

  friend bool operator==(const extents&, const extents&) = default;

 private:
  std::array<std::int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

}  // namespace attend
