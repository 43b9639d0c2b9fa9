// Options that are plain values, as attributes of a call of XLA: one list, by which they are written while JAX traces a call and
// read where XLA runs it.
#pragma once

#include <cstdint>
#include <string_view>

#include "attend/options.hpp"

namespace attend::python::jax {

/// Words of what the library has no names for.
constexpr std::string_view name_of(anchor word) noexcept { return word == anchor::upper_left ? "upper_left" : "lower_right"; }
constexpr std::string_view name_of(border word) noexcept { return word == border::clip ? "clip" : "shift"; }
constexpr std::string_view name_of(layout word) noexcept { return word == layout::bhld ? "bhld" : "blhd"; }

/// Words are those of the values from 0 to this one.
template <class Word>
inline constexpr Word last_of{};
template <>
inline constexpr anchor last_of<anchor> = anchor::lower_right;
template <>
inline constexpr border last_of<border> = border::shift;
template <>
inline constexpr layout last_of<layout> = layout::blhd;
template <>
inline constexpr compatibility_kind last_of<compatibility_kind> = compatibility_kind::none;
template <>
inline constexpr normalizer last_of<normalizer> = normalizer::abs;

/// Calls `value(name, option)` for every one of them. What was given as an array is no value: it comes as an operand.
template <class Value>
void each_value(Value&& value, options& how) {
  value("causal", how.causal);
  value("window_left", how.window.left);
  value("window_right", how.window.right);
  value("query_offset", how.query_offset);
  value("prefix", how.prefix);
  value("key_lengths", how.key_lengths);
  value("grid", how.grid);
  value("neighborhood", how.neighborhood.kernel);
  if (how.neighborhood) value("dilation", how.neighborhood.dilation);
  if (how.neighborhood) value("border", how.neighborhood.border);
  value("scale", how.scale);
  value("softcap", how.softcap);
  value("alibi", how.alibi);
  value("compatibility", how.compatibility.kind);
  if (how.compatibility.kind == compatibility_kind::gaussian) value("sigma", how.compatibility.sigma);
  value("normalizer", how.normalizer);
  value("dropout_p", how.dropout.p);
  value("layout", how.layout);
  value("reproducible", how.reproducible);
  value("threads", how.threads);
}

}  // namespace attend::python::jax
