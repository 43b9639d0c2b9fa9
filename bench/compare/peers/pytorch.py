"""PyTorch: scaled_dot_product_attention.

Quirks: on CPU its kernel is the flash kernel wherever that takes the call, else the one of plain products and softmax ("math"),
which holds L × S weights; the flash kernel takes masks of rank 2 and 4 alone. bfloat16 crosses from NumPy as 16-bit words.
Threads are `torch.set_num_threads`.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .. import packed
from ..case import SEED
from ..inputs import Inputs
from .peer import Call, Peer, Unsupported, as_stored, require_moderate_weights, require_written_out


def tensor(array: np.ndarray) -> torch.Tensor:
    """Over the memory of an array of any type."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array(result: torch.Tensor) -> np.ndarray:
    """And back."""
    if result.dtype == torch.bfloat16:
        return as_stored(result.view(torch.int16).numpy(), "bfloat16")
    return result.numpy()


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


def with_gradients(attention, q, k, v, dout, **options):
    """(out, dq, dk, dv) of a function of tensors, by autograd."""
    inputs = [one.detach().requires_grad_() for one in (q, k, v)]
    out = attention(*inputs, **options)
    return out.detach(), *torch.autograd.grad(out, inputs, dout)


class TorchPeer(Peer):
    """What all that runs inside PyTorch has in common."""

    version = torch.__version__

    def __init__(self, threads: int):
        super().__init__(threads)
        torch.set_num_threads(threads)


class PyTorch(TorchPeer):
    """PyTorch's own kernel of the same meaning. Windows, documents, ALiBi and tables are dense masks, and a sink is one more
    key, all made before the clock starts."""

    name = "PyTorch"
    differentiates = True

    def calls(self, inputs: Inputs) -> list[Call]:
        case = inputs.case
        q = tensor(inputs.q)
        pairs = [(tensor(k), tensor(v)) for k, v in zip(inputs.k, inputs.v, strict=True)]
        form = (case.compatibility, case.normalizer)
        if form == ("cosine", "softmax"):
            return [partial(cosine_attention, q, k, v) for k, v in pairs]
        if form == ("none", "sum") and case.neighborhood and case.relative == case.neighborhood // 2:
            images = [v[0, 0].T.reshape(-1, 1, *case.grid).contiguous() for _, v in pairs]
            return [partial(convolution, image, tensor(inputs.relative)[:, None]) for image in images]
        if form != ("dot", "softmax") or case.neighborhood or case.softcap:
            raise Unsupported("dot products and softmax, or those of cosines, without soft cap or neighbourhood; convolutions")
        options = {"enable_gqa": case.grouped, "scale": case.scale}
        if case.documents == "packed":
            return [getattr(packed, case.peer)(q, k, v, case.lengths, **options) for k, v in pairs]
        if inputs.sinks is not None:
            pairs = [(with_sink(k), with_sink(v)) for k, v in pairs]
        dense = self.mask(inputs)
        options |= {"attn_mask": None if dense is None else tensor(dense), "is_causal": case.causal}
        if case.dropout:
            return [partial(dropout_attention, q, k, v, dropout_p=case.dropout, **options) for k, v in pairs]
        attention = torch.nn.functional.scaled_dot_product_attention
        if case.backward:
            return [partial(with_gradients, attention, q, k, v, tensor(inputs.dout), **options) for k, v in pairs]
        return [partial(attention, q, k, v, **options) for k, v in pairs]

    def mask(self, inputs: Inputs) -> np.ndarray | None:
        """What the one argument for a mask or a bias has to be, of rank 2 or 4; of one more key where there is a sink."""
        if inputs.sinks is None:
            return inputs.written_out()
        case = inputs.case
        dense = np.zeros((1, case.q[1], 1, case.k[2] + 1), inputs.q.dtype)
        dense[..., -1] = inputs.sinks[:, None]
        return dense

    def meant(self, inputs: Inputs) -> Inputs:
        """It drops other weights."""
        if inputs.kept is None:
            return inputs
        torch.manual_seed(SEED)
        ones = torch.ones(inputs.kept.shape, dtype=getattr(torch, inputs.case.dtype))
        dropped = torch.nn.functional.dropout(ones, inputs.case.dropout)
        return replace(inputs, kept=dropped.numpy() != 0, truths={})

    def kernel(self, inputs: Inputs, calls: list[Call]) -> str:
        if inputs.case.compatibility == "none":
            return "convolution"
        try:
            with warnings.catch_warnings(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                warnings.simplefilter("ignore")  # why not is told as warnings
                calls[0]()
        except RuntimeError:  # no kernel is left
            return "math"
        return "flash"

    def shaped(self, inputs: Inputs, result) -> np.ndarray:
        return packed.joined(result, inputs.case.lengths) if inputs.case.documents == "packed" else array(result)


class PyTorchMath(PyTorch):
    """The same calls by the kernel of plain products and softmax."""

    name = "PyTorch math"

    def calls(self, inputs: Inputs) -> list[Call]:
        require_written_out(inputs.case, "sinks")
        require_moderate_weights(inputs.case)
        calls = super().calls(inputs)
        if super().kernel(inputs, calls) == "math":
            raise Unsupported("what PyTorch itself runs here")
        return calls

    def kernel(self, inputs: Inputs, calls: list[Call]) -> str:
        return "math"

    def running(self) -> AbstractContextManager:
        return sdpa_kernel(SDPBackend.MATH)
