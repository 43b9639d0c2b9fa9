#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "attend/backward.hpp"
#include "calls.hpp"
#include "entry.hpp"
#include "inputs.hpp"
#include "python_objects.hpp"
#include "readers.hpp"
#include "results.hpp"
#include "run.hpp"

namespace attend::python {
namespace {

/// What the forward call gave, and the gradients by it.
class forward_results {
 public:
  explicit forward_results(const argument_slots& arguments)
      : dout_(arguments.input(8), "dout"), out_(arguments.first_result()[0], "out") {
    for (const borrowed_array* array : {&dout_, &out_}) array->require_floating();
    borrow(lse_, arguments.input(9), "lse");
    borrow(dlse_, arguments.input(10), "dlse");
  }
  backward_inputs views() const {
    const auto view = [](const std::optional<borrowed_array>& x) { return x ? x->view() : array_view{}; };
    return {.dout = dout_.view(), .out = out_.view(), .lse = view(lse_), .dlse = view(dlse_)};
  }

 private:
  static void borrow(std::optional<borrowed_array>& to, nb::handle given, const char* name) {
    if (given.is_none()) return;
    to.emplace(given, name);
    to->require_floating();
  }

  borrowed_array dout_, out_;
  std::optional<borrowed_array> lse_, dlse_;
};

/// Names of gradients that the caller wants; by default all there are.
class wanted_names {
 public:
  explicit wanted_names(nb::handle given) : all_(given.is_none()) {
    if (all_) return;
    const bool is_list = PyList_Check(given.ptr()) || PyTuple_Check(given.ptr()) || PyAnySet_Check(given.ptr());
    if (!is_list) refuse_type("wanted", "a list of names of gradients, or None for all", given);
    for (nb::handle name : nb::iter(given)) {
      if (!PyUnicode_Check(name.ptr())) refuse_type("wanted", "names of gradients", name);
      names_.push_back(text_of(name));
    }
  }

  /// Whether it is wanted, of which there is a gradient in this call.
  bool take(const char* name) {
    offered_ += offered_.empty() ? name : std::string(", ") + name;
    return std::erase(names_, name) > 0 || all_;
  }

  /// Refuses names that nothing was offered for.
  void finish() const {
    if (!names_.empty()) throw argument_error("wanted", "names of gradients of this call, " + offered_, "'" + names_[0] + "'");
  }

 private:
  bool all_;
  std::vector<std::string> names_;
  std::string offered_;
};

/// A new array for every gradient that is wanted, of the kind that q is and the dtype of what it is the gradient of. Those of the
/// score list are a list of as many places, None where a function has no array.
class new_gradients {
 public:
  new_gradients(nb::handle like, const inputs& in, const options& how, wanted_names wanted) : factory_(like, in.q().type) {
    const auto add = [&](const char* name, mutable_array_view& view, const array_view& of) {
      if (of && wanted.take(name)) made_.emplace_back(name, make(view, of));
    };
    add("dq", to_.dq, in.q());
    add("dk", to_.dk, in.k());
    add("dv", to_.dv, in.v());
    add("dbias", to_.dbias, how.bias);
    add("dsinks", to_.dsinks, how.sinks);
    add("dalibi", to_.dalibi, how.alibi.given());
    add("drelative", to_.drelative, how.relative);
    add("dadditive", to_.dadditive, how.compatibility.weights);
    if (how.score.size() > 0 && wanted.take("dscore")) {
      for (int n = 0; n < how.score.size(); ++n) {
        const score_step& step = how.score.begin()[n];
        const array_view& numbers = step.what == score_step::kind::bias ? step.numbers : step.slopes.given();
        score_.push_back(numbers ? make(to_.dscore[static_cast<std::size_t>(n)], numbers) : nb::none());
      }
    }
    wanted.finish();
  }

  const gradients& to() const noexcept { return to_; }

  nb::dict finish() {
    nb::dict all;
    for (auto& [name, array] : made_) all[name] = factory_.finish(std::move(array));
    if (score_.empty()) return all;
    nb::list of_score;
    for (nb::object& array : score_) of_score.append(array.is_none() ? array : factory_.finish(std::move(array)));
    all["dscore"] = of_score;
    return all;
  }

 private:
  nb::object make(mutable_array_view& view, const array_view& of) {
    result_factory::fresh fresh = factory_.make(of.shape, of.type);
    view = fresh.view;
    return std::move(fresh.array);
  }

  result_factory factory_;
  gradients to_;
  std::vector<std::pair<const char*, nb::object>> made_;
  std::vector<nb::object> score_;
};

}  // namespace

nb::object attention_backward(const argument_slots& arguments) {
  const inputs in(arguments);
  const forward_results given(arguments);
  call_options call(option_arguments(arguments.first_option()), in.q().type);
  new_gradients made(arguments.input(0), in, call.how, wanted_names(arguments.input(11)));
  run(call.how, [&](const options& how) { attend::attention_backward(given.views(), in.q(), in.k(), in.v(), made.to(), how); });
  return made.finish();
}

nb::object attention_varlen_backward(const argument_slots& arguments) {
  const inputs in(arguments);
  const forward_results given(arguments);
  const integer_array starts_q = integer_array::boundaries(arguments.input(3), "cu_seqlens_q");
  const integer_array starts_k = integer_array::boundaries(arguments.input(4), "cu_seqlens_k");
  call_options call(option_arguments(arguments.first_option()), in.q().type);
  new_gradients made(arguments.input(0), in, call.how, wanted_names(arguments.input(11)));
  run(call.how, [&](const options& how) {
    attend::attention_varlen_backward(given.views(), in.q(), in.k(), in.v(), starts_q.view(), starts_k.view(), made.to(), how);
  });
  return made.finish();
}

}  // namespace attend::python
