"""The benchmark's arithmetic and its limits. Nothing here asserts a time."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import attend
import reference
from attend import _core
from attend.bench import case as case_module
from attend.bench import definition, machine, report
from attend.bench import inputs as inputs_module
from attend.bench import measure as measure_module
from attend.bench.case import SEED, SIGMA, Case
from attend.bench.cases import all_cases
from attend.bench.inputs import Inputs
from attend.bench.measure import Contest, measure
from attend.bench.peers import Unsupported
from attend.bench.peers.attend import Attend

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    line = [sys.executable, "-m", "attend.bench", *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multiply_add_peak_explains_itself(dtype):
    rate = _core.fma_rate(dtype, 1)
    assert rate["flops"] > 1e8 and 1e8 < rate["clock"] < 1e11
    assert rate["lanes"] * np.dtype(dtype).itemsize in (16, 32, 64) and rate["units"] >= 1
    expected = rate["lanes"] * rate["units"] * 2 * rate["clock"]
    assert rate["validity"] == pytest.approx(rate["flops"] / expected)


@pytest.mark.parametrize("isa, lanes", [("avx512_bf16", 32), ("amx_bf16", 512)])
def test_products_of_bfloat16_are_a_limit_where_the_machine_has_them(isa, lanes):
    if isa not in attend.info()["instruction_sets"]["detected"]:
        with pytest.raises(ValueError, match=f"set: expected one that this machine has, got {isa}"):
            _core.fma_rate("bfloat16", 1, isa)
        pytest.skip(f"this machine lacks {isa}")
    rate = _core.fma_rate("bfloat16", 1, isa)
    assert rate["lanes"] == lanes and rate["flops"] > 1e9
    assert rate["units"] in (0.25, 0.5) or rate["units"] == round(rate["units"]) >= 1
    assert rate["validity"] == pytest.approx(rate["flops"] / (lanes * rate["units"] * 2 * rate["clock"]))


def test_every_limit_is_measured_or_none():
    limits, sets = _core.measure_limits(1), attend.info()["instruction_sets"]["detected"]
    for name, isa in (("dpbf16", "avx512_bf16"), ("amx_bf16", "amx_bf16")):
        assert (limits[name] is not None) == (isa in sets)
    unit = machine.unit_of("bfloat16")
    assert unit == ("amx_bf16" if "amx_bf16" in sets else "dpbf16" if "avx512_bf16" in sets else "fma_f32")


def test_read_bandwidth_and_clock_are_plausible():
    assert 1e8 < _core.read_bandwidth(1, 1 << 26) < 1e13
    assert 1e8 < _core.clock() < 1e11


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: _core.fma_peak("float32", 0), "threads"),
        (lambda: _core.fma_peak("int8", 1), "dtype"),
        (lambda: _core.fma_rate("float32", 1, "avx3"), "isa"),
        (lambda: _core.fma_rate("bfloat16", 1, "avx2"), "set"),
        (lambda: _core.seconds_of_call(*[np.zeros((1, 1, 1, 1), np.float32)] * 4, 0, 1), "calls"),
        (lambda: _core.read_bandwidth(1, 100), "bytes"),
    ],
)
def test_wrong_arguments_of_the_limits_are_named(call, name):
    with pytest.raises((ValueError, TypeError), match=name):
        call()


def test_work_counts_allowed_pairs_only():
    case_of, inputs_of = Case, Inputs.random
    shape = (2, 3, 5, 4)
    assert inputs_of(case_of("full", shape, shape)).pairs == 6 * 25
    assert inputs_of(case_of("causal", shape, shape, causal=True)).pairs == 6 * 15
    assert inputs_of(case_of("window", shape, shape, window=(1, 0))).pairs == 6 * 9
    masked = inputs_of(case_of("mask", shape, shape, mask="boolean"))
    assert masked.pairs == 6 * masked.mask.sum()
    assert masked.flops == masked.pairs * 2 * (4 + 4)
    both = inputs_of(case_of("causal in a neighbourhood", (1, 1, 6, 4), (1, 1, 6, 4), causal=True, grid=(2, 3), neighborhood=3))
    assert both.pairs == 1 + 2 + 2 + 3 + 5 + 4


def test_window_and_its_dense_mask_are_one():
    case = Case("window", (1, 1, 7, 4), (1, 1, 7, 4), window=(2, 1))
    i, j = np.arange(7)[:, None], np.arange(7)
    assert np.array_equal(Inputs.random(case).dense_mask(), (j >= i - 2) & (j <= i + 1))


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (3, 0)}, {"mask": "boolean"}, {"mask": "bias"}])
def test_reference_is_attention(options, monkeypatch):
    case = Case("small", (2, 4, 9, 8), (2, 2, 9, 8), value_width=3, dtype="float64", **options)
    inputs = Inputs.random(case)
    k, v = (np.repeat(array[0], 2, axis=1) for array in (inputs.k, inputs.v))
    scores = np.einsum("bhie,bhje->bhij", inputs.q, k) / math.sqrt(8) + (0 if inputs.bias is None else inputs.bias)
    i, j = np.arange(9)[:, None], np.arange(9)
    if case.causal:
        scores = np.where(j <= i, scores, -np.inf)
    if case.window:
        scores = np.where((j >= i - 3) & (j <= i), scores, -np.inf)
    if inputs.mask is not None:
        scores = np.where(inputs.mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    truth = weights / weights.sum(-1, keepdims=True) @ v
    monkeypatch.setattr(inputs_module, "REFERENCE_SCORES", 100)  # several blocks of rows
    out, size = inputs.reference(0)
    assert np.allclose(out, truth, rtol=1e-13, atol=1e-14) and size == abs(inputs.v).max()


@pytest.mark.parametrize("normalizer", reference.NORMALIZER)
@pytest.mark.parametrize("compatibility", ["dot", "cosine", "gaussian", "l1", "additive", "none"])
def test_reference_is_the_general_form(compatibility, normalizer, monkeypatch):
    monkeypatch.setattr(inputs_module, "REFERENCE_SCORES", 300)  # several blocks of rows
    monkeypatch.setattr(case_module, "SLOW_ROWS", 7)
    form = {"compatibility": compatibility, "normalizer": normalizer, "scale": None if normalizer == "mean" else 0.3}
    shapes = {"q": (1, 4, 20, 8), "k": (1, 2, 20, 8), "value_width": 3, "dtype": "float64"}
    for options in ({"relative": 3}, {"grid": (4, 5), "neighborhood": 3, "relative": 1}, {"grid": (4, 5), "neighborhood": 3}):
        case = Case("small", **shapes, **options, **form)
        inputs = Inputs.random(case)
        meant = {"gaussian": reference.gaussian(SIGMA), "additive": reference.additive(inputs.w)}
        bias, mask = 0.0, True
        if case.grid:
            mask = reference.neighbors(case.grid, (3, 3))
        if case.relative:
            bias = reference.relative_on_grid(inputs.relative, case.grid) if case.grid else reference.relative(inputs.relative, 20, 20)
        truth, _, weights = reference.attention(inputs.q, inputs.k[0], inputs.v[0], mask=mask, bias=bias, scale=case.scale, normalizer=normalizer,
                                                compatibility=meant.get(compatibility, compatibility))
        out, size = inputs.reference(0)
        assert len(case.rows) == (7 if compatibility in ("l1", "additive") else 20)
        assert np.allclose(out, truth[:, :, case.rows], rtol=1e-11, atol=1e-12)
        full = reference.size_of(weights[:, :, case.rows], inputs.v[0])
        assert size == pytest.approx(full if normalizer in ("mean", "sum", "sigmoid") else abs(inputs.v).max())
        assert inputs.pairs == 4 * (20 * 20 if not case.grid else (2 + 3 + 3 + 2) * (2 + 3 + 3 + 3 + 2))
        # What is timed is what was defined, and an error of any compared row is seen.
        (call,) = Attend(1).calls(inputs)
        y = call()
        assert inputs.error(y, 0) <= 1
        y[0, 3, case.rows[-1], 2] += 1e-10 * size
        assert inputs.error(y, 0) > 1


OPTIONS = [
    {"mask": "boolean", "mask_axes": "HLS"},
    {"mask": "bias", "mask_axes": "HLS"},
    {"mask": "bias", "mask_axes": "S"},
    {"alibi": True},
    {"sinks": True},
    {"dropout": 0.3},
    {"lengths": (3, 9, 8)},
    {"lengths": (3, 9, 8), "documents": "mask"},
    {"lengths": (3, 9, 8), "documents": "packed"},
    {"lengths": (3, 9, 8), "documents": "packed", "peer": "loop"},
    {"softcap": 2.0},
]


TOGETHER = {"softcap": 2.0, "mask": "bias", "alibi": True, "sinks": True, "dropout": 0.3}


@pytest.mark.parametrize("options", [*OPTIONS, TOGETHER], ids=str)
def test_options_are_defined_and_timed_as_they_are_meant(options, monkeypatch):
    monkeypatch.setattr(inputs_module, "REFERENCE_SCORES", 300)  # several blocks of rows
    case = Case("small", (1, 4, 20, 8), (1, 2, 20, 8), value_width=3, dtype="float64", **options)
    inputs = Inputs.random(case)
    mask, bias = np.ones((20, 20), bool), np.zeros((20, 20))
    if inputs.mask is not None:
        mask = inputs.mask
    if inputs.bias is not None:
        bias = bias + inputs.bias
    if case.alibi:
        bias = bias + reference.alibi(reference.paper_slopes(4), 20, 20)
    if case.lengths:
        mask = np.repeat([0, 1, 2], case.lengths) == np.repeat([0, 1, 2], case.lengths)[:, None]
        assert case.documents != "mask" or np.array_equal(mask, inputs.mask)
    keep = reference.kept((1, 4, 20, 20), case.dropout, SEED) if case.dropout else 1.0
    score = [reference.soft_cap(2)] if case.softcap else []
    truth, _, _ = reference.attention(inputs.q, inputs.k[0], inputs.v[0], mask=mask, bias=bias, score=score, sinks=inputs.sinks,
                                      keep=keep)
    out, size = inputs.reference(0)
    assert np.allclose(out, truth, rtol=1e-12, atol=1e-13) and size == abs(inputs.v).max()
    assert inputs.pairs == np.broadcast_to(mask, (4, 20, 20)).sum()

    attend = Attend(1)
    (call,) = attend.calls(inputs)
    y = attend.shaped(inputs, call()).copy()
    assert inputs.error(y, 0) <= 1
    y[0, 3, 19, 2] += 1e-10
    assert inputs.error(y, 0) > 1
    plain = inputs.plain
    assert plain.q is inputs.q and plain.pairs == 4 * 20 * 20 and not attend.options(plain)
    assert attend.tiles_flops(inputs) <= attend.tiles_flops(plain) == plain.flops


def test_dropout_is_philox_over_batch_head_query_and_key():
    shape, seed = (2, 3, 5, 7), 1 << 63 | 1 << 35 | 12345
    assert np.array_equal(definition.kept(shape, 0.4, seed), reference.kept(shape, 0.4, seed) != 0)


@pytest.mark.peers
@pytest.mark.parametrize("options, known", [
    ({}, True),
    ({"relative": 2}, True),
    ({"compatibility": "cosine"}, True),
    ({"grid": (4, 5), "neighborhood": 3, "relative": 1, "compatibility": "none", "normalizer": "sum"}, True),
    ({"grid": (4, 5), "neighborhood": 3}, False),
    ({"grid": (4, 5), "neighborhood": 3, "relative": 2, "compatibility": "none", "normalizer": "sum"}, False),
    ({"compatibility": "gaussian"}, False),
    ({"normalizer": "mean"}, False),
    *((options, "softcap" not in options) for options in OPTIONS),
], ids=str)
def test_pytorch_is_asked_where_it_has_an_equal(torch, options, known):
    case = Case("small", (1, 4, 20, 8), (1, 4 if "relative" in options and "grid" not in options else 1, 20, 8), value_width=3,
                               dtype="float64", **options)
    from attend.bench.peers.pytorch import PyTorch

    inputs = Inputs.random(case)
    threads = torch.get_num_threads()
    try:
        pytorch = PyTorch(1)
        try:
            calls = pytorch.calls(inputs)
        except Unsupported:
            calls = None
    finally:
        torch.set_num_threads(threads)
    assert bool(calls) is known
    if known:
        assert pytorch.meant(inputs).error(pytorch.shaped(inputs, calls[0]()), 0) <= 1
        assert (pytorch.meant(inputs) is inputs) == (not case.dropout)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (3, 0)}, {"lengths": (3, 9, 8)}], ids=str)
def test_gradients_are_defined_and_timed_as_they_are_meant(options, monkeypatch):
    monkeypatch.setattr(inputs_module, "REFERENCE_SCORES", 300)  # several blocks of rows
    case = Case("small", (2, 4, 20, 8), (2, 2, 20, 8), value_width=3, dtype="float64", backward=True, **options)
    inputs = Inputs.random(case)
    assert inputs.flops == 3.5 * replace(inputs, case=replace(case, backward=False)).flops

    def loss(q, k, v):
        seen = case.seen(np.arange(20), np.arange(20))
        return (reference.attention(q, k, v, mask=seen)[0] * inputs.dout).sum()

    arrays, step = [inputs.q, inputs.k[0], inputs.v[0]], 1e-5
    for which, found in enumerate(inputs.gradients):
        at = tuple(np.random.default_rng(which).integers(arrays[which].shape))
        above, below = ([array.copy() for array in arrays] for _ in range(2))
        above[which][at] += step
        below[which][at] -= step
        assert found[at] == pytest.approx((loss(*above) - loss(*below)) / (2 * step), rel=1e-6, abs=1e-8)

    (call,) = Attend(1).calls(inputs)
    results = call()
    assert inputs.error_of_all(results) <= 1
    for which in range(4):
        wrong = [result.copy() for result in results]
        wrong[which][0, 1, 19, 2] += 1e-8
        assert inputs.error_of_all(tuple(wrong)) > 1
        wrong[which][0, 1, 19, 2] = np.nan
        assert not inputs.error_of_all(tuple(wrong)) <= 1


def test_gradients_are_asked_of_those_who_have_them():
    class Forward(Attend):
        name, differentiates = "other", False

    case = Case("small", (1, 1, 4, 8), (1, 1, 4, 8), causal=True, backward=True)
    contest = Contest([Attend(1), Forward(1)], Inputs.random(case), 0)
    assert contest.calls.keys() == {"attend", "none"} and contest.reasons == {"other": "no gradients"}
    assert max(contest.errors.values()) <= 1
    with pytest.raises(ValueError, match="backward: expected a case without softcap"):
        replace(case, softcap=1.0)


def test_a_wrong_result_is_seen():
    inputs = Inputs.random(Case("small", (1, 1, 4, 8), (1, 1, 6, 8)))
    right = inputs.reference(0)[0].astype(np.float32)
    assert inputs.error(right, 0) <= 1
    assert inputs.error(right + np.float32(1e-4), 0) > 1
    assert not inputs.error(np.full_like(right, np.nan), 0) <= 1
    assert inputs.error(right[..., :4], 0) == math.inf


def test_cold_cases_go_through_more_than_a_cache_holds():
    cold = [case for case in all_cases() if case.cold]
    assert cold and all(case.caches * case.cache_bytes >= 1 << 30 for case in cold)


def test_an_option_is_measured_beside_none(tmp_path):
    shape = (1, 2, 600, 8)
    attend, table = Attend(1), report.OVERHEAD
    case = Case("small window", shape, shape, window=(40, 0))
    result = measure(case, [attend], threads=1, rounds=1, sample_seconds=0)
    times, tiles = result["times"], result["tiles_flops"]
    assert result["errors"].keys() == times.keys() == tiles.keys() == {"attend", "none"} and max(result["errors"].values()) <= 1
    assert tiles["none"] == 2 * 600 * 600 * 2 * 16 and result["flops"] <= tiles["attend"] < tiles["none"] / 2
    ratio = times["attend"]["median"] / times["none"]["median"]
    assert result["overhead"]["median"] == pytest.approx(ratio)
    assert result["per_tile"]["median"] == pytest.approx(ratio * tiles["none"] / tiles["attend"])
    assert f"{ratio:.2f} (" in table.cells(result)[4] and len(table.cells(result)) == len(table.headings())

    alone = measure(Case("no option", shape, shape), [attend], threads=1, rounds=1, sample_seconds=0)
    assert alone["times"].keys() == {"attend"} and alone["overhead"] is alone["per_tile"] is None

    limits = {"isa": "any", "clock": 1e9, "fma_f32": 1e9, "fma_f64": 1e9, "read": 1e9}
    file, text = tmp_path / "bench.json", tmp_path / "bench.md"
    stored = {"machine": {"processor": "any", "threads": 1, "limits": limits, "versions": {"attend": "any"}}, "rounds": 1}
    file.write_text(json.dumps(stored | {"results": [result, alone]}))
    done = run("--from", file, "--overhead", "--markdown", text)
    assert done.returncode == 0, done.stderr
    for shown in (done.stdout, text.read_text()):
        assert case.name in shown and f"{ratio:.2f} (" in shown and "no option" not in shown
    file.write_text(json.dumps(stored | {"results": [alone]}))
    done = run("--from", file, "--overhead")
    assert done.returncode == 2 and "--from" in done.stderr and not done.stdout


def test_a_wrong_option_is_not_timed():
    class Wrong(Attend):
        def shaped(self, inputs, result):
            return super().shaped(inputs, result) + np.float32(0.1 * inputs.case.alibi)

    case = Case("small", (1, 2, 8, 8), (1, 2, 8, 8), alibi=True)
    result = measure(case, [Wrong(1)], threads=1, rounds=1, sample_seconds=0)
    assert result["errors"]["attend"] > 1 and result["times"].keys() == {"none"} and result["overhead"] is None
    for table in (report.SPEED, report.OVERHEAD):
        assert "wrong, not timed: attend" in report.lines(result, table)[1]


def test_overhead_is_of_cases_with_an_option():
    every, some = (run("--list", *options).stdout.splitlines() for options in ([], ["--overhead"]))
    assert set(some) < set(every) and {"ALiBi 2048, E 64 (float32)", "window 256 of 8192, E 64 (float32)"} <= set(some)
    assert not any(name.startswith(("prefill 2048, E 64 (", "normaliser", "compatibility", "vision")) for name in some)
    done = run("--overhead", "--update-readme")
    assert done.returncode == 2 and "--overhead" in done.stderr and not done.stdout


def test_quick_run_gives_json_and_markdown(tmp_path):
    file, text = tmp_path / "bench.json", tmp_path / "bench.md"
    selection = ("--quick", "--rounds", 1, "--peers", "none", "--filter", "short sequences, L 16", "--threads", 1)
    done = run(*selection, "--json", file, "--markdown", text)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(file.read_text())
    (result,) = measured["results"]
    assert measured["rounds"] == 1 and measured["machine"]["limits"]["fma_f32"] > 0
    assert result["errors"]["attend"] <= 1 and result["times"]["attend"]["median"] > 0
    assert result["flops"] == 64 * 12 * 16 * 16 * 2 * (64 + 64)
    assert result["case"]["name"] in done.stdout and result["case"]["name"] in text.read_text()

    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    result["case"]["headline"] = True
    report.update_readme(readme, measured)
    assert report.has_marks(readme) and not report.has_marks(text)
    new = readme.read_text()
    assert new.startswith("before\n") and new.endswith("\nafter\n") and "old" not in new and result["case"]["name"] in new


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--filter", "no such case"),
        ("--rounds", 0),
        ("--from", "no.json"),
        ("--json", "no/folder.json"),
        ("--peers", "nobody"),
        ("--plots", "no/folder"),
    ],
)
def test_wrong_options_exit_with_2_and_name_the_option(option, value):
    done = run(option, value)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith(f"attend bench: {option}: expected ") and done.stderr.count("\n") == 1


def test_a_call_from_cpp_is_the_call_and_takes_time():
    inputs = Inputs.random(Case("tiny", (1, 1, 4, 16), (1, 1, 16, 16), arrays="C++"))
    (call,) = Attend(1).calls(inputs)
    assert inputs.error(call(), 0) <= 1 and 0 < call.seconds(10) < 1


def test_contenders_go_through_the_caches_in_one_turn(monkeypatch):
    """Contenders share memory: what one has just read must not be what the next one reads."""
    monkeypatch.setattr(Case, "caches", property(lambda self: 5))
    inputs, read = Inputs.random(Case("cold", (1, 1, 1, 8), (1, 1, 6, 8))), []

    class Watched(Attend):
        def __init__(self, name):
            super().__init__(1)
            self.name = name

        def calls(self, inputs):
            made = super().calls(inputs)
            return [lambda cache=cache, call=call: (read.append(cache), call())[1] for cache, call in enumerate(made)]

    contest = Contest([Watched("attend"), Watched("other")], inputs, 0)
    read.clear()
    for name in ("attend", "other", "other", "attend", "attend", "other"):
        contest.sample(name)
    assert read == [0, 1, 2, 3, 4, 0]


def test_a_slow_peer_is_measured_in_the_first_rounds_alone(monkeypatch):
    monkeypatch.setattr(measure_module, "SLOW_SECONDS", 0.0)

    class Other(Attend):
        name = "other"

    shape = (1, 1, 4, 8)
    result = measure(Case("small", shape, shape), [Attend(1), Other(1)], threads=1, rounds=5, sample_seconds=0)
    assert [result["times"][name]["samples"] for name in ("attend", "other")] == [5, measure_module.SLOW_ROUNDS]
    assert result["ratios"]["other"]["samples"] == measure_module.SLOW_ROUNDS


@pytest.mark.peers
def test_memory_of_training_is_measured():
    """Of a window and of ALiBi, which PyTorch holds as dense arrays of 2048 x 2048 cells."""
    done = subprocess.run([sys.executable, ROOT / "bench" / "memory.py", "--lengths", "2048"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    held = {name: float(cell.split()[0]) for name, cell in (line[2:-2].split(" | ") for line in done.stdout.splitlines())}
    assert len(held) == 6
    assert held["window of 256, attend"] < held["causal, attend"] < 16 < 64 < held["causal, ALiBi, PyTorch"]
