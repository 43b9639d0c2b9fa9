// What every format gives: names, headers, elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attend/io.hpp"

namespace attend::io::detail {

/// An element type as files name it.
struct element {
  std::string name;  ///< "float32", "bfloat16", ...
  std::int64_t bits = 0;
  attend::dtype dtype = dtype::none;  ///< what it is loaded as; `none` where it is refused
  bool swap = false;                  ///< stored big-endian
};

/// A line of a format's table of element types: the format's own code, and what it stands for.
struct element_code {
  std::string_view code, name;
  std::int64_t bits;
  attend::dtype dtype;
};

/// A tensor's header.
struct tensor_header {
  element type;
  std::vector<std::int64_t> shape;
  bool fortran_order = false;

  entry described(const std::string& name) const { return {name, type.dtype, type.name, shape}; }
  /// Bytes of the elements in the file. Throws `std::overflow_error` where a size is negative or the product does not fit 63 bits.
  std::uint64_t bytes() const;
};

/// "(2, 3)", "(2,)", "()"
std::string to_string(const std::vector<std::int64_t>& shape);

/// Copies the next `count` bytes of the elements; throws `error`.
using fetch = std::function<void(void* to, std::size_t count)>;

/// Allocates, fetches and converts; `path` and `member` are for messages. The caller has checked the sizes against the file.
array load_elements(const std::filesystem::path& path, const std::string& member, const tensor_header& header,
                    const fetch& next);

/// Row-major elements of a view: its own memory where that is row-major already, else a copy in `storage`.
const std::byte* row_major(const array_view& view, std::vector<std::byte>& storage);

/// Bytes of a view's elements, row-major.
std::size_t bytes_of(const array_view& view);

class reader {
 public:
  reader(const std::filesystem::path& path, io::format format) : path_(path), format_(format) {}
  virtual ~reader() = default;

  virtual tensor_header header(const std::string& name) = 0;
  virtual array load(const std::string& name) = 0;

  const std::filesystem::path& path() const noexcept { return path_; }
  io::format format() const noexcept { return format_; }
  const std::vector<std::string>& names() const noexcept { return names_; }

 protected:
  std::vector<std::string> names_;

 private:
  std::filesystem::path path_;
  io::format format_;
};

std::unique_ptr<reader> open_npy(const std::filesystem::path& path, raw_elements raw);
std::unique_ptr<reader> open_npz(const std::filesystem::path& path, raw_elements raw);
std::unique_ptr<reader> open_safetensors(const std::filesystem::path& path);

void save_npy(const std::filesystem::path& path, const named_array& tensor);
void save_npz(const std::filesystem::path& path, const std::vector<named_array>& tensors);
void save_safetensors(const std::filesystem::path& path, const std::vector<named_array>& tensors);

}  // namespace attend::io::detail
