#include "results.hpp"

#include <utility>

#include "python_objects.hpp"
#include "readers.hpp"

namespace attend::python {
namespace {

nb::tuple as_tuple(const extents& shape) {
  nb::object tuple = nb::steal(PyTuple_New(shape.rank()));
  if (!tuple.is_valid()) throw nb::python_error();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    PyObject* size = PyLong_FromLongLong(shape[axis]);
    if (!size) throw nb::python_error();
    PyTuple_SET_ITEM(tuple.ptr(), axis, size);
  }
  return nb::borrow<nb::tuple>(tuple);
}

nb::object torch_dtype(dtype type) { return nb::module_::import_("torch").attr(name_of(type).data()); }

// Lives as long as the process: attend._results.
nb::object* result_types = nullptr;

std::int64_t key_count(const extents& k, layout order) { return k[k.rank() - (order == layout::blhd && k.rank() > 2 ? 3 : 2)]; }

/// Shape of lse from that of out, in either layout.
extents row_shape(const extents& out, layout order) {
  extents rows;
  for (int axis = 0; axis + 1 < out.rank(); ++axis) rows.push_back(out[axis]);
  const int last = rows.rank() - 1;
  if (order == layout::blhd && last >= 1) std::swap(rows[last - 1], rows[last]);
  return rows;
}

/// Shape of weights and scores.
extents score_shape(const extents& out, const extents& k, layout order) {
  extents full = row_shape(out, order);
  full.push_back(key_count(k, order));
  return full;
}

}  // namespace

result_factory::result_factory(nb::handle like, dtype type)
    : like_(like),
      type_(type),
      kind_(is_numpy(like)   ? kind::numpy
            : is_torch(like) ? kind::torch
                             : kind::foreign) {}

result_factory::fresh result_factory::make(const extents& shape, dtype type) const {
  if (kind_ == kind::torch) {  // the tensor's own device, whatever torch's default is
    nb::object made = type == type_ ? like_.attr("new_empty")(as_tuple(shape))
                                    : like_.attr("new_empty")(as_tuple(shape), nb::arg("dtype") = torch_dtype(type));
    void* data = PyLong_AsVoidPtr(nb::object(made.attr("data_ptr")()).ptr());
    if (!data && PyErr_Occurred()) throw nb::python_error();
    return {std::move(made), {data, type, shape, tensor_view<const char>(nullptr, shape).strides}};
  }
  nb::object made = known().empty(as_tuple(shape), numpy_dtype(type));
  mutable_array_view view = borrowed_array(made, "out").mutable_view();  // `made` keeps the memory
  return {std::move(made), view};
}

nb::object result_factory::finish(nb::object array) const {
  if (kind_ != kind::foreign || !nb::hasattr(like_, "__array_namespace__")) return array;
  const bool exports = !is_bfloat16(array.attr("dtype"));  // NumPy's DLPack knows none
  return like_.attr("__array_namespace__")().attr(exports ? "from_dlpack" : "asarray")(array);
}

wanted_results::wanted_results(PyObject* const* values)
    : out(values[0]), lse(read_flag(values[1], "return_lse")), weights(read_flag(values[2], "return_weights")) {
  if (const nb::handle stage = values[3]; !stage.is_none()) scores = read_stage(stage, "return_scores");
}

score_stage read_stage(nb::handle value, std::string_view name) {
  static const std::string expected = "'scaled', 'capped', 'biased' or None";
  if (!PyUnicode_Check(value.ptr())) refuse_type(name, expected, value);
  if (is_word(value, "scaled")) return score_stage::scaled;
  if (is_word(value, "capped")) return score_stage::capped;
  if (is_word(value, "biased")) return score_stage::biased;
  refuse_value(name, expected, value);
}

void check_lse(bool wanted, const options& how) {
  if (!wanted || how.normalizer == normalizer::softmax) return;
  throw argument_error("return_lse", "False without softmax, the only normalizer with an LSE",
                       "True beside '" + std::string(name_of(how.normalizer)) + "'");
}

call_results::call_results(nb::handle like, const wanted_results& wanted, dtype type, const extents& out, const extents& k,
                           layout order)
    : factory_(like, type) {
  const auto add = [&](result_factory::fresh made, nb::object& array, mutable_array_view& view) {
    array = std::move(made.array);
    view = made.view;
  };
  if (wanted.out.is_none()) {
    add(factory_.make(out), out_, to_.out);
  } else {
    out_ = nb::borrow(wanted.out);
    given_.emplace(out_, "out");
    given_->require_floating();
    given_->require_writable();
    to_.out = given_->mutable_view();
  }
  if (wanted.lse) add(factory_.make(row_shape(out, order), accumulator_of(type)), lse_, to_.lse);
  if (wanted.weights) add(factory_.make(score_shape(out, k, order)), weights_, to_.weights);
  if (!wanted.scores) return;
  add(factory_.make(score_shape(out, k, order)), scores_, to_.scores);
  to_.stage = *wanted.scores;
}

nb::object call_results::finish() {
  if (!given_) out_ = factory_.finish(std::move(out_));
  const nb::object* const further[] = {&lse_, &weights_, &scores_};
  static constexpr const char* names[] = {nullptr,     "OutLse",       "OutWeights",       "OutLseWeights",
                                          "OutScores", "OutLseScores", "OutWeightsScores", "OutLseWeightsScores"};
  unsigned asked = 0;
  for (unsigned n = 0; n < 3; ++n) asked |= further[n]->is_valid() ? 1U << n : 0U;
  if (asked == 0) return std::move(out_);
  nb::list parts;
  parts.append(out_);
  for (const nb::object* part : further) {
    if (part->is_valid()) parts.append(factory_.finish(*part));
  }
  return result_types->attr(names[asked])(*parts);
}

nb::object out_and_lse(nb::object out, nb::object lse) { return result_types->attr("OutLse")(out, lse); }

void prepare_results() {
  if (!result_types) result_types = new nb::object(nb::module_::import_("attend._results"));
}

}  // namespace attend::python
