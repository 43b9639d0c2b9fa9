// Weights from a .safetensors: float16, bfloat16 or float32 in the file, float32 in memory.
#include <attend/attend.hpp>
#include <attend/io.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <string>

#include "model.hpp"

namespace generate {

namespace {

class weights_file {
 public:
  explicit weights_file(const std::filesystem::path& path) : file_(path) {}

  bool contains(const std::string& name) const { return file_.contains(name); }

  [[noreturn]] void refuse(const std::string& name, const std::string& problem) const {
    throw attend::io::error(file_.path(), name, problem);
  }

  /// The tensor's shape; of `rank` axes, none of them 0.
  attend::extents shape_of(const std::string& name, int rank) const {
    attend::extents shape;
    for (const std::int64_t size : file_.describe(name).shape) shape.push_back(size);
    bool holds = shape.rank() == rank;
    for (int axis = 0; axis < shape.rank(); ++axis) holds = holds && shape[axis] > 0;
    if (!holds) refuse(name, "shape " + shape.to_string() + ", expected " + std::to_string(rank) + " axes, none of them 0");
    return shape;
  }

  std::vector<float> numbers(const std::string& name, const attend::extents& shape) const {
    const attend::io::array array = load(name, shape);
    const auto count = static_cast<std::size_t>(shape.count());
    std::vector<float> result(count);
    switch (array.dtype()) {
      case attend::dtype::f16: std::copy_n(elements<attend::float16>(array), count, result.begin()); break;
      case attend::dtype::bf16: std::copy_n(elements<attend::bfloat16>(array), count, result.begin()); break;
      case attend::dtype::f32: std::copy_n(elements<float>(array), count, result.begin()); break;
      default: refuse(name, "holds " + file_.describe(name).stored + ", expected float16, bfloat16 or float32");
    }
    return result;
  }

  std::vector<std::int64_t> integers(const std::string& name, const attend::extents& shape, std::int64_t least,
                                     std::int64_t most) const {
    const attend::io::array array = load(name, shape);
    if (array.dtype() != attend::dtype::i64) refuse(name, "holds " + file_.describe(name).stored + ", expected int32 or int64");
    const std::span all(elements<std::int64_t>(array), static_cast<std::size_t>(shape.count()));
    for (const std::int64_t one : all) {
      if (one < least || one > most) {
        refuse(name, "holds " + std::to_string(one) + ", expected " + std::to_string(least) + " to " + std::to_string(most));
      }
    }
    return {all.begin(), all.end()};
  }

 private:
  attend::io::array load(const std::string& name, const attend::extents& shape) const {
    attend::io::array array = file_.load(name);
    if (array.shape() != shape) refuse(name, "shape " + array.shape().to_string() + ", expected " + shape.to_string());
    return array;
  }

  template <class T>
  static const T* elements(const attend::io::array& array) {
    return static_cast<const T*>(array.view().data);
  }

  attend::io::archive file_;
};

}  // namespace

model::model(const std::filesystem::path& weights) {
  const weights_file file(weights);
  const attend::extents table = file.shape_of("embedding", 2), query = file.shape_of("layers.0.q", 3),
                        key = file.shape_of("layers.0.k", 3), gate = file.shape_of("layers.0.gate", 2);
  const std::int64_t words = table[0], width = table[1], heads = query[0], head_width = query[1], kv_heads = key[0],
                     hidden = gate[0];
  if (heads % kv_heads != 0) {
    file.refuse("layers.0.k",
                std::to_string(kv_heads) + " heads, expected a divisor of the " + std::to_string(heads) + " of q");
  }

  const auto read = [&](const std::string& name, const attend::extents& shape, std::int64_t rows) {
    return matrix{rows, shape.count() / rows, file.numbers(name, shape)};
  };
  embedding_ = read("embedding", table, words);
  for (const std::int64_t byte : file.integers("vocabulary", {words}, 0, 255)) {
    vocabulary_.push_back(static_cast<unsigned char>(byte));
  }
  norm_ = file.numbers("norm", {width});
  for (std::string at = "layers.0."; file.contains(at + "q"); at = "layers." + std::to_string(layers_.size()) + ".") {
    layers_.push_back({.attention_norm = file.numbers(at + "attention_norm", {width}),
                       .mlp_norm = file.numbers(at + "mlp_norm", {width}),
                       .q = read(at + "q", {heads, head_width, width}, heads * head_width),
                       .k = read(at + "k", {kv_heads, head_width, width}, kv_heads * head_width),
                       .v = read(at + "v", {kv_heads, head_width, width}, kv_heads * head_width),
                       .o = read(at + "o", {width, heads, head_width}, width),
                       .gate = read(at + "gate", {hidden, width}, hidden),
                       .up = read(at + "up", {hidden, width}, hidden),
                       .down = read(at + "down", {width, hidden}, width)});
  }
  heads_ = heads;
  context_ = file.integers("context", {1}, 1, std::numeric_limits<std::int32_t>::max()).front();
  cache_ = {.layers = static_cast<std::int64_t>(layers_.size()),
            .kv_heads = kv_heads,
            .head_width = head_width,
            .rotary_base = file.numbers("rotary_base", {1}).front()};
}

}  // namespace generate
