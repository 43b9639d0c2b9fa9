#include <cctype>
#include <string>
#include <utility>

#include "arguments.hpp"
#include "calls.hpp"
#include "python_objects.hpp"
#include "readers.hpp"
#include "results.hpp"
#include "run.hpp"

namespace attend::python {
namespace {

/// A message in the words of another signature: each of our names, standing alone, becomes the caller's.
std::string in_words_of_pytorch(const std::string& message) {
  static constexpr std::pair<std::string_view, std::string_view> words[] = {
      {"q", "query"}, {"k", "key"}, {"v", "value"}, {"mask", "attn_mask"}, {"bias", "attn_mask"}};
  std::string result;
  for (std::size_t begin = 0; begin < message.size();) {
    const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    std::size_t end = begin;
    while (end < message.size() && in_word(message[end])) ++end;
    if (end == begin) {
      result += message[begin++];
      continue;
    }
    std::string_view word = std::string_view(message).substr(begin, end - begin);
    for (const auto& [ours, theirs] : words) {
      if (word == ours) {
        word = theirs;
        break;
      }
    }
    result += word;
    begin = end;
  }
  return result;
}

/// A seed from torch's generator, which torch.manual_seed sets, where `query` is torch's; otherwise every call draws its own.
void set_dropout(dropout& drop, nb::handle dropout_p, nb::handle query) {
  drop.p = read_probability(dropout_p, "dropout_p");
  if (drop.p == 0 || !is_torch(query)) return;
  const nb::module_ torch = nb::module_::import_("torch");
  const nb::object drawn =
      torch.attr("empty")(nb::make_tuple(), nb::arg("dtype") = torch.attr("int64"), nb::arg("device") = "cpu");
  drop.seed = read_seed(nb::object(nb::object(drawn.attr("random_")()).attr("item")()));
}

void check_heads(const extents& query, const extents& key, bool enable_gqa) {
  if (enable_gqa || query.rank() < 3 || key.rank() < 3) return;
  const std::int64_t query_heads = query[query.rank() - 3], key_heads = key[key.rank() - 3];
  if (query_heads == key_heads) return;
  throw argument_error(
      "enable_gqa",
      "True where query and key differ in heads (" + std::to_string(query_heads) + " and " + std::to_string(key_heads) + ")",
      "False");
}

}  // namespace

nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                                        nb::handle dropout_p, nb::handle is_causal, nb::handle scale, nb::handle enable_gqa) {
  borrowed_array q(query, "query"), k(key, "key"), v(value, "value");
  for (const borrowed_array* array : {&q, &k, &v}) array->require_floating();
  call_options call;
  if (!attn_mask.is_none()) call.set_mask_or_bias(attn_mask, "attn_mask");
  set_dropout(call.how.dropout, dropout_p, query);
  call.how.causal = read_flag(is_causal, "is_causal");
  if (call.how.causal && !attn_mask.is_none()) {
    throw argument_error("is_causal", "False beside attn_mask (attend.attention takes causal and mask together)", "True");
  }
  if (call.how.causal) call.how.query_offset = upper_left;
  call.how.scale = read_number(scale, "scale");
  check_heads(q.shape(), k.shape(), read_flag(enable_gqa, "enable_gqa"));
  try {
    const extents shape = output_shape(q.view(), k.view(), v.view(), call.how);
    const result_factory factory(query, q.view().type);
    auto made = factory.make(shape);
    const mutable_array_view view = made.view;
    run(call.how, [&](const options& how) { attend::attention(q.view(), k.view(), v.view(), outputs{.out = view}, how); });
    return factory.finish(std::move(made.array));
  } catch (const argument_error& error) {
    const std::string message = in_words_of_pytorch(error.what());
    if (error.fault() == argument_error::kind::type) throw nb::type_error(message.c_str());
    throw nb::value_error(message.c_str());
  }
}

}  // namespace attend::python
