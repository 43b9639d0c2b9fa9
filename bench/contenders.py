"""Who is measured: one small adapter each, from the inputs of a case to calls that take no arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

import attend
import packed
from cases import SEED, SIGMA, Case
from inputs import Inputs

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
        case, convert = inputs.case, self.converter(inputs)
        options = self.options(inputs) | {"threads": self.threads}
        arrays = [(convert(inputs.q), convert(k), convert(v)) for k, v in zip(inputs.k, inputs.v, strict=True)]
        if case.documents == "packed":
            tokens = [[packed.tokens(array) for array in one] for one in arrays]
            return [partial(attend.attention_varlen, *one, case.boundaries, case.boundaries, **options) for one in tokens]
        return [partial(attend.attention, *one, **options) for one in arrays]

    def meant(self, inputs: Inputs) -> Inputs:
        """What its results are compared with."""
        return inputs

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
        return torch.from_numpy if inputs.case.arrays == "torch" else np.asarray

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


def cosine_attention(q, k, v):
    """Vectors of length 1, then the dot product without a scale."""
    normalize = torch.nn.functional.normalize
    return torch.nn.functional.scaled_dot_product_attention(normalize(q, dim=-1), normalize(k, dim=-1), v, scale=1.0)


def convolution(image, filters):
    """(1, filters, cells, width) of an image (width, 1, rows, columns) and filters (filters, 1, size, size)."""
    y = torch.nn.functional.conv2d(image, filters, padding=filters.shape[-1] // 2)
    return y.flatten(2).permute(1, 2, 0)[None]


def dropout_attention(q, k, v, **options):
    """With the same weights dropped by every call."""
    torch.manual_seed(SEED)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)


def with_sink(array):
    """One more key, or its value, of zeros: its score is its bias alone, and it adds nothing to a sum of values."""
    return torch.nn.functional.pad(array, (0, 0, 0, 1))


class PyTorch:
    """PyTorch's own kernel of the same meaning. Windows, documents, ALiBi and tables are dense masks, and a sink is one more
    key, all made before the clock starts."""

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
        if form != ("dot", "softmax") or case.neighborhood or case.softcap:
            return None
        options = {"enable_gqa": case.q[1] != case.k[1], "scale": case.scale}
        if case.documents == "packed":
            return [getattr(packed, case.peer)(q, k, v, case.lengths, **options) for k, v in pairs]
        if inputs.sinks is not None:
            pairs = [(with_sink(k), with_sink(v)) for k, v in pairs]
        dense = self.mask(inputs)
        options |= {"attn_mask": None if dense is None else torch.from_numpy(dense), "is_causal": case.causal}
        if case.dropout:
            return [partial(dropout_attention, q, k, v, dropout_p=case.dropout, **options) for k, v in pairs]
        return [partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, **options) for k, v in pairs]

    def mask(self, inputs: Inputs) -> np.ndarray | None:
        """What the one argument for a mask or a bias has to be; of rank 2 or 4, which the kernel for CPUs takes."""
        case = inputs.case
        rows, columns = np.arange(case.q[2]), np.arange(case.k[2])
        dense = inputs.bias if inputs.bias is not None else inputs.dense_mask()
        if case.relative is not None:
            dense = inputs.dense_relative(rows, columns)
        if case.alibi:
            dense = inputs.dense_alibi(rows, columns).astype(case.dtype)
        if inputs.sinks is not None:
            dense = np.zeros((case.q[1], 1, case.k[2] + 1), case.dtype)
            dense[..., -1] = inputs.sinks[:, None]
        return dense if dense is None or dense.ndim == 2 else dense.reshape((1,) * (4 - dense.ndim) + dense.shape)

    def meant(self, inputs: Inputs) -> Inputs:
        """What its results are compared with: it drops other weights."""
        if inputs.kept is None:
            return inputs
        torch.manual_seed(SEED)
        ones = torch.ones(inputs.kept.shape, dtype=getattr(torch, inputs.case.dtype))
        dropped = torch.nn.functional.dropout(ones, inputs.case.dropout)
        return replace(inputs, kept=dropped.numpy() != 0, truths={})

    def shaped(self, inputs: Inputs, result) -> np.ndarray:
        """A result as (B, H, L, Ev)."""
        return packed.joined(result, inputs.case.lengths) if inputs.case.documents == "packed" else np.asarray(result)


def can_call(case: Case) -> bool:
    """Whether the arrays of this case can be made here."""
    return case.arrays != "torch" or torch is not None


def installed(threads: int) -> list:
    """attend, and PyTorch where it is installed."""
    return [Attend(threads)] + ([PyTorch(threads)] if torch else [])
