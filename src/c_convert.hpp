// The structs of attend/c.h as the C++ API takes them. Everything that C could get wrong is refused here, so that what comes
// out points at memory that the caller named.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include "attend/attend.hpp"
#include "attend/c.h"

namespace attend::detail {

/// The size that a struct of the caller's begins with.
std::size_t read_size(const char* name, const void* given);

/// Copies what this library knows of a struct of the caller's into `known`, whose size is `bytes` and whose members are all 0;
/// refuses what it does not know.
void read_struct(const char* name, const void* given, void* known, std::size_t bytes);

template <class Struct>
Struct read_struct(const char* name, const Struct* given) {
  Struct known = {};
  if (given) read_struct(name, given, &known, sizeof known);
  return known;
}

/// A member that names a value of an enumeration of `count`, counted from 0; or 0 or 1.
int read_word(const char* name, std::int32_t value, int count);
bool read_truth(const char* name, std::int32_t value);

/// Refuses a member `reserved` that is not 0.
void check_reserved(std::int32_t value);

/// Not given where the pointer is null.
mutable_array_view read_array(const char* name, const attend_array* given);
batch_integers read_integers(const char* name, const attend_integers& given);
outputs read_results(const attend_results* given);
rotary read_rotary(const attend_rotary* given);
token_positions read_positions(const attend_integers* given);

/// Dtype and shape of an array whose memory does not count.
problem_shape read_shapes(const attend_array* q, const attend_array* k, const attend_array* v);

/// Threads of a C program.
class c_executor final : public executor {
 public:
  explicit c_executor(const attend_executor& given) : given_(given) {}
  void parallel_for(std::int64_t count, int max_threads, const body& run) override;

 private:
  attend_executor given_;
};

/// Options, and what they point to.
class c_options {
 public:
  explicit c_options(const attend_options* given);
  c_options(const c_options&) = delete;
  c_options& operator=(const c_options&) = delete;
  const options& get() const noexcept { return how_; }

 private:
  void read_positions(const attend_options& given);
  void read_scores(const attend_options& given);

  attend_options given_;
  std::optional<c_executor> executor_;
  options how_;
};

/// The C name of a dtype's number, and back.
std::int32_t c_dtype(dtype type) noexcept;
dtype read_dtype(const char* name, std::int32_t number);

/// The status of what was thrown, whose text is kept for `attend_last_error`.
attend_status status_of_current_exception() noexcept;

template <class Call>
attend_status status_of(const Call& call) noexcept {
  try {
    call();
    return ATTEND_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

/// What a pointer that must not be null points to.
template <class T>
T& needed(const char* name, T* pointer) {
  if (!pointer) throw argument_error(name, "a pointer", "a null pointer");
  return *pointer;
}

}  // namespace attend::detail
