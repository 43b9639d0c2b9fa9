// .npz: a zip of .npy members. Members are found in the central directory; inflating stops at the size that the member's own .npy
// header gives, which must be the size that the directory declares, which must be one that its compressed bytes can give.
#include <zip.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>

#include "file.hpp"
#include "npy.hpp"

namespace attend::io::detail {

namespace {

constexpr std::string_view suffix = ".npy";
// Deflate gives at most 258 bytes for 2 bits; the slack is for its block headers.
constexpr std::uint64_t largest_ratio = 1032, slack = 64;

struct close_archive {
  void operator()(zip_t* archive) const noexcept { zip_discard(archive); }
};
using archive_handle = std::unique_ptr<zip_t, close_archive>;

struct close_member {
  void operator()(zip_file_t* member) const noexcept { zip_fclose(member); }
};
using member_handle = std::unique_ptr<zip_file_t, close_member>;

std::string text_of(int code) {
  zip_error_t fault;
  zip_error_init_with_code(&fault, code);
  std::string text = zip_error_strerror(&fault);
  zip_error_fini(&fault);
  return text;
}

class npz_reader : public reader {
 public:
  npz_reader(const std::filesystem::path& path, raw_elements raw)
      : reader(path, io::format::npz), size_(input_file(path).size()), raw_(raw) {
    int fault = 0;
    archive_.reset(zip_open(path.c_str(), ZIP_RDONLY, &fault));
    if (!archive_) throw error(path, "", "not a readable zip archive (" + text_of(fault) + "), expected an .npz");
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      const char* text = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(i), ZIP_FL_ENC_GUESS);
      if (text == nullptr) throw error(path, "", "a member has no readable name, expected UTF-8 or code page 437");
      std::string name = text;
      if (!name.ends_with(suffix)) continue;
      name.resize(name.size() - suffix.size());
      if (!index_.emplace(name, static_cast<zip_uint64_t>(i)).second)
        throw error(path, name, "two members of this name, expected one");
      names_.push_back(std::move(name));
    }
  }

  tensor_header header(const std::string& name) override {
    tensor_header header;
    open(name, header);
    return header;
  }

  array load(const std::string& name) override {
    tensor_header header;
    const member_handle member = open(name, header);
    array result = load_elements(path(), name, header, inflate(name, member.get()));
    // Checksum and length are compared once the end has been seen.
    char none;
    const zip_int64_t more = zip_fread(member.get(), &none, 1);
    if (more < 0) damaged(name, member.get());
    if (more > 0) throw error(path(), name, "holds more bytes than it declares, expected a member of its declared size");
    return result;
  }

 private:
  /// A member, read up to its first element. Nothing is inflated beyond the .npy header.
  member_handle open(const std::string& name, tensor_header& header) {
    const zip_uint64_t index = index_.at(name);
    zip_stat_t status;
    constexpr zip_uint64_t needed = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat_index(archive_.get(), index, 0, &status) != 0 || (status.valid & needed) != needed) {
      throw error(path(), name, "its directory entry is incomplete, expected sizes and a method");
    }
    const bool stored = status.comp_method == ZIP_CM_STORE;
    if (status.encryption_method != ZIP_EM_NONE || (!stored && status.comp_method != ZIP_CM_DEFLATE)) {
      throw error(path(), name,
                  "encrypted, or compressed by method " + std::to_string(status.comp_method) + ", expected stored or deflated");
    }
    if (status.comp_size > size_) {
      throw error(path(), name,
                  "declares " + std::to_string(status.comp_size) + " compressed bytes, expected at most the file's " +
                      std::to_string(size_));
    }
    // comp_size is at most a file's size, so the product fits.
    const bool plausible = stored ? status.size == status.comp_size : status.size <= status.comp_size * largest_ratio + slack;
    if (!plausible) {
      throw error(path(), name,
                  "declares " + std::to_string(status.size) + " bytes, expected a size that its " +
                      std::to_string(status.comp_size) + " stored bytes can give");
    }
    member_handle member(zip_fopen_index(archive_.get(), index, 0));
    if (!member) {
      throw error(path(), name,
                  std::string("cannot be read (") + zip_strerror(archive_.get()) + "), expected an intact member");
    }
    const std::uint64_t begin = read_npy_header(path(), name, status.size, inflate(name, member.get()), raw_, header);
    if (header.type.dtype != dtype::none) check_npy_size(path(), name, header, status.size - begin);
    return member;
  }

  fetch inflate(const std::string& name, zip_file_t* member) const {
    return [this, name, member](void* to, std::size_t count) {
      auto* at = static_cast<char*>(to);
      while (count > 0) {
        const zip_int64_t got = zip_fread(member, at, count);
        if (got < 0) damaged(name, member);
        if (got == 0) throw error(path(), name, "ends early, expected " + std::to_string(count) + " more bytes");
        at += got;
        count -= static_cast<std::size_t>(got);
      }
    };
  }

  [[noreturn]] void damaged(const std::string& name, zip_file_t* member) const {
    throw error(path(), name, std::string("damaged (") + zip_file_strerror(member) + "), expected intact bytes");
  }

  std::uint64_t size_;
  raw_elements raw_;
  archive_handle archive_;
  std::map<std::string, zip_uint64_t, std::less<>> index_;
};

/// What libzip reads a member from while it writes the archive: a header and elements, neither copied.
struct member_source {
  std::string header;
  std::vector<std::byte> storage;
  zip_buffer_fragment_t parts[2];
};

}  // namespace

std::unique_ptr<reader> open_npz(const std::filesystem::path& path, raw_elements raw) {
  return std::make_unique<npz_reader>(path, raw);
}

void save_npz(const std::filesystem::path& path, const std::vector<named_array>& tensors) {
  output_file file(path);
  std::vector<member_source> sources(tensors.size());
  int fault = 0;
  archive_handle archive(zip_open(file.temporary().c_str(), ZIP_CREATE | ZIP_TRUNCATE, &fault));
  if (!archive) throw error(path, "", "cannot be written: " + text_of(fault) + ", expected a writable folder");
  const auto check = [&](bool done, const std::string& name) {
    if (!done)
      throw error(path, name,
                  std::string("cannot be written: ") + zip_strerror(archive.get()) + ", expected room for the result");
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const named_array& tensor = tensors[i];
    member_source& source = sources[i];
    source.header = npy_header(tensor.data);
    source.parts[0] = {reinterpret_cast<zip_uint8_t*>(source.header.data()), source.header.size()};
    // libzip's fragments are not const, but are only read.
    auto* data = reinterpret_cast<zip_uint8_t*>(const_cast<std::byte*>(row_major(tensor.data, source.storage)));
    source.parts[1] = {data, bytes_of(tensor.data)};
    zip_source_t* input = zip_source_buffer_fragment(archive.get(), source.parts, source.parts[1].length ? 2 : 1, 0);
    check(input != nullptr, tensor.name);
    const zip_int64_t index = zip_file_add(archive.get(), (tensor.name + std::string(suffix)).c_str(), input, ZIP_FL_ENC_UTF_8);
    if (index < 0) zip_source_free(input);
    check(index >= 0, tensor.name);
    check(zip_set_file_compression(archive.get(), static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0) == 0, tensor.name);
    // The first day that a zip can name: equal results give equal files.
    constexpr zip_uint16_t midnight = 0, january_1980 = (1 << 5) | 1;
    check(zip_file_set_dostime(archive.get(), static_cast<zip_uint64_t>(index), midnight, january_1980, 0) == 0, tensor.name);
  }
  check(zip_close(archive.get()) == 0, "");
  // A closed archive is freed; one that failed to close is not.
  static_cast<void>(archive.release());
  file.commit();
}

}  // namespace attend::io::detail
