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


def slopes(heads: int) -> np.ndarray:
    """ALiBi's, for a number of heads that is a power of two (Press et al., Train Short, Test Long, 2022)."""
    return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)


def weights(normalizer: str, s: np.ndarray, seen: np.ndarray, sinks: np.ndarray | None = None) -> np.ndarray:
    """Weights from scores (..., L, S), which are overwritten.

    seen: what each query sees, (..., L, S), at least one key. sinks: logits (..., 1, 1) that join the sums of softmax.
    """
    if normalizer == "softmax":
        np.copyto(s, -np.inf, where=~seen)
        top = s.max(axis=-1, keepdims=True)
        if sinks is not None:
            top = np.maximum(top, sinks)
        s -= top
        w = np.exp(s, out=s)
        return w / (w.sum(axis=-1, keepdims=True) + (0 if sinks is None else np.exp(sinks - top)))
    if normalizer == "mean":
        w = s / seen.sum(axis=-1, keepdims=True)
    elif normalizer == "sigmoid":
        w = 1 / (1 + np.exp(-s))
    else:
        w = np.maximum(s, 0) ** 2 if normalizer == "relu2" else s
    np.copyto(w, 0, where=~seen)
    if normalizer in ("relu2", "abs"):
        w /= one_for_zero(np.abs(w).sum(axis=-1, keepdims=True))
    return w


def philox(key: tuple[int, int], counter: list) -> list[np.ndarray]:
    """Four words for each counter of four (Philox 4x32-10; Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011)."""
    low_half, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [np.asarray(part, np.uint64) for part in counter]
    for turn in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        keys = (np.uint64((k + turn * step) & 0xFFFFFFFF) for k, step in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True))
        c = [(b >> word) ^ c[1] ^ next(keys), b & low_half, (a >> word) ^ c[3] ^ next(keys), a & low_half]
    return c


def kept(shape: tuple[int, int, int, int], probability: float, seed: int) -> np.ndarray:
    """Which weights (B, H, L, S) a dropout of this probability keeps, as booleans."""
    batch, heads, queries, keys = shape
    out = np.empty(shape, bool)
    for b, h in np.ndindex(batch, heads):
        words = philox((seed & 0xFFFFFFFF, seed >> 32), [np.arange(-(-keys // 4)), np.arange(queries)[:, None], h, b])
        out[b, h] = (np.stack(words, axis=-1) >= probability * 2.0**32).reshape(queries, -1)[:, :keys]
    return out
