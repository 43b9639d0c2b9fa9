#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <string_view>

#include "calls.hpp"
#include "limits.hpp"
#include "readers.hpp"

namespace attend::python {
namespace {

dtype peak_type(std::string_view name) {
  if (name == name_of(dtype::f32)) return dtype::f32;
  if (name == name_of(dtype::f64)) return dtype::f64;
  throw argument_error("dtype", "float32 or float64", std::string(name), argument_error::kind::type);
}

nb::dict fma_rate(std::string_view type_name, nb::handle threads) {
  const dtype type = peak_type(type_name);
  const int count = read_thread_count(threads);
  limits::fma_rate rate;
  {
    nb::gil_scoped_release unlocked;
    rate = limits::measure_fma(type, count);
  }
  nb::dict result;
  result["flops"] = rate.flops;
  result["clock"] = rate.clock;
  result["lanes"] = rate.lanes;
  result["units"] = rate.units;
  result["validity"] = rate.validity;
  return result;
}

double fma_peak(std::string_view type_name, nb::handle threads) {
  const dtype type = peak_type(type_name);
  const int count = read_thread_count(threads);
  nb::gil_scoped_release unlocked;
  return limits::fma_peak(type, count);
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
  result["threads"] = all.threads;
  const std::string_view set = name_of(all.set);
  result["isa"] = nb::str(set.data(), set.size());
  return result;
}

}  // namespace

void define_limits(nb::module_& module) {
  module.def("measure_limits", &measure_limits, nb::arg("threads"));
  module.def("fma_rate", &fma_rate, nb::arg("dtype"), nb::arg("threads"));
  module.def("fma_peak", &fma_peak, nb::arg("dtype"), nb::arg("threads"));
  module.def("read_bandwidth", &read_bandwidth, nb::arg("threads"), nb::arg("bytes") = limits::read_bytes);
  module.def("clock", &clock_frequency);
}

}  // namespace attend::python
