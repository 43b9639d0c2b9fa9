"""Segments: which pairs they allow, and that the arrays of ids may be of any integer type, stride and kind."""

import numpy as np
import pytest

import attend
from reference import assert_close, attention, causal, problem

L, S = 5, 7
QUERIES = np.array([[0, 0, 1, -1, 2], [3, 1, 1, 1, -5]])
KEYS = np.array([[0, 0, 0, 1, 1, -1, 2], [1, 1, 2, 3, 3, -5, -1]])


def allowed(queries, keys):
    """(..., 1, L, S) of ids (..., L) and (..., S)."""
    queries, keys = queries[..., None, :, None], keys[..., None, None, :]
    return (queries == keys) & (queries >= 0)


def check(options, mask, arrays=None):
    q, k, v = arrays or problem()
    got = attend.attention(q, k, v, return_lse=True, return_weights=True, **options)
    for given, expected in zip(got, attention(q, k, v, mask=mask), strict=True):
        assert_close(given, expected, abs(v).max(), times=4)
    assert not got.weights[~np.broadcast_to(mask, got.weights.shape)].any()


@pytest.mark.parametrize("queries, keys", [
    (QUERIES, KEYS), (QUERIES[0], KEYS[0]), (QUERIES[0], KEYS), (QUERIES, KEYS[1]), (0 * QUERIES, 0 * KEYS), (QUERIES * 0 - 1, KEYS * 0 - 1),
], ids=["per batch", "shared", "queries shared", "keys shared", "one document", "none"])
def test_pairs_of_one_segment_are_allowed_and_negative_ids_are_of_none(queries, keys):
    check({"query_segments": queries, "key_segments": keys}, allowed(queries, keys))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_ids_may_be_of_any_integer_type(dtype):
    queries, keys = np.array([0, 0, 1, 100, 2], dtype), np.array([0, 1, 1, 100, 100, 2, 3], dtype)
    check({"query_segments": queries, "key_segments": keys}, allowed(queries, keys))
    check({"query_segments": queries.astype(np.int64), "key_segments": keys}, allowed(queries, keys))


def test_large_ids_do_not_wrap_around():
    queries = np.array([2**62, 2**32, 0, -(2**63), 2**63 - 1])
    keys = np.array([0, 2**62, 2**32, 2**63 - 1, -(2**63), 2**31, 1])
    check({"query_segments": queries, "key_segments": keys}, allowed(queries, keys))


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_ids_may_have_any_strides_and_addresses(dtype):
    queries, keys = np.ascontiguousarray(QUERIES, dtype), np.ascontiguousarray(KEYS, dtype)
    mask = allowed(queries, keys)
    reversed_ids = [x[:, ::-1].copy()[:, ::-1] for x in (queries, keys)]
    turned = [x.T.copy().T for x in (queries, keys)]
    sparse = [np.repeat(x, 3, -1)[:, ::3] for x in (queries, keys)]
    broadcast = [np.broadcast_to(x[:1], x.shape) for x in (queries, keys)]
    odd = [np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(dtype).reshape(x.shape) for x in (queries, keys)]
    for ids in (reversed_ids, turned, sparse, odd):
        check({"query_segments": ids[0], "key_segments": ids[1]}, mask)
    check({"query_segments": broadcast[0], "key_segments": broadcast[1]}, allowed(queries[0], keys[0]))


def test_int64_ids_are_read_where_they_lie():
    """Ids of a million keys that are one number: a copy of them would not fit."""
    q = np.ones((1, 1, 8), np.float32)
    k = np.broadcast_to(np.float32(1), (1, 2**20, 8))
    ids = np.broadcast_to(np.int64(4), (2**20,))
    assert_close(attend.attention(q, k, k, query_segments=np.array([4]), key_segments=ids), np.ones((1, 1, 8)))


def test_segments_intersect_what_else_is_allowed():
    segments = {"query_segments": abs(QUERIES[0]), "key_segments": abs(KEYS[0])}
    same = allowed(abs(QUERIES[0]), abs(KEYS[0]))
    mask = np.random.default_rng(3).random((2, 1, L, S)) < 0.7
    check({**segments, "causal": True, "query_offset": 1, "mask": mask}, same & causal(L, S, 1) & mask)
    check({**segments, "causal": True, "query_offset": 0, "prefix": 4}, same & (causal(L, S) | (np.arange(S) < 4)))
    check({**segments, "window": (1, 1), "query_offset": 2}, same & (abs(np.arange(S) - np.arange(L)[:, None] - 2) <= 1))
    check({**segments, "key_lengths": [3, 6]}, same & (np.arange(S) < np.array([3, 6])[:, None, None, None]))


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_other_segments_change_no_bit(poison):
    q, k, v = problem(L=40, S=300)
    ids = np.arange(300) // 100
    options = {"query_segments": np.full(40, 1), "key_segments": ids, "return_lse": True}
    want = attend.attention(q, k, v, **options)
    k[:, :, ids != 1], v[:, :, ids != 1] = poison, poison
    for given, expected in zip(attend.attention(q, k, v, **options), want, strict=True):
        assert np.isfinite(given).all() and np.array_equal(given, expected)
    for given, expected in zip(attend.attention(q, k, v, mask=ids == 1, return_lse=True), want, strict=True):
        assert np.array_equal(given, expected)


@pytest.mark.peers
def test_segments_may_be_dlpack_tensors(torch):
    q, k, v = problem()
    ids = [torch.from_numpy(x) for x in (QUERIES, KEYS)]
    want = attend.attention(q, k, v, query_segments=QUERIES, key_segments=KEYS)
    for kind in (torch.int64, torch.int32):
        got = attend.attention(q, k, v, query_segments=ids[0].to(kind), key_segments=ids[1].to(kind))
        assert np.array_equal(got, want)


def test_matrices_take_plain_ids_and_layout_changes_nothing():
    q, k, v = problem()
    ids = {"query_segments": QUERIES[0], "key_segments": KEYS[0]}
    y = attend.attention(q, k, v, **ids)
    assert np.array_equal(attend.attention(q[0], k[0], v[0], **ids), y[0])
    assert_close(attend.attention(q[0, 0], k[0, 0], v[0, 0], **ids), y[0, 0], abs(v).max())
    turned = attend.attention(*(x.swapaxes(1, 2) for x in (q, k, v)), layout="blhd", **ids)
    assert np.array_equal(turned.swapaxes(1, 2), y)


def test_a_plan_knows_segments():
    shape = (1, 8, 1024, 64)
    ids = np.repeat(np.arange(4), 256)
    packed = attend.plan(shape, shape, shape, "float32", query_segments=ids, key_segments=ids)
    whole = attend.plan(shape, shape, shape, "float32")
    assert packed["tiles_skipped"] > 0 == whole["tiles_skipped"] and packed["flops"] < whole["flops"]


@pytest.mark.parametrize("options, error, words", [
    ({"query_segments": QUERIES}, ValueError, "^key_segments: expected"),
    ({"key_segments": KEYS}, ValueError, "^query_segments: expected"),
    ({"query_segments": QUERIES[0], "key_segments": KEYS[0, :6]}, ValueError, r"^key_segments: .*\(7\).*\(6\)|^key_segments: .*\(7,\).*\(6,\)"),
    ({"query_segments": QUERIES[:, :4], "key_segments": KEYS}, ValueError, r"^query_segments: .*\(2, 5\).*\(2, 4\)"),
    ({"query_segments": QUERIES[:1], "key_segments": KEYS}, ValueError, r"^query_segments: .*\(1, 5\)"),
    ({"query_segments": QUERIES[:, None], "key_segments": KEYS}, ValueError, r"^query_segments: .*\(2, 1, 5\)"),
    ({"query_segments": np.array(3), "key_segments": KEYS}, ValueError, "^query_segments: "),
    ({"query_segments": QUERIES.astype(float), "key_segments": KEYS}, TypeError, "^query_segments: expected integers, got float64"),
    ({"query_segments": QUERIES > 0, "key_segments": KEYS}, TypeError, "^query_segments: expected integers, got bool"),
    ({"query_segments": QUERIES, "key_segments": KEYS.tolist()}, TypeError, "^key_segments: expected an array.*list"),
    ({"query_segments": 1, "key_segments": KEYS}, TypeError, "^query_segments: expected an array.*int"),
    ({"query_segments": QUERIES[0], "key_segments": np.full(S, 2**63, np.uint64)}, ValueError, "^key_segments: .*9223372036854775808"),
], ids=str)
def test_wrong_segments_are_refused_by_name(options, error, words):
    out = np.full((2, 4, L, 6), 7, np.float32)
    with pytest.raises(error, match=words):
        attend.attention(*problem(), out=out, **options)
    assert (out == 7).all()


def test_out_may_not_be_where_ids_are_read():
    memory = np.zeros(4 * 5 * 6, np.float64)
    out = memory.reshape(4, 5, 6)
    q, k, v = (x[0].astype(np.float64) for x in problem())
    with pytest.raises(ValueError, match="^out: .*query_segments"):
        attend.attention(q, k, v, out=out, query_segments=memory.view(np.int64)[:5], key_segments=KEYS[0])
