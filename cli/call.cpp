#include "call.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace attend::cli {

namespace {

constexpr std::array<const char*, 3> roles{"q", "k", "v"};

[[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& received) {
  throw usage_error(argument + ": expected " + expected + ", got " + received);
}

std::string in_quotes(const std::string& text) { return std::string("'").append(text).append("'"); }

template <class Number>
std::optional<Number> parse_number(const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [at, fault] = std::from_chars(text.data(), end, value);
  if (fault != std::errc{} || at != end) return std::nullopt;
  return value;
}

/// The option of the command line for an argument of the library: --key-lengths for key_lengths.
std::string option_of(std::string argument) {
  if (argument == "additive") return "--compatibility additive";
  std::replace(argument.begin(), argument.end(), '_', '-');
  return "--" + argument;
}

bool is_npy(const std::string& path) { return io::format_of(path) == io::format::npy; }

window parse_window(const std::string& text) {
  const std::string expected = "two sides L,R, each a whole number or none";
  const std::vector<std::string> sides = split(text);
  if (sides.size() != 2) refuse("--window", expected, in_quotes(text));
  const auto side = [&](const std::string& word) -> std::optional<std::int64_t> {
    if (word == "none") return std::nullopt;
    const auto value = parse_number<std::int64_t>(word);
    if (!value) refuse("--window", expected, in_quotes(text));
    return value;
  };
  return {side(sides[0]), side(sides[1])};
}

/// Two sizes R,C, or one for both where `one` allows it.
grid_size parse_sizes(const std::string& option, const std::string& text, bool one) {
  const auto sizes = parse_integers(text);
  if (sizes && sizes->size() == 2) return {(*sizes)[0], (*sizes)[1]};
  if (sizes && sizes->size() == 1 && one) return sizes->front();
  refuse(option, one ? "a whole number N, or two R,C" : "two whole numbers R,C", in_quotes(text));
}

normalizer parse_normalizer(const std::string& text) {
  for (const normalizer kind :
       {normalizer::softmax, normalizer::mean, normalizer::sum, normalizer::sigmoid, normalizer::relu2, normalizer::abs}) {
    if (text == name_of(kind)) return kind;
  }
  refuse("--normalizer", "softmax, mean, sum, sigmoid, relu2 or abs", in_quotes(text));
}

neighborhood parse_neighborhood(const option_arguments& from) {
  neighborhood near;
  if (!from.neighborhood) {
    if (from.dilation) refuse("--dilation", "--neighborhood beside it", "none");
    if (from.border) refuse("--border", "--neighborhood beside it", "none");
    return near;
  }
  near.kernel = parse_sizes("--neighborhood", *from.neighborhood, true);
  if (from.dilation) near.dilation = parse_sizes("--dilation", *from.dilation, true);
  if (from.border == "shift") {
    near.border = border::shift;
  } else if (from.border && *from.border != "clip") {
    refuse("--border", "clip or shift", in_quotes(*from.border));
  }
  return near;
}

compatibility parse_compatibility(const std::string& text, inputs& tensors) {
  for (const compatibility& f : {compatibility::dot, compatibility::cosine, compatibility::l1, compatibility::none}) {
    if (text == name_of(f.kind)) return f;
  }
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon), of = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (kind == "gaussian" && !of.empty()) {
    const auto sigma = parse_number<double>(of);
    if (!sigma) refuse("--compatibility", "gaussian:SIGMA with a number", in_quotes(text));
    return gaussian(*sigma);
  }
  if (kind == "additive" && !of.empty()) return additive(tensors.find("additive", of).view());
  refuse("--compatibility", "dot, cosine, l1, none, gaussian:SIGMA or additive:NAME", in_quotes(text));
}

}  // namespace

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(',', begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

std::optional<std::vector<std::int64_t>> parse_integers(const std::string& text) {
  std::vector<std::int64_t> values;
  for (const std::string& part : split(text)) {
    const auto value = parse_number<std::int64_t>(part);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

layout parse_layout(const std::optional<std::string>& text) {
  if (!text || *text == "bhld") return layout::bhld;
  if (*text != "blhd") refuse("--layout", "bhld or blhd", in_quotes(*text));
  return layout::blhd;
}

inputs::inputs(const input_arguments& from) {
  const bool one = from.paths.size() == 1;
  if (!one && from.names)
    refuse("--names", "one .npz or .safetensors whose tensors they are", std::to_string(from.paths.size()) + " paths");
  if (from.paths.size() != 0 && from.paths.size() != 1 && from.paths.size() != 3) {
    refuse("IN", "one .npz or .safetensors, or three .npy in the order q k v", std::to_string(from.paths.size()) + " paths");
  }
  for (const std::string& path : from.paths) {
    files_.emplace_back(path);
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
    at.file->describe(at.name);
    origins_[roles[i]] = one ? "tensor " + at.name + " of " + at.file->path().string() : at.file->path().string();
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

const io::array& inputs::find(const std::string& argument, const std::string& name) {
  if (has(name)) {
    loaded_.push_back(files_[0].load(name));
    origins_[argument] = "tensor " + name + " of " + files_[0].path().string();
  } else if (is_npy(name)) {
    const io::archive file(name);
    loaded_.push_back(file.load(file.names().front()));
    origins_[argument] = name;
  } else {
    std::string known = "the path of a .npy";
    if (files_.size() == 1) known = "a tensor of " + files_[0].path().string() + " or " + known;
    refuse(option_of(argument), known, in_quotes(name));
  }
  return loaded_.back();
}

std::string inputs::origin(const std::string& argument) const {
  const auto found = origins_.find(argument);
  return found == origins_.end() ? "" : " (" + argument + " is " + found->second + ")";
}

template <class Integers>
Integers call_options::integers(const std::string& argument, const std::string& text, inputs& tensors) {
  if (const auto values = parse_integers(text)) {
    if (values->size() == 1) return Integers(values->front());
    tensor<std::int64_t>& list = lists_.emplace_back(extents{static_cast<std::int64_t>(values->size())});
    std::copy(values->begin(), values->end(), list.begin());
    return Integers(list);
  }
  if (!tensors.has(text) && !is_npy(text)) {
    const char* words = argument == "query_offset" ? "upper_left, lower_right, " : "";
    refuse(option_of(argument), std::string(words) + "a whole number, one per batch as a,b,.., or an int64 tensor",
           in_quotes(text));
  }
  const array_view view = tensors.find(argument, text).view();
  if (view.type != dtype::i64)
    refuse(option_of(argument), "an int64 or int32 tensor", std::string(name_of(view.type)) + tensors.origin(argument));
  return Integers(tensor_view<const std::int64_t>(static_cast<const std::int64_t*>(view.data), view.shape, view.strides));
}

call_options::call_options(const option_arguments& from, inputs& tensors) {
  how_.causal = from.causal;
  how_.reproducible = from.reproducible;
  how_.layout = parse_layout(from.layout);
  if (from.window) how_.window = parse_window(*from.window);
  if (from.query_offset == "upper_left") {
    how_.query_offset = upper_left;
  } else if (from.query_offset == "lower_right") {
    how_.query_offset = lower_right;
  } else if (from.query_offset) {
    how_.query_offset = integers<query_position>("query_offset", *from.query_offset, tensors);
  }
  if (from.prefix) how_.prefix = integers<batch_integers>("prefix", *from.prefix, tensors);
  if (from.key_lengths) how_.key_lengths = integers<batch_integers>("key_lengths", *from.key_lengths, tensors);
  if (from.grid) how_.grid = parse_sizes("--grid", *from.grid, false);
  how_.neighborhood = parse_neighborhood(from);
  if (from.mask) how_.mask = tensors.find("mask", *from.mask).view();
  if (from.bias) how_.bias = tensors.find("bias", *from.bias).view();
  if (from.relative) how_.relative = tensors.find("relative", *from.relative).view();
  if (from.compatibility) how_.compatibility = parse_compatibility(*from.compatibility, tensors);
  if (from.normalizer) how_.normalizer = parse_normalizer(*from.normalizer);
  if (from.scale) {
    how_.scale = parse_number<double>(*from.scale);
    if (!how_.scale || !std::isfinite(*how_.scale)) refuse("--scale", "a finite number", in_quotes(*from.scale));
  }
  if (from.threads) {
    const auto threads = parse_number<int>(*from.threads);
    if (!threads || *threads < 1) refuse("--threads", "a whole number from 1", in_quotes(*from.threads));
    how_.threads = *threads;
  }
}

void with_origins(const inputs& tensors, const std::function<void()>& work) {
  try {
    work();
  } catch (const argument_error& fault) {
    throw usage_error(fault.what() + tensors.origin(fault.argument()));
  }
}

}  // namespace attend::cli
