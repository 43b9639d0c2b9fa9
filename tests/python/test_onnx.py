"""`attend.onnx`: the operators Attention and RotaryEmbedding of ai.onnx."""

import ast
import doctest
import inspect
import pathlib
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import attend
from reference import DTYPES, HALVES, assert_close, attention, causal, problem, scores_of, soft_cap

B, H, HK, L, S, E, EV = 2, 4, 2, 5, 7, 8, 6
CAP, SCALE = 0.5, 0.7


def flat(x):
    """(B, heads, length, width) as (B, length, heads * width)."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def test_the_submodule_loads_by_its_name_and_imports_no_onnx():
    code = ("import sys, attend; assert 'attend.onnx' not in sys.modules; attend.onnx.attention; "
            "import attend.onnx as one; from attend import onnx as other; assert one is other is attend.onnx; "
            "print('onnx' in sys.modules, 'onnx' in dir(attend))")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False True\n"
    with pytest.raises(AttributeError, match="module 'attend' has no attribute 'oonx'"):
        attend.oonx


def test_parameters_are_onnxs_inputs_and_attributes():
    assert str(inspect.signature(attend.onnx.attention)) == (
        "(Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, opset=24, is_causal=0, "
        "kv_num_heads=None, q_num_heads=None, qk_matmul_output_mode=0, scale=None, softcap=0.0, softmax_precision=None, "
        "left_window_size=-1, right_window_size=-1)")


def test_the_stub_has_the_parameters_that_exist_and_the_example_runs():
    tree = ast.parse(pathlib.Path(attend.onnx.__file__).with_suffix(".pyi").read_text())
    stubs = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(stubs) == {"attention", "rotary_embedding"}
    for name, arguments in stubs.items():
        assert [a.arg for a in arguments.args + arguments.kwonlyargs] == list(inspect.signature(getattr(attend.onnx, name)).parameters)
    assert doctest.testmod(attend.onnx).failed == 0 < doctest.testmod(attend.onnx).attempted


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("opset", [23, 24, 25])
def test_plain_calls_of_both_ranks(opset, dtype):
    q, k, v = problem(dtype=dtype)
    want = attention(q, k, v)[0]
    y, present_key, present_value, scores = attend.onnx.attention(q, k, v, opset=opset)
    assert_close(y, want, abs(v).max())
    assert present_key is k and present_value is v
    assert_close(scores, scores_of(q, np.repeat(k, 2, 1)), 4)
    y3, present_key, present_value, scores3 = attend.onnx.attention(flat(q), flat(k), flat(v), opset=opset, q_num_heads=H, kv_num_heads=HK)
    assert np.array_equal(y3, flat(y)) and np.array_equal(scores3, scores)
    assert np.array_equal(present_key, k) and np.array_equal(present_value, v)


@pytest.mark.parametrize("packed", [False, True])
def test_the_four_modes_are_raw_capped_biased_and_weights(packed):
    q, k, v = problem()
    bias = np.random.default_rng(1).standard_normal((1, H, L, S)).astype(np.float32)
    bias[0, 1, 2] = -np.inf
    bias[0, :, :, 3] = -np.inf
    raw = scores_of(q, np.repeat(k, 2, 1), scale=SCALE)
    capped = soft_cap(CAP)(raw)
    want = attention(q, k, v, scale=SCALE, score=[soft_cap(CAP)], bias=bias)
    arrays = (flat(q), flat(k), flat(v)) if packed else (q, k, v)
    heads = {"q_num_heads": H, "kv_num_heads": HK} if packed else {}
    for mode, expected in enumerate((raw, capped, capped + bias, want[2])):
        y, _, _, got = attend.onnx.attention(*arrays, bias, scale=SCALE, softcap=CAP, qk_matmul_output_mode=mode, **heads)
        assert_close(got, expected, 4, times=2)
        assert_close(y, flat(want[0]) if packed else want[0], abs(v).max())
    assert attend.onnx.attention(*arrays, qk_matmul_output_mode=None, **heads).qk_matmul_output is None


@pytest.mark.parametrize("mode", [0, 1, 2, 3, None])
def test_lengths_exclude_keys_and_set_a_frontier_per_batch_in_every_mode(mode):
    q, k, v = problem()
    lengths = np.array([3, 7])
    frontier = lengths[:, None, None, None] - L + np.arange(L)[:, None]
    mask = (np.arange(S) < lengths[:, None, None, None]) & (np.arange(S) <= frontier)
    raw = scores_of(q, np.repeat(k, 2, 1))
    want = attention(q, k, v, mask=mask, score=[soft_cap(CAP)])
    y, _, _, got = attend.onnx.attention(q, k, v, nonpad_kv_seqlen=lengths, is_causal=1, softcap=CAP, qk_matmul_output_mode=mode)
    assert_close(y, want[0], abs(v).max())
    assert not y[0, :, :2].any()
    if mode is not None:
        assert_close(got, (raw, soft_cap(CAP)(raw), np.where(mask, soft_cap(CAP)(raw), -np.inf), want[2])[mode], 4, times=2)
    k[0, :, 3:], v[0, :, 3:] = np.nan, np.inf
    dirty = attend.onnx.attention(q, k, v, nonpad_kv_seqlen=lengths.tolist(), is_causal=1, softcap=CAP, qk_matmul_output_mode=mode)
    assert np.array_equal(dirty.Y, y)


@pytest.mark.parametrize("packed", [False, True])
def test_a_past_comes_first_and_moves_the_diagonal(packed):
    q, k, v = problem()
    past = 4
    new = (q, k[:, :, past:], v[:, :, past:])
    arrays = tuple(map(flat, new)) if packed else new
    heads = {"q_num_heads": H, "kv_num_heads": HK} if packed else {}
    y, present_key, present_value, scores = attend.onnx.attention(*arrays, past_key=k[:, :, :past], past_value=v[:, :, :past], is_causal=1,
                                                                  qk_matmul_output_mode=2, **heads)
    want = attention(q, k, v, mask=causal(L, S, past))[0]
    assert_close(y, flat(want) if packed else want, abs(v).max())
    assert np.array_equal(present_key, k) and np.array_equal(present_value, v) and scores.shape == (B, H, L, S)
    assert np.array_equal(np.isfinite(scores[0, 0]), causal(L, S, past))
    assert not np.shares_memory(present_key, k)


def test_windows_stand_around_the_position():
    q, k, v = problem()
    at = np.arange(L)[:, None] + 2
    for left, right, allowed in ((2, 1, (np.arange(S) >= at - 2) & (np.arange(S) <= at + 1)), (-1, 0, np.arange(S) <= at),
                                 (0, -1, np.arange(S) >= at)):
        past = {"past_key": k[:, :, :2], "past_value": v[:, :, :2]}
        y = attend.onnx.attention(q, k[:, :, 2:], v[:, :, 2:], opset=25, left_window_size=left, right_window_size=right, **past)[0]
        assert_close(y, attention(q, k, v, mask=allowed)[0], abs(v).max())
    y = attend.onnx.attention(q, k, v, opset=25, left_window_size=3, right_window_size=2, is_causal=1)[0]
    assert_close(y, attention(q, k, v, mask=causal(L, S) & ~causal(L, S, -4))[0], abs(v).max())


@pytest.mark.parametrize("shape", [(), (1,), (S,), (L, S), (1, S), (L, 1), (H, L, S), (1, 1, S), (B, 1, L, S), (1, H, 1, S), (B, 1, 1, S)], ids=str)
def test_masks_and_biases_broadcast_from_the_right(shape):
    q, k, v = problem()
    rng = np.random.default_rng(3)
    mask, bias = np.array(rng.random(shape) < 0.7), np.array(rng.standard_normal(shape), np.float32)
    assert_close(attend.onnx.attention(q, k, v, mask)[0], attention(q, k, v, mask=mask)[0], abs(v).max())
    assert_close(attend.onnx.attention(q, k, v, bias)[0], attention(q, k, v, bias=bias)[0], abs(v).max())


@pytest.mark.parametrize("width", [1, 3, 6])
def test_masks_may_end_before_the_keys_from_opset_24(width):
    q, k, v = problem()
    rng = np.random.default_rng(4)
    mask, bias = rng.random((L, width)) < 0.8, rng.standard_normal((L, width)).astype(np.float32)
    short = np.arange(S) < width
    lengths = {"nonpad_kv_seqlen": np.array([1, width])}
    inside = np.arange(S) < lengths["nonpad_kv_seqlen"][:, None, None, None]
    padded = lambda x: np.concatenate([x, np.zeros((L, S - width), x.dtype)], -1)
    assert_close(attend.onnx.attention(q, k, v, mask, **lengths)[0], attention(q, k, v, mask=padded(mask) & inside)[0], abs(v).max())
    assert_close(attend.onnx.attention(q, k, v, bias, **lengths)[0], attention(q, k, v, mask=inside, bias=padded(bias))[0], abs(v).max())
    if width > 1:
        assert_close(attend.onnx.attention(q, k, v, mask)[0], attention(q, k, v, mask=padded(mask))[0], abs(v).max())
        assert_close(attend.onnx.attention(q, k, v, bias)[0], attention(q, k, v, mask=short, bias=padded(bias))[0], abs(v).max())
        with pytest.raises(ValueError, match="^attn_mask: "):
            attend.onnx.attention(q, k, v, mask, opset=23)
    with pytest.raises(ValueError, match=f"^attn_mask: .*7.*{width}"):
        attend.onnx.attention(q, k, v, mask, nonpad_kv_seqlen=np.array([1, S]))


def ulps(got, want):
    """How many 16-bit values lie between `got` and `want`, at most."""
    order = lambda x: np.where(x.view(np.int16) < 0, -(x.view(np.int16).astype(int) & 0x7FFF), x.view(np.int16).astype(int))
    return abs(order(got) - order(want)).max()


@pytest.mark.parametrize("dtype", HALVES)
def test_16_bit_inputs_are_computed_with_in_float32_and_rounded_once(dtype):
    q, k, v = problem(dtype=dtype)
    bias = np.random.default_rng(5).standard_normal((L, S)).astype(dtype)
    wide = [x.astype(np.float32) for x in (q, k, v)]
    want = attend.attention(*wide, bias=bias.astype(np.float32), return_scores="scaled", query_offset=0)
    y, present_key, present_value, scores = attend.onnx.attention(q, k, v, bias)
    assert y.dtype == scores.dtype == q.dtype and present_key is k and present_value is v
    assert np.array_equal(y, want.out.astype(q.dtype)) and np.array_equal(scores, want.scores.astype(q.dtype))
    assert ulps(y, attention(*wide, bias=bias.astype(np.float32))[0].astype(q.dtype)) <= 1
    assert np.array_equal(attend.onnx.attention(q, k, v, bias[:, :4]).Y, attend.onnx.attention(q, k[:, :, :4], v[:, :, :4], bias[:, :4]).Y)
    joined = attend.onnx.attention(q, k[:, :, 3:], v[:, :, 3:], past_key=k[:, :, :3], past_value=v[:, :, :3])
    assert np.array_equal(joined.present_key, k) and np.array_equal(joined.present_value, v) and np.array_equal(joined.Y, attend.onnx.attention(q, k, v).Y)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_16_bit_inputs_are_not_copied(dtype, packed):
    q, k, v = (np.zeros((1, 4096, 256) if packed else (1, 4, 4096, 64), dtype) for _ in range(3))
    heads = {"q_num_heads": 4, "kv_num_heads": 4} if packed else {}
    bias, call = np.zeros((4096, 4096), dtype), attend.onnx.attention
    call(q[:, :1], k[:, :1], v[:, :1], qk_matmul_output_mode=None, **heads)  # what is imported at the first call
    tracemalloc.start()
    try:
        y = call(q, k, v, bias, opset=25, left_window_size=8, right_window_size=0, qk_matmul_output_mode=None, **heads).Y
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * y.nbytes


@pytest.mark.parametrize("wide, narrow", [("float64", "float32"), ("float32", "float16"), ("float64", "float16")])
def test_values_may_have_another_type(wide, narrow):
    q, k, v = problem(dtype="float64")
    for one, two in ((wide, narrow), (narrow, wide)):
        a, b, c = q.astype(one), k.astype(one), v.astype(two)
        y, present_key, present_value, scores = attend.onnx.attention(a, b, c)
        assert y.dtype == scores.dtype == present_key.dtype == one and present_value.dtype == two
        want = attention(a, b, c)[0]
        if one == "float16":
            assert np.array_equal(y, want.astype(np.float16)) or ulps(y, want.astype(np.float16)) <= 1
        else:
            assert_close(y, want, abs(v).max())


def test_softmax_precision_double_computes_in_double():
    q, k, v = problem(L=20, S=500)
    exact = attention(q, k, v)[0].astype(np.float32)
    assert np.array_equal(attend.onnx.attention(q, k, v, softmax_precision=11).Y, exact)
    for precision in (1, 10, 16):
        assert_close(attend.onnx.attention(q, k, v, softmax_precision=precision).Y, exact, abs(v).max())


def test_empty_parts_are_served():
    q, k, v = problem()
    odd = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (B, HK, 0, E), (4, 12, 400, 8))
    past = {"past_key": odd, "past_value": odd[..., :EV]}
    assert np.array_equal(attend.onnx.attention(q, k, v, **past).Y, attend.onnx.attention(q, k, v).Y)
    none = attend.onnx.attention(q, k[:, :, :0], v[:, :, :0])
    assert not none.Y.any() and none.qk_matmul_output.shape == (B, H, L, 0)
    assert attend.onnx.attention(q[:, :, :0], k, v).Y.shape == (B, H, 0, EV)
    assert attend.onnx.attention(flat(q)[:, :0], flat(k), flat(v), q_num_heads=H, kv_num_heads=HK).Y.shape == (B, 0, H * EV)


q0, k0, v0 = problem()
WRONG = {
    "opset 22": ((), {"opset": 22}, ValueError, "opset: expected 23, 24 or 25, got 22"),
    "half an opset": ((), {"opset": 24.0}, TypeError, "opset: .*float"),
    "is_causal of 2": ((), {"is_causal": 2}, ValueError, "is_causal: .*2"),
    "mode 4": ((), {"qk_matmul_output_mode": 4}, ValueError, "qk_matmul_output_mode: .*4"),
    "precision 2": ((), {"softmax_precision": 2}, ValueError, "softmax_precision: .*2"),
    "window in opset 24": ((), {"left_window_size": 2}, ValueError, "left_window_size: .*opset 24"),
    "window of -2": ((), {"right_window_size": -2, "opset": 25}, ValueError, "right_window_size: .*-2"),
    "window of None": ((), {"right_window_size": None, "opset": 25}, TypeError, "right_window_size: .*NoneType"),
    "negative cap": ((), {"softcap": -1.0}, ValueError, "softcap: .*-1"),
    "cap that is no number": ((), {"softcap": float("nan")}, ValueError, "softcap: .*nan"),
    "text as scale": ((), {"scale": "1"}, TypeError, "scale: .*str"),
    "lengths in opset 23": ((), {"nonpad_kv_seqlen": [1, 2], "opset": 23}, ValueError, "nonpad_kv_seqlen: .*opset 23"),
    "lengths beside a past": ((), {"nonpad_kv_seqlen": [1, 2], "past_key": k0, "past_value": v0}, ValueError, "nonpad_kv_seqlen: .*past_key"),
    "lengths above S": ((), {"nonpad_kv_seqlen": [1, 8]}, ValueError, "nonpad_kv_seqlen: .*7.*8"),
    "negative lengths": ((), {"nonpad_kv_seqlen": [-1, 2]}, ValueError, "nonpad_kv_seqlen: .*-1"),
    "lengths of three batches": ((), {"nonpad_kv_seqlen": np.array([1, 2, 3])}, ValueError, r"nonpad_kv_seqlen: .*\(2,\).*\(3,\)"),
    "lengths as floats": ((), {"nonpad_kv_seqlen": np.array([1.0, 2.0])}, TypeError, "nonpad_kv_seqlen: .*float64"),
    "a past key alone": ((), {"past_key": k0}, ValueError, "past_value: expected an array beside past_key"),
    "a past value alone": ((), {"past_value": v0}, ValueError, "past_key: expected an array beside past_value"),
    "a past of another width": ((), {"past_key": k0[..., :3], "past_value": v0}, ValueError, "past_key: .*8.*3"),
    "a past of other heads": ((), {"past_key": k0, "past_value": v0[:, :1]}, ValueError, "past_value: .*2.*1"),
    "a past of another length": ((), {"past_key": k0, "past_value": v0[:, :, :3]}, ValueError, "V: .*14.*10"),
    "a past of another type": ((), {"past_key": k0.astype(float), "past_value": v0}, TypeError, "past_key: .*float32.*float64"),
    "rank 3 without heads": ((flat(q0), flat(k0), flat(v0)), {}, ValueError, "q_num_heads: .*None"),
    "rank 3 without heads of keys": ((flat(q0), flat(k0), flat(v0)), {"q_num_heads": H}, ValueError, "kv_num_heads: .*None"),
    "heads that do not divide": ((flat(q0), flat(k0), flat(v0)), {"q_num_heads": 5, "kv_num_heads": HK}, ValueError, "Q: .*5 heads.*32"),
    "no heads": ((flat(q0), flat(k0), flat(v0)), {"q_num_heads": 0, "kv_num_heads": HK}, ValueError, "q_num_heads: .*0"),
    "other heads than the axis": ((), {"q_num_heads": 3}, ValueError, "q_num_heads: .*4.*3"),
    "ranks that differ": ((q0, flat(k0), v0), {}, ValueError, "Q, K, V: .*rank"),
    "rank 2": ((q0[0, 0], k0[0, 0], v0[0, 0]), {}, ValueError, "Q, K, V: .*rank"),
    "other batches": ((q0, k0[:1], v0[:1]), {}, ValueError, "K: .*2.*1"),
    "keys of another width": ((q0, k0[..., :3], v0), {}, ValueError, "K: .*8.*3"),
    "values longer than keys": ((q0, k0[:, :, :5], v0), {}, ValueError, "V: .*7.*5|V: .*5.*7"),
    "heads that are no multiple": ((q0[:, :3], k0, v0), {}, ValueError, "K: .*3.*2"),
    "keys of another type": ((q0, k0.astype(float), v0), {}, TypeError, "K: expected float32, got float64"),
    "integers": ((q0.astype(int), k0.astype(int), v0), {}, TypeError, "Q: .*int64"),
    "a list": (([[1.0]], k0, v0), {}, TypeError, "Q: expected an array.*list"),
    "a masked array": ((np.ma.array(q0), k0, v0), {}, TypeError, "Q: .*MaskedArray"),
    "integer mask": ((q0, k0, v0, np.ones((L, S), int)), {}, TypeError, "attn_mask: expected booleans or float32, got int64"),
    "wide mask": ((q0, k0, v0, np.ones((L, S))), {}, TypeError, "attn_mask: .*float32.*float64"),
    "mask of other queries": ((q0, k0, v0, np.ones((L + 1, S), bool)), {}, ValueError, "attn_mask: .*6"),
    "mask of more keys": ((q0, k0, v0, np.zeros((L, S + 1), np.float32)), {}, ValueError, "attn_mask: .*8"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_refused_by_onnxs_names(what):
    arrays, options, error, words = WRONG[what]
    with pytest.raises(error, match=f"^({words})") as caught:
        attend.onnx.attention(*(arrays or (q0, k0, v0)), **options)
    assert ": expected " in str(caught.value) and ", got " in str(caught.value)


# --- RotaryEmbedding ----------------------------------------------------------------------------------------------------


def turned(x, cos, sin, interleaved, n):
    """x (B, heads, L, E) with caches (B, L, n/2), pair by pair."""
    y = x.astype(np.float64)
    for m in range(n // 2):
        a, b = (2 * m, 2 * m + 1) if interleaved else (m, m + n // 2)
        c, s = (t[:, None, :, m].astype(np.float64) for t in (cos, sin))
        y[..., a], y[..., b] = c * x[..., a] - s * x[..., b], s * x[..., a] + c * x[..., b]
    return y


@pytest.mark.parametrize("n", [0, 8, 4, 2])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_are_turned_by_the_angle_of_their_token(dtype, by_position, interleaved, n):
    x = problem()[0]
    rng = np.random.default_rng(6)
    angles = rng.standard_normal((20, (n or E) // 2)) if by_position else rng.standard_normal((B, L, (n or E) // 2))
    x, cos, sin = (a.astype(dtype) for a in (x, np.cos(angles), np.sin(angles)))
    ids = rng.integers(0, 20, (B, L)) if by_position else None
    rows = (cos[ids], sin[ids]) if by_position else (cos, sin)
    want = turned(x, *rows, interleaved, n or E)
    y = attend.onnx.rotary_embedding(x, cos, sin, ids, interleaved=interleaved, rotary_embedding_dim=n)
    assert y.dtype == x.dtype
    if dtype in ("float16", "bfloat16"):
        assert ulps(y, want.astype(x.dtype)) <= 1
    else:
        assert_close(y, want, 4)
    packed = attend.onnx.rotary_embedding(flat(x), cos, sin, ids, interleaved=interleaved, rotary_embedding_dim=n, num_heads=H)
    assert np.array_equal(packed, flat(y))
    if n:
        assert np.array_equal(y[..., n:], x[..., n:])


COS = np.ones((20, E // 2), np.float32)
IDS = np.zeros((B, L), np.int64)


@pytest.mark.parametrize("arrays, options, error, words", [
    ((q0[0], COS, COS, IDS), {}, ValueError, "^num_heads: "),
    ((q0[0, 0], COS, COS, IDS), {}, ValueError, "^X: .*rank"),
    ((flat(q0), COS, COS, IDS), {"num_heads": 5}, ValueError, "^X: .*5 heads.*32"),
    ((q0, COS, COS, IDS), {"num_heads": 5}, ValueError, "^num_heads: .*4.*5"),
    ((q0, COS, COS, IDS), {"rotary_embedding_dim": 3}, ValueError, "^rotary_embedding_dim: .*even.*3"),
    ((q0, COS, COS, IDS), {"rotary_embedding_dim": 10}, ValueError, "^rotary_embedding_dim: .*8.*10"),
    ((q0[..., :7], COS, COS, IDS), {}, ValueError, "^rotary_embedding_dim: .*even.*7"),
    ((q0, COS, COS, IDS), {"rotary_embedding_dim": 4}, ValueError, r"^cos_cache: .*\(20, 2\).*\(20, 4\)"),
    ((q0, COS, COS[:19], IDS), {}, ValueError, r"^sin_cache: .*\(20, 4\).*\(19, 4\)"),
    ((q0, COS, COS), {}, ValueError, r"^cos_cache: .*\(2, 5, 4\).*\(20, 4\)"),
    ((q0, COS, COS, IDS[:1]), {}, ValueError, r"^position_ids: .*\(2, 5\).*\(1, 5\)"),
    ((q0, COS, COS, IDS + 20), {}, ValueError, "^position_ids: .*19.*20"),
    ((q0, COS, COS, IDS - 1), {}, ValueError, "^position_ids: .*-1"),
    ((q0, COS, COS, IDS.astype(float)), {}, TypeError, "^position_ids: .*float64"),
    ((q0, COS.astype(float), COS, IDS), {}, TypeError, "^cos_cache: .*float32.*float64"),
    ((q0.astype(int), COS, COS, IDS), {}, TypeError, "^X: .*int64"),
    ((q0, COS, COS, IDS), {"interleaved": 2}, ValueError, "^interleaved: .*2"),
], ids=range(17))
def test_wrong_arguments_of_the_rotation_are_refused(arrays, options, error, words):
    with pytest.raises(error, match=words) as caught:
        attend.onnx.rotary_embedding(*arrays, **options)
    assert ": expected " in str(caught.value) and ", got " in str(caught.value)


# --- PyTorch's tensors --------------------------------------------------------------------------------------------------


@pytest.mark.peers
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensors_give_torch_tensors(torch, dtype):
    kind = getattr(torch, dtype)
    q, k, v = (torch.from_numpy(x).to(kind) for x in problem(dtype="float64"))
    want = attend.onnx.attention(*(x.double() for x in (q, k, v)), is_causal=1)
    got = attend.onnx.attention(q, k[:, :, 3:], v[:, :, 3:], past_key=k[:, :, :3], past_value=v[:, :, :3])
    assert all(type(x) is torch.Tensor and x.dtype is kind for x in got)
    assert torch.equal(got.present_key, k) and torch.equal(got.present_value, v)
    y = attend.onnx.attention(q, k, v, is_causal=1)[0]
    bound = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    assert (y.double() - want.Y).abs().max() <= bound * v.abs().max()
    cos = torch.ones(20, E // 2, dtype=kind)
    assert torch.equal(attend.onnx.rotary_embedding(q, cos, 0 * cos, torch.zeros(B, L, dtype=torch.int64)), q)
    bias = torch.from_numpy(np.random.default_rng(5).standard_normal((L, S))).to(kind)
    packed = [x.swapaxes(1, 2).reshape(B, x.shape[2], -1) for x in (q, k, v)]
    for mask, options in ((bias, {}), (bias[:, :4], {}), (bias, {"softmax_precision": 11})):
        y = attend.onnx.attention(q, k, v, mask, **options).Y
        exact = attend.onnx.attention(*(x.double() for x in (q, k, v, mask))).Y
        assert y.dtype is kind and (y.double() - exact).abs().max() <= bound * v.abs().max()
        flat_y = attend.onnx.attention(*packed, mask, q_num_heads=H, kv_num_heads=HK, **options).Y
        assert torch.equal(flat_y, y.swapaxes(1, 2).reshape(B, L, -1))
    mixed = attend.onnx.attention(q, k, v.float())
    assert mixed.Y.dtype is kind and torch.equal(mixed.present_value, v.float())
    with pytest.raises(ValueError, match="^K: .*gradient.*attend.torch"):
        attend.onnx.attention(q, k.clone().requires_grad_(), v)


@pytest.mark.peers
def test_tensors_that_numpy_cannot_read_are_refused_by_name(torch):
    q, k, v = map(torch.from_numpy, problem())
    with pytest.raises(ValueError, match="^V: .*meta"):
        attend.onnx.attention(q, k, v.to("meta"))
    with pytest.raises(ValueError, match="^Q: .*NumPy can read"):
        attend.onnx.attention(q.to_sparse(), k, v)
    negated = torch.view_as_complex(torch.stack([0 * q, -q], -1).contiguous()).conj().imag
    assert negated.is_neg() and np.array_equal(attend.onnx.attention(negated, k, v).Y, attend.onnx.attention(q, k, v).Y)


@pytest.mark.peers
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_jax_arrays_give_jax_arrays(dtype):
    jnp = pytest.importorskip("jax.numpy")
    arrays = [jnp.asarray(x, dtype) for x in problem()]
    got = attend.onnx.attention(*arrays, is_causal=1)
    want = attend.onnx.attention(*map(np.asarray, arrays), is_causal=1)
    for one, other in zip(got, want, strict=True):
        assert type(one) is type(arrays[0]) and one.dtype == other.dtype == dtype and np.array_equal(one, other)
    cos = jnp.ones((20, E // 2), dtype)
    y = attend.onnx.rotary_embedding(arrays[0], cos, 0 * cos, jnp.zeros((B, L), jnp.int32))
    assert type(y) is type(cos) and np.array_equal(y, arrays[0])
