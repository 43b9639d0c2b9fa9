// Elements between files and memory: conversion on the way in, packing on the way out.
#include "reader.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "attend/error.hpp"
#include "file.hpp"

namespace attend::io::detail {

// Every format stores little-endian numbers (or says so), and they are copied as they are.
static_assert(std::endian::native == std::endian::little, "attend::io is written for little-endian machines");

namespace {

void swap_bytes(std::byte* data, std::size_t bytes, std::int64_t size) {
  for (std::byte* at = data; at != data + bytes; at += size) std::reverse(at, at + size);
}

// The 32-bit integers lie in the upper half of the array. Element i ends before any later one that is still unread begins.
void widen_i32(std::byte* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t narrow;
    std::memcpy(&narrow, data + 4 * count + 4 * i, sizeof narrow);
    const std::int64_t wide = narrow;
    std::memcpy(data + 8 * i, &wide, sizeof wide);
  }
}

void copy_strided(const array_view& view, int axis, const std::byte* from, std::byte*& to) {
  const auto size = static_cast<std::size_t>(size_of(view.type));
  if (axis == view.shape.rank()) {
    std::memcpy(to, from, size);
    to += size;
    return;
  }
  for (std::int64_t i = 0; i < view.shape[axis]; ++i) {
    copy_strided(view, axis + 1, from + i * view.strides[axis] * static_cast<std::int64_t>(size), to);
  }
}

array allocated(const std::filesystem::path& path, const std::string& member, const tensor_header& header) {
  try {
    extents shape;
    for (const std::int64_t size : header.shape) shape.push_back(size);
    return array(header.type.dtype, shape, header.fortran_order);
  } catch (const argument_error& fault) {
    // What `bytes` cannot see: a shape without elements whose other axes overflow.
    throw error(path, member, std::string(fault.what()));
  }
}

}  // namespace

std::uint64_t tensor_header::bytes() const {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t total = 1;
  bool empty = false, wide = false;
  for (const std::int64_t size : shape) {
    if (size < 0) throw std::overflow_error("negative");
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(size), &total) || total > most) {
      wide = true;
      total = 1;
    }
  }
  if (empty) return 0;
  if (wide || __builtin_mul_overflow(total, static_cast<std::uint64_t>(type.bits), &total))
    throw std::overflow_error("too large");
  return (total + 7) / 8;
}

std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

array load_elements(const std::filesystem::path& path, const std::string& member, const tensor_header& header,
                    const fetch& next) {
  if (header.type.dtype == dtype::none) {
    throw error(path, member,
                "holds " + header.type.name + ", expected float32, float64, float16, bfloat16, bool, int32 or int64");
  }
  if (header.shape.size() > static_cast<std::size_t>(max_rank)) {
    throw error(path, member, "shape " + to_string(header.shape) + ", expected at most " + std::to_string(max_rank) + " axes");
  }
  array result = allocated(path, member, header);
  const auto stored = static_cast<std::size_t>(header.bytes());
  std::byte* const begin = result.data() + (result.bytes() - stored);
  next(begin, stored);
  if (header.type.swap) swap_bytes(begin, stored, header.type.bits / 8);
  if (result.bytes() != stored) widen_i32(result.data(), stored / sizeof(std::int32_t));
  if (header.type.dtype == dtype::boolean) {
    // Any other byte in a bool is undefined in C++; NumPy takes it as true.
    for (std::size_t i = 0; i < stored; ++i) begin[i] = std::byte{begin[i] != std::byte{0}};
  }
  return result;
}

const std::byte* row_major(const array_view& view, std::vector<std::byte>& storage) {
  const auto* data = static_cast<const std::byte*>(view.data);
  bool packed = true;
  std::int64_t step = 1;
  for (int axis = view.shape.rank() - 1; axis >= 0; --axis) {
    packed = packed && (view.shape[axis] <= 1 || view.strides[axis] == step);
    step *= view.shape[axis];
  }
  if (packed || step == 0) return data;
  storage.resize(bytes_of(view));
  std::byte* to = storage.data();
  copy_strided(view, 0, data, to);
  return storage.data();
}

std::size_t bytes_of(const array_view& view) { return static_cast<std::size_t>(view.shape.count() * size_of(view.type)); }

}  // namespace attend::io::detail

namespace attend::io {

namespace {
constexpr std::align_val_t cache_line{64};
}

void array::release::operator()(std::byte* memory) const noexcept { ::operator delete[](memory, cache_line); }

array::array(attend::dtype type, const extents& shape, bool fortran_order)
    : bytes_(static_cast<std::size_t>(shape.count() * size_of(type))), type_(type), shape_(shape) {
  extents turned = shape;
  const int last = shape.rank() - 1;
  for (int axis = 0; axis <= last && fortran_order; ++axis) turned[axis] = shape[last - axis];
  const extents steps = attend::detail::contiguous_strides(turned);
  strides_ = steps;
  for (int axis = 0; axis <= last && fortran_order; ++axis) strides_[axis] = steps[last - axis];
  data_.reset(static_cast<std::byte*>(::operator new[](bytes_, cache_line)));
}

}  // namespace attend::io
