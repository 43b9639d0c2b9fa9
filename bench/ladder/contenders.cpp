#include "contenders.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <random>
#include <type_traits>
#include <utility>

#include "steps.hpp"

namespace attend::kernel_ladder {
namespace {

constexpr std::size_t alignment = 64;

/// Scratch of exactly so many bytes, so that a sanitizer sees every step beyond them.
class memory {
 public:
  explicit memory(std::int64_t bytes)
      : bytes_(bytes), data_(::operator new(static_cast<std::size_t>(bytes), std::align_val_t{alignment})) {
    std::memset(data_, 0xff, static_cast<std::size_t>(bytes));  // NaN: what a step reads before it writes shows in its result
  }
  ~memory() { ::operator delete(data_, std::align_val_t{alignment}); }
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;

  void* data() { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_;
  void* data_;
};

template <class T>
tensor<T> random_numbers(std::mt19937& bits, const extents& shape, double amplitude) {
  tensor<T> numbers(shape);
  for (T& x : numbers) x = static_cast<T>(static_cast<float>(amplitude * (static_cast<double>(bits()) * 0x1p-31 - 1)));
  return numbers;
}

template <class T>
double largest_part(const task<T>& work, const tensor<T>& y) {
  double largest = 0;
  for (std::int64_t n = 0; n < y.size(); ++n) {
    const double part = std::abs(static_cast<double>(y.data()[n]) - work.truth.data()[n]) / work.bound.data()[n];
    largest = std::max(largest, std::isnan(part) ? std::numeric_limits<double>::infinity() : part);
  }
  return largest;
}

template <class T>
tensor<T> empty_result(const sizes& shape) {
  return tensor<T>({shape.heads, shape.queries, shape.value_width}, std::numeric_limits<T>::quiet_NaN());
}

/// One of the steps, head by head. `Bits` is what the step takes for T: bfloat16 is its 16 bits.
template <class T, class Bits>
class step_calculation final : public calculation {
 public:
  step_calculation(const task<T>& work, const step<Bits>& one)
      : work_(work), step_(one), y_(empty_result<T>(work.shape)), scratch_(one.scratch_bytes(head_at(0))) {}

  void run() override {
    for (std::int64_t n = 0; n < work_.shape.heads; ++n) step_.run(head_at(n), scratch_.data());
  }
  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }
  double part_of_bound() const override { return largest_part(work_, y_); }

 private:
  static_assert(sizeof(T) == sizeof(Bits) && std::is_standard_layout_v<T>);
  static const Bits* bits(const T* x) { return reinterpret_cast<const Bits*>(x); }

  head<Bits> head_at(std::int64_t n) {
    const sizes& s = work_.shape;
    return {.q = bits(work_.q.data()) + n * s.queries * s.width,
            .k = bits(work_.k.data()) + n * s.keys * s.width,
            .v = bits(work_.v.data()) + n * s.keys * s.value_width,
            .y = reinterpret_cast<Bits*>(y_.data()) + n * s.queries * s.value_width,
            .queries = s.queries,
            .keys = s.keys,
            .width = s.width,
            .value_width = s.value_width,
            .scale = s.width == 0 ? 1 : static_cast<float>(1 / std::sqrt(static_cast<double>(s.width)))};
  }

  const task<T>& work_;
  const step<Bits>& step_;
  tensor<T> y_;
  memory scratch_;
};

/// The library: all heads in one call.
template <class T>
class library_calculation final : public calculation {
 public:
  explicit library_calculation(const task<T>& work) : work_(work), y_(empty_result<T>(work.shape)) {}

  void run() override { attention(work_.q, work_.k, work_.v, {.out = y_}, one_thread); }
  std::int64_t scratch_bytes() const override {
    const plan_facts facts =
        make_plan({.type = dtype_of<T>, .q = work_.q.shape(), .k = work_.k.shape(), .v = work_.v.shape()}, one_thread).facts();
    return facts.scratch_bytes_per_thread + facts.shared_scratch_bytes;
  }
  double part_of_bound() const override { return largest_part(work_, y_); }

 private:
  inline static const options one_thread{.threads = 1};

  const task<T>& work_;
  tensor<T> y_;
};

using prepared = std::unique_ptr<calculation>;

template <const step<float>& one>
prepared prepare_f32(const tasks& work) {
  return std::make_unique<step_calculation<float, float>>(work.f32, one);
}
template <const step<bfloat16_bits>& one>
prepared prepare_bf16(const tasks& work) {
  return std::make_unique<step_calculation<bfloat16, bfloat16_bits>>(work.bf16, one);
}

#if ATTEND_LADDER_HAS_AVX512
constexpr auto prepare_avx512 = prepare_f32<avx512>;
#else
constexpr std::nullptr_t prepare_avx512 = nullptr;
#endif
#if ATTEND_LADDER_HAS_AMX
constexpr auto prepare_amx = prepare_bf16<amx>;
#else
constexpr std::nullptr_t prepare_amx = nullptr;
#endif

}  // namespace

template <class T>
task<T>::task(const sizes& s, double amplitude) : shape(s) {
  std::mt19937 bits(1);
  q = random_numbers<T>(bits, {s.heads, s.queries, s.width}, amplitude);
  k = random_numbers<T>(bits, {s.heads, s.keys, s.width}, amplitude);
  v = random_numbers<T>(bits, {s.heads, s.keys, s.value_width}, amplitude);
  auto exact = reference::attention(q, k, v);
  bound = reference::error_bound(q, k, v, {}, exact);
  truth = std::move(exact.out);
}
template struct task<float>;
template struct task<bfloat16>;

bool contender::is_here() const {
  const std::vector<isa> here = detected_isas();
  return prepare && std::find(here.begin(), here.end(), needs) != here.end();
}

const std::vector<contender>& contenders() {
  static const std::vector<contender> all = {
      {"naive", dtype::f32, isa::scalar, true, "", 1, prepare_f32<naive>},
      {"tiled", dtype::f32, isa::scalar, true, "naive", 1, prepare_f32<tiled>},
      {"lanes", dtype::f32, isa::scalar, true, "tiled", 1, prepare_f32<lanes>},
      {"avx512", dtype::f32, isa::avx512, true, "lanes", 1, prepare_avx512},
      {"amx", dtype::bf16, isa::amx_bf16, true, "avx512", amx_software.width_multiple, prepare_amx},
      {"amx_software", dtype::bf16, isa::scalar, false, "", amx_software.width_multiple, prepare_bf16<amx_software>},
      {"attend", dtype::f32, isa::scalar, true, "avx512", 1,
       [](const tasks& work) -> prepared { return std::make_unique<library_calculation<float>>(work.f32); }},
      {"attend_bf16", dtype::bf16, isa::scalar, true, "amx", 1,
       [](const tasks& work) -> prepared { return std::make_unique<library_calculation<bfloat16>>(work.bf16); }},
  };
  return all;
}

}  // namespace attend::kernel_ladder
