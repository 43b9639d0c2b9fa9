// Files as the readers and writers use them: reads at an offset, and writes that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "attend/io.hpp"

namespace attend::io::detail {

/// Text that fits one line of a terminal: control characters escaped, long text cut.
std::string printable(std::string_view text);

/// 'text'
std::string in_quotes(std::string_view text);

/// A regular file, open for reading.
class input_file {
 public:
  /// Throws `error`; a pipe, device or folder is refused without waiting for it.
  explicit input_file(const std::filesystem::path& path);
  input_file(const input_file&) = delete;
  input_file& operator=(const input_file&) = delete;
  ~input_file();

  const std::filesystem::path& path() const noexcept { return path_; }
  /// Bytes in the file when it was opened.
  std::uint64_t size() const noexcept { return size_; }
  /// Throws `error` unless all bytes are there.
  void read(std::uint64_t offset, void* to, std::size_t count) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// A file beside its destination, which takes the destination's name on `commit` and vanishes otherwise.
class output_file {
 public:
  /// Creates the temporary file. Throws `error`.
  explicit output_file(const std::filesystem::path& destination);
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;
  ~output_file();

  void write(const void* from, std::size_t count);
  /// For a library that writes by name; it may replace the file.
  const std::filesystem::path& temporary() const noexcept { return temporary_; }
  /// Brings the bytes to the disk, then renames.
  void commit();

 private:
  std::filesystem::path destination_;  ///< as given: what messages name
  std::filesystem::path target_;       ///< symbolic links followed
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

}  // namespace attend::io::detail
