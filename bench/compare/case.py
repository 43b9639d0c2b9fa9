"""One case: its shapes and options, and which keys its queries see."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property

import numpy as np

from . import definition
from .dtypes import BOUNDS, BYTES
from .expected import Expected

COLD_BYTES = 1 << 30  # keys and values that one round of a cold case goes through: no cache holds them
SLOW_ROWS = 128  # queries of a head that are compared where the definition is slow
SLOW_PAIRS = 1 << 28  # of a query and a key: from here on it is slow whatever it computes
SIGMA = 8.0  # of `gaussian`: for E 64, scores of about -1
SEED = 7  # of dropout

# What `overhead` is the cost of. The other fields are shapes, types, and functions of the weights.
OPTIONS = ("causal", "window", "mask", "grid", "neighborhood", "relative", "softcap", "alibi", "sinks", "dropout", "lengths")


# What a case with gradients does without.
FORWARD_ALONE = ("mask", "neighborhood", "relative", "softcap", "alibi", "sinks", "dropout", "compatibility", "normalizer", "cold",
                 "pages")


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
    pages: int | None = None  # attend reads keys and values from a cache with pages of so many; peers from one array
    backward: bool = False  # the call gives gradients of q, k and v beside its result
    arrays: str = "numpy"  # what attend is given: "numpy" or "torch", or views in "C++"; peers are always given their own
    peer: str = "padded"  # what PyTorch does with packed sequences: one call that is "padded", or a "loop" of calls
    headline: bool = False  # stands in the README
    sweep: bool = False  # a point of the curves over L: measured for plots alone
    expected: Expected = Expected()

    def __post_init__(self) -> None:
        """The definition of gradients is that of plain cases."""
        unlike = {field.name for field in fields(self) if getattr(self, field.name) != field.default} & set(FORWARD_ALONE)
        if self.backward and unlike:
            raise ValueError(f"backward: expected a case without {', '.join(sorted(unlike))}")

    @property
    def v(self) -> tuple[int, int, int, int]:
        return (*self.k[:3], self.value_width or self.k[3])

    @property
    def bound(self) -> float:
        return BOUNDS[self.dtype]

    @cached_property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of one call."""
        return BYTES[self.dtype] * (math.prod(self.k) + math.prod(self.v))

    @property
    def moved_bytes(self) -> int:
        """Bytes that one call reads and writes at least: queries, keys, values and the result."""
        return self.cache_bytes + BYTES[self.dtype] * (math.prod(self.q) + math.prod((*self.q[:3], self.v[3])))

    @property
    def weights_bytes(self) -> int:
        """Bytes of the L × S weights of one call, for those who hold them."""
        return max(4, BYTES[self.dtype]) * math.prod(self.q[:3]) * self.k[2]

    @property
    def grouped(self) -> bool:
        """Whether several query heads read one key/value head."""
        return self.q[1] != self.k[1]

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
        return replace(self, **none, documents="segments", headline=False, expected=Expected())

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
        return asdict(self) | {"v": self.v, "caches": self.caches}
