// The public face of the readers and writers: which format, and whether a name is there.
#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include "file.hpp"
#include "reader.hpp"

namespace attend::io {

namespace {

format format_by_content(const std::filesystem::path& path) {
  const detail::input_file file(path);
  std::array<char, 6> start{};
  file.read(0, start.data(), static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), start.size())));
  const std::string_view text(start.data(), start.size());
  if (text == "\x93NUMPY") return format::npy;
  if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06")) return format::npz;
  throw error(path, "", "unknown format, expected .npy, .npz or .safetensors");
}

std::unique_ptr<detail::reader> open(const std::filesystem::path& path, raw_elements raw) {
  const std::optional<format> named = format_of(path);
  switch (named ? *named : format_by_content(path)) {
    case format::npy: return detail::open_npy(path, raw);
    case format::npz: return detail::open_npz(path, raw);
    case format::safetensors: break;
  }
  return detail::open_safetensors(path);
}

void require(const archive& file, const std::string& name) {
  if (file.contains(name)) return;
  constexpr std::size_t shown = 8;
  std::string known;
  for (std::size_t i = 0; i < std::min(file.names().size(), shown); ++i)
    known += (i ? ", " : "") + detail::printable(file.names()[i]);
  if (file.names().size() > shown) known += ", ... (" + std::to_string(file.names().size()) + " in all)";
  throw error(
      file.path(), name,
      known.empty() ? "no such tensor: the file holds none, expected one" : "no such tensor, expected one of: " + known);
}

}  // namespace

error::error(const std::filesystem::path& file, const std::string& member, const std::string& problem)
    : std::runtime_error(detail::printable(file.string()) + ": " + (member.empty() ? "" : detail::printable(member) + ": ") +
                         problem),
      file_(file),
      member_(member) {}

std::optional<format> format_of(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (extension == ".npy") return format::npy;
  if (extension == ".npz") return format::npz;
  if (extension == ".safetensors") return format::safetensors;
  return std::nullopt;
}

archive::archive(const std::filesystem::path& path, raw_elements raw) : reader_(open(path, raw)) {}
archive::archive(archive&&) noexcept = default;
archive& archive::operator=(archive&&) noexcept = default;
archive::~archive() = default;

format archive::format() const noexcept { return reader_->format(); }
const std::filesystem::path& archive::path() const noexcept { return reader_->path(); }
const std::vector<std::string>& archive::names() const noexcept { return reader_->names(); }

bool archive::contains(std::string_view name) const noexcept { return std::ranges::find(names(), name) != names().end(); }

entry archive::describe(const std::string& name) const {
  require(*this, name);
  return reader_->header(name).described(name);
}

array archive::load(const std::string& name) const {
  require(*this, name);
  return reader_->load(name);
}

void save(const std::filesystem::path& path, const std::vector<named_array>& tensors) {
  check_destination(path);
  std::set<std::string_view> names;
  for (const named_array& tensor : tensors) {
    const bool named = !tensor.name.empty() && tensor.name.find('\0') == std::string::npos && tensor.name != "__metadata__";
    if (!named) throw error(path, tensor.name, "not a name for a tensor, expected text without NUL");
    if (!tensor.data) throw error(path, tensor.name, "no array given, expected one");
    if (!names.insert(tensor.name).second) throw error(path, tensor.name, "given twice, expected each name once");
  }
  switch (*format_of(path)) {
    case format::npy:
      if (tensors.size() != 1)
        throw error(path, "", std::to_string(tensors.size()) + " tensors, expected exactly one in a .npy");
      return detail::save_npy(path, tensors.front());
    case format::npz: return detail::save_npz(path, tensors);
    case format::safetensors: return detail::save_safetensors(path, tensors);
  }
}

}  // namespace attend::io
