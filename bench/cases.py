"""What is measured: each case with its inputs, its work counted exactly, and its result by definition in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

COLD_BYTES = 1 << 30  # keys and values that one round of a cold case goes through: no cache holds them
BOUNDS = {"float32": 2e-6, "float64": 1e-12}  # largest error allowed, times the largest |v|
REFERENCE_SCORES = 1 << 22  # scores that the reference holds at a time


@dataclass(frozen=True)
class Case:
    """One call of attention. Shapes are (B, H, L, E), (B, Hk, S, E) and (B, Hk, S, Ev)."""

    name: str
    q: tuple[int, int, int, int]
    k: tuple[int, int, int, int]
    dtype: str = "float32"
    value_width: int | None = None  # default: E
    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    mask: str | None = None  # "boolean" or "bias": dense, of shape (L, S)
    cold: bool = False  # keys and values come from memory, so that `read` is a limit, too
    arrays: str = "numpy"  # what attend is given; PyTorch is always given its own
    headline: bool = False  # stands in the README

    @property
    def v(self) -> tuple[int, int, int, int]:
        return (*self.k[:3], self.value_width or self.k[3])

    @property
    def bound(self) -> float:
        return BOUNDS[self.dtype]

    @cached_property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of one call."""
        return np.dtype(self.dtype).itemsize * (math.prod(self.k) + math.prod(self.v))

    @property
    def caches(self) -> int:
        return math.ceil(COLD_BYTES / self.cache_bytes) if self.cold else 1

    def interval(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first key, and the one after the last, that causal and window let each query see."""
        keys = self.k[2]
        left, right = self.window or (None, None)
        if self.causal:
            right = 0 if right is None else min(right, 0)
        first = np.zeros_like(rows) if left is None else np.clip(rows - left, 0, keys)
        end = np.full_like(rows, keys) if right is None else np.clip(rows + right + 1, 0, keys)
        return first, np.maximum(first, end)

    def describe(self) -> dict:
        """The case as JSON."""
        fields = ("name", "dtype", "q", "k", "v", "causal", "window", "mask", "cold", "arrays", "caches", "headline")
        return {field: getattr(self, field) for field in fields}


def aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Memory that begins at a cache line, as PyTorch's and most engines' does; NumPy's own begins 16 bytes behind one."""
    line, bytes_ = 64, math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(bytes_ + line, np.uint8)
    begin = -memory.ctypes.data % line
    return memory[begin : begin + bytes_].view(dtype).reshape(shape)


@dataclass
class Inputs:
    """Arrays of one case; `k[i]` and `v[i]` are those of cache i."""

    case: Case
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray | None = None
    bias: np.ndarray | None = None
    truths: dict[int, np.ndarray] = field(default_factory=dict)  # by cache, what `error` has computed

    @classmethod
    def random(cls, case: Case, seed: int = 3) -> Inputs:
        """Standard normal numbers, always the same for one case."""
        rng = np.random.default_rng(seed)

        def normal(shape):
            return rng.standard_normal(shape, dtype=case.dtype)

        def caches(shape):
            first, every = normal(shape), aligned((case.caches, *shape), case.dtype)
            for i in range(case.caches):  # different memory is what counts; different numbers show a mixed-up cache
                np.multiply(first, 1 + i / 64, out=every[i])
            return every

        inputs = cls(case, normal(case.q), caches(case.k), caches(case.v))
        queries, keys = case.q[2], case.k[2]
        if case.mask == "boolean":
            inputs.mask = rng.random((queries, keys), dtype=np.float32) >= 1 / 64
        elif case.mask == "bias":
            inputs.bias = normal((queries, keys))
        return inputs

    @cached_property
    def pairs(self) -> int:
        """Pairs of a query and a key that it may see, over all batches and query heads of one call."""
        batch, heads, queries, _ = self.case.q
        first, end = self.case.interval(np.arange(queries))
        each = int(self.mask.sum()) if self.mask is not None else int((end - first).sum())
        return batch * heads * each

    @property
    def flops(self) -> int:
        """Of one call: a multiply-add counts two; excluded pairs and the softmax count nothing."""
        return 2 * (self.case.q[3] + self.case.v[3]) * self.pairs

    def dense_mask(self) -> np.ndarray | None:
        """The mask, or the window written out, as what knows no windows needs it."""
        if self.case.window is None:
            return self.mask
        queries, keys = np.arange(self.case.q[2]), np.arange(self.case.k[2])
        first, end = self.case.interval(queries)
        return (keys >= first[:, None]) & (keys < end[:, None])

    def reference(self, cache: int) -> np.ndarray:
        """The result by definition in float64, a few rows of scores at a time."""
        batch, heads, queries, width = self.case.q
        kv_heads, keys = self.case.k[1:3]
        q = self.q.astype(np.float64).reshape(batch, kv_heads, heads // kv_heads, queries, width) / math.sqrt(width)
        k, v = (array[cache].astype(np.float64)[:, :, None] for array in (self.k, self.v))
        out = np.empty((*q.shape[:4], v.shape[-1]))
        step = max(1, REFERENCE_SCORES // (batch * heads * keys))
        for row in range(0, queries, step):
            rows = np.arange(row, min(row + step, queries))
            firsts, ends = self.case.interval(rows)
            first, end = int(firsts.min()), int(ends.max())
            columns = np.arange(first, end)
            scores = q[..., rows, :] @ k[..., first:end, :].swapaxes(-1, -2)
            if self.bias is not None:
                scores += self.bias[row : row + step, first:end]
            seen = (columns >= firsts[:, None]) & (columns < ends[:, None])
            if self.mask is not None:
                seen &= self.mask[row : row + step, first:end]
            scores[..., ~seen] = -np.inf
            scores -= scores.max(axis=-1, keepdims=True)
            weights = np.exp(scores, out=scores)
            weights /= weights.sum(axis=-1, keepdims=True)
            out[..., rows, :] = weights @ v[..., first:end, :]
        return out.reshape(batch, heads, queries, -1)

    def error(self, result: np.ndarray, cache: int) -> float:
        """Largest error of a result, in units of the bound: at most 1 where it is right, NaN where it has one."""
        if cache not in self.truths:
            self.truths[cache] = self.reference(cache)
        truth = self.truths[cache]
        if result.shape != truth.shape or result.dtype != self.q.dtype:
            return math.inf
        largest = np.abs(result - truth).max()
        return float(largest / (self.case.bound * np.abs(self.v[cache]).max()))


def all_cases() -> Iterator[Case]:
    """Every case, in the order of the table."""
    for dtype in ("float32", "float64"):
        for width in (64, 128):
            for causal in (False, True):
                shape = (1, 8, 2048, width)
                name = f"prefill 2048, E {width}{', causal' if causal else ''}"
                headline = dtype == "float32" or (width == 64 and not causal)
                yield Case(name, shape, shape, dtype, causal=causal, headline=headline)

    yield Case("boolean mask 2048, E 64", (1, 8, 2048, 64), (1, 8, 2048, 64), mask="boolean", headline=True)
    yield Case("bias 2048, E 64", (1, 8, 2048, 64), (1, 8, 2048, 64), mask="bias")
    yield Case("window 256 of 8192, E 64", (1, 8, 8192, 64), (1, 8, 8192, 64), window=(255, 0), headline=True)
    for length in (16, 64):
        yield Case(f"64 short sequences, L {length}", (64, 12, length, 64), (64, 12, length, 64), headline=length == 64)
    yield Case("vision, L 197", (8, 12, 197, 64), (8, 12, 197, 64), headline=True)
    yield Case("cross attention, 77 keys, E 40", (2, 8, 4096, 40), (2, 8, 77, 40), headline=True)
    for kv_heads in (8, 32):
        name = f"decode 4096, 32 heads, {kv_heads} key/value heads"
        yield Case(name, (1, 32, 1, 128), (1, kv_heads, 4096, 128), cold=True, headline=True)
    yield Case("tiny call, L 4, S 16, E 16", (1, 1, 4, 16), (1, 1, 16, 16), headline=True)
    yield Case("tiny call, torch tensors", (1, 1, 4, 16), (1, 1, 16, 16), arrays="torch")
