#include "inputs.hpp"

#include <array>

#include "text.hpp"

namespace attend::cli {

namespace {

constexpr std::array<const char*, 3> roles{"q", "k", "v"};

bool is_npy(const std::string& path) { return io::format_of(path) == io::format::npy; }

}  // namespace

inputs::inputs(const input_arguments& from)
    : raw_(from.dtype == name_of(dtype::bf16) ? io::raw_elements::bfloat16 : io::raw_elements::refused) {
  const bool one = from.paths.size() == 1;
  if (from.dtype && !from.paths.empty() && raw_ == io::raw_elements::refused)
    refuse("--dtype", "bfloat16 alone beside IN, whose files say every other", in_quotes(*from.dtype));
  if (!one && from.names)
    refuse("--names", "one .npz or .safetensors whose tensors they are", std::to_string(from.paths.size()) + " paths");
  if (from.paths.size() != 0 && from.paths.size() != 1 && from.paths.size() != 3) {
    refuse("IN", "one .npz or .safetensors, or three .npy in the order q k v", std::to_string(from.paths.size()) + " paths");
  }
  for (const std::string& path : from.paths) {
    files_.emplace_back(path, raw_);
    const bool npy = files_.back().format() == io::format::npy;
    if (one && npy) refuse("IN", "one .npz or .safetensors, or three .npy in the order q k v", "one .npy, " + in_quotes(path));
    if (!one && !npy) refuse("IN", "three .npy where there are three paths", in_quotes(path));
  }
  if (one) {
    const std::vector<std::string> names = split(from.names.value_or("q,k,v"));
    if (names.size() != 3) refuse("--names", "three names Q,K,V", in_quotes(*from.names));
    for (const std::string& name : names) tensors_.push_back({&files_[0], name});
  }
  for (std::size_t i = 0; i < files_.size() && !one; ++i) tensors_.push_back({&files_[i], files_[i].names().front()});
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const place& at = tensors_[i];
    // Refuses a missing or malformed tensor before any other is loaded.
    const io::entry entry = at.file->describe(at.name);
    origins_[roles[i]] = one ? "tensor " + at.name + " of " + at.file->path().string() : at.file->path().string();
    if (from.dtype && entry.dtype != dtype::bf16)
      refuse("--dtype", std::string("what ") + roles[i] + " holds, " + entry.stored + origin(roles[i]), in_quotes(*from.dtype));
  }
}

io::entry inputs::describe(int tensor) const {
  const place& at = tensors_[static_cast<std::size_t>(tensor)];
  return at.file->describe(at.name);
}

const io::array& inputs::load(int tensor) {
  place& at = tensors_[static_cast<std::size_t>(tensor)];
  for (const place& other : tensors_) {
    // Self-attention may name one tensor three times.
    if (other.loaded != nullptr && other.file == at.file && other.name == at.name) at.loaded = other.loaded;
  }
  if (at.loaded == nullptr) at.loaded = &loaded_.emplace_back(at.file->load(at.name));
  return *at.loaded;
}

bool inputs::has(const std::string& name) const { return files_.size() == 1 && files_[0].contains(name); }

bool inputs::may_hold(const std::string& name) const { return has(name) || is_npy(name); }

const io::array& inputs::find(const std::string& argument, const std::string& option, const std::string& name) {
  std::string from = name;
  if (has(name)) {
    loaded_.push_back(files_[0].load(name));
    from = "tensor " + name + " of " + files_[0].path().string();
  } else if (is_npy(name)) {
    const io::archive file(name, raw_);
    loaded_.push_back(file.load(file.names().front()));
  } else {
    std::string known = "the path of a .npy";
    if (files_.size() == 1) known = "a tensor of " + files_[0].path().string() + " or " + known;
    refuse(option, known, in_quotes(name));
  }
  std::string& known = origins_[argument];  // a score list may name several
  known += (known.empty() ? "" : " and ") + from;
  return loaded_.back();
}

std::string inputs::origin(const std::string& argument) const {
  const auto found = origins_.find(argument);
  return found == origins_.end() ? "" : " (" + argument + " is " + found->second + ")";
}

void with_origins(const inputs& tensors, const std::function<void()>& work) {
  try {
    work();
  } catch (const argument_error& fault) {
    throw usage_error(fault.what() + tensors.origin(fault.argument()));
  }
}

}  // namespace attend::cli
