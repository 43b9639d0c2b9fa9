// attend check: the library against the float64 reference, element by element.
#include <algorithm>
#include <iostream>
#include <optional>
#include <set>
#include <string>

#include "call.hpp"
#include "commands.hpp"
#include "comparison.hpp"
#include "progress.hpp"
#include "timing.hpp"

namespace attend::cli {

namespace {

extents index_of(std::int64_t element, const extents& shape) {
  extents index = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const std::int64_t size = std::max<std::int64_t>(shape[axis], 1);
    index[axis] = element % size;
    element /= size;
  }
  return index;
}

/// What is checked, and what computes it.
struct subject {
  std::string input;
  operands of;
  std::string kernel;  ///< of packed sequences, whose numbers of queries choose one by one: all that are used
  isa set = isa::scalar;
};

std::int64_t boundary(const operands& of, std::int64_t i) {
  return static_cast<const std::int64_t*>(of.query_starts.data)[i * of.query_starts.strides[0]];
}

/// The call has been checked.
void name_kernel(subject& it, const options& how) {
  const operands& of = it.of;
  const auto add = [&it](const plan_facts& facts) {
    if (it.kernel.find(facts.kernel) == std::string::npos) it.kernel += (it.kernel.empty() ? "" : " and ") + facts.kernel;
    it.set = facts.set;
  };
  if (!of.packed()) return add(make_plan({.type = of.q.type, .q = of.q.shape, .k = of.k.shape, .v = of.v.shape}, how).facts());
  const options alone{.compatibility = how.compatibility, .normalizer = how.normalizer, .reproducible = how.reproducible};
  std::set<std::int64_t> sizes;
  for (std::int64_t i = 0; i + 1 < of.query_starts.shape[0]; ++i) sizes.insert(boundary(of, i + 1) - boundary(of, i));
  for (const std::int64_t queries : sizes) {
    const auto one = [](std::int64_t rows, const extents& packed) { return extents{packed[1], rows, packed[2]}; };
    add(make_plan({.type = of.q.type, .q = one(queries, of.q.shape), .k = one(1, of.k.shape), .v = one(1, of.v.shape)}, alone)
            .facts());
  }
}

nlohmann::ordered_json facts_of(const subject& it, const options& how, const extents& out, const comparison& found) {
  nlohmann::ordered_json facts = {{"input", it.input},
                                  {"dtype", name_of(it.of.q.type)},
                                  {"q", to_json(it.of.q.shape)},
                                  {"k", to_json(it.of.k.shape)},
                                  {"v", to_json(it.of.v.shape)},
                                  {"out", to_json(out)},
                                  {"kernel", it.kernel},
                                  {"instruction_set", name_of(it.set)},
                                  {"compatibility", name_of(how.compatibility.kind)},
                                  {"normalizer", name_of(how.normalizer)},
                                  {"passed", found.over == 0},
                                  {"elements", found.elements},
                                  {"elements_over_bound", found.over},
                                  {"largest_error", found.largest},
                                  {"largest_error_at", to_json(index_of(found.largest_at, out))},
                                  {"bound", found.bound},
                                  {"largest_share_of_bound", found.worst_share},
                                  {"mean_error", found.mean},
                                  {"largest_error_ulp", found.largest_ulp},
                                  {"mean_error_ulp", found.mean_ulp}};
  if (it.of.packed()) facts["sequences"] = it.of.query_starts.shape[0] - 1;
  if (how.dropout.seed) facts["seed"] = *how.dropout.seed;
  return facts;
}

void add(nlohmann::ordered_json& facts, const timing& time) {
  const double least = time.limits.least(time.flops, time.bytes);
  facts["milliseconds"] = time.median * 1e3;
  facts["milliseconds_min"] = time.fastest * 1e3;
  facts["milliseconds_max"] = time.slowest * 1e3;
  facts["calls"] = time.calls;
  facts["threads"] = time.limits.threads;
  facts["flops"] = time.flops;
  facts["bytes"] = time.bytes;
  facts["limits"] = {{"fma_dtype", name_of(accumulator_of(time.limits.type))},
                     {"fma_flops_per_second", time.limits.fma},
                     {"read_bytes_per_second", time.limits.read}};
  facts["limit_milliseconds"] = least * 1e3;
  facts["bound_by"] = time.limits.reason(time.flops, time.bytes);
  facts["fraction_of_limit"] = time.fraction;
}

void print_text(const subject& it, const options& how, const extents& out, const comparison& found) {
  const operands& of = it.of;
  std::cout << it.input << ": " << name_of(of.q.type) << ", q " << of.q.shape.to_string() << ", k " << of.k.shape.to_string()
            << ", v " << of.v.shape.to_string();
  if (of.packed()) std::cout << " of " << of.query_starts.shape[0] - 1 << " sequences";
  std::cout << "; " << name_of(how.normalizer) << " of " << name_of(how.compatibility.kind);
  if (how.dropout.seed) std::cout << ", dropout by seed " << *how.dropout.seed;
  std::cout << "; kernel " << it.kernel << " on " << name_of(it.set) << '\n';
  if (found.elements == 0) {
    std::cout << "no elements: nothing to compare\n";
    return;
  }
  std::cout << "largest error: " << number(found.largest) << " at " << index_of(found.largest_at, out).to_string()
            << ", bound there " << number(found.bound) << "; largest share of a bound " << number(found.worst_share) << '\n'
            << "mean error: " << number(found.mean) << '\n'
            << "in units in the last place of its row's largest number: largest " << number(found.largest_ulp) << ", mean "
            << number(found.mean_ulp) << '\n'
            << "over the bound: " << found.over << " of " << found.elements
            << " elements: " << (found.over == 0 ? "passed\n" : "failed\n");
}

void print_text(const timing& time) {
  const double least = time.limits.least(time.flops, time.bytes);
  std::cout << "time: " << number(time.median * 1e3) << " ms, median of " << time.calls << " calls ("
            << number(time.fastest * 1e3) << " to " << number(time.slowest * 1e3) << "); "
            << number(time.flops / time.median * 1e-9) << " GF/s with " << time.limits.threads << " threads\n"
            << "limit: " << number(least * 1e3) << " ms at " << time.limits.peaks() << " (bound by "
            << time.limits.reason(time.flops, time.bytes) << "); fraction " << number(time.fraction) << '\n';
}

template <class T>
int compare_and_report(const check_arguments& given, const subject& it, call_options& call) {
  tensor<T> out(it.of.output_shape(call.how()));
  {
    progress bar("attend check: attention");
    call.how().executor = bar.if_terminal();
    it.of.compute(outputs{.out = out}, call.how());
    call.how().executor = nullptr;
  }
  comparison found;
  {
    progress label("attend check: float64 reference");
    label.announce();
    const reference::result truth = it.of.truth(call.how());
    found = compare(out, truth.out, it.of.error_bound(call.how(), truth));
  }
  std::optional<timing> time;
  if (given.time) time = measure(it.of, call, out);
  if (given.json) {
    nlohmann::ordered_json facts = facts_of(it, call.how(), out.shape(), found);
    if (time) add(facts, *time);
    print(facts);
  } else {
    print_text(it, call.how(), out.shape(), found);
    if (time) print_text(*time);
  }
  if (found.over == 0) return 0;
  std::cerr << "attend check: " << it.input << ": expected every error within its bound, got " << found.over << " of "
            << found.elements << " elements over it, by up to " << number(found.worst_share) << " times\n";
  return 1;
}

}  // namespace

int check(const check_arguments& given) {
  inputs tensors(given.input);
  call_options call(given.options, tensors);
  subject it{.input = {}, .of = operands(tensors, given.varlen, given.options), .kernel = {}};
  for (const std::string& path : given.input.paths) it.input += (it.input.empty() ? "" : " ") + path;
  if (given.input.names) it.input += ":" + *given.input.names;
  int code = 0;
  with_origins(tensors, [&] {
    // Refuses dtypes before one is chosen.
    it.of.output_shape(call.how());
    name_kernel(it, call.how());
    with_element_type(it.of.q.type, [&]<class T>(const tensor<T>&) { code = compare_and_report<T>(given, it, call); });
  });
  return code;
}

}  // namespace attend::cli
