"""Packed sequences on the command line: run --varlen, check --varlen."""

import json

import numpy as np
import pytest

from test_cli import near, random, refusal, result, truth

Q_AT, K_AT = np.array([0, 3, 3, 40, 41]), np.array([0, 5, 5, 43, 50])  # one sequence is empty, one long, one a single query


@pytest.fixture
def packed(tmp_path):
    x = {
        "q": random((41, 4, 8), 1),
        "k": random((50, 2, 8), 2),
        "v": random((50, 2, 5), 3),
        "cu_q": Q_AT,
        "cu_k": K_AT.astype(np.int32),
        "sinks": random((4,), 4),
        "bias": random((1, 1), 5),
        "short": np.array([0, 41]),
    }
    np.savez(tmp_path / "in.npz", **x)
    for name, value in x.items():
        np.save(tmp_path / f"{name}.npy", value)
    return tmp_path, x


def each(x, **options):
    """(out, lse) by sequences; `options` are functions of their numbers of queries and keys."""
    out, lse = np.zeros((41, 4, 5)), np.zeros((41, 4))
    for at, until, first, last in zip(Q_AT, Q_AT[1:], K_AT, K_AT[1:]):
        if at == until:
            continue
        q, k, v = x["q"][at:until].swapaxes(0, 1), *(x[name][first:last].swapaxes(0, 1).repeat(2, 0) for name in "kv")
        y = truth(q, k, v, **{name: make(until - at, last - first) for name, make in options.items()})
        out[at:until], lse[at:until] = y[0].swapaxes(0, 1), y[1].T
    return out, lse


def lower_right(queries, keys):
    return np.arange(keys) <= np.arange(queries)[:, None] + keys - queries


@pytest.mark.parametrize("names", ["cu_q,cu_k", "{folder}/cu_q.npy,{folder}/cu_k.npy", "cu_q,{folder}/cu_k.npy"])
def test_each_sequence_sees_its_own_keys(packed, names):
    folder, x = packed
    names = names.format(folder=folder)
    result("run", folder / "in.npz", "--varlen", names, "--lse", "-o", folder / "y.npz")
    y = np.load(folder / "y.npz")
    for name, want in zip(("out", "lse"), each(x)):
        near(y[name], want)


def test_the_corner_is_the_lower_right_unless_it_is_said(packed):
    folder, x = packed
    for options, allowed in (
        (["--causal"], lower_right),
        (["--causal", "--query-offset", "upper_left"], lambda queries, keys: np.arange(keys) <= np.arange(queries)[:, None]),
        (["--window", "1,none"], lambda queries, keys: np.arange(keys) >= np.arange(queries)[:, None] + keys - queries - 1),
    ):
        result("run", *(folder / f"{name}.npy" for name in "qkv"), "--varlen", f"{folder}/cu_q.npy,{folder}/cu_k.npy", *options,
               "-o", folder / "y.npy")
        near(np.load(folder / "y.npy"), each(x, allowed=allowed)[0])


@pytest.mark.parametrize("options", ["", "--causal", "--causal --softcap 2 --alibi --sinks sinks", "--dropout 0.3 --seed 5",
                                     "--window 3,0 --normalizer sigmoid", "--compatibility gaussian:2", "--reproducible"])
def test_check_compares_packed_sequences_with_the_reference(packed, options):
    folder, _ = packed
    facts = json.loads(result("check", folder / "in.npz", "--varlen", "cu_q,cu_k", *options.split(), "--json"))
    assert facts["passed"] is True and facts["elements"] == 41 * 4 * 5 and facts["sequences"] == 4
    assert facts["largest_error"] > 0 and facts["bound"] > 0
    kernels = "forward" if "reproducible" in options else "few_queries and forward"
    assert facts["kernel"] == kernels, "sequences of 3, of 37 and of one query, on groups of two heads"


def test_check_counts_the_work_of_each_sequence(packed):
    folder, _ = packed
    facts = json.loads(result("check", folder / "in.npz", "--varlen", "cu_q,cu_k", "--causal", "--time", "--json"))
    pairs = sum(lower_right(q, k).sum() for q, k in zip(np.diff(Q_AT), np.diff(K_AT)))
    assert facts["flops"] == 2 * 4 * pairs * (8 + 5)
    assert facts["bytes"] == 4 * (41 * 4 * 8 + 50 * 2 * (8 + 5) + 41 * 4 * 5)
    assert facts["fraction_of_limit"] > 0
    assert "of 4 sequences; softmax of dot; kernel few_queries and forward on" in result("check", folder / "in.npz", "--varlen", "cu_q,cu_k")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_dtypes_and_no_sequence_at_all(tmp_path, dtype):
    np.savez(tmp_path / "in.npz", q=np.zeros((0, 2, 8), dtype), at=np.array([0]))
    result("run", tmp_path / "in.npz", "--names", "q,q,q", "--varlen", "at,at", "-o", tmp_path / "y.npy")
    assert np.load(tmp_path / "y.npy").shape == (0, 2, 8) and np.load(tmp_path / "y.npy").dtype == dtype
    assert "no elements" in result("check", tmp_path / "in.npz", "--names", "q,q,q", "--varlen", "at,at")


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("run {in} --varlen cu_q", "--varlen: expected two tensors CU_Q,CU_K"),
        ("run {in} --varlen 0,41", "--varlen: expected a tensor of"),
        ("run {in} --varlen cu_q,nothing", "--varlen: expected a tensor of"),
        ("run {in} --varlen cu_q,bias", "cu_seqlens_k is tensor bias of"),
        ("run {in} --varlen cu_k,cu_q", "cu_seqlens_q is tensor cu_k of"),
        ("run {in} --varlen short,cu_k", "cu_seqlens_k: expected as many boundaries as cu_seqlens_q"),
        ("run {in} --varlen cu_q,cu_k --bias bias", "bias: expected none beside packed sequences"),
        ("run {in} --varlen cu_q,cu_k --mask mask", "--mask"),
        ("run {in} --varlen cu_q,cu_k --score bias:bias", "score: expected no bias beside packed sequences"),
        ("run {in} --varlen cu_q,cu_k --layout bhld", "--layout: expected none beside --varlen"),
        ("run {in} --varlen cu_q,cu_k --weights", "--weights: expected none beside --varlen"),
        ("run {in} --varlen cu_q,cu_k --scores biased", "--scores: expected none beside --varlen"),
        ("run {in} --varlen cu_q,cu_k --key-lengths 1,2,3", "key_lengths: expected"),
        ("plan {in} --varlen cu_q,cu_k", "--varlen: expected none: a plan is made from one shape and knows no packed sequences"),
    ],
)
def test_what_has_no_meaning_is_one_line_and_exit_code_2(packed, arguments, words):
    folder, _ = packed
    assert words in refusal(*arguments.format(**{"in": folder / "in.npz"}).split())
