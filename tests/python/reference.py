"""Attention by its definition in float64, the bounds results are held to, and small problems to hold them with."""

import ml_dtypes  # noqa: F401  NumPy's name "bfloat16"
import numpy as np

BOUND = {"float32": 2e-6, "float64": 1e-12, "float16": 1e-3, "bfloat16": 8e-3}  # of the largest |v|
DTYPES = tuple(BOUND)
HALVES = ("float16", "bfloat16")


def tensor_of(torch, x):
    """A tensor over an array's memory; torch knows no bfloat16 of NumPy's."""
    return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype == "bfloat16" else torch.from_numpy(x)


def accumulator(dtype):
    """What sums, softmax and LSE are held in."""
    return "float64" if dtype == "float64" else "float32"


def problem(B=2, H=4, L=5, S=7, E=8, Ev=6, Hk=2, dtype="float32", seed=0):
    """q (B, H, L, E), k (B, Hk, S, E), v (B, Hk, S, Ev)."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in ((B, H, L, E), (B, Hk, S, E), (B, Hk, S, Ev)))


def gaussian(sigma):
    return lambda q, k: -np.sum((q - k) ** 2, -1) / (2 * sigma**2)


def additive(w):
    return lambda q, k: np.sum(np.asarray(w, np.float64) * np.tanh(q + k), -1)


def cosine(q, k):
    sizes = np.sqrt(np.sum(q * q, -1) * np.sum(k * k, -1))
    return np.where(sizes == 0, 0.0, np.sum(q * k, -1) / np.where(sizes == 0, 1.0, sizes))


COMPATIBILITY = {
    "dot": lambda q, k: np.sum(q * k, -1),
    "cosine": cosine,
    "l1": lambda q, k: -np.sum(np.abs(q - k), -1),
    "none": lambda q, k: np.zeros(np.broadcast_shapes(q.shape, k.shape)[:-1]),
}


def share(weights):
    """Weights over the sum of their sizes; 0 where that is 0."""
    total = np.abs(weights).sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1.0, total)


def softmax(scores, allowed):
    top = np.where(allowed, scores, -np.inf).max(-1, keepdims=True, initial=-np.inf)
    return share(np.where(allowed, np.exp(scores - np.where(np.isinf(top), 0.0, top)), 0.0))


NORMALIZER = {  # weights from scores, which are 0 where a key is excluded
    "softmax": softmax,
    "mean": lambda s, allowed: s / np.maximum(allowed.sum(-1, keepdims=True), 1),
    "sum": lambda s, allowed: s,
    "sigmoid": lambda s, allowed: np.where(allowed, 1 / (1 + np.exp(-s)), 0.0),
    "relu2": lambda s, allowed: share(np.maximum(s, 0) ** 2),
    "abs": lambda s, allowed: share(s),
}


def soft_cap(cap):
    return lambda scores: cap * np.tanh(scores / cap)


def plus(numbers):
    return lambda scores: scores + numbers


def attention(q, k, v, *, mask=True, bias=0.0, scale=None, compatibility="dot", normalizer="softmax", score=(), sinks=None,
              keep=1.0):
    """(out, lse, weights) of arrays whose heads come third from the right; `mask` is everything that is allowed, `bias`
    everything that is added; `compatibility` a word or a function of q and k; `score` functions of the scaled scores, one after
    the other; `keep` what dropout multiplies weights by."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(x, group, -3) for x in (k, v))
    scores = scores_of(q, k, scale=scale, compatibility=compatibility, score=score) + bias
    allowed = np.broadcast_to(mask, scores.shape) & (scores != -np.inf)
    scores = np.where(allowed, scores, 0.0)
    if sinks is None:
        weights = NORMALIZER[normalizer](scores, allowed)
    else:  # one more key, which every row may see and whose value is 0
        sinks = np.broadcast_to(np.asarray(sinks, np.float64)[:, None, None], (*scores.shape[:-1], 1))
        weights = softmax(np.concatenate([scores, sinks], -1), np.concatenate([allowed, sinks != -np.inf], -1))[..., :-1]
    with np.errstate(divide="ignore"):
        lse = np.log(np.where(allowed, np.exp(scores), 0.0).sum(-1) + (0.0 if sinks is None else np.exp(sinks[..., 0])))
    weights = weights * keep
    return weights @ v, lse, weights


def scores_of(q, k, *, scale=None, compatibility="dot", score=()):
    """Scores before biases and masks, of as many heads of k as of q."""
    if scale is None:
        scale = q.shape[-1] ** -0.5 if compatibility == "dot" else 1.0
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    scores = scale * COMPATIBILITY.get(compatibility, compatibility)(q[..., :, None, :], k[..., None, :, :])
    for f in score:
        scores = f(scores)
    return scores


def paper_slopes(H):
    """ALiBi's slopes for H heads."""
    rule = lambda n: [2.0 ** (-8 * h / n) for h in range(1, n + 1)]
    below = 2 ** (H.bit_length() - 1)
    return np.array((rule(below) + rule(2 * below)[::2])[:H])


def alibi(slopes, L, S, offset=0):
    """The bias (H, L, S) of ALiBi."""
    return -np.asarray(slopes, np.float64)[:, None, None] * abs(np.arange(L)[:, None] + offset - np.arange(S))


def philox(key, counter):
    """One block of four words of Philox 4x32-10 (Salmon et al., 2011), as Python's own integers compute it."""
    c, (low, high) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ low, b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ high, a & 0xFFFFFFFF]
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return c


def kept(shape, p, seed, first_batch=0):
    """What dropout multiplies weights of the shape (B, H, L, S) by."""
    B, H, L, S = shape
    key = seed & 0xFFFFFFFF, seed >> 32
    words = [[[sum((philox(key, (four, i, h, first_batch + b)) for four in range(-(-S // 4))), [])[:S] for i in range(L)]
              for h in range(H)] for b in range(B)]
    return np.where(np.reshape(words, shape) >= p * 2.0**32, 1 / (1 - p), 0.0)


def axis_neighbors(size, kernel, dilation, border):
    """(size, size) booleans: the cells of a kernel around each cell of an axis."""
    cells = np.arange(size)
    if border == "clip":
        steps = cells - cells[:, None]
        return (steps % dilation == 0) & (abs(steps) <= kernel // 2 * dilation)
    near = np.zeros((size, size), bool)
    for cell in cells:  # of all kernels that fit among the cells with its remainder, the one whose middle is nearest to it
        members = cells[cell % dilation :: dilation]
        fits = [members[first : first + kernel] for first in range(len(members) - kernel + 1)]
        near[cell, min(fits, key=lambda cells: abs(cells[kernel // 2] - cell))] = True
    return near


def neighbors(grid, kernel, dilation=(1, 1), border="clip"):
    """(L, S) booleans of a neighbourhood on a grid."""
    rows, columns = (axis_neighbors(*axis, border) for axis in zip(grid, kernel, dilation, strict=True))
    return (rows[:, None, :, None] & columns[None, :, None, :]).reshape((grid[0] * grid[1],) * 2)


def relative(table, L, S, offset=0):
    """The bias (..., L, S) that a table (H or 1, 2R+1) stands for; one `offset`, or one per batch."""
    reach = table.shape[-1] // 2
    steps = np.arange(S) - (np.arange(L)[:, None] + np.asarray(offset)[..., None, None])
    return np.moveaxis(table.astype(np.float64)[:, np.clip(steps, -reach, reach) + reach], 0, -3)


def relative_on_grid(table, grid):
    """The bias (H or 1, L, S) that a table (H or 1, 2R+1, 2C+1) stands for."""
    cells = np.arange(grid[0] * grid[1])
    at = []
    for place, reach in zip(np.divmod(cells, grid[1]), (table.shape[1] // 2, table.shape[2] // 2), strict=True):
        at.append(np.clip(place - place[:, None], -reach, reach) + reach)
    return table.astype(np.float64)[:, at[0], at[1]]


def size_of(weights, v):
    """What errors are relative to: the largest |v|, or the largest sum of terms where weights do not sum to 1."""
    v = np.repeat(abs(np.asarray(v, np.float64)), weights.shape[-3] // v.shape[-3], -3)
    return max(v.max(initial=0.0), (abs(weights) @ v).max(initial=0.0))


def causal(L, S, offset=0):
    return np.arange(S) <= np.arange(L)[:, None] + offset


def assert_close(got, want, v_max=1.0, times=1.0):
    """`got` has the shape of `want` and its bound is that of its own dtype; infinities and NaNs agree."""
    got, want = np.asarray(got), np.asarray(want, np.float64)
    assert got.shape == want.shape
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(got.astype(np.float64) - want)).max(initial=0.0)
    bound = times * BOUND[got.dtype.name] * max(v_max, 1e-30)
    assert error <= bound, f"largest error {error:.3g}, bound {bound:.3g}"
