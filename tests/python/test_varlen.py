"""Packed sequences: each gives what it gives alone, whatever lies beside it."""

import numpy as np
import pytest

import attend
from reference import DTYPES, assert_close, attention, kept

LENGTHS = [(3, 5), (0, 2), (1, 0), (5, 9), (4, 4), (0, 0)]  # queries and keys of each sequence
H, HK, E, EV = 4, 2, 8, 6


def boundaries(lengths, dtype=np.int32):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)


def pack(lengths=LENGTHS, dtype="float32", seed=0):
    """q, k, v, boundaries of queries, boundaries of keys."""
    rng = np.random.default_rng(seed)
    starts = [boundaries([pair[side] for pair in lengths]) for side in (0, 1)]
    shapes = (starts[0][-1], H, E), (starts[1][-1], HK, E), (starts[1][-1], HK, EV)
    return (*(rng.standard_normal(shape).astype(dtype) for shape in shapes), *starts)


def alone(q, k, v, cu_q, cu_k, s):
    """Sequence s as arrays (1, heads, length, width)."""
    rows, keys = slice(cu_q[s], cu_q[s + 1]), slice(cu_k[s], cu_k[s + 1])
    return [x[part].swapaxes(0, 1)[None] for x, part in ((q, rows), (k, keys), (v, keys))], rows, keys


SINKS = np.array([0.5, -2, 3, 0], np.float32)
TABLE = np.random.default_rng(2).standard_normal((H, 5)).astype(np.float32)
ONE = {  # name: options of a packed call, and of the same sequence alone
    "plain": {},
    "causal": {"causal": True},
    "causal from the start": {"causal": True, "query_offset": "upper_left"},
    "causal at one offset": {"causal": True, "query_offset": 2},
    "window, soft cap, sinks": {"window": (2, 0), "softcap": 3.0, "sinks": SINKS},
    "alibi": {"alibi": True, "causal": True},
    "slopes": {"alibi": SINKS, "query_offset": "upper_left"},
    "relative": {"relative": TABLE},
    "prefix": {"causal": True, "prefix": 2, "query_offset": "upper_left"},
    "functions": {"score": [attend.alibi(), attend.soft_cap(2)]},
    "a mean of gaussians": {"compatibility": attend.gaussian(2), "normalizer": "mean", "scale": 0.5},
    "reproducible": {"reproducible": True, "causal": True, "threads": 2},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ONE)
def test_every_sequence_gives_what_it_gives_alone(name, dtype):
    options = ONE[name]
    packed = pack(dtype=dtype)
    lse = options.get("normalizer") is None
    got = attend.attention_varlen(*packed, return_lse=lse, **options)
    y = got.out if lse else got
    assert y.shape == (13, H, EV) and y.dtype == dtype and type(y) is np.ndarray
    for s, (L, S) in enumerate(LENGTHS):
        arrays, rows, _ = alone(*packed, s)
        want = attend.attention(*arrays, return_lse=lse, **{"query_offset": S - L, **options})
        assert_close(y[rows], (want.out if lse else want)[0].swapaxes(0, 1), 3)
        if lse:
            assert got.lse.shape == (13, H)
            assert_close(got.lse[rows], want.lse[0].T, 8)


def test_a_plain_pack_is_the_definition():
    packed = pack()
    y, lse = attend.attention_varlen(*packed, return_lse=True)
    for s, (_, S) in enumerate(LENGTHS):
        arrays, rows, _ = alone(*packed, s)
        out, log, _ = attention(*arrays)
        assert_close(y[rows], out[0].swapaxes(0, 1), 3)
        assert_close(lse[rows], log[0].T, 4)
        assert S or ((lse[rows] == -np.inf).all() and not y[rows].any())


def test_integers_per_sequence():
    packed = pack()
    prefix, offset, lengths = [1, 0, 0, 5, 2, 0], np.array([0, 3, -1, 2, 0, 7]), np.array([4, 0, 0, 7, 1, 0], np.uint8)
    y, lse = attend.attention_varlen(*packed, causal=True, prefix=prefix, query_offset=offset, key_lengths=lengths, return_lse=True)
    for s in range(len(LENGTHS)):
        arrays, rows, _ = alone(*packed, s)
        want = attend.attention(*arrays, causal=True, prefix=prefix[s], query_offset=int(offset[s]), key_lengths=int(lengths[s]), return_lse=True)
        assert_close(y[rows], want.out[0].swapaxes(0, 1), 3)
        assert_close(lse[rows], want.lse[0].T, 4)


def test_lower_right_counts_from_the_lengths_that_are_given():
    packed = pack()
    lengths = [4, 0, 0, 7, 1, 0]
    y = attend.attention_varlen(*packed, causal=True, key_lengths=lengths)
    offsets = [n - L for n, (L, _) in zip(lengths, LENGTHS, strict=True)]
    assert np.array_equal(y, attend.attention_varlen(*packed, causal=True, key_lengths=lengths, query_offset=offsets))
    assert np.array_equal(y, attend.attention_varlen(*packed, causal=True, key_lengths=lengths, query_offset=None))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_segments_are_packed_too(dtype):
    packed = pack()
    rng = np.random.default_rng(4)
    ids = [rng.integers(0, 2, n).astype(dtype) for n in (13, 20)]
    y = attend.attention_varlen(*packed, query_segments=ids[0], key_segments=ids[1])
    for s in range(len(LENGTHS)):
        arrays, rows, keys = alone(*packed, s)
        want = attend.attention(*arrays, query_segments=ids[0][rows], key_segments=ids[1][keys])
        assert_close(y[rows], want[0].swapaxes(0, 1), 3)


def test_dropout_counts_sequences_as_batches_and_rows_from_their_own_first():
    lengths = [(3, 5), (0, 2), (4, 9)]
    packed = pack(lengths)
    y = attend.attention_varlen(*packed, dropout_p=0.4, seed=2**40 + 9)
    for s, (L, S) in enumerate(lengths):
        arrays, rows, _ = alone(*packed, s)
        keep = kept((1, H, L, S), 0.4, 2**40 + 9, first_batch=s) if L else 1.0
        assert_close(y[rows], attention(*arrays, keep=keep)[0][0].swapaxes(0, 1), 6)


def test_a_sequence_has_the_same_bits_alone_and_in_any_pack():
    lengths = [(40, 300), (1, 700), (0, 3), (130, 130), (1, 1)]
    q, k, v, cu_q, cu_k = pack(lengths)
    together = attend.attention_varlen(q, k, v, cu_q, cu_k, causal=True)
    for s in range(len(lengths)):
        _, rows, keys = alone(q, k, v, cu_q, cu_k, s)
        one = attend.attention_varlen(q[rows], k[keys], v[keys], *(boundaries([n]) for n in lengths[s]), causal=True)
        assert np.array_equal(one, together[rows])
    for threads in (1, 2, 5):
        assert np.array_equal(attend.attention_varlen(q, k, v, cu_q, cu_k, causal=True, threads=threads), together)


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30])
def test_other_sequences_change_no_bit(poison):
    q, k, v, cu_q, cu_k = pack()
    want = attend.attention_varlen(q, k, v, cu_q, cu_k, return_lse=True)
    rows, keys = slice(cu_q[3], cu_q[4]), slice(cu_k[3], cu_k[4])
    dirty = [np.full_like(x, poison) for x in (q, k, v)]
    for x, clean, part in zip(dirty, (q, k, v), (rows, keys, keys), strict=True):
        x[part] = clean[part]
    for given, expected in zip(attend.attention_varlen(*dirty, cu_q, cu_k, return_lse=True), want, strict=True):
        assert np.array_equal(given[rows], expected[rows])


@pytest.mark.parametrize("starts", [[0], [0, 0], [0, 0, 0]])
def test_packs_of_nothing_are_served(starts):
    q, k, v = np.zeros((0, H, E), np.float32), np.zeros((0, HK, E), np.float32), np.zeros((0, HK, EV), np.float32)
    y, lse = attend.attention_varlen(q, k, v, np.array(starts), np.array(starts), causal=True, return_lse=True)
    assert y.shape == (0, H, EV) and lse.shape == (0, H)
    some = np.ones((3, H, E), np.float32)
    y, lse = attend.attention_varlen(some, k, v, np.array([0, 1, 3]), np.array([0, 0, 0]), return_lse=True)
    assert not y.any() and (lse == -np.inf).all()


def test_boundaries_may_be_of_either_type_and_any_stride():
    q, k, v, cu_q, cu_k = pack()
    want = attend.attention_varlen(q, k, v, cu_q, cu_k)
    for change in (lambda x: x.astype(np.int64), lambda x: np.repeat(x, 2)[::2], lambda x: x[::-1].copy()[::-1],
                   lambda x: np.repeat(x.astype(np.int64), 3)[::3]):
        assert np.array_equal(attend.attention_varlen(q, k, v, change(cu_q), change(cu_k)), want)
    turned = [np.asfortranarray(x) for x in (q, k, v)]
    assert_close(attend.attention_varlen(*turned, cu_q, cu_k), want, 3)


def test_out_is_written_in_place_and_returned():
    packed = pack()
    want = attend.attention_varlen(*packed)
    memory = np.full((13, H, 2 * EV), 7, np.float32)
    out = memory[..., ::2]
    assert attend.attention_varlen(*packed, out=out) is out
    assert np.array_equal(out, want) and (memory[..., 1::2] == 7).all()
    result = attend.attention_varlen(*packed, out=out, return_lse=True)
    assert type(result) is attend.OutLse and result.out is out


def moved(starts, at, by):
    starts = starts.astype(np.int64)
    starts[at] += by
    return starts


WRONG = {
    "last boundary below the total": (lambda *a: (np.repeat(a[0], 2, 0), *a[1:]), {}, ValueError, "cu_seqlens_q: .*26.*13"),
    "last boundary above the total": (lambda *a: (*a[:4], moved(a[4], -1, 1)), {}, ValueError, "cu_seqlens_k: .*20.*21"),
    "first boundary not 0": (lambda *a: (*a[:3], moved(a[3], 0, 1), a[4]), {}, ValueError, "cu_seqlens_q: .*0.*1"),
    "negative boundary": (lambda *a: (*a[:3], moved(a[3], 1, -4), a[4]), {}, ValueError, "cu_seqlens_q: .*never fall.*-1"),
    "falling boundaries": (lambda *a: (*a[:4], moved(a[4], 4, 9)), {}, ValueError, "cu_seqlens_k: .*never fall"),
    "huge boundary": (lambda *a: (*a[:4], moved(a[4], 3, 2**62)), {}, ValueError, "cu_seqlens_k: "),
    "other numbers of boundaries": (lambda *a: (*a[:4], a[4][[0, -1]]), {}, ValueError, "cu_seqlens_k: .*7.*2"),
    "no boundaries": (lambda *a: (*a[:3], a[3][:0], a[4][:0]), {}, ValueError, "cu_seqlens_q: "),
    "boundaries of two axes": (lambda *a: (*a[:3], a[3][None], a[4]), {}, ValueError, r"cu_seqlens_q: .*\(1, 7\)"),
    "float boundaries": (lambda *a: (*a[:3], a[3].astype(np.float32), a[4]), {}, TypeError, "cu_seqlens_q: expected int32 or int64, got float32"),
    "small boundaries": (lambda *a: (*a[:4], a[4].astype(np.int16)), {}, TypeError, "cu_seqlens_k: expected int32 or int64, got int16"),
    "unsigned boundaries": (lambda *a: (*a[:4], a[4].astype(np.uint64)), {}, TypeError, "cu_seqlens_k: expected int32 or int64, got uint64"),
    "a list of boundaries": (lambda *a: (*a[:3], a[3].tolist(), a[4]), {}, TypeError, "cu_seqlens_q: expected an array.*list"),
    "keys without boundaries": (lambda *a: a[:4], {}, ValueError, "cu_seqlens_k, block_table: expected exactly one of them, got none"),
    "four axes": (lambda *a: (a[0][None], *a[1:]), {}, ValueError, "q: .*total"),
    "two axes": (lambda *a: (a[0], a[1][:, 0], *a[2:]), {}, ValueError, "k: .*total"),
    "values longer than keys": (lambda *a: (*a[:2], np.concatenate([a[2], a[2]]), *a[3:]), {}, ValueError, "v: .*20.*40|v: .*40.*20"),
    "keys of another width": (lambda *a: (a[0], a[1][..., :3], *a[2:]), {}, ValueError, "k: .*8.*3"),
    "heads that do not divide": (lambda *a: (a[0][:, :3], *a[1:]), {}, ValueError, "k: .*3.*2"),
    "float16": (lambda *a: (a[0].astype(np.float16), *a[1:]), {}, TypeError, "k: expected float16.*float32"),
    "offsets for two sequences": (None, {"causal": True, "query_offset": [0, 1]}, ValueError, r"query_offset: .*6.*2"),
    "lengths above a sequence's": (None, {"key_lengths": [4, 0, 0, 10, 1, 0]}, ValueError, "key_lengths: .*10"),
    "segments of queries alone": (None, {"query_segments": np.zeros(13, int)}, ValueError, "key_segments: "),
    "segments of one sequence": (None, {"query_segments": np.zeros(13, int), "key_segments": np.zeros(5, int)}, ValueError, "key_segments: .*20.*5"),
    "a bias in the list": (None, {"score": attend.bias(np.zeros(1, np.float32))}, ValueError, "score: .*packed"),
    "lse of a mean": (None, {"normalizer": "mean", "return_lse": True}, ValueError, "return_lse: .*'mean'"),
    "grid of unequal sequences": (None, {"grid": (1, 5), "neighborhood": (1, 3)}, ValueError, "grid: "),
    "out of another shape": (None, {"out": np.zeros((13, H, EV + 1), np.float32)}, ValueError, "out: .*13, 4, 6.*13, 4, 7"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_refused_by_name_and_nothing_is_written(what):
    change, options, error, words = WRONG[what]
    packed = pack()
    out = np.full((13, H, EV), 7, np.float32)
    with pytest.raises(error, match=f"^({words})") as caught:
        attend.attention_varlen(*(change(*packed) if change else packed), **{"out": out, **options})
    assert ": expected " in str(caught.value) and ", got " in str(caught.value) and (out == 7).all()


@pytest.mark.parametrize("name", ["mask", "bias", "layout", "return_weights", "return_scores"])
def test_what_has_no_meaning_for_packs_is_no_parameter(name):
    with pytest.raises(TypeError, match=f"got an unexpected keyword argument '{name}'"):
        attend.attention_varlen(*pack(), **{name: None})


def test_out_may_not_be_where_boundaries_are_read():
    q, k, v, cu_q, cu_k = pack(dtype="float64")
    memory = np.zeros(13 * H * EV)
    starts = memory.view(np.int64)[: len(LENGTHS) + 1]
    starts[:] = cu_q
    with pytest.raises(ValueError, match="^out: .*cu_seqlens_q"):
        attend.attention_varlen(q, k, v, starts, cu_k, out=memory.reshape(13, H, EV))
    assert np.array_equal(starts, cu_q)


@pytest.mark.peers
def test_torch_tensors_give_torch_tensors(torch):
    packed = pack()
    y, lse = attend.attention_varlen(*map(torch.from_numpy, packed), causal=True, return_lse=True)
    want = attend.attention_varlen(*packed, causal=True, return_lse=True)
    assert type(y) is type(lse) is torch.Tensor
    assert np.array_equal(y.numpy(), want.out) and np.array_equal(lse.numpy(), want.lse)
