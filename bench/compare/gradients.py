"""Gradients by definition in float64: what a call that is forward and backward is compared with, beside its result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from . import definition

if TYPE_CHECKING:
    from .inputs import Inputs

SLACK = 10  # times the bound of results, relative to the largest element of a gradient


def reference(inputs: Inputs, rows_at_once: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dq, dk and dv of softmax over dot products, a few rows of scores at a time."""
    case = inputs.case
    batch, heads, queries, width = case.q
    kv_heads = case.k[1]
    group = (batch, kv_heads, heads // kv_heads, queries)
    q, dout = (array.astype(np.float64).reshape(*group, array.shape[-1]) for array in (inputs.q, inputs.dout))
    k, v = (array[0].astype(np.float64)[:, :, None] for array in (inputs.k, inputs.v))
    dq, dk, dv = np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
    for begin in range(0, queries, rows_at_once):
        rows = np.arange(begin, min(begin + rows_at_once, queries))
        first, end = case.interval(rows)
        columns = np.arange(first.min(), end.max())
        here, lines = slice(columns[0], columns[-1] + 1), slice(begin, begin + len(rows))
        scores = inputs.scores(q[..., lines, :], k[..., here, :], rows, columns, slice(None))
        weights = definition.weights("softmax", scores, case.seen(rows, columns))
        some = dout[..., lines, :]
        dweights = some @ v[..., here, :].swapaxes(-1, -2)
        dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True)) * case.factor
        dq[..., lines, :] = dscores @ k[..., here, :]
        dk[..., here, :] += (dscores.swapaxes(-1, -2) @ q[..., lines, :]).sum(axis=2, keepdims=True)
        dv[..., here, :] += (weights.swapaxes(-1, -2) @ some).sum(axis=2, keepdims=True)
    return dq.reshape(batch, heads, queries, width), dk[:, :, 0], dv[:, :, 0]


def error(found: np.ndarray, truth: np.ndarray, bound: float) -> float:
    """Largest error of a gradient, in units of what is allowed; NaN where it has one."""
    if found.shape != truth.shape:
        return math.inf
    return float(np.abs(found.astype(np.float64) - truth).max() / (SLACK * bound * np.abs(truth).max()))
