"""Operators of PyTorch: `attend::attention`, `attend::attention_varlen` and the backward of each.

Each has a kernel that reads tensors in place, one that knows shapes alone, for torch.compile and torch.export, casts under
autocast, and a formula for autograd. What autograd or functorch could ask for beyond first gradients is refused by name.
"""

import torch
from torch import Tensor, _C

from attend.torch._arguments import NAMES, OTHERS, SCHEMA, options_of
from attend.torch._autograd import (DENSE, GRADIENTS, ORDER, PACKED, BackwardCall, NoSecond, OperatorCall, apply,
                                    arrays_of_score, recorded, refuse_tangents)

LIBRARY = torch.library.Library("attend", "DEF")

_TYPES = {"cu_seqlens_k": "Tensor?", "block_table": "Tensor?", "lse": "Tensor?", "dlse": "Tensor?", "return_lse": "bool",
          "return_weights": "bool", "return_scores": "str?"}


_OF = ("q", "k", "v", "bias", "relative", "slopes", "sinks", "additive")  # whose gradients ORDER names


def _declared(names):
    return ", ".join(f"{_TYPES.get(name, 'Tensor')} {name}" for name in names)


def _arguments(family):
    return (*family.inputs, *NAMES, *family.results)


def _backward_arguments(family):
    return ("dout", *family.backward_inputs, "out", "lse", "dlse", *NAMES)


# --- Kernels --------------------------------------------------------------------------------------------------------------


def _readable(name, value):
    """A tensor as attend reads it: in the CPU's memory, and without a word about gradients, which autograd has seen to."""
    if isinstance(value, list):
        return [_readable(name, x) for x in value]
    if not value.is_cpu:
        raise ValueError(f"{name}: expected a tensor in the CPU's memory, got one on {value.device}")
    return value.detach() if value.requires_grad else value


def _reader(names):
    """Arguments by their names, and tensors among them readable."""
    places = [n for n, name in enumerate(names) if name not in OTHERS and name not in DENSE.results]

    def read(values):
        values = list(values)
        for n in places:
            if values[n] is not None:
                values[n] = _readable(names[n], values[n])
        return dict(zip(names, values))

    return read


def _computed(family):
    read = _reader(_arguments(family))

    def kernel(*values):
        given = read(values)
        options = options_of(given[name] for name in NAMES)
        results = family.forward(**{name: given[name] for name in family.inputs + family.results}, **options)
        return list(results) if isinstance(results, tuple) else [results]

    return kernel


def _arrays(given):
    """What there are gradients of, in the order in which an operator is asked for them."""
    return [*(given[name] for name in _OF), *given["score_arrays"]]


def _computed_backward(family):
    read = _reader(_backward_arguments(family))
    inputs = ("dout", *family.backward_inputs, "out", "lse", "dlse")

    def kernel(*values):
        given = read(values)
        wanted = values[-1]
        taken = {name for name, is_wanted in zip(ORDER, wanted) if is_wanted} | ({"dscore"} if any(wanted[len(ORDER):]) else set())
        got = family.backward(**{name: given[name] for name in inputs}, wanted=taken, **options_of(given[name] for name in NAMES))
        gradients = [*(got.get(name) for name in ORDER), *arrays_of_score(got)]
        # Slopes of float64 beside float32 are rounded before anything sees them, and so is their gradient.
        return [x.to(of.dtype) for x, of, is_wanted in zip(gradients, _arrays(given), wanted) if is_wanted]

    return kernel


# --- Shapes alone ---------------------------------------------------------------------------------------------------------


def _require_one_device(names, values):
    """Tensors without memory (`meta`) stand beside such alone."""
    tensors = [(name, x) for name, x in zip(names, values) if isinstance(x, Tensor)]
    for name, x in tensors:
        if x.device.type != tensors[0][1].device.type:
            raise ValueError(f"{name}: expected a tensor on {tensors[0][1].device}, got one on {x.device}")


def _shapes(family):
    names = _arguments(family)

    def fake(*values):
        _require_one_device(names, values)
        given = dict(zip(names, values))
        q, k, v = given["q"], given["k"], given["v"]
        if family is PACKED:
            rows = lse = q.shape[:-1]
            keys = None
        elif q.dim() == 2:
            rows = lse = q.shape[:1]
            keys = k.shape[0]
        else:
            batch = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
            heads, tokens = (-3, -2) if given["layout"] == "bhld" else (-2, -3)
            rows, lse, keys = (*batch, *q.shape[-3:-1]), (*batch, q.shape[heads], q.shape[tokens]), k.shape[tokens]
        results = [q.new_empty((*rows, v.shape[-1]))]
        if given["return_lse"]:
            results.append(q.new_empty(lse, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32))
        return results + [q.new_empty((*lse, keys)) for name in family.results[1:] if given[name]]

    return fake


def _shapes_backward(family):
    names = _backward_arguments(family)

    def fake(*values):
        _require_one_device(names, values)
        given = dict(zip(names, values))
        return [x.new_empty(x.shape) for x, is_wanted in zip(_arrays(given), values[-1]) if is_wanted]

    return fake


# --- Autograd, autocast, vmap ---------------------------------------------------------------------------------------------


def _autograd(family):
    names, operator = _arguments(family), family.operator()

    def kernel(keyset, *values):
        refuse_tangents(family.name, values)
        if _C.is_grad_enabled() and _C._any_requires_grad(*values):
            call = OperatorCall(family, dict(zip(names, values)))
            return recorded(call, {name: call.packed[name] for name in family.results})
        with _C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & _C._after_autograd_keyset, *values)

    return kernel


def _autograd_of_backward(family):
    name, operator = f"{family.name}_backward", family.operator("_backward")

    def kernel(keyset, *values):
        refuse_tangents(name, values)
        if _C.is_grad_enabled() and _C._any_requires_grad(*values):
            call = BackwardCall(name, list(values))
            return list(apply(NoSecond, call, call.tensors))
        with _C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & _C._after_autograd_keyset, *values)

    return kernel


def _autocast(family):
    """Casts as PyTorch's own: floating inputs but float64 become autocast's dtype; float32 may stand beside them as it is."""
    operator, names = family.operator(), _arguments(family)

    def cast(value, dtype, *kept):
        if isinstance(value, list):
            return [cast(x, dtype, *kept) for x in value]
        eligible = isinstance(value, Tensor) and value.is_floating_point() and value.dtype not in (torch.float64, dtype, *kept)
        return value.to(dtype) if eligible else value

    def kernel(*values):
        dtype = torch.get_autocast_dtype("cpu")
        values = [cast(x, dtype) if name in family.inputs else cast(x, dtype, torch.float32) for name, x in zip(names, values)]
        with _C._ExcludeDispatchKeyGuard(_C.DispatchKeySet(_C.DispatchKey.AutocastCPU)):
            return operator(*values)

    return kernel


def _no_vmap(name):
    def refuse(*unused):
        raise NotImplementedError(f"attend.torch.{name}: expected tensors outside of vmap, got batched ones; axes before the heads "
                                  "are batch axes and broadcast, so one call does what vmap would do")

    return refuse


def _register(family):
    backward = f"{family.name}_backward"
    inputs = _declared(("dout", *family.backward_inputs, "out", "lse", "dlse"))
    for name, schema in ((family.name, f"{_declared(family.inputs)}, {SCHEMA}, {_declared(family.results)}"),
                         (backward, f"{inputs}, {SCHEMA}, bool[] wanted")):
        LIBRARY.define(f"{name}({schema}) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
    for name, computed, shapes, autograd in ((family.name, _computed, _shapes, _autograd),
                                             (backward, _computed_backward, _shapes_backward, _autograd_of_backward)):
        LIBRARY.impl(name, computed(family), "CompositeExplicitAutograd")
        torch.library.register_fake(f"attend::{name}", shapes(family), lib=LIBRARY)
        LIBRARY.impl(name, autograd(family), "Autograd", with_keyset=True)
        torch.library.register_vmap(f"attend::{name}", _no_vmap(name), lib=LIBRARY)
    LIBRARY.impl(family.name, _autocast(family), "AutocastCPU")


for _family in (DENSE, PACKED):
    _register(_family)
