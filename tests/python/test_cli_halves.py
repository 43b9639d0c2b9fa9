"""float16 and bfloat16 on the command line: what files hold, and what run, check and plan make of it."""

import json
import struct

import numpy as np
import pytest

import attend
from test_cli import random, refusal, result, truth

HALVES = ["float16", "bfloat16"]
SUFFIXES = ["npz", "safetensors"]
CODES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "bool": "BOOL", "int64": "I64"}


def stored(x, dtype):
    """Numbers as NumPy stores them: bfloat16, which it lacks, as raw elements of two bytes, rounded to nearest, ties to even."""
    if dtype != "bfloat16":
        return np.asarray(x).astype(dtype)
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view("V2")


def widened(x):
    """What `stored` holds, in float32."""
    return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if x.dtype == "V2" else x.astype(np.float32)


def name_of(x):
    return "bfloat16" if x.dtype == "V2" else x.dtype.name


def write(path, tensors):
    if path.suffix == ".npz":
        np.savez(path, **tensors)
        return
    header, data = {}, b""
    for name, x in tensors.items():
        header[name] = {"dtype": CODES[name_of(x)], "shape": x.shape, "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    if path.suffix == ".npz":
        return dict(np.load(path))
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    kinds = {"F16": "<f2", "BF16": "V2", "F32": "<f4"}
    return {
        name: np.frombuffer(data[8 + length :][slice(*one["data_offsets"])], kinds[one["dtype"]]).reshape(one["shape"])
        for name, one in json.loads(data[8 : 8 + length]).items()
    }


def said(dtype, suffix):
    """How a user says what the file cannot."""
    return ["--dtype", "bfloat16"] if dtype == "bfloat16" and suffix != "safetensors" else []


def by_pairs(dtype, shape):
    """Whether products of pairs compute this shape here, which round the weights, too."""
    return attend.plan(shape, shape, shape, dtype)["kernel"] == "forward_pairs"


def same(got, want):
    """The same type and bits."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert got.tobytes() == want.tobytes()


def tensors(dtype):
    """A call with what may stand beside it, stored as q is, and the same in float32."""
    x = {
        "q": random((2, 4, 7, 8), 1),
        "k": random((2, 2, 11, 8), 2),
        "v": random((2, 2, 11, 5), 3),
        "bias": random((2, 1, 7, 11), 4),
        "sinks": random((4,), 5),
        "slopes": random((4,), 6) ** 2,
        "table": random((4, 5), 7),
        "w": random((8,), 8),
    }
    x = {name: stored(one, dtype) for name, one in x.items()}
    both = {"mask": np.random.default_rng(9).random((7, 11)) < 0.6, "lengths": np.array([11, 4])}
    return x | both, {name: widened(one) for name, one in x.items()} | both


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "options",
    [
        "",
        "--causal --query-offset lower_right --softcap 2 --sinks sinks",
        "--bias bias --mask mask --key-lengths lengths",
        "--relative table --alibi slopes --query-offset 0",
        "--compatibility additive:w --reproducible",
        "--score bias:bias,softcap:3 --dropout 0.3 --seed 5",
    ],
)
def test_a_call_in_halves_is_that_in_float32_rounded_once(tmp_path, suffix, dtype, options):
    narrow, wide = tensors(dtype)
    write(tmp_path / f"narrow.{suffix}", narrow)
    write(tmp_path / f"wide.{suffix}", wide)
    asked = (*options.split(), "--lse", "--weights", "--scores", "biased")
    shown = result("run", tmp_path / f"narrow.{suffix}", *said(dtype, suffix), *asked, "-o", tmp_path / f"y.{suffix}")
    assert shown == result("run", tmp_path / f"wide.{suffix}", *asked, "-o", tmp_path / f"z.{suffix}") == ""
    y, z = read(tmp_path / f"y.{suffix}"), read(tmp_path / f"z.{suffix}")
    assert set(y) == {"out", "lse", "weights", "scores"}
    for name in ("out", "weights", "scores"):
        same(y[name], stored(z[name], dtype))
    same(y["lse"], z["lse"])


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_beside_halves_may_be_float32(tmp_path, dtype):
    narrow, wide = tensors(dtype)
    beside = {f"{name}32": random(narrow[name].shape, n) for n, name in enumerate(("bias", "sinks"))}
    np.savez(tmp_path / "narrow.npz", **narrow, **beside)
    np.savez(tmp_path / "wide.npz", **wide, **beside)
    np.save(tmp_path / "bias32.npy", beside["bias32"])
    np.save(tmp_path / "table.npy", narrow["table"])
    np.savez(tmp_path / "f64.npz", **narrow, far=np.zeros((7, 11)))
    options = ["--sinks", "sinks32", "--query-offset", "0"]
    result("run", tmp_path / "wide.npz", "--bias", "bias32", "--relative", "table", *options, "-o", tmp_path / "z.npy")
    for bias, table in (("bias32", "table"), (tmp_path / "bias32.npy", tmp_path / "table.npy")):
        beside = ("--bias", bias, "--relative", table, *options)
        result("run", tmp_path / "narrow.npz", *said(dtype, "npz"), *beside, "-o", tmp_path / "y.npy")
        same(np.load(tmp_path / "y.npy"), stored(np.load(tmp_path / "z.npy"), dtype))
    line = refusal("run", tmp_path / "f64.npz", *said(dtype, "npz"), "--bias", "far")
    assert f"bias: expected {dtype} or float32, got float64" in line


@pytest.mark.parametrize("dtype", HALVES)
def test_three_npy_of_either_byte_order_are_read_and_the_result_is_read_again(tmp_path, dtype):
    narrow, wide = tensors(dtype)
    for name in "qkv":
        x = narrow[name]
        np.save(tmp_path / f"{name}.npy", x.astype(">f2") if dtype == "float16" else x)
        np.save(tmp_path / f"{name}32.npy", wide[name])
    three = [tmp_path / f"{name}.npy" for name in "qkv"]
    result("run", *three, *said(dtype, "npy"), "-o", tmp_path / "y.npy")
    result("run", *(tmp_path / f"{name}32.npy" for name in "qkv"), "-o", tmp_path / "z.npy")
    same(np.load(tmp_path / "y.npy"), stored(np.load(tmp_path / "z.npy"), dtype))
    again = json.loads(result("plan", *[tmp_path / "y.npy"] * 3, *said(dtype, "npy"), "--json"))
    assert (again["dtype"], again["queries"], again["width"]) == (dtype, 7, 5)


def test_raw_elements_are_bfloat16_only_where_that_is_said(tmp_path):
    narrow, _ = tensors("bfloat16")
    np.savez(tmp_path / "in.npz", **narrow)
    np.save(tmp_path / "bias.npy", narrow["bias"])
    write(tmp_path / "in.safetensors", narrow)
    for command in ("run", "check", "plan"):
        assert "raw 2-byte elements (bfloat16 where --dtype bfloat16 says so)" in refusal(command, tmp_path / "in.npz")
    # A file that names its types, beside one that does not.
    asked = ("run", tmp_path / "in.safetensors", "--bias", tmp_path / "bias.npy")
    assert "bias.npy: holds raw 2-byte elements" in refusal(*asked)
    assert result(*asked, "--dtype", "bfloat16").startswith("out: bfloat16 (2, 4, 7, 5), min ")


def unit_in_the_last_place(rows, dtype):
    """Of the largest number of each row."""
    exponent = np.frexp(widened(stored(abs(rows).max(-1, keepdims=True), dtype)))[1] - 1
    return np.ldexp(1.0, exponent - {"float16": 10, "bfloat16": 7}[dtype])


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", HALVES)
def test_check_counts_in_units_of_the_type(tmp_path, dtype, suffix):
    x = {name: stored(random((2, 33, 16), n), dtype) for n, name in enumerate("qkv")}
    write(tmp_path / f"in.{suffix}", x)
    asked = (tmp_path / f"in.{suffix}", *said(dtype, suffix))
    facts = json.loads(result("check", *asked, "--time", "--json"))
    assert facts["passed"] is True and facts["dtype"] == dtype and facts["elements"] == 2 * 33 * 16
    assert 0 < facts["largest_error"] <= facts["bound"]
    result("run", *asked, "-o", tmp_path / "y.npy")
    want = truth(*(widened(x[name]) for name in "qkv"))[0]
    errors = abs(widened(np.load(tmp_path / "y.npy")) - want)
    ulps = errors / unit_in_the_last_place(want, dtype)
    assert facts["largest_error"] == pytest.approx(errors.max())
    assert facts["largest_error_ulp"] == pytest.approx(ulps.max()) and facts["mean_error_ulp"] == pytest.approx(ulps.mean())
    if not by_pairs(dtype, (2, 33, 16)):
        assert facts["largest_error_ulp"] < 0.51, "rounded once"
    # Two bytes an element, and the arithmetic of float32.
    assert facts["bytes"] == 2 * 4 * 2 * 33 * 16 and facts["limits"]["fma_dtype"] == "float32"
    assert 0 < facts["fraction_of_limit"]
    text = result("check", *asked, "--time")
    assert f": {dtype}, q (2, 33, 16)" in text and f" GF/s in float32, as {dtype} is computed, and " in text


@pytest.mark.parametrize("dtype, size", [("float16", 6e4), ("bfloat16", 3e38), ("float32", 3e38)])
def test_check_takes_infinity_where_the_truth_is_beyond_the_type(tmp_path, dtype, size):
    ones = np.ones((4, 8))
    x = {"q": ones, "k": ones, "v": size * ones * [1, -1, 1, -1, 0.01, 0.01, 0, 0]}
    np.savez(tmp_path / "in.npz", **{name: stored(one, dtype) for name, one in x.items()})
    asked = (tmp_path / "in.npz", *said(dtype, "npz"), "--normalizer", "sum")
    result("run", *asked, "-o", tmp_path / "y.npy")
    assert list(np.isinf(widened(np.load(tmp_path / "y.npy"))[0])) == [True] * 4 + [False] * 4
    facts = json.loads(result("check", *asked, "--json"))
    assert facts["passed"] is True and facts["largest_error"] <= facts["bound"]


@pytest.mark.parametrize("options", ["", "--causal --softcap 2 --sinks sinks", "--normalizer sigmoid", "--compatibility gaussian:2"])
@pytest.mark.parametrize("dtype", HALVES)
def test_packed_sequences(tmp_path, dtype, options):
    x = {"q": random((41, 4, 8), 1), "k": random((50, 2, 8), 2), "v": random((50, 2, 5), 3), "sinks": random((4,), 4)}
    x = {name: stored(one, dtype) for name, one in x.items()}
    cuts = {"cu_q": np.array([0, 3, 3, 40, 41]), "cu_k": np.array([0, 5, 5, 43, 50])}
    np.savez(tmp_path / "in.npz", **x, **cuts)
    np.savez(tmp_path / "wide.npz", **{name: widened(one) for name, one in x.items()}, **cuts)
    asked = ["--varlen", "cu_q,cu_k", *options.split()]
    lse = [] if "sigmoid" in options else ["--lse"]
    result("run", tmp_path / "in.npz", *said(dtype, "npz"), *asked, *lse, "-o", tmp_path / "y.npz")
    result("run", tmp_path / "wide.npz", *asked, *lse, "-o", tmp_path / "z.npz")
    y, z = np.load(tmp_path / "y.npz"), np.load(tmp_path / "z.npz")
    if "gaussian" not in options and by_pairs(dtype, (4, 37, 8)):
        assert np.allclose(widened(y["out"]), z["out"], rtol=2**-7, atol=8e-3 * max(1, abs(z["out"]).max()))
        if lse:
            assert np.allclose(y["lse"], z["lse"], rtol=1e-6, atol=1e-5)
    else:
        same(y["out"], stored(z["out"], dtype))
        if lse:
            same(y["lse"], z["lse"])
    facts = json.loads(result("check", tmp_path / "in.npz", *said(dtype, "npz"), *asked, "--time", "--json"))
    assert facts["passed"] is True and facts["sequences"] == 4 and facts["dtype"] == dtype
    assert facts["bytes"] == 2 * (41 * 4 * 8 + 50 * 2 * (8 + 5) + 41 * 4 * 5)


@pytest.mark.parametrize("dtype", HALVES)
def test_plan_knows_the_same_from_files_and_from_sizes(tmp_path, dtype):
    narrow, _ = tensors(dtype)
    np.savez(tmp_path / "in.npz", **narrow)
    np.save(tmp_path / "bias.npy", narrow["bias"])
    told = json.loads(result("plan", tmp_path / "in.npz", *said(dtype, "npz"), "--bias", "bias", "--json"))
    asked = json.loads(result("plan", "--shape", "2,4,2,7,11,8,5", "--dtype", dtype, "--bias", tmp_path / "bias.npy", "--json"))
    measured = ("limits", "least_milliseconds", "bound_by")
    assert {k: v for k, v in told.items() if k not in measured} == {k: v for k, v in asked.items() if k not in measured}
    assert told["dtype"] == dtype and told["bytes"] == 2 * (2 * 4 * 7 * (8 + 5) + 2 * 2 * 11 * (8 + 5))
    assert told["limits"]["fma_dtype"] == "float32"
    assert f" GF/s in float32, as {dtype} is computed, and " in result("plan", "--shape", "1,8,2,1,4096,128", "--dtype", dtype)


def test_limits_say_which_arithmetic_they_are_of():
    for dtype in ("float32", "float64"):
        assert f" GF/s in {dtype} and " in result("plan", "--shape", "1,8,2,1,4096,128", "--dtype", dtype)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("run {f16} --dtype bfloat16", "--dtype: expected what q holds, float16 (q is tensor q of"),
        ("run {f16} --dtype float16", "--dtype: expected bfloat16 alone beside IN, whose files say every other, got 'float16'"),
        ("check {f32} --dtype bfloat16", "--dtype: expected what q holds, float32"),
        ("plan {mixed} --dtype bfloat16", "--dtype: expected what v holds, float32"),
        ("run {mixed} --names q,k,k --dtype half", "--dtype: expected bfloat16"),
        ("run {f16} --names q,k,lengths", "v: expected"),
        ("run {f16} --bias mask", "bias: expected float16 or float32, got bool"),
        ("run {f16} --mask bias", "mask: expected booleans"),
        ("run {f16} --key-lengths sinks", "--key-lengths: expected an int64 or int32 tensor, got float16"),
        ("plan --shape 1,1,1,4,4,8 --dtype half", "--dtype: expected float32, float64, float16 or bfloat16, got 'half'"),
        ("plan --shape 1,4,2,7,11,8 --dtype bfloat16 --bias {f16bias}", "bias: expected bfloat16 or float32, got float16"),
    ],
)
def test_what_does_not_fit_is_one_line_and_exit_code_2(tmp_path, arguments, words):
    narrow, wide = tensors("float16")
    np.savez(tmp_path / "f16.npz", **narrow)
    np.savez(tmp_path / "f32.npz", **wide)
    np.savez(tmp_path / "mixed.npz", **(tensors("bfloat16")[0] | {"v": wide["v"]}))
    np.save(tmp_path / "bias.npy", narrow["bias"])
    paths = {name: tmp_path / f"{name}.npz" for name in ("f16", "f32", "mixed")} | {"f16bias": tmp_path / "bias.npy"}
    assert words in refusal(*arguments.format(**paths).split())
