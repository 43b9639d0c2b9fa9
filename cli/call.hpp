// A call as the command line describes it: tensors from files, and the library's options.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "attend/attend.hpp"
#include "attend/io.hpp"

namespace attend::cli {

/// The files of one call. Tensors are loaded once and live as long as this does.
class inputs {
 public:
  /// Opens the files and finds q, k and v in them; loads nothing. No paths: a source of masks in .npy files alone.
  explicit inputs(const input_arguments& from);
  inputs(const inputs&) = delete;
  inputs& operator=(const inputs&) = delete;

  /// q, k, v = 0, 1, 2, known from its header.
  io::entry describe(int tensor) const;
  /// q, k, v = 0, 1, 2.
  const io::array& load(int tensor);
  /// A tensor of IN, or a .npy; `argument` is what it is for.
  const io::array& find(const std::string& argument, const std::string& name);
  bool has(const std::string& name) const;

  /// Where an argument of the library came from: " (v is tensor l0_v of in.npz)", or nothing.
  std::string origin(const std::string& argument) const;

 private:
  struct place {
    const io::archive* file;
    std::string name;
    const io::array* loaded = nullptr;
  };

  std::vector<io::archive> files_;
  std::vector<place> tensors_;
  std::deque<io::array> loaded_;
  std::map<std::string, std::string> origins_;
};

/// Options of the library and the arrays that they name.
class call_options {
 public:
  call_options(const option_arguments& from, inputs& tensors);

  options& how() noexcept { return how_; }
  const options& how() const noexcept { return how_; }
  /// Threads that a call may use.
  int threads() const { return how_.threads > 0 ? how_.threads : num_threads(); }

 private:
  template <class Integers>
  Integers integers(const std::string& argument, const std::string& text, inputs& tensors);

  options how_;
  std::deque<tensor<std::int64_t>> lists_;
};

/// Runs `work`; what the library refuses becomes a `usage_error` that says where the argument came from.
void with_origins(const inputs& tensors, const std::function<void()>& work);

/// Whole numbers separated by commas, or nothing where the text is something else.
std::optional<std::vector<std::int64_t>> parse_integers(const std::string& text);

/// Throws `usage_error`.
layout parse_layout(const std::optional<std::string>& text);

/// The parts between commas.
std::vector<std::string> split(const std::string& text);

}  // namespace attend::cli
