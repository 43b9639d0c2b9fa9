"""The arrays of a case, its work counted exactly, and its result by definition in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from . import definition, gradients
from .case import SEED, SIGMA, Case
from .dtypes import is_half, numpy_dtype

REFERENCE_SCORES = 1 << 22  # scores that the reference holds at a time
BACKWARD_FLOPS = 2.5  # five products to the forward's two


def aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Memory that begins at a cache line, as PyTorch's and most engines' does; NumPy's own begins 16 bytes behind one."""
    line, bytes_ = 64, math.prod(shape) * numpy_dtype(dtype).itemsize
    memory = np.empty(bytes_ + line, np.uint8)
    begin = -memory.ctypes.data % line
    return memory[begin : begin + bytes_].view(numpy_dtype(dtype)).reshape(shape)


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
    sinks: np.ndarray | None = None
    kept: np.ndarray | None = None  # by dropout, (B, H, L, S)
    w: np.ndarray | None = None  # of `additive`
    dout: np.ndarray | None = None  # where the call gives gradients: that by its result
    truths: dict[int, tuple[np.ndarray, float]] = field(default_factory=dict)  # by cache, what `error` has computed

    @classmethod
    def random(cls, case: Case, seed: int = 3) -> Inputs:
        """Standard normal numbers, always the same for one case."""
        rng = np.random.default_rng(seed)

        def normal(shape):
            if is_half(case.dtype):  # NumPy draws no halves
                return rng.standard_normal(shape, dtype=np.float32).astype(numpy_dtype(case.dtype))
            return rng.standard_normal(shape, dtype=case.dtype)

        def caches(shape):
            first, every = normal(shape), aligned((case.caches, *shape), case.dtype)
            for i in range(case.caches):  # different memory is what counts; columns in another order show a mixed-up cache
                every[i] = np.roll(first, i, axis=-1)
            return every

        inputs = cls(case, normal(case.q), caches(case.k), caches(case.v))
        heads, queries = case.q[1:3]
        shape = tuple({"H": heads, "L": queries, "S": case.k[2]}[axis] for axis in case.mask_axes)
        if case.mask == "boolean":
            inputs.mask = rng.random(shape, dtype=np.float32) >= 1 / 64
        elif case.mask == "bias":
            inputs.bias = normal(shape)
        elif case.documents == "mask":
            inputs.mask = inputs.structure()
        if case.sinks:
            inputs.sinks = normal(case.q[1:2])
        if case.dropout:
            inputs.kept = definition.kept((*case.q[:3], case.k[2]), case.dropout, SEED)
        if case.relative is not None:
            inputs.relative = normal((case.q[1], *[2 * case.relative + 1] * (2 if case.grid else 1)))
        if case.compatibility == "additive":
            inputs.w = normal(case.q[3:]) / 8
        if case.backward:
            inputs.dout = normal((*case.q[:3], case.v[3]))
        return inputs

    @property
    def plain(self) -> Inputs | None:
        """The same arrays for the same shape without options."""
        return Inputs(self.case.plain, self.q, self.k, self.v, dout=self.dout) if self.case.plain else None

    @cached_property
    def pairs(self) -> int:
        """Pairs of a query and a key that it may see, over all batches and query heads of one call."""
        if self.mask is None and not self.case.neighborhood:
            return self.case.reach(np.arange(self.case.q[2]))
        seen = self.structure() if self.mask is None else self.structure() & self.mask
        return int(np.broadcast_to(seen, (*self.case.q[:3], self.case.k[2])).sum())

    @property
    def flops(self) -> int:
        """Of one call: a multiply-add counts two; excluded pairs and the normalizer count nothing.

        Gradients count five products beside the two of the result, though tiles of scores are made twice. A pair counts E + Ev
        multiply-adds whatever its compatibility function is, so that fractions of the limit compare with those of the dot
        product.
        """
        forward = 2 * (self.case.q[3] + self.case.v[3]) * self.pairs
        return round(forward * (1 + BACKWARD_FLOPS)) if self.case.backward else forward

    def structure(self) -> np.ndarray:
        """Which keys each query sees but for a mask, (L, S)."""
        return self.case.seen(np.arange(self.case.q[2]), np.arange(self.case.k[2]))

    def dense_mask(self) -> np.ndarray | None:
        """The mask, or the window or the documents written out, as what knows neither needs it."""
        if self.case.window is None and self.case.lengths is None:
            return self.mask
        return self.structure() if self.mask is None else self.structure() & self.mask

    def written_out(self) -> np.ndarray | None:
        """The one dense mask or bias, of rank 2 or 4, of a peer that knows nothing else; without causal, soft cap and sinks."""
        case = self.case
        rows, columns = np.arange(case.q[2]), np.arange(case.k[2])
        dense = self.bias if self.bias is not None else self.dense_mask()
        if case.relative is not None:
            dense = self.dense_relative(rows, columns)
        if case.alibi:
            dense = self.dense_alibi(rows, columns).astype(self.q.dtype)
        return dense if dense is None or dense.ndim == 2 else dense.reshape((1,) * (4 - dense.ndim) + dense.shape)

    def dense_bias(self, causal: bool = False) -> np.ndarray | None:
        """`written_out` as a bias of float32, −∞ where a key is not seen; with `causal`, that too."""
        dense, case = self.written_out(), self.case
        if causal and case.causal:
            seen = case.seen(np.arange(case.q[2]), np.arange(case.k[2]))
            dense = seen if dense is None else np.where(seen, dense, False if dense.dtype == bool else -np.inf)
        if dense is not None and dense.dtype == bool:
            return np.where(dense, np.float32(0), np.float32(-np.inf))
        return None if dense is None else dense.astype(np.float32)

    def dense_alibi(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """What ALiBi adds for these queries and keys, (H, rows, columns)."""
        return -definition.slopes(self.case.q[1])[:, None, None] * np.abs(columns - rows[:, None])

    def dense_relative(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The table written out for these queries and keys, (H, rows, columns)."""
        reach = self.case.relative
        return self.relative[(slice(None), *(np.clip(step, -reach, reach) + reach for step in self.case.steps(rows, columns)))]

    def by_group(self, array: np.ndarray, rows: np.ndarray, columns: slice) -> np.ndarray:
        """These rows and columns of an array that broadcasts against (H, L, S), (..., Hk, H / Hk, rows, columns)."""
        kv_heads = self.case.k[1]
        every = np.broadcast_to(array, (*array.shape[:-3], *self.case.q[1:3], self.case.k[2]))[..., rows, columns]
        return every.reshape(*array.shape[:-3], kv_heads, -1, len(rows), columns.stop - columns.start)

    def by_kv_head(self, array: np.ndarray) -> np.ndarray:
        """(Hk, H / Hk, rows, columns) of (H, rows, columns)."""
        return array.reshape(self.case.k[1], -1, *array.shape[1:])

    def scores(self, q: np.ndarray, k: np.ndarray, rows: np.ndarray, columns: np.ndarray, some: slice) -> np.ndarray:
        """Of these queries (B, some of Hk, H / Hk, rows, E) with these keys, in the order of the contract."""
        case, here = self.case, slice(columns[0], columns[-1] + 1)
        scores = case.factor * definition.scores(case.compatibility, q, k, sigma=SIGMA, w=self.w)
        if case.softcap:
            scores = case.softcap * np.tanh(scores / case.softcap)
        if self.bias is not None:
            scores = scores + self.by_group(self.bias, rows, here)[some]
        if self.relative is not None:
            scores = scores + self.by_kv_head(self.dense_relative(rows, columns))[some]
        if case.alibi:
            scores = scores + self.by_kv_head(self.dense_alibi(rows, columns))[some]
        return scores

    def compared_heads(self, cache: int) -> slice:
        """Key/value heads whose results are compared: all of the first cache, one of each other, because there are dozens."""
        kv_heads = self.case.k[1]
        return slice(0, kv_heads) if cache == 0 else slice(cache % kv_heads, cache % kv_heads + 1)

    def reference(self, cache: int) -> tuple[np.ndarray, float]:
        """The result of `case.rows` and `compared_heads` by definition in float64, a few rows of scores at a time, and the size of
        its terms."""
        case, some = self.case, self.compared_heads(cache)
        batch, heads, queries, width = case.q
        kv_heads, keys = case.k[1:3]
        group = heads // kv_heads
        q = self.q.reshape(batch, kv_heads, group, queries, width)[:, some].astype(np.float64)
        k, v = (array[cache][:, some].astype(np.float64)[:, :, None] for array in (self.k, self.v))
        sinks = None if self.sinks is None else self.sinks.astype(np.float64).reshape(kv_heads, group, 1, 1)[some]
        out = np.empty((*q.shape[:3], len(case.rows), v.shape[-1]))
        size = np.abs(v).max()
        step = max(1, REFERENCE_SCORES // (batch * heads * keys))
        for begin in range(0, len(case.rows), step):
            rows = case.rows[begin : begin + step]
            firsts, ends = case.interval(rows)
            columns = np.arange(firsts.min(), ends.max())
            here = slice(columns[0], columns[-1] + 1)
            scores = self.scores(q[..., rows, :], k[..., here, :], rows, columns, some)
            seen = case.seen(rows, columns)
            if self.mask is not None:
                seen = seen & self.by_group(self.mask, rows, here)[some]
            weights = definition.weights(case.normalizer, scores, seen, sinks)
            if self.kept is not None:
                weights *= self.by_group(self.kept, rows, here)[:, some] / (1 - case.dropout)
            out[..., begin : begin + len(rows), :] = weights @ v[..., here, :]
            if case.normalizer in ("mean", "sum", "sigmoid"):  # those of the others sum to at most 1
                size = max(size, (np.abs(weights) @ np.abs(v[..., here, :])).max())
        return out.reshape(batch, -1, len(case.rows), v.shape[-1]), float(size)

    @cached_property
    def gradients(self) -> tuple[np.ndarray, ...]:
        """dq, dk and dv by definition."""
        batch, heads = self.case.q[:2]
        return gradients.reference(self, max(1, REFERENCE_SCORES // (batch * heads * self.case.k[2])))

    def error_of_all(self, results: tuple[np.ndarray, ...], widened: bool = False) -> float:
        """The larger of `error` of a result and those of the gradients beside it."""
        out, *found = results
        bound = self.case.bound
        errors = (gradients.error(one, truth, bound) for one, truth in zip(found, self.gradients, strict=True))
        return float(np.max([self.error(out, 0, widened), *errors]))  # NaN where any is

    def error(self, result: np.ndarray, cache: int, widened: bool = False) -> float:
        """Largest error of a result, in units of the bound: at most 1 where it is right, NaN where it has one.

        widened: the result may be float32 where the inputs are halves.
        """
        if cache not in self.truths:
            self.truths[cache] = self.reference(cache)
        truth, size = self.truths[cache]
        types = (self.q.dtype, np.dtype(np.float32)) if widened and is_half(self.case.dtype) else (self.q.dtype,)
        if result.shape != (*self.case.q[:3], self.case.v[3]) or result.dtype not in types:
            return math.inf
        group, some = self.case.q[1] // self.case.k[1], self.compared_heads(cache)
        compared = result[:, some.start * group : some.stop * group, self.case.rows].astype(np.float64)
        return float(np.abs(compared - truth).max() / (self.case.bound * size))
