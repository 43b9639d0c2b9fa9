#include "c_convert.hpp"

#include <cstdint>

#include "checks.hpp"

namespace attend::detail {
namespace {

using std::to_string;

constexpr std::size_t largest_struct = 4096;

constexpr dtype dtypes[] = {dtype::none, dtype::boolean, dtype::i64, dtype::f32, dtype::f64, dtype::f16, dtype::bf16};
static_assert(ATTEND_BOOL == 1 && ATTEND_INT64 == 2 && ATTEND_FLOAT32 == 3 && ATTEND_FLOAT64 == 4 && ATTEND_FLOAT16 == 5 &&
              ATTEND_BFLOAT16 == 6);

// These enumerations are numbered alike, so that a checked number is converted by a cast.
constexpr int both(compatibility_kind kind) { return static_cast<int>(kind); }
static_assert(both(compatibility_kind::dot) == ATTEND_DOT && both(compatibility_kind::cosine) == ATTEND_COSINE &&
              both(compatibility_kind::gaussian) == ATTEND_GAUSSIAN && both(compatibility_kind::l1) == ATTEND_L1 &&
              both(compatibility_kind::additive) == ATTEND_ADDITIVE && both(compatibility_kind::none) == ATTEND_NONE);
constexpr int both(normalizer kind) { return static_cast<int>(kind); }
static_assert(both(normalizer::softmax) == ATTEND_SOFTMAX && both(normalizer::mean) == ATTEND_MEAN &&
              both(normalizer::sum) == ATTEND_SUM && both(normalizer::sigmoid) == ATTEND_SIGMOID &&
              both(normalizer::relu2) == ATTEND_RELU2 && both(normalizer::abs) == ATTEND_ABS);
static_assert(static_cast<int>(layout::blhd) == ATTEND_BLHD && static_cast<int>(border::shift) == ATTEND_SHIFT);

extern "C" void run_item(void* work, std::int64_t item) { (*static_cast<const executor::body*>(work))(item); }

bool ask_interrupt(void* options) {
  const auto& given = *static_cast<const attend_options*>(options);
  return given.interrupt(given.interrupt_context) != 0;
}

grid_size read_grid(const std::int64_t* sizes) { return {sizes[0], sizes[1]}; }

score_step read_step(const attend_score* given) {
  if (!given) refuse("score", "a pointer to each element", "a null pointer");
  const attend_score step = read_struct("score", given);
  check_reserved(step.reserved);
  switch (step.kind) {
    case ATTEND_SOFT_CAP:
      if (step.numbers) refuse("score", "no array beside a soft cap", "one");
      return soft_cap(step.cap);
    case ATTEND_BIAS:
      if (step.cap != 0) refuse("score", "no cap beside a bias", text_of(step.cap));
      if (!step.numbers) refuse("score", "an array beside a bias", "none");
      return bias(read_array("score", step.numbers));
    case ATTEND_ALIBI:
      if (step.cap != 0) refuse("score", "no cap beside alibi", text_of(step.cap));
      return step.numbers ? alibi(array_view(read_array("score", step.numbers))) : alibi();
  }
  refuse("score", "a kind from 1 to 3", to_string(step.kind));
}

}  // namespace

void check_reserved(std::int32_t value) {
  if (value != 0) refuse("reserved", "0", to_string(value));
}

std::size_t read_size(const char* name, const void* given) {
  std::size_t size;
  std::memcpy(&size, given, sizeof size);
  if (size == 0 || size > largest_struct || size % 8 != 0)
    refuse(name, "a struct's size, a multiple of 8 from 8 to " + to_string(largest_struct), to_string(size));
  return size;
}

void read_struct(const char* name, const void* given, void* known, std::size_t bytes) {
  const std::size_t size = read_size(name, given);
  std::memcpy(known, given, std::min(size, bytes));
  const char* const all = static_cast<const char*>(given);
  for (std::size_t at = bytes; at < size; ++at) {
    if (all[at] != 0)
      refuse(name, "only zeros past the " + to_string(bytes) + " bytes that this version knows",
             "another value at byte " + to_string(at));
  }
}

int read_word(const char* name, std::int32_t value, int count) {
  if (value < 0 || value >= count) refuse(name, "a value from 0 to " + to_string(count - 1), to_string(value));
  return value;
}

bool read_truth(const char* name, std::int32_t value) { return read_word(name, value, 2) != 0; }

mutable_array_view read_array(const char* name, const attend_array* given) {
  if (!given) return {};
  const attend_array array = read_struct(name, given);
  const dtype type = read_dtype(name, array.dtype);
  if (array.rank < 0 || array.rank > max_rank) refuse(name, "rank 0 to 8", "rank " + to_string(array.rank));
  if (array.rank > 0 && !array.shape) refuse(name, "a shape", "a null pointer");
  extents shape, strides;
  for (int axis = 0; axis < array.rank; ++axis) {
    shape.push_back(array.shape[axis]);
    if (array.shape[axis] < 0) refuse(name, "sizes of at least 0", to_string(array.shape[axis]));
    if (array.strides) strides.push_back(array.strides[axis]);
  }
  if (!array.strides) {
    try {
      strides = contiguous_strides(shape);
    } catch (const argument_error&) {
      refuse(name, "fewer than 2^59 elements", shape.to_string());
    }
  }
  return {array.data, type, shape, strides};
}

batch_integers read_integers(const char* name, const attend_integers& given) {
  if (given.value && given.values) refuse(name, "one integer or an array of them", "both");
  if (given.value) return *given.value;
  if (!given.values) return {};
  const array_view x = read_array(name, given.values);
  if (x.type != dtype::i64) refuse_type(name, "int64", x.type);
  if (reinterpret_cast<std::uintptr_t>(x.data) % alignof(std::int64_t) != 0) refuse(name, "memory aligned to 8 bytes", "other");
  return tensor_view<const std::int64_t>(static_cast<const std::int64_t*>(x.data), x.shape, x.strides);
}

token_positions read_positions(const attend_integers* given) {
  if (!given) return {};
  if (given->value && given->values) refuse("positions", "one integer or an array of them", "both");
  if (given->value) return *given->value;
  if (given->values) return array_view(read_array("positions", given->values));
  return {};
}

outputs read_results(const attend_results* given) {
  const attend_results results = read_struct("results", given);
  check_reserved(results.reserved);
  constexpr score_stage stages[] = {score_stage::biased, score_stage::scaled, score_stage::capped};
  return {.out = read_array("out", results.out),
          .lse = read_array("lse", results.lse),
          .weights = read_array("weights", results.weights),
          .scores = read_array("scores", results.scores),
          .stage = stages[read_word("stage", results.stage, 3)]};
}

rotary read_rotary(const attend_rotary* given) {
  const attend_rotary turned = read_struct("options", given);
  check_reserved(turned.reserved);
  rotary how;
  how.interleaved = read_truth("interleaved", turned.interleaved);
  how.layout = static_cast<attend::layout>(read_word("layout", turned.layout, 2));
  how.dimensions = turned.dimensions;
  if (turned.base) how.base = *turned.base;
  how.cos = read_array("cos", turned.cos);
  how.sin = read_array("sin", turned.sin);
  how.threads = turned.threads;
  return how;
}

problem_shape read_shapes(const attend_array* q, const attend_array* k, const attend_array* v) {
  problem_shape shapes;
  const auto read = [&](const char* name, const attend_array* given) {
    const array_view x = read_array(name, given);
    if (!x) refuse(name, "an array", "none");
    if (shapes.type != dtype::none && x.type != shapes.type)
      refuse_type(name, std::string(name_of(shapes.type)) + ", the dtype of q", x.type);
    shapes.type = x.type;
    return x.shape;
  };
  shapes.type = dtype::none;
  shapes.q = read("q", q);
  shapes.k = read("k", k);
  shapes.v = read("v", v);
  return shapes;
}

void c_executor::parallel_for(std::int64_t count, int max_threads, const body& run) {
  given_.parallel_for(given_.context, count, max_threads, run_item, const_cast<body*>(&run));
}

c_options::c_options(const attend_options* given) : given_(read_struct("options", given)) {
  const attend_options& from = given_;
  read_positions(from);
  how_.mask = read_array("mask", from.mask);
  how_.bias = read_array("bias", from.bias);
  how_.relative = read_array("relative", from.relative);
  if (from.scale) how_.scale = *from.scale;
  read_scores(from);
  how_.compatibility.kind = static_cast<compatibility_kind>(read_word("compatibility", from.compatibility, 6));
  if (from.sigma) how_.compatibility.sigma = *from.sigma;
  how_.compatibility.weights = read_array("additive", from.additive);
  how_.normalizer = static_cast<attend::normalizer>(read_word("normalizer", from.normalizer, 6));
  how_.dropout.p = from.dropout_p;
  if (from.dropout_seed) how_.dropout.seed = *from.dropout_seed;
  how_.layout = static_cast<attend::layout>(read_word("layout", from.layout, 2));
  how_.reproducible = read_truth("reproducible", from.reproducible);
  how_.threads = from.threads;
  if (from.executor) {
    const attend_executor own = read_struct("executor", from.executor);
    if (!own.parallel_for) refuse("executor", "a function parallel_for", "a null pointer");
    how_.executor = &executor_.emplace(own);
  }
  if (from.interrupt)
    how_.interrupt = {ask_interrupt, &given_};
  else if (from.interrupt_context)
    refuse("interrupt", "a function beside its context", "a null pointer");
}

void c_options::read_positions(const attend_options& from) {
  how_.causal = read_truth("causal", from.causal);
  if (from.window_left) how_.window.left = *from.window_left;
  if (from.window_right) how_.window.right = *from.window_right;
  how_.query_offset = read_integers("query_offset", from.query_offset);
  if (const int word = read_word("anchor", from.anchor, 3); word != ATTEND_NO_ANCHOR) {
    if (how_.query_offset.given())
      refuse("query_offset", "an integer, one per batch, or an anchor", "an anchor beside another");
    how_.query_offset = word == ATTEND_UPPER_LEFT ? upper_left : lower_right;
  }
  how_.prefix = read_integers("prefix", from.prefix);
  how_.query_segments = read_array("query_segments", from.query_segments);
  how_.key_segments = read_array("key_segments", from.key_segments);
  how_.key_lengths = read_integers("key_lengths", from.key_lengths);
  if (from.grid) how_.grid = read_grid(from.grid);
  if (from.neighborhood) how_.neighborhood.kernel = read_grid(from.neighborhood);
  if (from.dilation) how_.neighborhood.dilation = read_grid(from.dilation);
  how_.neighborhood.border = static_cast<border>(read_word("border", from.border, 2));
}

void c_options::read_scores(const attend_options& from) {
  if (from.softcap) how_.softcap = *from.softcap;
  const bool of_paper = read_truth("alibi", from.alibi);
  if (of_paper && from.alibi_slopes) refuse("alibi", "the paper's slopes or given ones", "both");
  if (of_paper) how_.alibi = true;
  if (from.alibi_slopes) how_.alibi = array_view(read_array("alibi", from.alibi_slopes));
  how_.sinks = read_array("sinks", from.sinks);
  if (from.score_count < 0) refuse("score", "a number of elements of at least 0", to_string(from.score_count));
  if ((from.score != nullptr) != (from.score_count > 0))
    refuse("score", "pointers and their number, or neither",
           to_string(from.score_count) + (from.score ? " elements and pointers" : " elements and no pointers"));
  for (int i = 0; i < from.score_count; ++i) how_.score.push_back(read_step(from.score[i]));
}

dtype read_dtype(const char* name, std::int32_t number) {
  if (number < ATTEND_BOOL || number > ATTEND_BFLOAT16)
    throw argument_error(name, "a dtype from 1 to 6", to_string(number), argument_error::kind::type);
  return dtypes[number];
}

std::int32_t c_dtype(dtype type) noexcept {
  for (std::int32_t number = 0; number <= ATTEND_FLOAT64; ++number) {
    if (dtypes[number] == type) return number;
  }
  return ATTEND_NO_DTYPE;
}

}  // namespace attend::detail
