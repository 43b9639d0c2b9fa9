// attend run: attention over tensors of files, into a file or a summary.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <utility>
#include <vector>

#include "call.hpp"
#include "commands.hpp"
#include "progress.hpp"
#include "signals.hpp"
#include "text.hpp"

namespace attend::cli {

namespace {

/// What is computed.
template <class T>
struct computed {
  tensor<T> out;
  tensor<accumulator<T>> lse;
  tensor<T> weights, scores;
};

/// Calls `use` with the name and tensor of each result that is asked for, in the order in which they are written and shown.
template <class T, class Use>
void for_each(const run_arguments& given, const computed<T>& y, const Use& use) {
  use("out", y.out);
  if (given.lse) use("lse", y.lse);
  if (given.weights) use("weights", y.weights);
  if (given.scores) use("scores", y.scores);
}

/// Shape of `lse`: (..., H, L) for out (..., H, L, Ev) or (..., L, H, Ev), and (total, H) for packed sequences.
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

/// What is asked for beside `out`.
template <class T>
outputs allocate(const run_arguments& given, const operands& of, const extents& out, layout order, computed<T>& y) {
  outputs results;
  results.out = y.out = tensor<T>(out);
  extents rows = rows_of(out, order);
  if (given.lse) results.lse = y.lse = tensor<accumulator<T>>(rows);
  if (of.packed()) return results;
  rows.push_back(keys_of(of.k.shape, order));
  if (given.weights) results.weights = y.weights = tensor<T>(rows);
  if (given.scores) {
    results.scores = y.scores = tensor<T>(rows);
    results.stage = parse_stage(*given.scores);
  }
  return results;
}

template <class T>
void compute(const run_arguments& given, const operands& of, const extents& out, options& how) {
  computed<T> y;
  const outputs results = allocate(given, of, out, how.layout, y);
  double seconds = 0;
  {
    progress bar("attend run");
    how.executor = bar.if_terminal();
    const auto start = std::chrono::steady_clock::now();
    of.compute(results, how);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (given.output) {
    std::vector<io::named_array> tensors;
    for_each(given, y, [&](const char* name, const auto& x) { tensors.push_back({name, x}); });
    const signals_wait wait;
    io::save(*given.output, tensors);
    // What cannot be told from the file.
    if (how.dropout.seed && !given.options.seed) std::cout << "seed: " << *how.dropout.seed << '\n';
    return;
  }
  for_each(given, y, [](const char* name, const auto& x) { summarise(name, x); });
  if (how.dropout.seed) std::cout << "seed: " << *how.dropout.seed << '\n';
  std::cout << "time: " << number(seconds * 1e3) << " ms for one call\n";
}

/// What can be seen before a file is opened.
void check_arguments_of(const run_arguments& given) {
  if (given.scores) parse_stage(*given.scores);
  if (given.varlen && (given.weights || given.scores)) {
    refuse(given.weights ? "--weights" : "--scores", "none beside --varlen, whose sequences have no common shape", "both");
  }
  if (!given.output) return;
  io::check_destination(*given.output);
  if (io::format_of(*given.output) == io::format::npy && (given.lse || given.weights || given.scores)) {
    refuse("--output", ".npz or .safetensors, which hold lse, weights and scores beside out", in_quotes(*given.output));
  }
}

}  // namespace

int run(const run_arguments& given) {
  check_arguments_of(given);
  inputs tensors(given.input);
  call_options call(given.options, tensors);
  const operands of(tensors, given.varlen, given.options);
  with_origins(tensors, [&] {
    const extents out = of.output_shape(call.how());
    with_element_type(of.q.type, [&]<class T>(const tensor<T>&) { compute<T>(given, of, out, call.how()); });
  });
  return 0;
}

}  // namespace attend::cli
