#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "calls.hpp"
#include "limits.hpp"
#include "readers.hpp"

namespace attend::python {
namespace {

dtype peak_type(std::string_view name) {
  for (const dtype type : {dtype::f32, dtype::f64, dtype::bf16})
    if (name == name_of(type)) return type;
  throw argument_error("dtype", "float32, float64 or bfloat16", std::string(name), argument_error::kind::type);
}

/// A set by its name, or None for the one that the type's multiply-adds are fastest with.
isa peak_set(dtype type, nb::handle name) {
  const std::vector<isa> sets = detected_isas();
  if (name.is_none()) {
    if (type != dtype::bf16) return limits::widest_isa();
    return sets.back() == isa::amx_bf16 ? isa::amx_bf16 : isa::avx512_bf16;
  }
  for (const isa set : {isa::scalar, isa::neon, isa::avx2, isa::avx512, isa::avx512_bf16, isa::amx_bf16})
    if (is_word(name, name_of(set))) return set;
  refuse_value("isa", "None or the name of an instruction set", name);
}

nb::dict as_dict(const limits::fma_rate& rate) {
  nb::dict result;
  result["flops"] = rate.flops;
  result["clock"] = rate.clock;
  result["lanes"] = rate.lanes;
  result["units"] = rate.units;
  result["validity"] = rate.validity;
  return result;
}

nb::dict fma_rate(std::string_view type_name, nb::handle threads, nb::handle isa_name) {
  const dtype type = peak_type(type_name);
  const int count = read_thread_count(threads);
  const isa set = peak_set(type, isa_name);
  limits::fma_rate rate;
  {
    nb::gil_scoped_release unlocked;
    rate = limits::measure_fma(type, count, set);
  }
  return as_dict(rate);
}

double fma_peak(std::string_view type_name, nb::handle threads) {
  const dtype type = peak_type(type_name);
  const int count = read_thread_count(threads);
  const isa set = peak_set(type, nb::none());
  nb::gil_scoped_release unlocked;
  return limits::measure_fma(type, count, set).flops;
}

double read_bandwidth(nb::handle threads, std::size_t bytes) {
  const int count = read_thread_count(threads);
  nb::gil_scoped_release unlocked;
  return limits::read_bandwidth(count, bytes);
}

double clock_frequency() {
  nb::gil_scoped_release unlocked;
  return limits::clock_frequency();
}

nb::dict measure_limits(nb::handle threads) {
  const int count = read_thread_count(threads);
  limits::measured all;
  {
    nb::gil_scoped_release unlocked;
    all = limits::measure(count);
  }
  nb::dict result;
  result["fma_f32"] = all.fma_f32;
  result["fma_f64"] = all.fma_f64;
  result["read"] = all.read;
  result["clock"] = all.clock;
  result["validity_f32"] = all.validity_f32;
  result["validity_f64"] = all.validity_f64;
  result["dpbf16"] = all.dpbf16 ? nb::object(nb::float_(all.dpbf16->flops)) : nb::none();
  result["amx_bf16"] = all.amx_bf16 ? nb::object(nb::float_(all.amx_bf16->flops)) : nb::none();
  result["threads"] = all.threads;
  const std::string_view set = name_of(all.set);
  result["isa"] = nb::str(set.data(), set.size());
  return result;
}

/// Seconds of one call as C++ makes it, over views and into memory that are there already: the mean of `calls` calls.
double seconds_of_call(nb::handle q, nb::handle k, nb::handle v, nb::handle out, std::int64_t calls, nb::handle threads) {
  using steady = std::chrono::steady_clock;
  if (calls < 1) throw argument_error("calls", "at least 1", std::to_string(calls));
  const borrowed_array query(q, "q"), key(k, "k"), value(v, "v"), result(out, "out");
  result.require_writable();
  const array_view query_view = query.view(), key_view = key.view(), value_view = value.view();
  const outputs results{.out = result.mutable_view()};
  const options how{.threads = read_thread_count(threads)};
  nb::gil_scoped_release unlocked;
  const auto begin = steady::now();
  for (std::int64_t call = 0; call < calls; ++call) attend::attention(query_view, key_view, value_view, results, how);
  return std::chrono::duration<double>(steady::now() - begin).count() / static_cast<double>(calls);
}

}  // namespace

void define_limits(nb::module_& module) {
  module.def("measure_limits", &measure_limits, nb::arg("threads"));
  module.def("fma_rate", &fma_rate, nb::arg("dtype"), nb::arg("threads"), nb::arg("isa") = nb::none());
  module.def("fma_peak", &fma_peak, nb::arg("dtype"), nb::arg("threads"));
  module.def("read_bandwidth", &read_bandwidth, nb::arg("threads"), nb::arg("bytes") = limits::read_bytes);
  module.def("clock", &clock_frequency);
  module.def("seconds_of_call", &seconds_of_call, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out"), nb::arg("calls"),
             nb::arg("threads"));
}

}  // namespace attend::python
