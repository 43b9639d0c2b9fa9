// .npy, versions 1.0 to 3.0: magic, version, length, a Python dictionary as text, elements.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include "npy.hpp"

#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "file.hpp"

namespace attend::io::detail {

namespace {

constexpr std::string_view magic = "\x93NUMPY";
// Far beyond what eight axes need; a longer header is refused before memory is allocated for it.
constexpr std::uint64_t longest_header = std::uint64_t{1} << 20;

/// The dictionary in a header: a parser of the few Python literals that may stand there.
class header_parser {
 public:
  header_parser(const std::filesystem::path& path, const std::string& member, std::string_view text, raw_elements raw)
      : path_(path), member_(member), text_(text), raw_(raw) {}

  tensor_header parse() {
    tensor_header header;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string("a key");
      expect(':');
      bool& seen = key == "descr" ? descr : key == "fortran_order" ? order : key == "shape" ? shape : unknown(key);
      if (seen) fail(in_quotes(key) + " twice", "each key once");
      seen = true;
      if (key == "descr") header.type = parse_descr();
      if (key == "fortran_order") header.fortran_order = boolean();
      if (key == "shape") header.shape = tuple();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) fail("text after the dictionary", "blanks alone");
    for (const auto& [seen, key] : {std::pair{descr, "descr"}, {order, "fortran_order"}, {shape, "shape"}}) {
      if (!seen) fail("no " + in_quotes(key), "the keys descr, fortran_order and shape");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& problem, const std::string& expected) const {
    throw error(path_, member_, "header: " + printable(problem) + ", expected " + expected);
  }

  [[noreturn]] bool& unknown(const std::string& key) const {
    fail("key " + in_quotes(key), "descr, fortran_order and shape alone");
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n\f").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool accept(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string here() const { return at_ == text_.size() ? "its end" : in_quotes(text_.substr(at_, 12)); }

  void expect(char c) {
    if (!accept(c)) fail(here(), in_quotes({&c, 1}));
  }

  std::string string(const std::string& what) {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail(here(), what + " in quotes");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    if (value.find('\\') != std::string::npos) fail(in_quotes(value), what + " without escapes");
    at_ = end + 1;
    return value;
  }

  bool boolean() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {std::string_view("False"), false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail("fortran_order " + here(), "True or False");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> sizes;
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      if (!comma) fail("shape " + here(), "',' or ')'");
      skip_blanks();
      std::int64_t size = 0;
      const auto [end, fault] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (fault != std::errc{} || size < 0) fail("shape " + here(), "whole numbers from 0 to 2^63 - 1");
      at_ = static_cast<std::size_t>(end - text_.data());
      // Python 2 wrote long integers as 3L.
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;
      sizes.push_back(size);
      if (sizes.size() > 64) fail("a shape of more than 64 axes", "at most " + std::to_string(max_rank));
      comma = accept(',');
    }
    if (sizes.size() == 1 && !comma) fail("shape (" + std::to_string(sizes[0]) + ")", "a tuple");
    return sizes;
  }

  element parse_descr() {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == '[') fail("a structured descr", "one element type such as '<f4'");
    const std::string descr = string("descr");
    const bool ordered = !descr.empty() && std::string_view("<>=|").find(descr[0]) != std::string_view::npos;
    const std::string_view type = std::string_view(descr).substr(ordered ? 1 : 0);
    const bool swap = ordered && descr[0] == '>';
    constexpr std::string_view raw = "V2";
    if (type == raw && raw_ == raw_elements::bfloat16) return {"bfloat16", 16, dtype::bf16, swap};
    // Element types without a dtype of ours are named, so that the refusal of an array says what it holds.
    constexpr std::array<element_code, 17> types{
        {{"f4", "float32", 32, dtype::f32},
         {"f8", "float64", 64, dtype::f64},
         {"b1", "bool", 8, dtype::boolean},
         {"i4", "int32", 32, dtype::i64},
         {"i8", "int64", 64, dtype::i64},
         {"f2", "float16", 16, dtype::f16},
         {raw, "raw 2-byte elements (bfloat16 where --dtype bfloat16 says so)", 16, dtype::none},
         {"f16", "extended precision", 128, dtype::none},
         {"i1", "int8", 8, dtype::none},
         {"i2", "int16", 16, dtype::none},
         {"u1", "uint8", 8, dtype::none},
         {"u2", "uint16", 16, dtype::none},
         {"u4", "uint32", 32, dtype::none},
         {"u8", "uint64", 64, dtype::none},
         {"c8", "complex64", 64, dtype::none},
         {"c16", "complex128", 128, dtype::none},
         {"O", "Python objects", 64, dtype::none}}};
    for (const element_code& one : types) {
      if (type != one.code) continue;
      return {std::string(one.name), one.bits, one.dtype, swap && one.bits > 8};
    }
    fail("descr " + in_quotes(descr), "'<f4', '<f8', '<f2', '|V2', '|b1', '<i4' or '<i8'");
  }

  const std::filesystem::path& path_;
  const std::string& member_;
  std::string_view text_;
  raw_elements raw_;
  std::size_t at_ = 0;
};

class npy_reader : public reader {
 public:
  npy_reader(const std::filesystem::path& path, raw_elements raw) : reader(path, io::format::npy), file_(path) {
    std::uint64_t at = 0;
    begin_ = read_npy_header(path, "", file_.size(), advance(at), raw, header_);
    if (header_.type.dtype != dtype::none) check_npy_size(path, "", header_, file_.size() - begin_);
    names_ = {path.stem().string()};
  }

  tensor_header header(const std::string&) override { return header_; }

  array load(const std::string&) override {
    std::uint64_t at = begin_;
    return load_elements(path(), "", header_, advance(at));
  }

 private:
  fetch advance(std::uint64_t& at) const {
    return [this, &at](void* to, std::size_t count) {
      file_.read(at, to, count);
      at += count;
    };
  }

  input_file file_;
  tensor_header header_;
  std::uint64_t begin_ = 0;
};

}  // namespace

std::uint64_t read_npy_header(const std::filesystem::path& path, const std::string& member, std::uint64_t available,
                              const fetch& next, raw_elements raw, tensor_header& header) {
  std::array<unsigned char, 12> start{};
  const auto need = [&](std::uint64_t bytes, const char* what) {
    if (available < bytes) {
      throw error(
          path, member,
          "holds " + std::to_string(available) + " bytes, expected " + what + " of " + std::to_string(bytes) + " bytes");
    }
  };
  need(10, "a .npy with a magic, version and header length");
  next(start.data(), 10);
  if (std::memcmp(start.data(), magic.data(), magic.size()) != 0) {
    throw error(path, member, "not in .npy format, expected it to begin with \\x93NUMPY");
  }
  const unsigned major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0) {
    throw error(path, member,
                ".npy version " + std::to_string(major) + "." + std::to_string(minor) + ", expected 1.0, 2.0 or 3.0");
  }
  std::uint64_t begin = 10;
  std::uint64_t length = start[8] | static_cast<std::uint64_t>(start[9]) << 8;
  if (major > 1) {
    begin = 12;
    need(begin, "a .npy with a magic, version and header length");
    next(start.data() + 10, 2);
    length |= static_cast<std::uint64_t>(start[10]) << 16 | static_cast<std::uint64_t>(start[11]) << 24;
  }
  need(begin + length, "a .npy header");
  if (length > longest_header) {
    throw error(path, member,
                "header of " + std::to_string(length) + " bytes, expected at most " + std::to_string(longest_header));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  next(text.data(), text.size());
  header = header_parser(path, member, text, raw).parse();
  return begin + length;
}

void check_npy_size(const std::filesystem::path& path, const std::string& member, const tensor_header& header,
                    std::uint64_t available) {
  const std::string array = header.type.name + " " + to_string(header.shape);
  std::uint64_t bytes = 0;
  try {
    bytes = header.bytes();
  } catch (const std::overflow_error&) {
    throw error(path, member,
                "header: " + array + " has more elements than can be addressed, expected " + std::to_string(available) +
                    " bytes of them");
  }
  if (bytes != available) {
    throw error(
        path, member,
        "holds " + std::to_string(available) + " bytes behind its header, expected " + std::to_string(bytes) + " for " + array);
  }
}

std::string npy_header(const array_view& view) {
  constexpr auto descr = [](dtype type) {
    switch (type) {
      case dtype::f32: return "<f4";
      case dtype::f64: return "<f8";
      case dtype::i64: return "<i8";
      case dtype::boolean: return "|b1";
      case dtype::f16: return "<f2";
      case dtype::bf16: return "|V2";  // as NumPy writes types that it has no name for
      case dtype::none: break;
    }
    throw std::invalid_argument("tensor: expected an element type that .npy files are written with, got " +
                                std::string(name_of(type)));
  };
  std::vector<std::int64_t> shape;
  for (int axis = 0; axis < view.shape.rank(); ++axis) shape.push_back(view.shape[axis]);
  std::string text =
      "{'descr': '" + std::string(descr(view.type)) + "', 'fortran_order': False, 'shape': " + to_string(shape) + ", }";
  // The elements begin at a multiple of 64 bytes, behind a newline; eight axes always fit the 16-bit length of version 1.0.
  constexpr std::size_t before = 10, alignment = 64;
  text.append(alignment - 1 - (before + text.size()) % alignment, ' ');
  text += '\n';
  std::string header(magic);
  header += {'\1', '\0', static_cast<char>(text.size() & 255), static_cast<char>(text.size() >> 8)};
  return header + text;
}

std::unique_ptr<reader> open_npy(const std::filesystem::path& path, raw_elements raw) {
  return std::make_unique<npy_reader>(path, raw);
}

void save_npy(const std::filesystem::path& path, const named_array& tensor) {
  const std::string header = npy_header(tensor.data);
  std::vector<std::byte> storage;
  const std::byte* data = row_major(tensor.data, storage);
  output_file file(path);
  file.write(header.data(), header.size());
  file.write(data, bytes_of(tensor.data));
  file.commit();
}

}  // namespace attend::io::detail
