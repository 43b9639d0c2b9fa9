"""docs/profiles.md against JAX on the CPU: each test makes JAX's call and the one that the page puts beside it, and compares them, or
shows where the two differ by intention."""

import numpy as np
import pytest

import attend

pytestmark = pytest.mark.peers

B, L, S, H, HK, E = 2, 5, 9, 4, 2, 8
I, J = np.arange(L)[:, None], np.arange(S)
FAR = -1e38  # JAX's mask value lies below, and is finite


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


Q, K, V = random(B, L, H, E, seed=1), random(B, S, HK, E, seed=2), random(B, S, HK, E, seed=3)


@pytest.fixture
def dpa():
    """jax.nn.dot_product_attention over arrays."""
    return pytest.importorskip("jax").nn.dot_product_attention


def ours(q=Q, k=K, v=V, **options):
    return attend.attention(q, k, v, layout="blhd", **options)


def same(mine, theirs):
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=5e-6)


def test_jax_has_length_before_heads_and_groups_consecutive_query_heads(dpa):
    same(ours(), dpa(Q, K, V))
    same(ours(k=K[:, :, :1], v=V[:, :, :1]), dpa(Q, K[:, :, :1], V[:, :, :1]))
    same(attend.attention(Q[0], K[0], V[0], layout="blhd"), dpa(Q[0], K[0], V[0]))


def test_jax_scales_by_the_root_of_the_width(dpa):
    same(ours(scale=E**-0.5), dpa(Q, K, V))
    same(ours(scale=0.7), dpa(Q, K, V, scale=0.7))


def test_jax_wants_values_as_wide_as_keys_and_attend_does_not(dpa):
    narrow = V[..., :3]
    with pytest.raises(ValueError):
        dpa(Q, K, narrow)
    same(ours(v=narrow), dpa(Q, K, V)[..., :3])


def test_jax_is_causal_from_the_upper_left(dpa):
    same(ours(causal=True, query_offset="upper_left"), dpa(Q, K, V, is_causal=True))


def test_jax_windows_count_both_sides_beside_the_query(dpa):
    same(ours(window=(1, 2), query_offset="upper_left"), dpa(Q, K, V, local_window_size=(1, 2)))
    same(ours(window=(2, 2), query_offset="upper_left"), dpa(Q, K, V, local_window_size=2))


def test_jax_masks_are_true_to_attend_and_biases_added(dpa):
    mask, bias = np.random.default_rng(4).random((B, 1, L, S)) < 0.6, random(1, H, L, S, seed=5)
    mask[..., 0] = True
    same(ours(mask=mask), dpa(Q, K, V, mask=mask))
    same(ours(bias=bias), dpa(Q, K, V, bias=bias))
    same(ours(mask=mask, bias=bias, causal=True, query_offset=0), dpa(Q, K, V, mask=mask, bias=bias, is_causal=True))


def test_jax_lengths_of_keys_are_key_lengths(dpa):
    same(ours(key_lengths=[9, 4]), dpa(Q, K, V, key_value_seq_lengths=np.array([9, 4], np.int32)))


def test_jax_lengths_of_queries_clear_rows_that_attend_computes(dpa):
    theirs = np.asarray(dpa(Q, K, V, query_seq_lengths=np.array([5, 3], np.int32)))
    assert not theirs[1, 3:].any() and ours()[1, 3:].any()
    y = ours()
    y[1, 3:] = 0
    same(y, theirs)


def test_jax_gives_a_natural_lse_with_length_before_heads(dpa):
    _, lse = dpa(Q, K, V, return_residual=True)
    same(ours(return_lse=True).lse.swapaxes(1, 2), lse)


def test_jax_gives_the_mean_of_all_values_for_an_empty_row_and_attend_gives_0(dpa):
    mask = np.broadcast_to(J < np.array([9, 4, 0, 1, 2])[:, None], (1, 1, L, S))
    out, lse = (np.asarray(x) for x in dpa(Q, K, V, mask=mask, return_residual=True))
    np.testing.assert_allclose(out[:, 2], V.mean(1).repeat(H // HK, 1), rtol=0, atol=5e-6)
    assert (lse[:, 2] < FAR).all() and np.isfinite(lse).all()
    mine = ours(mask=mask, return_lse=True)
    assert not mine.out[:, 2].any() and (mine.lse[..., 2] == -np.inf).all()
    seen = np.arange(L) != 2
    same(mine.out[:, seen], out[:, seen])


def test_jax_gives_nan_for_a_row_of_infinite_biases_and_attend_gives_0(dpa):
    bias = np.zeros((1, 1, L, S), np.float32)
    bias[:, :, 2] = -np.inf
    out, lse = (np.asarray(x) for x in dpa(Q, K, V, bias=bias, return_residual=True))
    assert np.isnan(out[:, 2]).all() and (lse[:, 2] == -np.inf).all()
    mine = ours(bias=bias, return_lse=True)
    assert not mine.out[:, 2].any() and (mine.lse[..., 2] == -np.inf).all()


def test_jax_lets_an_excluded_nan_through_and_attend_does_not(dpa):
    v = V.copy()
    v[:, -1] = np.nan
    assert np.isnan(np.asarray(dpa(Q, K, v, is_causal=True))).any()
    same(ours(v=v, causal=True, query_offset="upper_left"), dpa(Q, K, V, is_causal=True))
