// attend info: version, instruction sets, threads, and on demand the limits of this machine.
#include <iostream>
#include <vector>

#include "attend/attend.hpp"
#include "commands.hpp"
#include "limits.hpp"

namespace attend::cli {

namespace {

std::vector<std::string> names(const std::vector<isa>& sets) {
  std::vector<std::string> words;
  for (const isa set : sets) words.emplace_back(name_of(set));
  return words;
}

std::string joined(const std::vector<isa>& sets) {
  std::string text;
  for (const isa set : sets) text += (text.empty() ? "" : " ") + std::string(name_of(set));
  return text;
}

}  // namespace

int info(const info_arguments& given) {
  const std::vector<isa> detected = detected_isas(), compiled = compiled_isas(), available = available_isas();
  const int threads = num_threads();
  if (given.json) {
    nlohmann::ordered_json facts;
    facts["version"] = version();
    facts["instruction_sets"] = {{"detected", names(detected)}, {"compiled", names(compiled)}, {"available", names(available)}};
    facts["threads"] = threads;
    if (given.limits) {
      const limits::measured here = limits::measure(threads);
      facts["limits"] = {{"threads", here.threads},
                         {"instruction_set", name_of(here.set)},
                         {"fma_f32_flops_per_second", here.fma_f32},
                         {"fma_f64_flops_per_second", here.fma_f64},
                         {"validity_f32", here.validity_f32},
                         {"validity_f64", here.validity_f64},
                         {"read_bytes_per_second", here.read},
                         {"clock_hertz", here.clock}};
      if (here.dpbf16) facts["limits"]["dpbf16_flops_per_second"] = here.dpbf16->flops;
      if (here.amx_bf16) facts["limits"]["amx_bf16_flops_per_second"] = here.amx_bf16->flops;
    }
    print(facts);
    return 0;
  }
  std::cout << "attend " << version() << '\n'
            << "instruction sets: detected " << joined(detected) << "; compiled " << joined(compiled) << "; available "
            << joined(available) << '\n'
            << "threads: " << threads << '\n';
  if (given.limits) {
    const limits::measured here = limits::measure(threads);
    std::cout << "multiply-adds, " << name_of(here.set) << ", " << here.threads << " threads: " << number(here.fma_f32 * 1e-9)
              << " GF/s in float32, " << number(here.fma_f64 * 1e-9) << " GF/s in float64\n";
    if (here.dpbf16) std::cout << "products of pairs of bfloat16 (dpbf16): " << number(here.dpbf16->flops * 1e-9) << " GF/s\n";
    if (here.amx_bf16)
      std::cout << "products of tiles of bfloat16 (amx_bf16): " << number(here.amx_bf16->flops * 1e-9) << " GF/s\n";
    std::cout << "reading: " << number(here.read * 1e-9) << " GB/s\n"
              << "clock: " << number(here.clock * 1e-9) << " GHz\n";
  }
  return 0;
}

}  // namespace attend::cli
