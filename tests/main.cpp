// Runs every test on the instruction set that ATTEND_ISA names; a set that this machine lacks is a visible skip (exit code 77).
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "attend/attend.hpp"

namespace {

bool is_an_instruction_set(std::string_view word) {
  for (int set = 0; set <= static_cast<int>(attend::isa::amx_bf16); ++set)
    if (attend::name_of(static_cast<attend::isa>(set)) == word) return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* wanted = std::getenv("ATTEND_ISA")) {
    try {
      attend::available_isas();
    } catch (const attend::argument_error& error) {
      if (is_an_instruction_set(wanted)) {
        std::cout << "skipped: this machine has no " << wanted << '\n';
        return 77;
      }
      std::cerr << error.what() << '\n';
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
