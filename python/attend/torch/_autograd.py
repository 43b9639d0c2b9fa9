"""Gradients of a call, whether PyTorch's dispatcher made it or not: what autograd keeps of it, and what it asks for later."""

from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor, _C
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

import attend
from attend._value import Value
from attend.torch._arguments import NAMES, arguments_of

# Of what there are gradients, by the names of options and of operators' arguments, and what attend.attention_backward calls them.
# Arrays of the score list are ("dscore", n), in their order.
GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "bias": "dbias", "relative": "drelative", "slopes": "dalibi", "alibi": "dalibi",
             "sinks": "dsinks", "additive": "dadditive", "compatibility": "dadditive"}
_LISTS = ("score", "score_arrays")
ORDER = tuple(dict.fromkeys(GRADIENTS.values()))  # in which an operator is asked for them, arrays of the score list at the end


class Family(NamedTuple):
    """A function of attend that is an operator: its tensors before the options, what it can return, and what computes it."""

    name: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    forward: Callable[..., Any]
    backward: Callable[..., Any]

    @property
    def backward_inputs(self):
        return tuple(name for name in self.inputs if name != "block_table")

    def operator(self, suffix=""):
        return getattr(torch.ops.attend, self.name + suffix).default


DENSE = Family("attention", ("q", "k", "v"), ("return_lse", "return_weights", "return_scores"), attend.attention,
               attend.attention_backward)
PACKED = Family("attention_varlen", ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "block_table"), ("return_lse",),
                attend.attention_varlen, attend.attention_varlen_backward)


def is_watched():
    """Whether something of PyTorch's wants to see operators: a mode, a transform, a cast, a level of forward mode, a trace."""
    return (_C._len_torch_dispatch_stack() or _C._are_functorch_transforms_active() or forward_ad._current_level >= 0
            or torch.is_autocast_enabled("cpu") or _C._get_tracing_state() is not None)


def refuse_tangents(name, values):
    if forward_ad._current_level < 0:
        return
    for value in values:
        for x in value if isinstance(value, list) else (value,):
            if isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None:
                raise NotImplementedError(f"attend.torch.{name}: expected tensors without tangents, got a dual tensor; there are "
                                          "gradients by reverse mode alone, no forward mode (jvp)")


# --- What is kept ---------------------------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """A tensor's place among those that autograd keeps."""

    index: int


class _Made(NamedTuple):
    """An `attend.bias` or its like."""

    type: type
    values: list


def _pack(value, kept):
    if isinstance(value, Tensor):
        kept.append(value)
        return _Kept(len(kept) - 1)
    if isinstance(value, (list, tuple)):
        return [_pack(x, kept) for x in value]
    if isinstance(value, Value):
        made, values = value.__reduce__()
        return _Made(made, _pack(values, kept))
    return value


def _unpack(value, kept):
    if isinstance(value, _Kept):
        return kept[value.index]
    if isinstance(value, _Made):
        return value.type(*_unpack(value.values, kept))
    return [_unpack(x, kept) for x in value] if isinstance(value, list) else value


class Call:
    """A call without its tensors, which are a list beside it; `gradients` says what the gradient of each is called, or None."""

    def __init__(self, family, given):
        self.family, self.packed, self.gradients, tensors = family, {}, [], []
        for name, value in given.items():
            self.packed[name] = _pack(value, tensors)
            more = range(len(tensors) - len(self.gradients))
            self.gradients += [("dscore", n) if name in _LISTS else GRADIENTS.get(name) for n in more]
        self.tensors = tensors

    def take_tensors(self):
        """The tensors, once: autograd keeps them, and this call must not."""
        tensors, self.tensors = self.tensors, None
        return tensors

    def given(self, tensors):
        return {name: _unpack(value, tensors) for name, value in self.packed.items()}

    @property
    def has_lse(self):
        return self.packed.get("normalizer", "softmax") == "softmax"


def arrays_of_score(got):
    """Gradients of the arrays of a score list, in their order."""
    return [x for x in got.get("dscore", ()) if x is not None]


def _detached(tensors):
    return [x.detach() if x.requires_grad else x for x in tensors]


class DirectCall(Call):
    """A call of attend's own function, made by nobody but the caller."""

    def forward(self, tensors):
        results = self.family.forward(**self.given(_detached(tensors)))
        return results if isinstance(results, tuple) else (results,)

    def backward(self, tensors, wanted, dout, out, lse, dlse):
        if _C.is_grad_enabled() or is_watched():
            given = self._without_results(tensors)
            inputs = {name: given.pop(name) for name in self.family.backward_inputs}
            return backward_by_operator(self.family, inputs | arguments_of(given), wanted, dout, out, lse, dlse)
        results = {"out": out.detach(), "lse": None if lse is None else lse.detach()}
        names = {name if isinstance(name, str) else "dscore" for name in wanted}
        given = self._without_results(_detached(tensors))
        got = self.family.backward(dout=dout, dlse=dlse, wanted=names, **results, **given)
        return got | {("dscore", n): x for n, x in enumerate(arrays_of_score(got))}

    def _without_results(self, tensors):
        return {name: _unpack(x, tensors) for name, x in self.packed.items()
                if name not in self.family.results and name != "block_table"}


class OperatorCall(Call):
    """A call of the operator, below which the next part of PyTorch's dispatcher sees it."""

    def forward(self, tensors):
        with _C._AutoDispatchBelowAutograd():
            return tuple(self.family.operator()(*self.given(tensors).values()))

    def backward(self, tensors, wanted, dout, out, lse, dlse):
        return backward_by_operator(self.family, self.given(tensors), wanted, dout, out, lse, dlse)


def backward_by_operator(family, given, wanted, dout, out, lse, dlse):
    """Gradients by name, of arguments by name."""
    names = [*ORDER, *(("dscore", n) for n in range(len(given["score_arrays"])))]
    places = [name in wanted for name in names]
    made = family.operator("_backward")(dout, *(given[name] for name in family.backward_inputs), out, lse, dlse,
                                        *(given[name] for name in NAMES), places)
    return dict(zip((name for name, is_wanted in zip(names, places) if is_wanted), made))


# --- Formulas -------------------------------------------------------------------------------------------------------------


# Of one level: functorch brings each of its levels here by itself, through the operators.


def apply(formula, call, tensors):
    if not _C._are_functorch_transforms_active():
        return formula.apply(call, *tensors)
    with enable_single_level_autograd_function():
        return formula.apply(call, *tensors)


class Gradients(_SingleLevelFunction):
    """The formula of all calls: (call, its tensors) to (out, lse where there is one)."""

    @staticmethod
    def forward(ctx, call, *tensors):
        results = call.forward(tensors)
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *results)
        return results

    @staticmethod
    def backward(ctx, dout, dlse=None):
        call, saved = ctx.call, ctx.saved_tensors
        tensors = saved[:len(call.gradients)]
        out, lse = (*saved[len(tensors):], None)[:2]
        # attend reads memory, which holds the other sign of what comes from the imaginary part of a conjugate.
        dout = out.new_zeros(()).expand(out.shape) if dout is None else dout.resolve_neg()
        dlse = None if dlse is None else dlse.resolve_neg()
        needed = ctx.needs_input_grad[1:]
        wanted = {name for name, is_needed in zip(call.gradients, needed) if is_needed}
        got = call.backward(tensors, wanted, dout, out, lse, dlse)
        return None, *(got[name] if is_needed else None for name, is_needed in zip(call.gradients, needed))


def recorded(call, asked):
    """The call's results as a list, with gradients. `asked` says by name what the caller wants beside out."""
    for name, value in asked.items():
        if value and name != "return_lse":
            raise ValueError(f"{name}: expected {'None' if name == 'return_scores' else 'False'} where a tensor requires a "
                             f"gradient, got {value}; what it returns has none: detach() the tensors, or use torch.no_grad()")
    if call.packed.get("block_table") is not None:
        raise ValueError("block_table: expected None where a tensor requires a gradient, got a table; pages have no gradient")
    call.packed["return_lse"] = call.has_lse or asked["return_lse"]
    results = apply(Gradients, call, call.take_tensors())
    return list(results) if asked["return_lse"] else [results[0]]


class NoSecond(_SingleLevelFunction):
    """A backward operator, which has no gradients of its own."""

    @staticmethod
    def forward(ctx, call, *tensors):
        ctx.name = call.name
        return call.forward(tensors)

    @staticmethod
    def backward(ctx, *unused):
        raise NotImplementedError(f"attend.torch.{ctx.name}: expected first gradients alone, got a gradient of a gradient "
                                  "(create_graph=True), which attend does not have")


class BackwardCall:
    """A call of a backward operator, as `NoSecond` runs it."""

    def __init__(self, name, arguments):
        self.name, self.tensors = name, []
        self._packed = _pack(arguments, self.tensors)

    def forward(self, tensors):
        with _C._AutoDispatchBelowAutograd():
            return tuple(getattr(torch.ops.attend, self.name).default(*_unpack(self._packed, tensors)))
