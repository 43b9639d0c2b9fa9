// The random words of dropout are those of Philox 4x32-10, and slopes of ALiBi those of the paper.
#include <gtest/gtest.h>

#include <set>

#include "support/score.hpp"

namespace attend::test {
namespace {

/// A counter, a key and the four words that belong to them.
struct known_answer {
  std::uint32_t counter[4], key[2], word[4];
};

// Known answers that the authors' library Random123 is tested by (Salmon et al., 2011).
constexpr known_answer known[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                                  {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                                   {0xffffffff, 0xffffffff},
                                   {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                                  {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                                   {0xa4093822, 0x299f31d0},
                                   {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};

TEST(random_words, are_the_known_answers_of_philox) {
  for (const auto& [counter, key, word] : known) {
    const std::uint64_t seed = std::uint64_t{key[1]} << 32 | key[0];
    const auto got = detail::philox(seed, counter[0], counter[1], counter[2], counter[3]);
    for (int n = 0; n < 4; ++n) EXPECT_EQ(got.word[n], word[n]) << n;
  }
}

TEST(random_words, keep_a_pair_from_p_times_2_to_the_32_on) {
  EXPECT_TRUE(detail::keeps(0.5, 0x80000000u));
  EXPECT_FALSE(detail::keeps(0.5, 0x7fffffffu));
  EXPECT_TRUE(detail::keeps(0.25, 0x40000000u));
  EXPECT_FALSE(detail::keeps(0.25, 0x3fffffffu));
  EXPECT_TRUE(detail::keeps(0, 0));
  EXPECT_FALSE(detail::keeps(1, 0xffffffffu)) << "1 drops all";
  EXPECT_FALSE(detail::keeps(0x1p-32, 0));
  EXPECT_TRUE(detail::keeps(0x1p-32, 1));
  EXPECT_FALSE(detail::keeps(0x1.8p-32, 1)) << "bounds between two words are not rounded down";
}

TEST(slopes_of_alibi, are_the_papers_for_any_number_of_heads) {
  EXPECT_EQ(paper_slopes(8), (std::vector<double>{0x1p-1, 0x1p-2, 0x1p-3, 0x1p-4, 0x1p-5, 0x1p-6, 0x1p-7, 0x1p-8}));
  EXPECT_EQ(paper_slopes(3), (std::vector<double>{0x1p-4, 0x1p-8, 0x1p-2})) << "2^(-8/2), 2^(-16/2), then 2^(-8/4)";
  for (std::int64_t heads = 1; heads <= 200; ++heads) {
    detail::problem p;
    p.heads = heads;
    const detail::score_function f{.what = detail::score_function::kind::alibi, .cap = 0, .numbers = {}};
    const auto slopes = paper_slopes(heads);
    std::set<double> different;
    for (std::int64_t h = 0; h < heads; ++h) {
      EXPECT_DOUBLE_EQ(detail::alibi_slope(p, f, h), slopes[std::size_t(h)]) << "head " << h << " of " << heads;
      different.insert(detail::alibi_slope(p, f, h));
    }
    EXPECT_EQ(std::int64_t(different.size()), heads) << "no two heads share a slope";
  }
}

}  // namespace
}  // namespace attend::test
