"""Who is measured: one small adapter each, from the inputs of a case to calls that take no arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import attend
from cases import Case, Inputs

try:
    import torch
except ImportError:
    torch = None

Call = Callable[[], object]


class Attend:
    """This library, called as its users call it: the result is its own."""

    name = "attend"
    version = attend.__version__

    def __init__(self, threads: int):
        self.threads = threads

    def calls(self, inputs: Inputs) -> list[Call]:
        case = inputs.case
        convert = torch.from_numpy if case.arrays == "torch" else np.asarray
        options = {"causal": case.causal, "window": case.window, "mask": inputs.mask, "bias": inputs.bias}
        options = {name: value for name, value in options.items() if value is not None and value is not False}
        options = {name: convert(value) if name in ("mask", "bias") else value for name, value in options.items()}
        q = convert(inputs.q)
        return [
            partial(attend.attention, q, convert(k), convert(v), threads=self.threads, **options)
            for k, v in zip(inputs.k, inputs.v, strict=True)
        ]


class PyTorch:
    """PyTorch's own kernel. It knows no windows: those are dense masks, made before the clock starts."""

    name = "PyTorch"
    version = torch.__version__ if torch else None

    def __init__(self, threads: int):
        torch.set_num_threads(threads)

    def calls(self, inputs: Inputs) -> list[Call]:
        case = inputs.case
        dense = inputs.bias if inputs.bias is not None else inputs.dense_mask()
        options = {
            "attn_mask": None if dense is None else torch.from_numpy(dense),
            "is_causal": case.causal,
            "enable_gqa": case.q[1] != case.k[1],
        }
        q = torch.from_numpy(inputs.q)
        return [
            partial(torch.nn.functional.scaled_dot_product_attention, q, torch.from_numpy(k), torch.from_numpy(v), **options)
            for k, v in zip(inputs.k, inputs.v, strict=True)
        ]


def can_call(case: Case) -> bool:
    """Whether the arrays of this case can be made here."""
    return case.arrays != "torch" or torch is not None


def installed(threads: int) -> list:
    """attend, and PyTorch where it is installed."""
    return [Attend(threads)] + ([PyTorch(threads)] if torch else [])
