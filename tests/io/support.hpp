// Files for the tests: a folder of their own, bytes in and out, and headers built by hand.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "attend/attend.hpp"
#include "attend/io.hpp"

namespace attend::test {

namespace fs = std::filesystem;

/// A folder that lasts as long as its test.
class in_folder : public testing::Test {
 protected:
  in_folder() {
    static int number = 0;
    folder = fs::temp_directory_path() / ("attend_io_tests_" + std::to_string(::getpid()) + "_" + std::to_string(number++));
    fs::create_directories(folder);
  }
  ~in_folder() override {
    std::error_code ignored;
    fs::permissions(folder, fs::perms::owner_all, ignored);
    fs::remove_all(folder, ignored);
  }

  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return folder / name;
  }

  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// Names of everything in the folder, temporary files included.
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path folder;
};

/// What opening the file and loading the tensor is refused with; empty where nothing is.
inline std::string refusal(const fs::path& path, const std::string& name) {
  try {
    io::archive(path).load(name);
  } catch (const io::error& fault) {
    return fault.what();
  }
  return "";
}

/// One line that names the file and, in this order, each of the words.
inline testing::AssertionResult names(const std::string& message, const fs::path& path, const std::vector<std::string>& words) {
  if (message.empty()) return testing::AssertionFailure() << "nothing was refused";
  if (message.find('\n') != std::string::npos) return testing::AssertionFailure() << "more than one line: " << message;
  std::size_t at = 0;
  std::vector<std::string> all{path.string()};
  all.insert(all.end(), words.begin(), words.end());
  for (const std::string& word : all) {
    at = message.find(word, at);
    if (at == std::string::npos) return testing::AssertionFailure() << "no '" << word << "' in: " << message;
  }
  return testing::AssertionSuccess();
}

template <class Number>
std::string bytes_of(const std::vector<Number>& values) {
  std::string bytes(values.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Little-endian bytes of a number.
inline std::string little(std::uint64_t value, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 255);
  return bytes;
}

inline std::string npy(const std::string& header, const std::string& data, int version = 1) {
  return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' + little(header.size(), version == 1 ? 2 : 4) + header +
         data;
}

inline std::string npy_of(const std::string& descr, const std::string& shape, const std::string& data, bool fortran = false) {
  return npy("{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }\n",
             data);
}

inline std::string safetensors(const std::string& header, const std::string& data) {
  return little(header.size(), 8) + header + data;
}

/// Elements in row-major order, whatever the strides.
template <class T>
std::vector<T> elements(const array_view& view) {
  std::vector<T> values;
  std::vector<std::int64_t> index(static_cast<std::size_t>(view.shape.rank()));
  for (std::int64_t n = 0; n < view.shape.count(); ++n) {
    std::int64_t rest = n, offset = 0;
    for (int axis = view.shape.rank() - 1; axis >= 0; --axis) {
      offset += rest % view.shape[axis] * view.strides[axis];
      rest /= view.shape[axis];
    }
    values.push_back(static_cast<const T*>(view.data)[offset]);
  }
  return values;
}

}  // namespace attend::test
