// The arrays that results are returned in.
#pragma once

#include <optional>

#include "arrays.hpp"

namespace attend::python {

/// Makes results of the kind that `like` is: torch tensors, NumPy arrays, or arrays of the producer's own library.
class result_factory {
 public:
  /// `type`: the dtype of `like`.
  result_factory(nb::handle like, dtype type);

  /// An array and the memory to write it through.
  struct fresh {
    nb::object array;
    mutable_array_view view;
  };
  fresh make(const extents& shape, dtype type) const;
  fresh make(const extents& shape) const { return make(shape, type_); }
  /// What to hand to the caller once the array is written.
  nb::object finish(nb::object array) const;

 private:
  enum class kind : std::uint8_t { numpy, torch, foreign };
  nb::handle like_;
  dtype type_;
  kind kind_;
};

/// What a caller asked for.
struct wanted_results {
  /// out, return_lse, return_weights, return_scores
  explicit wanted_results(PyObject* const* values);

  nb::handle out;
  bool lse = false, weights = false;
  std::optional<score_stage> scores;
};

/// Refuses an LSE where the normalizer has none.
void check_lse(bool wanted, const options& how);

/// One of "scaled", "capped" and "biased".
score_stage read_stage(nb::handle value, std::string_view name);

/// The arrays of a call: the caller's or new ones of the kind that `like` is.
class call_results {
 public:
  /// `order` is the layout of `out`; lse and weights are (..., H, L) and (..., H, L, S) in either.
  call_results(nb::handle like, const wanted_results& wanted, dtype type, const extents& out, const extents& k, layout order);

  const outputs& to() const noexcept { return to_; }
  /// Out alone, or a named tuple of what was asked for.
  nb::object finish();

 private:
  result_factory factory_;
  outputs to_;
  std::optional<borrowed_array> given_;
  nb::object out_, lse_, weights_, scores_;
};

/// (out, lse) as a named tuple.
nb::object out_and_lse(nb::object out, nb::object lse);

/// Looks up the named tuples; called once, while the module is made.
void prepare_results();

}  // namespace attend::python
