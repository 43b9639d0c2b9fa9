#include "roofline.hpp"

#include <algorithm>
#include <thread>

#include "commands.hpp"
#include "limits.hpp"

namespace attend::cli {

roofline roofline::measure(dtype type, int threads) {
  roofline found;
  found.type = type;
  // More threads than processors reach no higher limit.
  found.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, threads);
  found.read = limits::read_bandwidth(found.threads);
  found.measure_fma();
  return found;
}

void roofline::measure_fma() { fma = limits::fma_peak(accumulator_of(type), threads); }

double roofline::least(double flops, double bytes) const { return std::max(flops / fma, bytes / read); }

const char* roofline::reason(double flops, double bytes) const { return flops / fma >= bytes / read ? "arithmetic" : "memory"; }

std::string roofline::peaks() const {
  const dtype computed = accumulator_of(type);
  std::string text = number(fma * 1e-9) + " GF/s in " + std::string(name_of(computed));
  if (computed != type) text += ", as " + std::string(name_of(type)) + " is computed,";
  return text + " and " + number(read * 1e-9) + " GB/s";
}

}  // namespace attend::cli
