// Inputs whose excluded keys hold NaN or infinity.
#pragma once

#include "support/compute.hpp"

namespace attend::test {

/// K and V of these keys, in every batch and head.
template <class T, class Which>
inputs<T> poisoned(const inputs<T>& x, T poison, const Which& excluded) {
  inputs<T> y{copy(x.q), copy(x.k), copy(x.v)};
  for (std::int64_t b = 0; b < x.k.shape()[0]; ++b) {
    for (std::int64_t h = 0; h < x.k.shape()[1]; ++h) {
      for (std::int64_t j = 0; j < x.k.shape()[2]; ++j) {
        if (!excluded(b, j)) continue;
        for (std::int64_t d = 0; d < x.k.shape()[3]; ++d) y.k(b, h, j, d) = poison;
        for (std::int64_t c = 0; c < x.v.shape()[3]; ++c) y.v(b, h, j, c) = poison;
      }
    }
  }
  return y;
}

}  // namespace attend::test
