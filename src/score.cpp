// Score functions: the list of a call, slopes of ALiBi, random words of dropout.
#include "attend/score.hpp"

#include <bit>
#include <cmath>

#include "attend/error.hpp"
#include "problem.hpp"

namespace attend {

score_list::score_list(std::initializer_list<score_step> steps) {
  for (const score_step& step : steps) push_back(step);
}

void score_list::push_back(const score_step& step) {
  if (size_ == max_size) throw argument_error("score", "at most " + std::to_string(max_size) + " score functions", "more");
  steps_[size_++] = step;
}

namespace detail {

double alibi_slope(const problem& p, const score_function& f, std::int64_t head) noexcept {
  if (f.numbers) return number_at(f.numbers, head * f.numbers.head);
  // The largest power of two below or at H, then every other slope of twice as many heads.
  const std::int64_t below = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(p.heads)));
  const bool first = head < below;
  const double number = static_cast<double>(first ? head + 1 : 2 * (head - below) + 1);
  return std::exp2(-8 * number / static_cast<double>(first ? below : 2 * below));
}

philox_words philox(std::uint64_t seed, std::int64_t four_keys, std::int64_t query, std::int64_t head,
                    std::int64_t batch) noexcept {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(four_keys), static_cast<std::uint32_t>(query),
                        static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(batch)};
  std::uint32_t key[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key[0];
    c[1] = static_cast<std::uint32_t>(b);
    c[2] = static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key[1];
    c[3] = static_cast<std::uint32_t>(a);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

}  // namespace detail
}  // namespace attend
