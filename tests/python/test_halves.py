"""float16 and bfloat16 from Python: inputs and results in two bytes, computed with in float32, rounded once."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import attend
from reference import HALVES, assert_close, attention, problem, tensor_of

pytestmark = pytest.mark.parametrize("dtype", HALVES)
L, S, H = 5, 7, 4


def random(shape, dtype, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# What an option is given, by a function from an array to an array that is to be read as the same numbers.
WAYS = {
    "nothing": lambda of: {},
    "bias": lambda of: {"bias": of(random((H, L, S), "float32"))},
    "sinks": lambda of: {"sinks": of(random((H,), "float32"))},
    "slopes": lambda of: {"alibi": of(random((H,), "float32")), "query_offset": 1},
    "table": lambda of: {"relative": of(random((H, 5), "float32")), "query_offset": 1},
    "weights of additive": lambda of: {"compatibility": attend.additive(of(random((8,), "float32")))},
    "list": lambda of: {"score": [attend.bias(of(random((L, S), "float32"))), attend.soft_cap(2), attend.alibi(of(random((H,), "float32")))],
                        "query_offset": 1},
    "mask": lambda of: {"mask": np.random.default_rng(1).random((L, S)) < 0.6},
    "cosine": lambda of: {"compatibility": "cosine"},
    "dropout": lambda of: {"dropout_p": 0.3, "seed": 5},
}


@pytest.mark.parametrize("rows", [1, L, 40])
@pytest.mark.parametrize("way", WAYS)
def test_results_are_those_of_float32_rounded(way, rows, dtype):
    arrays = problem(L=rows, dtype=dtype)
    rounded = lambda x: x.astype(dtype)
    options = WAYS[way](lambda x: rounded(x).astype("float32"))
    if rows != L:
        options = {name: x for name, x in options.items() if name not in ("bias", "mask", "score")}
    more = {"return_lse": True, "return_weights": True, "return_scores": "biased"}
    want = attend.attention(*(x.astype("float32") for x in arrays), **options, **more)
    beside = WAYS[way](rounded)
    # Products of pairs, where the processor has them, round the weights, too.
    pairs = attend.plan(*(x.shape for x in arrays), dtype, **options)["kernel"] == "forward_pairs"
    for given in (options, {name: beside[name] for name in options}):  # numbers beside inputs as float32, and as halves
        got = attend.attention(*arrays, **given, **more)
        if pairs:
            assert np.allclose(got.lse, want.lse, rtol=1e-6, atol=1e-5)
            for name in ("out", "weights", "scores"):
                assert getattr(got, name).dtype == dtype
                assert np.allclose(getattr(got, name).astype("float32"), getattr(want, name), rtol=2**-7, atol=8e-3), name
            continue
        assert got.lse.dtype == "float32" and np.array_equal(got.lse, want.lse)
        for name in ("out", "weights", "scores"):
            assert getattr(got, name).dtype == dtype
            assert np.array_equal(getattr(got, name), getattr(want, name).astype(dtype)), name


def test_other_dtypes_beside_halves_are_refused_and_both_are_named(dtype):
    other = next(x for x in HALVES if x != dtype)
    for options in ({"bias": random((L, S), other)}, {"sinks": random((H,), other)}, {"alibi": random((H,), other), "query_offset": 0},
                    {"relative": random((H, 5), other), "query_offset": 0}, {"bias": random((L, S), "float64")}):
        with pytest.raises(TypeError, match=f"^{next(iter(options))}: expected {dtype} or float32, got (float64|{other})"):
            attend.attention(*problem(dtype=dtype), **options)
    q, k, v = problem(dtype=dtype)
    for name, wrong in (("k", other), ("v", "float32"), ("v", "float64")):
        arrays = {"k": k, "v": v, name: {"k": k, "v": v}[name].astype(wrong)}
        with pytest.raises(TypeError, match=f"^{name}: expected {dtype}, the dtype of q, got {wrong}"):
            attend.attention(q, **arrays)


def test_out_is_written_in_place_and_has_to_be_of_the_inputs_dtype(dtype):
    q, k, v = problem(dtype=dtype)
    want, base = attend.attention(q, k, v), np.full((2, L, H, 13), 7, dtype)
    out = base[..., 1::2].swapaxes(1, 2)
    assert attend.attention(q, k, v, out=out) is out and np.array_equal(out, want) and (base[..., ::2] == 7).all()
    for wrong in {"float32", "uint16", *HALVES} - {dtype}:
        with pytest.raises(TypeError, match=f"^out: expected .*, got {wrong}"):
            attend.attention(q, k, v, out=np.zeros(want.shape, wrong))
    out.flags.writeable = False
    with pytest.raises(ValueError, match="^out: .*read-only"):
        attend.attention(q, k, v, out=out)
    with pytest.raises(ValueError, match="^out: .*overlaps"):
        attend.attention(q, q, q, out=q)


def test_inputs_keep_their_bytes_and_their_reference_counts(dtype):
    arrays = problem(dtype=dtype)
    before, bytes_before = [sys.getrefcount(x) for x in arrays], [x.tobytes() for x in arrays]
    for _ in range(100):
        attend.attention(*arrays)
        with pytest.raises(ValueError):
            attend.attention(*arrays, scale=np.nan)
    assert [sys.getrefcount(x) for x in arrays] == before and [x.tobytes() for x in arrays] == bytes_before


def test_plans_know_every_name_of_the_dtype(dtype):
    shape = (1, 8, 512, 64)
    made = attend.plan(shape, shape, shape, dtype)
    assert made["dtype"] == dtype and 2 * made["bytes"] == attend.plan(shape, shape, shape, "float32")["bytes"]
    for name in (np.dtype(dtype), np.dtype(dtype).type):
        assert attend.plan(shape, shape, shape, name) == made


def test_numbers_that_only_bfloat16_holds_become_infinite_in_float16(dtype):
    v = np.full((1, 1), 65504, "float32").astype(dtype)
    y = attend.attention(np.zeros((1, 1), dtype), np.zeros((1, 1), dtype), v, normalizer="sigmoid", scale=0)
    assert y == np.asarray(0.5 * v.astype("float32")).astype(dtype)
    big = attend.attention(np.ones((1, 1), dtype), np.full((1, 1), 4, dtype), v, normalizer="sum")
    assert np.isinf(big).all() == (dtype == "float16")
    scores = attend.attention(np.full((1, 1), 6e4, "float32").astype(dtype), np.full((2, 1), [[6e4], [-6e4]], "float32").astype(dtype),
                              np.array([[1], [2]], dtype))
    assert scores == 1  # scores beyond 65504 are no matter: they are float32


@pytest.mark.peers
def test_torch_needs_no_ml_dtypes(torch, dtype):
    code = f"""
        import sys
        sys.modules["ml_dtypes"] = None
        import attend, torch
        q, k, v = (torch.randn(1, 2, n, 8).to(torch.{dtype}) for n in (3, 40, 40))
        got = attend.attention(q, k, v, return_lse=True)
        want = attend.attention(q.float(), k.float(), v.float(), return_lse=True)
        assert got.out.dtype is q.dtype and torch.equal(got.out, want.out.to(q.dtype)) and torch.equal(got.lse, want.lse)
        assert torch.equal(attend.onnx.attention(q, k, v).Y, got.out)
        assert torch.equal(attend.merge([got.out], [got.lse]).out, got.out)
        assert torch.equal(attend.scaled_dot_product_attention(q, k, v), got.out)
        print("done")
    """
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert child.stdout == "done\n", child.stderr


@pytest.mark.peers
def test_tensors_of_every_form_are_read_where_they_are(torch, dtype):
    q, k, v = problem(dtype=dtype)
    want = attend.attention(q, k, v)
    tensors = [tensor_of(torch, x) for x in (q, k, v)]
    for change in (lambda x: x.mT.contiguous().mT, lambda x: x.repeat_interleave(2, -1)[..., ::2], lambda x: x.swapaxes(1, 2).contiguous().swapaxes(1, 2)):
        y = attend.attention(*map(change, tensors))
        assert y.dtype is getattr(torch, dtype) and np.array_equal(y.double().numpy(), want.astype(np.float64))
    for way in ("bias", "sinks", "slopes", "table", "weights of additive", "list"):
        numbers = lambda x: x.astype(dtype)
        expected = attend.attention(q, k, v, **WAYS[way](numbers))
        for beside in (lambda x: tensor_of(torch, numbers(x)), lambda x: tensor_of(torch, numbers(x).astype("float32"))):
            y = attend.attention(*tensors, **WAYS[way](beside))
            assert np.array_equal(y.double().numpy(), expected.astype(np.float64)), way
    y, out = attend.attention(*tensors), torch.zeros(2, 4, 5, 6, dtype=tensors[0].dtype)
    assert attend.attention(*tensors, out=out) is out and torch.equal(out, y)
    assert np.array_equal(attend.attention(q, *tensors[1:]), want)  # and q decides what comes back
    assert_close(want, attention(q, k, v)[0], abs(v).max())
    assert attend.plan(q.shape, k.shape, v.shape, tensors[0].dtype) == attend.plan(q.shape, k.shape, v.shape, dtype)
    with pytest.raises(TypeError, match=f"^k: expected {dtype}, the dtype of q, got float32"):
        attend.attention(tensors[0], tensors[1].float(), tensors[2])
