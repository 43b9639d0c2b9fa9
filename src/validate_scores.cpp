// The part of validate() that says what happens to a score and to a weight: score functions, sinks, dropout.
#include <cmath>
#include <random>
#include <string>

#include "checks.hpp"

namespace attend::detail {
namespace {

/// One number per query head.
operand place_heads(const char* name, const array_view& x, const problem& p) {
  check_added_type(name, x, p);
  if (x.shape != extents{p.heads})
    refuse(name, "one number per query head, shape " + extents{p.heads}.to_string(), x.shape.to_string());
  check_memory(name, x);
  operand o;
  o.data = const_cast<void*>(x.data);
  o.type = x.type;
  o.head = x.strides[0];
  return o;
}

score_function soft_cap_of(const char* name, double cap) {
  if (!(cap > 0) || !std::isfinite(cap)) refuse(name, "a finite number above 0", text_of(cap));
  return {.what = score_function::kind::soft_cap, .cap = cap, .numbers = {}};
}

score_function bias_of(const char* name, const array_view& numbers, const problem& p) {
  check_added_type(name, numbers, p);
  return {.what = score_function::kind::bias, .cap = 0, .numbers = broadcast(name, numbers, p)};
}

score_function alibi_of(const char* name, const alibi_slopes& slopes, const problem& p) {
  return {.what = score_function::kind::alibi,
          .cap = 0,
          .numbers = slopes.given() ? place_heads(name, slopes.given(), p) : operand{}};
}

}  // namespace

void check_scores(problem& p, const options& how) {
  const auto add = [&p](const score_function& f) { p.score[p.score_count++] = f; };
  bool sloped = false;
  for (const score_step& step : how.score) {
    switch (step.what) {
      case score_step::kind::soft_cap: add(soft_cap_of("score", step.cap)); break;
      case score_step::kind::bias:
        if (p.query_starts) refuse("score", "no bias beside packed sequences", "one");
        add(bias_of("score", step.numbers, p));
        break;
      case score_step::kind::alibi:
        if (!step.slopes || sloped) refuse("score", "slopes of ALiBi, at most once", sloped ? "twice" : "none");
        sloped = true;
        add(alibi_of("score", step.slopes, p));
        break;
      default: refuse("score", "soft_cap, bias or alibi", std::to_string(static_cast<int>(step.what)));
    }
  }
  if (how.softcap) add(soft_cap_of("softcap", *how.softcap));
  p.capped_count = p.score_count;
  if (how.bias) add(bias_of("bias", how.bias, p));
  if (p.relative) add({.what = score_function::kind::relative, .cap = 0, .numbers = {}});
  if (how.alibi) {
    if (sloped) refuse("alibi", "slopes in one place", "slopes in score, too");
    add(alibi_of("alibi", how.alibi, p));
  }
  if (how.sinks) {
    if (p.normalizer != normalizer::softmax)
      refuse("sinks", "normalizer softmax, whose denominator they join", std::string(name_of(p.normalizer)));
    p.sinks = place_heads("sinks", how.sinks, p);
  }
  p.dropout_p = how.dropout.p;
  if (!(p.dropout_p >= 0 && p.dropout_p <= 1)) refuse("dropout_p", "a probability from 0 to 1", text_of(p.dropout_p));
  if (p.dropout_p > 0) {
    p.seed = how.dropout.seed ? *how.dropout.seed : std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();
  }
}

}  // namespace attend::detail
