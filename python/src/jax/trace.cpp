// While JAX traces a call: its options are read and checked beside shapes, and become attributes.
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "../arguments.hpp"
#include "../readers.hpp"
#include "../results.hpp"
#include "calls.hpp"
#include "option_values.hpp"

namespace attend::python::jax {
namespace {

/// Writes the values that differ from their defaults.
class value_writer {
 public:
  explicit value_writer(nb::dict& to) : to_(to) {}

  void operator()(const char* name, bool value) const {
    if (value) to_[name] = true;
  }
  void operator()(const char* name, int value) const {
    if (value != 0) to_[name] = value;
  }
  void operator()(const char* name, double value) const {
    if (value != 0) to_[name] = value;
  }
  template <class Number>
  void operator()(const char* name, const std::optional<Number>& value) const {
    if (value) to_[name] = *value;
  }
  void operator()(const char* name, const batch_integers& value) const {
    if (value.given() && !value.is_array()) to_[name] = value.value();
  }
  void operator()(const char* name, const query_position& value) const {
    if (value.word()) {
      to_[name] = text_of(*value.word());
    } else {
      (*this)(name, static_cast<const batch_integers&>(value));
    }
  }
  void operator()(const std::string& name, const grid_size& value) const {
    if (!value) return;
    to_[(name + "_rows").c_str()] = value.rows;
    to_[(name + "_columns").c_str()] = value.columns;
  }
  void operator()(const char* name, const alibi_slopes& value) const {
    if (value && !value.given()) to_[name] = true;
  }
  template <class Word>
    requires std::is_enum_v<Word>
  void operator()(const char* name, Word value) const {
    if (value != Word{}) to_[name] = text_of(value);
  }

 private:
  template <class Word>
  static nb::str text_of(Word word) {
    const std::string_view text = name_of(word);
    return nb::str(text.data(), text.size());
  }

  nb::dict& to_;
};

}  // namespace

nb::tuple trace(nb::handle q, nb::handle k, nb::handle v, nb::handle return_lse, const nb::tuple& packed) {
  if (packed.size() != option_arguments::count)
    throw std::logic_error("attend._core: the packed options are not those of this build");
  const borrowed_array query(q, "q"), key(k, "k"), value(v, "v");
  for (const borrowed_array* array : {&query, &key, &value}) array->require_floating();
  call_options call(option_arguments(PySequence_Fast_ITEMS(packed.ptr())), query.view().type);
  check_lse(read_flag(return_lse, "return_lse"), call.how);
  const extents out = output_shape(query.view(), key.view(), value.view(), call.how);
  nb::list shape;
  for (int axis = 0; axis < out.rank(); ++axis) shape.append(out[axis]);
  nb::dict values;
  each_value(value_writer(values), call.how);
  return nb::make_tuple(nb::tuple(shape), values);
}

std::uint64_t seed(nb::handle value) { return read_seed(value); }

}  // namespace attend::python::jax
