"""The contract, evaluated densely in float64: every score of every pair in memory.

Nothing here is cut into tiles, and nothing is shared with the library but the meaning of its options. `attention` gives a
`Truth`, whose arrays have one batch axis: (B, H, L, ...).
"""

import math
from dataclasses import dataclass

import numpy as np

import reference

INTEGERS = (int, np.integer)


def alibi_slopes(heads):
    """2^(-8h/n) for h = 1 .. n; where n is no power of two, those of the power below, then every other one of the next."""
    powers = lambda n: [2.0 ** (-8.0 * h / n) for h in range(1, n + 1)]
    below = 1 << max(heads.bit_length() - 1, 0)
    return np.array((powers(below) + powers(2 * below)[::2])[:heads])


def philox(seed, b, h, i, j):
    """Word j % 4 of Philox 4x32-10 with key (low, high word of seed) and counter (j // 4, i, h, b)."""
    word = lambda x: np.asarray(x, np.uint64) & np.uint64(0xFFFFFFFF)
    c, key = [word(x) for x in (j // 4, i, h, b)], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, third = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        high = [x >> np.uint64(32) for x in (first, third)]
        c = [high[1] ^ c[1] ^ np.uint64(key[0]), word(third), high[0] ^ c[3] ^ np.uint64(key[1]), word(first)]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    words = np.broadcast_arrays(*c, j)[:4]
    return np.select([j % 4 == n for n in range(4)], words)


class Problem:
    """A call as arrays with one batch axis: q (B, H, L, E), k and v (B, H, S, .) with a row for every query head."""

    def __init__(self, q, k, v, *, layout="bhld", mask=None, bias=None, causal=False, window=None, query_offset=None,
                 prefix=None, query_segments=None, key_segments=None, key_lengths=None, grid=None, neighborhood=None,
                 dilation=1, border="clip", relative=None, scale=None, softcap=None, alibi=None, sinks=None, score=None,
                 compatibility="dot", normalizer="softmax", dropout_p=0.0, seed=None, first_batch=0):
        self.dtype, self.layout, self.normalizer = q.dtype.name, layout, normalizer
        self.sums = np.finfo(reference.accumulator(self.dtype))
        q, k, v = (x[None] if x.ndim == 2 else x if layout == "bhld" else x.swapaxes(-2, -3) for x in (q, k, v))
        self.batch = batch = np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
        self.B, (self.H, self.L, self.E), (kv_heads, self.S, self.Ev) = math.prod(batch), q.shape[-3:], v.shape[-3:]
        self.shape = (self.B, self.H, self.L, self.S)
        flat = lambda x: np.broadcast_to(x, batch + x.shape[-3:]).reshape(self.B, *x.shape[-3:]).astype(np.float64)
        heads = np.arange(self.H) // (self.H // kv_heads if kv_heads else 1)
        self.q, self.k, self.v = flat(q), flat(k)[:, heads], flat(v)[:, heads]
        self.scale = scale if scale is not None else self.E**-0.5 if compatibility == "dot" and self.E else 1.0
        self.compatibility, self.dropout, self.known_sizes = compatibility, (dropout_p, seed, first_batch), {}

        lengths = self.per_batch(self.S if key_lengths is None else key_lengths)
        self.there = np.arange(self.S) < lengths
        if isinstance(query_offset, str):
            query_offset = (lengths - self.L).reshape(batch) if query_offset == "lower_right" else 0
        offset = self.per_batch(0 if query_offset is None else query_offset)
        self.distance = np.arange(self.S) - (np.arange(self.L)[:, None] + offset)  # key less position: (B, 1, L, S)
        self.grid = grid
        self.find_allowed(mask, causal, window, prefix, query_segments, key_segments, neighborhood, dilation, border)
        self.sinks = None if sinks is None else sinks.astype(np.float64)[:, None, None]

        steps = [] if score is None else list(score)
        steps += [("soft_cap", softcap)] * (softcap is not None)
        self.capped = len(steps)
        steps += [("bias", bias)] * (bias is not None) + [("relative", relative)] * (relative is not None)
        steps += [("alibi", alibi)] * (alibi is not None and alibi is not False)
        self.steps = [(kind, self.argument_of(kind, value)) for kind, value in steps]

    def per_batch(self, x):
        return np.broadcast_to(np.asarray(x, np.int64), self.batch).reshape(self.B, 1, 1, 1)

    def dense(self, x):
        return np.broadcast_to(x, (1,) * (1 - len(self.batch)) + self.batch + self.shape[1:]).reshape(self.shape)

    def find_allowed(self, mask, causal, window, prefix, query_segments, key_segments, neighborhood, dilation, border):
        d = self.distance
        allowed = np.ones(self.shape, bool)
        if causal:
            allowed &= d <= 0
        left, right = window or (None, None)
        if left is not None:
            allowed &= d >= -left
        if right is not None:
            allowed &= d <= right
        if prefix is not None:
            allowed |= np.arange(self.S) < self.per_batch(prefix)
        if query_segments is not None:
            mine, other = (np.broadcast_to(x, self.batch + (n,)).reshape(self.B, 1, n)
                           for x, n in ((query_segments, self.L), (key_segments, self.S)))
            allowed &= (mine[..., :, None] == other[..., None, :]) & (mine >= 0)[..., None]
        if neighborhood is not None:
            pair = lambda n: (n, n) if isinstance(n, INTEGERS) else tuple(n)
            allowed &= reference.neighbors(self.grid, pair(neighborhood), pair(dilation), border)
        if mask is not None:
            allowed &= self.dense(mask)
        self.region = allowed & self.there

    def argument_of(self, kind, value):
        """What a step needs: a cap, the numbers it adds, or the slopes."""
        if kind == "soft_cap":
            return value
        if kind == "bias":
            return self.dense(value).astype(np.float64)
        if kind == "relative":
            if self.grid is not None:
                return reference.relative_on_grid(value, self.grid).astype(np.float64)
            reach = value.shape[-1] // 2
            at = np.clip(self.distance, -reach, reach)[:, 0] + reach
            return np.moveaxis(value.astype(np.float64)[:, at], 0, 1)
        slopes = alibi_slopes(self.H) if value is None or value is True else value
        return np.abs(self.distance) * slopes.astype(np.float64)[:, None, None]

    def compatibilities(self, sizes=False):
        """f(q, k), or the sizes of its terms added up."""
        f, q, k = self.compatibility, self.q, self.k
        if f == "none" or self.E == 0:
            return np.zeros(self.shape)
        if f == "cosine":
            q, k = unit(q), unit(k)
        if f in ("dot", "cosine"):
            return np.abs(q) @ np.abs(k).swapaxes(-1, -2) if sizes else q @ k.swapaxes(-1, -2)
        value = np.zeros(self.shape)
        for d in range(self.E):
            a, b = q[..., d][..., :, None], k[..., d][..., None, :]
            if f == "l1":
                term = -np.abs(a - b)
            elif hasattr(f, "sigma"):
                term = -(((a - b) / f.sigma) ** 2) / 2
            else:
                term = float(f.w[d]) * np.tanh(a + b)
            value += np.abs(term) if sizes else term
        return value

    def find_scores(self):
        """Scores by stage; what a bias excludes leaves the pairs that are seen, and at last so does -inf."""
        s = self.scale * self.compatibilities()
        excluded, self.stages = ~self.there, {"scaled": s}
        for n, (kind, x) in enumerate([*self.steps, (None, None)]):
            if n == self.capped:
                self.stages["capped"] = np.where(excluded, -np.inf, s)
            if kind == "soft_cap":
                s = x * np.tanh(s / x)
            elif kind == "alibi":
                s = s - x
            elif kind:
                s, excluded = s + x, excluded | (x == -np.inf)
        self.seen = self.region & ~excluded
        self.allowed = self.seen & (s != -np.inf)
        self.s = self.stages["biased"] = np.where(self.allowed, s, -np.inf)
        self.stages["scaled"] = np.where(self.there, self.stages["scaled"], -np.inf)

    def sizes(self, stage):
        """The sizes of the terms of each score, added up: what its rounding is relative to."""
        if stage not in self.known_sizes:
            size = np.abs(self.scale) * self.compatibilities(sizes=True)
            for kind, x in self.steps[: {"scaled": 0, "capped": self.capped, "biased": None}[stage]]:
                if kind == "soft_cap":  # a score that leaves the range is the cap itself
                    size = np.where(size <= float(self.sums.max), size, x)
                else:
                    size = size + np.abs(x)
            self.known_sizes[stage] = size
        return self.known_sizes[stage]

    def find_weights(self):
        """Weights before dropout, what they have been divided by, and LSE."""
        s, lse, total = np.where(self.allowed, self.s, 0), None, np.ones((1, 1, 1, 1))
        if self.normalizer == "softmax":
            top = self.s.max(-1, keepdims=True, initial=-np.inf)
            if self.sinks is not None:
                top = np.maximum(top, self.sinks)
            self.top = np.where(top == -np.inf, 0, top)
            w = np.where(self.allowed, np.exp(self.s - self.top), 0)
            total = w.sum(-1, keepdims=True) + (0 if self.sinks is None else np.exp(self.sinks - self.top))
            empty = -np.inf if self.sinks is None else self.sinks[..., 0]
            lse = np.where(self.allowed.any(-1), (self.top + np.log(total))[..., 0], empty)
        elif self.normalizer == "mean":
            w, total = s, self.allowed.sum(-1, keepdims=True)
        elif self.normalizer in ("sum", "sigmoid"):
            w = s if self.normalizer == "sum" else 1 / (1 + np.exp(-s))
        else:  # shares are taken of s / top, so that no sum leaves the range
            top = np.nanmax(np.abs(s), -1, keepdims=True, initial=0)
            top = np.where((top == 0) | np.isinf(top), 1, top)
            w = s / top if self.normalizer == "abs" else np.where(s <= 0, 0, (s / top) ** 2)
            total = np.abs(w).sum(-1, keepdims=True)
            self.top = top
        self.total = total
        return np.where(self.allowed, w / np.where(total == 0, 1, total), 0), lse

    def factors(self):
        """What dropout multiplies the weights by."""
        p, seed, first = self.dropout
        if p == 0:
            return np.ones((1, 1, 1, 1))
        b, h, i, j = np.ogrid[first : first + self.B, : self.H, : self.L, : self.S]
        return np.where(philox(seed, b, h, i, j) >= p * 2.0**32, 1 / (1 - p) if p < 1 else 0, 0)


def unit(x):
    """Vectors of length 1; zero vectors stay, infinities and NaN give NaN."""
    most = np.abs(x).max(-1, keepdims=True)
    x = x / np.where(most == 0, 1, most)
    return x / np.where(most == 0, 1, np.sqrt((x * x).sum(-1, keepdims=True)))


def combine(w, v, allowed):
    """sum over allowed j of w[.., i, j] v[.., j, c]: what is not allowed is not there, not even as 0 times NaN."""
    if np.isfinite(v).all() and np.isfinite(w).all():
        return w @ v
    columns = [np.where(allowed, w * v[..., None, :, c], 0).sum(-1) for c in range(v.shape[-1])]
    return np.stack(columns, -1) if columns else np.zeros(w.shape[:-1] + (0,))


@dataclass
class Truth:
    """What a call gives: arrays (B, H, L, ...)."""

    problem: Problem
    results: dict  # out, lse of softmax alone, weights, and scores by stage
    before: np.ndarray  # weights before dropout
    kept: np.ndarray  # what dropout multiplied them by

    # Pairs that structure and masks allow, those of them that no bias excludes, and those whose score is not -inf.
    @property
    def region(self):
        return self.problem.region

    @property
    def seen(self):
        return self.problem.seen

    @property
    def allowed(self):
        return self.problem.allowed


def attention(q, k, v, **options):
    """The truth about `attend.attention(q, k, v, **options)`; `first_batch` is the number of the first sequence for dropout."""
    with np.errstate(all="ignore"):
        p = Problem(q, k, v, **options)
        p.find_scores()
        w, lse = p.find_weights()
        kept = p.factors()
        results = {"out": combine(w * kept, p.v, p.allowed), "weights": w * kept, **p.stages}
        if lse is not None:
            results["lse"] = lse
        return Truth(p, results, w, kept)
