"""FlexAttention of PyTorch, compiled: masks and scores as functions of positions.

Quirks: it is compiled by g++ at the first call of a case, for tens of seconds, so that it is asked only where its functions say
what other calls of PyTorch need dense masks for. On CPU blocks are of 128 × 128, and a window's block mask is made before the
clock starts.
"""

from __future__ import annotations

import shutil
from functools import partial

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from .. import definition
from ..case import Case
from ..inputs import Inputs
from .peer import Call, Unsupported, first_line, require_softmax_of_dots
from .pytorch import TorchPeer, array, tensor


def mask_of(inputs: Inputs):
    """Which keys a query sees, as a function of positions."""
    case = inputs.case
    if inputs.mask is not None:
        mask = tensor(inputs.mask)
        if mask.ndim == 3:
            return lambda b, h, i, j: mask[h, i, j]
        return lambda b, h, i, j: mask[i, j]
    if case.lengths:
        segments = torch.from_numpy(case.segments)
        return lambda b, h, i, j: segments[i] == segments[j]
    if case.window:
        left, right = case.window
        right = min(right, 0) if case.causal and right is not None else 0 if case.causal else right
        reach_left, reach_right = (case.k[2] if side is None else side for side in (left, right))
        return lambda b, h, i, j: (j >= i - reach_left) & (j <= i + reach_right)
    if case.causal:
        return lambda b, h, i, j: j <= i
    return None


def score_of(case: Case):
    """What becomes of a scaled score, as a function of positions."""
    if case.softcap:
        cap = case.softcap
        return lambda s, b, h, i, j: cap * torch.tanh(s / cap)
    if case.alibi:
        slopes = torch.from_numpy(definition.slopes(case.q[1])).to(getattr(torch, case.dtype))
        return lambda s, b, h, i, j: s - slopes[h] * torch.abs(i - j)
    return None


class FlexAttention(TorchPeer):
    name = "FlexAttention"

    def calls(self, inputs: Inputs) -> list[Call]:
        case = inputs.case
        require_softmax_of_dots(case)
        if case.documents == "packed" or not (case.window or case.mask == "boolean" or case.alibi or case.softcap or case.lengths):
            raise Unsupported("asked only about windows, boolean masks, documents, ALiBi and soft caps")
        seen = [case.mask, case.lengths, case.window or case.causal]
        others = [case.mask == "bias", case.sinks, case.dropout, case.relative, case.neighborhood, case.alibi and case.softcap]
        if any(others) or sum(map(bool, seen)) > 1:
            raise Unsupported("asked only about one option at a time")
        if not shutil.which("g++"):
            raise Unsupported("it needs g++ at run time")
        torch._dynamo.reset()  # what earlier cases compiled; more than eight of one function are not compiled at all
        mask, score = mask_of(inputs), score_of(case)
        blocks = None
        if mask:
            heads = case.q[1] if case.mask_axes == "HLS" and case.mask else None
            blocks = create_block_mask(mask, None, heads, case.q[2], case.k[2], device="cpu")
        options = {"score_mod": score, "block_mask": blocks, "scale": case.scale, "enable_gqa": case.grouped}
        compiled = torch.compile(flex_attention, dynamic=False)
        pairs = zip(inputs.k, inputs.v, strict=True)
        calls = [partial(compiled, tensor(inputs.q), tensor(k), tensor(v), **options) for k, v in pairs]
        try:
            calls[0]()
        except Exception as error:  # the compiler's own classes are not public
            raise Unsupported(first_line(error)) from error
        return calls

    def shaped(self, inputs: Inputs, result):
        return array(result)
