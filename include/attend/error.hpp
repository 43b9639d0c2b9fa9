// Errors: every argument is checked before any work starts, and nothing is written when one is refused.
//
// ```cpp
// attend::tensor<float> q({4, 8}), k({6, 8}), v({7, 8});      // one value too many
// try {
//   attend::attention(q, k, v);
// } catch (const attend::argument_error& error) {
//   assert(error.argument() == "v");
// }
// ```
#pragma once

#include <stdexcept>
#include <string>

namespace attend {

/// A precondition that does not hold. `what()` reads "argument: expected X, got Y".
class argument_error : public std::invalid_argument {
 public:
  /// `value`: a value or shape is wrong; `type`: an element type is wrong (a TypeError in Python).
  enum class kind { value, type };

  argument_error(std::string argument, const std::string& expected, const std::string& received, kind what_kind = kind::value);

  /// Name of the argument, as in the options and in Python.
  const std::string& argument() const noexcept { return argument_; }
  kind fault() const noexcept { return kind_; }

 private:
  std::string argument_;
  kind kind_;
};

/// The caller's `interrupt` asked for a stop: results are unspecified, the library's own state is intact.
class interrupted : public std::runtime_error {
 public:
  interrupted();
};

}  // namespace attend
