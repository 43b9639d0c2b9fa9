"""Options of a call as arguments of an operator, whose schema knows tensors, numbers and words, and back.

An option that may be several things, a number or a tensor, is several arguments; a score list is words, numbers and tensors.
Numbers that may be sizes are SymInt, so that torch.compile with dynamic shapes needs no other graph for them.
"""

import operator
from typing import Any, NamedTuple

import torch
from torch import SymBool, SymFloat, SymInt, Tensor

import attend


class Argument(NamedTuple):
    """An argument of the operators: its type in a schema and what it is where the option is not given."""

    type: str
    default: Any = None


TENSORS = {
    "mask": Argument("Tensor?"), "bias": Argument("Tensor?"), "relative": Argument("Tensor?"), "slopes": Argument("Tensor?"),
    "sinks": Argument("Tensor?"), "additive": Argument("Tensor?"), "score_arrays": Argument("Tensor[]", []),
    "query_segments": Argument("Tensor?"), "key_segments": Argument("Tensor?"), "query_offsets": Argument("Tensor?"),
    "prefixes": Argument("Tensor?"), "lengths": Argument("Tensor?"), "seed": Argument("Tensor?"),
}
OTHERS = {
    "causal": Argument("bool", False), "window_left": Argument("SymInt?"), "window_right": Argument("SymInt?"),
    "query_offset": Argument("SymInt?"), "corner": Argument("str?"), "prefix": Argument("SymInt?"), "length": Argument("SymInt?"),
    "grid": Argument("SymInt[]?"), "neighborhood": Argument("SymInt[]?"), "dilation": Argument("SymInt[]", [1, 1]),
    "border": Argument("str", "clip"), "scale": Argument("float?"), "softcap": Argument("float?"),
    "paper_slopes": Argument("bool", False), "score": Argument("str", ""), "score_caps": Argument("float[]", []),
    "compatibility": Argument("str", "dot"), "sigma": Argument("float?"), "normalizer": Argument("str", "softmax"),
    "dropout_p": Argument("float", 0.0), "layout": Argument("str", "bhld"), "reproducible": Argument("bool", False),
    "threads": Argument("SymInt?"),
}
ARGUMENTS = {**TENSORS, **OTHERS}
NAMES = tuple(ARGUMENTS)
DEFAULTS = {name: argument.default for name, argument in ARGUMENTS.items()}
SCHEMA = ", ".join(f"{argument.type} {name}" for name, argument in ARGUMENTS.items())


# --- Checks, where a schema has no words of ours -------------------------------------------------------------------------


def tensor(name, value):
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    if value.layout is not torch.strided or value.is_nested:
        kind = "a nested one" if value.is_nested else f"one of layout {value.layout}"
        raise ValueError(f"{name}: expected a dense tensor, got {kind}; attention_varlen is for sequences of unequal length")
    return value


def flag(name, value):
    if not isinstance(value, (bool, SymBool)):
        raise TypeError(f"{name}: expected True or False, got {type(value).__name__}")
    return bool(value)


def number(name, value):
    if isinstance(value, Tensor) and value.requires_grad:
        raise ValueError(f"{name}: expected a number, got a tensor that requires a gradient, which there is of arrays alone")
    if isinstance(value, (bool, Tensor)) or not (isinstance(value, (SymFloat, SymInt)) or hasattr(value, "__float__")):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    return value if isinstance(value, (float, SymFloat)) else float(value)


def integer(name, value):
    if isinstance(value, SymInt) or type(value) is int:
        return value
    try:
        if isinstance(value, (bool, Tensor)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}") from None


def word(name, value):
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a word, got {type(value).__name__}")
    return value


def pair(name, value):
    """Two integers, of which one may stand for both."""
    if not isinstance(value, (tuple, list)):
        value = integer(name, value)
        return [value, value]
    if len(value) != 2:
        raise ValueError(f"{name}: expected a pair (rows, columns), got {len(value)} values")
    return [integer(name, side) for side in value]


# --- From options ---------------------------------------------------------------------------------------------------------


def _each(name, each, alone):
    """An option of one integer or one per batch."""
    def encode(to, value):
        if isinstance(value, Tensor):
            to[each] = value
        elif isinstance(value, (tuple, list)):
            to[each] = torch.tensor([integer(name, x) for x in value], dtype=torch.int64)
        else:
            to[alone] = integer(name, value)
    return encode


def _window(to, value):
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"window: expected a pair (left, right), got {type(value).__name__}")
    if len(value) != 2:
        raise ValueError(f"window: expected a pair (left, right), got {len(value)} values")
    to["window_left"], to["window_right"] = (None if side is None else integer("window", side) for side in value)


def _query_offset(to, value, encode=_each("query_offset", "query_offsets", "query_offset")):
    if isinstance(value, str):
        to["corner"] = value
    else:
        encode(to, value)


def _alibi(to, value):
    if isinstance(value, Tensor):
        to["slopes"] = value
    else:
        to["paper_slopes"] = flag("alibi", value)


def _score(to, value):
    kinds, caps, arrays = [], [], []
    for step in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(step, attend.soft_cap):
            kinds.append("soft_cap")
            caps.append(step.cap)
        elif isinstance(step, attend.bias):
            kinds.append("bias")
            arrays.append(tensor("bias", step.numbers))
        elif isinstance(step, attend.alibi):
            kinds.append("paper_alibi" if step.slopes is None else "alibi")
            if step.slopes is not None:
                arrays.append(tensor("slopes", step.slopes))
        else:
            raise TypeError(f"score: expected attend.soft_cap, attend.alibi or attend.bias, got {type(step).__name__}")
    to["score"], to["score_caps"], to["score_arrays"] = " ".join(kinds), caps, arrays


def _compatibility(to, value):
    if isinstance(value, attend.gaussian):
        to["compatibility"], to["sigma"] = "gaussian", value.sigma
    elif isinstance(value, attend.additive):
        to["compatibility"], to["additive"] = "additive", tensor("additive", value.w)
    elif value in ("gaussian", "additive"):
        raise ValueError(f"compatibility: expected attend.{value}(...), got the word {value!r}")
    else:
        to["compatibility"] = word("compatibility", value)


def seed_tensor(value):
    """A seed from 0 to 2**64 - 1 as a tensor, which holds the same bits with a sign."""
    if isinstance(value, Tensor):
        if value.dtype != torch.int64 or value.dim():
            raise TypeError("seed: expected an integer or an int64 tensor of shape (), got "
                            f"{value.dtype} of shape {tuple(value.shape)}")
        return value
    value = integer("seed", value)
    if not 0 <= value < 2**64:
        raise ValueError(f"seed: expected an integer from 0 to 2**64 - 1, got {value}")
    return torch.full((), value - 2**64 if value >= 2**63 else value, dtype=torch.int64)


def _simply(check, name):
    def encode(to, value):
        to[name] = check(name, value)
    return encode


_ENCODERS = {
    "window": _window, "query_offset": _query_offset, "alibi": _alibi, "score": _score, "compatibility": _compatibility,
    "prefix": _each("prefix", "prefixes", "prefix"), "key_lengths": _each("key_lengths", "lengths", "length"),
    "seed": lambda to, value: to.__setitem__("seed", seed_tensor(value)),
    **{name: _simply(check, name) for check, names in (
        (tensor, ("mask", "bias", "relative", "sinks", "query_segments", "key_segments")),
        (flag, ("causal", "reproducible")), (number, ("scale", "softcap", "dropout_p")), (integer, ("threads",)),
        (word, ("border", "normalizer", "layout")), (pair, ("grid", "neighborhood", "dilation")),
    ) for name in names},
}
OPTIONS = frozenset(_ENCODERS)
_NEVER_NONE = frozenset(("causal", "dilation", "border", "compatibility", "normalizer", "dropout_p", "layout", "reproducible"))


def arguments_of(options):
    """What the operators take, by name, for options as `attend.attention` has them."""
    to = dict(DEFAULTS)
    for name, value in options.items():
        if value is not None or name in _NEVER_NONE:
            _ENCODERS[name](to, value)
    return to


# --- And back -------------------------------------------------------------------------------------------------------------

_PART_OF = {  # arguments that are no options themselves
    "slopes": "alibi", "paper_slopes": "alibi", "query_offsets": "query_offset", "corner": "query_offset", "prefixes": "prefix",
    "lengths": "key_lengths", "length": "key_lengths", "window_left": "window", "window_right": "window", "score_caps": "score",
    "score_arrays": "score", "sigma": "compatibility", "additive": "compatibility",
}


def _given(arguments, *names):
    return next(arguments[name] for name in names if arguments[name] is not None)


def _score_list(arguments):
    caps, arrays = iter(arguments["score_caps"]), iter(arguments["score_arrays"])
    make = {"soft_cap": lambda: attend.soft_cap(next(caps)), "bias": lambda: attend.bias(next(arrays)),
            "alibi": lambda: attend.alibi(next(arrays)), "paper_alibi": attend.alibi}
    return [make[kind]() for kind in arguments["score"].split()]


def _compatibility_of(arguments):
    kind = arguments["compatibility"]
    if kind == "gaussian":
        return attend.gaussian(arguments["sigma"])
    return attend.additive(arguments["additive"]) if kind == "additive" else kind


_FORMS = {
    "alibi": lambda arguments: True if arguments["slopes"] is None else arguments["slopes"],
    "query_offset": lambda arguments: _given(arguments, "query_offsets", "corner", "query_offset"),
    "prefix": lambda arguments: _given(arguments, "prefixes", "prefix"),
    "key_lengths": lambda arguments: _given(arguments, "lengths", "length"),
    "window": lambda arguments: (arguments["window_left"], arguments["window_right"]),
    "score": _score_list,
    "compatibility": _compatibility_of,
    "seed": lambda arguments: arguments["seed"].item() % 2**64,
}


def options_of(values):
    """The options that such values stand for, in the order of `NAMES`."""
    arguments, options = dict(zip(NAMES, values)), {}
    for name, value in arguments.items():
        option = _PART_OF.get(name, name)
        if option not in options and (isinstance(value, Tensor) or value != DEFAULTS[name]):
            options[option] = _FORMS[option](arguments) if option in _FORMS else value
    return options
