"""The benchmark's adapters: what each installed peer computes is what is timed. A peer that is not installed is skipped by name."""

from dataclasses import replace

import numpy as np
import pytest

from attend.bench.case import Case
from attend.bench.inputs import Inputs
from attend.bench.measure import Contest, worst_error
from attend.bench.peers import ADAPTERS, Unsupported, load
from attend.bench.peers.attend import Attend

THREADS = 2
SHAPE = (2, 4, 32, 64)
CASES = {
    "full": Case("full", SHAPE, SHAPE),
    "causal": Case("causal", SHAPE, SHAPE, causal=True),
    "decode": Case("decode", (2, 4, 1, 64), (2, 2, 128, 64)),
    "window": Case("window", SHAPE, SHAPE, window=(5, 0)),
    "boolean": Case("boolean", SHAPE, SHAPE, mask="boolean"),
    "boolean per head": Case("boolean per head", SHAPE, SHAPE, mask="boolean", mask_axes="HLS"),
    "bias": Case("bias", SHAPE, SHAPE, mask="bias"),
    "bias per key": Case("bias per key", SHAPE, SHAPE, mask="bias", mask_axes="S"),
    "ALiBi": Case("ALiBi", SHAPE, SHAPE, alibi=True),
    "soft cap": Case("soft cap", SHAPE, SHAPE, softcap=2.0),
    "documents": Case("documents", SHAPE, SHAPE, lengths=(10, 12, 10)),
    "scale": Case("scale", SHAPE, SHAPE, scale=0.3),
    "narrow values": Case("narrow values", (1, 4, 32, 80), (1, 4, 32, 80), value_width=40),
    "gradients": Case("gradients", SHAPE, SHAPE, backward=True),
    "causal gradients": Case("causal gradients", SHAPE, SHAPE, causal=True, backward=True),
    "caches": Case("caches", (1, 4, 1, 16), (1, 2, 64, 16)),
}
# What each has a call for; where a peer has none, its adapter says why.
DENSE = {"full", "causal", "decode", "window", "boolean", "boolean per head", "bias", "bias per key", "ALiBi", "documents"}
DENSE |= {"scale", "caches"}
GRADIENTS = {"gradients", "causal gradients"}
HAS = {
    "torch": DENSE | GRADIENTS | {"narrow values"},
    "torch-math": DENSE | GRADIENTS,
    "onnxruntime": DENSE | {"narrow values", "soft cap"},
    "onnxruntime-gqa": {"causal", "decode", "window", "caches"},
    "openvino": DENSE | {"narrow values"},
    "jax": DENSE | GRADIENTS,
    "ggml": (DENSE | {"narrow values", "soft cap"}) - {"bias", "bias per key", "ALiBi"},
}


@pytest.fixture(scope="module", params=[key for key in ADAPTERS if key != "flex"])
def key(request):
    return request.param


@pytest.fixture(scope="module")
def peer(key):
    """The adapter, where what it adapts is installed."""
    torch = pytest.importorskip("torch") if key.startswith("torch") else None
    threads = torch.get_num_threads() if torch else None
    found, missing = load([key], THREADS)
    if missing:
        pytest.skip(f"{key}: {missing[ADAPTERS[key][0]]}")
    yield found[0]
    if torch:
        torch.set_num_threads(threads)


@pytest.mark.peers
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_peer_computes_what_is_compared_or_says_why_not(key, peer, case, monkeypatch):
    if case.name == "caches":
        monkeypatch.setattr(Case, "caches", property(lambda self: 3))
    contest = Contest([Attend(THREADS), peer], Inputs.random(case), 0)
    assert contest.errors["attend"] <= 1
    if case.name in HAS[key]:
        assert contest.errors[peer.name] <= 1 and peer.name in contest.calls and peer.name not in contest.reasons
    else:
        assert contest.reasons[peer.name] and peer.name not in contest.errors


@pytest.mark.peers
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["causal", "decode"])
def test_halves_are_handed_over_as_they_are(key, peer, name, dtype):
    contest = Contest([Attend(THREADS), peer], Inputs.random(replace(CASES[name], dtype=dtype)), 0)
    lacks = {("onnxruntime", "bfloat16"), ("onnxruntime-gqa", "bfloat16"), ("jax", "float16")}
    assert (peer.name in contest.reasons) == ((key, dtype) in lacks)
    assert (key, dtype) in lacks or contest.errors[peer.name] <= peer.allowed(replace(CASES[name], dtype=dtype))


@pytest.mark.peers
def test_an_adapter_reads_the_arrays_of_its_own_cache(key, peer, monkeypatch):
    monkeypatch.setattr(Case, "caches", property(lambda self: 3))
    inputs = Inputs.random(CASES["caches"])
    with peer.running():
        calls = peer.calls(inputs)
        assert len(calls) == 3
        assert worst_error(peer, inputs, calls) <= 1
        assert worst_error(peer, inputs, calls[1:] + calls[:1]) > 1


@pytest.mark.peers
def test_pytorchs_kernels_are_told_apart(torch):
    threads = torch.get_num_threads()
    peers, _ = load(["torch", "torch-math"], THREADS)
    contest = Contest([Attend(THREADS), *peers], Inputs.random(CASES["causal"]), 0)
    assert contest.kernels == {"PyTorch": "flash", "PyTorch math": "math"}
    contest = Contest([Attend(THREADS), *peers], Inputs.random(CASES["narrow values"]), 0)  # which flash does not take
    assert contest.kernels == {"PyTorch": "math"} and "itself" in contest.reasons["PyTorch math"]
    torch.set_num_threads(threads)


@pytest.mark.peers
def test_gradients_through_torch_are_compared_too(torch):
    contest = Contest([Attend(THREADS)], Inputs.random(replace(CASES["causal gradients"], arrays="torch")), 0)
    assert contest.errors.keys() == {"attend", "none"} and max(contest.errors.values()) <= 1


@pytest.mark.peers
def test_flexattention_compiles_a_window(torch):
    threads = torch.get_num_threads()
    (flex,), missing = load(["flex"], THREADS)
    assert not missing
    contest = Contest([Attend(THREADS), flex], Inputs.random(CASES["window"]), 0)
    if "g++" in contest.reasons.get(flex.name, ""):
        pytest.skip(contest.reasons[flex.name])
    assert contest.errors[flex.name] <= 1
    with pytest.raises(Unsupported, match="asked only about"):
        flex.calls(Inputs.random(CASES["full"]))
    torch.set_num_threads(threads)


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(ADAPTERS, "nobody", ("Nobody", "nobody_at_all", "Nobody"))
    found, missing = load(["nobody"], 1)
    assert not found and missing == {"Nobody": "not installed (attend.bench.peers.nobody_at_all)"}


def test_halves_may_come_back_wider_from_peers_alone():
    pytest.importorskip("ml_dtypes")
    inputs = Inputs.random(Case("small", (1, 1, 4, 8), (1, 1, 6, 8), "bfloat16"))
    right = inputs.reference(0)[0]
    assert inputs.error(right.astype(np.float32), 0, widened=True) <= 1
    assert inputs.error(right.astype(np.float32), 0) == np.inf
    assert inputs.error(right.astype(inputs.q.dtype), 0) <= 1
