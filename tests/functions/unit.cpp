// The table of one instruction set; CMake names it: ATTEND_TEST_SET, and the header of its policy.
#include "functions/functions.hpp"

#include ATTEND_TEST_POLICY

#define ATTEND_JOIN_(a, b) a##b
#define ATTEND_JOIN(a, b) ATTEND_JOIN_(a, b)

namespace attend::detail {
namespace ATTEND_TEST_SET {
namespace {

#include "kernels/exponential.inl"

#define ATTEND_TEST_FUNCTION(f)                                                                        \
  template <class T>                                                                                   \
  void f##_array(const T* from, T* to, std::int64_t count) {                                           \
    using S = simd<T>;                                                                                 \
    for (std::int64_t i = 0; i < count; i += S::width) S::store(to + i, f##_of<S>(S::load(from + i))); \
  }
ATTEND_TEST_FUNCTION(exp2)
ATTEND_TEST_FUNCTION(tanh)
ATTEND_TEST_FUNCTION(sigmoid)

}  // namespace
}  // namespace ATTEND_TEST_SET
}  // namespace attend::detail

namespace attend::test {

namespace own = detail::ATTEND_TEST_SET;
extern const function_table ATTEND_JOIN(ATTEND_TEST_SET, _functions) = {
    {own::exp2_array<float>, own::tanh_array<float>, own::sigmoid_array<float>},
    {own::exp2_array<double>, own::tanh_array<double>, own::sigmoid_array<double>}};

}  // namespace attend::test
