#include "text.hpp"

#include <cmath>

namespace attend::cli {

void refuse(const std::string& argument, const std::string& expected, const std::string& received) {
  throw usage_error(argument + ": expected " + expected + ", got " + received);
}

std::string in_quotes(const std::string& text) { return std::string("'").append(text).append("'"); }

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(',', begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

std::optional<std::vector<std::int64_t>> parse_integers(const std::string& text) {
  std::vector<std::int64_t> values;
  for (const std::string& part : split(text)) {
    const auto value = parse_number<std::int64_t>(part);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

dtype parse_dtype(const std::string& text) {
  for (const dtype type : {dtype::f32, dtype::f64, dtype::f16, dtype::bf16}) {
    if (text == name_of(type)) return type;
  }
  refuse("--dtype", "float32, float64, float16 or bfloat16", in_quotes(text));
}

double parse_finite(const std::string& option, const std::string& text) {
  const auto value = parse_number<double>(text);
  if (!value || !std::isfinite(*value)) refuse(option, "a finite number", in_quotes(text));
  return *value;
}

grid_size parse_sizes(const std::string& option, const std::string& text, bool one) {
  const auto sizes = parse_integers(text);
  if (sizes && sizes->size() == 2) return {(*sizes)[0], (*sizes)[1]};
  if (sizes && sizes->size() == 1 && one) return sizes->front();
  refuse(option, one ? "a whole number N, or two R,C" : "two whole numbers R,C", in_quotes(text));
}

window parse_window(const std::string& text) {
  const std::string expected = "two sides L,R, each a whole number or none";
  const std::vector<std::string> sides = split(text);
  if (sides.size() != 2) refuse("--window", expected, in_quotes(text));
  const auto side = [&](const std::string& word) -> std::optional<std::int64_t> {
    if (word == "none") return std::nullopt;
    const auto value = parse_number<std::int64_t>(word);
    if (!value) refuse("--window", expected, in_quotes(text));
    return value;
  };
  return {side(sides[0]), side(sides[1])};
}

normalizer parse_normalizer(const std::string& text) {
  for (const normalizer kind :
       {normalizer::softmax, normalizer::mean, normalizer::sum, normalizer::sigmoid, normalizer::relu2, normalizer::abs}) {
    if (text == name_of(kind)) return kind;
  }
  refuse("--normalizer", "softmax, mean, sum, sigmoid, relu2 or abs", in_quotes(text));
}

layout parse_layout(const std::optional<std::string>& text) {
  if (!text || *text == "bhld") return layout::bhld;
  if (*text != "blhd") refuse("--layout", "bhld or blhd", in_quotes(*text));
  return layout::blhd;
}

neighborhood parse_neighborhood(const option_arguments& from) {
  neighborhood near;
  if (!from.neighborhood) {
    if (from.dilation) refuse("--dilation", "--neighborhood beside it", "none");
    if (from.border) refuse("--border", "--neighborhood beside it", "none");
    return near;
  }
  near.kernel = parse_sizes("--neighborhood", *from.neighborhood, true);
  if (from.dilation) near.dilation = parse_sizes("--dilation", *from.dilation, true);
  if (from.border == "shift") {
    near.border = border::shift;
  } else if (from.border && *from.border != "clip") {
    refuse("--border", "clip or shift", in_quotes(*from.border));
  }
  return near;
}

score_stage parse_stage(const std::string& text) {
  if (text == "scaled") return score_stage::scaled;
  if (text == "capped") return score_stage::capped;
  if (text == "biased") return score_stage::biased;
  refuse("--scores", "scaled, capped or biased", in_quotes(text));
}

}  // namespace attend::cli
