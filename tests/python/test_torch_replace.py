"""attend.torch.replace_sdpa: what it reaches, and that nothing of it stays behind."""

import threading

import pytest

import attend

pytestmark = pytest.mark.peers


@pytest.fixture
def calls(torch, monkeypatch):
    """What came to attend's function, by the shape of the query."""
    from attend.torch import _replace

    seen, real = [], _replace.scaled_dot_product_attention
    monkeypatch.setattr(_replace, "scaled_dot_product_attention", lambda q, *x, **y: (seen.append(tuple(q.shape)), real(q, *x, **y))[1])
    return seen


def callers(torch):
    x, q = torch.randn(2, 5, 16), torch.randn(2, 4, 5, 8)
    attention = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    encoder, decoder = (layer(16, 4, 32, batch_first=True, dropout=0) for layer in (torch.nn.TransformerEncoderLayer,
                                                                                    torch.nn.TransformerDecoderLayer))
    return {"functional": (1, lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True), None),
            "_nn": (1, lambda: torch._C._nn.scaled_dot_product_attention(q, q, q), None),
            "attention": (1, lambda: attention(x, x, x, need_weights=False)[0], attention),
            "attention with weights": (0, lambda: attention(x, x, x)[0], attention),
            "encoder": (1, lambda: encoder(x), encoder), "decoder": (2, lambda: decoder(x, x), decoder)}


@pytest.mark.parametrize("name", ["functional", "_nn", "attention", "attention with weights", "encoder", "decoder"])
@pytest.mark.parametrize("training", [True, False])
def test_callers_are_reached_and_get_the_same(torch, calls, name, training):
    torch.manual_seed(0)
    times, call, module = callers(torch)[name]
    if module is not None:
        module.train(training)
    with torch.set_grad_enabled(training):
        theirs = call()
        with attend.torch.replace_sdpa():
            torch.testing.assert_close(call(), theirs, atol=2e-5, rtol=1e-5)
        assert len(calls) == times
        torch.testing.assert_close(call(), theirs)
        assert len(calls) == times, "theirs again"


def test_it_ends_where_an_exception_leaves_it_and_may_be_nested(torch):
    theirs, fast = torch.nn.functional.scaled_dot_product_attention, torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(ZeroDivisionError), attend.torch.replace_sdpa():
        with attend.torch.replace_sdpa():
            pass
        assert torch.nn.functional.scaled_dot_product_attention is not theirs, "the outer one is still there"
        1 / 0
    assert torch.nn.functional.scaled_dot_product_attention is theirs and torch._C._nn.scaled_dot_product_attention is theirs
    assert torch.backends.mha.get_fastpath_enabled() == fast


def test_the_last_of_several_threads_ends_it(torch, calls):
    theirs = torch.nn.functional.scaled_dot_product_attention
    inside, leave = threading.Event(), threading.Event()

    @attend.torch.replace_sdpa()
    def other():
        inside.set()
        leave.wait(10)

    thread = threading.Thread(target=other)
    with attend.torch.replace_sdpa():
        thread.start()
        assert inside.wait(10)
    q = torch.randn(1, 1, 2, 4)
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert calls == [(1, 1, 2, 4)], "the other thread is still inside"
    leave.set()
    thread.join()
    assert torch.nn.functional.scaled_dot_product_attention is theirs


def test_other_devices_go_to_pytorch_and_what_attend_refuses_raises(torch, calls):
    with attend.torch.replace_sdpa():
        far = torch.empty(1, 2, 3, 4, device="meta")
        assert torch.nn.functional.scaled_dot_product_attention(far, far, far, None, 0.0, True).device.type == "meta" and not calls
        q = torch.randn(1, 2, 3, 4)
        with pytest.raises(ValueError, match="^is_causal: expected False beside attn_mask"):
            torch.nn.functional.scaled_dot_product_attention(q, q, q, torch.ones(3, 3, dtype=torch.bool), is_causal=True)


def test_graphs_follow_it(torch):
    torch._dynamo.reset()
    graphs = []

    def backend(module, inputs):
        graphs.append(str(module.graph))
        return module.forward

    q = torch.randn(1, 2, 3, 4)
    compiled = torch.compile(lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q), fullgraph=True, backend=backend)
    theirs = compiled(q)
    with attend.torch.replace_sdpa():
        torch.testing.assert_close(compiled(q), theirs)
    assert torch.equal(compiled(q), theirs)
    assert ["attend.attention" in graph for graph in graphs] == [False, True]


def test_corners_that_pytorch_has_objects_for_are_options(torch):
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    q, k = torch.randn(1, 2, 3, 4, requires_grad=True), torch.randn(1, 2, 5, 4)
    for corner in (causal_lower_right(3, 5), causal_upper_left(3, 5)):
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=corner)
        torch.testing.assert_close(attend.torch.scaled_dot_product_attention(q, k, k, corner), theirs)
