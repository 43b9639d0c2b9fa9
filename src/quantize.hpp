// Numbers of a row become codes; what codes mean: quantized_rows.hpp.
#pragma once

#include "quantized_rows.hpp"

namespace attend::detail {

/// Codes and scale of the first `count` columns of a group, behind which `x` repeats one of them. Codes end where they are padded to. A number that is not finite makes all of them
/// NaN, and so does for 4 bits a range that is not.
void quantize_group(int bits, const float (&x)[group_columns], int count, char* codes, char* scale) noexcept;

}  // namespace attend::detail
