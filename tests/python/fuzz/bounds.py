"""How far off a result may be: the contract's bound, and what rounding scores makes inevitable.

An element may be off by `BOUND` of the largest |v| that its row sees, or of the sum of |w v| where that is larger. Where a
result is further off, its row is looked at again: scores whose terms have sizes that add up to at most M are off by
delta = 2 eps M, and the normaliser carries that on to weights and results. Nothing is linearised, so that this also holds where
delta is large.
"""

import numpy as np

import reference

BOUND = reference.BOUND
SHARES = ("softmax", "relu2", "abs")


class Rows:
    """Some rows of a truth, (n, S), and what rounding may do to them."""

    def __init__(self, truth, rows):
        p = truth.problem
        self.normalizer, self.allowed, self.s = p.normalizer, p.allowed[rows], p.s[rows]
        self.w, self.kept = truth.before[rows], np.broadcast_to(truth.kept, p.shape)[rows]
        self.v, self.y = p.v[rows[:2]], truth.results["out"][rows]
        self.delta = score_error(p, rows)
        self.total = np.broadcast_to(p.total, p.shape[:3] + (1,))[rows]
        self.top = p.top[rows] if self.normalizer in SHARES else None
        self.moved = np.where(self.allowed, self.spread(), 0)

    def spread(self):
        """By how much each weight may move, before a share's sum moves with it; infinite where it may take any share."""
        delta, s = self.delta, np.where(self.allowed, self.s, 0)
        if self.normalizer == "softmax":  # where delta is large, any of the keys that are near the top may take all
            near = np.where(self.s >= self.top - 2 * delta - 100, np.inf, 0)
            small = np.minimum(delta, 10)
            return np.where(delta > 10, near, self.w * np.expm1(small) * np.exp(small))
        if self.normalizer in ("mean", "sum"):
            return delta / np.maximum(self.total, 1)
        if self.normalizer == "sigmoid":
            return np.minimum(1, self.w * np.expm1(np.minimum(delta, 50)))
        s, delta = s / self.top, delta / self.top
        moved = delta if self.normalizer == "abs" else np.where(s > -delta, (2 * np.abs(s) + delta) * delta, 0)
        moved = np.where(self.allowed, moved, 0)
        least = self.total - moved.sum(-1, keepdims=True)  # of what the sum may become
        return np.where(least > 0, moved / np.where(least > 0, least, 1), np.where(moved > 0, np.inf, 0))

    def error_of_weights(self):
        moved = self.moved
        if self.normalizer in SHARES:
            moved = np.minimum(moved, 2) + np.abs(self.w) * np.minimum(moved.sum(-1, keepdims=True), 2)
        return moved * self.kept

    def error_of_out(self):
        v = np.where(np.isfinite(self.v), self.v, 0) * self.kept[..., None]  # (n, S, Ev)
        pull = np.where(np.isfinite(self.y), self.y, 0)[:, None, :] if self.normalizer in SHARES else 0
        away = np.abs(v - pull)
        if self.normalizer == "abs":
            turned = np.abs(v - np.sign(self.s)[..., None] * pull)
            away = np.where((np.abs(self.s) > self.delta)[..., None], turned, np.abs(v) + np.abs(pull))
        wild = (np.isinf(self.moved) & self.allowed)[..., None]
        carried = (np.where(wild, 0, self.moved[..., None]) * np.where(self.allowed[..., None], away, 0)).sum(1)
        return carried + 2 * np.where(wild, np.abs(v) + np.abs(pull), 0).max(1, initial=0)


def score_error(p, rows, stage=None):
    """2 eps M of some rows, (n, 1): M is the largest size of a score that matters, or of any score of a stage."""
    size = p.sizes(stage or "biased")[rows]
    eps, most, tiny = (float(x) for x in (p.sums.eps, p.sums.max, p.sums.tiny))
    size = np.where(np.isfinite(size) & (size <= most), size, 0)
    if stage is None:
        size = np.where(p.allowed[rows], size, 0)
        if p.normalizer == "softmax":  # keys far below the top weigh nothing, however large they are
            size = np.where(p.s[rows] + 4 * eps * size < p.top[rows] - 1000, 0, size)
    return 2 * eps * size.max(-1, keepdims=True, initial=0) + tiny  # products below the smallest normal number


def usual_error(truth, name):
    """The error that needs no second look."""
    p, x = truth.problem, truth.results[name]
    bound, tiny = BOUND[p.sums.dtype.name if name == "lse" else p.dtype], float(p.sums.tiny)
    if p.dtype == "float16" and name != "lse":
        tiny = 2.0**-25  # half of its smallest number
    finite = np.where(np.isfinite(x), np.abs(x), 0)
    if name != "out":
        return bound * np.maximum(np.max(truth.kept, initial=1) if name == "weights" else 1, finite) + tiny
    values = np.where(np.isfinite(p.v), np.abs(p.v), 0)
    if values.max(initial=0) < 1e3:
        most = values.max(-2, initial=0)[..., None, :]
    else:
        columns = [np.where(p.allowed, values[..., None, :, c], 0).max(-1, initial=0) for c in range(p.Ev)]
        most = np.stack(columns, -1) if columns else np.zeros(x.shape)
    most = most * np.max(truth.kept, initial=1)
    if p.normalizer not in SHARES:
        w = np.abs(truth.results["weights"])
        w = np.where(np.isfinite(w), w, 0)
        most, tiny = np.maximum(most, w @ values), tiny * np.maximum(1, w.sum(-1, keepdims=True))
    return bound * np.broadcast_to(most, x.shape) + tiny


def inevitable_error(truth, name, rows):
    """What rounding scores makes inevitable in some rows, given as (batches, heads, queries)."""
    p = truth.problem
    with np.errstate(all="ignore"):
        if name in ("scaled", "capped", "biased"):
            error = score_error(p, rows, name)
        elif name == "lse":
            error = score_error(p, rows)[:, 0]
        else:
            errors = Rows.error_of_out if name == "out" else Rows.error_of_weights
            error = np.concatenate([errors(Rows(truth, piece)) for piece in pieces_of(rows)])
    if p.dtype in reference.HALVES and name != "lse":  # whose results are rounded once more
        error = error + usual_error(truth, name)[rows]
    return np.nan_to_num(error, nan=0.0, posinf=np.inf)


def loose(truth):
    """Elements of out where an infinite value meets a weight that may round to 0 or change its sign: infinite or NaN."""
    p = truth.problem
    found, gone = np.zeros(truth.results["out"].shape, bool), 1e-290 if p.dtype == "float64" else 1e-30
    rows = np.nonzero(np.broadcast_to(np.isinf(p.v).any((2, 3))[..., None], p.shape[:3]))
    with np.errstate(all="ignore"):
        for piece in pieces_of(rows):
            row = Rows(truth, piece)
            w = np.abs(row.w)
            small = row.allowed & (w - row.moved <= gone * np.maximum(w.max(-1, keepdims=True, initial=0), 1))
            found[piece] = (small[..., None] & np.isinf(row.v)).any(1)
    return found


def pieces_of(rows):
    """Some rows at a time: what is computed of each takes S times Ev numbers."""
    return [tuple(x[n : n + 32] for x in rows) for n in range(0, len(rows[0]), 32)]
