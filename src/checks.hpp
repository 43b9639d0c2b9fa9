// What the files of validate() share: refusals, the checks that every array passes, and how arrays are placed in a problem.
#pragma once

#include <cstdint>
#include <string>

#include "problem.hpp"
#include "validate.hpp"

namespace attend::detail {

// Positions stay below farthest_position + 2^59 queries, so that adding or subtracting a side below unbounded_side fits 64 bits.
inline constexpr std::int64_t farthest_position = std::int64_t{1} << 61, unbounded_side = std::int64_t{1} << 62;

// Columns: tiles of this width can still be counted in bytes.
inline constexpr std::int64_t widest = std::int64_t{1} << 40;

[[noreturn]] void refuse(const char* argument, const std::string& expected, const std::string& received);
[[noreturn]] void refuse_type(const char* argument, const std::string& expected, dtype received);

/// A number with as many digits as it takes: a tiny one is not 0.
std::string text_of(double number);

/// Strides for every axis, memory unless shapes alone were given, a byte span that 64 bits can hold.
void check_memory(const char* name, const array_view& x, inputs given = inputs::data);

/// Whether q, k and v may have this dtype; those that they may have; and those that stand beside inputs.
bool is_input_type(dtype type) noexcept;
inline constexpr const char* input_types = "float32, float64, float16 or bfloat16";
std::string added_types(dtype inputs);

/// The input's dtype or float32, as biases and tables may have.
void check_added_type(const char* name, const array_view& x, const problem& p);

/// Memory to write to: as above, and every element in a place of its own.
void check_places(const char* name, const mutable_array_view& x);

/// q, k or v: given, of a dtype that inputs may have and q has.
void check_input(const char* name, const array_view& x, dtype type, inputs given);

/// q, k, v or out as axes (batch..., H, L, E), whatever the layout and rank.
struct axes {
  extents shape, strides;
  int batch_axes() const noexcept { return shape.rank() - 3; }
  std::int64_t heads() const noexcept { return shape[shape.rank() - 3]; }
  std::int64_t length() const noexcept { return shape[shape.rank() - 2]; }
  std::int64_t width() const noexcept { return shape[shape.rank() - 1]; }
};
axes heads_first(const array_view& x, layout order);
operand place(const array_view& x, const axes& a, const batch_shape& batch);
extents batch_extents(const batch_shape& batch);

/// Sizes of q, k and v that have to fit each other, whatever their batch axes: heads, lengths, widths.
void check_sizes(problem& p, const axes& q, const axes& k, const axes& v);

/// A mask or bias against (batch..., H, L, S) by NumPy's rule; it may not enlarge anything.
operand broadcast(const char* name, const array_view& x, const problem& p);

/// Where packed sequences begin and end, or which pages hold their keys.
struct boundaries {
  const array_view& queries;
  const char* keys_name;
  const array_view& keys;
};

// Parts of validate() in files of their own; each fills its members of the problem.
void check_functions(problem& p, const options& how);               // compatibility, normalizer, scale
void check_region(problem& p, const options& how);                  // grid, neighborhood, relative
void check_positions(problem& p, const options& how, bool packed);  // causal, window, prefix, lengths, query_offset
void check_segments(problem& p, const options& how);
void check_mask(problem& p, const options& how);
void check_scores(problem& p, const options& how);  // score functions, sinks, dropout
void check_results(problem& p, const array_view& q, const array_view& k, const array_view& v, const outputs& results,
                   const options& how, bool matrices, const boundaries* packed);

}  // namespace attend::detail
