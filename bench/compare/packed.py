"""Packed sequences in the forms that calls take them in, and what PyTorch does with sequences of unequal length.

Everything here is made from arrays (1, H, total, E) before the clock starts, but for the calls that are returned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np


def tokens(array):
    """(total, H, E) of (1, H, total, E)."""
    return np.ascontiguousarray(np.swapaxes(np.asarray(array)[0], 0, 1))


def heads(array) -> np.ndarray:
    """(1, H, total, E) of (total, H, E)."""
    return np.swapaxes(np.asarray(array), 0, 1)[None]


def pieces(array, lengths: tuple[int, ...]) -> list:
    """(1, H, length, E) of each sequence."""
    return [array[:, :, begin:end].contiguous() for begin, end in pairwise(np.cumsum([0, *lengths]))]


def padded(q, k, v, lengths: tuple[int, ...], **options) -> Callable[[], object]:
    """One call over a batch in which every sequence is as long as the longest, and a mask of the keys that are there."""
    import torch

    def batch(array):
        rows = torch.zeros(len(lengths), array.shape[1], max(lengths), array.shape[3], dtype=array.dtype)
        for i, piece in enumerate(pieces(array, lengths)):
            rows[i, :, : piece.shape[2]] = piece[0]
        return rows

    there = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return partial(
        torch.nn.functional.scaled_dot_product_attention,
        *map(batch, (q, k, v)),
        attn_mask=there[:, None, None],
        **options,
    )


def loop(q, k, v, lengths: tuple[int, ...], **options) -> Callable[[], object]:
    """One call after the other; their results are left where they are."""
    import torch

    attention = partial(torch.nn.functional.scaled_dot_product_attention, **options)
    sequences = list(zip(*(pieces(array, lengths) for array in (q, k, v)), strict=True))
    return lambda: [attention(*sequence) for sequence in sequences]


def joined(result, lengths: tuple[int, ...]) -> np.ndarray:
    """(1, H, total, Ev) of what `padded` or `loop` gave."""
    one_each = [result[i, :, :length] for i, length in enumerate(lengths)] if hasattr(result, "shape") else [y[0] for y in result]
    return np.concatenate([np.asarray(y) for y in one_each], axis=1)[None]
