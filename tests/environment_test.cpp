// The floating-point environment of work items: the default one, whatever the caller has set, and the caller's again afterwards.
#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

#include "environment.hpp"

namespace attend::test {
namespace {

using detail::default_environment, detail::tiny_results;

/// Computed when it is asked for.
float half_of_the_smallest_normal_number() {
  volatile float x = std::numeric_limits<float>::min();
  return x * 0.5f;
}

TEST(an_environment, takes_results_below_the_normal_numbers_for_0_where_it_is_told_to) {
  EXPECT_GT(half_of_the_smallest_normal_number(), 0.0f);
  {
    const default_environment kept;
    EXPECT_GT(half_of_the_smallest_normal_number(), 0.0f);
  }
#if defined(__x86_64__)
  {
    const default_environment zero(tiny_results::zero);
    EXPECT_EQ(half_of_the_smallest_normal_number(), 0.0f);
    {
      const default_environment kept;
      EXPECT_GT(half_of_the_smallest_normal_number(), 0.0f);
    }
    EXPECT_EQ(half_of_the_smallest_normal_number(), 0.0f);
  }
#endif
  EXPECT_GT(half_of_the_smallest_normal_number(), 0.0f);
}

/// Whether sums are rounded up, which says more than the mode that is asked for: only vector arithmetic counts.
bool rounds_up() {
  volatile double one = 1, little = 0x1p-80;
  return one + little > 1;
}

TEST(an_environment, rounds_to_nearest_and_gives_back_what_was_set) {
  std::fesetround(FE_UPWARD);
  for (const tiny_results tiny : {tiny_results::kept, tiny_results::zero}) {
    {
      const default_environment scope(tiny);
      EXPECT_FALSE(rounds_up());
    }
    EXPECT_TRUE(rounds_up());
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
  }
  std::fesetround(FE_TONEAREST);
}

}  // namespace
}  // namespace attend::test
