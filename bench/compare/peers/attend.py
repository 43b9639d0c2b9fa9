"""This library."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attend
import numpy as np
from attend import _core

from .. import packed
from ..case import SEED, SIGMA, Case
from ..inputs import Inputs
from .peer import Call, Peer


def in_pages(case: Case, k: np.ndarray, v: np.ndarray) -> tuple[attend.PagedKVCache, list[int]]:
    """A cache that holds these keys and values, and its sequences."""
    sequences, heads, tokens, width = case.k
    pages = sequences * -(-tokens // case.pages)
    cache = attend.PagedKVCache(pages, case.pages, heads, width, value_dim=case.v[3], dtype=case.dtype)
    ids = [cache.new_sequence() for _ in range(sequences)]
    for one, keys, values in zip(ids, k, v, strict=True):
        cache.append(one, keys, values)
    return cache, ids


class FromCpp:
    """A call as C++ makes it: over views, into memory that is there. One from Python computes; `seconds` times those of C++."""

    def __init__(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, threads: int):
        self.arguments = (q, k, v, np.empty((*q.shape[:3], v.shape[3]), q.dtype))
        self.threads = threads

    def __call__(self) -> np.ndarray:
        self.seconds(1)
        return self.arguments[-1]

    def seconds(self, repeats: int) -> float:
        """Of one call, the mean of so many."""
        return _core.seconds_of_call(*self.arguments, repeats, self.threads)


def with_gradients(q: np.ndarray, k: np.ndarray, v: np.ndarray, dout: np.ndarray, **options) -> tuple[np.ndarray, ...]:
    """(out, dq, dk, dv)."""
    out, lse = attend.attention(q, k, v, return_lse=True, **options)
    found = attend.attention_backward(dout, q, k, v, out, lse, **options)
    return out, found["dq"], found["dk"], found["dv"]


class Attend(Peer):
    """attend, called as its users call it: the result is its own."""

    name = "attend"
    version = attend.__version__
    differentiates = True
    slack: dict[str, float] = {}

    def calls(self, inputs: Inputs) -> list[Call]:
        case, convert = inputs.case, self.converter(inputs)
        options = self.options(inputs) | {"threads": self.threads}
        arrays = [(convert(inputs.q), convert(k), convert(v)) for k, v in zip(inputs.k, inputs.v, strict=True)]
        if case.documents == "packed":
            tokens = [[packed.tokens(array) for array in one] for one in arrays]
            return [partial(attend.attention_varlen, *one, case.boundaries, case.boundaries, **options) for one in tokens]
        if case.pages:
            return [self.over_pages(q, *in_pages(case, k, v)) for q, k, v in arrays]
        if case.backward:
            call = with_gradients
            if case.arrays == "torch":
                from . import pytorch

                call = partial(pytorch.with_gradients, attend.torch.attention)
            return [partial(call, *one, convert(inputs.dout), **options) for one in arrays]
        if case.arrays == "C++":
            return [FromCpp(*one, self.threads) for one in arrays]
        return [partial(attend.attention, *one, **options) for one in arrays]

    def over_pages(self, q: np.ndarray, cache: attend.PagedKVCache, sequences: list[int]) -> Call:
        return partial(attend.decode, q, cache, sequences=sequences, threads=self.threads)

    def shaped(self, inputs: Inputs, result) -> np.ndarray:
        """A result as (B, H, L, Ev)."""
        return packed.heads(result) if inputs.case.documents == "packed" else np.asarray(result)

    def tiles_flops(self, inputs: Inputs) -> float:
        """Flops of one call over the whole of every tile that it does not skip, as planned."""
        case = inputs.case
        lengths = case.lengths if case.documents == "packed" else [None]  # packed sequences are planned one by one
        shapes = [[(*shape[:2], length or shape[2], shape[3]) for shape in (case.q, case.k, case.v)] for length in lengths]
        return sum(attend.plan(*one, case.dtype, **self.options(inputs))["flops"] for one in shapes)

    def converter(self, inputs: Inputs) -> Callable:
        if inputs.case.arrays != "torch":
            return np.asarray
        import torch

        return torch.from_numpy

    def options(self, inputs: Inputs) -> dict:
        """Those that the case has, as arguments."""
        case, convert = inputs.case, self.converter(inputs)
        arrays = {"mask": inputs.mask, "bias": inputs.bias, "relative": inputs.relative, "sinks": inputs.sinks}
        options = {name: convert(array) for name, array in arrays.items() if array is not None}
        for name in ("causal", "window", "grid", "neighborhood", "scale", "softcap", "alibi"):
            if getattr(case, name) not in (None, False):
                options[name] = getattr(case, name)
        if case.dropout:
            options |= {"dropout_p": case.dropout, "seed": SEED}
        if case.lengths and case.documents == "segments":
            options |= {"query_segments": convert(case.segments), "key_segments": convert(case.segments)}
        if case.normalizer != "softmax":
            options["normalizer"] = case.normalizer
        if case.compatibility != "dot":
            functions = {"gaussian": lambda: attend.gaussian(SIGMA), "additive": lambda: attend.additive(convert(inputs.w))}
            options["compatibility"] = functions.get(case.compatibility, lambda: case.compatibility)()
        return options
