"""Every wrong argument is refused before any work, by name, with what was expected and what came."""

import numpy as np
import pytest

import attend
from reference import problem

EQUAL = lambda q, k, v: (q, k[:, :, :5], v[:, :, :5])  # as many keys as queries, for positions and grids

WRONG = {
    # arrays and shapes
    "q of rank 1": (lambda q, k, v: (q[0, 0, 0], k, v), {}, ValueError, "q: .*rank"),
    "k of another width": (lambda q, k, v: (q, k[..., :3], v), {}, ValueError, "k: .*8.*3"),
    "v longer than k": (lambda q, k, v: (q, k[:, :, :6], v), {}, ValueError, "v: .*6.*7"),
    "v shorter than k": (lambda q, k, v: (q, k, v[:, :, :6]), {}, ValueError, "v: .*7.*6"),
    "no key heads": (lambda q, k, v: (q, k[:, :0], v[:, :0]), {}, ValueError, "k: .*4.*0|k: .*0.*4"),
    "no value heads": (lambda q, k, v: (q, k, v[:, :0]), {}, ValueError, "v: .*0"),
    "heads that do not divide": (lambda q, k, v: (q[:, :3], k, v), {}, ValueError, "k: .*3 heads.*2"),
    "other batches": (lambda q, k, v: (q, np.repeat(k, 2, 0)[:3], np.repeat(v, 2, 0)[:3]), {}, ValueError, "k: .*batch"),
    "nine axes": (lambda q, k, v: (q.reshape(1, 1, 1, 1, 1, *q.shape), k, v), {}, ValueError, "q: .*8.*9"),
    # element types
    "float16 beside float32": (lambda q, k, v: (q.astype(np.float16), k, v), {}, TypeError, "k: expected float16, the dtype of q, got float32"),
    "bfloat16 beside float16": (
        lambda q, k, v: (q.astype(np.float16), k.astype(np.float16), v.astype("bfloat16")), {}, TypeError, "v: expected float16.*got bfloat16"),
    "raw bytes": (lambda q, k, v: (q.astype("bfloat16").view("V2"), k, v), {}, TypeError, "q: expected float32, .*V2"),
    "8-bit floats": (lambda q, k, v: (q.astype("float8_e4m3fn"), k, v), {}, TypeError, "q: expected float32, .*float8_e4m3fn"),
    "integers": (lambda q, k, v: (q, k.astype(np.int32), v), {}, TypeError, "k: expected float32, float64, float16 or bfloat16, got int32"),
    "complex numbers": (lambda q, k, v: (q, k, v.astype(np.complex64)), {}, TypeError, "v: .*complex64"),
    "objects": (lambda q, k, v: (q.astype(object), k, v), {}, TypeError, "q: .*object"),
    "long doubles": (lambda q, k, v: (q.astype(np.longdouble), k, v), {}, TypeError, "q: .*(longdouble|float128|float96)"),
    "dates": (lambda q, k, v: (np.zeros((1, 1), "M8[s]"), k, v), {}, TypeError, "q: .*datetime64"),
    "the other byte order": (lambda q, k, v: (q.astype(q.dtype.newbyteorder()), k, v), {}, TypeError, "q: .*f4"),
    "mixed dtypes": (lambda q, k, v: (q, k.astype(np.float64), v), {}, TypeError, "k: .*float32.*float64"),
    "strides of half elements": (
        lambda q, k, v: (np.zeros((5, 8), [("x", "f4"), ("y", "i2")])["x"], k[0, 0], v[0, 0]), {}, ValueError, "q: .*whole elements.*6 bytes"),
    # mask and bias
    "float mask": (None, {"mask": np.zeros((5, 7), np.float32)}, TypeError, "mask: .*bool.*float32"),
    "integer mask": (None, {"mask": np.ones((5, 7), np.uint8)}, TypeError, "mask: .*bool.*uint8"),
    "a list as mask": (None, {"mask": [[True] * 7] * 5}, TypeError, "mask: .*array.*list"),
    "mask with too few keys": (None, {"mask": np.ones((5, 6), bool)}, ValueError, "mask: .*6"),
    "mask with more batches": (None, {"mask": np.ones((3, 4, 5, 7), bool)}, ValueError, "mask: .*3"),
    "mask of more axes": (None, {"mask": np.ones((1, 2, 4, 5, 7), bool)}, ValueError, "mask: "),
    "boolean bias": (None, {"bias": np.ones((5, 7), bool)}, TypeError, "bias: .*bool"),
    "integer bias": (None, {"bias": np.ones((5, 7), np.int64)}, TypeError, "bias: .*int64"),
    "wide bias": (None, {"bias": np.ones((5, 7), np.float64)}, TypeError, "bias: .*float32.*float64"),
    "bias with too many queries": (None, {"bias": np.ones((6, 7), np.float32)}, ValueError, "bias: .*6"),
    # positions
    "no anchor": (None, {"causal": True}, ValueError, "query_offset: .*upper_left.*lower_right"),
    "window without an anchor": (None, {"window": (1, 0)}, ValueError, "query_offset: .*upper_left.*lower_right"),
    "another word": (None, {"causal": True, "query_offset": "middle"}, ValueError, "query_offset: .*upper_left.*lower_right.*middle"),
    "fractional offset": (None, {"causal": True, "query_offset": 1.0}, TypeError, "query_offset: .*integer.*float"),
    "true as an offset": (None, {"causal": True, "query_offset": True}, TypeError, "query_offset: .*bool"),
    "offset beyond 64 bits": (None, {"causal": True, "query_offset": 2**64}, ValueError, "query_offset: .*18446744073709551616"),
    "offsets as floats": (None, {"causal": True, "query_offset": [0.0, 1.0]}, TypeError, "query_offset: .*float64"),
    "offsets as booleans": (None, {"causal": True, "query_offset": [True, False]}, TypeError, "query_offset: .*bool"),
    "offsets for three batches": (None, {"causal": True, "query_offset": [0, 1, 2]}, ValueError, r"query_offset: .*\(2,\).*\(3,\)"),
    "window as a number": (None, {"window": 3, "query_offset": 0}, TypeError, "window: .*pair.*int"),
    "window with one side": (None, {"window": (1,), "query_offset": 0}, ValueError, r"window: .*pair.*\(1,\)"),
    "window of floats": (None, {"window": (1.0, 0), "query_offset": 0}, TypeError, "window: .*float"),
    "window of booleans": (None, {"window": (True, 0), "query_offset": 0}, TypeError, "window: .*bool"),
    "negative window": (None, {"window": (-1, 0), "query_offset": 0}, ValueError, "window: .*-1"),
    "very negative window": (None, {"window": (0, -(2**80)), "query_offset": 0}, ValueError, "window: .*-1208925819614629174706176"),
    "prefix alone": (None, {"prefix": 2, "query_offset": 0}, ValueError, "prefix: .*causal"),
    "negative prefix": (None, {"prefix": -1, "causal": True, "query_offset": 0}, ValueError, "prefix: .*-1"),
    "length above S": (None, {"key_lengths": [8, 1]}, ValueError, "key_lengths: .*7.*8"),
    "negative length": (None, {"key_lengths": np.array([-1, 1])}, ValueError, "key_lengths: .*-1"),
    "huge unsigned length": (None, {"key_lengths": np.array([2**63, 1], np.uint64)}, ValueError, "key_lengths: .*9223372036854775808"),
    "lengths for three batches": (None, {"key_lengths": [1, 1, 1]}, ValueError, "key_lengths: "),
    "lengths as floats": (None, {"key_lengths": np.array([1.0, 2.0])}, TypeError, "key_lengths: .*integers.*float64"),
    "ragged lengths": (None, {"key_lengths": [[1, 2], [3]]}, ValueError, "key_lengths: "),
    "lengths as text": (None, {"key_lengths": "12"}, TypeError, "key_lengths: .*str"),
    # regions and tables
    "grid as a number": (None, {"grid": 5}, TypeError, "grid: .*pair.*int"),
    "grid of three axes": (None, {"grid": (1, 5, 1)}, ValueError, r"grid: .*pair \(rows, columns\).*\(1, 5, 1\)"),
    "grid of floats": (None, {"grid": (1.0, 5)}, TypeError, "grid: .*integer.*float"),
    "grid of another size": (None, {"grid": (1, 5)}, ValueError, r"grid: .*\(1, 5\) for 5 queries and 7 keys"),
    "negative grid": (lambda q, k, v: (q, k[:, :, :5], v[:, :, :5]), {"grid": (-1, -5)}, ValueError, "grid: .*-1"),
    "grid beyond 64 bits": (None, {"grid": (2**70, 1)}, ValueError, "grid: .*1180591620717411303424"),
    "neighbourhood without a grid": (None, {"neighborhood": 3}, ValueError, "neighborhood: .*grid"),
    "neighbourhood of no cells": (EQUAL, {"grid": (1, 5), "neighborhood": 0}, ValueError, "neighborhood: .*odd.*0"),
    "neighbourhood of no cells without a grid": (None, {"neighborhood": 0}, ValueError, "neighborhood: "),
    "negative neighbourhood": (EQUAL, {"grid": (1, 5), "neighborhood": (-1, 1)}, ValueError, "neighborhood: .*-1"),
    "even neighbourhood": (EQUAL, {"grid": (1, 5), "neighborhood": (1, 4)}, ValueError, "neighborhood: .*odd.*4"),
    "half a neighbourhood": (EQUAL, {"grid": (1, 5), "neighborhood": 0.5}, TypeError, "neighborhood: .*integer or a pair.*float"),
    "true as a neighbourhood": (EQUAL, {"grid": (1, 5), "neighborhood": True}, TypeError, "neighborhood: .*bool"),
    "neighbourhood of three axes": (EQUAL, {"grid": (1, 5), "neighborhood": (1, 3, 1)}, ValueError, "neighborhood: .*pair"),
    "neighbourhood that cannot be shifted inside": (
        EQUAL, {"grid": (1, 5), "neighborhood": (1, 5), "dilation": (1, 2), "border": "shift"}, ValueError, r"neighborhood: .*at most \(1, 2\).*\(1, 5\)"),
    "dilation without a neighbourhood": (EQUAL, {"grid": (1, 5), "dilation": 2}, ValueError, "dilation: expected 1 without a neighborhood, got 2"),
    "dilations without a neighbourhood": (None, {"dilation": (1, 2)}, ValueError, r"dilation: .*without a neighborhood, got \(1, 2\)"),
    "no dilation": (EQUAL, {"grid": (1, 5), "neighborhood": 1, "dilation": 0}, ValueError, "dilation: .*1.*0"),
    "none as dilation": (EQUAL, {"grid": (1, 5), "neighborhood": 1, "dilation": None}, TypeError, "dilation: .*None"),
    "none as dilation without a neighbourhood": (None, {"dilation": None}, TypeError, "dilation: .*None"),
    "true as dilation": (EQUAL, {"grid": (1, 5), "neighborhood": 1, "dilation": True}, TypeError, "dilation: .*bool"),
    "border without a neighbourhood": (None, {"border": "shift"}, ValueError, "border: expected 'clip' without a neighborhood, got 'shift'"),
    "another border": (EQUAL, {"grid": (1, 5), "neighborhood": 1, "border": "wrap"}, ValueError, "border: expected 'clip' or 'shift', got 'wrap'"),
    "another border without a neighbourhood": (None, {"border": "wrap"}, ValueError, "border: .*'clip' or 'shift'.*'wrap'"),
    "none as border": (None, {"border": None}, TypeError, "border: .*None"),
    "table of one axis": (EQUAL, {"relative": np.zeros(3, np.float32)}, ValueError, r"relative: .*2R\+1.*\(3,\)"),
    "table of three heads": (EQUAL, {"relative": np.zeros((3, 3), np.float32)}, ValueError, r"relative: .*\(4 or 1, 2R\+1\).*\(3, 3\)"),
    "table of even length": (EQUAL, {"relative": np.zeros((1, 4), np.float32)}, ValueError, "relative: "),
    "empty table": (EQUAL, {"relative": np.zeros((1, 0), np.float32)}, ValueError, "relative: "),
    "line on a grid": (EQUAL, {"grid": (1, 5), "relative": np.zeros((1, 3), np.float32)}, ValueError, r"relative: .*2R\+1, 2C\+1"),
    "grid's table without a grid": (EQUAL, {"relative": np.zeros((1, 3, 3), np.float32)}, ValueError, "relative: "),
    "wide table": (EQUAL, {"relative": np.zeros((1, 3))}, TypeError, "relative: .*float32.*float64"),
    "integer table": (EQUAL, {"relative": np.zeros((1, 3), np.int32)}, TypeError, "relative: .*int32"),
    "a list as table": (EQUAL, {"relative": [[0.0]]}, TypeError, "relative: .*array.*list"),
    "table without an anchor": (None, {"relative": np.zeros((1, 3), np.float32)}, ValueError, "query_offset: .*upper_left.*lower_right"),
    # weights
    "another compatibility": (None, {"compatibility": "euclid"}, ValueError, "compatibility: expected 'dot', .*attend.gaussian.*, got 'euclid'"),
    "gaussian without sigma": (None, {"compatibility": "gaussian"}, ValueError, r"compatibility: .*attend.gaussian\(sigma\).*'gaussian'"),
    "class as compatibility": (None, {"compatibility": attend.gaussian}, TypeError, "compatibility: .*type"),
    "function as compatibility": (None, {"compatibility": max}, TypeError, "compatibility: .*function"),
    "none as compatibility": (None, {"compatibility": None}, TypeError, "compatibility: .*None"),
    "broken text as compatibility": (None, {"compatibility": "\ud800"}, ValueError, "compatibility: "),
    "weights of another width": (None, {"compatibility": attend.additive(np.ones(7, np.float32))}, ValueError, r"additive: .*\(8,\).*\(7,\)"),
    "weights of two axes": (None, {"compatibility": attend.additive(np.ones((1, 8), np.float32))}, ValueError, r"additive: .*\(1, 8\)"),
    "wide weights": (None, {"compatibility": attend.additive(np.ones(8))}, TypeError, "additive: .*float32.*float64"),
    "integer weights": (None, {"compatibility": attend.additive(np.ones(8, int))}, TypeError, "additive: .*int64"),
    "another normalizer": (None, {"normalizer": "softmin"}, ValueError, "normalizer: expected 'softmax', .* or 'abs', got 'softmin'"),
    "none as normalizer": (None, {"normalizer": None}, TypeError, "normalizer: .*None"),
    "lse of a mean": (None, {"normalizer": "mean", "return_lse": True}, ValueError, "return_lse: .*softmax.*'mean'"),
    # the rest
    "text as scale": (None, {"scale": "1"}, TypeError, "scale: .*number.*str"),
    "true as scale": (None, {"scale": True}, TypeError, "scale: .*bool"),
    "complex scale": (None, {"scale": 1j}, TypeError, "scale: .*complex"),
    "infinite scale": (None, {"scale": float("inf")}, ValueError, "scale: .*inf"),
    "scale that is no number": (None, {"scale": float("nan")}, ValueError, "scale: .*nan"),
    "scale beyond float64": (None, {"scale": 10**400}, ValueError, "scale: "),
    "another layout": (None, {"layout": "lbhd"}, ValueError, "layout: .*bhld.*blhd.*lbhd"),
    "layout as a number": (None, {"layout": 1}, TypeError, "layout: .*int"),
    "text as causal": (None, {"causal": "yes"}, TypeError, "causal: .*str"),
    "one as return_lse": (None, {"return_lse": 1}, TypeError, "return_lse: .*int"),
    "none as reproducible": (None, {"reproducible": None}, TypeError, "reproducible: .*None"),
    "no threads": (None, {"threads": 0}, ValueError, "threads: .*1.*0"),
    "negative threads": (None, {"threads": -(2**70)}, ValueError, "threads: "),
    "half a thread": (None, {"threads": 0.5}, TypeError, "threads: .*float"),
    # out
    "out of another shape": (None, {"out": np.zeros((2, 4, 5, 5), np.float32)}, ValueError, r"out: .*\(2, 4, 5, 6\).*\(2, 4, 5, 5\)"),
    "out of another rank": (None, {"out": np.zeros((4, 5, 6), np.float32)}, ValueError, "out: "),
    "out of another dtype": (None, {"out": np.zeros((2, 4, 5, 6))}, TypeError, "out: .*float32.*float64"),
    "out of integers": (None, {"out": np.zeros((2, 4, 5, 6), np.int32)}, TypeError, "out: .*int32"),
    "out as a list": (None, {"out": [0.0]}, TypeError, "out: .*array.*list"),
    "out that overlaps itself": (None, {"out": np.lib.stride_tricks.as_strided(np.zeros(6, np.float32), (2, 4, 5, 6), (0, 0, 0, 4))}, ValueError, "out: "),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_refused_by_name_and_nothing_is_written(what):
    change, options, error, words = WRONG[what]
    arrays = problem()
    out = np.full((2, 4, 5, 6), 7, np.float32)
    with pytest.raises(error, match=f"(?s)^({words})") as caught:
        attend.attention(*(change(*arrays) if change else arrays), **{"out": out, **options})
    assert ": expected " in str(caught.value) and ", got " in str(caught.value)
    assert (out == 7).all()


def test_out_that_overlaps_an_input_is_refused():
    base = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    view = lambda first: base[first : first + 6].reshape(1, 1, 6, 8)
    before = base.copy()
    for out in (view(0), view(13), view(19), base[::-1][14:20].reshape(1, 1, 6, 8)):
        with pytest.raises(ValueError, match="^out: "):
            attend.attention(view(0), view(10), view(20), out=out)
        assert (base == before).all()


def test_unknown_parameters_are_refused_in_pythons_own_words():
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'soft_cap'"):
        attend.attention(*problem(), soft_cap=1.0)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'threads'"):
        attend.plan((2, 4), (3, 4), (3, 4), "float32", threads=1)
    q, k, v = problem()
    for call, words in ((lambda: attend.attention(q, k, v, np.ones((5, 7), bool)), r"attention\(\) takes 3 positional arguments but 4 were given"),
                        (lambda: attend.attention(q, k), r"attention\(\) missing 1 required positional argument: 'v'"),
                        (lambda: attend.attention(q, k, causal=True), r"attention\(\) missing 1 required positional argument: 'v'"),
                        (lambda: attend.attention(q, k, v, k=k), r"attention\(\) got multiple values for argument 'k'"),
                        (lambda: attend.attention(), r"attention\(\) missing 3 required positional arguments: 'q', 'k', and 'v'"),
                        (lambda: attend.attention_varlen(q, k, v), r"attention_varlen\(\) missing 1 required positional argument: 'cu_seqlens_q'")):
        with pytest.raises(TypeError, match=f"^{words}$"):
            call()


@pytest.mark.parametrize("arguments, error, words", [
    (((2, 4), (3, 5), (3, 4), "float32"), ValueError, "^k: .*4.*5"),
    (((2, 4), (3, 4), (2, 4), "float32"), ValueError, "^v: "),
    (((2, -4), (3, 4), (3, 4), "float32"), ValueError, "^q_shape: "),
    (((2, 4.0), (3, 4), (3, 4), "float32"), TypeError, "^q_shape: .*float"),
    ((7, (3, 4), (3, 4), "float32"), TypeError, "^q_shape: .*int"),
    (((2, 4), "34", (3, 4), "float32"), TypeError, "^k_shape: .*str"),
    (((2, 4), (3, 4), (1,) * 9, "float32"), ValueError, "^v_shape: .*8"),
    (((2, 4), (3, 4), (3, 4), "float8"), TypeError, "^dtype: expected float32, float64, float16 or bfloat16, got float8"),
    (((2, 4), (3, 4), (3, 4), np.int32), TypeError, "^dtype: .*int32"),
    (((2, 4), (3, 4), (3, 4), None), TypeError, "^dtype: .*None"),
])
def test_plan_refuses_what_attention_would(arguments, error, words):
    with pytest.raises(error, match=words):
        attend.plan(*arguments)


def test_results_too_large_for_memory_are_an_error_and_no_crash():
    x = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2**30, 2**30, 1), (0, 0, 0))
    with pytest.raises((MemoryError, ValueError)):
        attend.attention(x, x, x)
