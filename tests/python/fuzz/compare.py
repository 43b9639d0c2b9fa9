"""Comparing results: with the truth, up to its error, and with each other, to the last bit."""

import ml_dtypes
import numpy as np

import reference
from fuzz import bounds, definition


class Broken(AssertionError):
    """A property that does not hold."""


def first_where(wrong):
    return tuple(int(n) for n in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def require_near(name, got, truth):
    """`got` is what `truth` says up to its error; NaN and infinities are the same."""
    want, got = truth.results[name], got.astype(np.float64)
    with np.errstate(all="ignore"):
        right = (got == want) | (np.isnan(got) & np.isnan(want))
        finite = np.isfinite(got) & np.isfinite(want)
        right |= finite & (np.abs(got - want) <= bounds.usual_error(truth, name))
    if truth.problem.dtype in reference.HALVES and name != "lse":  # what is beyond their range has become infinite
        largest = float(ml_dtypes.finfo(truth.problem.dtype).max)
        right |= (got == np.copysign(np.inf, want)) & (np.abs(want) + bounds.usual_error(truth, name) > largest)
    if not right.all() and name == "out" and np.isinf(truth.problem.v).any():
        right |= bounds.loose(truth) & ~np.isfinite(got)
    rows = np.nonzero((finite & ~right).any(-1) if name != "lse" else finite & ~right)
    if len(rows[0]):
        error = bounds.inevitable_error(truth, name, rows)
        with np.errstate(all="ignore"):
            right[rows] |= finite[rows] & (np.abs(got[rows] - want[rows]) <= error)
    if not right.all():
        index, usual = first_where(~right), np.broadcast_to(bounds.usual_error(truth, name), want.shape)
        raise Broken(f"{name}{list(index)}, as (batch, head, query, ...): expected {want[index]:.9g} within {usual[index]:.3g} "
                     f"or what rounding scores comes to, got {got[index]:.9g}; {(~right).sum()} of {right.size} are wrong")


def require_bits(what, got, want, names=None):
    """Equal to the last bit, the sign of 0 included; NaN is NaN."""
    for name in names or want:
        if name not in got or name not in want:
            continue
        a, b = got[name], want[name]
        if a.shape != b.shape:
            raise Broken(f"{what}: {name}: expected shape {b.shape}, got {a.shape}")
        equal = (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
        if not equal.all():
            index = first_where(~equal)
            raise Broken(f"{what}: {name}{list(index)} is {a[index]!r}, and {b[index]!r} in the call above; "
                         f"{(~equal).sum()} of {equal.size} differ")


def meaning(options):
    """The options that change results."""
    return {name: value for name, value in options.items() if name not in ("threads", "reproducible")}


def require_truth(call, given):
    """Gives the truth about the call, and holds its results to it."""
    truth = definition.attention(call.q, call.k, call.v, **meaning(call.options), **call.place)
    p = truth.problem
    for name, got in given.items():
        want = p.batch + (p.H, p.L) + {"out": (p.Ev,), "lse": ()}.get(name, (p.S,))
        want = want[1:] if call.q.ndim == 2 else want
        if name == "out":
            got = call.heads_first(got)
        dtype = reference.accumulator(p.dtype) if name == "lse" else p.dtype
        if got.shape != want or got.dtype != dtype:
            raise Broken(f"{name}: expected {dtype} {want}, (..., head, query, ...), got {got.dtype} {got.shape}")
        require_near(name, got.reshape(truth.results[name].shape), truth)
    return truth
