"""Gradients of attend.torch: slopes of what it computes, over the options, and of what autograd makes of inputs and results."""

import pytest

import attend

pytestmark = pytest.mark.peers

B, H, HK, L, S, E, EV = 2, 4, 2, 3, 5, 3, 2


@pytest.fixture(autouse=True)
def seeded(torch):
    torch.manual_seed(0)


def normal(torch, *shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def inputs(torch, queries=L, keys=S):
    return normal(torch, B, H, queries, E), normal(torch, B, HK, keys, E), normal(torch, B, HK, keys, EV)


def check(torch, function, tensors):
    assert torch.autograd.gradcheck(function, tensors)


PLAIN = {
    "nothing": {},
    "causal from the upper left": {"causal": True, "query_offset": "upper_left"},
    "causal from the lower right, scaled": {"causal": True, "query_offset": "lower_right", "scale": -0.7},
    "a window and a prefix": {"window": (1, 0), "query_offset": 1, "prefix": 1},
    "lengths, of which one is 0": {"key_lengths": [0, 4]},
    "offsets of the batch": {"causal": True, "query_offset": [0, 2]},
    "a soft cap": {"softcap": 1.5},
    "the paper's slopes": {"alibi": True, "query_offset": 1},
    "dropout": {"dropout_p": 0.4, "seed": 2**64 - 3},
    "one kernel for all": {"reproducible": True, "threads": 1},
}


@pytest.mark.parametrize("name", PLAIN)
def test_gradients_of_inputs_are_slopes(torch, name):
    check(torch, lambda q, k, v: attend.torch.attention(q, k, v, **PLAIN[name]), inputs(torch))


def test_masks_and_segments_exclude_from_gradients_too(torch):
    mask = torch.rand(B, 1, L, S) < 0.6
    check(torch, lambda q, k, v: attend.torch.attention(q, k, v, mask=mask), inputs(torch))
    queries, keys = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1, 0, -1])
    check(torch, lambda q, k, v: attend.torch.attention(q, k, v, query_segments=queries, key_segments=keys), inputs(torch))


@pytest.mark.parametrize("shape", [(S,), (L, S), (H, 1, S), (B, 1, L, 1), (B, H, L, S)], ids=str)
def test_gradients_of_a_bias_are_summed_up_over_what_was_broadcast(torch, shape):
    check(torch, lambda q, k, v, bias: attend.torch.attention(q, k, v, bias=bias), (*inputs(torch), normal(torch, *shape)))


def test_arrays_among_the_options_have_gradients(torch):
    def function(q, k, v, relative, slopes, sinks):
        return attend.torch.attention(q, k, v, relative=relative, alibi=slopes, sinks=sinks, query_offset=1, return_lse=True)

    check(torch, function, (*inputs(torch), normal(torch, 1, 5), normal(torch, H), normal(torch, H)))


def test_arrays_of_the_score_list_have_gradients(torch):
    def function(q, k, v, first, slopes, second):
        score = [attend.bias(first), attend.soft_cap(2.0), attend.alibi(slopes), attend.bias(second)]
        return attend.torch.attention(q, k, v, score=score, query_offset=1)

    check(torch, function, (*inputs(torch), normal(torch, H, L, 1), normal(torch, H), normal(torch, 1, S)))


@pytest.mark.parametrize("normalizer", ["softmax", "mean", "sum", "sigmoid", "relu2", "abs"])
@pytest.mark.parametrize("compatibility", ["dot", "cosine", "l1", "none", "gaussian", "additive"])
def test_the_general_form_has_gradients(torch, compatibility, normalizer):
    def function(q, k, v, w):
        of = {"gaussian": attend.gaussian(0.8), "additive": attend.additive(w)}.get(compatibility, compatibility)
        return attend.torch.attention(q, k, v, compatibility=of, normalizer=normalizer, causal=True, query_offset=1) + 0 * w.sum()

    check(torch, function, (*inputs(torch), normal(torch, E)))


def test_a_grid_has_gradients(torch):
    def function(q, k, v, relative):
        return attend.torch.attention(q, k, v, grid=(2, 3), neighborhood=3, dilation=(1, 1), border="clip", relative=relative)

    check(torch, function, (*inputs(torch, 6, 6), normal(torch, H, 3, 3)))


def test_the_other_layout_and_lse_in_the_loss_have_gradients(torch):
    def function(q, k, v):
        out, lse = attend.torch.attention(*(x.transpose(1, 2) for x in (q, k, v)), layout="blhd", return_lse=True)
        return out, lse, lse.exp().sum()

    check(torch, function, inputs(torch))


def test_matrices_and_broadcast_batches_have_gradients(torch):
    check(torch, attend.torch.attention, (normal(torch, L, E), normal(torch, S, E), normal(torch, S, EV)))
    check(torch, attend.torch.attention, (normal(torch, 2, 1, H, L, E), normal(torch, 3, HK, S, E), normal(torch, 1, 1, HK, S, EV)))


@pytest.mark.parametrize("options", [{}, {"causal": True, "softcap": 2.0}, {"dropout_p": 0.3, "seed": 5}, {"window": (1, 1)}], ids=str)
def test_packed_sequences_have_gradients(torch, options):
    at_q, at_k = torch.tensor([0, 2, 2, 5]), torch.tensor([0, 3, 4, 7])

    def function(q, k, v, sinks):
        return attend.torch.attention_varlen(q, k, v, at_q, at_k, sinks=sinks, return_lse=True, **options)

    check(torch, function, (normal(torch, 5, H, E), normal(torch, 7, HK, E), normal(torch, 7, HK, EV), normal(torch, H)))


def test_sdpa_has_gradients_of_its_mask(torch):
    q, k, v = inputs(torch)
    sdpa = attend.torch.scaled_dot_product_attention
    check(torch, lambda *x: sdpa(*x, enable_gqa=True), (q, k, v, normal(torch, L, S)))
    check(torch, lambda *x: sdpa(*x, is_causal=True, enable_gqa=True, scale=0.3), (q, k, v))


@pytest.mark.parametrize("dtype, atol", [("float32", 2e-5), ("bfloat16", 0.1)])
def test_gradients_are_pytorchs(torch, dtype, atol):
    leaves = [torch.randn(2, 3, n, 16).to(getattr(torch, dtype)).requires_grad_() for n in (40, 60, 60)]
    bias = torch.randn(3, 40, 60).to(leaves[0].dtype).requires_grad_()
    by = []
    for sdpa in (attend.torch.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention):
        loss = sdpa(*leaves, attn_mask=bias).float().square().sum()
        by.append(torch.autograd.grad(loss, (*leaves, bias)))
    for ours, theirs in zip(*by):
        assert ours.dtype is leaves[0].dtype
        torch.testing.assert_close(ours, theirs, atol=atol, rtol=0.02)


def test_one_tensor_may_be_all_three_and_a_result_used_twice(torch):
    def function(x):
        y = attend.torch.attention(x, x, x)
        return y * attend.torch.attention(y, x, y)

    check(torch, function, (normal(torch, 2, 4, 3),))


def test_expanded_and_transposed_inputs_have_gradients_of_their_own_shape(torch):
    q, k, v = normal(torch, 1, 1, L, E), normal(torch, E, HK, S), normal(torch, S, 1, EV)

    def function(q, k, v):
        return attend.torch.attention(q.expand(B, H, L, E), k.permute(1, 2, 0), v.transpose(0, 1).expand(HK, S, EV))

    check(torch, function, (q, k, v))
    attend.torch.attention(q.expand(B, H, L, E), k.permute(1, 2, 0), v.transpose(0, 1).expand(HK, S, EV)).sum().backward()
    assert [x.grad.shape for x in (q, k, v)] == [x.shape for x in (q, k, v)]


def test_what_is_frozen_gets_no_gradient(torch):
    q, k, v = inputs(torch)
    bias = torch.randn(L, S, dtype=torch.float64)
    y = attend.torch.attention(q, k.detach(), v, bias=bias)
    frozen = []
    y.grad_fn.register_hook(lambda made, _: frozen.extend(x is None for x in made))
    y.sum().backward()
    assert frozen == [False, True, False, True]
    assert not attend.torch.attention(q.detach(), k.detach(), v.detach()).requires_grad
    with torch.no_grad():
        assert not attend.torch.attention(q, k, v, bias=bias).requires_grad


def test_gradients_of_what_is_frozen_are_not_computed(torch, monkeypatch):
    from attend.torch import _calls

    asked = []

    def spy(*arguments, wanted, **options):
        asked.append(wanted)
        return attend.attention_backward(*arguments, wanted=wanted, **options)

    monkeypatch.setattr(_calls, "DENSE", _calls.DENSE._replace(backward=spy))
    q, k, v = inputs(torch)
    attend.torch.attention(q, k.detach(), v, bias=torch.randn(L, S, dtype=q.dtype)).sum().backward()
    attend.torch.attention(q.detach(), k, v.detach(), score=[attend.soft_cap(2.0), attend.bias(normal(torch, S))]).sum().backward()
    assert asked == [{"dq", "dv"}, {"dk", "dscore"}]


def test_a_tensor_that_was_changed_after_the_call_is_noticed(torch):
    q, k, v = inputs(torch)
    mask = torch.ones(L, S, dtype=torch.bool)
    y = attend.torch.attention(q * 1, k, v, mask=mask)
    mask[0, 0] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_rows_without_keys_have_no_gradient_whatever_comes_in(torch):
    q, k, v = inputs(torch)
    mask = torch.ones(L, S, dtype=torch.bool)
    mask[1] = False
    dout = torch.randn(B, H, L, EV, dtype=torch.float64)
    dout[:, :, 1] = torch.nan
    by = torch.autograd.grad(attend.torch.attention(q, k, v, mask=mask), (q, k, v), dout)
    assert all(x.isfinite().all() for x in by) and not by[0][:, :, 1].any()


@pytest.mark.parametrize("way", ["attention", "sdpa", "varlen"])
def test_dropout_follows_pytorchs_generator(torch, way):
    q, k, v = inputs(torch)

    def call(q, k, v):
        if way == "sdpa":
            return attend.torch.scaled_dot_product_attention(q, k, v, dropout_p=0.5, enable_gqa=True)
        if way == "attention":
            return attend.torch.attention(q, k, v, dropout_p=0.5)
        starts = torch.tensor([0, L]), torch.tensor([0, S])
        return attend.torch.attention_varlen(*(x[0].transpose(0, 1) for x in (q, k, v)), *starts, dropout_p=0.5)

    def seeded():
        torch.manual_seed(3)
        return call(q, k, v)

    first, second = seeded(), call(q, k, v)
    assert torch.equal(first, seeded()) and not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(first, call(q.detach(), k.detach(), v.detach())), "with and without gradients"

    def reseeded(q, k, v):
        torch.manual_seed(3)
        return call(q, k, v)

    check(torch, reseeded, (q, k, v))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_drop_the_same_weights_again(torch, reentrant):
    from torch.utils.checkpoint import checkpoint

    q, k, v = inputs(torch)
    call = lambda q, k, v: attend.torch.attention(q, k, v, dropout_p=0.5).square()
    by = []
    for run in (call, lambda *x: checkpoint(call, *x, use_reentrant=reentrant)):
        torch.manual_seed(3)
        by.append(torch.autograd.grad(run(q, k, v).sum(), (q, k, v)) if not reentrant else backward(run(q, k, v), (q, k, v)))
    for plain, again in zip(*by):
        assert torch.equal(plain, again)


def backward(y, leaves):
    for x in leaves:
        x.grad = None
    y.sum().backward()
    return [x.grad for x in leaves]
