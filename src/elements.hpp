// Elements whose type is a value, at any address.
#pragma once

#include <cstring>

#include "attend/types.hpp"

namespace attend::detail {

template <class T>
T load(const char* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(char* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
}

/// visit(T{}) for the type T of numbers: what inputs may hold, and what stands beside them.
template <class Visit>
decltype(auto) with_type(dtype type, const Visit& visit) {
  switch (type) {
    case dtype::f16: return visit(float16{});
    case dtype::bf16: return visit(bfloat16{});
    case dtype::f64: return visit(double{});
    default: return visit(float{});
  }
}

inline double load_number(const void* at, dtype type) noexcept {
  return with_type(type, [at]<class T>(T) { return static_cast<double>(load<T>(static_cast<const char*>(at))); });
}
inline void store_number(void* at, dtype type, double x) noexcept {
  with_type(type, [at, x]<class T>(T) { store(static_cast<char*>(at), static_cast<T>(x)); });
}

}  // namespace attend::detail
