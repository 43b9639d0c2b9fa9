"""The operators Attention and RotaryEmbedding of ai.onnx as functions, with ONNX's names of inputs and attributes.

>>> import attend, numpy as np
>>> Q = np.ones((1, 2, 3, 8), np.float32)
>>> attend.onnx.attention(Q, Q, Q, is_causal=1).Y.shape
(1, 2, 3, 8)

Nothing here imports onnx. Inputs are float64, float32, float16 or bfloat16. 16-bit inputs are read as they are, computed with in
float32, and rounded once at the end. https://onnx.ai/onnx/operators/onnx__Attention.html
"""

import operator
from typing import Any, NamedTuple

import numpy as np

import attend
from attend import _core
from attend._names import in_words_of
from attend._operands import Operand

__all__ = ["AttentionOutputs", "attention", "rotary_embedding"]


class AttentionOutputs(NamedTuple):
    Y: Any
    present_key: Any
    present_value: Any
    qk_matmul_output: Any


def attention(Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, opset=24, is_causal=0,
              kv_num_heads=None, q_num_heads=None, qk_matmul_output_mode=0, scale=None, softcap=0.0, softmax_precision=None,
              left_window_size=-1, right_window_size=-1):
    """The operator Attention of ai.onnx: (Y, present_key, present_value, qk_matmul_output).

    Q is (B, H, L, E), K (B, Hk, S, E), V (B, Hk, S, Ev), and Y is (B, H, L, Ev); or Q is (B, L, H*E), K (B, S, Hk*E), V
    (B, S, Hk*Ev), and Y is (B, L, H*Ev). K has the dtype of Q, V may have another; what is computed with is the wider of both,
    and Y has that of Q. Inputs are read in place, but copied to a wider type, all of them, where the dtypes of Q and V differ or
    softmax_precision asks for float64.

    attn_mask: booleans, True = attend, or numbers of Q's dtype that are added; broadcasts against (B, H, L, P + S). From opset
        24, keys past its end are excluded; it has to reach the largest of nonpad_kv_seqlen.
    past_key, past_value: (B, Hk, P, E) and (B, Hk, P, Ev) of the dtypes of K and V: keys and values that come first.
    nonpad_kv_seqlen: (B) integers from 0 to S; keys from there on are excluded. From opset 24, and not beside a past.
    opset: 23, 24 or 25.
    is_causal: 1 allows key j where ``j <= i + offset``; the offset is P, ``nonpad_kv_seqlen - L`` or 0.
    kv_num_heads, q_num_heads: Hk and H, needed for inputs of rank 3.
    qk_matmul_output_mode: what qk_matmul_output (B, H, L, P + S) holds: 0 the scaled products, 1 those after softcap, 2 those
        with attn_mask, -inf where a key is excluded, 3 the weights. None: it is not wanted, and None is returned for it.
    scale: default ``1 / sqrt(E)``.
    softcap: ``softcap * tanh(s / softcap)`` before attn_mask; 0 = none.
    softmax_precision: 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16): the least precision. More is used where the
        inputs have more, and float32 at least.
    left_window_size, right_window_size: keys from ``i + offset - left`` to ``i + offset + right`` are allowed; -1 = no bound.
        From opset 25.

    present_key is (B, Hk, P + S, E), present_value (B, Hk, P + S, Ev). Without a past they are K and V themselves, of rank 3
    views or copies of them. A row without keys is 0, and excluded keys never influence a row, as in `attend.attention`. Raises
    ValueError and TypeError.
    """
    _check_attributes(opset, is_causal, qk_matmul_output_mode, softmax_precision, left_window_size, right_window_size)
    if nonpad_kv_seqlen is not None and opset < 24:
        raise ValueError(f"nonpad_kv_seqlen: expected None before opset 24, got lengths in opset {opset}")
    if (past_key is None) != (past_value is None):
        given, missing = ("past_value", "past_key") if past_key is None else ("past_key", "past_value")
        raise ValueError(f"{missing}: expected an array beside {given}, got None")
    if past_key is not None and nonpad_kv_seqlen is not None:
        raise ValueError("nonpad_kv_seqlen: expected None beside past_key and past_value, got lengths")

    query, key, value = Operand(Q, "Q"), Operand(K, "K"), Operand(V, "V")
    query.require_floats()
    key.require_floats(query.dtype)
    value.require_floats()
    packed = _check_ranks(query, key, value)
    q, k, v = query.values, key.values, value.values
    if packed:  # heads are split off the last axis: (B, L, H, E), which is layout "blhd"
        q = _split(query, q_num_heads, "q_num_heads")
        k, v = _split(key, kv_num_heads, "kv_num_heads"), _split(value, kv_num_heads, "kv_num_heads")
        present_key, present_value = (x.give(x.native(y.swapaxes(1, 2))) for x, y in ((key, k), (value, v)))
    else:
        _check_heads("q_num_heads", q_num_heads, query)
        _check_heads("kv_num_heads", kv_num_heads, key)
        present_key, present_value = K, V
    past = 0
    if past_key is not None:
        turn = (lambda x: x.swapaxes(1, 2)) if packed else (lambda x: x)
        k, v = _after(past_key, "past_key", turn(k), key), _after(past_value, "past_value", turn(v), value)
        past = k.shape[2] - key.shape[1 if packed else 2]
        present_key, present_value = key.give(key.native(k)), value.give(value.native(v))
        k, v = turn(k), turn(v)
    tokens = 1 if packed else 2
    L, S = q.shape[tokens], k.shape[tokens]

    computed = query.dtype
    if softmax_precision == 11 or "float64" in (query.dtype, value.dtype):
        computed = "float64"
    elif query.dtype != value.dtype:
        computed = "float32"
    as_computed = lambda x, values: x.native(values) if x.dtype == computed else x.widened(values, computed)
    options = {"query_offset": past, "causal": bool(is_causal), "scale": scale, "softcap": None if softcap == 0 else softcap,
               "layout": "blhd" if packed else "bhld"}
    if (left_window_size, right_window_size) != (-1, -1):
        options["window"] = tuple(None if side == -1 else side for side in (left_window_size, right_window_size))
    lengths = None
    if nonpad_kv_seqlen is not None:
        lengths = _lengths(nonpad_kv_seqlen, len(q), S)
        options["query_offset"] = lengths - L
        if qk_matmul_output_mode in (0, 1):  # products with keys past a length are asked for: excluded, but read
            options["query_segments"] = np.zeros(L, np.int64)
            options["key_segments"] = np.where(np.arange(S) < lengths[:, None], 0, -1)
        else:
            options["key_lengths"] = lengths
    if attn_mask is not None:
        name, values = _mask(attn_mask, query.dtype, computed, S, lengths, opset)
        options[name] = values
    if qk_matmul_output_mode is not None:
        stage = ("scaled", "capped", "biased", None)[qk_matmul_output_mode]
        options |= {"return_weights": True} if stage is None else {"return_scores": stage}

    result = _in_words_of_onnx(attend.attention, as_computed(query, q), as_computed(key, k), as_computed(value, v), **options)
    y, scores = (result, None) if qk_matmul_output_mode is None else result
    if packed:
        y = y.reshape(*y.shape[:2], y.shape[2] * y.shape[3])
    return AttentionOutputs(query.give(y), present_key, present_value, None if scores is None else query.give(scores))


def rotary_embedding(X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads=None, rotary_embedding_dim=0):
    """The operator RotaryEmbedding of ai.onnx: X with pairs of elements turned by the angle of their token's position.

    X is (B, heads, L, E), or (B, L, heads*E) with num_heads; the result has its shape and dtype.

    cos_cache, sin_cache: of X's dtype, (positions, n/2) with position_ids, (B, L, n/2) without.
    position_ids: (B, L) integers, rows of the caches.
    interleaved: 0 pairs element m with m + n/2, 1 pairs 2m with 2m + 1.
    rotary_embedding_dim: n, even: the first n elements of a head are turned and the others copied; 0 = all E.

    A pair (a, b) becomes ``(cos * a - sin * b, sin * a + cos * b)``. Raises ValueError and TypeError.
    https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
    """
    x, cos, sin = Operand(X, "X"), Operand(cos_cache, "cos_cache"), Operand(sin_cache, "sin_cache")
    x.require_floats()
    cos.require_floats(x.dtype)
    sin.require_floats(x.dtype)
    _one_of("interleaved", interleaved, (0, 1))
    turned = x.values
    if turned.ndim == 3:
        turned = _split(x, num_heads, "num_heads")
    elif turned.ndim == 4:
        _check_heads("num_heads", num_heads, x)
    else:
        raise ValueError(f"X: expected rank 3 or 4, got shape {x.shape}")
    packed = x.values.ndim == 3
    B, L = turned.shape[0], turned.shape[1 if packed else 2]
    width = turned.shape[-1]
    n = _integer("rotary_embedding_dim", rotary_embedding_dim) or width
    if n < 0 or n % 2 or n > width:
        raise ValueError(f"rotary_embedding_dim: expected an even number up to {width}, or 0 for an even width, got {n}")
    positions = None
    if position_ids is None:
        expected = (B, L, n // 2)
    else:
        ids = Operand(position_ids, "position_ids")
        if ids.values.dtype.kind not in "iu":
            raise TypeError(f"position_ids: expected integers, got {ids.dtype}")
        if ids.shape != (B, L):
            raise ValueError(f"position_ids: expected shape {(B, L)}, got {ids.shape}")
        rows = cos.shape[0] if cos.values.ndim == 2 else 0
        expected = (rows, n // 2)
        positions = ids.values
        if positions.size and (positions.min() < 0 or positions.max() >= rows):
            raise ValueError(f"position_ids: expected rows of the caches, from 0 to {rows - 1}, got {positions.min()} to "
                             f"{positions.max()}")
    for cache in (cos, sin):
        if cache.shape != expected:
            raise ValueError(f"{cache.name}: expected shape {expected}, got {cache.shape}")
    y = _core.rotary_embedding(x.native(turned), cos.native(cos.values), sin.native(sin.values), positions, bool(interleaved), n,
                               "blhd" if packed else "bhld")
    return x.give(y.reshape(x.shape))


# --- What the two check ---------------------------------------------------------------------------------------------------


def _integer(name, value):
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}") from None


def _one_of(name, value, choices):
    if not isinstance(value, (bool, np.bool_)):
        _integer(name, value)
    if value not in choices:
        raise ValueError(f"{name}: expected {', '.join(map(str, choices[:-1]))} or {choices[-1]}, got {value}")


def _check_attributes(opset, is_causal, mode, precision, left, right):
    _one_of("opset", opset, (23, 24, 25))
    _one_of("is_causal", is_causal, (0, 1))
    if mode is not None:
        _one_of("qk_matmul_output_mode", mode, (0, 1, 2, 3))
    if precision is not None:
        _one_of("softmax_precision", precision, (1, 10, 11, 16))
    for name, side in (("left_window_size", left), ("right_window_size", right)):
        if _integer(name, side) < -1:
            raise ValueError(f"{name}: expected at least 0, or -1 for no bound, got {side}")
        if side != -1 and opset < 25:
            raise ValueError(f"{name}: expected -1 before opset 25, got {side} in opset {opset}")


def _check_ranks(query, key, value):
    """Whether the inputs have rank 3."""
    ranks = [len(x.shape) for x in (query, key, value)]
    if ranks not in ([3, 3, 3], [4, 4, 4]):
        raise ValueError(f"Q, K, V: expected rank 4, or 3 for all, got shapes {query.shape}, {key.shape} and {value.shape}")
    for x in (key, value):
        if x.shape[0] != query.shape[0]:
            raise ValueError(f"{x.name}: expected the batch of Q, {query.shape[0]}, got {x.shape[0]}")
    return ranks[0] == 3


def _check_heads(name, heads, x):
    """Where the rank is 4, the axis says it, and an attribute has to agree."""
    if heads is not None and _integer(name, heads) not in (0, x.shape[1]):
        raise ValueError(f"{name}: expected the heads of {x.name}, {x.shape[1]}, got {heads}")


def _split(x, heads, name):
    """(B, L, heads * E) as (B, L, heads, E)."""
    if heads is None or _integer(name, heads) < 1:
        raise ValueError(f"{name}: expected the number of heads for inputs of rank 3, got {heads}")
    if x.shape[2] % heads:
        raise ValueError(f"{x.name}: expected a last axis that is a multiple of {heads} heads, got {x.shape[2]}")
    return x.values.reshape(*x.shape[:2], heads, x.shape[2] // heads)


def _after(past, name, new, like):
    """What came before and what is new, along the axis of tokens."""
    before = Operand(past, name)
    before.require_floats(like.dtype)
    if len(before.shape) != 4 or before.shape[:2] != new.shape[:2] or before.shape[3] != new.shape[3]:
        raise ValueError(f"{name}: expected shape {(*new.shape[:2], 'P', new.shape[3])} by {like.name}, got {before.shape}")
    return np.concatenate([before.values.view(new.dtype), new], axis=2)  # of either kind's bfloat16


def _lengths(given, B, S):
    lengths = np.asarray(given) if isinstance(given, (list, tuple)) else Operand(given, "nonpad_kv_seqlen").values
    if lengths.size and lengths.dtype.kind not in "iu":
        raise TypeError(f"nonpad_kv_seqlen: expected integers, got {lengths.dtype}")
    if lengths.shape != (B,):
        raise ValueError(f"nonpad_kv_seqlen: expected shape {(B,)}, got {lengths.shape}")
    if lengths.size and (lengths.min() < 0 or lengths.max() > S):
        raise ValueError(f"nonpad_kv_seqlen: expected from 0 to {S} keys, got {lengths.min()} to {lengths.max()}")
    return lengths.astype(np.int64)


def _mask(given, dtype, computed, S, lengths, opset):
    """("mask" or "bias", its values), excluding what lies past its end where the opset says so."""
    mask = Operand(given, "attn_mask")
    if mask.dtype not in ("bool", dtype):
        raise TypeError(f"attn_mask: expected booleans or {dtype}, got {mask.dtype}")
    name, shape = ("mask" if mask.dtype == "bool" else "bias"), mask.shape
    whole = opset < 24 or not shape or shape[-1] >= S or (shape[-1] == 1 and lengths is None)
    # Biases stand beside any dtype as float32.
    widen = mask.dtype in ("float16", "bfloat16") and not (whole and dtype == computed)
    values = mask.widened(mask.values, np.float32) if widen else mask.native(mask.values)
    if whole:
        return name, values
    if lengths is not None and shape[-1] < lengths.max(initial=0):
        raise ValueError(f"attn_mask: expected a last axis of at least {lengths.max()}, the largest of nonpad_kv_seqlen, got "
                         f"{shape[-1]}")
    beyond = np.full((*shape[:-1], S - shape[-1]), name == "bias" and -np.inf, values.dtype)
    return name, np.concatenate([values, beyond], axis=-1)


_WORDS = {"q": "Q", "k": "K", "v": "V", "mask": "attn_mask", "bias": "attn_mask"}


def _in_words_of_onnx(function, *arguments, **options):
    """A call whose messages name ONNX's inputs."""
    try:
        return function(*arguments, **options)
    except (TypeError, ValueError) as error:
        raise in_words_of(_WORDS, error) from None
