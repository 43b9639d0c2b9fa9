"""Caches and decoding from Python: arrays of every kind in, the same bits as attention over the same keys out."""

import numpy as np
import pytest

import attend


def rows(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_what_is_appended_is_what_is_seen():
    q, k, v = rows(2, 4, 3, 8, seed=1), rows(2, 2, 20, 8, seed=2), rows(2, 2, 20, 6, seed=3)
    cache = attend.KVCache(2, 2, 32, 8, value_dim=6)
    pages = attend.PagedKVCache(12, 4, 2, 8, value_dim=6)
    sequences = [pages.new_sequence() for _ in range(2)]
    for begin, end in ((0, 7), (7, 8), (8, 20)):
        cache.append(k[:, :, begin:end], v[:, :, begin:end])
        for b, s in enumerate(sequences):
            pages.append(s, k[b, :, begin:end], v[b, :, begin:end])
    assert cache.lengths.tolist() == [20, 20] and cache.lengths.dtype == np.int64
    assert [pages.length(s) for s in sequences] == [20, 20]
    assert pages.free_pages == 2 and len(pages.pages(sequences[0])) == 5
    for options in ({}, {"softcap": 2.0, "alibi": True}, {"window": (5, None)}, {"return_lse": True}, {"return_weights": True},
                    {"return_scores": "biased"}, {"mask": rows(3, 20) > 0}):
        expected = attend.attention(q, k, v, causal=True, query_offset="lower_right", **options)
        for got in (attend.decode(q, cache, **options), attend.decode(q, pages, sequences=sequences, **options)):
            for a, b in zip(got if isinstance(got, tuple) else [got], expected if isinstance(expected, tuple) else [expected]):
                assert np.array_equal(a, b), options


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_dtypes(dtype):
    k = rows(1, 1, 5, 4, dtype=dtype)
    cache = attend.KVCache(1, 1, 5, 4, dtype=np.dtype(dtype))
    cache.append(k, k)
    y = attend.decode(k[:, :, :1], cache)
    assert y.dtype == dtype
    assert np.array_equal(y, attend.attention(k[:, :, :1], k, k))
    with pytest.raises(TypeError, match="q: expected"):
        attend.decode(rows(1, 1, 1, 4), cache)
    with pytest.raises(TypeError, match="k: expected"):
        cache.append(rows(1, 1, 1, 4), k[:, :, :1])


def test_lengths_of_every_kind():
    k = rows(3, 1, 4, 2)
    for lengths in ([1, 0, 4], (1, 0, 4), np.array([1, 0, 4]), np.array([1, 0, 4], np.int32)):
        cache = attend.KVCache(3, 1, 8, 2)
        cache.append(k, k, lengths)
        assert cache.lengths.tolist() == [1, 0, 4]
        cache.append(k, k, lengths=2)
        assert cache.lengths.tolist() == [3, 2, 6]
        cache.truncate([3, 0, 5])
        assert cache.lengths.tolist() == [3, 0, 5]
        cache.truncate(0)
        assert cache.lengths.tolist() == [0, 0, 0]
        cache.append(k, k)
        cache.reset()
        assert cache.lengths.tolist() == [0, 0, 0]


def test_a_ring_keeps_the_newest():
    q, k, v = rows(1, 2, 50, 4, seed=4), rows(1, 1, 50, 4, seed=5), rows(1, 1, 50, 4, seed=6)
    cache = attend.KVCache(1, 1, 8, 4, window=8)
    for t in range(50):
        cache.append(k[:, :, t:t + 1], v[:, :, t:t + 1])
        first = max(0, t - 7)
        y = attend.decode(q[:, :, t:t + 1], cache)
        assert np.allclose(y, attend.attention(q[:, :, t:t + 1], k[:, :, first:t + 1], v[:, :, first:t + 1]), atol=2e-6)
    assert cache.lengths.tolist() == [50]
    with pytest.raises(ValueError, match="k: expected at most 1 tokens"):
        cache.append(k[:, :, :2], v[:, :, :2])
    with pytest.raises(ValueError, match="mask: expected none over a ring"):
        attend.decode(q[:, :, :1], cache, mask=np.ones(50, bool))


def test_forks_share_pages_until_they_write():
    k = rows(1, 10, 4)
    cache = attend.PagedKVCache(5, 4, 1, 4)
    trunk = cache.new_sequence()
    cache.append(trunk, k, k)
    branch = cache.fork(trunk)
    assert cache.pages(branch) == cache.pages(trunk) and cache.free_pages == 2
    cache.append(branch, k[:, :1], k[:, :1])
    assert cache.pages(branch)[:2] == cache.pages(trunk)[:2] and cache.pages(branch)[2] != cache.pages(trunk)[2]
    cache.free(trunk)
    assert cache.free_pages == 2 and cache.length(branch) == 11
    cache.truncate(branch, 4)
    assert cache.free_pages == 4
    with pytest.raises(ValueError, match="sequence: expected"):
        cache.length(trunk)


def test_arguments_are_checked():
    cache, pages = attend.KVCache(1, 1, 4, 2), attend.PagedKVCache(2, 2, 1, 2)
    q = rows(1, 1, 1, 2)
    for call, error, words in (
        (lambda: attend.decode(q, cache, sequences=[0]), ValueError, "sequences"),
        (lambda: attend.decode(q, pages), ValueError, "sequences"),
        (lambda: attend.decode(q, pages, sequences=3), TypeError, "sequences"),
        (lambda: attend.decode(q, pages, sequences=["a"]), TypeError, "sequence"),
        (lambda: attend.decode(q, q), TypeError, "cache: expected a KVCache or a PagedKVCache"),
        (lambda: attend.decode([1.0], cache), TypeError, "q"),
        (lambda: attend.decode(q, cache, causal=True), TypeError, "causal"),
        (lambda: attend.decode(rows(2, 1, 1, 2), cache), ValueError, "q: expected shape"),
        (lambda: attend.KVCache(1, 1, 4, 2, quantized="int2"), ValueError, "quantized"),
        (lambda: attend.KVCache(1, 1, 4, 2, quantized=8), TypeError, "quantized"),
        (lambda: attend.KVCache(1, 1, 4, 2, quantized=("int8",)), ValueError, "quantized"),
        (lambda: attend.PagedKVCache(2, 4, 1, 2, quantized=("int8", 4)), TypeError, "quantized"),
        (lambda: attend.KVCache(1, 1, 4, 2, dtype="float64", quantized="int8"), ValueError, "quantized_keys"),
        (lambda: attend.PagedKVCache(-1, 4, 1, 2), ValueError, "num_pages"),
        (lambda: attend.KVCache(2**60, 0, 4, 2), ValueError, "batch"),
        (lambda: attend.KVCache(1, 1, 4, 2, dtype="f4,,"), TypeError, "dtype"),
        (lambda: cache.append(q, q, lengths=True), TypeError, "lengths: expected an integer, or one per sequence"),
        (lambda: attend.KVCache(1, 1, 4, 2, dtype="int8"), TypeError, "dtype"),
        (lambda: attend.KVCache(1, 1, 4.5, 2), TypeError, "capacity"),
        (lambda: attend.KVCache(1, 1, 4, 2, window=0), ValueError, "window"),
        (lambda: attend.PagedKVCache(4, 0, 1, 2), ValueError, "page_size"),
        (lambda: cache.append(q, None), TypeError, "v"),
        (lambda: cache.truncate(None), ValueError, "lengths"),
        (lambda: cache.truncate(1), ValueError, "lengths"),
    ):
        with pytest.raises(error, match=words):
            call()
    assert cache.lengths.tolist() == [0]


def test_a_cache_that_was_not_made_is_refused():
    class forgetful(attend.KVCache):
        def __init__(self):
            pass

    q = rows(1, 1, 1, 2)
    for cache in (attend.KVCache.__new__(attend.KVCache), attend.PagedKVCache.__new__(attend.PagedKVCache), forgetful()):
        with pytest.raises(TypeError, match="cache: expected"):
            attend.decode(q, cache)
        with pytest.raises(TypeError, match="cache: expected"):
            attend.decode(q, cache, sequences=[0])


def test_a_cache_outlives_what_was_appended_and_is_freed_with_its_last_reference():
    import gc
    import weakref

    class owner(attend.KVCache):
        pass

    cache = owner(1, 1, 4, 2)
    cache.append(rows(1, 1, 2, 2), rows(1, 1, 2, 2))
    gc.collect()
    assert np.isfinite(attend.decode(rows(1, 1, 1, 2), cache)).all()
    alive = weakref.ref(cache)
    del cache
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_packed_queries_read_pages_of_the_callers(index):
    q, k, v = rows(5, 4, 8, seed=1), rows(12, 2, 8, seed=2), rows(12, 2, 6, seed=3)
    cu_q, cu_k, lengths = np.array([0, 2, 5], index), np.array([0, 4, 12], index), np.array([4, 8], index)
    k_pages, v_pages = np.full((7, 3, 2, 8), np.nan, np.float32), np.full((7, 3, 2, 6), np.nan, np.float32)
    table = np.array([[5, 0, -1], [2, 6, 1]], index)
    for s in range(2):
        for j in range(lengths[s]):
            k_pages[table[s, j // 3], j % 3] = k[cu_k[s] + j]
            v_pages[table[s, j // 3], j % 3] = v[cu_k[s] + j]
    y, lse = attend.attention_varlen(q, k_pages, v_pages, cu_q, block_table=table, key_lengths=lengths, causal=True, return_lse=True)
    want, want_lse = attend.attention_varlen(q, k, v, cu_q, cu_k, causal=True, return_lse=True)
    assert np.array_equal(y, want) and np.array_equal(lse, want_lse)
    with pytest.raises(ValueError, match="cu_seqlens_k, block_table: expected exactly one"):
        attend.attention_varlen(q, k_pages, v_pages, cu_q, key_lengths=lengths)
    with pytest.raises(ValueError, match="cu_seqlens_k, block_table: expected exactly one"):
        attend.attention_varlen(q, k_pages, v_pages, cu_q, cu_k, block_table=table, key_lengths=lengths)
    with pytest.raises(ValueError, match="block_table: expected pages from 0 to 6"):
        attend.attention_varlen(q, k_pages, v_pages, cu_q, block_table=table + 1, key_lengths=lengths)
    with pytest.raises(ValueError, match="key_lengths: expected an integer"):
        attend.attention_varlen(q, k_pages, v_pages, cu_q, block_table=table)


@pytest.mark.parametrize("interleaved", [False, True])
def test_keys_and_queries_are_turned_by_their_positions(interleaved):
    q, k, v = rows(1, 4, 2, 8, seed=1), rows(1, 2, 9, 8, seed=2), rows(1, 2, 9, 8, seed=3)
    how = {"rotary_base": 500, "rotary_interleaved": interleaved, "rotary_dim": 6}
    cache, pages = attend.KVCache(1, 2, 9, 8, **how), attend.PagedKVCache(5, 2, 2, 8, **how)
    s = pages.new_sequence()
    for at in range(0, 9, 3):
        cache.append(k[:, :, at:at + 3], v[:, :, at:at + 3])
        pages.append(s, k[0, :, at:at + 3], v[0, :, at:at + 3])

    def turned(x, first):
        angles = (first + np.arange(x.shape[2]))[:, None] / 500.0 ** (np.arange(3) / 3)
        a, b = (slice(0, 6, 2), slice(1, 6, 2)) if interleaved else (slice(0, 3), slice(3, 6))
        y = x.astype(np.float64)
        y[..., a] = x[..., a] * np.cos(angles) - x[..., b] * np.sin(angles)
        y[..., b] = x[..., a] * np.sin(angles) + x[..., b] * np.cos(angles)
        return y

    want = attend.attention(turned(q, 7), turned(k, 0), v.astype(np.float64), causal=True, query_offset="lower_right")
    assert np.allclose(attend.decode(q, cache), want, atol=2e-6)
    assert np.array_equal(attend.decode(q, pages, sequences=[s]), attend.decode(q, cache))
    for wrong, words in (({"rotary_base": 10, "rotary_dim": 3}, "rotary_dim: "), ({"rotary_interleaved": True}, "rotary_base: "),
                         ({"rotary_base": 0.5}, "rotary_base: "), ({"rotary_base": 10, "rotary_dim": 10}, "rotary_dim: ")):
        with pytest.raises(ValueError, match=words):
            attend.KVCache(1, 2, 9, 8, **wrong)


@pytest.mark.parametrize("quantized, steps", [("int8", (127, 127)), ("int4", (7, 7)), (("int8", None), (127, None)), ((None, "int4"), (None, 7)),
                                              (["int4", "int8"], (7, 127))])
def test_quantised_caches_hold_each_side_by_its_own_setting(quantized, steps):
    k, v = rows(1, 2, 19, 24, seed=1), rows(1, 2, 19, 40, seed=2)
    cache = attend.KVCache(1, 2, 20, 24, value_dim=40, quantized=quantized)
    pages = attend.PagedKVCache(5, 4, 2, 24, value_dim=40, quantized=quantized)
    sequence = pages.new_sequence()
    cache.append(k, v)
    pages.append(sequence, k[0], v[0])
    unit = np.broadcast_to(np.eye(24, dtype=np.float32), (1, 2, 24, 24))
    held_k = attend.decode(unit, cache, scale=1.0, return_scores="scaled").scores.transpose(0, 1, 3, 2)
    held_v = attend.decode(np.zeros((1, 2, 19, 24), np.float32), cache, mask=np.eye(19, dtype=bool))
    for held, given, step in ((held_k, k, steps[0]), (held_v, v, steps[1])):
        apart = np.abs(held - given).max()
        if step is None:
            assert apart == 0
        else:
            assert 0 < apart <= 0.6 * np.abs(given).max() / step
    q = rows(1, 4, 2, 24, seed=3)
    expected = attend.attention(q, held_k, held_v, causal=True, query_offset="lower_right")
    assert np.array_equal(attend.decode(q, cache), expected)
    assert np.array_equal(attend.decode(q, pages, sequences=[sequence]), expected)


def test_forks_read_a_long_prefix_together():
    k, v = rows(2, 2100, 8, seed=1), rows(2, 2100, 8, seed=2)
    pages = attend.PagedKVCache(400, 16, 2, 8)
    root = pages.new_sequence()
    pages.append(root, k, v)
    forks = [pages.fork(root) for _ in range(5)]
    for n, fork in enumerate(forks):
        pages.append(fork, rows(2, n, 8, seed=3), rows(2, n, 8, seed=4))
    q = rows(5, 4, 1, 8, seed=5)
    together = attend.decode(q, pages, sequences=forks)
    alone = [attend.decode(q[n:n + 1], pages, sequences=[fork]) for n, fork in enumerate(forks)]
    assert np.array_equal(together, np.concatenate(alone))
