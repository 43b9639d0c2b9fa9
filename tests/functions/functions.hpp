// Functions of kernels by themselves, one table per instruction set: unit.cpp, compiled with the flags of each.
#pragma once

#include <cstdint>

namespace attend::test {

/// to[i] = f(from[i]); counts are multiples of 64.
template <class T>
using array_function = void (*)(const T* from, T* to, std::int64_t count);

template <class T>
struct functions {
  array_function<T> exp2, tanh, sigmoid;
};
struct function_table {
  functions<float> f32;
  functions<double> f64;
};

// Where a set is not compiled, its table does not exist and is not named.
extern const function_table scalar_functions;
extern const function_table neon_functions;
extern const function_table avx2_functions;
extern const function_table avx512_functions;

}  // namespace attend::test
