#include "dispatch.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

#include "attend/error.hpp"
#include "cpuid.hpp"

namespace attend {
namespace {

constexpr std::pair<isa, std::string_view> names[] = {
    {isa::scalar, "scalar"},           {isa::neon, "neon"},        {isa::avx2, "avx2"}, {isa::avx512, "avx512"},
    {isa::avx512_bf16, "avx512_bf16"}, {isa::amx_bf16, "amx_bf16"}};

const std::vector<isa>& detected() {
  static const std::vector<isa> sets = detail::classify(detail::read_cpu());
  return sets;
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
  };
}

std::vector<isa> available_isas() {
  std::vector<isa> sets = detected();
  const char* const wanted = std::getenv("ATTEND_ISA");
  if (!wanted || !*wanted) return sets;
  const auto at = std::find_if(sets.begin(), sets.end(), [&](isa set) { return name_of(set) == wanted; });
  if (at == sets.end()) throw argument_error("ATTEND_ISA", "an instruction set of this machine (" + list(sets) + ")", wanted);
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
    default: return nullptr;
  }
}

constexpr kernel_key keys[kernel_lines] = {
#define ATTEND_KERNEL(op, q, kv, sums) {operation::op, dtype::q, dtype::kv, dtype::sums},
#include "kernels/kernels.def"
#undef ATTEND_KERNEL
};

/// Every line of kernels.def with its best set, merged once.
struct merged_table {
  kernel_choice lines[kernel_lines] = {};

  merged_table() {
    for (const isa set : available_isas()) {
      const kernel_table* const table = table_of(set);
      for (int line = 0; table && line < kernel_lines; ++line) {
        if (table->lines[line]) lines[line] = {table->lines[line], set};
      }
    }
  }
};

}  // namespace

const char* name_of(operation op) noexcept { return op == operation::forward ? "forward" : "few_queries"; }

kernel_choice choose_kernel(const kernel_key& key) {
  static const merged_table kernels;
  for (int line = 0; line < kernel_lines; ++line) {
    if (keys[line] == key) return kernels.lines[line];
  }
  throw std::logic_error("attend: no kernel for a validated problem");
}

}  // namespace detail
}  // namespace attend
