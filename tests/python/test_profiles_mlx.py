"""docs/profiles.md against MLX on the CPU: each test makes MLX's call and the one that the page puts beside it, and compares them, or
shows where the two differ by intention."""

import numpy as np
import pytest

import attend

pytestmark = pytest.mark.peers

B, H, HK, L, S, E = 2, 4, 2, 5, 9, 8
J = np.arange(S)


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


Q, K, V = random(B, H, L, E, seed=1), random(B, HK, S, E, seed=2), random(B, HK, S, E, seed=3)


@pytest.fixture
def mlx():
    """mx.fast.scaled_dot_product_attention over arrays, scaled by the root of the width."""
    mx = pytest.importorskip("mlx.core")

    def call(q=Q, k=K, v=V, scale=E**-0.5, mask=None, sinks=None):
        array = lambda x: mx.array(x) if isinstance(x, np.ndarray) else x
        y = mx.fast.scaled_dot_product_attention(*map(mx.array, (q, k, v)), scale=scale, mask=array(mask), sinks=array(sinks))
        return np.array(y)

    return call


def same(mine, theirs):
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=5e-6)


def test_mlx_has_heads_before_length_and_groups_consecutive_query_heads(mlx):
    same(attend.attention(Q, K, V), mlx())
    same(attend.attention(Q, K, V, scale=0.3), mlx(scale=0.3))


def test_mlx_is_causal_from_the_lower_right(mlx):
    same(attend.attention(Q, K, V, causal=True, query_offset="lower_right"), mlx(mask="causal"))


def test_mlx_masks_are_true_to_attend_or_added(mlx):
    mask, bias = np.random.default_rng(4).random((B, 1, L, S)) < 0.6, random(H, L, S, seed=5)
    mask[..., 0] = True
    same(attend.attention(Q, K, V, mask=mask), mlx(mask=mask))
    same(attend.attention(Q, K, V, bias=bias), mlx(mask=bias))


def test_mlx_sinks_are_sinks(mlx):
    sinks = random(H, seed=6)
    same(attend.attention(Q, K, V, sinks=sinks), mlx(sinks=sinks))


def test_mlx_gives_the_mean_of_all_values_for_an_empty_row_and_attend_gives_0(mlx):
    mask = J < np.array([3, 9, 0, 1, 2])[:, None]
    theirs, mine = mlx(mask=mask), attend.attention(Q, K, V, mask=mask)
    np.testing.assert_allclose(theirs[:, :, 2], V.mean(2).repeat(H // HK, 1), rtol=0, atol=5e-6)
    assert not mine[:, :, 2].any()
    seen = np.arange(L) != 2
    same(mine[:, :, seen], theirs[:, :, seen])


def test_mlx_lets_an_excluded_nan_through_and_attend_does_not(mlx):
    v = V.copy()
    v[:, :, -1] = np.nan
    mask = np.broadcast_to(J < S - 1, (L, S)).copy()
    assert np.isnan(mlx(v=v, mask=mask)).any()
    same(attend.attention(Q, K, v, mask=mask), mlx(mask=mask))
