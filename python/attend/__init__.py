"""attend: exact attention for CPUs.

>>> import attend, numpy as np
>>> q = np.ones((1, 8, 16, 64), np.float32)
>>> attend.attention(q, q, q, causal=True).shape
(1, 8, 16, 64)

Arrays are NumPy arrays or anything on the CPU with `__dlpack__` (PyTorch, JAX), of float32, float64, float16 or bfloat16 (in
NumPy that of ml_dtypes); they are read in place, with any strides. Results are of the kind and dtype of `q`. Every argument is
checked before any work: ValueError for values and shapes, TypeError for types, with a message "argument: expected ..., got
...". Calls release the interpreter lock and stop on Ctrl-C.
"""

from attend import _core
from attend._cache import KVCache, PagedKVCache
from attend._compatibility import additive, gaussian
from attend._names import dtype_name as _dtype_name
from attend._results import (OutLse, OutLseScores, OutLseWeights, OutLseWeightsScores, OutScores, OutWeights,
                             OutWeightsScores)
from attend._score import alibi, bias, soft_cap

__all__ = [
    "KVCache",
    "OutLse",
    "OutLseScores",
    "OutLseWeights",
    "OutLseWeightsScores",
    "OutScores",
    "OutWeights",
    "OutWeightsScores",
    "PagedKVCache",
    "additive",
    "alibi",
    "attention",
    "attention_backward",
    "attention_varlen",
    "attention_varlen_backward",
    "bias",
    "decode",
    "gaussian",
    "info",
    "merge",
    "plan",
    "scaled_dot_product_attention",
    "set_num_threads",
    "soft_cap",
]

__version__ = _core.version()


# The functions below are declared here and run in _core, where what a call does not give costs nothing. Python itself calls
# a declaration only where the arguments do not fit it, for an error in its own words.


@_core.entry
def attention(q, k, v, *, mask=None, bias=None, causal=False, window=None, query_offset=None, prefix=None, query_segments=None,
              key_segments=None, key_lengths=None, grid=None, neighborhood=None, dilation=1, border="clip", relative=None,
              scale=None, softcap=None, alibi=None, sinks=None, score=None, compatibility="dot", normalizer="softmax",
              dropout_p=0.0, seed=None, layout="bhld", out=None, return_lse=False, return_weights=False, return_scores=None,
              reproducible=False, threads=None):
    """Exact attention: ``out[i] = sum_j w[i, j] v[j]`` over the keys that are allowed; by default softmax attention.

    The weights are ``w[i] = normalizer(s[i])``, the scores ``s[i, j] = scale * compatibility(q[i], k[j])``, changed by what
    stands in score, softcap, bias, relative and alibi, in this order.

    q is (..., H, L, E), k (..., Hk, S, E), v (..., Hk, S, Ev), all of one dtype: float32, float64, or float16 or
    bfloat16, which are computed with in float32 and rounded once; the result is (..., H, L, Ev).
    Rank 2 is (L, E), rank 3 (H, L, E); further leading axes are batch axes and broadcast. H is a multiple of Hk, and query
    head h reads key/value head ``h // (H // Hk)``.

    Which keys a query sees: those that nothing excludes.

    mask: booleans, True = attend; broadcasts against (..., H, L, S) by NumPy's rule.
    causal: key j is allowed where ``j <= i + query_offset``.
    window: (left, right), keys from ``i + query_offset - left`` to ``i + query_offset + right``, both included; None: no bound.
    query_offset: position of query 0 among the keys: an integer, one per batch, "upper_left" (0) or "lower_right"
        (``length - L``). Needed where positions are compared (causal, window, alibi, relative without a grid) and L differs
        from S.
    prefix: keys ``j < prefix`` are allowed beside what causal and window allow; one integer or one per batch.
    query_segments, key_segments: integers of shape (L) and (S), or (batch axes..., L) and (batch axes..., S); a pair is allowed
        where both are equal and not negative. int64 is read in place, other types are converted.
    key_lengths: keys ``j >= length`` are excluded and never read; one integer or one per batch.
    grid: (rows, columns) with ``rows * columns = L = S``: queries and keys are the cells of a grid, row by row.
    neighborhood: size of a kernel in cells, odd, n or (rows, columns): each query sees the cells of the kernel around its own.
        Needs a grid.
    dilation: steps from one cell of the kernel to the next, n or (rows, columns).
    border: where the kernel reaches over the edge of the grid, "clip" leaves cells out and "shift" moves it inside, among the
        cells with the same remainder by the dilation, where it has to fit.

    What a score is. Numbers given as arrays have q's dtype or float32; -inf, whatever made it, excludes the key.

    compatibility: "dot" ``q . k``, "cosine" ``q . k / (|q| |k|)`` (0 for a zero vector), "l1" ``-sum_d |q[d] - k[d]|``,
        "none" 0, `attend.gaussian` (sigma) or `attend.additive` (w).
    scale: any finite number; default ``1 / sqrt(E)`` for "dot", 1 for every other compatibility.
    score: `attend.soft_cap`, `attend.alibi`, `attend.bias` or a list of up to 8 of them, for another order than the one below;
        they see the scaled score first. alibi may stand there or below, once.
    softcap: ``softcap * tanh(s / softcap)``, a finite number above 0.
    bias: numbers that are added; broadcasts against (..., H, L, S) by NumPy's rule.
    relative: a table of numbers that are added by where the key stands from the query: (H or 1, 2R+1) by
        ``j - (i + query_offset)``, or with a grid (H or 1, 2R+1, 2C+1) by rows and columns. Offsets beyond the table take its
        edge. It is never expanded to (L, S).
    alibi: True, or an array of H slopes (float64 ones are rounded to float32 beside narrower inputs):
        ``s - slope[h] * |i + query_offset - j|``. True is the paper's slopes, see `attend.alibi`.

    What a weight is.

    normalizer: "softmax" ``exp(s) / sum exp(s)``, "mean" ``s / N`` for N allowed keys, "sum" ``s``, "sigmoid"
        ``1 / (1 + exp(-s))``, "relu2" ``max(s, 0)**2 / sum max(s, 0)**2``, "abs" ``s / sum |s|``; the last two are 0 where
        their sum is 0.
    sinks: an array of H logits; ``exp(sinks[h])`` joins the denominator of every row of head h alone. Of softmax alone.
    dropout_p: the probability, from 0 to 1, with which a weight is dropped; those kept are divided by ``1 - dropout_p``.
    seed: an integer from 0 to 2**64 - 1; the default draws one. Whether a weight is kept is a function of the seed and of its
        batch, head, query and key alone (Philox 4x32-10; Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011).

    layout: "bhld", or "blhd" for (..., L, H, E) in and out.
    out: a writable array that overlaps no input; it is written in place and returned.
    return_lse: also the natural logarithm of each row's sum with its sink, (..., H, L), float32, or float64 beside float64.
        Of softmax alone.
    return_weights: also the weights after dropout, (..., H, L, S), of q's dtype.
    return_scores: also the scores, (..., H, L, S), of q's dtype: "scaled" those of scale and compatibility, "capped" those
        after score and softcap, "biased" those that become weights, -inf where a key is excluded. The first two take no notice
        of masks, but are -inf at and past a length.
    reproducible: one kernel for every L, so that a row depends on its own query, keys and options alone: prefill in pieces
        then gives the bits of prefill at once.
    threads: at most so many; default as in `set_num_threads`.

    A row without any allowed key gives out 0, weights 0 and lse -inf, or its sink. What is excluded never influences a row,
    NaN included. The result does not depend on the number of threads, to the last bit.

    Returns out, or a named tuple of what was asked for, in the order out, lse, weights, scores. Raises ValueError and
    TypeError, ValueError for tensors that require a gradient, and NotImplementedError for the caller's own functions in score.
    """


@_core.entry
def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k=None, *, block_table=None, causal=False, window=None,
                     query_offset="lower_right", prefix=None, query_segments=None, key_segments=None, key_lengths=None,
                     grid=None, neighborhood=None, dilation=1, border="clip", relative=None, scale=None, softcap=None, alibi=None,
                     sinks=None, score=None, compatibility="dot", normalizer="softmax", dropout_p=0.0, seed=None, out=None,
                     return_lse=False, reproducible=False, threads=None):
    """Attention over packed sequences: many of unequal length in one array, without padding.

    q is (total_q, H, E), k (total_k, Hk, E), v (total_k, Hk, Ev); the result is (total_q, H, Ev). Sequence s has the queries
    ``q[cu_seqlens_q[s]:cu_seqlens_q[s + 1]]`` and the keys ``k[cu_seqlens_k[s]:cu_seqlens_k[s + 1]]``, and sees no other.

    cu_seqlens_q, cu_seqlens_k: arrays of int32 or int64, (n + 1), from 0, never falling, to the total.
    block_table: instead of cu_seqlens_k, integers (n, pages of the longest sequence): k is (pages, page_size, Hk, E), v alike, and key j of
        sequence s lies in row ``j % page_size`` of page ``block_table[s, j // page_size]``. key_lengths says how many there are, and
        what lies behind them is not read.
    query_offset: position of each sequence's query 0 among its keys: "lower_right" (its last query stands at its last key),
        "upper_left", an integer, or one per sequence. None is "lower_right", too.
    prefix, key_lengths: one integer, or one per sequence.
    query_segments, key_segments: integers of shape (total_q) and (total_k).
    grid: that of every sequence; all then have as many queries and keys.
    score: as in `attention`, without `attend.bias`.
    dropout_p, seed: as in `attention`, where the batch of a pair is the number of its sequence and its query and key are
        counted within it.
    out: a writable array (total_q, H, Ev) that overlaps no input; it is written in place and returned.
    return_lse: also the natural logarithm of each row's sum, (total_q, H), float32, or float64 beside float64.

    All other options mean for each sequence what they mean for `attention`; mask, bias, weights and scores have no common shape
    here. A sequence gives the same bits alone and in any pack.

    Returns out, or the named tuple (out, lse). Raises ValueError and TypeError as `attention` does.
    """


@_core.entry
def attention_backward(dout, q, k, v, out, lse, *, dlse=None, mask=None, bias=None, causal=False, window=None, query_offset=None,
                       prefix=None, query_segments=None, key_segments=None, key_lengths=None, grid=None, neighborhood=None,
                       dilation=1, border="clip", relative=None, scale=None, softcap=None, alibi=None, sinks=None, score=None,
                       compatibility="dot", normalizer="softmax", dropout_p=0.0, seed=None, layout="bhld", reproducible=False,
                       threads=None, wanted=None):
    """Gradients of ``sum(dout * out) + sum(dlse * lse)``, where (out, lse) is what `attention` gives for the same arguments.

    Scores are made again tile by tile, so that memory grows with L and S, never with their product.

    dout: the gradient by out, of its shape and dtype.
    out, lse: as `attention` gave them with return_lse. lse is None beside any normalizer but softmax.
    dlse: the gradient by lse, of its shape and dtype; softmax only.
    wanted: a list of names of those gradients that are computed, as in the result; by default all.

    All other arguments mean what they mean for `attention`; dropout needs its seed.

    Returns a dict: dq, dk, dv, and dbias, dsinks, dalibi, drelative where these were given as arrays, dadditive, by the weights of
    compatibility `additive`, and dscore where score was given, a list of as many places, None where there is no array. Each has
    shape and dtype of what it is the gradient of: what was broadcast is summed up. Pairs that are excluded add exactly nothing, and
    rows without any allowed key have gradients of exactly 0. The result does not depend on the number of threads, to the last bit.

    Where a function has no slope, 0 is taken: |s| of abs at 0, l1 at equal elements, cosine at a zero vector. dq and dk of the
    compatibility "none" are exactly 0. Raises ValueError and TypeError as `attention` does.
    """


@_core.entry
def attention_varlen_backward(dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, *, dlse=None, causal=False, window=None,
                              query_offset="lower_right", prefix=None, query_segments=None, key_segments=None, key_lengths=None,
                              grid=None, neighborhood=None, dilation=1, border="clip", relative=None, scale=None, softcap=None,
                              alibi=None, sinks=None, score=None, compatibility="dot", normalizer="softmax", dropout_p=0.0,
                              seed=None, reproducible=False, threads=None, wanted=None):
    """The same of `attention_varlen`: everything in its shapes and by its rules.

    Returns a dict as `attention_backward` does. A sequence's dq, dk and dv have the same bits alone and in any pack.
    """


@_core.entry
def decode(q, cache, *, sequences=None, mask=None, bias=None, window=None, prefix=None, relative=None, scale=None, softcap=None,
           alibi=None, sinks=None, score=None, compatibility="dot", normalizer="softmax", out=None, return_lse=False,
           return_weights=False, return_scores=None, reproducible=False, threads=None):
    """New queries over a cache: causal, the last query of a sequence at its newest key.

    q is (batch, H, L, E) in the cache's dtype, H a multiple of its heads; the result is (batch, H, L, Ev).

    cache: a `KVCache`, or a `PagedKVCache` with sequences.
    sequences: numbers of sequences of a PagedKVCache, one for each of q's first axis; one may come several times.
    mask: booleans as in `attention`, where S is the length of the longest sequence; or (..., L, L) where S > L, over the L newest keys alone:
        which of them each query sees, as in the tree of speculative decoding. Positions stay those of slots: rotary embeddings, ALiBi and
        relative tables count siblings of a tree one behind the other.
    window: narrows what a query sees further; of a ring not beyond its own, which is the default.

    All other options mean for each sequence what they mean for `attention`. A ring has no S, and refuses prefix, mask, bias, weights
    and scores.

    Returns out, or a named tuple of what was asked for. Raises ValueError and TypeError as `attention` does.
    """


def merge(outs, lses):
    """Attention over all keys from attention over disjoint parts of them: the named tuple (out, lse).

    ``lse = log(sum_p exp(lses[p]))`` and ``out = sum_p exp(lses[p] - lse) * outs[p]``.

    outs, lses: lists of what `attention` gave with return_lse for each part, at least one: arrays (..., Ev) of one dtype and
        one shape, and arrays of that shape without its last axis, float32, or float64 beside float64.

    A part whose lse is -inf adds nothing, whatever its out holds; where all are, out is 0 and lse -inf. Where attention had
    sinks, give them to one part alone. Results in layout "blhd", whose lse is (..., H, L), need a view with their axes in one
    order. Computed in float64 and rounded once. Raises ValueError and TypeError.
    """
    return _core.merge(outs, lses)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """PyTorch's ``torch.nn.functional.scaled_dot_product_attention``, forward, with its parameters and meaning.

    query (..., H, L, E), key (..., H, S, E), value (..., H, S, Ev) give (..., H, L, Ev).

    attn_mask: booleans, True = attend, or numbers that are added; broadcasts against (..., H, L, S).
    dropout_p: the probability with which a weight is dropped; those that are kept are divided by ``1 - dropout_p``. For torch
        tensors the seed comes from torch's default generator, so that ``torch.manual_seed`` makes the result reproducible;
        otherwise every call draws a new one. As in PyTorch, 0 is the value for inference.
    is_causal: key j is allowed where ``j <= i``, counted from the upper left also where L differs from S. Not beside attn_mask.
    scale: default ``1 / sqrt(E)``.
    enable_gqa: allows fewer heads in key and value than in query.

    Differs from PyTorch where that gives NaN or reads too far: a row without keys is 0, NaN that a mask excludes does not
    leak, and lengths of key and value that differ are an error.
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
    """
    return _core.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def plan(q_shape, k_shape, v_shape, dtype, *, mask=None, bias=None, causal=False, window=None, query_offset=None, prefix=None,
         query_segments=None, key_segments=None, key_lengths=None, grid=None, neighborhood=None, dilation=1, border="clip",
         relative=None, scale=None, softcap=None, alibi=None, sinks=None, score=None, compatibility="dot", normalizer="softmax",
         dropout_p=0.0, seed=None, layout="bhld", reproducible=False):
    """What `attention` would run for these shapes, and why, as a dict; nothing is computed.

    dtype: a name, a NumPy dtype (ml_dtypes' among them) or a torch dtype. The options are those of `attention`.

    Keys: kernel, isa and reason say what was chosen, compatibility and normalizer what makes the weights; tiles_skipped,
    tiles_full and tiles_partial count tiles of scores, of `lanes` rows by `tile_keys` keys; flops count a multiply-add as two,
    over the tiles that are not skipped; bytes are those of q, k, v read once and out written once; text is all of it as text.
    """
    return _core.plan(
        q_shape, k_shape, v_shape, _dtype_name(dtype),
        (mask, bias, causal, window, query_offset, prefix, query_segments, key_segments, key_lengths, grid, neighborhood,
         dilation, border, relative, scale, softcap, alibi, sinks, score, compatibility, normalizer, dropout_p, seed, layout,
         reproducible, None))


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


_SUBMODULES = ("jax", "onnx", "torch")


def __getattr__(name):
    """Submodules that are loaded when they are first used."""
    if name in _SUBMODULES:
        import importlib

        return importlib.import_module(f"attend.{name}")
    raise AttributeError(f"module 'attend' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_SUBMODULES} - (set() if hasattr(_core, "jax") else {"jax"}))
