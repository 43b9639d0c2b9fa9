"""Scores and weights by definition in float64: what results are compared with before they are timed."""

from __future__ import annotations

import numpy as np

SLOW = ("l1", "additive")  # compatibility functions that take every column of every pair by itself


def one_for_zero(x: np.ndarray) -> np.ndarray:
    """What to divide by where 0 / 0 is 0."""
    return np.where(x == 0, 1.0, x)


def scores(kind: str, q: np.ndarray, k: np.ndarray, *, sigma: float = 1.0, w: np.ndarray | None = None) -> np.ndarray:
    """The compatibility function of every query (..., L, E) with every key (..., S, E)."""

    def dot(q, k):
        return q @ k.swapaxes(-1, -2)

    def squares(x):
        return np.einsum("...e,...e->...", x, x)

    def by_column(function):
        total = np.zeros((*np.broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2]))
        for d in range(q.shape[-1]):
            total += function(d, q[..., :, None, d], k[..., None, :, d])
        return total

    if kind == "dot":
        return dot(q, k)
    if kind == "cosine":
        return dot(*(x / one_for_zero(np.sqrt(squares(x)))[..., None] for x in (q, k)))
    if kind == "gaussian":
        return (dot(q, k) - squares(q)[..., :, None] / 2 - squares(k)[..., None, :] / 2) / sigma**2
    if kind == "l1":
        return by_column(lambda d, q, k: -np.abs(q - k))
    if kind == "additive":
        return by_column(lambda d, q, k: w[d] * np.tanh(q + k))
    return by_column(lambda d, q, k: 0.0)  # none


def weights(normalizer: str, s: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Weights from scores (..., L, S), which are overwritten, and from what each query sees (L, S), at least one key."""
    if normalizer == "softmax":
        s[..., ~seen] = -np.inf
        s -= s.max(axis=-1, keepdims=True)
        w = np.exp(s, out=s)
    elif normalizer == "mean":
        w = s / seen.sum(axis=-1, keepdims=True)
    elif normalizer == "sigmoid":
        w = 1 / (1 + np.exp(-s))
    else:
        w = np.maximum(s, 0) ** 2 if normalizer == "relu2" else s
    w[..., ~seen] = 0
    if normalizer in ("softmax", "relu2", "abs"):
        w /= one_for_zero(np.abs(w).sum(axis=-1, keepdims=True))
    return w
