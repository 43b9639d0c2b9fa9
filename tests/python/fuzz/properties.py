"""Other ways to say what a dense call says, which have to give the same bits.

Each takes a call, its results and the truth, and gives False where this call has no such other way.
"""

import ml_dtypes
import numpy as np

from fuzz.compare import Broken, require_bits
from fuzz.program import Call

STRUCTURE = ("causal", "window", "prefix", "query_segments", "key_segments", "key_lengths", "neighborhood", "dilation",
             "border", "mask")
RESULTS = ("out", "lse", "weights")


def same_threads(call, given, truth):
    for threads in (1, 2, 3):
        require_bits(f"threads={threads}", call.results(threads=threads), given)


def same_in_contiguous_memory(call, given, truth):
    plain = lambda x: np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x
    copy = call.changed(**{name: plain for name in (*call.options, "bias", "slopes") if name not in ("score", "threads")})
    copy = copy.but(q=plain(call.q), k=plain(call.k), v=plain(call.v))
    require_bits("contiguous copies of all arrays", copy.results(), given)


def same_out_alone(call, given, truth):
    require_bits("out alone", {"out": call.run()}, given, ("out",))


def same_in_given_memory(call, given, truth):
    """`out` with strides of its own; what lies between its elements stays."""
    want = given["out"]
    if not want.size:
        return False
    memory = np.full(tuple(2 * n + 1 for n in want.shape), 7, want.dtype)
    places = tuple(slice(2 * n - 1, None, -2) for n in want.shape)
    if call.run(out=memory[places]).ctypes.data != memory[places].ctypes.data:
        raise Broken("out=: expected the given array to be returned")
    require_bits("out=", {"out": memory[places]}, given, ("out",))
    memory[places] = 7
    if not (memory == 7).all():
        raise Broken("out=: memory between its elements was written")


# --- One mask in other words --------------------------------------------------------------------------------------------


def first_positions(call):
    """`query_offset` in numbers, one per batch, whatever it was given as."""
    (L, S), offset = call.lengths, call.options.get("query_offset")
    if isinstance(offset, str):
        offset = np.asarray(call.options.get("key_lengths", S), np.int64) - L if offset == "lower_right" else 0
    return np.broadcast_to(np.asarray(0 if offset is None else offset, np.int64), call.batch).copy()


def at_positions(call, offset):
    return call.but(query_offset=offset if offset.ndim else int(offset))


def region(call, truth):
    """What structure and masks allow, as a mask of the call."""
    shape = truth.region.shape[1:]
    return truth.region.reshape(shape if call.q.ndim == 2 else call.batch + shape)


def with_bias_where(call, allowed, otherwise):
    """The call with another number in its bias, or in one of 0, where a pair is not allowed."""
    bias = call.options.get("bias", np.zeros((), call.q.dtype))
    bias = np.broadcast_to(bias, np.broadcast_shapes(allowed.shape, bias.shape))
    return call.but(bias=np.where(allowed, bias, np.array(otherwise, bias.dtype)))


def same_as_booleans(call, given, truth):
    other = at_positions(call, first_positions(call)).but(*STRUCTURE, mask=region(call, truth))
    require_bits("the same mask as booleans", other.results(), given, RESULTS)
    return not truth.region.all()


def same_as_minus_infinity(call, given, truth):
    other = with_bias_where(at_positions(call, first_positions(call)), region(call, truth), -np.inf).but(*STRUCTURE)
    require_bits("the same mask as a bias of -inf", other.results(), given, RESULTS)
    return not truth.region.all()


def same_whatever_is_excluded(call, given, truth):
    """Keys that no row sees, values that no row weighs, queries without keys, and biases of pairs that masks exclude."""
    if 0 in truth.seen.shape or 0 in call.q.shape or 0 in call.v.shape or truth.seen.all():
        return False
    B, H, L, S = truth.seen.shape
    by_group = lambda pairs: pairs.reshape(B, call.kv_heads, -1, S).any(2)
    other = call.but(q=replaced(call, call.q, ~truth.seen.any(-1)), k=replaced(call, call.k, ~by_group(truth.seen)),
                     v=replaced(call, call.v, ~by_group(truth.allowed)))
    if "bias" in call.options:
        other = with_bias_where(other, region(call, truth), np.nan)
    require_bits("other numbers in what is excluded", other.results(), given, RESULTS)


def replaced(call, x, rows):
    """`x` with garbage in some of its rows, (B, heads, length); all batches get rows of their own."""
    x = call.heads_first(x)
    x = np.array(np.broadcast_to(x, (call.batch if x.ndim > 2 else ()) + x.shape[-3:]))
    rows = np.nonzero(rows.reshape(x.shape[:-1]))
    garbage = np.array([np.nan, np.inf, -np.inf, min(3e38, float(ml_dtypes.finfo(x.dtype).max))], x.dtype)
    x[rows] = garbage[np.arange(len(rows[0])) % len(garbage)][:, None]
    return call.heads_first(x)


# --- Less of the call ---------------------------------------------------------------------------------------------------


def same_alone(call, given, truth):
    """The last sequence of the batch without the others."""
    batch = call.batch
    if not batch or 0 in batch or ("dropout_p" in call.options and truth.problem.B > 1):
        return False
    last = tuple(n - 1 for n in batch)

    def part(trailing):
        def of(x):
            x = x.reshape((1,) * (trailing - x.ndim) + x.shape)
            return np.broadcast_to(x, batch + x.shape[x.ndim - trailing :])[last]

        return of

    number = lambda x: int(x[last]) if isinstance(x, np.ndarray) else x
    alone = call.changed(mask=part(3), bias=part(3), query_segments=part(1), key_segments=part(1), query_offset=number,
                         key_lengths=number, prefix=number)
    alone = alone.but(q=part(3)(call.q), k=part(3)(call.k), v=part(3)(call.v))
    require_bits("the last sequence alone", alone.results(), {name: x[last] for name, x in given.items()}, RESULTS)


def same_rows_when_reproducible(call, given, truth):
    """Some consecutive queries alone; not where they are cells of a grid, or dropout counts them."""
    L, _ = call.lengths
    if not call.options.get("reproducible") or L < 2 or "grid" in call.options or "dropout_p" in call.options:
        return False
    for rows in (slice(L // 2, L // 2 + 1), slice(L // 3, L)):
        cut = lambda x, rows=rows: x if x.ndim < 2 or x.shape[-2] == 1 else x[..., rows, :]
        part = at_positions(call, first_positions(call) + rows.start)
        part = part.changed(mask=cut, bias=cut, query_segments=lambda x, rows=rows: x[..., rows])
        part = part.but(q=call.heads_first(call.heads_first(call.q)[..., rows, :]))
        want = {name: x[..., rows] if name == "lse" else x[..., rows, :] for name, x in given.items() if name != "out"}
        want["out"] = call.heads_first(call.heads_first(given["out"])[..., rows, :])
        require_bits(f"queries {rows.start} to {rows.stop} alone", part.results(), want, RESULTS)


def same_with_fewer_keys(call, given, truth):
    """Keys behind the last one that any row sees may as well not be there."""
    S, seen = truth.seen.shape[-1], np.flatnonzero(truth.seen.any((0, 1, 2)))
    end = int(seen[-1]) + 1 if len(seen) else 0
    if end == S or "grid" in call.options:
        return False
    cut = lambda x: x[..., :end] if x.ndim and x.shape[-1] == S and S != 1 else x
    shorter = at_positions(call, first_positions(call)).changed(mask=cut, bias=cut, key_segments=lambda x: x[..., :end],
                                                                     key_lengths=lambda n: np.minimum(n, end))
    if isinstance(shorter.options.get("key_lengths"), np.integer):
        shorter = shorter.but(key_lengths=int(shorter.options["key_lengths"]))
    shorter = shorter.but(**{name: call.heads_first(call.heads_first(getattr(call, name))[..., :end, :]) for name in "kv"})
    want = {name: x[..., :end] if name == "weights" else x for name, x in given.items()}
    require_bits(f"the first {end} keys alone", shorter.results(), want, RESULTS)


def same_for_one_head(call, given, truth):
    """The last key/value head with its queries, without the others; not where slopes or dropout count heads."""
    H, counted = call.heads, call.options.get("alibi") is True or "dropout_p" in call.options
    counted |= any(kind == "alibi" and x is None for kind, x in call.options.get("score", ()))
    if call.kv_heads < 2 or H == 0 or counted:
        return False
    heads = slice(H - H // call.kv_heads, H)
    cut = lambda x: x if x.ndim < 3 or x.shape[-3] == 1 else x[..., heads, :, :]
    part = call.changed(mask=cut, bias=cut, relative=lambda x: x if len(x) == 1 else x[heads], alibi=lambda x: x[heads],
                        slopes=lambda x: x[heads], sinks=lambda x: x[heads])
    of = lambda x, own: call.heads_first(call.heads_first(x)[..., own, :, :])
    part = part.but(q=of(call.q, heads), k=of(call.k, slice(-1, None)), v=of(call.v, slice(-1, None)))
    want = {name: x[..., heads, :] if name == "lse" else x[..., heads, :, :] for name, x in given.items() if name != "out"}
    want["out"] = of(given["out"], heads)
    require_bits("the last key/value head alone", part.results(), want, RESULTS)


def same_as_packed(call, given, truth):
    """The batch as packed sequences of one length."""
    options = dict(call.options)
    dense = "mask" in options or "bias" in options or any(kind == "bias" for kind, _ in options.get("score", ()))
    if call.q.ndim == 2 or dense or 0 in call.batch:  # no sequences have no length
        return False
    (B, H, L, S), batch = truth.region.shape, call.batch
    options.pop("layout", None)

    def rows(x):
        x = call.heads_first(x)
        return np.broadcast_to(x, batch + x.shape[-3:]).swapaxes(-2, -3).reshape(B * x.shape[-2], x.shape[-3], x.shape[-1])

    for name, n in (("query_segments", L), ("key_segments", S)):
        if name in options:
            options[name] = np.broadcast_to(options[name], batch + (n,)).reshape(B * n)
    for name in ("query_offset", "key_lengths", "prefix"):
        if isinstance(options.get(name), np.ndarray):
            options[name] = options[name].reshape(B)
    options.setdefault("query_offset", "upper_left")
    packed = Call(rows(call.q), rows(call.k), rows(call.v), options, (np.arange(B + 1) * L, np.arange(B + 1) * S))
    want = {"out": rows(given["out"])}
    if "lse" in given:
        want["lse"] = given["lse"].swapaxes(-1, -2).reshape(B * L, H)
    require_bits("the same sequences packed", packed.results(), want)


DENSE = {
    "threads": same_threads,
    "contiguous": same_in_contiguous_memory,
    "out alone": same_out_alone,
    "given out": same_in_given_memory,
    "booleans": same_as_booleans,
    "minus infinity": same_as_minus_infinity,
    "excluded": same_whatever_is_excluded,
    "one batch": same_alone,
    "reproducible rows": same_rows_when_reproducible,
    "fewer keys": same_with_fewer_keys,
    "one head": same_for_one_head,
    "as packed": same_as_packed,
}
