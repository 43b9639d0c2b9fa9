#include "file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>

namespace attend::io::detail {

namespace fs = std::filesystem;

namespace {

std::string reason(int number) { return std::generic_category().message(number); }

// Linux transfers at most 2 GiB a call; smaller pieces also end sooner on a signal.
constexpr std::size_t transfer = std::size_t{1} << 30;

// The file that a rename must replace so that a symbolic link keeps pointing at the result.
fs::path resolved(const fs::path& path) {
  std::error_code failed;
  if (fs::is_symlink(fs::symlink_status(path, failed))) {
    fs::path target = fs::weakly_canonical(path, failed);
    if (!failed) return target;
  }
  return path;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t longest = 300;
  std::string line;
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      line += c;
    } else {
      constexpr char digits[] = "0123456789abcdef";
      line += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
  }
  if (text.size() > longest) line += "...";
  return line;
}

std::string in_quotes(std::string_view text) { return std::string("'").append(text).append("'"); }

input_file::input_file(const fs::path& path) : path_(path) {
  // Opening a pipe without a writer would wait for ever: O_NONBLOCK does not, and has no effect on regular files.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw error(path, "", "cannot be opened: " + reason(errno) + ", expected a readable file");
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw error(path, "", "not a regular file, expected one whose size is known");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

input_file::~input_file() { ::close(descriptor_); }

void input_file::read(std::uint64_t offset, void* to, std::size_t count) const {
  auto* at = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, at, std::min(count, transfer), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw error(path_, "", "cannot be read: " + reason(errno) + ", expected a readable file");
    if (got == 0) throw error(path_, "", "ends early, expected " + std::to_string(count) + " more bytes");
    at += got;
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::size_t>(got);
  }
}

output_file::output_file(const fs::path& destination) : destination_(destination), target_(resolved(destination)) {
  struct stat status{};
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  static std::atomic<int> number{0};
  do {
    const std::string name = ".attend-" + std::to_string(::getpid()) + "-" + std::to_string(number++) + ".tmp";
    temporary_ = folder_of(target_) / name;
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) throw error(destination_, "", "cannot be written: " + reason(errno) + ", expected a writable folder");
  // A file that is replaced keeps its permissions; where that is not allowed, those of a new file do.
  if (exists) static_cast<void>(::fchmod(descriptor_, status.st_mode & 07777));
}

output_file::~output_file() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void output_file::write(const void* from, std::size_t count) {
  const auto* at = static_cast<const char*>(from);
  while (count > 0) {
    const ssize_t put = ::write(descriptor_, at, std::min(count, transfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw error(destination_, "", "cannot be written: " + reason(errno) + ", expected room for the result");
    at += put;
    count -= static_cast<std::size_t>(put);
  }
}

void output_file::commit() {
  // By name: a library that wrote the file may have replaced it.
  ::close(descriptor_);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written = descriptor_ >= 0 && (::fsync(descriptor_) == 0 || errno == EINVAL || errno == ENOTSUP);
  if (!written || ::rename(temporary_.c_str(), target_.c_str()) != 0) {
    throw error(destination_, "", "cannot be written: " + reason(errno) + ", expected a writable file");
  }
  temporary_.clear();
}

}  // namespace attend::io::detail

namespace attend::io {

void check_destination(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (!format_of(path)) throw error(path, "", "unknown extension, expected .npy, .npz or .safetensors");
  const fs::path target = detail::resolved(path);
  struct stat status{};
  if (::stat(target.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw error(path, "", "exists and is not a regular file, expected a file that may be replaced");
  }
  const fs::path folder = detail::folder_of(target);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw error(path, "", "cannot be written: " + detail::reason(errno) + ", expected a writable folder");
  }
}

}  // namespace attend::io
