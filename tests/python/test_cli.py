"""The command `attend`, driven as a user would: files in, files or text out, exit codes, one line for every error."""

import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

COMMAND = shutil.which(str(Path(sys.executable).with_name("attend"))) or shutil.which("attend")

# Work that takes a second on every machine: one thread, without wide vectors.
SLOW = {**os.environ, "ATTEND_ISA": "scalar"}


def attend(*arguments, **options):
    assert COMMAND, "expected the command attend beside the interpreter or on the path; ./dev build makes it"
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def result(*arguments):
    """stdout of a command that succeeds and says nothing on stderr."""
    done = attend(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refusal(*arguments, **options):
    """The one line on stderr of a command that refuses its input."""
    done = attend(*arguments, **options)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("attend") and done.stderr.endswith("\n") and done.stderr.count("\n") == 1, done.stderr
    assert "expected" in done.stderr
    return done.stderr


def random(shape, seed, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def truth(q, k, v, allowed=True, bias=0.0, scale=None):
    """Attention in float64, from its definition; heads before length, as many key/value heads as query heads."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.einsum("...ie,...je->...ij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    scores = np.where(allowed, scores, -np.inf)
    top = np.where(np.isfinite(scores.max(-1, keepdims=True)), scores.max(-1, keepdims=True), 0)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    weights = weights / np.where(total == 0, 1, total)
    return weights @ v, lse, weights


@pytest.fixture
def files(tmp_path):
    """Tensors in an .npz, and the same as three .npy."""
    x = {
        "q": random((2, 3, 7, 8), 1),
        "k": random((2, 3, 11, 8), 2),
        "v": random((2, 3, 11, 5), 3),
        "mask": np.random.default_rng(4).random((7, 11)) < 0.6,
        "bias": random((2, 1, 7, 11), 5),
        "lengths": np.array([11, 4], np.int32),
        "table": random((3, 5), 6),
        "w": random((8,), 7),
    }
    np.savez(tmp_path / "in.npz", **x)
    for name, value in x.items():
        np.save(tmp_path / f"{name}.npy", value)
    return tmp_path, x


@pytest.fixture
def image(tmp_path):
    """Cells of a 4 x 5 grid with a table by rows and columns, in an .npz."""
    x = {"q": random((2, 20, 8), 1), "k": random((2, 20, 8), 2), "v": random((2, 20, 3), 3), "table": random((1, 3, 3), 4)}
    np.savez(tmp_path / "image.npz", **x)
    return tmp_path / "image.npz", x


def three(folder):
    return [folder / f"{name}.npy" for name in "qkv"]


def safetensors(path):
    """Tensors of a .safetensors, read by hand."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    kinds = {"F32": np.float32, "F64": np.float64}
    return {
        name: np.frombuffer(data[8 + length :][slice(*one["data_offsets"])], kinds[one["dtype"]]).reshape(one["shape"])
        for name, one in json.loads(data[8 : 8 + length]).items()
    }


def near(got, want, dtype=np.float32):
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=5e-6 if dtype == np.float32 else 1e-12)


I, J = np.arange(7)[:, None], np.arange(11)[None, :]


@pytest.mark.parametrize(
    "options, change",
    [
        ("", {}),
        ("--scale -0.5", dict(scale=-0.5)),
        ("--scale 0", dict(scale=0)),
        ("--causal --query-offset upper_left", dict(allowed=J <= I)),
        ("--causal --query-offset lower_right", dict(allowed=J <= I + 4)),
        ("--causal --query-offset -3", dict(allowed=J <= I - 3)),
        ("--causal --query-offset 1,6", dict(allowed=J <= I + np.array([1, 6])[:, None, None, None])),
        ("--window 2,none --query-offset 0", dict(allowed=J >= I - 2)),
        ("--window 2,1 --query-offset 2", dict(allowed=(J >= I) & (J <= I + 3))),
        ("--causal --query-offset 0 --prefix 4", dict(allowed=(J <= I) | (J < 4))),
        ("--key-lengths 6", dict(allowed=J < 6)),
        ("--key-lengths 9,0", dict(allowed=J < np.array([9, 0])[:, None, None, None])),
        ("--key-lengths lengths", dict(allowed=J < np.array([11, 4])[:, None, None, None])),
        ("--reproducible --threads 1", {}),
    ],
)
def test_options_mean_what_they_mean_in_the_library(files, options, change):
    folder, x = files
    result("run", folder / "in.npz", "-o", folder / "y.npy", *options.split())
    near(np.load(folder / "y.npy"), truth(x["q"], x["k"], x["v"], **change)[0])


def by_function(f):
    """Scores of a function of differences and sums, for what `truth` adds to scores of scale 0."""
    return lambda q, k: f(*(np.asarray(x, np.float64) for x in (q[..., :, None, :], k[..., None, :, :])))


@pytest.mark.parametrize(
    "options, scores",
    [
        ("--compatibility dot --scale 0.25", by_function(lambda q, k: (q * k).sum(-1) / 4)),
        ("--compatibility cosine", by_function(lambda q, k: (q * k).sum(-1) / np.sqrt((q * q).sum(-1) * (k * k).sum(-1)))),
        ("--compatibility l1 --scale 0.5", by_function(lambda q, k: -abs(q - k).sum(-1) / 2)),
        ("--compatibility none", by_function(lambda q, k: 0 * (q * k).sum(-1))),
        ("--compatibility gaussian:1.5", by_function(lambda q, k: -((q - k) ** 2).sum(-1) / 4.5)),
        ("--compatibility additive:w", None),
        ("--compatibility additive:{folder}/w.npy", None),
    ],
)
def test_compatibility_functions_mean_what_they_mean_in_the_library(files, options, scores):
    folder, x = files
    scores = scores or by_function(lambda q, k: (x["w"].astype(np.float64) * np.tanh(q + k)).sum(-1))
    result("run", folder / "in.npz", "-o", folder / "y.npy", *options.format(folder=folder).split())
    near(np.load(folder / "y.npy"), truth(x["q"], x["k"], x["v"], bias=scores(x["q"], x["k"]), scale=0)[0])


@pytest.mark.parametrize(
    "name, weigh",
    [
        ("softmax", lambda s: np.exp(s) / np.exp(s).sum(-1, keepdims=True)),
        ("mean", lambda s: s / 11),
        ("sum", lambda s: s),
        ("sigmoid", lambda s: 1 / (1 + np.exp(-s))),
        ("relu2", lambda s: np.maximum(s, 0) ** 2 / (np.maximum(s, 0) ** 2).sum(-1, keepdims=True)),
        ("abs", lambda s: s / abs(s).sum(-1, keepdims=True)),
    ],
)
def test_normalizers_mean_what_they_mean_in_the_library_and_pass_check(files, name, weigh):
    folder, x = files
    result("run", folder / "in.npz", "--normalizer", name, "--weights", "-o", folder / "y.npz")
    weights = weigh(np.einsum("...ie,...je->...ij", x["q"].astype(np.float64), x["k"]) / np.sqrt(8))
    y = np.load(folder / "y.npz")
    near(y["weights"], weights)
    near(y["out"], weights @ x["v"])
    for compatibility in ("dot", "cosine", "gaussian:2", "l1", "additive:w", "none"):
        options = ("--normalizer", name, "--compatibility", compatibility, "--bias", "bias", "--mask", "mask")
        facts = json.loads(result("check", folder / "in.npz", *options, "--json"))
        assert facts["passed"] is True and facts["elements"] == 2 * 3 * 7 * 5
        assert (facts["compatibility"], facts["normalizer"]) == (compatibility.partition(":")[0], name)


@pytest.mark.parametrize(
    "options, near_cells",
    [
        ("--grid 4,5 --neighborhood 3", lambda r, c: (abs(r) <= 1) & (abs(c) <= 1)),
        ("--grid 4,5 --neighborhood 1,3 --dilation 2", lambda r, c: (r == 0) & (abs(c) <= 2) & (c % 2 == 0)),
        ("--grid 4,5 --neighborhood 3,5 --dilation 1,1 --border clip", lambda r, c: (abs(r) <= 1) & (abs(c) <= 2)),
        ("--grid 4,5", lambda r, c: np.True_),
    ],
)
def test_a_neighbourhood_and_a_table_mean_what_they_mean_in_the_library(image, tmp_path, options, near_cells):
    path, x = image
    rows, columns = (place - place[:, None] for place in np.divmod(np.arange(20), 5))
    table = x["table"][0][rows.clip(-1, 1) + 1, columns.clip(-1, 1) + 1].astype(np.float64)
    allowed = near_cells(rows, columns)
    for more, bias in (("", 0.0), (" --relative table", table)):
        result("run", path, "-o", tmp_path / "y.npy", *(options + more).split())
        near(np.load(tmp_path / "y.npy"), truth(x["q"], x["k"], x["v"], allowed=allowed, bias=bias)[0])
        assert json.loads(result("check", path, *(options + more).split(), "--json"))["passed"] is True


def test_a_shifted_kernel_gives_every_cell_as_many_neighbours(image, tmp_path):
    path, _ = image
    result("run", path, "--grid", "4,5", "--neighborhood", 3, "--border", "shift", "--weights", "-o", tmp_path / "y.npz")
    assert (np.count_nonzero(np.load(tmp_path / "y.npz")["weights"], axis=-1) == 9).all()


@pytest.mark.parametrize("offset", ["upper_left", "lower_right"])
def test_a_table_is_added_by_offset(files, offset):
    folder, x = files
    first = {"upper_left": 0, "lower_right": 4}[offset]
    bias = x["table"].astype(np.float64)[:, (J - I - first).clip(-2, 2) + 2]
    for table in ("table", folder / "table.npy"):
        result("run", folder / "in.npz", "--relative", table, "--query-offset", offset, "-o", folder / "y.npy")
        near(np.load(folder / "y.npy"), truth(x["q"], x["k"], x["v"], bias=bias)[0])


def test_check_counts_neighbours_alone_and_no_arithmetic_for_scores_that_need_none(image):
    options = ("--grid", "4,5", "--neighborhood", "3,1", "--compatibility", "none", "--normalizer", "sum", "--relative", "table")
    facts = json.loads(result("check", image[0], *options, "--time", "--json"))
    assert facts["passed"] is True and facts["flops"] == 2 * 2 * (5 * (2 + 3 + 3 + 2)) * 3, "heads, pairs, columns of v"


def test_plan_names_the_functions(files):
    folder, _ = files
    facts = json.loads(result("plan", folder / "in.npz", "--compatibility", "gaussian:2", "--normalizer", "mean", "--json"))
    assert (facts["compatibility"], facts["normalizer"]) == ("gaussian", "mean")
    text = result("plan", "--shape", "1,1,1,100,100,8", "--grid", "10,10", "--neighborhood", "3", "--compatibility", "cosine", "--normalizer", "relu2")
    assert "cosine" in text and "relu2" in text
    assert "; softmax of dot; kernel" in result("check", folder / "in.npz")


def test_a_mask_and_a_bias_are_tensors_of_the_input_or_files(files):
    folder, x = files
    want = truth(x["q"], x["k"], x["v"], allowed=x["mask"], bias=x["bias"])[0]
    for mask, bias in (("mask", "bias"), (folder / "mask.npy", "bias"), (folder / "mask.npy", folder / "bias.npy")):
        result("run", folder / "in.npz", "--mask", mask, "--bias", bias, "-o", folder / "y.npy")
        near(np.load(folder / "y.npy"), want)
    result("run", *three(folder), "--mask", folder / "mask.npy", "--bias", folder / "bias.npy", "-o", folder / "y.npy")
    near(np.load(folder / "y.npy"), want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_everything_that_is_asked_for_is_written(tmp_path, suffix, dtype):
    q, k, v = random((4, 6, 8), 1, dtype), random((4, 9, 8), 2, dtype), random((4, 9, 3), 3, dtype)
    np.savez_compressed(tmp_path / "in.npz", a=q, b=k, c=v)
    path = tmp_path / f"y.{suffix}"
    load = np.load if suffix == "npz" else safetensors
    for asked in (["lse"], ["weights"], ["lse", "weights"], []):
        assert result("run", tmp_path / "in.npz", "--names", "a,b,c", "-o", path, *[f"--{name}" for name in asked]) == ""
        y = dict(load(path))
        assert list(y) == ["out", *asked]
        want = dict(zip(("out", "lse", "weights"), truth(q, k, v)))
        for name in y:
            near(y[name], want[name], dtype)
    # What the command writes, it reads.
    facts = json.loads(result("plan", path, "--names", "out,out,out", "--json"))
    assert (facts["queries"], facts["width"], facts["dtype"]) == (6, 3, np.dtype(dtype).name)


def test_layout_blhd_is_the_same_call_with_axes_swapped(files):
    folder, x = files
    turned = {name: np.ascontiguousarray(x[name].swapaxes(1, 2)) for name in "qkv"}
    np.savez(folder / "turned.npz", **turned)
    result("run", folder / "turned.npz", "--layout", "blhd", "--lse", "--weights", "-o", folder / "y.npz")
    y = np.load(folder / "y.npz")
    out, lse, weights = truth(x["q"], x["k"], x["v"])
    near(y["out"], out.swapaxes(1, 2))
    near(y["lse"], lse)
    near(y["weights"], weights)


def test_grouped_heads_read_the_key_value_head_of_their_group(tmp_path):
    q, k, v = random((6, 5, 8), 1), random((2, 5, 8), 2), random((2, 5, 8), 3)
    np.savez(tmp_path / "in.npz", q=q, k=k, v=v)
    result("run", tmp_path / "in.npz", "-o", tmp_path / "y.npy")
    near(np.load(tmp_path / "y.npy"), truth(q, k.repeat(3, 0), v.repeat(3, 0))[0])


def test_files_of_other_make_are_read(tmp_path):
    """Fortran order, big-endian numbers, deflated members and data descriptors, in one archive."""
    q, k, v = random((6, 4), 1), random((6, 4), 2), random((6, 4), 3)
    with zipfile.ZipFile(tmp_path / "in.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, x in (("q", np.asfortranarray(q)), ("k", k.astype(">f4")), ("v", v)):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, x, version=(2, 0))
        archive.writestr("readme.txt", "not a tensor")
    result("run", tmp_path / "in.npz", "-o", tmp_path / "y.npy")
    near(np.load(tmp_path / "y.npy"), truth(q, k, v)[0])


def test_without_an_output_a_summary_is_printed(files):
    folder, x = files
    lines = result("run", folder / "in.npz", "--lse", "--weights").splitlines()
    assert lines[0].startswith("out: float32 (2, 3, 7, 5), min ")
    assert lines[1].startswith("lse: float32 (2, 3, 7), min ")
    assert lines[2].startswith("weights: float32 (2, 3, 7, 11), min ")
    assert lines[3].startswith("time: ") and lines[3].endswith(" ms for one call")
    mean = float(lines[0].split("mean ")[1])
    assert mean == pytest.approx(truth(x["q"], x["k"], x["v"])[0].mean(), abs=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_check_reports_errors_within_their_bound(tmp_path, dtype):
    np.savez(tmp_path / "in.npz", **{name: random((2, 33, 16), n, dtype) for n, name in enumerate("qkv")})
    facts = json.loads(result("check", tmp_path / "in.npz", "--causal", "--json", "--time"))
    assert facts["passed"] is True
    assert facts["dtype"] == dtype
    assert facts["elements"] == 2 * 33 * 16 and facts["elements_over_bound"] == 0
    assert 0 < facts["mean_error"] <= facts["largest_error"] <= facts["bound"]
    assert 0 < facts["mean_error_ulp"] <= facts["largest_error_ulp"]
    assert 0 < facts["largest_share_of_bound"] <= 1
    assert facts["milliseconds_min"] <= facts["milliseconds"] <= facts["milliseconds_max"]
    assert facts["flops"] == 2 * 2 * (33 * 34 / 2) * 32, "of the allowed pairs alone"
    assert facts["fraction_of_limit"] > 0 and facts["limit_milliseconds"] > 0
    text = result("check", tmp_path / "in.npz", "--causal")
    assert "largest error: " in text and "over the bound: 0 of 1056 elements" in text and "time" not in text


def test_check_takes_nan_and_infinity_where_they_are_due(tmp_path):
    q, k, v = (random((2, 9, 8), n) for n in range(3))
    q[0, 3] = np.nan
    v[1, 0, 2] = np.inf
    np.savez(tmp_path / "in.npz", q=q, k=k, v=v)
    assert json.loads(result("check", tmp_path / "in.npz", "--json"))["passed"] is True
    assert ", NaN 8\n" in result("run", tmp_path / "in.npz")


def test_plan_knows_the_same_from_files_and_from_sizes(files):
    folder, _ = files
    options = ("--causal", "--query-offset", "lower_right", "--json")
    told = json.loads(result("plan", folder / "in.npz", *options))
    asked = json.loads(result("plan", "--shape", "2,3,3,7,11,8,5", *options))
    measured = ("limits", "least_milliseconds", "bound_by")
    for facts in (told, asked):
        assert facts["least_milliseconds"] > 0 and facts["limits"]["fma_flops_per_second"] > 0
    assert {k: v for k, v in told.items() if k not in measured} == {k: v for k, v in asked.items() if k not in measured}
    assert (told["queries"], told["keys"], told["width"], told["value_width"]) == (7, 11, 8, 5)
    assert json.loads(result("plan", "--shape", "1,1,1,4,4,8", "--dtype", "float64", "--json"))["dtype"] == "float64"
    assert "kernel" in result("plan", "--shape", "1,8,2,1,4096,128")


def test_plan_counts_lengths_and_masks(files):
    folder, _ = files
    whole = json.loads(result("plan", "--shape", "2,3,3,7,1000,8", "--json"))
    short = json.loads(result("plan", "--shape", "2,3,3,7,1000,8", "--key-lengths", folder / "lengths.npy", "--json"))
    assert short["flops"] < whole["flops"]


def test_info_names_version_sets_and_threads():
    facts = json.loads(result("info", "--json", "--limits"))
    sets = facts["instruction_sets"]
    assert "scalar" in sets["detected"] and "scalar" in sets["compiled"] and sets["available"][0] == "scalar"
    assert facts["threads"] >= 1
    assert facts["limits"]["fma_f32_flops_per_second"] > 0 and facts["limits"]["read_bytes_per_second"] > 0
    text = result("info")
    assert text.startswith(f"attend {facts['version']}\n") and f"threads: {facts['threads']}\n" in text
    assert result("--version").strip() == f"attend {facts['version']}"


def test_help_is_no_error():
    for command in ("run", "check", "plan", "info"):
        assert f"Usage: attend {command}" in result(command, "--help")
        assert command in result("--help")


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("", "expected run, check, plan, bench or info (attend --help explains), got nothing"),
        ("walk", "got walk"),
        ("run", "IN"),
        ("run {in} --hardcap 3", "--hardcap"),
        ("check {in} --lse", "--lse"),
        ("run {in} --window 1", "--window: expected two sides L,R"),
        ("run {in} --window 1,x --query-offset 0", "--window"),
        ("run {in} --window -1,0 --query-offset 0", "window"),
        ("run {in} --causal", "query_offset"),
        ("run {in} --causal --query-offset middle", "--query-offset: expected upper_left, lower_right"),
        ("run {in} --key-lengths 1,2,3", "key_lengths"),
        ("run {in} --key-lengths 12", "key_lengths"),
        ("run {in} --key-lengths bias", "--key-lengths: expected an int64"),
        ("run {in} --prefix 2", "prefix"),
        ("run {in} --mask bias", "mask is tensor bias of"),
        ("run {in} --mask nothing", "--mask"),
        ("run {in} --bias mask", "bias is tensor mask of"),
        ("run {in} --scale inf", "--scale"),
        ("run {in} --scale 1x", "--scale"),
        ("run {in} --grid 77", "--grid: expected two whole numbers R,C, got '77'"),
        ("run {in} --grid 7,11", "grid: "),
        ("run {in} --neighborhood 3", "neighborhood: expected a grid"),
        ("run {in} --neighborhood 0", "neighborhood: "),
        ("run {in} --neighborhood 3,x", "--neighborhood: expected a whole number N, or two R,C, got '3,x'"),
        ("run {in} --neighborhood 1,2,3", "--neighborhood"),
        ("run {in} --dilation 2", "--dilation: expected --neighborhood beside it"),
        ("run {in} --border shift", "--border: expected --neighborhood beside it"),
        ("run {in} --neighborhood 3 --border wrap", "--border: expected clip or shift, got 'wrap'"),
        ("run {in} --neighborhood 3 --dilation 2.5", "--dilation: expected a whole number N"),
        ("run {in} --relative table", "query_offset"),
        ("run {in} --relative w", "relative is tensor w of"),
        ("run {in} --relative nothing", "--relative"),
        ("run {in} --compatibility euclid", "--compatibility: expected dot, cosine, l1, none, gaussian:SIGMA or additive:NAME"),
        ("run {in} --compatibility gaussian", "--compatibility: expected"),
        ("run {in} --compatibility gaussian:", "--compatibility: expected"),
        ("run {in} --compatibility gaussian:wide", "--compatibility: expected gaussian:SIGMA with a number"),
        ("run {in} --compatibility gaussian:0", "sigma: expected a finite number above 0"),
        ("run {in} --compatibility dot:1", "--compatibility: expected"),
        ("run {in} --compatibility additive:nothing", "--compatibility additive: expected a tensor of"),
        ("run {in} --compatibility additive:table", "additive is tensor table of"),
        ("run {in} --normalizer softmin", "--normalizer: expected softmax, mean, sum, sigmoid, relu2 or abs, got 'softmin'"),
        ("run {in} --normalizer mean --lse", "lse: "),
        ("plan --shape 1,1,1,4,4,8 --dilation 2", "--dilation"),
        ("run {in} --threads 0", "--threads"),
        ("run {in} --layout lbhd", "--layout: expected bhld or blhd"),
        ("run {in} --names q,k", "--names: expected three names"),
        ("run {in} --names q,k,x", "x: no such tensor, expected one of: q, k, v, mask, bias, lengths, table, w"),
        ("run {in} --names q,k,mask", "v is tensor mask of"),
        ("run {in} --names lengths,lengths,lengths", "q is tensor lengths of"),
        ("run {in} --names q,k,q", "v: "),
        ("run {q} {k}", "IN: expected one .npz or .safetensors, or three .npy"),
        ("run {q}", "IN"),
        ("run {q} {k} {in}", "three .npy"),
        ("run {q} {k} {v} --names a,b,c", "--names"),
        ("run none.npz", "none.npz: cannot be opened"),
        ("run {folder}", "not a regular file"),
        ("plan", "IN: expected either files or --shape"),
        ("plan {in} --shape 1,1,1,1,1,1", "IN: expected either files or --shape"),
        ("plan --shape 1,2,3", "--shape: expected six or seven"),
        ("plan --shape 1,3,2,4,4,8", "heads"),
        ("plan --shape 1,1,1,4,-4,8", "4"),
        ("plan --shape 1,1,1,4,4,8 --dtype int8", "--dtype: expected float32, float64, float16 or bfloat16"),
        ("plan {in} --dtype float32", "--dtype: expected bfloat16 alone beside IN"),
        ("info extra", "extra"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(files, arguments, words):
    folder, _ = files
    paths = {"in": folder / "in.npz", "folder": folder, **{name: folder / f"{name}.npy" for name in "qkv"}}
    line = refusal(*arguments.format(**paths).split())
    assert words in line


@pytest.mark.parametrize("name", ["y.txt", "y", "none/y.npy", "folder.npy"])
def test_a_destination_that_cannot_be_is_refused_before_the_input_is_read(files, name):
    folder, _ = files
    (folder / "folder.npy").mkdir()
    before = sorted(os.listdir(folder))
    assert name in refusal("run", "none.npz", "-o", folder / name)
    assert sorted(os.listdir(folder)) == before


def test_npy_holds_the_output_alone(files):
    folder, _ = files
    for asked in ("--lse", "--weights"):
        assert "expected .npz or .safetensors" in refusal("run", folder / "in.npz", asked, "-o", folder / "y.npy")


def test_a_full_standard_output_is_an_error(files):
    folder, _ = files
    with open("/dev/full", "w") as full:
        done = subprocess.run([COMMAND, "run", folder / "in.npz"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "standard output" in done.stderr


def test_a_refused_call_keeps_the_older_result(files):
    folder, _ = files
    (folder / "y.npy").write_bytes(b"older")
    refusal("run", folder / "in.npz", "--causal", "-o", folder / "y.npy")
    assert (folder / "y.npy").read_bytes() == b"older"


def test_an_interrupted_run_leaves_nothing(tmp_path):
    x = random((4, 8000, 64), 1)
    np.savez(tmp_path / "in.npz", q=x)
    running = subprocess.Popen(
        [COMMAND, "run", tmp_path / "in.npz", "--names", "q,q,q", "--threads", "1", "-o", tmp_path / "y.npy"],
        stderr=subprocess.PIPE,
        env=SLOW,
    )
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == -signal.SIGINT and said == b""
    assert os.listdir(tmp_path) == ["in.npz"]


def test_a_terminal_sees_progress_and_a_pipe_does_not(tmp_path):
    x = random((4, 6000, 64), 1)
    np.savez(tmp_path / "in.npz", q=x)
    arguments = ["run", tmp_path / "in.npz", "--names", "q,q,q", "--threads", "1", "-o", tmp_path / "y.npy"]
    done = attend(*arguments, env=SLOW)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    whole = (tmp_path / "y.npy").read_bytes()
    terminal, side = pty.openpty()
    running = subprocess.Popen([COMMAND, *arguments], stderr=side, env=SLOW)
    os.close(side)
    said = b""
    try:
        while chunk := os.read(terminal, 4096):
            said += chunk
    except OSError:  # the other side is closed
        pass
    os.close(terminal)
    assert running.wait(60) == 0
    assert b" %" in said and said.endswith(b"\r\x1b[K"), "a bar, and then an empty line"
    assert (tmp_path / "y.npy").read_bytes() == whole
