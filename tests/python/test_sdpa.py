"""`attend.scaled_dot_product_attention` has PyTorch's signature and PyTorch's meaning."""

import inspect

import numpy as np
import pytest

import attend
from reference import DTYPES, assert_close, attention, causal, problem


def sdpa(*arrays, **options):
    return attend.scaled_dot_product_attention(*arrays, **options)


def test_the_signature_is_pytorchs():
    signature = inspect.signature(attend.scaled_dot_product_attention)
    assert str(signature) == ("(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, "
                              "enable_gqa=False)")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_plain_calls_of_every_rank(rank, dtype):
    q, k, v = problem(H=2, Hk=2, dtype=dtype)
    want = attention(q, k, v)[0]
    cut = {2: lambda x: x[0, 0], 3: lambda x: x[0], 4: lambda x: x, 5: lambda x: x[None]}[rank]
    assert_close(sdpa(cut(q), cut(k), cut(v)), cut(want), abs(v).max())


def test_a_boolean_mask_selects_and_a_float_mask_is_added():
    q, k, v = problem(H=2, Hk=2)
    keep = np.random.default_rng(1).random((5, 7)) < 0.6
    bias = np.random.default_rng(2).standard_normal((2, 1, 5, 7)).astype(np.float32)
    assert_close(sdpa(q, k, v, attn_mask=keep), attention(q, k, v, mask=keep)[0], abs(v).max())
    assert_close(sdpa(q, k, v, keep), attention(q, k, v, mask=keep)[0], abs(v).max())
    assert_close(sdpa(q, k, v, attn_mask=bias), attention(q, k, v, bias=bias)[0], abs(v).max())
    assert np.array_equal(sdpa(q, k, v, attn_mask=np.where(keep, 0, -np.inf).astype(np.float32)), sdpa(q, k, v, attn_mask=keep))


@pytest.mark.parametrize("L, S", [(5, 5), (3, 8), (8, 3)])
def test_is_causal_counts_from_the_upper_left(L, S):
    q, k, v = problem(H=2, Hk=2, L=L, S=S)
    assert_close(sdpa(q, k, v, is_causal=True), attention(q, k, v, mask=causal(L, S))[0], abs(v).max())


def test_scale_and_enable_gqa():
    q, k, v = problem(H=6, Hk=2)
    assert_close(sdpa(q, k, v, scale=0.7, enable_gqa=True), attention(q, k, v, scale=0.7)[0], abs(v).max())
    assert_close(sdpa(q[:, :2], k, v, enable_gqa=True), attention(q[:, :2], k, v)[0], abs(v).max())


def test_a_mask_beside_is_causal_is_refused():
    q, k, v = problem(H=2, Hk=2)
    with pytest.raises(ValueError, match="is_causal"):
        sdpa(q, k, v, attn_mask=np.ones((5, 7), bool), is_causal=True)


def test_heads_that_differ_without_enable_gqa_are_refused():
    with pytest.raises(ValueError, match="enable_gqa.*4 and 2"):
        sdpa(*problem())


@pytest.mark.parametrize("p, error", [(-0.1, ValueError), (1.1, ValueError), (float("nan"), ValueError), (float("inf"), ValueError),
                                      ("0", TypeError), (None, TypeError), (True, TypeError)])
def test_dropout_that_is_no_probability_is_refused(p, error):
    with pytest.raises(error, match="^dropout_p: expected .*, got "):
        sdpa(*problem(H=2, Hk=2), dropout_p=p)


def test_dropout_drops_weights_and_scales_what_it_keeps():
    q, k, _ = problem(H=2, Hk=2, L=40, S=60)
    v = np.broadcast_to(np.eye(60, dtype=np.float32), (2, 2, 60, 60))  # the output is the weights
    whole, some = sdpa(q, k, v), sdpa(q, k, v, dropout_p=0.25)
    kept = some != 0
    assert abs(kept.mean() - 0.75) < 0.03
    assert_close(some, np.where(kept, whole / 0.75, 0), times=2)
    assert not np.array_equal(sdpa(q, k, v, dropout_p=0.25) != 0, kept)
    assert np.array_equal(sdpa(q, k, v, dropout_p=0), whole) and not sdpa(q, k, v, dropout_p=1).any()
    assert_close(sdpa(q, k, v, dropout_p=np.float32(0.0), is_causal=True), attention(q, k, v, mask=causal(40, 60))[0])


@pytest.mark.peers
def test_torchs_generator_gives_the_seed(torch):
    q, k, v = map(torch.from_numpy, problem(H=2, Hk=2, L=20, S=50))
    torch.manual_seed(5)
    first, second = sdpa(q, k, v, dropout_p=0.5), sdpa(q, k, v, dropout_p=0.5)
    torch.manual_seed(5)
    assert torch.equal(sdpa(q, k, v, dropout_p=0.5), first) and not torch.equal(first, second)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    sdpa(q, k, v)
    sdpa(q, k, v, dropout_p=0.0)
    assert torch.equal(torch.get_rng_state(), before)  # a call without dropout draws nothing


@pytest.mark.parametrize("change, words, error", [
    (lambda q, k, v: (q.astype(np.float16), k, v), "key: expected float16, the dtype of query, got float32", TypeError),
    (lambda q, k, v: (q, k.astype(np.float64), v), "key: .*float64", TypeError),
    (lambda q, k, v: (q, k, v[:, :, :6]), "value: .*6", ValueError),
    (lambda q, k, v: (q, k[..., :3], v), "key: .*3", ValueError),
    (lambda q, k, v: (q, k, v, np.ones((5, 6), bool)), "attn_mask: .*6", ValueError),
    (lambda q, k, v: (q, k, v, np.zeros((5, 6), np.float32)), "attn_mask: .*6", ValueError),
    (lambda q, k, v: (q, k, v, np.zeros((5, 7), np.int64)), "attn_mask: .*int64", TypeError),
    (lambda q, k, v: (q, k, v, np.zeros((5, 7), np.float64)), "attn_mask: .*float64", TypeError),
])
def test_messages_name_the_arguments_as_pytorch_does(change, words, error):
    with pytest.raises(error, match=words):
        sdpa(*change(*problem(H=2, Hk=2)))
