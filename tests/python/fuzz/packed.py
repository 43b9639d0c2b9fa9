"""Packed calls: the truth about each sequence, and other ways to say the same."""

import numpy as np

from fuzz import properties
from fuzz.compare import require_bits, require_truth
from fuzz.program import Call


def sequences(call):
    """(rows of queries, rows of keys, the sequence as a dense call of layout blhd) for each."""
    cu_q, cu_k = (x.tolist() for x in call.packed)
    for s in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[s], cu_q[s + 1]), slice(cu_k[s], cu_k[s + 1])
        number = lambda x, s=s: int(x[s]) if isinstance(x, np.ndarray) else x
        options = {"query_offset": "lower_right", **call.options, "layout": "blhd"}
        alone = Call(call.q[rows], call.k[keys], call.v[keys], options, place={"first_batch": s})
        yield rows, keys, alone.changed(query_segments=lambda x, rows=rows: x[rows], key_segments=lambda x, keys=keys: x[keys],
                                        query_offset=number, key_lengths=number, prefix=number)


def part_of(given, rows):
    """A sequence's results, as its dense call gives them."""
    return {name: x[rows] if name == "out" else x[rows].T for name, x in given.items()}


def require_truths(call, given):
    return [require_truth(alone, part_of(given, rows)) for rows, _, alone in sequences(call)]


def same_alone(call, given, truths):
    """Each sequence as a call of its own; with dropout, which counts sequences, the first."""
    for s, (rows, _, alone) in enumerate(sequences(call)):
        if s == 0 or "dropout_p" not in call.options:
            require_bits(f"sequence {s} alone", alone.results(), part_of(given, rows))
    return bool(truths)


def same_whatever_is_excluded(call, given, truths):
    """Keys that no row sees, values that no row weighs, queries without keys."""
    if 0 in call.q.shape or 0 in call.v.shape or all(truth.seen.all() for truth in truths):
        return False
    q, k, v = (np.array(x) for x in (call.q, call.k, call.v))
    for (rows, keys, alone), truth in zip(sequences(call), truths, strict=True):
        by_group = lambda pairs: pairs.reshape(1, call.kv_heads, -1, pairs.shape[-1]).any(2)
        if truth.seen.size:
            q[rows] = properties.replaced(alone, q[rows], ~truth.seen.any(-1))
            k[keys] = properties.replaced(alone, k[keys], ~by_group(truth.seen))
            v[keys] = properties.replaced(alone, v[keys], ~by_group(truth.allowed))
    require_bits("other numbers in what is excluded", call.but(q=q, k=k, v=v).results(), given)


PACKED = {name: properties.DENSE[name] for name in ("threads", "contiguous", "out alone", "given out")} | {
    "each sequence": same_alone,
    "excluded": same_whatever_is_excluded,
}
