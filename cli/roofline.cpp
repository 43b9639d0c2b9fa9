#include "roofline.hpp"

#include <algorithm>
#include <thread>

#include "limits.hpp"

namespace attend::cli {

roofline roofline::measure(dtype type, int threads) {
  roofline found;
  // More threads than processors reach no higher limit.
  found.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, threads);
  found.read = limits::read_bandwidth(found.threads);
  found.measure_fma(type);
  return found;
}

void roofline::measure_fma(dtype type) { fma = limits::fma_peak(type == dtype::f64 ? dtype::f64 : dtype::f32, threads); }

double roofline::least(double flops, double bytes) const { return std::max(flops / fma, bytes / read); }

const char* roofline::reason(double flops, double bytes) const { return flops / fma >= bytes / read ? "arithmetic" : "memory"; }

}  // namespace attend::cli
