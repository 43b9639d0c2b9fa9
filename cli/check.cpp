// attend check: the library against the float64 reference, element by element.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

#include "call.hpp"
#include "commands.hpp"
#include "progress.hpp"
#include "roofline.hpp"

namespace attend::cli {

namespace {

/// Distance of a result from the truth; equal infinities and NaN where NaN is due are no error.
double error_of(double got, double truth) {
  if (got == truth || (std::isnan(got) && std::isnan(truth))) return 0;
  const double distance = std::abs(got - truth);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

/// Distance from a size to the next larger number of type T; below the largest number, to the next smaller one there.
template <class T>
double unit_in_the_last_place(double size) {
  constexpr T largest = std::numeric_limits<T>::max();
  const T rounded = size < static_cast<double>(largest) ? static_cast<T>(size) : largest;
  const T next = std::nextafter(rounded, rounded < largest ? largest : T{0});
  return std::abs(static_cast<double>(next) - static_cast<double>(rounded));
}

struct comparison {
  std::int64_t elements = 0, over = 0;
  std::int64_t largest_at = 0;  ///< element with the largest error, row-major in out
  double largest = 0, mean = 0, largest_ulp = 0, mean_ulp = 0;
  double bound = 0;        ///< at the largest error
  double worst_share = 0;  ///< of its bound, over all elements
};

/// Errors count in units in the last place of the largest number of their row: single elements may cancel to almost nothing.
template <class T>
double unit_of_row(const double* row, std::int64_t width) {
  double largest = 0;
  for (std::int64_t c = 0; c < width; ++c) {
    if (std::abs(row[c]) > largest) largest = std::abs(row[c]);
  }
  return unit_in_the_last_place<T>(largest);
}

template <class T>
comparison compare(const tensor<T>& out, const tensor<double>& truth, const tensor<double>& bound) {
  comparison found;
  found.elements = out.size();
  const std::int64_t width = out.shape()[out.shape().rank() - 1];
  double unit = 0;
  for (std::int64_t i = 0; i < out.size(); ++i) {
    if (i % width == 0) unit = unit_of_row<T>(truth.data() + i, width);
    const double error = error_of(static_cast<double>(out.data()[i]), truth.data()[i]), limit = bound.data()[i];
    if (i == 0 || error > found.largest) {
      found.largest = error;
      found.largest_at = i;
      found.bound = limit;
    }
    found.mean += error;
    found.mean_ulp += error / unit;
    found.largest_ulp = std::max(found.largest_ulp, error / unit);
    // Written so that a bound that is no number counts as passed by no error but 0.
    if (error > 0 && !(error <= limit)) ++found.over;
    if (error > 0) found.worst_share = std::max(found.worst_share, error / limit);
  }
  const double count = static_cast<double>(std::max<std::int64_t>(found.elements, 1));
  found.mean /= count;
  found.mean_ulp /= count;
  return found;
}

extents index_of(std::int64_t element, const extents& shape) {
  extents index = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const std::int64_t size = std::max<std::int64_t>(shape[axis], 1);
    index[axis] = element % size;
    element /= size;
  }
  return index;
}

struct timing {
  double median = 0, fastest = 0, slowest = 0;  ///< seconds
  int calls = 0;
  double flops = 0, bytes = 0;
  double fraction = 0;  ///< of the limit: median over rounds that each measure the peak before and after
  roofline limits;
};

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Pairs of a query and a key that the options allow: where every score is 0, a row's sum of exponentials is its number of
/// keys. Biases and tables are taken to exclude nothing.
double allowed_pairs(const array_view& q, const array_view& k, array_view v, options how) {
  v.shape[v.shape.rank() - 1] = 0;
  how.bias = how.relative = {};
  how.compatibility = compatibility::none;
  how.normalizer = normalizer::softmax;
  const reference::result counted = reference::attention(q, k, v, how);
  double pairs = 0;
  for (const double lse : counted.lse) pairs += std::round(std::exp(lse));
  return pairs;
}

/// Operations that no kernel can do without: a pair takes a multiply-add per column of v and, where its score depends on q and
/// k, at least one per column of these.
double least_flops(const array_view& q, const array_view& k, const array_view& v, const options& how) {
  const bool scored = how.compatibility.kind != compatibility_kind::none;
  const std::int64_t width = (scored ? q.shape[q.shape.rank() - 1] : 0) + v.shape[v.shape.rank() - 1];
  return 2 * static_cast<double>(width) * allowed_pairs(q, k, v, how);
}

template <class T>
timing measure(const array_view& q, const array_view& k, const array_view& v, const call_options& call, tensor<T>& out) {
  using clock = std::chrono::steady_clock;
  constexpr int rounds = 5;
  constexpr std::size_t most_calls = 200;
  constexpr double round_seconds = 0.06;
  timing found;
  const options& how = call.how();
  found.flops = least_flops(q, k, v, how);
  found.bytes = make_plan({.type = q.type, .q = q.shape, .k = k.shape, .v = v.shape}, how).facts().bytes;
  found.limits = roofline::measure(q.type, call.threads());

  attention(q, k, v, outputs{.out = out}, how);
  std::vector<double> all, fractions, peaks;
  for (int round = 0; round < rounds; ++round) {
    // The clock and neighbours change within a round, too: the larger of the peaks around it is what could have been.
    const double before = found.limits.fma;
    std::vector<double> seconds;
    double total = 0;
    while (seconds.size() < 2 || (total < round_seconds && seconds.size() < most_calls)) {
      const auto start = clock::now();
      attention(q, k, v, outputs{.out = out}, how);
      seconds.push_back(std::chrono::duration<double>(clock::now() - start).count());
      total += seconds.back();
    }
    found.limits.measure_fma(q.type);
    roofline best = found.limits;
    best.fma = std::max(before, best.fma);
    peaks.push_back(best.fma);
    fractions.push_back(best.least(found.flops, found.bytes) / median_of(seconds));
    all.insert(all.end(), seconds.begin(), seconds.end());
  }
  found.limits.fma = median_of(peaks);
  found.fraction = median_of(fractions);
  found.median = median_of(all);
  found.fastest = *std::min_element(all.begin(), all.end());
  found.slowest = *std::max_element(all.begin(), all.end());
  found.calls = static_cast<int>(all.size());
  return found;
}

struct subject {
  std::string input;
  array_view q, k, v;
};

nlohmann::ordered_json facts_of(const subject& of, const extents& out, const comparison& found, const plan_facts& route) {
  return {{"input", of.input},
          {"dtype", name_of(of.q.type)},
          {"q", to_json(of.q.shape)},
          {"k", to_json(of.k.shape)},
          {"v", to_json(of.v.shape)},
          {"out", to_json(out)},
          {"kernel", route.kernel},
          {"instruction_set", name_of(route.set)},
          {"compatibility", name_of(route.compatibility)},
          {"normalizer", name_of(route.normalizer)},
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
  facts["limits"] = {{"fma_flops_per_second", time.limits.fma}, {"read_bytes_per_second", time.limits.read}};
  facts["limit_milliseconds"] = least * 1e3;
  facts["bound_by"] = time.limits.reason(time.flops, time.bytes);
  facts["fraction_of_limit"] = time.fraction;
}

void print_text(const subject& of, const extents& out, const comparison& found, const plan_facts& route) {
  std::cout << of.input << ": " << name_of(of.q.type) << ", q " << of.q.shape.to_string() << ", k " << of.k.shape.to_string()
            << ", v " << of.v.shape.to_string() << "; " << name_of(route.normalizer) << " of " << name_of(route.compatibility)
            << "; kernel " << route.kernel << " on " << name_of(route.set) << '\n';
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
            << "limit: " << number(least * 1e3) << " ms at " << number(time.limits.fma * 1e-9) << " GF/s and "
            << number(time.limits.read * 1e-9) << " GB/s (bound by " << time.limits.reason(time.flops, time.bytes)
            << "); fraction " << number(time.fraction) << '\n';
}

template <class T>
int compare_and_report(const check_arguments& given, const subject& of, call_options& call) {
  tensor<T> out(output_shape(of.q, of.k, of.v, call.how()));
  {
    progress bar("attend check: attention");
    call.how().executor = bar.if_terminal();
    attention(of.q, of.k, of.v, outputs{.out = out}, call.how());
    call.how().executor = nullptr;
  }
  comparison found;
  {
    progress label("attend check: float64 reference");
    label.announce();
    const reference::result truth = reference::attention(of.q, of.k, of.v, call.how());
    found = compare(out, truth.out, reference::error_bound(of.q, of.k, of.v, call.how(), truth));
  }
  const plan_facts route =
      make_plan({.type = of.q.type, .q = of.q.shape, .k = of.k.shape, .v = of.v.shape}, call.how()).facts();
  std::optional<timing> time;
  if (given.time) time = measure(of.q, of.k, of.v, call, out);
  if (given.json) {
    nlohmann::ordered_json facts = facts_of(of, out.shape(), found, route);
    if (time) add(facts, *time);
    print(facts);
  } else {
    print_text(of, out.shape(), found, route);
    if (time) print_text(*time);
  }
  if (found.over == 0) return 0;
  std::cerr << "attend check: " << of.input << ": expected every error within its bound, got " << found.over << " of "
            << found.elements << " elements over it, by up to " << number(found.worst_share) << " times\n";
  return 1;
}

}  // namespace

int check(const check_arguments& given) {
  inputs tensors(given.input);
  call_options call(given.options, tensors);
  subject of;
  for (const std::string& path : given.input.paths) of.input += (of.input.empty() ? "" : " ") + path;
  if (given.input.names) of.input += ":" + *given.input.names;
  of.q = tensors.load(0).view();
  of.k = tensors.load(1).view();
  of.v = tensors.load(2).view();
  int code = 0;
  with_origins(tensors, [&] {
    // Refuses dtypes before one is chosen.
    output_shape(of.q, of.k, of.v, call.how());
    code = of.q.type == dtype::f64 ? compare_and_report<double>(given, of, call) : compare_and_report<float>(given, of, call);
  });
  return code;
}

}  // namespace attend::cli
