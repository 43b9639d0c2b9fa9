#include "dispatch.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "attend/error.hpp"
#include "cpuid.hpp"

namespace attend {
namespace {

constexpr std::pair<isa, std::string_view> names[] = {
    {isa::scalar, "scalar"},           {isa::neon, "neon"},        {isa::avx2, "avx2"}, {isa::avx512, "avx512"},
    {isa::avx512_bf16, "avx512_bf16"}, {isa::amx_bf16, "amx_bf16"}};

const detail::cpu_registers& this_cpu() {
  static const detail::cpu_registers cpu = detail::read_cpu();
  return cpu;
}

const std::vector<isa>& detected() {
  static const std::vector<isa> sets = [] {
    std::vector<isa> found = detail::classify(this_cpu());
#if ATTEND_SOFTWARE_PAIRS  // a build for tests: kernels of bfloat16 whose products are software (tests/software/pairs.cpp)
    if (found.back() >= isa::avx512) found = {isa::scalar, isa::avx2, isa::avx512, isa::avx512_bf16, isa::amx_bf16};
#endif
    return found;
  }();
  return sets;
}

/// What ATTEND_ISA says; empty where it says nothing.
std::string_view wanted_isa() noexcept {
  const char* const wanted = std::getenv("ATTEND_ISA");
  return wanted ? wanted : "";
}

std::string list(const std::vector<isa>& sets) {
  std::string text;
  for (const isa set : sets) text += (text.empty() ? "" : ", ") + std::string(name_of(set));
  return text;
}

}  // namespace

std::string_view name_of(isa set) noexcept {
  for (const auto& [value, name] : names) {
    if (value == set) return name;
  }
  return "";
}

std::vector<isa> detected_isas() { return detected(); }

std::vector<isa> compiled_isas() {
  return {
      isa::scalar,
#if ATTEND_HAVE_NEON
      isa::neon,
#endif
#if ATTEND_HAVE_AVX2
      isa::avx2,
#endif
#if ATTEND_HAVE_AVX512
      isa::avx512,
#endif
#if ATTEND_HAVE_AVX512_BF16
      isa::avx512_bf16,
#endif
#if ATTEND_HAVE_AMX_BF16
      isa::amx_bf16,
#endif
  };
}

std::vector<isa> available_isas() {
  std::vector<isa> sets = detected();
  const std::string_view wanted = wanted_isa();
  if (wanted.empty()) return sets;
  const auto at = std::find_if(sets.begin(), sets.end(), [&](isa set) { return name_of(set) == wanted; });
  if (at == sets.end())
    throw argument_error("ATTEND_ISA", "an instruction set of this machine (" + list(sets) + ")", std::string(wanted));
  sets.erase(at + 1, sets.end());
  return sets;
}

namespace detail {
namespace {

const kernel_table* table_of(isa set) noexcept {
  switch (set) {
    case isa::scalar: return &scalar_kernels;
#if ATTEND_HAVE_NEON
    case isa::neon: return &neon_kernels;
#endif
#if ATTEND_HAVE_AVX2
    case isa::avx2: return &avx2_kernels;
#endif
#if ATTEND_HAVE_AVX512
    case isa::avx512: return &avx512_kernels;
#endif
#if ATTEND_HAVE_AVX512_BF16
    case isa::avx512_bf16: return &avx512_bf16_kernels;
#endif
#if ATTEND_HAVE_AMX_BF16
    case isa::amx_bf16: return &amx_bf16_kernels;
#endif
    default: return nullptr;
  }
}

constexpr kernel_key keys[kernel_lines] = {
#define ATTEND_KERNEL(op, q, kv, sums) {operation::op, dtype::q, dtype::kv, dtype::sums},
#define ATTEND_PAIR_KERNEL ATTEND_KERNEL
#include "kernels/kernels.def"
};
constexpr kernel_key backward_keys[backward_lines] = {
#define ATTEND_BACKWARD_KERNEL(op, q, kv, sums) {operation::op, dtype::q, dtype::kv, dtype::sums},
#include "kernels/kernels.def"
};

/// On Intel's processors, a vector instruction for pairs does less per cycle than those of float32 (measured where AMX is); on AMD's it does
/// twice as much. Whoever names the set gets it.
bool pays(isa set) noexcept { return set != isa::avx512_bf16 || !this_cpu().intel || wanted_isa() == name_of(set); }

/// Every line of kernels.def with its best set, merged once.
struct merged_table {
  kernel_choice lines[kernel_lines] = {};
  backward_choice backward[backward_lines] = {};

  merged_table() {
    for (const isa set : available_isas()) {
      const kernel_table* const table = pays(set) ? table_of(set) : nullptr;
      if (!table) continue;
      for (int line = 0; line < kernel_lines; ++line) {
        if (table->lines[line]) lines[line] = {table->lines[line], set};
      }
      for (int line = 0; line < backward_lines; ++line) {
        if (table->backward[line]) backward[line] = {table->backward[line], set};
      }
    }
  }
};

const merged_table& kernels() {
  static const merged_table all;
  return all;
}

}  // namespace

const char* name_of(operation op) noexcept {
  switch (op) {
    case operation::forward: return "forward";
    case operation::forward_pairs: return "forward_pairs";
    case operation::few_queries: return "few_queries";
    case operation::backward: return "backward";
  }
  return "";
}

kernel_choice choose_kernel(const kernel_key& key) {
  for (int line = 0; line < kernel_lines; ++line) {
    if (keys[line] == key) return kernels().lines[line];
  }
  return {};
}

backward_choice choose_backward_kernel(const kernel_key& key) {
  for (int line = 0; line < backward_lines; ++line) {
    if (backward_keys[line] == key) return kernels().backward[line];
  }
  return {};
}

}  // namespace detail
}  // namespace attend
