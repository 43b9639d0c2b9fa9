#include "score.hpp"

#include <cstring>
#include <string>

#include "python_objects.hpp"
#include "readers.hpp"

namespace attend::python {
namespace {

/// attend.soft_cap, attend.alibi and attend.bias, looked up when the first list comes. They live as long as the process.
struct step_types {
  nb::object soft_cap, alibi, bias;
};

const step_types& steps() {
  static const step_types* const types = [] {
    const nb::object module = nb::module_::import_("attend._score");
    return new step_types{module.attr("soft_cap"), module.attr("alibi"), module.attr("bias")};
  }();
  return *types;
}

tensor<float> rounded_slopes(const array_view& slopes) {
  tensor<float> result(slopes.shape);
  for (std::int64_t h = 0; h < result.size(); ++h) {
    double slope;
    std::memcpy(&slope, static_cast<const char*>(slopes.data) + h * slopes.strides[0] * std::int64_t{sizeof slope},
                sizeof slope);
    result.data()[h] = static_cast<float>(slope);
  }
  return result;
}

[[noreturn]] void refuse_step(nb::handle value) {
  static const std::string expected = "attend.soft_cap(c), attend.alibi(slopes), attend.bias(t) or a list of them";
  const bool is_class = PyType_Check(value.ptr()) != 0;  // attend.alibi for attend.alibi(), say
  if (is_class || !PyCallable_Check(value.ptr())) refuse_type("score", expected, value);
  PyErr_Format(PyExc_NotImplementedError, "score: expected %s, got %s: this version calls no functions of the caller's",
               expected.c_str(), type_text(value).c_str());
  throw nb::python_error();
}

}  // namespace

alibi_slopes read_alibi(nb::handle value, std::string_view name, dtype inputs, borrowed_arrays& kept,
                        std::vector<tensor<float>>& rounded) {
  if (value.is_none()) return {};
  if (is_flag(value)) return alibi_slopes(read_flag(value, name));
  if (!borrowed_array::is_array(value)) refuse_type(name, "True, False, or an array of one slope per query head", value);
  const borrowed_array& array = kept.emplace_back(value, name);
  array.require_floating();
  const array_view slopes = array.view();
  if (slopes.type != dtype::f64 || inputs == dtype::f64 || slopes.shape.rank() != 1) return slopes;
  return rounded.emplace_back(rounded_slopes(slopes)).view();
}

score_list read_score(nb::handle value, dtype inputs, borrowed_arrays& kept, std::vector<tensor<float>>& rounded) {
  score_list list;
  if (value.is_none()) return list;
  const auto add = [&](nb::handle step) {
    const step_types& types = steps();
    const nb::handle type = step.type();
    if (type.is(types.soft_cap)) return list.push_back(soft_cap(read_positive(nb::object(step.attr("cap")), "score")));
    if (type.is(types.alibi)) {
      const nb::object slopes = step.attr("slopes");
      return list.push_back(alibi(slopes.is_none() ? alibi_slopes(true) : read_alibi(slopes, "score", inputs, kept, rounded)));
    }
    if (!type.is(types.bias)) refuse_step(step);
    const borrowed_array& numbers = kept.emplace_back(nb::object(step.attr("numbers")), "score");
    numbers.require_floating();
    list.push_back(bias(numbers.view()));
  };
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) {
    add(value);
    return list;
  }
  for (std::size_t n = 0; n < nb::len(value); ++n) add(nb::object(value[n]));
  return list;
}

}  // namespace attend::python
