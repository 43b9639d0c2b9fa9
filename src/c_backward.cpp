// The C ABI of gradients.
#include "attend/backward.hpp"
#include "attend/c.h"
#include "c_convert.hpp"
#include "checks.hpp"

using attend::array_view;
using namespace attend::detail;  // the conversions and checks

namespace {

attend::backward_inputs read_inputs(const attend_backward_inputs* given) {
  const attend_backward_inputs of = read_struct("of", &needed("of", given));
  return {.dout = read_array("dout", of.dout),
          .out = read_array("out", of.out),
          .lse = read_array("lse", of.lse),
          .dlse = read_array("dlse", of.dlse)};
}

attend::gradients read_gradients(const attend_gradients* given) {
  const attend_gradients to = read_struct("results", &needed("results", given));
  attend::gradients all{.dq = read_array("dq", to.dq),
                        .dk = read_array("dk", to.dk),
                        .dv = read_array("dv", to.dv),
                        .dbias = read_array("dbias", to.dbias),
                        .drelative = read_array("drelative", to.drelative),
                        .dalibi = read_array("dalibi", to.dalibi),
                        .dsinks = read_array("dsinks", to.dsinks),
                        .dadditive = read_array("dadditive", to.dadditive)};
  const auto most = static_cast<std::int32_t>(all.dscore.size());
  if (to.dscore_count < 0 || to.dscore_count > most || (to.dscore != nullptr) != (to.dscore_count > 0)) {
    refuse("dscore", "pointers and their number, at most " + std::to_string(most) + ", or neither",
           std::to_string(to.dscore_count) + (to.dscore ? " elements and pointers" : " elements and no pointers"));
  }
  for (std::int32_t n = 0; n < to.dscore_count; ++n)
    all.dscore[static_cast<std::size_t>(n)] = read_array("dscore", to.dscore[n]);
  return all;
}

}  // namespace

attend_status attend_attention_backward(const attend_backward_inputs* of, const attend_array* q, const attend_array* k,
                                        const attend_array* v, const attend_gradients* results, const attend_options* options) {
  return status_of([&] {
    const array_view query = read_array("q", q), key = read_array("k", k), value = read_array("v", v);
    attend::attention_backward(read_inputs(of), query, key, value, read_gradients(results), c_options(options).get());
  });
}

attend_status attend_attention_varlen_backward(const attend_backward_inputs* of, const attend_array* q, const attend_array* k,
                                               const attend_array* v, const attend_array* cu_seqlens_q,
                                               const attend_array* cu_seqlens_k, const attend_gradients* results,
                                               const attend_options* options) {
  return status_of([&] {
    const array_view query = read_array("q", q), key = read_array("k", k), value = read_array("v", v);
    const array_view starts_q = read_array("cu_seqlens_q", cu_seqlens_q), starts_k = read_array("cu_seqlens_k", cu_seqlens_k);
    attend::attention_varlen_backward(read_inputs(of), query, key, value, starts_q, starts_k, read_gradients(results),
                                      c_options(options).get());
  });
}
