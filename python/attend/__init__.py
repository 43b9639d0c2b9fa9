"""attend: exact attention for CPUs.

>>> import attend, numpy as np
>>> q = np.ones((1, 8, 16, 64), np.float32)
>>> attend.attention(q, q, q, causal=True).shape
(1, 8, 16, 64)

Arrays are NumPy arrays or anything on the CPU with `__dlpack__` (PyTorch, JAX), float32 or float64; they are read in place,
with any strides. Results are of the kind of `q`. Every argument is checked before any work: ValueError for values and shapes,
TypeError for types, with a message "argument: expected ..., got ...". Calls release the interpreter lock and stop on Ctrl-C.
"""

from attend import _core
from attend._compatibility import additive, gaussian
from attend._results import OutLse, OutLseWeights, OutWeights

__all__ = [
    "OutLse",
    "OutLseWeights",
    "OutWeights",
    "additive",
    "attention",
    "gaussian",
    "info",
    "plan",
    "scaled_dot_product_attention",
    "set_num_threads",
]

__version__ = _core.version()


def attention(q, k, v, *, mask=None, bias=None, causal=False, window=None, query_offset=None, prefix=None,
              key_lengths=None, grid=None, neighborhood=None, dilation=1, border="clip", relative=None, scale=None,
              compatibility="dot", normalizer="softmax", layout="bhld", out=None, return_lse=False, return_weights=False,
              reproducible=False, threads=None):
    """Exact attention: ``out[i] = sum_j w[i, j] v[j]`` over the keys that are allowed; by default softmax attention.

    The weights are ``w[i] = normalizer(s[i])``, the scores ``s[i, j] = scale * compatibility(q[i], k[j]) + bias[i, j]``.

    q is (..., H, L, E), k (..., Hk, S, E), v (..., Hk, S, Ev), all float32 or all float64; the result is (..., H, L, Ev).
    Rank 2 is (L, E), rank 3 (H, L, E); further leading axes are batch axes and broadcast. H is a multiple of Hk, and query
    head h reads key/value head ``h // (H // Hk)``.

    mask: booleans, True = attend; broadcasts against (..., H, L, S) by NumPy's rule.
    bias: numbers added to the scaled scores, of q's dtype or float32; broadcasts likewise; -inf excludes.
    causal: key j is allowed where ``j <= i + query_offset``.
    window: (left, right), keys from ``i + query_offset - left`` to ``i + query_offset + right``, both included; None = no bound.
    query_offset: position of query 0 among the keys: an integer, one per batch, "upper_left" (0) or "lower_right"
        (``length - L``). Needed where positions are compared (causal, window, relative without a grid) and L differs from S.
    prefix: keys ``j < prefix`` are allowed beside what causal and window allow; one integer or one per batch.
    key_lengths: keys ``j >= length`` are excluded and never read; one integer or one per batch.
    grid: (rows, columns) with ``rows * columns = L = S``: queries and keys are the cells of a grid, row by row.
    neighborhood: size of a kernel in cells, odd, n or (rows, columns): each query sees the cells of the kernel around its own.
        Needs a grid.
    dilation: steps from one cell of the kernel to the next, n or (rows, columns).
    border: where the kernel reaches over the edge of the grid, "clip" leaves cells out and "shift" moves it inside, among the
        cells with the same remainder by the dilation, where it has to fit.
    relative: a table of numbers added to the scores by where the key stands from the query, of q's dtype or float32: (H or 1,
        2R+1) by ``j - (i + query_offset)``, or with a grid (H or 1, 2R+1, 2C+1) by rows and columns. Offsets beyond the table
        take its edge; -inf excludes. It is never expanded to (L, S).
    scale: any finite number; default ``1 / sqrt(E)`` for "dot", 1 for every other compatibility.
    compatibility: "dot" ``q . k``, "cosine" ``q . k / (|q| |k|)`` (0 for a zero vector), "l1" ``-sum_d |q[d] - k[d]|``,
        "none" 0, `attend.gaussian` (sigma) or `attend.additive` (w).
    normalizer: "softmax" ``exp(s) / sum exp(s)``, "mean" ``s / N`` for N allowed keys, "sum" ``s``, "sigmoid"
        ``1 / (1 + exp(-s))``, "relu2" ``max(s, 0)**2 / sum max(s, 0)**2``, "abs" ``s / sum |s|``; the last two are 0 where
        their sum is 0.
    layout: "bhld", or "blhd" for (..., L, H, E) in and out.
    out: a writable array that overlaps no input; it is written in place and returned.
    return_lse: also the natural logarithm of each row's sum, (..., H, L), of q's dtype. Of softmax alone.
    return_weights: also the weights, (..., H, L, S), of q's dtype.
    reproducible: one kernel for every L, so that a row depends on its own query, keys and options alone: prefill in pieces
        then gives the bits of prefill at once.
    threads: at most so many; default as in `set_num_threads`.

    A row without any allowed key gives out 0, weights 0 and lse -inf. What is excluded never influences a row, NaN included.
    The result does not depend on the number of threads, to the last bit.

    Returns out, or a named tuple of what was asked for, in the order out, lse, weights. Raises ValueError and TypeError,
    and ValueError for tensors that require a gradient.
    """
    return _core.attention(
        q, k, v, (mask, bias, causal, window, query_offset, prefix, key_lengths, grid, neighborhood, dilation, border, relative,
                  scale, compatibility, normalizer, layout, reproducible, threads),
        (out, return_lse, return_weights))


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """PyTorch's ``torch.nn.functional.scaled_dot_product_attention``, forward, with its parameters and meaning.

    query (..., H, L, E), key (..., H, S, E), value (..., H, S, Ev) give (..., H, L, Ev).

    attn_mask: booleans, True = attend, or numbers that are added; broadcasts against (..., H, L, S).
    dropout_p: a probability; this version computes 0 alone and raises NotImplementedError for any other.
    is_causal: key j is allowed where ``j <= i``, counted from the upper left also where L differs from S. Not beside attn_mask.
    scale: default ``1 / sqrt(E)``.
    enable_gqa: allows fewer heads in key and value than in query.

    Differs from PyTorch where that gives NaN or reads too far: a row without keys is 0, NaN that a mask excludes does not
    leak, and lengths of key and value that differ are an error.
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
    """
    return _core.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def plan(q_shape, k_shape, v_shape, dtype, *, mask=None, bias=None, causal=False, window=None, query_offset=None,
         prefix=None, key_lengths=None, grid=None, neighborhood=None, dilation=1, border="clip", relative=None, scale=None,
         compatibility="dot", normalizer="softmax", layout="bhld", reproducible=False):
    """What `attention` would run for these shapes, and why, as a dict; nothing is computed.

    dtype: a name, a NumPy dtype or a torch dtype. The options are those of `attention`.

    Keys: kernel, isa and reason say what was chosen, compatibility and normalizer what makes the weights; tiles_skipped,
    tiles_full and tiles_partial count tiles of scores, of `lanes` rows by `tile_keys` keys; flops count a multiply-add as two,
    over the tiles that are not skipped; bytes are those of q, k, v read once and out written once; text is all of it as text.
    """
    return _core.plan(
        q_shape, k_shape, v_shape, _dtype_name(dtype),
        (mask, bias, causal, window, query_offset, prefix, key_lengths, grid, neighborhood, dilation, border, relative, scale,
         compatibility, normalizer, layout, reproducible, None))


def info():
    """Version, instruction sets (detected on this CPU, compiled into this build, available to calls) and default threads.

    ATTEND_ISA narrows the sets that are available; ValueError where it names none that this CPU has.
    """
    return _core.info()


def set_num_threads(n):
    """Sets how many threads a call may use where it does not say; the default is every CPU this process may run on.

    ATTEND_NUM_THREADS sets the same from outside.
    """
    _core.set_num_threads(n)


def _dtype_name(dtype):
    """The name of a dtype given as text, as a NumPy dtype or scalar type, or as a torch dtype."""
    import numpy

    text = str(dtype)
    if text.startswith("torch."):
        return text[len("torch."):]
    try:
        return text if dtype is None else numpy.dtype(dtype).name  # NumPy takes None for float64
    except TypeError:
        return text  # refused by its name
