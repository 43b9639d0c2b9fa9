"""Operators of PyTorch: `attend::attention`, `attend::attention_varlen` and the backward of each.

Each has a kernel that reads tensors in place, one that knows shapes alone, for torch.compile and torch.export, casts under
autocast, and a formula for autograd. What autograd or functorch could ask for beyond first gradients is refused by name.
"""

from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor, _C
from torch.autograd import Function, forward_ad

import attend
from attend.torch._arguments import NAMES, SCHEMA, options_of

LIBRARY = torch.library.Library("attend", "DEF")

# What has a gradient, in this order, and behind it the arrays of the score list: the argument, and its gradient's name in the result of
# attend.attention_backward.
GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "bias": "dbias", "relative": "drelative", "slopes": "dalibi", "sinks": "dsinks",
             "additive": "dadditive"}


class Family(NamedTuple):
    """An operator and its backward: their names, their tensors before the options, and what computes them."""

    name: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    forward: Callable[..., Any]
    backward: Callable[..., Any]

    def split(self, arguments):
        """(inputs, options, what follows)."""
        n = len(self.inputs)
        return arguments[:n], arguments[n:n + len(NAMES)], arguments[n + len(NAMES):]

    def place(self, name):
        return self.inputs.index(name) if name in self.inputs else len(self.inputs) + NAMES.index(name)


DENSE = Family("attention", ("q", "k", "v"), ("return_lse", "return_weights", "return_scores"), attend.attention,
               attend.attention_backward)
PACKED = Family("attention_varlen", ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "block_table"), ("return_lse",),
                attend.attention_varlen, attend.attention_varlen_backward)

_TYPES = {"cu_seqlens_k": "Tensor?", "block_table": "Tensor?", "return_lse": "bool", "return_weights": "bool",
          "return_scores": "str?"}


def _declared(names):
    return ", ".join(f"{_TYPES.get(name, 'Tensor')} {name}" for name in names)


# --- Kernels --------------------------------------------------------------------------------------------------------------


def _readable(name, value):
    """A tensor as attend reads it: in the CPU's memory, and without a word about gradients, which autograd has seen to."""
    if isinstance(value, list):
        return [_readable(name, x) for x in value]
    if not isinstance(value, Tensor):
        return value
    if not value.is_cpu:
        raise ValueError(f"{name}: expected a tensor in the CPU's memory, got one on {value.device}")
    return value.detach() if value.requires_grad else value


def _computed(family):
    names = family.inputs + NAMES

    def kernel(*arguments):
        arguments = [_readable(name, value) for name, value in zip(names, arguments)] + list(arguments[len(names):])
        inputs, options, asked = family.split(arguments)
        if family is PACKED:
            inputs, table = inputs[:5], inputs[5]
            extra = {} if table is None else {"block_table": table}
        else:
            extra = {}
        results = family.forward(*inputs, **options_of(options), **extra, **dict(zip(family.results, asked)))
        return list(results) if isinstance(results, tuple) else [results]

    return kernel


def _computed_backward(family):
    inputs = tuple(name for name in family.inputs if name != "block_table")
    names = ("dout", *inputs, "out", "lse", "dlse", *NAMES)

    def kernel(*arguments):
        wanted = arguments[-1]
        given = {name: _readable(name, value) for name, value in zip(names, arguments)}
        options = options_of([given[name] for name in NAMES])
        got = family.backward(given["dout"], *(given[name] for name in ("q", "k", "v", "out", "lse")),
                              *(given[name] for name in inputs[3:]), dlse=given["dlse"], **options)
        of_arrays = [x for x in got.get("dscore", ()) if x is not None]
        return [x for x, is_wanted in zip([*(got.get(name) for name in GRADIENTS.values()), *of_arrays], wanted) if is_wanted]

    return kernel


# --- Shapes alone ---------------------------------------------------------------------------------------------------------


def _shapes(family):
    def fake(*arguments):
        inputs, options, asked = family.split(arguments)
        q, k, v = inputs[:3]
        if family is PACKED:
            rows, lse, pairs = q.shape[:-1], q.shape[:-1], None
        elif q.dim() == 2:
            rows, lse, pairs = q.shape[:1], q.shape[:1], (q.shape[0], k.shape[0])
        else:
            batch = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
            rows_last = options[NAMES.index("layout")] == "bhld"
            heads, length, keys = (-3, -2, -2) if rows_last else (-2, -3, -3)
            rows, lse = (*batch, *q.shape[-3:-1]), (*batch, q.shape[heads], q.shape[length])
            pairs = (*lse, k.shape[keys])
        results = [q.new_empty((*rows, v.shape[-1]))]
        if asked[0]:
            results.append(q.new_empty(lse, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32))
        return results + [q.new_empty(pairs) for x in asked[1:] if x]

    return fake


def _shapes_backward(family):
    inputs = tuple(name for name in family.inputs if name != "block_table")
    names = ("dout", *inputs, "out", "lse", "dlse", *NAMES)

    def fake(*arguments):
        given = dict(zip(names, arguments))
        arrays = [*(given[name] for name in GRADIENTS), *given["score_arrays"]]
        return [x.new_empty(x.shape) for x, is_wanted in zip(arrays, arguments[-1]) if is_wanted]

    return fake


# --- Autograd -------------------------------------------------------------------------------------------------------------


class _Saved(NamedTuple):
    """A tensor's place among those that autograd keeps."""

    index: int


def _pack(values, kept):
    """The values with their tensors moved to the list `kept`."""
    packed = []
    for value in values:
        if isinstance(value, Tensor):
            kept.append(value)
            value = _Saved(len(kept) - 1)
        elif isinstance(value, list):
            value = _pack(value, kept)
        packed.append(value)
    return packed


def _unpack(values, kept):
    return [kept[x.index] if isinstance(x, _Saved) else _unpack(x, kept) if isinstance(x, list) else x for x in values]


def _refuse_tangents(name, arguments):
    if forward_ad._current_level < 0:
        return
    for value in arguments:
        for x in value if isinstance(value, list) else (value,):
            if isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None:
                raise NotImplementedError(f"attend.torch.{name}: expected tensors without tangents, got a dual tensor; there are "
                                          "gradients by reverse mode alone, no forward mode (jvp)")


class _Gradients(Function):
    """The formula of both operators: `call` is (family, their arguments, how to run them without autograd)."""

    @staticmethod
    def forward(ctx, call, *tensors):
        family, arguments, below = call
        results = below(*arguments)
        kept = []
        ctx.set_materialize_grads(False)
        ctx.call = family, _pack(arguments, kept)
        ctx.save_for_backward(*kept, *results)
        return tuple(results)

    @staticmethod
    def backward(ctx, dout, dlse=None):
        family, arguments = ctx.call
        saved = ctx.saved_tensors
        results = 1 + _has_lse(family, arguments)
        out, lse = saved[-results], saved[-1] if results == 2 else None
        inputs, options, _ = family.split(_unpack(arguments, saved))
        inputs = [x for name, x in zip(family.inputs, inputs) if name != "block_table"]
        if dout is None:
            dout = out.new_zeros(()).expand(out.shape)
        wanted = list(ctx.needs_input_grad[1:])
        operator = getattr(torch.ops.attend, f"{family.name}_backward").default
        made = iter(operator(dout, *inputs, out, lse, dlse, *options, wanted))
        return None, *(next(made) if is_wanted else None for is_wanted in wanted)


class _NoSecond(Function):
    """A backward operator, whose own gradients there are not."""

    @staticmethod
    def forward(ctx, call, *tensors):
        ctx.name, arguments, below = call
        return tuple(below(*arguments))

    @staticmethod
    def backward(ctx, *unused):
        raise NotImplementedError(f"attend.torch.{ctx.name}: expected first gradients alone, got a gradient of a gradient "
                                  "(create_graph=True), which attend does not have")


def _has_lse(family, arguments):
    return arguments[family.place("normalizer")] == "softmax"


def _below_autograd(operator, keyset):
    def below(*arguments):
        with _C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & _C._after_autograd_keyset, *arguments)

    return below


def _autograd(family):
    operator = getattr(torch.ops.attend, family.name).default
    places = [family.place(name) for name in GRADIENTS]
    arrays, first_result = family.place("score_arrays"), len(family.inputs) + len(NAMES)
    table = family.place("block_table") if family is PACKED else None

    def kernel(keyset, *arguments):
        _refuse_tangents(family.name, arguments)
        below = _below_autograd(operator, keyset)
        if not (_C.is_grad_enabled() and _C._any_requires_grad(*arguments)):
            return below(*arguments)
        asked = arguments[first_result:]
        for name, value in zip(family.results[1:], asked[1:]):
            if value:
                raise ValueError(f"{name}: expected {'None' if name == 'return_scores' else 'False'} where a tensor requires a "
                                 f"gradient, got {value}; what it returns has none: detach() the tensors, or use torch.no_grad()")
        if table is not None and arguments[table] is not None:
            raise ValueError("block_table: expected None where a tensor requires a gradient, got a table; pages have no gradient")
        if asked[0] and not _has_lse(family, arguments):
            return below(*arguments)  # which refuses it
        with_lse = (*arguments[:first_result], _has_lse(family, arguments), *asked[1:])
        results = _Gradients.apply((family, with_lse, below), *(arguments[n] for n in places), *arguments[arrays])
        return list(results) if asked[0] else [results[0]]

    return kernel


def _autograd_of_backward(family):
    name = f"{family.name}_backward"
    operator = getattr(torch.ops.attend, name).default

    def kernel(keyset, *arguments):
        _refuse_tangents(name, arguments)
        below = _below_autograd(operator, keyset)
        if not (_C.is_grad_enabled() and _C._any_requires_grad(*arguments)):
            return below(*arguments)
        kept = []
        _pack(arguments, kept)
        return list(_NoSecond.apply((name, arguments, below), *kept))

    return kernel


# --- Autocast and vmap ----------------------------------------------------------------------------------------------------


def _autocast(family):
    """Casts as PyTorch's own: floating inputs but float64 become autocast's dtype; float32 may stand beside them as it is."""
    operator = getattr(torch.ops.attend, family.name).default

    def cast(value, dtype, *kept):
        if isinstance(value, list):
            return [cast(x, dtype, *kept) for x in value]
        eligible = isinstance(value, Tensor) and value.is_floating_point() and value.dtype not in (torch.float64, dtype, *kept)
        return value.to(dtype) if eligible else value

    def kernel(*arguments):
        dtype = torch.get_autocast_dtype("cpu")
        inputs, others, asked = family.split(arguments)
        inputs = [cast(x, dtype) for x in inputs]
        others = [cast(x, dtype, torch.float32) for x in others]
        with _C._ExcludeDispatchKeyGuard(_C.DispatchKeySet(_C.DispatchKey.AutocastCPU)):
            return operator(*inputs, *others, *asked)

    return kernel


def _no_vmap(name):
    def refuse(*unused):
        raise NotImplementedError(f"attend.torch.{name}: expected tensors outside of vmap, got batched ones; axes before the heads "
                                  "are batch axes and broadcast, so one call does what vmap would do")

    return refuse


def _register(family):
    backward = f"{family.name}_backward"
    inputs = [name for name in family.inputs if name != "block_table"]
    tensors = f"Tensor dout, {_declared(inputs)}, Tensor out, Tensor? lse, Tensor? dlse"
    LIBRARY.define(f"{family.name}({_declared(family.inputs)}, {SCHEMA}, {_declared(family.results)}) -> Tensor[]",
                   tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.define(f"{backward}({tensors}, {SCHEMA}, bool[] wanted) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
    for name, computed, shapes, autograd in ((family.name, _computed, _shapes, _autograd),
                                             (backward, _computed_backward, _shapes_backward, _autograd_of_backward)):
        LIBRARY.impl(name, computed(family), "CompositeExplicitAutograd")
        torch.library.register_fake(f"attend::{name}", shapes(family), lib=LIBRARY)
        LIBRARY.impl(name, autograd(family), "Autograd", with_keyset=True)
        torch.library.register_vmap(f"attend::{name}", _no_vmap(name), lib=LIBRARY)
    LIBRARY.impl(family.name, _autocast(family), "AutocastCPU")


for _family in (DENSE, PACKED):
    _register(_family)
