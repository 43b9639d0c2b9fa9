// The loops, written once. The including file defines, in an anonymous namespace inside `attend::limits`:
//   ATTEND_LIMITS_TARGET   the attribute that switches the instruction set on for a function
//   vector_bytes           bytes of a register
//   fma(x, a, b)           x * a + b, for vectors of float and of double
//
// Target attributes, not compiler flags, select the instructions: nothing that this library compiles can leak them elsewhere.

template <class Element>
struct vector_of {
  typedef Element type __attribute__((vector_size(vector_bytes), may_alias));
};

template <class Element>
ATTEND_LIMITS_TARGET void multiply_adds(std::int64_t steps, Element* values) {
  using vector = typename vector_of<Element>::type;
  vector* at = reinterpret_cast<vector*>(values);
  // Factors that hold every value near 1: no overflow, no denormal number, nothing to fold at compile time.
  const vector a = vector{} + Element(0.999), b = vector{} + Element(0.001);
  vector x[accumulators];
#pragma GCC unroll 32
  for (int i = 0; i < accumulators; ++i) x[i] = at[i];
  for (std::int64_t step = 0; step < steps; ++step) {
    asm volatile("");  // one step after the other: the two loops must not change places
#pragma GCC unroll 32
    for (int i = 0; i < accumulators; ++i) x[i] = fma(x[i], a, b);
  }
#pragma GCC unroll 32
  for (int i = 0; i < accumulators; ++i) at[i] = x[i];
}

ATTEND_LIMITS_TARGET std::uint64_t sum_of_words(std::int64_t steps, const void* data) {
  using vector = vector_of<std::uint64_t>::type;
  constexpr int vectors = static_cast<int>(read_step / vector_bytes);
  constexpr int sums = 8;
  const vector* at = static_cast<const vector*>(data);
  vector sum[sums] = {};
  for (std::int64_t step = 0; step < steps; ++step, at += vectors) {
    // A processor's own look-ahead stops at every page, and reads a tenth less.
#pragma GCC unroll 32
    for (std::size_t byte = 0; byte < read_step; byte += cache_line)
      __builtin_prefetch(reinterpret_cast<const char*>(at) + read_ahead + byte, 0, 2);
#pragma GCC unroll 32
    for (int i = 0; i < vectors; ++i) sum[i % sums] += at[i];
  }
  vector total = {};
#pragma GCC unroll 8
  for (int i = 0; i < sums; ++i) total += sum[i];
  std::uint64_t result = 0;
  for (std::size_t i = 0; i < vector_bytes / sizeof(std::uint64_t); ++i) result += total[i];
  return result;
}

constexpr loops these_loops = {vector_bytes, multiply_adds<float>, multiply_adds<double>, sum_of_words};
