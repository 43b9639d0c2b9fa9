"""What is measured: each case with its inputs, its work counted exactly, and its result by definition in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

import definition

COLD_BYTES = 1 << 30  # keys and values that one round of a cold case goes through: no cache holds them
BOUNDS = {"float32": 2e-6, "float64": 1e-12}  # largest error allowed, times the largest |v| or sum of |w v|
REFERENCE_SCORES = 1 << 22  # scores that the reference holds at a time
SLOW_ROWS = 128  # queries of a head that are compared where the definition is slow
SIGMA = 8.0  # of `gaussian`: for E 64, scores of about -1


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
    grid: tuple[int, int] | None = None
    neighborhood: int | None = None  # cells of the kernel along each axis
    relative: int | None = None  # how far a table of offsets, one for each head, reaches along each axis
    compatibility: str = "dot"
    normalizer: str = "softmax"
    scale: float | None = None  # default: that of the compatibility
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

    @property
    def factor(self) -> float:
        """The scale, with its default."""
        if self.scale is not None:
            return self.scale
        return 1 / math.sqrt(self.q[3]) if self.compatibility == "dot" else 1.0

    @cached_property
    def rows(self) -> np.ndarray:
        """Queries whose results are compared: all, or a choice of them where the definition is slow."""
        queries = self.q[2]
        if self.compatibility not in definition.SLOW or queries <= SLOW_ROWS:
            return np.arange(queries)
        return np.sort(np.random.default_rng(1).choice(queries, SLOW_ROWS, replace=False))

    def interval(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first key, and the one after the last, that causal and window, or rows of a grid, let each query see."""
        keys = self.k[2]
        left, right = self.window or (None, None)
        if self.causal:
            right = 0 if right is None else min(right, 0)
        first = np.zeros_like(rows) if left is None else np.clip(rows - left, 0, keys)
        end = np.full_like(rows, keys) if right is None else np.clip(rows + right + 1, 0, keys)
        if self.neighborhood:
            row, reach, columns = rows // self.grid[1], self.neighborhood // 2, self.grid[1]
            first, end = np.maximum(first, (row - reach) * columns), np.minimum(end, (row + reach + 1) * columns)
        return first, np.maximum(first, end)

    def steps(self, rows: np.ndarray, columns: np.ndarray) -> list[np.ndarray]:
        """How far each key stands from each query: along the sequence, or along rows and columns of the grid."""
        if not self.grid:
            return [columns - rows[:, None]]
        return [columns // self.grid[1] - rows[:, None] // self.grid[1], columns % self.grid[1] - rows[:, None] % self.grid[1]]

    def seen(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Which of these keys each of these queries sees by structure, as booleans of shape (rows, columns)."""
        first, end = self.interval(rows)
        seen = (columns >= first[:, None]) & (columns < end[:, None])
        if self.neighborhood:
            for step in self.steps(rows, columns):
                seen &= np.abs(step) <= self.neighborhood // 2
        return seen

    def describe(self) -> dict:
        """The case as JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"v": self.v, "caches": self.caches}


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
    relative: np.ndarray | None = None
    w: np.ndarray | None = None  # of `additive`
    truths: dict[int, tuple[np.ndarray, float]] = field(default_factory=dict)  # by cache, what `error` has computed

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
        if case.relative is not None:
            inputs.relative = normal((case.q[1], *[2 * case.relative + 1] * (2 if case.grid else 1)))
        if case.compatibility == "additive":
            inputs.w = normal(case.q[3:]) / 8
        return inputs

    @cached_property
    def pairs(self) -> int:
        """Pairs of a query and a key that it may see, over all batches and query heads of one call."""
        batch, heads, queries, _ = self.case.q
        rows, columns = np.arange(queries), np.arange(self.case.k[2])
        if self.mask is None and not self.case.neighborhood:
            first, end = self.case.interval(rows)
            return batch * heads * int((end - first).sum())
        seen = self.case.seen(rows, columns)
        return batch * heads * int((seen if self.mask is None else seen & self.mask).sum())

    @property
    def flops(self) -> int:
        """Of one call: a multiply-add counts two; excluded pairs and the normalizer count nothing.

        A pair counts E + Ev multiply-adds whatever its compatibility function is, so that fractions of the limit compare with
        those of the dot product.
        """
        return 2 * (self.case.q[3] + self.case.v[3]) * self.pairs

    def dense_mask(self) -> np.ndarray | None:
        """The mask, or the window written out, as what knows no windows needs it."""
        if self.case.window is None:
            return self.mask
        return self.case.seen(np.arange(self.case.q[2]), np.arange(self.case.k[2]))

    def dense_relative(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The table written out for these queries and keys, (H, rows, columns)."""
        reach = self.case.relative
        return self.relative[:, *(np.clip(step, -reach, reach) + reach for step in self.case.steps(rows, columns))]

    def reference(self, cache: int) -> tuple[np.ndarray, float]:
        """The result of `case.rows` by definition in float64, a few rows of scores at a time, and the size of its terms."""
        case = self.case
        batch, heads, queries, width = case.q
        kv_heads, keys = case.k[1:3]
        group = heads // kv_heads
        q = self.q.astype(np.float64).reshape(batch, kv_heads, group, queries, width)
        k, v = (array[cache].astype(np.float64)[:, :, None] for array in (self.k, self.v))
        out = np.empty((*q.shape[:3], len(case.rows), v.shape[-1]))
        size = np.abs(v).max()
        step = max(1, REFERENCE_SCORES // (batch * heads * keys))
        for begin in range(0, len(case.rows), step):
            rows = case.rows[begin : begin + step]
            firsts, ends = case.interval(rows)
            columns = np.arange(firsts.min(), ends.max())
            here = slice(columns[0], columns[-1] + 1)
            scores = case.factor * definition.scores(
                case.compatibility, q[..., rows, :], k[..., here, :], sigma=SIGMA, w=self.w
            )
            if self.bias is not None:
                scores += self.bias[rows, here]
            if self.relative is not None:
                scores = scores + self.dense_relative(rows, columns).reshape(kv_heads, group, len(rows), len(columns))
            seen = case.seen(rows, columns)
            if self.mask is not None:
                seen &= self.mask[rows, here]
            weights = definition.weights(case.normalizer, scores, seen)
            out[..., begin : begin + len(rows), :] = weights @ v[..., here, :]
            if case.normalizer in ("mean", "sum", "sigmoid"):  # those of the others sum to at most 1
                size = max(size, (np.abs(weights) @ np.abs(v[..., here, :])).max())
        return out.reshape(batch, heads, len(case.rows), v.shape[-1]), float(size)

    def error(self, result: np.ndarray, cache: int) -> float:
        """Largest error of a result, in units of the bound: at most 1 where it is right, NaN where it has one."""
        if cache not in self.truths:
            self.truths[cache] = self.reference(cache)
        truth, size = self.truths[cache]
        if result.shape != (*self.case.q[:3], self.case.v[3]) or result.dtype != self.q.dtype:
            return math.inf
        return float(np.abs(result[:, :, self.case.rows] - truth).max() / (self.case.bound * size))


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
    for dtype in ("float32", "float64"):
        shape = (1, 8, 2048, 64)
        for kind in ("cosine", "gaussian", "l1", "additive", "none"):
            # Sums of 64 sizes: smaller scores are rounded within the bound, too.
            scale = 1 / 8 if kind == "l1" else None
            yield Case(f"compatibility {kind}", shape, shape, dtype, compatibility=kind, scale=scale)
        for kind in ("mean", "sum", "sigmoid", "relu2", "abs"):
            yield Case(f"normaliser {kind}", shape, shape, dtype, normalizer=kind)
    yield Case("relative table 2048, R 128", (1, 8, 2048, 64), (1, 8, 2048, 64), relative=128)
    grid = {"grid": (64, 64)}
    yield Case("neighbourhood 7x7 on 64x64, E 64", (1, 8, 4096, 64), (1, 8, 4096, 64), neighborhood=7, **grid)
    filters = {"neighborhood": 3, "relative": 1, "compatibility": "none", "normalizer": "sum", **grid}
    for width in (1, 64):  # eight filters over one image of numbers, or of vectors; no score is made of columns
        name = f"convolution 3x3 on 64x64{', vectors of 64' if width > 1 else ''}"
        yield Case(name, (1, 8, 4096, 0), (1, 1, 4096, 0), value_width=width, **filters)

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
