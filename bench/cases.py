"""What is measured: each case, and which keys its queries see."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

import definition

COLD_BYTES = 1 << 30  # keys and values that one round of a cold case goes through: no cache holds them
BOUNDS = {"float32": 2e-6, "float64": 1e-12}  # largest error allowed, times the largest |v| or sum of |w v|
SLOW_ROWS = 128  # queries of a head that are compared where the definition is slow
SLOW_PAIRS = 1 << 28  # of a query and a key: from here on it is slow whatever it computes
SIGMA = 8.0  # of `gaussian`: for E 64, scores of about -1
SEED = 7  # of dropout

# What `overhead` is the cost of. The other fields are shapes, types, and functions of the weights.
OPTIONS = ("causal", "window", "mask", "grid", "neighborhood", "relative", "softcap", "alibi", "sinks", "dropout", "lengths")

DOCUMENTS = (37, 113, 180, 245, 301, 333, 391, 448)  # 2048 tokens
SKEWED = tuple(round(16 * 64 ** (i / 31) ** 2) for i in range(32))  # from 16 to 1024, most of them short


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
    mask: str | None = None  # "boolean" or "bias"
    mask_axes: str = "LS"  # of the mask's shape, letters of HLS
    grid: tuple[int, int] | None = None
    neighborhood: int | None = None  # cells of the kernel along each axis
    relative: int | None = None  # how far a table of offsets, one for each head, reaches along each axis
    softcap: float | None = None
    alibi: bool = False
    sinks: bool = False
    dropout: float = 0.0
    lengths: tuple[int, ...] | None = None  # of documents along the sequence, each of which sees itself alone
    documents: str = "segments"  # how a call learns of them: as "segments", from a dense "mask", or "packed"
    compatibility: str = "dot"
    normalizer: str = "softmax"
    scale: float | None = None  # default: that of the compatibility
    cold: bool = False  # keys and values come from memory, so that `read` is a limit, too
    arrays: str = "numpy"  # what attend is given; PyTorch is always given its own
    peer: str = "padded"  # what PyTorch does with packed sequences: one call that is "padded", or a "loop" of calls
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

    @property
    def plain(self) -> Case | None:
        """The same shape without options; nothing where there is no option, or where it is another function of the weights."""
        none = {field.name: field.default for field in fields(self) if field.name in OPTIONS}
        if (self.compatibility, self.normalizer) != ("dot", "softmax") or all(getattr(self, name) == none[name] for name in none):
            return None
        return replace(self, **none, documents="segments", headline=False)

    @cached_property
    def rows(self) -> np.ndarray:
        """Queries whose results are compared: all, or a choice of them where the definition is slow."""
        queries = self.q[2]
        if queries <= SLOW_ROWS or (self.compatibility not in definition.SLOW and self.reach(np.arange(queries)) < SLOW_PAIRS):
            return np.arange(queries)
        return np.sort(np.random.default_rng(1).choice(queries, SLOW_ROWS, replace=False))

    @cached_property
    def boundaries(self) -> np.ndarray:
        """Where documents begin, and where the last one ends."""
        return np.cumsum([0, *self.lengths])

    @cached_property
    def segments(self) -> np.ndarray:
        """The document that each query and each key is of."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def reach(self, rows: np.ndarray) -> int:
        """Pairs of these queries and the keys of their intervals, over all batches and query heads."""
        first, end = self.interval(rows)
        return self.q[0] * self.q[1] * int((end - first).sum())

    def interval(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first key, and the one after the last, that causal, window and documents, or rows of a grid, let each query see."""
        keys = self.k[2]
        left, right = self.window or (None, None)
        if self.causal:
            right = 0 if right is None else min(right, 0)
        first = np.zeros_like(rows) if left is None else np.clip(rows - left, 0, keys)
        end = np.full_like(rows, keys) if right is None else np.clip(rows + right + 1, 0, keys)
        if self.neighborhood:
            row, reach, columns = rows // self.grid[1], self.neighborhood // 2, self.grid[1]
            first, end = np.maximum(first, (row - reach) * columns), np.minimum(end, (row + reach + 1) * columns)
        if self.lengths:
            document = self.segments[rows]
            first, end = np.maximum(first, self.boundaries[document]), np.minimum(end, self.boundaries[document + 1])
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
    yield from with_options()
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

    packed = {"lengths": SKEWED, "documents": "packed"}
    for peer in ("padded", "loop"):
        shape = (1, 8, sum(SKEWED), 64)
        yield Case(f"32 packed sequences of 16 to 1024, {peer}", shape, shape, peer=peer, **packed, headline=True)

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


def with_options() -> Iterator[Case]:
    """One option at a time."""
    shape, width = (1, 8, 2048, 64), "2048, E 64"
    yield Case(f"boolean mask per head {width}", shape, shape, mask="boolean", mask_axes="HLS")
    yield Case(f"bias per head {width}", shape, shape, mask="bias", mask_axes="HLS")
    yield Case(f"bias per key {width}", shape, shape, mask="bias", mask_axes="S")
    yield Case(f"ALiBi {width}", shape, shape, alibi=True)
    yield Case(f"soft cap {width}", shape, shape, softcap=30.0)
    yield Case(f"sinks {width}", shape, shape, sinks=True)
    yield Case(f"dropout 0.1, {width}", shape, shape, dropout=0.1)
    for documents in ("segments", "mask"):
        name = {"segments": "segments", "mask": "block-diagonal mask"}[documents]
        yield Case(f"{name} 2048, 8 documents", shape, shape, lengths=DOCUMENTS, documents=documents)
