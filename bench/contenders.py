"""Who is measured: one small adapter each, from the inputs of a case to calls that take no arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import attend
from cases import SIGMA, Case, Inputs

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
        arrays = {"mask": inputs.mask, "bias": inputs.bias, "relative": inputs.relative}
        options = {name: convert(array) for name, array in arrays.items() if array is not None}
        for name in ("causal", "window", "grid", "neighborhood", "scale"):
            if getattr(case, name) not in (None, False):
                options[name] = getattr(case, name)
        if case.normalizer != "softmax":
            options["normalizer"] = case.normalizer
        if case.compatibility != "dot":
            functions = {"gaussian": lambda: attend.gaussian(SIGMA), "additive": lambda: attend.additive(convert(inputs.w))}
            options["compatibility"] = functions.get(case.compatibility, lambda: case.compatibility)()
        q = convert(inputs.q)
        return [
            partial(attend.attention, q, convert(k), convert(v), threads=self.threads, **options)
            for k, v in zip(inputs.k, inputs.v, strict=True)
        ]


def cosine_attention(q, k, v):
    """Vectors of length 1, then the dot product without a scale."""
    normalize = torch.nn.functional.normalize
    return torch.nn.functional.scaled_dot_product_attention(normalize(q, dim=-1), normalize(k, dim=-1), v, scale=1.0)


def convolution(image, filters):
    """(1, filters, cells, width) of an image (width, 1, rows, columns) and filters (filters, 1, size, size)."""
    y = torch.nn.functional.conv2d(image, filters, padding=filters.shape[-1] // 2)
    return y.flatten(2).permute(1, 2, 0)[None]


class PyTorch:
    """PyTorch's own kernel of the same meaning. Windows and tables are dense masks, made before the clock starts."""

    name = "PyTorch"
    version = torch.__version__ if torch else None

    def __init__(self, threads: int):
        torch.set_num_threads(threads)

    def calls(self, inputs: Inputs) -> list[Call] | None:
        """Nothing where PyTorch has no kernel for the case."""
        case = inputs.case
        q = torch.from_numpy(inputs.q)
        pairs = [(torch.from_numpy(k), torch.from_numpy(v)) for k, v in zip(inputs.k, inputs.v, strict=True)]
        form = (case.compatibility, case.normalizer)
        if form == ("cosine", "softmax"):
            return [partial(cosine_attention, q, k, v) for k, v in pairs]
        if form == ("none", "sum") and case.neighborhood and case.relative == case.neighborhood // 2:
            images = [v[0, 0].T.reshape(-1, 1, *case.grid).contiguous() for _, v in pairs]
            return [partial(convolution, image, torch.from_numpy(inputs.relative)[:, None]) for image in images]
        if form != ("dot", "softmax") or case.neighborhood:
            return None
        dense = inputs.bias if inputs.bias is not None else inputs.dense_mask()
        if case.relative is not None:
            dense = inputs.dense_relative(np.arange(case.q[2]), np.arange(case.k[2]))
        options = {
            "attn_mask": None if dense is None else torch.from_numpy(dense),
            "is_causal": case.causal,
            "enable_gqa": case.q[1] != case.k[1],
            "scale": case.scale,
        }
        return [partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, **options) for k, v in pairs]


def can_call(case: Case) -> bool:
    """Whether the arrays of this case can be made here."""
    return case.arrays != "torch" or torch is not None


def installed(threads: int) -> list:
    """attend, and PyTorch where it is installed."""
    return [Attend(threads)] + ([PyTorch(threads)] if torch else [])
