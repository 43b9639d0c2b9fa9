"""docs/profiles.md against PyTorch: each test makes PyTorch's call and the one that the page puts beside it, and compares them, or shows
where the two differ by intention."""

import warnings

import numpy as np
import pytest

import attend

pytestmark = pytest.mark.peers

B, H, HK, L, S, E, EV = 2, 4, 2, 5, 9, 8, 6
I, J = np.arange(L)[:, None], np.arange(S)


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


Q, K, V = random(B, H, L, E, seed=1), random(B, H, S, E, seed=2), random(B, H, S, EV, seed=3)


def same(ours, theirs):
    ours, theirs = np.asarray(ours), theirs.detach().numpy()
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=5e-6)


@pytest.fixture
def sdpa(torch):
    """scaled_dot_product_attention over arrays; what comes is a tensor."""

    def call(q, k, v, *, mask=None, **options):
        mask = mask if mask is None or isinstance(mask, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(mask))
        return torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), attn_mask=mask, **options)

    return call


def test_sdpa_has_heads_before_length_and_scales_by_the_root_of_the_width(sdpa):
    same(attend.attention(Q, K, V), sdpa(Q, K, V))
    same(attend.attention(Q, K, V, scale=-0.3), sdpa(Q, K, V, scale=-0.3))


def test_sdpa_masks_are_true_to_attend_or_added(sdpa):
    mask, bias = np.random.default_rng(4).random((B, 1, L, S)) < 0.6, random(H, L, S, seed=5)
    same(attend.attention(Q, K, V, mask=mask), sdpa(Q, K, V, mask=mask))
    same(attend.attention(Q, K, V, bias=bias), sdpa(Q, K, V, mask=bias))


def test_sdpa_is_causal_from_the_upper_left(sdpa):
    theirs = sdpa(Q, K, V, is_causal=True)
    same(attend.attention(Q, K, V, causal=True, query_offset="upper_left"), theirs)
    same(attend.attention(Q, K, V, mask=J <= I), theirs)


def test_sdpa_takes_the_lower_right_as_a_bias_object(torch, sdpa):
    from torch.nn.attention.bias import causal_lower_right

    corner = causal_lower_right(L, S)
    same(attend.attention(Q, K, V, causal=True, query_offset="lower_right"), sdpa(Q, K, V, mask=corner))


def test_sdpa_intersects_a_mask_with_is_causal_in_one_kernel_and_refuses_them_in_the_other(sdpa):
    mask = np.random.default_rng(6).random((L, S)) < 0.7
    v = random(B, H, S, E, seed=3)
    same(attend.attention(Q, K, v, mask=mask, causal=True, query_offset="upper_left"), sdpa(Q, K, v, mask=mask, is_causal=True))
    with pytest.raises(RuntimeError):
        sdpa(Q, K, V, mask=mask, is_causal=True)  # V is narrower than K, which the fused kernel does not do
    with pytest.raises(ValueError):
        attend.scaled_dot_product_attention(Q, K, v, attn_mask=mask, is_causal=True)


def test_sdpa_groups_consecutive_query_heads(sdpa):
    k, v = K[:, :HK], V[:, :HK]
    same(attend.attention(Q, k, v), sdpa(Q, k.copy(), v.copy(), enable_gqa=True))
    with pytest.raises(RuntimeError):
        sdpa(Q, k.copy(), v.copy())


def test_sdpa_gives_0_for_an_empty_row(sdpa):
    mask = J < np.array([3, 9, 0, 1, 2])[:, None]
    same(attend.attention(Q, K, V, mask=mask), sdpa(Q, K, V, mask=mask))
    same(attend.attention(Q, K, V, bias=np.where(mask, 0, -np.inf).astype(np.float32)), sdpa(Q, K, V, mask=mask))
    assert not attend.attention(Q, K, V, mask=mask)[:, :, 2].any()


def test_sdpa_lets_an_excluded_nan_through_and_attend_does_not(sdpa):
    v = V.copy()
    v[:, :, -1] = np.nan
    mask = np.broadcast_to(J < S - 1, (L, S))
    assert sdpa(Q, K, v, mask=mask).isnan().any()
    assert np.array_equal(attend.attention(Q, K, v, mask=mask), attend.attention(Q, K, V, mask=mask))


def test_sdpa_gives_0_for_a_query_of_nan_before_few_keys_and_attend_gives_nan(sdpa):
    q = Q.copy()
    q[0, 0, 1] = np.nan
    assert not sdpa(q, K[:, :, :3].copy(), K[:, :, :3].copy())[0, 0, 1].isnan().any()
    assert np.isnan(attend.attention(q, K[:, :, :3], V[:, :, :3])[0, 0, 1]).all()
    assert np.isnan(attend.attention(q, K, V)[0, 0, 1]).all()


def test_sdpa_keeps_its_lse_inside_natural_and_0_for_an_empty_row(torch):
    bias = np.where(J < np.array([3, 9, 0, 1, 2])[:, None], 0, -np.inf).astype(np.float32)
    v = random(B, H, S, E, seed=3)
    _, theirs = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*map(torch.from_numpy, (Q, K, v)),
                                                                          attn_mask=torch.from_numpy(bias))
    ours = attend.attention(Q, K, v, bias=bias, return_lse=True).lse
    seen = np.arange(L) != 2
    np.testing.assert_allclose(ours[..., seen], theirs.numpy()[..., seen], rtol=0, atol=5e-6)
    assert (theirs.numpy()[..., 2] == 0).all() and (ours[..., 2] == -np.inf).all()


def test_sdpa_drops_weights_by_another_generator_and_scales_the_rest_alike(torch, sdpa):
    n = 64  # equal weights 1/n of the unit vectors: the output is the weights
    q, v = np.zeros((1, 1, n, E), np.float32), np.eye(n, dtype=np.float32)[None, None]
    kept = np.float32(1 / n / 0.75)
    for y in (attend.attention(q, q, v, dropout_p=0.25, seed=7), sdpa(q, q, v, dropout_p=0.25).numpy()):
        assert np.isclose(y, kept, rtol=1e-6).sum() + (y == 0).sum() == n * n
        assert abs((y != 0).mean() - 0.75) < 0.05, "twelve standard deviations"
    assert not attend.attention(q, q, v, dropout_p=1.0).any() and not sdpa(q, q, v, dropout_p=1.0).any()
    again = [attend.scaled_dot_product_attention(*map(torch.from_numpy, (q, q, v)), dropout_p=0.25) for _ in range(2)
             if torch.manual_seed(11)]
    assert torch.equal(*again), "PyTorch's generator gives the seed"


@pytest.fixture
def module(torch):
    """A MultiheadAttention and its projections: x (L, B, width) to q, k, v (B, H, L, E), and back."""
    torch.manual_seed(0)
    mha = torch.nn.MultiheadAttention(H * E, H).eval()
    weight, bias = mha.in_proj_weight.detach().numpy(), mha.in_proj_bias.detach().numpy()

    def project(*arrays):
        for x, w, b in zip(arrays, np.split(weight, 3), np.split(bias, 3)):
            yield (x @ w.T + b).reshape(*x.shape[:2], H, E).transpose(1, 2, 0, 3)

    def back(y):
        y = y.transpose(2, 0, 1, 3).reshape(y.shape[2], y.shape[0], H * E)
        return y @ mha.out_proj.weight.detach().numpy().T + mha.out_proj.bias.detach().numpy()

    return mha, project, back


X, Y = random(L, B, H * E, seed=8), random(S, B, H * E, seed=9)


def test_mha_has_length_before_batch_and_averages_weights_over_heads(torch, module):
    mha, project, back = module
    x, y = map(torch.from_numpy, (X, Y))
    out, weights = mha(x, y, y)
    ours = attend.attention(*project(X, Y, Y), return_weights=True)
    same(back(ours.out), out)
    same(ours.weights.mean(1), weights)
    same(ours.weights, mha(x, y, y, average_attn_weights=False)[1])


def test_mha_masks_are_true_to_exclude(torch, module):
    mha, project, back = module
    x, y = map(torch.from_numpy, (X, Y))
    excluded, padding = np.random.default_rng(10).random((L, S)) < 0.3, np.random.default_rng(11).random((B, S)) < 0.3
    excluded[:, 0] = padding[:, 0] = False
    theirs, _ = mha(x, y, y, attn_mask=torch.from_numpy(excluded), key_padding_mask=torch.from_numpy(padding))
    same(back(attend.attention(*project(X, Y, Y), mask=~excluded & ~padding[:, None, None])), theirs)
    added = random(B * H, L, S, seed=12)
    theirs, _ = mha(x, y, y, attn_mask=torch.from_numpy(added))
    same(back(attend.attention(*project(X, Y, Y), bias=added.reshape(B, H, L, S))), theirs)


def test_mha_gives_nan_for_an_empty_row_with_its_weights_and_0_without(torch, module):
    mha, project, back = module
    x, y = map(torch.from_numpy, (X, Y))
    padding = np.zeros((B, S), bool)
    padding[1] = True
    with_weights, weights = mha(x, y, y, key_padding_mask=torch.from_numpy(padding))
    assert with_weights[:, 1].isnan().all() and weights[1].isnan().all()
    without, _ = mha(x, y, y, key_padding_mask=torch.from_numpy(padding), need_weights=False)
    ours = attend.attention(*project(X, Y, Y), mask=~padding[:, None, None], return_weights=True)
    assert not ours.out[1].any() and not ours.weights[1].any()
    same(back(ours.out), without)


def test_mha_takes_is_causal_as_a_hint_about_a_mask_that_must_be_there(torch, module):
    mha, project, back = module
    x = torch.from_numpy(X)
    with pytest.raises(RuntimeError):
        mha(x, x, x, is_causal=True)
    triangle = torch.nn.Transformer.generate_square_subsequent_mask(L)
    theirs, _ = mha(x, x, x, attn_mask=triangle, is_causal=True)
    same(back(attend.attention(*project(X, X, X), causal=True)), theirs)


@pytest.fixture
def flex(torch):
    """flex_attention over arrays, evaluated by definition; `mask` is a mask_mod."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def call(q, k, v, score=None, mask=None, **options):
        block = mask and create_block_mask(mask, q.shape[0], q.shape[1], q.shape[2], k.shape[2], device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks for torch.compile, which tests do without
            return flex_attention(*map(torch.from_numpy, (q, k, v)), score_mod=score, block_mask=block, **options)

    return call


def test_flex_masks_are_the_structured_ones(torch, flex):
    segments = np.array([[0, 0, 1, 1, 1, 1, 2, 2, 2], [3, 3, 3, 3, 0, 0, 0, 0, 0]])
    ids = torch.from_numpy(segments)
    x = random(B, H, S, E, seed=13)
    for mask, options in (
        (lambda b, h, i, j: j <= i, dict(causal=True)),
        (lambda b, h, i, j: (j <= i) & (i - j <= 2), dict(causal=True, window=(2, None))),
        (lambda b, h, i, j: (i - j <= 2) & (j - i <= 1), dict(window=(2, 1))),
        (lambda b, h, i, j: (j <= i) | (j < 4), dict(causal=True, prefix=4)),
        (lambda b, h, i, j: ids[b, i] == ids[b, j], dict(query_segments=segments, key_segments=segments)),
        (lambda b, h, i, j: (ids[b, i] == ids[b, j]) & (j <= i), dict(query_segments=segments, key_segments=segments, causal=True)),
    ):
        same(attend.attention(x, x, V, **options), flex(x, x, V, mask=mask))
    same(attend.attention(Q, K, V, causal=True, query_offset=4), flex(Q, K, V, mask=lambda b, h, i, j: j <= i + 4))


def test_flex_score_functions_see_the_scaled_score(torch, flex):
    bias, slopes = torch.from_numpy(random(H, L, S, seed=14)), torch.tensor([2.0 ** -(2 * h + 2) for h in range(H)])
    cap = lambda s: 2 * torch.tanh(s / 2)
    for score, options in (
        (lambda s, b, h, i, j: cap(s), dict(softcap=2.0)),
        (lambda s, b, h, i, j: s + bias[h, i, j], dict(bias=bias.numpy())),
        (lambda s, b, h, i, j: s - slopes[h] * (i - j).abs(), dict(alibi=True, query_offset="upper_left")),
        (lambda s, b, h, i, j: cap(s) + bias[h, i, j], dict(softcap=2.0, bias=bias.numpy())),
        (lambda s, b, h, i, j: cap(s + bias[h, i, j]), dict(score=[attend.bias(bias.numpy()), attend.soft_cap(2.0)])),
    ):
        same(attend.attention(Q, K, V, scale=0.5, **options), flex(Q, K, V, score, scale=0.5))


def test_flex_relative_biases_are_a_table(torch, flex):
    table = random(H, 2 * 3 + 1, seed=15)
    values = torch.from_numpy(table)
    theirs = flex(Q, K, V, lambda s, b, h, i, j: s + values[h, (j - i).clamp(-3, 3) + 3])
    same(attend.attention(Q, K, V, relative=table, query_offset="upper_left"), theirs)


def test_flex_gives_a_natural_lse_and_0_for_an_empty_row(flex):
    out, lse = flex(Q, K, V, mask=lambda b, h, i, j: j <= i - 1, return_lse=True)
    ours = attend.attention(Q, K, V, causal=True, query_offset=-1, return_lse=True)
    same(ours.out, out)
    same(ours.lse, lse)
    assert (ours.lse[..., 0] == -np.inf).all() and not ours.out[:, :, 0].any()


def test_flex_groups_consecutive_query_heads(flex):
    k, v = K[:, :HK].copy(), V[:, :HK].copy()
    same(attend.attention(Q, k, v), flex(Q, k, v, enable_gqa=True))


def test_flex_sinks_are_made_from_its_lse(torch, flex):
    sinks = random(H, seed=16)
    out, lse = flex(Q, K, V, return_lse=True)
    same(attend.attention(Q, K, V, sinks=sinks), out * torch.sigmoid(lse - torch.from_numpy(sinks)[:, None])[..., None])
