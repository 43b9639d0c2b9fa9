#include "call.hpp"

#include <algorithm>
#include <random>

#include "text.hpp"

namespace attend::cli {

namespace {

compatibility parse_compatibility(const std::string& text, inputs& tensors) {
  for (const compatibility& f : {compatibility::dot, compatibility::cosine, compatibility::l1, compatibility::none}) {
    if (text == name_of(f.kind)) return f;
  }
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon), of = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (kind == "gaussian" && !of.empty()) {
    const auto sigma = parse_number<double>(of);
    if (!sigma) refuse("--compatibility", "gaussian:SIGMA with a number", in_quotes(text));
    return gaussian(*sigma);
  }
  if (kind == "additive" && !of.empty()) return additive(tensors.find("additive", "--compatibility additive", of).view());
  refuse("--compatibility", "dot, cosine, l1, none, gaussian:SIGMA or additive:NAME", in_quotes(text));
}

}  // namespace

tensor<std::int64_t>& call_options::keep(const std::vector<std::int64_t>& values) {
  tensor<std::int64_t>& list = lists_.emplace_back(extents{static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), list.begin());
  return list;
}

template <class Integers>
Integers call_options::integers(const std::string& argument, const std::string& option, const std::string& text,
                                inputs& tensors) {
  if (const auto values = parse_integers(text)) {
    if (values->size() == 1) return Integers(values->front());
    return Integers(keep(*values));
  }
  if (!tensors.may_hold(text)) {
    const char* words = argument == "query_offset" ? "upper_left, lower_right, " : "";
    refuse(option, std::string(words) + "a whole number, one per batch as a,b,.., or an int64 tensor", in_quotes(text));
  }
  const array_view view = tensors.find(argument, option, text).view();
  if (view.type != dtype::i64)
    refuse(option, "an int64 or int32 tensor", std::string(name_of(view.type)) + tensors.origin(argument));
  return Integers(tensor_view<const std::int64_t>(static_cast<const std::int64_t*>(view.data), view.shape, view.strides));
}

array_view call_options::segments(const std::string& argument, const std::string& option, const std::string& text,
                                  inputs& tensors) {
  if (const auto ids = parse_integers(text)) return keep(*ids);
  if (!tensors.may_hold(text)) refuse(option, "one whole number per row as a,b,.., or an int64 tensor", in_quotes(text));
  return tensors.find(argument, option, text).view();
}

score_step call_options::parse_step(const std::string& text, inputs& tensors) {
  if (text == "alibi") return alibi();
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon), of = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (kind == "softcap" && !of.empty()) {
    const auto cap = parse_number<double>(of);
    if (!cap) refuse("--score", "softcap:C with a number", in_quotes(text));
    return soft_cap(*cap);
  }
  if (kind == "bias" && !of.empty()) return bias(tensors.find("score", "--score bias", of).view());
  if (kind == "alibi" && !of.empty()) return alibi(tensors.find("score", "--score alibi", of).view());
  refuse("--score", "steps between commas, each softcap:C, bias:NAME, alibi or alibi:NAME", in_quotes(text));
}

call_options::call_options(const option_arguments& from, inputs& tensors) {
  how_.reproducible = from.reproducible;
  how_.layout = parse_layout(from.layout);
  set_regions(from, tensors);
  set_scores(from, tensors);
  set_dropout(from);
  if (from.threads) {
    const auto threads = parse_number<int>(*from.threads);
    if (!threads || *threads < 1) refuse("--threads", "a whole number from 1", in_quotes(*from.threads));
    how_.threads = *threads;
  }
}

/// Which keys a query sees.
void call_options::set_regions(const option_arguments& from, inputs& tensors) {
  how_.causal = from.causal;
  if (from.window) how_.window = parse_window(*from.window);
  if (from.query_offset == "upper_left") {
    how_.query_offset = upper_left;
  } else if (from.query_offset == "lower_right") {
    how_.query_offset = lower_right;
  } else if (from.query_offset) {
    how_.query_offset = integers<query_position>("query_offset", "--query-offset", *from.query_offset, tensors);
  }
  if (from.prefix) how_.prefix = integers<batch_integers>("prefix", "--prefix", *from.prefix, tensors);
  if (from.query_segments) how_.query_segments = segments("query_segments", "--query-segments", *from.query_segments, tensors);
  if (from.key_segments) how_.key_segments = segments("key_segments", "--key-segments", *from.key_segments, tensors);
  if (from.key_lengths) {
    how_.key_lengths = integers<batch_integers>("key_lengths", "--key-lengths", *from.key_lengths, tensors);
  }
  if (from.grid) how_.grid = parse_sizes("--grid", *from.grid, false);
  how_.neighborhood = parse_neighborhood(from);
  if (from.mask) how_.mask = tensors.find("mask", "--mask", *from.mask).view();
}

/// What becomes of a score, and weights of scores.
void call_options::set_scores(const option_arguments& from, inputs& tensors) {
  if (from.bias) how_.bias = tensors.find("bias", "--bias", *from.bias).view();
  if (from.relative) how_.relative = tensors.find("relative", "--relative", *from.relative).view();
  if (from.scale) how_.scale = parse_finite("--scale", *from.scale);
  if (from.softcap) how_.softcap = parse_finite("--softcap", *from.softcap);
  if (from.alibi == slopes_of_paper) {
    how_.alibi = true;
  } else if (from.alibi) {
    how_.alibi = tensors.find("alibi", "--alibi", *from.alibi).view();
  }
  if (from.sinks) how_.sinks = tensors.find("sinks", "--sinks", *from.sinks).view();
  if (from.score) {
    const std::vector<std::string> steps = split(*from.score);
    if (steps.size() > static_cast<std::size_t>(score_list::max_size)) {
      refuse("--score", "at most " + std::to_string(score_list::max_size) + " steps", std::to_string(steps.size()));
    }
    for (const std::string& step : steps) how_.score.push_back(parse_step(step, tensors));
  }
  if (from.compatibility) how_.compatibility = parse_compatibility(*from.compatibility, tensors);
  if (from.normalizer) how_.normalizer = parse_normalizer(*from.normalizer);
}

void call_options::set_dropout(const option_arguments& from) {
  if (!from.dropout) {
    if (from.seed) refuse("--seed", "--dropout beside it", "none");
    return;
  }
  how_.dropout.p = parse_finite("--dropout", *from.dropout);
  if (from.seed) {
    how_.dropout.seed = parse_number<std::uint64_t>(*from.seed);
    if (!how_.dropout.seed) refuse("--seed", "a whole number from 0 to 2^64 - 1", in_quotes(*from.seed));
  } else {
    // Drawn here and shown with the result: several calls of one command, and whoever repeats it, need the same one.
    std::random_device draw;
    how_.dropout.seed = std::uint64_t{draw()} << 32 | draw();
  }
}

operands::operands(inputs& tensors, const std::optional<std::string>& varlen, const option_arguments& options)
    : q(tensors.load(0).view()), k(tensors.load(1).view()), v(tensors.load(2).view()) {
  if (!varlen) return;
  const std::vector<std::string> names = split(*varlen);
  if (names.size() != 2) {
    refuse("--varlen", "two tensors CU_Q,CU_K: the boundaries of the sequences in q, and in k and v", in_quotes(*varlen));
  }
  if (options.layout) refuse("--layout", "none beside --varlen, whose tensors are (total, heads, width)", *options.layout);
  query_starts = tensors.find("cu_seqlens_q", "--varlen", names[0]).view();
  key_starts = tensors.find("cu_seqlens_k", "--varlen", names[1]).view();
}

extents operands::output_shape(const options& how) const {
  return packed() ? output_shape_varlen(q, k, v, query_starts, key_starts, how) : attend::output_shape(q, k, v, how);
}

void operands::compute(const outputs& results, const options& how) const {
  packed() ? attention_varlen(q, k, v, query_starts, key_starts, results, how) : attention(q, k, v, results, how);
}

reference::result operands::truth(const options& how) const {
  return packed() ? reference::attention_varlen(q, k, v, query_starts, key_starts, how) : reference::attention(q, k, v, how);
}

tensor<double> operands::error_bound(const options& how, const reference::result& truth) const {
  return packed() ? reference::error_bound_varlen(q, k, v, query_starts, key_starts, how, truth)
                  : reference::error_bound(q, k, v, how, truth);
}

}  // namespace attend::cli
