// Which instruction sets are found: recorded CPUs, this machine, and what ATTEND_ISA makes of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "cpuid.hpp"
#include "support/compute.hpp"

namespace attend::test {
namespace {

using detail::classify;
using detail::cpu_registers;

constexpr std::uint64_t no_vectors = 0x3, with_ymm = 0x7, with_zmm = 0xe7, with_tiles = 0x602e7;

const std::vector<isa> scalar_only{isa::scalar};
const std::vector<isa> up_to_neon{isa::scalar, isa::neon};
const std::vector<isa> up_to_avx2{isa::scalar, isa::avx2};
const std::vector<isa> up_to_avx512{isa::scalar, isa::avx2, isa::avx512};
const std::vector<isa> up_to_bf16{isa::scalar, isa::avx2, isa::avx512, isa::avx512_bf16};
const std::vector<isa> up_to_amx{isa::scalar, isa::avx2, isa::avx512, isa::avx512_bf16, isa::amx_bf16};

// Registers as these CPUs report them.
const cpu_registers zen2{.leaf1_ecx = 0x7ed8320b, .leaf7_ebx = 0x219c91a9, .xcr0 = with_ymm};
const cpu_registers skylake_server{.leaf1_ecx = 0x7ffefbff, .leaf7_ebx = 0xd39ffffb, .leaf7_edx = 0xbc000400, .xcr0 = with_zmm};
const cpu_registers zen4{
    .leaf1_ecx = 0x7ed8320b, .leaf7_ebx = 0xf1bf97a9, .leaf7_edx = 0x10000010, .leaf7_1_eax = 0x20, .xcr0 = with_zmm};
const cpu_registers zen5{
    .leaf1_ecx = 0xfffa3203, .leaf7_ebx = 0xf1bf07ab, .leaf7_edx = 0x110, .leaf7_1_eax = 0x30, .xcr0 = with_zmm};
const cpu_registers sapphire_rapids{.leaf1_ecx = 0x7ffef3ff,
                                    .leaf7_ebx = 0xf3bfb7ef,
                                    .leaf7_edx = 0xffdd4432,
                                    .leaf7_1_eax = 0x1c30,
                                    .xcr0 = with_tiles,
                                    .amx_permitted = true};

cpu_registers with_xcr0(cpu_registers cpu, std::uint64_t xcr0) {
  cpu.xcr0 = xcr0;
  return cpu;
}

TEST(recorded_cpus, have_the_sets_of_their_generation) {
  EXPECT_EQ(classify({}), scalar_only);
  EXPECT_EQ(classify(zen2), up_to_avx2);
  EXPECT_EQ(classify(skylake_server), up_to_avx512);
  EXPECT_EQ(classify(zen4), up_to_bf16);
  EXPECT_EQ(classify(zen5), up_to_bf16);
  EXPECT_EQ(classify(sapphire_rapids), up_to_amx);
  EXPECT_EQ(classify({.advanced_simd = true}), up_to_neon);
}

TEST(recorded_cpus, have_only_what_the_operating_system_saves) {
  for (const cpu_registers& cpu : {zen2, skylake_server, zen4, zen5, sapphire_rapids}) {
    EXPECT_EQ(classify(with_xcr0(cpu, 0)), scalar_only);
    EXPECT_EQ(classify(with_xcr0(cpu, no_vectors)), scalar_only);
    EXPECT_EQ(classify(with_xcr0(cpu, with_ymm)), up_to_avx2);
  }
  for (const std::uint64_t missing : {0x20, 0x40, 0x80}) EXPECT_EQ(classify(with_xcr0(zen5, with_zmm & ~missing)), up_to_avx2);
  EXPECT_EQ(classify(with_xcr0(sapphire_rapids, with_zmm)), up_to_bf16);
  EXPECT_EQ(classify(with_xcr0(sapphire_rapids, with_tiles & ~std::uint64_t{0x40000})), up_to_bf16);
  cpu_registers refused = sapphire_rapids;
  refused.amx_permitted = false;
  EXPECT_EQ(classify(refused), up_to_bf16);
  cpu_registers without_osxsave = zen5;
  without_osxsave.leaf1_ecx &= ~(1u << 27);
  EXPECT_EQ(classify(without_osxsave), scalar_only);
}

TEST(recorded_cpus, lose_a_set_with_any_feature_that_its_kernels_use) {
  for (const int bit : {12, 28, 29}) {  // FMA, AVX, F16C
    cpu_registers cpu = zen5;
    cpu.leaf1_ecx &= ~(1u << bit);
    EXPECT_EQ(classify(cpu), scalar_only) << bit;
  }
  for (const int bit : {16, 17, 30, 31}) {  // AVX512 F, DQ, BW, VL
    cpu_registers cpu = zen5;
    cpu.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(classify(cpu), up_to_avx2) << bit;
  }
  for (const int bit : {22, 24}) {  // AMX BF16, TILE
    cpu_registers cpu = sapphire_rapids;
    cpu.leaf7_edx &= ~(1u << bit);
    EXPECT_EQ(classify(cpu), up_to_bf16) << bit;
  }
  cpu_registers no_avx2 = zen5;
  no_avx2.leaf7_ebx &= ~(1u << 5);
  EXPECT_EQ(classify(no_avx2), scalar_only);
}

/// ATTEND_ISA with another value, for as long as this lives.
class narrowed {
 public:
  explicit narrowed(const char* value) {
    if (const char* const now = std::getenv("ATTEND_ISA")) before_ = now;
    value ? setenv("ATTEND_ISA", value, 1) : unsetenv("ATTEND_ISA");
  }
  ~narrowed() { before_ ? setenv("ATTEND_ISA", before_->c_str(), 1) : unsetenv("ATTEND_ISA"); }
  narrowed(const narrowed&) = delete;
  narrowed& operator=(const narrowed&) = delete;

 private:
  std::optional<std::string> before_;
};

bool has(const std::vector<isa>& sets, isa set) { return std::find(sets.begin(), sets.end(), set) != sets.end(); }

TEST(instruction_sets, have_names) {
  for (const auto& [set, name] : {std::pair{isa::scalar, "scalar"},
                                  {isa::neon, "neon"},
                                  {isa::avx2, "avx2"},
                                  {isa::avx512, "avx512"},
                                  {isa::avx512_bf16, "avx512_bf16"},
                                  {isa::amx_bf16, "amx_bf16"}}) {
    EXPECT_EQ(name_of(set), name);
  }
}

TEST(instruction_sets, begin_with_scalar_and_end_where_attend_isa_says) {
  EXPECT_TRUE(has(compiled_isas(), isa::scalar));
  EXPECT_EQ(detected_isas().front(), isa::scalar);
  for (const isa set : detected_isas()) {
    const narrowed to(std::string(name_of(set)).c_str());
    const auto sets = available_isas();
    EXPECT_EQ(sets.front(), isa::scalar);
    EXPECT_EQ(sets.back(), set);
    EXPECT_TRUE(std::is_sorted(sets.begin(), sets.end()));
  }
  const narrowed to(nullptr);
  EXPECT_EQ(available_isas(), detected_isas());
}

TEST(instruction_sets, that_are_unknown_or_missing_are_refused_by_name) {
  std::vector<std::string> wrong = {"avx9", "AVX2", "sse", "avx2 ", "avx512,avx2"};
  for (const isa set : {isa::neon, isa::avx2, isa::avx512, isa::avx512_bf16, isa::amx_bf16})
    if (!has(detected_isas(), set)) wrong.emplace_back(name_of(set));
  for (const std::string& word : wrong) {
    const narrowed to(word.c_str());
    try {
      available_isas();
      ADD_FAILURE() << word << ": expected argument_error";
    } catch (const argument_error& error) {
      EXPECT_EQ(error.argument(), "ATTEND_ISA");
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

TEST(instruction_sets, that_the_tests_run_on_are_those_that_were_asked_for) {
  const char* const wanted = std::getenv("ATTEND_ISA");
  if (!wanted || !*wanted) GTEST_SKIP() << "ATTEND_ISA is not set";
  EXPECT_EQ(name_of(available_isas().back()), wanted);
  if (!has(compiled_isas(), available_isas().back())) return;
  // Sets that multiply pairs of bfloat16 have kernels for that alone.
  const bool pairs = available_isas().back() >= isa::avx512_bf16;
  const plan_facts facts =
      make_plan({.type = pairs ? dtype::bf16 : dtype::f32, .q = {40, 4}, .k = {4, 4}, .v = {4, 4}}).facts();
  EXPECT_EQ(name_of(facts.set), wanted);
  EXPECT_EQ(facts.kernel, pairs ? "forward_pairs" : "forward");
}

}  // namespace
}  // namespace attend::test
