// Calls through the C ABI of arrays that C++ holds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attend/c.h"
#include "support/refusal.hpp"

namespace attend::test {

/// A C array that describes a view; keeps the numbers that it points to.
struct c_array {
  std::vector<std::int64_t> shape, strides;
  attend_array c = {};

  explicit c_array(const array_view& x, bool with_strides = true) {
    for (int axis = 0; axis < x.shape.rank(); ++axis) shape.push_back(x.shape[axis]), strides.push_back(x.strides[axis]);
    c.size = sizeof c;
    c.data = const_cast<void*>(x.data);
    c.dtype = x.type == dtype::boolean ? ATTEND_BOOL
              : x.type == dtype::i64   ? ATTEND_INT64
              : x.type == dtype::f32   ? ATTEND_FLOAT32
              : x.type == dtype::f64   ? ATTEND_FLOAT64
              : x.type == dtype::f16   ? ATTEND_FLOAT16
                                       : ATTEND_BFLOAT16;
    c.rank = x.shape.rank();
    c.shape = shape.data();
    c.strides = with_strides ? strides.data() : nullptr;
  }
  c_array(const c_array&) = delete;
  const attend_array* get() const { return &c; }
};

/// The call of support/refusal.hpp in C.
struct c_call {
  call cpp;
  c_array q{cpp.q_view}, k{cpp.k_view}, v{cpp.v_view};
  c_array out{array_view(cpp.results.out)}, lse{array_view(cpp.results.lse)}, weights{array_view(cpp.results.weights)};
  attend_results results = ATTEND_INIT(attend_results);
  attend_options how = ATTEND_INIT(attend_options);

  c_call() { results.out = out.get(), results.lse = lse.get(), results.weights = weights.get(); }
  attend_status run() { return attend_attention(q.get(), k.get(), v.get(), &results, &how); }
  attend_status check() const { return attend_check(q.get(), k.get(), v.get(), &results, &how); }
  bool written() const { return !untouched(cpp.out) || !untouched(cpp.lse) || !untouched(cpp.weights); }
};

/// The call is refused with this status on account of `argument`, and nothing is written.
inline void expect_c_refusal(const std::string& argument, const std::function<void(c_call&)>& spoil,
                             attend_status status = ATTEND_ERROR_ARGUMENT) {
  c_call c;
  spoil(c);
  EXPECT_EQ(c.check(), status) << argument;
  EXPECT_EQ(c.run(), status) << argument;
  EXPECT_EQ(std::string(attend_last_error()).rfind(argument + ": expected ", 0), 0u) << argument << ": " << attend_last_error();
  EXPECT_FALSE(c.written()) << argument << ": something was written";
}

}  // namespace attend::test
