// What the files of validate() share: refusals, and the checks that every array passes.
#pragma once

#include <string>

#include "problem.hpp"
#include "validate.hpp"

namespace attend::detail {

[[noreturn]] void refuse(const char* argument, const std::string& expected, const std::string& received);
[[noreturn]] void refuse_type(const char* argument, const std::string& expected, dtype received);

/// Strides for every axis, memory unless shapes alone were given, a byte span that 64 bits can hold.
void check_memory(const char* name, const array_view& x, inputs given = inputs::data);

/// The input's dtype or float32, as biases and tables may have.
void check_added_type(const char* name, const array_view& x, const problem& p);

// Parts of validate() in files of their own; each fills its members of the problem.
void check_functions(problem& p, const options& how);  // compatibility, normalizer, scale
void check_region(problem& p, const options& how);     // grid, neighborhood, relative

}  // namespace attend::detail
