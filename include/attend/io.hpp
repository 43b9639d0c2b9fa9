// Tensors from and to files: .npy, .npz, .safetensors. Target `attend::io`.
//
// ```cpp
// #include <attend/attend.hpp>
// #include <attend/io.hpp>
//
// int main() {
//   attend::tensor<float> x({2, 3}, 0.5f);
//   attend::io::save("example.npz", {{"x", x}});
//   const attend::io::archive file("example.npz");
//   const attend::io::array again = file.load("x");
//   return again.view().shape == x.shape() ? 0 : 1;
// }
// ```
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tensor.hpp"

namespace attend::io {

namespace detail {
class reader;
}  // namespace detail

/// What is wrong with a file. `what()` is one line: "file[: member]: problem, expected ...".
class error : public std::runtime_error {
 public:
  error(const std::filesystem::path& file, const std::string& member, const std::string& problem);

  const std::filesystem::path& file() const noexcept { return file_; }
  /// Name of the tensor at fault; empty where it is the file as a whole.
  const std::string& member() const noexcept { return member_; }

 private:
  std::filesystem::path file_;
  std::string member_;
};

enum class format : std::uint8_t { npy, npz, safetensors };

/// The format that a path's extension names, if any.
std::optional<format> format_of(const std::filesystem::path& path);

/// What raw elements of two bytes (`V2`) in a .npy or .npz are: NumPy has no name for bfloat16, and writes it as these.
enum class raw_elements : std::uint8_t { refused, bfloat16 };

/// A tensor in a file, known from its header alone.
struct entry {
  std::string name;
  attend::dtype dtype = dtype::none;  ///< what `load` gives: int32 becomes int64; `none` where it would refuse
  std::string stored;                 ///< the element type in the file: "float32", "bfloat16", ...
  std::vector<std::int64_t> shape;
};

/// A loaded tensor: owns its elements. Fortran order is kept as strides.
class array {
 public:
  array() = default;
  /// Uninitialised memory for a row-major, or a column-major, array, aligned to cache lines. Throws `argument_error` where the
  /// size overflows, `std::bad_alloc`.
  array(attend::dtype type, const extents& shape, bool fortran_order = false);

  array_view view() const noexcept { return {data_.get(), type_, shape_, strides_}; }
  attend::dtype dtype() const noexcept { return type_; }
  const extents& shape() const noexcept { return shape_; }

  std::byte* data() noexcept { return data_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct release {
    void operator()(std::byte* memory) const noexcept;
  };

  std::unique_ptr<std::byte[], release> data_;
  std::size_t bytes_ = 0;
  attend::dtype type_ = attend::dtype::none;
  extents shape_;
  extents strides_;
};

/// A file of tensors, open for reading. Reads what is asked for and no more; every size is checked against the file before
/// memory is allocated. One thread at a time.
class archive {
 public:
  /// Format by extension, else by the first bytes. Throws `error`: the file as a whole is malformed, or not a regular file.
  explicit archive(const std::filesystem::path& path, raw_elements raw = raw_elements::refused);
  archive(archive&&) noexcept;
  archive& operator=(archive&&) noexcept;
  ~archive();

  io::format format() const noexcept;
  const std::filesystem::path& path() const noexcept;

  /// In the order of the file; a .npy holds one tensor, named like the file without its extension.
  const std::vector<std::string>& names() const noexcept;
  bool contains(std::string_view name) const noexcept;

  /// Reads the tensor's header. Throws `error`.
  entry describe(const std::string& name) const;
  /// Reads the tensor. Big-endian numbers are swapped. Throws `error`, `std::bad_alloc`.
  array load(const std::string& name) const;

 private:
  std::unique_ptr<detail::reader> reader_;
};

/// A tensor and the name that it gets in the file.
struct named_array {
  std::string name;
  array_view data;
};

/// Throws `error` where `save` to this path would fail for a reason that can be seen beforehand.
void check_destination(const std::filesystem::path& path);

/// Writes tensors, any strides, in the format of the extension (.npy: exactly one tensor, its name is not kept). bfloat16 becomes raw
/// elements of two bytes in .npy and .npz.
/// The file is written beside its destination and then renamed: it appears whole or not at all. Throws `error`.
void save(const std::filesystem::path& path, const std::vector<named_array>& tensors);

}  // namespace attend::io
