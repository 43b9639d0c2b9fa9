"""Attention by its definition in float64, the bounds results are held to, and small problems to hold them with."""

import numpy as np

BOUND = {"float32": 2e-6, "float64": 1e-12}  # of the largest |v|


def problem(B=2, H=4, L=5, S=7, E=8, Ev=6, Hk=2, dtype="float32", seed=0):
    """q (B, H, L, E), k (B, Hk, S, E), v (B, Hk, S, Ev)."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in ((B, H, L, E), (B, Hk, S, E), (B, Hk, S, Ev)))


def attention(q, k, v, *, mask=True, bias=0.0, scale=None):
    """(out, lse, weights) of arrays whose heads come third from the right; `mask` is everything that is allowed."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(x, group, -3) for x in (k, v))
    scores = (q.shape[-1] ** -0.5 if scale is None else scale) * (q @ k.swapaxes(-1, -2)) + bias
    scores = np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isinf(top), 0.0, top)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.log(total[..., 0]) + top[..., 0]
    weights = weights / np.where(total == 0, 1.0, total)
    return weights @ v, lse, weights


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
