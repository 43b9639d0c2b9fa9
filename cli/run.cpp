// attend run: attention over tensors of files, into a file or a summary.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>

#include "call.hpp"
#include "commands.hpp"
#include "progress.hpp"
#include "signals.hpp"

namespace attend::cli {

namespace {

/// What is computed, in the order in which it is written and shown.
template <class T>
struct computed {
  tensor<T> out, lse, weights;
};

/// Shape of `lse`: (..., H, L) for out (..., H, L, Ev) or (..., L, H, Ev).
extents rows_of(const extents& out, layout order) {
  extents shape;
  for (int axis = 0; axis < out.rank() - 1; ++axis) shape.push_back(out[axis]);
  const int last = shape.rank() - 1;
  if (order == layout::blhd && shape.rank() >= 2) std::swap(shape[last - 1], shape[last]);
  return shape;
}

std::int64_t keys_of(const extents& k, layout order) { return k[k.rank() - (order == layout::blhd && k.rank() >= 3 ? 3 : 2)]; }

template <class T>
void summarise(const char* name, const tensor<T>& x) {
  double least = std::numeric_limits<double>::infinity(), most = -least, sum = 0;
  std::int64_t nan = 0;
  for (const T value : x) {
    const auto wide = static_cast<double>(value);
    if (std::isnan(wide)) {
      ++nan;
      continue;
    }
    least = std::min(least, wide);
    most = std::max(most, wide);
    sum += wide;
  }
  const std::int64_t numbers = x.size() - nan;
  std::cout << name << ": " << name_of(dtype_of<T>) << ' ' << x.shape().to_string();
  if (numbers > 0) {
    std::cout << ", min " << number(least, 6) << ", max " << number(most, 6) << ", mean "
              << number(sum / static_cast<double>(numbers), 6);
  }
  if (nan > 0) std::cout << ", NaN " << nan;
  std::cout << '\n';
}

template <class T>
void compute(const run_arguments& given, const array_view& q, const array_view& k, const array_view& v, const extents& out,
             options& how) {
  computed<T> y;
  outputs results;
  y.out = tensor<T>(out);
  results.out = y.out;
  extents rows = rows_of(out, how.layout);
  if (given.lse) results.lse = y.lse = tensor<T>(rows);
  if (given.weights) {
    rows.push_back(keys_of(k.shape, how.layout));
    results.weights = y.weights = tensor<T>(rows);
  }
  double seconds = 0;
  {
    progress bar("attend run");
    how.executor = bar.if_terminal();
    const auto start = std::chrono::steady_clock::now();
    attention(q, k, v, results, how);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (given.output) {
    std::vector<io::named_array> tensors{{"out", y.out}};
    if (given.lse) tensors.push_back({"lse", y.lse});
    if (given.weights) tensors.push_back({"weights", y.weights});
    const signals_wait wait;
    io::save(*given.output, tensors);
    return;
  }
  summarise("out", y.out);
  if (given.lse) summarise("lse", y.lse);
  if (given.weights) summarise("weights", y.weights);
  std::cout << "time: " << number(seconds * 1e3) << " ms for one call\n";
}

}  // namespace

int run(const run_arguments& given) {
  if (given.output) {
    io::check_destination(*given.output);
    if (io::format_of(*given.output) == io::format::npy && (given.lse || given.weights)) {
      throw usage_error("--output: expected .npz or .safetensors, which hold lse and weights beside out, got '" +
                        *given.output + "'");
    }
  }
  inputs tensors(given.input);
  call_options call(given.options, tensors);
  const array_view q = tensors.load(0).view(), k = tensors.load(1).view(), v = tensors.load(2).view();
  with_origins(tensors, [&] {
    const extents out = output_shape(q, k, v, call.how());
    q.type == dtype::f64 ? compute<double>(given, q, k, v, out, call.how()) : compute<float>(given, q, k, v, out, call.how());
  });
  return 0;
}

}  // namespace attend::cli
