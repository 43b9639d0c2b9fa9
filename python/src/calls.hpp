// The functions of attend._core.
#pragma once

#include <nanobind/nanobind.h>

namespace attend::python {

namespace nb = nanobind;

struct argument_slots;

/// attend.attention and attend.attention_varlen, called through an `entry`.
nb::object attention(const argument_slots& arguments);
nb::object attention_varlen(const argument_slots& arguments);

/// attend.attention_backward and attend.attention_varlen_backward, called through an `entry`.
nb::object attention_backward(const argument_slots& arguments);
nb::object attention_varlen_backward(const argument_slots& arguments);

/// attend.decode, called through an `entry`, and the caches that it reads.
nb::object decode(const argument_slots& arguments);
void define_caches(nb::module_& module);

/// attend.merge.
nb::object merge(nb::handle outs, nb::handle lses);

/// Rotary embedding by cosines and sines: rows by position where `positions` are given, by token where they are None.
nb::object rotary_embedding(nb::handle x, nb::handle cos, nb::handle sin, nb::handle positions, bool interleaved,
                            std::int64_t dimensions, nb::handle order);

/// attend.scaled_dot_product_attention, with PyTorch's parameters in PyTorch's order.
nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                                        nb::handle dropout_p, nb::handle is_causal, nb::handle scale, nb::handle enable_gqa);

/// attend.plan, with the dtype as a name and the options packed in the order of option_arguments.
nb::dict plan(nb::handle q_shape, nb::handle k_shape, nb::handle v_shape, const char* dtype, const nb::tuple& packed);

/// attend.info.
nb::dict info();

/// A finite number above 0 as a float; TypeError and ValueError call it `name`.
double positive(nb::handle value, const char* name);

/// TypeError where `value` is no array: what it holds is read by a call.
void require_array(nb::handle value, const char* name);

/// attend.set_num_threads.
void set_thread_count(nb::handle threads);

/// What this machine can do at most, for benchmarks: see bench/limits.hpp, and a call timed from C++.
void define_limits(nb::module_& module);

}  // namespace attend::python
