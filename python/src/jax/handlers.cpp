// What XLA calls: attention and its gradients over XLA's buffers, which are read and written in place.
#include <algorithm>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "calls.hpp"
#include "operands.hpp"

namespace attend::python::jax {
namespace {

/// An exception must not reach XLA.
template <class Run>
ffi::Error answer(const Run& run) {
  try {
    run();
    return ffi::Error::Success();
  } catch (const argument_error& error) {
    return ffi::Error::InvalidArgument(error.what());
  } catch (const std::bad_alloc&) {
    return {ffi::ErrorCode::kResourceExhausted, "attend: out of memory"};
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

/// Throws where a buffer has none of these names: it would be neither read nor written.
void allow(const named_buffers& buffers, std::span<const std::string_view> names) {
  for (const named_buffer& buffer : buffers.all()) {
    if (std::ranges::find(names, buffer.name) == names.end())
      throw std::logic_error("attend.jax: this version does not know the array " + std::string(buffer.name));
  }
}

constexpr std::string_view operand_names[] = {
    "q",        "k",     "v",     "additive", "mask",         "bias",   "query_segments", "key_segments",
    "relative", "alibi", "sinks", "seed",     "query_offset", "prefix", "key_lengths",    "dout",
    "out",      "lse",   "dlse"};
constexpr std::string_view result_names[] = {"out", "lse"};
constexpr std::string_view gradient_names[] = {"dq", "dk", "dv", "dbias", "drelative", "dalibi", "dsinks", "dadditive"};

ffi::Error forward(ffi::RemainingArgs arguments, ffi::RemainingRets rets, ffi::Dictionary attributes) {
  return answer([&] {
    const call_facts call(attributes);
    named_buffers operands(arguments, call), results(rets, call, operands);
    allow(operands, operand_names);
    allow(results, result_names);
    run_mapped(call, operands, results, [&] {
      const operand_options given(call.values, operands);
      attention(operands.view("q"), operands.view("k"), operands.view("v"),
                {.out = results.view("out"), .lse = results.view("lse")}, given.how);
    });
  });
}

ffi::Error backward(ffi::RemainingArgs arguments, ffi::RemainingRets rets, ffi::Dictionary attributes) {
  return answer([&] {
    const call_facts call(attributes);
    named_buffers operands(arguments, call), results(rets, call, operands);
    allow(operands, operand_names);
    allow(results, gradient_names);
    run_mapped(call, operands, results, [&] {
      const operand_options given(call.values, operands);
      const backward_inputs of{.dout = operands.view("dout"),
                               .out = operands.view("out"),
                               .lse = operands.view("lse"),
                               .dlse = operands.view("dlse")};
      const gradients to{.dq = results.view("dq"),
                         .dk = results.view("dk"),
                         .dv = results.view("dv"),
                         .dbias = results.view("dbias"),
                         .drelative = results.view("drelative"),
                         .dalibi = results.view("dalibi"),
                         .dsinks = results.view("dsinks"),
                         .dadditive = results.view("dadditive")};
      attention_backward(of, operands.view("q"), operands.view("k"), operands.view("v"), to, given.how);
    });
  });
}

XLA_FFI_DEFINE_HANDLER(forward_handler, forward, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
XLA_FFI_DEFINE_HANDLER(backward_handler, backward, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());

}  // namespace

nb::tuple handlers() {
  return nb::make_tuple(nb::capsule(reinterpret_cast<void*>(forward_handler)),
                        nb::capsule(reinterpret_cast<void*>(backward_handler)));
}

}  // namespace attend::python::jax
