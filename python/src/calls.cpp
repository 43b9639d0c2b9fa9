#include "calls.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "python_objects.hpp"
#include "results.hpp"

namespace attend::python {
namespace {

using steady = std::chrono::steady_clock;

/// Lets Python see to signals while a call runs without the interpreter's lock.
///
/// Taking the lock back costs up to one switching interval (5 ms) where other Python threads are busy, so it is done far
/// less often than the library asks.
class signal_watch {
 public:
  interrupt hook() noexcept { return {&signal_watch::requested, this}; }

 private:
  static constexpr std::chrono::milliseconds period{50};

  static bool requested(void* context) {
    auto& self = *static_cast<signal_watch*>(context);
    const steady::time_point now = steady::now();
    if (!self.next_) self.next_ = now + period;  // a short call never asks, and never looks at the clock
    if (now < *self.next_) return false;
    nb::gil_scoped_acquire locked;
    const bool raised = PyErr_CheckSignals() != 0;  // leaves what the handler raised as this thread's error
    self.next_ = steady::now() + period;
    return raised;
  }

  std::optional<steady::time_point> next_;
};

/// Computes without the interpreter's lock.
void run(const array_view& q, const array_view& k, const array_view& v, const outputs& results, options& how) {
  signal_watch watch;
  how.interrupt = watch.hook();
  try {
    nb::gil_scoped_release unlocked;
    attend::attention(q, k, v, results, how);
  } catch (const interrupted&) {
    if (PyErr_Occurred()) throw nb::python_error();  // before anything is destroyed that could call into Python
    throw;
  }
}

/// Shapes of lse and weights from that of out: the query heads and queries of both layouts, then the keys.
extents row_shape(const extents& out, layout order) {
  extents rows;
  for (int axis = 0; axis + 1 < out.rank(); ++axis) rows.push_back(out[axis]);
  const int last = rows.rank() - 1;
  if (order == layout::blhd && last >= 1) std::swap(rows[last - 1], rows[last]);
  return rows;
}

std::int64_t key_count(const extents& k, layout order) { return k[k.rank() - (order == layout::blhd && k.rank() > 2 ? 3 : 2)]; }

// Lives as long as the process.
nb::object* result_types = nullptr;

nb::object bundle(nb::object out, nb::object lse, nb::object weights) {
  if (!lse.is_valid() && !weights.is_valid()) return out;
  if (!weights.is_valid()) return result_types->attr("OutLse")(out, lse);
  if (!lse.is_valid()) return result_types->attr("OutWeights")(out, weights);
  return result_types->attr("OutLseWeights")(out, lse, weights);
}

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

void check_dropout(nb::handle dropout_p) {
  const double p = read_number(dropout_p, "dropout_p").value_or(0.0);
  if (dropout_p.is_none() || !(p >= 0.0 && p <= 1.0)) {
    throw argument_error("dropout_p", "a probability in [0, 1]", short_repr(dropout_p));
  }
  if (p > 0.0) {
    PyErr_Format(PyExc_NotImplementedError, "dropout_p: expected 0, got %R: this version has no dropout", dropout_p.ptr());
    throw nb::python_error();
  }
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

dtype dtype_named(std::string_view name) {
  for (dtype type : {dtype::f32, dtype::f64}) {
    if (name == name_of(type)) return type;
  }
  throw argument_error("dtype", "float32 or float64", std::string(name), argument_error::kind::type);
}

nb::str as_str(std::string_view text) { return nb::str(text.data(), text.size()); }

nb::list names_of(const std::vector<isa>& sets) {
  nb::list names;
  for (isa set : sets) names.append(as_str(name_of(set)));
  return names;
}

}  // namespace

void prepare_calls() {
  if (!result_types) result_types = new nb::object(nb::module_::import_("attend._results"));
}

nb::object attention(nb::handle q, nb::handle k, nb::handle v, const nb::tuple& packed, const nb::tuple& results) {
  borrowed_array query(q, "q"), key(k, "k"), value(v, "v");
  for (const borrowed_array* array : {&query, &key, &value}) array->require_floating();
  call_options call{option_arguments(packed)};
  const bool with_lse = read_flag(results[1], "return_lse"), with_weights = read_flag(results[2], "return_weights");
  if (with_lse && call.how.normalizer != normalizer::softmax) {
    throw argument_error("return_lse", "False without softmax, the only normalizer with an LSE",
                         "True beside '" + std::string(name_of(call.how.normalizer)) + "'");
  }

  const extents shape = output_shape(query.view(), key.view(), value.view(), call.how);
  const dtype type = query.view().type;
  const result_factory factory(q);
  outputs to;
  nb::object out = nb::borrow(results[0]), lse, weights;
  std::optional<borrowed_array> given;
  if (out.is_none()) {
    auto made = factory.make(shape, type);
    out = std::move(made.array);
    to.out = made.view;
  } else {
    given.emplace(out, "out");
    given->require_floating();
    given->require_writable();
    to.out = given->mutable_view();
  }
  if (with_lse) {
    auto made = factory.make(row_shape(shape, call.how.layout), type);
    lse = std::move(made.array);
    to.lse = made.view;
  }
  if (with_weights) {
    extents full = row_shape(shape, call.how.layout);
    full.push_back(key_count(key.shape(), call.how.layout));
    auto made = factory.make(full, type);
    weights = std::move(made.array);
    to.weights = made.view;
  }
  run(query.view(), key.view(), value.view(), to, call.how);
  if (!given) out = factory.finish(std::move(out));
  if (with_lse) lse = factory.finish(std::move(lse));
  if (with_weights) weights = factory.finish(std::move(weights));
  return bundle(std::move(out), std::move(lse), std::move(weights));
}

nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                                        nb::handle dropout_p, nb::handle is_causal, nb::handle scale, nb::handle enable_gqa) {
  borrowed_array q(query, "query"), k(key, "key"), v(value, "value");
  for (const borrowed_array* array : {&q, &k, &v}) array->require_floating();
  call_options call;
  if (!attn_mask.is_none()) call.set_mask_or_bias(attn_mask, "attn_mask");
  check_dropout(dropout_p);
  call.how.causal = read_flag(is_causal, "is_causal");
  if (call.how.causal && !attn_mask.is_none()) {
    throw argument_error("is_causal", "False beside attn_mask (attend.attention takes causal and mask together)", "True");
  }
  if (call.how.causal) call.how.query_offset = upper_left;
  call.how.scale = read_number(scale, "scale");
  check_heads(q.shape(), k.shape(), read_flag(enable_gqa, "enable_gqa"));
  try {
    const extents shape = output_shape(q.view(), k.view(), v.view(), call.how);
    const result_factory factory(query);
    auto [out, view] = factory.make(shape, q.view().type);
    run(q.view(), k.view(), v.view(), {.out = view}, call.how);
    return factory.finish(std::move(out));
  } catch (const argument_error& error) {
    const std::string message = in_words_of_pytorch(error.what());
    if (error.fault() == argument_error::kind::type) throw nb::type_error(message.c_str());
    throw nb::value_error(message.c_str());
  }
}

nb::dict plan(nb::handle q_shape, nb::handle k_shape, nb::handle v_shape, const char* dtype, const nb::tuple& packed) {
  problem_shape shapes{.type = dtype_named(dtype),
                       .q = read_shape(q_shape, "q_shape"),
                       .k = read_shape(k_shape, "k_shape"),
                       .v = read_shape(v_shape, "v_shape")};
  call_options call{option_arguments(packed)};
  const attend::plan made = make_plan(shapes, call.how);
  const plan_facts facts = made.facts();
  nb::dict result;
  result["operation"] = nb::str(facts.operation.c_str());
  result["kernel"] = nb::str(facts.kernel.c_str());
  result["reason"] = nb::str(facts.reason.c_str());
  result["isa"] = as_str(name_of(facts.set));
  result["compatibility"] = as_str(name_of(facts.compatibility));
  result["normalizer"] = as_str(name_of(facts.normalizer));
  result["dtype"] = as_str(name_of(facts.type));
  result["batch"] = facts.batch;
  result["heads"] = facts.heads;
  result["kv_heads"] = facts.kv_heads;
  result["queries"] = facts.queries;
  result["keys"] = facts.keys;
  result["width"] = facts.width;
  result["value_width"] = facts.value_width;
  result["lanes"] = facts.lanes;
  result["tile_keys"] = facts.tile_keys;
  result["chunk_keys"] = facts.chunk_keys;
  result["lane_blocks"] = facts.lane_blocks;
  result["work_items"] = facts.work_items;
  result["split_keys"] = facts.split_keys;
  result["tiles_skipped"] = facts.tiles_skipped;
  result["tiles_full"] = facts.tiles_full;
  result["tiles_partial"] = facts.tiles_partial;
  result["scratch_bytes_per_thread"] = facts.scratch_bytes_per_thread;
  result["shared_scratch_bytes"] = facts.shared_scratch_bytes;
  result["flops"] = facts.flops;
  result["bytes"] = facts.bytes;
  result["text"] = nb::str(describe(facts).c_str());
  return result;
}

nb::dict info() {
  nb::dict sets;
  sets["detected"] = names_of(detected_isas());
  sets["compiled"] = names_of(compiled_isas());
  sets["available"] = names_of(available_isas());
  nb::dict result;
  result["version"] = as_str(version());
  result["instruction_sets"] = sets;
  result["threads"] = num_threads();
  return result;
}

double positive(nb::handle value, const char* name) { return read_positive(value, name); }

void require_array(nb::handle value, const char* name) { borrowed_array::require_array(value, name); }

void set_thread_count(nb::handle threads) { set_num_threads(read_thread_count(threads)); }

}  // namespace attend::python
