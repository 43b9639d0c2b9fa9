"""What the steps share: comparisons and their bounds, numbers, and the sums that return at every step, each from
`attend.attention` and from plain NumPy (`plain_...`)."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

import attend

DATA = Path(__file__).resolve().parents[1] / "data"
GIVEN = {"compatibility": "none", "normalizer": "sum"}  # weights are given, not computed: they are added to scores of 0
real = np.longdouble  # what the plain sums are made in, so that a difference is attention's error and not theirs


class Comparison(NamedTuple):
    """Numbers of attention beside those of plain sums, and how far apart they may be; no bound: they are the same bits."""

    name: str
    attend: np.ndarray
    plain: np.ndarray
    bound: np.ndarray | float | None

    def comparable(self):
        return np.shape(self.attend) == np.shape(self.plain) and np.size(self.attend) > 0

    def difference(self):
        with np.errstate(invalid="ignore"):  # two equal infinities differ by 0
            return np.where(self.attend == self.plain, 0, np.abs(np.asarray(self.attend, real) - self.plain))

    def part(self):
        """The largest part of its bound that a difference takes: infinite where one is over it, or NaN."""
        difference, bound = np.broadcast_arrays(self.difference(), self.bound)
        if not (difference <= bound).all():
            return np.inf
        return float((difference[bound > 0] / bound[bound > 0]).max(initial=0))

    def holds(self):
        if self.bound is not None:
            return self.comparable() and self.part() <= 1
        a, b = np.asarray(self.attend), np.asarray(self.plain)
        return self.comparable() and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def four_ulp(size):
    """The bound of sums of this size, Σ_j |w_j v_j|: four units in the last place."""
    return 4 * np.spacing(np.asarray(size, np.float64))


def contract(size, dtype="float64"):
    """The bound of the library's contract, for softmax and long sums of this size: max |v|, or Σ_j |w_j v_j|."""
    return {"float32": 2e-6, "float64": 1e-12}[np.dtype(dtype).name] * np.asarray(size, np.float64)


def numbers(shape, seed):
    """Random numbers of mean 0 and variance 1, those of the C++ programs: sums of twelve uniform ones."""
    z = np.arange(1, 12 * np.prod(shape, dtype=int) + 1, dtype=np.uint64) * 0x9E3779B97F4A7C15 + (seed << 40)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9  # splitmix64 (Steele, Lea, Flood, 2014)
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    uniform = ((z ^ (z >> 31)) >> 11).astype(np.float64) * 2.0**-53
    return sum(uniform.reshape(-1, 12).T, start=np.float64(-6)).reshape(shape)


def picture():
    """A picture of 64 x 64 cells, row by row: red, green and blue of each from 0 to 1, (4096, 3)."""
    return np.loadtxt(DATA / "cat.txt").reshape(-1, 3) / 255


def unasked(*shape, like):
    """Queries or keys without components: nothing is asked, and every score is 0."""
    return np.zeros((*shape, 0), like.dtype)


def weighted_sum(W, X):
    """Σ_j W_cj x_j for every row W_c, as attention: the rows x_j are the elements, and W is added to scores of 0."""
    q, k = (unasked(*(1,) * (X.ndim - 2), n, like=X) for n in W.shape)
    return attend.attention(q, k, X, bias=W, **GIVEN)


def plain_sum(W, X):
    return np.einsum("cj,...jd->...cd", W.astype(real), X)


def project(W, X):
    """W x_i for every row x_i of X. A matrix times a vector is the sum of its columns, weighted by the vector's components."""
    return weighted_sum(X, W.T)


def plain_project(W, X):
    return plain_sum(X, W.T)


def convolve(F, X, grid):
    """Filters F (filters, n, n) over the cells X (cells, D) of a grid, as attention: one head per filter, the region of a cell
    is its neighbourhood, and F is a table of weights by offset."""
    q, k = unasked(len(F), len(X), like=X), unasked(1, len(X), like=X)
    return attend.attention(q, k, X[None], grid=grid, neighborhood=F.shape[1:], relative=F, **GIVEN)


def plain_convolve(F, X, grid):
    n, (rows, columns) = F.shape[-1], grid
    padded = np.pad(X.reshape(rows, columns, -1).astype(real), ((n // 2, n // 2), (n // 2, n // 2), (0, 0)))
    y = sum(F[:, a, b, None, None, None] * padded[a : a + rows, b : b + columns] for a, b in np.ndindex(n, n))
    return y.reshape(len(F), rows * columns, -1)


def work(name, pairs, all_pairs, bound, plan):
    """What a region saves. Tiles hold many pairs, so that more are computed than are needed; `bound` limits how many more."""
    computed = plan["tiles_full"] + plan["tiles_partial"]
    tiles = computed + plan["tiles_skipped"]
    flops = f"{plan['flops'] / 1e6:.4g} Mflop"
    yield f"{name}: {pairs:.0f} pairs of {all_pairs}; the plan computes {computed} tiles of {tiles}, {flops}"
    yield Comparison("part of all tiles, part of all pairs", computed / tiles, pairs / all_pairs, bound)
