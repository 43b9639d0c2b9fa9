#include "form.hpp"

#include <string>
#include <string_view>

#include "python_objects.hpp"
#include "readers.hpp"

namespace attend::python {
namespace {

/// "'a', 'b' or 'c'"
template <class Kinds>
std::string list_of(const Kinds& kinds, std::string_view last_joint) {
  std::string text;
  for (std::size_t n = 0; n < std::size(kinds); ++n) {
    if (n > 0) text += n + 1 == std::size(kinds) ? last_joint : ", ";
    text.append("'").append(name_of(kinds[n])).append("'");
  }
  return text;
}

bool is_pair(nb::handle value) { return PyTuple_Check(value.ptr()) || PyList_Check(value.ptr()); }

grid_size read_pair(nb::handle value, std::string_view name) {
  if (nb::len(value) != 2) refuse_value(name, "a pair (rows, columns)", value);
  return {read_integer(nb::object(value[0]), name), read_integer(nb::object(value[1]), name)};
}

/// n, or a pair (rows, columns).
grid_size read_sizes(nb::handle value, std::string_view name) {
  if (is_pair(value)) return read_pair(value, name);
  if (!is_integer(value)) refuse_type(name, "an integer or a pair (rows, columns)", value);
  return read_integer(value, name);
}

border read_border(nb::handle value) {
  if (!PyUnicode_Check(value.ptr())) refuse_type("border", "'clip' or 'shift'", value);
  if (is_word(value, "clip")) return border::clip;
  if (is_word(value, "shift")) return border::shift;
  refuse_value("border", "'clip' or 'shift'", value);
}

/// attend.gaussian and attend.additive, looked up when the first of them comes. They live as long as the process.
struct function_types {
  nb::object gaussian, additive;
};

const function_types& functions() {
  static const function_types* const types = [] {
    const nb::object module = nb::module_::import_("attend._compatibility");
    return new function_types{module.attr("gaussian"), module.attr("additive")};
  }();
  return *types;
}

}  // namespace

grid_size read_grid(nb::handle value) {
  if (!is_pair(value)) refuse_type("grid", "a pair (rows, columns)", value);
  return read_pair(value, "grid");
}

neighborhood read_neighborhood(nb::handle kernel, nb::handle dilation, nb::handle border_word) {
  neighborhood near;
  near.dilation = read_sizes(dilation, "dilation");
  near.border = read_border(border_word);
  if (!kernel.is_none()) {
    near.kernel = read_sizes(kernel, "neighborhood");
    return near;
  }
  if (near.dilation.rows != 1 || near.dilation.columns != 1)
    throw argument_error("dilation", "1 without a neighborhood", short_repr(dilation));
  if (near.border != border::clip) throw argument_error("border", "'clip' without a neighborhood", short_repr(border_word));
  return near;
}

compatibility read_compatibility(nb::handle value, std::optional<borrowed_array>& weights) {
  static const std::string expected = "'dot', 'cosine', 'l1', 'none', attend.gaussian(sigma) or attend.additive(w)";
  if (PyUnicode_Check(value.ptr())) {
    for (const compatibility& f : {compatibility::dot, compatibility::cosine, compatibility::l1, compatibility::none}) {
      if (is_word(value, name_of(f.kind))) return f;
    }
    refuse_value("compatibility", expected, value);
  }
  const function_types& types = functions();
  if (value.type().is(types.gaussian)) return gaussian(read_positive(nb::object(value.attr("sigma")), "sigma"));
  if (!value.type().is(types.additive)) refuse_type("compatibility", expected, value);
  weights.emplace(nb::object(value.attr("w")), "additive");
  weights->require_floating();
  return additive(weights->view());
}

normalizer read_normalizer(nb::handle value) {
  static constexpr normalizer kinds[] = {normalizer::softmax, normalizer::mean,  normalizer::sum,
                                         normalizer::sigmoid, normalizer::relu2, normalizer::abs};
  if (!PyUnicode_Check(value.ptr())) refuse_type("normalizer", list_of(kinds, " or "), value);
  for (normalizer kind : kinds) {
    if (is_word(value, name_of(kind))) return kind;
  }
  refuse_value("normalizer", list_of(kinds, " or "), value);
}

}  // namespace attend::python
