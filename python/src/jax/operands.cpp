#include "operands.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "option_values.hpp"

namespace attend::python::jax {
namespace {

constexpr dtype type_of(ffi::DataType type) noexcept {
  switch (type) {
    case ffi::DataType::PRED: return dtype::boolean;
    case ffi::DataType::S64: return dtype::i64;
    case ffi::DataType::F32: return dtype::f32;
    case ffi::DataType::F64: return dtype::f64;
    case ffi::DataType::F16: return dtype::f16;
    case ffi::DataType::BF16: return dtype::bf16;
    default: return dtype::none;
  }
}

template <class T>
T decoded(const ffi::ErrorOr<T>& value) {
  if (value.has_error()) throw std::logic_error("attend.jax: " + value.error().message());
  return value.value();
}

/// Takes the first word off a list of words.
std::string_view next_word(std::string_view& words) {
  const std::size_t end = std::min(words.find(' '), words.size());
  const std::string_view word = words.substr(0, end);
  words.remove_prefix(std::min(end + 1, words.size()));
  return word;
}

template <class T>
void widen(const char* data, std::string_view name, tensor<std::int64_t>& to) {
  for (std::int64_t i = 0; i < to.size(); ++i) {
    const T value = reinterpret_cast<const T*>(data)[i];
    if constexpr (std::is_same_v<T, std::uint64_t>) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        throw argument_error(std::string(name), "integers of 63 bits", std::to_string(value));
    }
    to.data()[i] = static_cast<std::int64_t>(value);
  }
}

/// An integer from 0 on; or the two words of a key of JAX, the high one first, so that jax.random.key(n) is the seed n.
std::uint64_t seed_of(const tensor<std::int64_t>& given) {
  const bool words = given.shape().rank() == 1;
  const std::uint64_t low_bits = 32;
  if (words) return static_cast<std::uint64_t>(given(0)) << low_bits | static_cast<std::uint64_t>(given(1));
  if (given() < 0) throw argument_error("seed", "an integer of at least 0", std::to_string(given()));
  return static_cast<std::uint64_t>(given());
}

/// Reads the values that are there, and counts them.
class value_reader {
 public:
  explicit value_reader(const ffi::Dictionary& attributes) : attributes_(attributes) {}

  template <class T>
  void operator()(const std::string& name, T& value) {
    if constexpr (std::is_enum_v<T>) {
      if (const auto word = find<std::string_view>(name)) value = word_of<T>(name, *word);
    } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double>) {
      if (const auto found = find<T>(name)) value = *found;
    } else if constexpr (std::is_same_v<T, int>) {
      if (const auto found = find<std::int64_t>(name)) value = static_cast<int>(*found);
    } else if constexpr (std::is_same_v<T, query_position>) {
      if (attributes_.contains<std::string_view>(name)) {
        value = word_of<anchor>(name, *find<std::string_view>(name));
      } else if (const auto found = find<std::int64_t>(name)) {
        value = batch_integers(*found);
      }
    } else if constexpr (std::is_same_v<T, batch_integers>) {
      if (const auto found = find<std::int64_t>(name)) value = *found;
    } else if constexpr (std::is_same_v<T, grid_size>) {
      const auto rows = find<std::int64_t>(name + "_rows"), columns = find<std::int64_t>(name + "_columns");
      if (rows && columns) value = {*rows, *columns};
    } else if constexpr (std::is_same_v<T, alibi_slopes>) {
      if (const auto found = find<bool>(name)) value = *found;
    } else {  // an optional number
      if (const auto found = find<typename T::value_type>(name)) value = found;
    }
  }

  std::size_t count() const noexcept { return count_; }

 private:
  template <class T>
  std::optional<T> find(const std::string& name) {
    if (!attributes_.contains(name)) return std::nullopt;
    ++count_;
    return decoded(attributes_.get<T>(name));
  }
  template <class Word>
  static Word word_of(const std::string& name, std::string_view text) {
    for (int n = 0; n <= static_cast<int>(last_of<Word>); ++n) {
      if (name_of(static_cast<Word>(n)) == text) return static_cast<Word>(n);
    }
    throw std::logic_error("attend.jax: this version has no " + name + " " + std::string(text));
  }

  const ffi::Dictionary& attributes_;
  std::size_t count_ = 0;
};

}  // namespace

call_facts::call_facts(const ffi::Dictionary& attributes)
    : operands(decoded(attributes.get<std::string_view>("operands"))),
      results(decoded(attributes.get<std::string_view>("results"))),
      rank(decoded(attributes.get<std::int64_t>("rank"))) {
  value_reader reader(attributes);
  each_value(reader, values);
  if (reader.count() + 3 != attributes.size())  // a program that a later version exported
    throw std::logic_error("attend.jax: an attribute of the call is none that this version knows");
}

named_buffers::named_buffers(const ffi::RemainingArgs& arguments, const call_facts& call) {
  std::vector<std::pair<std::string_view, ffi::AnyBuffer>> all;
  std::string_view names = call.operands;
  for (std::size_t n = 0; n < arguments.size(); ++n)
    all.emplace_back(next_word(names), decoded(arguments.get<ffi::AnyBuffer>(n)));
  const auto q = std::ranges::find(all, "q", [](const auto& named) { return named.first; });
  const auto rank = static_cast<std::size_t>(call.rank);
  if (q == all.end() || q->second.dimensions().size() < rank)
    throw std::logic_error("attend.jax: expected an operand q of the rank that the call names, or more");
  mapped_axes_ = q->second.dimensions().size() - rank;
  for (const auto& [name, buffer] : all) add(name, buffer);
}

named_buffers::named_buffers(const ffi::RemainingRets& results, const call_facts& call, const named_buffers& operands)
    : mapped_axes_(operands.mapped_axes_) {
  std::string_view names = call.results;
  for (std::size_t n = 0; n < results.size(); ++n) add(next_word(names), *decoded(results.get<ffi::AnyBuffer>(n)));
}

void named_buffers::fold(const std::vector<std::int64_t>& sizes, int rank) {
  folded_sizes_ = sizes;
  folded_rank_ = rank;
  place_.assign(mapped_axes_, 0);  // of what is the same at every place
}

void named_buffers::add(std::string_view name, const ffi::AnyBuffer& buffer) {
  const auto sizes = buffer.dimensions();
  named_buffer made{.name = name, .data = static_cast<char*>(buffer.untyped_data()), .type = buffer.element_type()};
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    if (axis < mapped_axes_) {
      made.mapped.push_back(sizes[axis]);
    } else {
      made.shape.push_back(sizes[axis]);
    }
  }
  buffers_.push_back(std::move(made));
}

const named_buffer* named_buffers::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(buffers_, name, &named_buffer::name);
  return found == buffers_.end() ? nullptr : &*found;
}

const char* named_buffers::data_at_place(const named_buffer& buffer) const {
  std::int64_t index = 0;
  for (std::size_t axis = 0; axis < mapped_axes_; ++axis)
    index = index * buffer.mapped[axis] + (buffer.mapped[axis] == 1 ? 0 : place_[axis]);
  return buffer.data + index * buffer.shape.count() * static_cast<std::int64_t>(ffi::ByteWidth(buffer.type));
}

mutable_array_view named_buffers::at_place(const named_buffer& buffer) const {
  const dtype type = type_of(buffer.type);
  if (type == dtype::none)
    throw argument_error(std::string(buffer.name), "numbers that attend knows", "others", argument_error::kind::type);
  const extents& shape = buffer.shape;
  return {const_cast<char*>(data_at_place(buffer)), type, shape, tensor_view<char>(nullptr, shape).strides};
}

mutable_array_view named_buffers::view(std::string_view name) const {
  const named_buffer* const buffer = find(name);
  if (!buffer) return {};
  return is_folded() && grows_with_batch(name) ? folded(*buffer) : at_place(*buffer);
}

tensor<std::int64_t> named_buffers::integers(std::string_view name) const {
  const named_buffer& buffer = *find(name);
  const char* const data = data_at_place(buffer);
  tensor<std::int64_t> all(buffer.shape);
  switch (buffer.type) {
    case ffi::DataType::S8: widen<std::int8_t>(data, name, all); break;
    case ffi::DataType::S16: widen<std::int16_t>(data, name, all); break;
    case ffi::DataType::S32: widen<std::int32_t>(data, name, all); break;
    case ffi::DataType::S64: widen<std::int64_t>(data, name, all); break;
    case ffi::DataType::U8: widen<std::uint8_t>(data, name, all); break;
    case ffi::DataType::U16: widen<std::uint16_t>(data, name, all); break;
    case ffi::DataType::U32: widen<std::uint32_t>(data, name, all); break;
    case ffi::DataType::U64: widen<std::uint64_t>(data, name, all); break;
    default: throw argument_error(std::string(name), "integers", "other elements", argument_error::kind::type);
  }
  return all;
}

operand_options::operand_options(const options& values, const named_buffers& operands) : how(values) {
  kept_.reserve(6);  // views look at what is kept
  const auto integers = [&](std::string_view name) -> const tensor<std::int64_t>& {
    return kept_.emplace_back(operands.integers(name));
  };
  const auto per_batch = [&](std::string_view name) -> batch_integers {
    const tensor<std::int64_t>& given = integers(name);
    return given.shape().rank() == 0 ? batch_integers(given()) : batch_integers(given);
  };
  if (operands.has("query_offset")) how.query_offset = per_batch("query_offset");
  if (operands.has("prefix")) how.prefix = per_batch("prefix");
  if (operands.has("key_lengths")) how.key_lengths = per_batch("key_lengths");
  if (operands.has("query_segments")) how.query_segments = integers("query_segments").view();
  if (operands.has("key_segments")) how.key_segments = integers("key_segments").view();
  if (operands.has("seed")) how.dropout.seed = seed_of(integers("seed"));
  if (operands.has("alibi")) how.alibi = array_view(operands.view("alibi"));
  how.mask = operands.view("mask");
  how.bias = operands.view("bias");
  how.relative = operands.view("relative");
  how.sinks = operands.view("sinks");
  how.compatibility.weights = operands.view("additive");
  // Folded matrices are heads of their own, before their rows.
  if (operands.is_folded() && operands.find("q")->shape.rank() == 2) how.layout = layout::bhld;
}

}  // namespace attend::python::jax
