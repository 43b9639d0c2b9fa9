// .safetensors: the header's length in 8 bytes, a JSON object, elements. https://huggingface.co/docs/safetensors
// The header is read as a stream of events and never becomes a tree, so that memory stays in proportion to the tensors it names.
#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "file.hpp"
#include "reader.hpp"

namespace attend::io::detail {

namespace {

// The format's own limit.
constexpr std::uint64_t longest_header = 100'000'000;
constexpr std::string_view metadata_key = "__metadata__";

constexpr std::array<element_code, 20> known_types{{{"BOOL", "bool", 8, dtype::boolean},
                                                    {"F4", "float4", 4, dtype::none},
                                                    {"F6_E2M3", "float6_e2m3", 6, dtype::none},
                                                    {"F6_E3M2", "float6_e3m2", 6, dtype::none},
                                                    {"U8", "uint8", 8, dtype::none},
                                                    {"I8", "int8", 8, dtype::none},
                                                    {"F8_E5M2", "float8_e5m2", 8, dtype::none},
                                                    {"F8_E4M3", "float8_e4m3", 8, dtype::none},
                                                    {"F8_E8M0", "float8_e8m0", 8, dtype::none},
                                                    {"I16", "int16", 16, dtype::none},
                                                    {"U16", "uint16", 16, dtype::none},
                                                    {"F16", "float16", 16, dtype::f16},
                                                    {"BF16", "bfloat16", 16, dtype::bf16},
                                                    {"I32", "int32", 32, dtype::i64},
                                                    {"U32", "uint32", 32, dtype::none},
                                                    {"F32", "float32", 32, dtype::f32},
                                                    {"C64", "complex64", 64, dtype::none},
                                                    {"F64", "float64", 64, dtype::f64},
                                                    {"I64", "int64", 64, dtype::i64},
                                                    {"U64", "uint64", 64, dtype::none}}};

struct tensor_entry {
  tensor_header header;
  std::uint64_t begin = 0, end = 0;
};

/// Receives the JSON events of a header. Objects: the header itself, one per tensor, and `__metadata__` with strings.
class header_events : public nlohmann::json_sax<nlohmann::json> {
 public:
  header_events(const std::filesystem::path& path, std::vector<std::string>& names,
                std::unordered_map<std::string, tensor_entry>& entries)
      : path_(path), names_(names), entries_(entries) {}

  bool key(string_t& key) override {
    if (place_ == place::header) {
      if (key.find('\0') != std::string::npos) fail("a NUL in the name " + in_quotes(key), "a name without");
      if (key == metadata_key ? seen_metadata_ : entries_.contains(key)) refuse("twice in the header", "each name once", key);
      tensor_ = key;
      if (key == metadata_key) {
        seen_metadata_ = true;
      } else {
        names_.push_back(key);
        entry_ = &entries_[key];
      }
    } else if (place_ == place::metadata) {
      if (!metadata_keys_.insert(key).second) fail(in_quotes(key) + " twice", "each key once");
    } else {
      field_ = key == "dtype"          ? field::dtype
               : key == "shape"        ? field::shape
               : key == "data_offsets" ? field::offsets
                                       : field::none;
      if (field_ == field::none) fail(in_quotes(key), "dtype, shape and data_offsets alone");
      bool& seen = seen_[static_cast<std::size_t>(field_)];
      if (seen) fail(in_quotes(key) + " twice", "each key once");
      seen = true;
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == place::outside) {
      place_ = place::header;
    } else if (place_ == place::header) {
      place_ = tensor_ == metadata_key ? place::metadata : place::tensor;
      seen_ = {};
      offsets_ = 0;
      field_ = field::none;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == place::tensor && !(seen_[1] && seen_[2] && seen_[3])) fail("incomplete", "dtype, shape and data_offsets");
    place_ = place_ == place::header ? place::outside : place::header;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != place::tensor || (field_ != field::shape && field_ != field::offsets)) unexpected("an array");
    place_ = place::numbers;
    return true;
  }

  bool end_array() override {
    if (field_ == field::offsets && offsets_ != 2) fail(std::to_string(offsets_) + " data_offsets", "a begin and an end");
    place_ = place::tensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != place::numbers) unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) unexpected("a number above 2^63 - 1");
    if (field_ == field::offsets) {
      if (offsets_ == 2) fail("more than two data_offsets", "a begin and an end");
      (offsets_++ == 0 ? entry_->begin : entry_->end) = value;
    } else {
      entry_->header.shape.push_back(static_cast<std::int64_t>(value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == place::metadata) return true;
    if (place_ != place::tensor || field_ != field::dtype) unexpected("a string");
    const auto* type =
        std::find_if(known_types.begin(), known_types.end(), [&](const element_code& one) { return one.code == value; });
    if (type == known_types.end()) fail("unknown dtype " + in_quotes(value), "one of the format's, such as F32");
    entry_->header.type = {std::string(type->name), type->bits, type->dtype, false};
    return true;
  }

  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a fraction"); }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool binary(binary_t&) override { unexpected("bytes"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw error(path_, "", "header: not valid JSON at byte " + std::to_string(position) + ", expected a JSON object in UTF-8");
  }

 private:
  enum class place { outside, header, tensor, metadata, numbers };
  enum class field { none, dtype, shape, offsets };

  [[noreturn]] void refuse(const std::string& problem, const std::string& expected, const std::string& member) const {
    throw error(path_, member, "header: " + printable(problem) + ", expected " + expected);
  }
  [[noreturn]] void fail(const std::string& problem, const std::string& expected) const { refuse(problem, expected, tensor_); }
  [[noreturn]] void unexpected(const std::string& what) const {
    if (place_ == place::outside) fail(what, "an object of tensors");
    if (place_ == place::header) fail(what, "an object with dtype, shape and data_offsets");
    if (place_ == place::metadata) fail(what, "strings alone");
    fail(what, "dtype: a string; shape, data_offsets: arrays of whole numbers");
  }

  const std::filesystem::path& path_;
  std::vector<std::string>& names_;
  std::unordered_map<std::string, tensor_entry>& entries_;
  std::unordered_set<std::string> metadata_keys_;
  std::string tensor_;
  tensor_entry* entry_ = nullptr;
  place place_ = place::outside;
  field field_ = field::none;
  std::array<bool, 4> seen_{};
  int offsets_ = 0;
  bool seen_metadata_ = false;
};

class safetensors_reader : public reader {
 public:
  explicit safetensors_reader(const std::filesystem::path& path) : reader(path, io::format::safetensors), file_(path) {
    if (file_.size() < 8)
      throw error(path, "", "holds " + std::to_string(file_.size()) + " bytes, expected a header length of 8 bytes");
    std::uint64_t length = 0;
    file_.read(0, &length, sizeof length);
    const std::uint64_t rest = file_.size() - 8;
    if (length > std::min(rest, longest_header)) {
      throw error(path, "",
                  "header of " + std::to_string(length) + " bytes, expected at most " + std::to_string(longest_header) +
                      " and at most the " + std::to_string(rest) + " bytes behind the length");
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    file_.read(8, text.data(), text.size());
    if (!text.starts_with('{')) throw error(path, "", "header: does not begin with '{', expected a JSON object");
    header_events events(path, names_, entries_);
    nlohmann::json::sax_parse(text, &events);
    data_ = 8 + length;
    check_places(rest - length);
  }

  tensor_header header(const std::string& name) override { return entries_.at(name).header; }

  array load(const std::string& name) override {
    const tensor_entry& entry = entries_.at(name);
    std::uint64_t at = data_ + entry.begin;
    return load_elements(path(), name, entry.header, [this, &at](void* to, std::size_t count) {
      file_.read(at, to, count);
      at += count;
    });
  }

 private:
  /// Every tensor takes the bytes that its shape needs, and together they take all `bytes` without holes or overlaps.
  void check_places(std::uint64_t bytes) const {
    std::vector<const std::string*> order;
    for (const std::string& name : names_) order.push_back(&name);
    const auto at = [&](const std::string* name) -> const tensor_entry& { return entries_.at(*name); };
    std::sort(order.begin(), order.end(), [&](const std::string* a, const std::string* b) {
      return std::pair(at(a).begin, at(a).end) < std::pair(at(b).begin, at(b).end);
    });
    std::uint64_t expected = 0;
    for (const std::string* name : order) {
      const tensor_entry& entry = at(name);
      const auto fail = [&](const std::string& problem) {
        throw error(path(), *name,
                    "data_offsets " +
                        to_string({static_cast<std::int64_t>(entry.begin), static_cast<std::int64_t>(entry.end)}) +
                        ", expected " + problem);
      };
      if (entry.begin > entry.end || entry.end > bytes)
        fail("a begin and an end within the " + std::to_string(bytes) + " bytes of data");
      std::uint64_t needed = 0;
      try {
        needed = entry.header.bytes();
      } catch (const std::overflow_error&) {
        fail("a shape whose elements can be addressed, got " + to_string(entry.header.shape));
      }
      if (entry.end - entry.begin != needed) {
        fail(std::to_string(needed) + " bytes for " + entry.header.type.name + " " + to_string(entry.header.shape));
      }
      if (entry.begin != expected) fail("a begin of " + std::to_string(expected) + ": no overlap and no hole");
      expected = entry.end;
    }
    if (expected != bytes) {
      throw error(path(), "",
                  "holds " + std::to_string(bytes) + " bytes of data, expected the " + std::to_string(expected) +
                      " that its tensors take");
    }
  }

  input_file file_;
  std::unordered_map<std::string, tensor_entry> entries_;
  std::uint64_t data_ = 0;
};

std::string_view code_of(dtype type) {
  const auto* known = std::find_if(known_types.begin(), known_types.end(),
                                   [&](const element_code& one) { return one.dtype == type && one.bits == 8 * size_of(type); });
  if (known == known_types.end())
    throw std::invalid_argument("tensor: expected an element type that .safetensors files are written with, got " +
                                std::string(name_of(type)));
  return known->code;
}

}  // namespace

std::unique_ptr<reader> open_safetensors(const std::filesystem::path& path) {
  return std::make_unique<safetensors_reader>(path);
}

void save_safetensors(const std::filesystem::path& path, const std::vector<named_array>& tensors) {
  // Wide elements first, so that each tensor begins at a multiple of its element size.
  std::vector<const named_array*> order;
  for (const named_array& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const named_array* a, const named_array* b) { return size_of(a->data.type) > size_of(b->data.type); });
  auto header = nlohmann::ordered_json::object();
  std::size_t end = 0;
  for (const named_array* tensor : order) {
    const std::size_t begin = end;
    end += bytes_of(tensor->data);
    auto shape = nlohmann::ordered_json::array();
    for (int axis = 0; axis < tensor->data.shape.rank(); ++axis) shape.push_back(tensor->data.shape[axis]);
    header[tensor->name] = {{"dtype", code_of(tensor->data.type)}, {"shape", shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  constexpr std::size_t alignment = 8;
  text.append((alignment - text.size() % alignment) % alignment, ' ');
  const std::uint64_t length = text.size();
  output_file file(path);
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const named_array* tensor : order) {
    std::vector<std::byte> storage;
    file.write(row_major(tensor->data, storage), bytes_of(tensor->data));
  }
  file.commit();
}

}  // namespace attend::io::detail
