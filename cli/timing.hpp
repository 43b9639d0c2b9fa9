// How long a call takes, and the least that this machine's limits allow for it.
#pragma once

#include "call.hpp"
#include "roofline.hpp"

namespace attend::cli {

struct timing {
  double median = 0, fastest = 0, slowest = 0;  ///< seconds
  int calls = 0;
  double flops = 0, bytes = 0;
  double fraction = 0;  ///< of the limit: median over rounds that each measure the peak before and after
  roofline limits;
};

/// Calls again and again, for a third of a second or so; `out` is what a call has written before.
template <class T>
timing measure(const operands& of, const call_options& call, tensor<T>& out);

extern template timing measure(const operands&, const call_options&, tensor<float>&);
extern template timing measure(const operands&, const call_options&, tensor<double>&);
extern template timing measure(const operands&, const call_options&, tensor<float16>&);
extern template timing measure(const operands&, const call_options&, tensor<bfloat16>&);

}  // namespace attend::cli
