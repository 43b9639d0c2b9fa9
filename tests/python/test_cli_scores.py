"""Options of the command about segments, scores, sinks and dropout, and the results that show them."""

import json

import numpy as np
import pytest

from test_cli import I, J, near, random, refusal, result, truth

SLOPES = np.array([2.0**-4, 2.0**-8, 2.0**-2])[:, None, None]  # the paper's for three heads: those of two, then every other one of four


@pytest.fixture
def given(tmp_path):
    """Three heads of 7 queries and 11 keys, and everything that an option may name, in an .npz and as .npy."""
    x = {
        "q": random((2, 3, 7, 8), 1),
        "k": random((2, 3, 11, 8), 2),
        "v": random((2, 3, 11, 5), 3),
        "bias": random((2, 1, 7, 11), 4),
        "other": random((3, 1, 11), 5),
        "slopes": np.array([0.5, -0.25, 0.0], np.float32),
        "sinks": np.array([1.0, -np.inf, 0.5], np.float32),
        "rows": np.array([[0, 0, 1, 1, 1, 2, -1], [0, 0, 0, 0, 5, 5, 5]], np.int32),
        "columns": np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, -1, -1]),
        "mask": np.zeros((7, 11), bool),
    }
    np.savez(tmp_path / "in.npz", **x)
    for name, value in x.items():
        np.save(tmp_path / f"{name}.npy", value)
    return tmp_path, x


def out(folder, *options, name="in.npz"):
    result("run", folder / name, "-o", folder / "y.npy", *options)
    return np.load(folder / "y.npy")


def scores(x):
    return np.einsum("...ie,...je->...ij", x["q"].astype(np.float64), x["k"]) / np.sqrt(8)


def by_scores(x, s, allowed=True):
    return truth(x["q"], x["k"], x["v"], allowed=allowed, bias=s, scale=0)[0]


def capped(s, cap=2.0):
    return cap * np.tanh(s / cap)


@pytest.mark.parametrize("rows, columns", [("rows", "columns"), ("{folder}/rows.npy", "columns"), ("rows", "0,0,0,1,1,1,1,2,2,-1,-1")])
def test_segments_are_tensors_files_or_numbers(given, rows, columns):
    folder, x = given
    allowed = (x["rows"][:, None, :, None] == x["columns"]) & (x["columns"] >= 0)
    options = ("--query-segments", rows.format(folder=folder), "--key-segments", columns)
    near(out(folder, *options), truth(x["q"], x["k"], x["v"], allowed=allowed)[0])
    assert json.loads(result("check", folder / "in.npz", *options, "--json"))["passed"] is True


@pytest.mark.parametrize(
    "options, change",
    [
        ("--softcap 2", lambda x, s: capped(s)),
        ("--softcap 2 --bias bias", lambda x, s: capped(s) + x["bias"]),
        ("--alibi --query-offset upper_left", lambda x, s: s - SLOPES * abs(I - J)),
        ("--alibi slopes --query-offset 4", lambda x, s: s - x["slopes"][:, None, None] * abs(I + 4 - J)),
        ("--alibi {folder}/slopes.npy --query-offset 4", lambda x, s: s - x["slopes"][:, None, None] * abs(I + 4 - J)),
        ("--score softcap:2,bias:bias", lambda x, s: capped(s) + x["bias"]),
        ("--score bias:bias,softcap:2", lambda x, s: capped(s + x["bias"])),
        ("--score bias:bias,bias:{folder}/other.npy --softcap 2 --bias other", lambda x, s: capped(s + x["bias"] + x["other"]) + x["other"]),
        ("--score alibi,softcap:2 --query-offset 0", lambda x, s: capped(s - SLOPES * abs(I - J))),
        ("--score softcap:3,alibi:slopes,softcap:2 --query-offset 0", lambda x, s: capped(capped(s, 3.0) - x["slopes"][:, None, None] * abs(I - J))),
    ],
)
def test_scores_become_what_the_options_say_in_their_order(given, options, change):
    folder, x = given
    options = options.format(folder=folder).split()
    near(out(folder, *options), by_scores(x, change(x, scores(x))))
    assert json.loads(result("check", folder / "in.npz", *options, "--json"))["passed"] is True


@pytest.mark.parametrize("place", ["before", "behind", "before three", "last"])
def test_alibi_without_slopes_takes_no_input_for_slopes(given, place):
    folder, x = given
    files = [folder / "in.npz"]
    options = ["-o", folder / "y.npy", "--query-offset", "0"]
    words = {
        "before": ["--alibi", *files, *options],
        "behind": [*files, "--alibi", *options],
        "before three": ["--alibi", *options, *(folder / f"{name}.npy" for name in "qkv")],
        "last": [*files, *options, "--alibi"],
    }[place]
    result("run", *words)
    near(np.load(folder / "y.npy"), by_scores(x, scores(x) - SLOPES * abs(I - J)))


def test_sinks_join_the_sum_of_a_row_and_its_lse(given):
    folder, x = given
    s = scores(x)
    sums = np.exp(s).sum(-1) + np.exp(x["sinks"].astype(np.float64))[:, None]
    for sinks in ("sinks", folder / "sinks.npy"):
        result("run", folder / "in.npz", "--sinks", sinks, "--lse", "-o", folder / "y.npz")
        y = np.load(folder / "y.npz")
        near(y["out"], np.exp(s) / sums[..., None] @ x["v"])
        near(y["lse"], np.log(sums))
    assert json.loads(result("check", folder / "in.npz", "--sinks", "sinks", "--json"))["passed"] is True


def test_dropout_is_the_same_for_a_seed_and_another_for_another(given):
    folder, x = given
    seed = ("--dropout", "0.5", "--seed", str(2**64 - 1))
    result("run", folder / "in.npz", *seed, "--weights", "-o", folder / "y.npz")
    y, whole = np.load(folder / "y.npz"), truth(x["q"], x["k"], x["v"])[2]
    kept = y["weights"] != 0
    near(y["weights"], 2 * whole * kept)
    near(y["out"], 2 * whole * kept @ x["v"])
    assert 0.4 < kept.mean() < 0.6, "of 462"
    assert (out(folder, *seed) == y["out"]).all()
    assert (out(folder, "--dropout", "0.5", "--seed", "1") != y["out"]).any()
    near(out(folder, "--dropout", "0"), truth(x["q"], x["k"], x["v"])[0])
    assert not out(folder, "--dropout", "1").any()


def test_a_seed_that_was_drawn_is_shown_and_checked_with(given):
    folder, x = given
    drawn = [json.loads(result("check", folder / "in.npz", "--dropout", "0.5", "--json")) for _ in range(2)]
    assert all(facts["passed"] for facts in drawn) and drawn[0]["seed"] != drawn[1]["seed"]
    lines = result("run", folder / "in.npz", "--dropout", "0.5").splitlines()
    seed = next(line.removeprefix("seed: ") for line in lines if line.startswith("seed: "))
    again = result("run", folder / "in.npz", "--dropout", "0.5", "--seed", seed).splitlines()
    assert again[0] == lines[0] and f"seed: {seed}" in again
    assert f"dropout by seed {seed}" in result("check", folder / "in.npz", "--dropout", "0.5", "--seed", seed)
    assert "seed" not in result("run", folder / "in.npz")
    said = result("run", folder / "in.npz", "--dropout", "0.5", "-o", folder / "y.npy")
    written = np.load(folder / "y.npy")
    assert (out(folder, "--dropout", "0.5", "--seed", said.removeprefix("seed: ").strip()) == written).all()


@pytest.mark.parametrize("stage", ["scaled", "capped", "biased"])
def test_scores_are_shown_as_scaled_capped_or_biased(given, stage):
    folder, x = given
    options = ("--softcap", "2", "--bias", "bias", "--causal", "--query-offset", "4", "--alibi", "slopes")
    result("run", folder / "in.npz", *options, "--scores", stage, "--weights", "-o", folder / "y.npz")
    y = np.load(folder / "y.npz")
    assert list(y) == ["out", "weights", "scores"]
    s = {"scaled": scores(x), "capped": capped(scores(x))}.get(stage)
    if stage == "biased":
        s = capped(scores(x)) + x["bias"] - x["slopes"][:, None, None] * abs(I + 4 - J)
        s = np.where(J <= I + 4, s, -np.inf)
    near(y["scores"], s)
    assert "scores: float32 (2, 3, 7, 11), min " in result("run", folder / "in.npz", "--scores", stage)


def test_plan_counts_tiles_of_a_mask_and_takes_every_option(given):
    folder, _ = given
    sizes, shape = 1024, "1,1,1,1024,1024,16"
    half = np.zeros((sizes, sizes), bool)
    half[:, : sizes // 2] = True
    np.save(folder / "half.npy", half)
    whole = json.loads(result("plan", "--shape", shape, "--json"))
    masked = json.loads(result("plan", "--shape", shape, "--mask", folder / "half.npy", "--json"))
    count = lambda facts: [facts[f"tiles_{kind}"] for kind in ("skipped", "full", "partial")]
    assert sum(count(masked)) == sum(count(whole)) and count(whole)[0] == count(whole)[2] == 0
    # A tile has `lanes` queries and `tile_keys` keys; the mask's edge runs through one column of tiles, or between two.
    blocks, keys = -(-sizes // masked["lanes"]), masked["tile_keys"]
    full, edge, columns = sizes // 2 // keys, (sizes // 2) % keys > 0, -(-sizes // keys)
    assert count(masked) == [blocks * (columns - full - edge), blocks * full, blocks * edge]
    assert "tiles" in result("plan", "--shape", shape, "--mask", folder / "half.npy")

    ids = folder / "ids.npy"
    np.save(ids, np.arange(sizes) // 256)
    options = ("--query-segments", ids, "--key-segments", ids, "--softcap", "2", "--alibi", "--score", "softcap:3", "--dropout", "0.5", "--seed", "1")
    facts = json.loads(result("plan", "--shape", shape, *options, "--json"))
    assert facts["tiles_skipped"] > 0 and facts["flops"] < whole["flops"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("run {in} --query-segments rows", "key_segments: expected"),
        ("run {in} --query-segments rows --key-segments bias", "key_segments is tensor bias of"),
        ("run {in} --query-segments rows --key-segments 0,1", "key_segments: expected"),
        ("run {in} --query-segments nothing --key-segments columns", "--query-segments: expected one whole number per row"),
        ("run {in} --softcap 0", "softcap: expected a finite number above 0"),
        ("run {in} --softcap inf", "--softcap: expected a finite number, got 'inf'"),
        ("run {in} --alibi", "query_offset: expected"),
        ("run {in} --alibi nothing", "--alibi: expected a tensor of"),
        ("run {in} --alibi bias --query-offset 0", "alibi is tensor bias of"),
        ("run {in} --alibi --score alibi --query-offset 0", "alibi: expected"),
        ("run {in} --sinks slope", "--sinks: expected a tensor of"),
        ("run {in} --sinks bias", "sinks is tensor bias of"),
        ("run {in} --sinks sinks --normalizer mean", "sinks: expected normalizer softmax"),
        ("run {in} --score", "--score"),
        ("run {in} --score softcap", "--score: expected steps between commas, each softcap:C, bias:NAME, alibi or alibi:NAME, got 'softcap'"),
        ("run {in} --score softcap:", "--score: expected steps"),
        ("run {in} --score softcap:warm", "--score: expected softcap:C with a number, got 'softcap:warm'"),
        ("run {in} --score softcap:-1", "score: expected a finite number above 0"),
        ("run {in} --score softcap:1,,alibi", "--score: expected steps"),
        ("run {in} --score relative:bias", "--score: expected steps"),
        ("run {in} --score bias:nothing", "--score bias: expected a tensor of"),
        ("run {in} --score bias:bias,bias:mask", "(score is tensor bias of "),
        ("run {in} --score alibi,alibi --query-offset 0", "score: expected slopes of ALiBi, at most once"),
        ("run {in} --score 1,2,3,4,5,6,7,8,9", "--score: expected at most 8 steps, got 9"),
        ("run {in} --dropout 2", "dropout_p: expected a probability from 0 to 1"),
        ("run {in} --dropout nan", "--dropout: expected a finite number"),
        ("run {in} --seed 1", "--seed: expected --dropout beside it, got none"),
        ("run {in} --dropout 0.5 --seed -1", "--seed: expected a whole number from 0 to 2^64 - 1"),
        ("run {in} --dropout 0.5 --seed 18446744073709551616", "--seed: expected"),
        ("run {in} --scores raw", "--scores: expected scaled, capped or biased, got 'raw'"),
        ("run {in} --scores scaled -o y.npy", "--output: expected .npz or .safetensors"),
        ("check {in} --scores scaled", "--scores"),
        ("plan --shape 1,1,1,4,4,8 --seed 1", "--seed"),
    ],
)
def test_what_has_no_meaning_is_one_line_and_exit_code_2(given, arguments, words):
    folder, _ = given
    assert words in refusal(*arguments.format(**{"in": folder / "in.npz"}).split(), cwd=folder)
