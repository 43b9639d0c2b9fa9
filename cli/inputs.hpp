// The files of a call, and which tensor of which file every argument of the library is.
#pragma once

#include <deque>
#include <functional>
#include <map>
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
  /// A tensor of IN, or a .npy, for an argument of the library; `option` is where the command line named it.
  const io::array& find(const std::string& argument, const std::string& option, const std::string& name);
  /// Whether `name` can be a tensor at all: one of IN, or a .npy.
  bool may_hold(const std::string& name) const;

  /// Where an argument of the library came from: " (v is tensor l0_v of in.npz)", or nothing.
  std::string origin(const std::string& argument) const;

 private:
  struct place {
    const io::archive* file;
    std::string name;
    const io::array* loaded = nullptr;
  };

  bool has(const std::string& name) const;

  io::raw_elements raw_;
  std::vector<io::archive> files_;
  std::vector<place> tensors_;
  std::deque<io::array> loaded_;
  std::map<std::string, std::string> origins_;
};

/// Runs `work`; what the library refuses becomes a `usage_error` that says where the argument came from.
void with_origins(const inputs& tensors, const std::function<void()>& work);

}  // namespace attend::cli
