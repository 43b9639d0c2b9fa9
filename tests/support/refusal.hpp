// Calls that must be refused: by whom, in which words, and with nothing written.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/compute.hpp"

namespace attend::test {

/// A right call that a test makes wrong in one place.
struct call {
  tensor<float> q = normal<float>({2, 4, 3, 8}, 1), k = normal<float>({2, 2, 5, 8}, 2), v = normal<float>({2, 2, 5, 6}, 3);
  tensor<float> out{{2, 4, 3, 6}, 7.0f}, lse{{2, 4, 3}, 7.0f}, weights{{2, 4, 3, 5}, 7.0f};
  array_view q_view = q, k_view = k, v_view = v;
  outputs results{.out = out, .lse = lse, .weights = weights};
  options how;
};

inline bool untouched(const tensor<float>& x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return value == 7.0f; });
}

/// `call` throws argument_error on account of `argument`, with these words in the message, which is returned.
template <class Call>
std::string expect_argument_error(const std::string& argument, const std::vector<std::string>& words,
                                  argument_error::kind fault, const Call& call) {
  try {
    call();
    ADD_FAILURE() << argument << ": expected argument_error, got a result";
    return {};
  } catch (const argument_error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.argument(), argument) << text;
    EXPECT_EQ(error.fault(), fault) << text;
    EXPECT_EQ(text.rfind(argument + ": expected ", 0), 0u) << text;
    EXPECT_NE(text.find(", got "), std::string::npos) << text;
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" in: " << text;
    return text;
  }
}

/// The call is refused on account of `argument`, with these words in the message.
inline void expect_refusal(const std::string& argument, const std::vector<std::string>& words,
                           const std::function<void(call&)>& spoil, argument_error::kind fault = argument_error::kind::value) {
  call c;
  spoil(c);
  const std::optional<std::string> problem = check(c.q_view, c.k_view, c.v_view, c.results, c.how);
  ASSERT_TRUE(problem) << argument << ": check finds nothing";
  const std::string text =
      expect_argument_error(argument, words, fault, [&] { attention(c.q_view, c.k_view, c.v_view, c.results, c.how); });
  EXPECT_EQ(text, *problem) << "check says what attention throws";
  EXPECT_TRUE(untouched(c.out) && untouched(c.lse) && untouched(c.weights)) << argument << ": something was written";
}

inline constexpr auto type_fault = argument_error::kind::type;

}  // namespace attend::test
