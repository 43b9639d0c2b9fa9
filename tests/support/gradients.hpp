// Backward calls with every gradient wanted, and how they are compared with the reference's.
#pragma once

#include <string>

#include "support/compute.hpp"

namespace attend::test {

/// What a backward call begins from: inputs of a problem, results of its forward call, and gradients by these.
template <class T>
struct backward_call_of {
  inputs<T> x;
  tensor<T> out, dout;
  tensor<accumulator<T>> lse, dlse;

  backward_call_of(inputs<T>&& of, const options& how, std::uint64_t seed = 1) : x(std::move(of)) {
    computed<T> y = compute(x, how);
    out = std::move(y.out), lse = std::move(y.lse);
    dout = normal<T>(out.shape(), 500 + seed);
    dlse = normal<accumulator<T>>(lse.shape(), 600 + seed);
  }
  explicit backward_call_of(const sizes& n, const options& how = {}, std::uint64_t seed = 1)
      : backward_call_of(make_inputs<T>(n, seed, how.layout), how, seed) {}

  backward_inputs given() const { return {.dout = dout, .out = out, .lse = lse, .dlse = dlse}; }
  owned_gradients<T> run(const options& how) const { return attention_backward(given(), x.q, x.k, x.v, how); }
  reference::gradients truth(const options& how) const { return reference::attention_backward(dout, dlse, x.q, x.k, x.v, how); }
};

/// Within ten times the forward's bound, relative to the largest element. Sums over pairs may cancel, as they do along keys: these are judged
/// beside the `size` of what they are sums of.
template <class T, class Stored>
testing::AssertionResult gradient_near(const tensor<Stored>& got, const tensor<double>& truth, double size = 0) {
  const double bound = 10 * relative_bound<T> * std::max(size, largest(truth)) +
                       double(std::numeric_limits<accumulator<T>>::min()) + double(std::numeric_limits<Stored>::denorm_min());
  return near(got, truth, [&](std::int64_t) { return bound; });
}

template <class T>
testing::AssertionResult gradients_right(const owned_gradients<T>& got, const reference::gradients& truth) {
  if (auto right = gradient_near<T>(got.dq, truth.dq); !right) return right << " (dq)";
  if (auto right = gradient_near<T>(got.dk, truth.dk); !right) return right << " (dk)";
  if (auto right = gradient_near<T>(got.dv, truth.dv); !right) return right << " (dv)";
  const double size = std::max(largest(truth.dq), largest(truth.dk));
  if (auto right = gradient_near<T>(got.dbias, truth.dbias, size); !right) return right << " (dbias)";
  if (auto right = gradient_near<T>(got.drelative, truth.drelative, size); !right) return right << " (drelative)";
  if (auto right = gradient_near<T>(got.dalibi, truth.dalibi, size); !right) return right << " (dalibi)";
  if (auto right = gradient_near<T>(got.dsinks, truth.dsinks, size); !right) return right << " (dsinks)";
  for (std::size_t n = 0; n < got.dscore.size(); ++n)
    if (auto right = gradient_near<T>(got.dscore[n], truth.dscore[n], size); !right) return right << " (dscore " << n << ")";
  return testing::AssertionSuccess();
}

template <class T>
testing::AssertionResult same_gradients(const owned_gradients<T>& a, const owned_gradients<T>& b) {
  if (auto same = same_bits(a.dq, b.dq); !same) return same << " (dq)";
  if (auto same = same_bits(a.dk, b.dk); !same) return same << " (dk)";
  if (auto same = same_bits(a.dv, b.dv); !same) return same << " (dv)";
  if (auto same = same_bits(a.dbias, b.dbias); !same) return same << " (dbias)";
  if (auto same = same_bits(a.drelative, b.drelative); !same) return same << " (drelative)";
  if (auto same = same_bits(a.dalibi, b.dalibi); !same) return same << " (dalibi)";
  if (auto same = same_bits(a.dsinks, b.dsinks); !same) return same << " (dsinks)";
  for (std::size_t n = 0; n < a.dscore.size(); ++n)
    if (auto same = same_bits(a.dscore[n], b.dscore[n]); !same) return same << " (dscore " << n << ")";
  return testing::AssertionSuccess();
}

}  // namespace attend::test
