"""attend.torch among the parts of PyTorch: its operators' contract, compiled and exported graphs, autocast, and what is refused."""

import ast
import inspect
import pathlib

import pytest

import attend

pytestmark = pytest.mark.peers

B, H, HK, L, S, E, EV = 2, 4, 2, 5, 7, 8, 6


@pytest.fixture(autouse=True)
def seeded(torch):
    torch.manual_seed(0)
    torch._dynamo.reset()


def inputs(torch, dtype="float32", requires_grad=True):
    shapes = (B, H, L, E), (B, HK, S, E), (B, HK, S, EV)
    return [torch.randn(*shape, dtype=getattr(torch, dtype)).requires_grad_(requires_grad) for shape in shapes]


def starts(torch):
    return torch.tensor([0, 2, L]), torch.tensor([0, 4, S])


CALLS = {  # of attention: options that are no tensors, and options that are, by shape
    "plain": ({}, {}),
    "causal": ({"causal": True, "query_offset": "lower_right", "return_lse": True}, {}),
    "window": ({"window": (2, 0), "query_offset": 2, "prefix": 1, "scale": 0.3, "softcap": 2.0}, {}),
    "lengths": ({"key_lengths": [3, 7]}, {}),
    "arrays": ({"query_offset": 1}, {"bias": (H, L, 1), "relative": (1, 5), "alibi": (H,), "sinks": (H,)}),
    "dropout": ({"dropout_p": 0.3, "seed": 2**64 - 1}, {}),
}


def options_of(torch, name):
    plain, shapes = CALLS[name]
    return plain | {option: torch.randn(shape).requires_grad_() for option, shape in shapes.items()}


def leaves_of(given, options):
    return [x for x in (*given, *options.values()) if hasattr(x, "grad_fn")]


@pytest.mark.parametrize("name", CALLS)
def test_operators_keep_their_contract(torch, name):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            if function.namespace == "attend":
                seen.append((function, arguments))
            return function(*arguments, **(keywords or {}))

    given, options = inputs(torch), options_of(torch, name)
    with Recorder():
        attend.torch.attention(*given, **options)
        out, lse = attend.torch.attention_varlen(*(x[0].transpose(0, 1) for x in given), *starts(torch), causal=True, return_lse=True)
        (out.sum() + lse.sum()).backward()
    assert len(seen) == 3, "two calls, one backward"
    for function, arguments in seen:
        if "backward" in str(function):  # has no gradient of its own, which opcheck would ask for
            arguments = [x.detach() if isinstance(x, torch.Tensor) else x for x in arguments]
        torch.library.opcheck(function, arguments)


def test_backward_operators_keep_their_contract_with_arrays(torch):
    from attend.torch._arguments import arguments_of

    given = inputs(torch, requires_grad=False)
    options = {name: x.detach() for name, x in options_of(torch, "arrays").items() if name != "query_offset"}
    score = [attend.bias(torch.randn(L, S)), attend.soft_cap(3.0)]
    out, lse = attend.torch.attention(*given, score=score, query_offset=1, **options, return_lse=True)
    arguments = arguments_of(options | {"score": score, "query_offset": 1})
    wanted = [True] * 7 + [False, True]
    torch.library.opcheck(torch.ops.attend.attention_backward.default,
                          (torch.randn_like(out), *given, out, lse, torch.randn_like(lse), *arguments.values(), wanted))


def gradients(torch, function, given, options):
    leaves = leaves_of(given, options)
    result = function(*given, **options)
    loss = sum(x.square().sum() for x in (result if isinstance(result, tuple) else (result,)))
    return result, torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_compiled_graphs_have_no_break_and_equal_bits(torch, name, backend):
    given, options = inputs(torch), options_of(torch, name)
    compiled = torch.compile(lambda *x, **y: attend.torch.attention(*x, **y), fullgraph=True, backend=backend)
    theirs, ours = gradients(torch, compiled, given, options), gradients(torch, attend.torch.attention, given, options)
    for x, y in zip(*(leaves_of(result if isinstance(result, tuple) else (result,), {}) + list(by) for result, by in (theirs, ours))):
        assert torch.equal(x, y)


def test_score_lists_are_made_within_a_compiled_graph(torch):
    def function(q, k, v, bias, slopes):
        score = [attend.soft_cap(3), attend.bias(bias), attend.alibi(slopes)]
        return attend.torch.attention(q, k, v, score=score, query_offset=1, compatibility="dot", scale=0.2)

    given = [*inputs(torch), torch.randn(H, L, 1, requires_grad=True), torch.rand(H, requires_grad=True)]
    (y, by), (expected, expected_by) = (gradients(torch, f, given, {})
                                        for f in (torch.compile(function, fullgraph=True, backend="aot_eager"), function))
    assert torch.equal(y, expected) and all(map(torch.equal, by, expected_by))
    other = torch.compile(lambda q, k, v, w: attend.torch.attention(q, k, v, compatibility=attend.additive(w)) +
                          attend.torch.attention(q, k, v, compatibility=attend.gaussian(0.5)), fullgraph=True, backend="aot_eager")
    q, k, v, w = *inputs(torch, requires_grad=False), torch.randn(E)
    expected = attend.attention(q, k, v, compatibility=attend.additive(w)) + attend.attention(q, k, v, compatibility=attend.gaussian(0.5))
    assert torch.equal(other(q, k, v, w), expected)


def test_compiled_graphs_take_other_sizes_without_being_made_again(torch):
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")

    def function(q, k, v):
        return attend.torch.attention(q * 2, k, v, causal=True, query_offset=k.shape[2] - q.shape[2], window=(q.shape[2], 0))

    compiled, made = torch.compile(function, fullgraph=True, backend=counter, dynamic=True), []
    for queries, keys in ((5, 7), (6, 11), (8, 13)):  # of sizes that are equal, a graph would demand it
        given = [torch.randn(2, 3, n, 4, requires_grad=True) for n in (queries, keys, keys)]
        (y, by), (ours, ours_by) = (gradients(torch, f, given, {}) for f in (compiled, function))
        assert torch.equal(y, ours) and all(map(torch.equal, by, ours_by))
        made.append(counter.frame_count)
    assert made[0] == made[-1]


def test_inductor_compiles_a_block_and_its_backward(torch):
    weight = torch.randn(H * EV, 3, requires_grad=True)

    def block(q, k, v, weight):
        y = attend.torch.scaled_dot_product_attention(q * 2, k, v, is_causal=True, enable_gqa=True)
        starts = torch.tensor([0, q.shape[2]]), torch.tensor([0, k.shape[2]])
        z = attend.torch.attention_varlen(*(x[0].transpose(0, 1) for x in (q, k, v)), *starts)
        return torch.relu(y.transpose(1, 2).flatten(2) @ weight).sum() + z.sum()

    given = [*inputs(torch), weight]
    theirs = torch.autograd.grad(torch.compile(block, fullgraph=True)(*given), given)
    for x, y in zip(theirs, torch.autograd.grad(block(*given), given)):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


def test_compiled_dropout_follows_pytorchs_generator(torch):
    given = inputs(torch)
    compiled = torch.compile(lambda *x: attend.torch.attention(*x, dropout_p=0.5), fullgraph=True, backend="aot_eager")

    def call(function):
        torch.manual_seed(7)
        y = function(*given)
        return (y, *torch.autograd.grad(y.sum(), given))

    for x, y in zip(call(compiled), call(lambda *x: attend.torch.attention(*x, dropout_p=0.5))):
        assert torch.equal(x, y)
    assert not torch.equal(compiled(*given), compiled(*given))


def test_export_and_trace_keep_the_operator(torch):
    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return attend.torch.attention(q, k, v, score=attend.soft_cap(2.0))

    given = inputs(torch, requires_grad=False)
    expected = Module()(*given)
    program = torch.export.export(Module(), tuple(given))
    assert "attend.attention.default" in str(program.graph) and torch.equal(program.module()(*given), expected)
    assert torch.equal(torch.jit.trace(Module(), given)(*given), expected)


def test_modes_see_the_operator(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        given = [torch.empty(shape, dtype=torch.bfloat16) for shape in ((B, L, H, E), (B, S, HK, E), (B, S, HK, EV))]
        results = attend.torch.attention(*given, layout="blhd", return_lse=True, return_weights=True, return_scores="biased")
    assert [(x.shape, x.dtype) for x in results] == [
        ((B, L, H, EV), torch.bfloat16), ((B, H, L), torch.float32), ((B, H, L, S), torch.bfloat16), ((B, H, L, S), torch.bfloat16)]
    assert attend.torch.attention(*(torch.empty(4, 3, device="meta") for _ in range(3))).shape == (4, 3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bfloat16"])
def test_autocast_casts_as_for_pytorchs_own(torch, dtype):
    given = inputs(torch, dtype)
    mask = torch.randn(L, S, dtype=given[0].dtype, requires_grad=True)
    kept = torch.randn(H, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs = torch.nn.functional.scaled_dot_product_attention(*given, attn_mask=mask, enable_gqa=True)
        ours = attend.torch.scaled_dot_product_attention(*given, attn_mask=mask, enable_gqa=True)
        out, lse = attend.torch.attention(*given, sinks=kept, return_lse=True)
        packed = attend.torch.attention_varlen(*(x[0].transpose(0, 1) for x in given), *starts(torch))
    assert ours.dtype is theirs.dtype is out.dtype is packed.dtype and lse.dtype is (torch.float64 if dtype == "float64" else torch.float32)
    torch.testing.assert_close(ours, theirs, atol=0.03, rtol=0.02)
    by = torch.autograd.grad(ours.sum(), (*given, mask))
    assert all(x.dtype is given[0].dtype for x in by)
    expected = torch.autograd.grad(theirs.sum(), (*given, mask))
    torch.testing.assert_close(by, expected, atol=0.1, rtol=0.05)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_autocast_within_a_compiled_graph_casts_too(torch, backend):
    given = inputs(torch)

    def function(*x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return attend.torch.attention(*x, causal=True, query_offset=2)

    compiled = torch.compile(function, fullgraph=True, backend=backend)
    (y, by), (expected, expected_by) = gradients(torch, compiled, given, {}), gradients(torch, function, given, {})
    assert y.dtype is torch.bfloat16 and torch.equal(y, expected) and all(map(torch.equal, by, expected_by))


def test_slopes_of_float64_beside_float32_have_a_gradient_of_float64(torch):
    slopes = torch.rand(H, dtype=torch.float64, requires_grad=True)
    given = inputs(torch, requires_grad=False)
    function = lambda slopes: attend.torch.attention(*given, query_offset=1, alibi=slopes)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    by = [torch.autograd.grad(f(slopes).square().sum(), slopes)[0] for f in (function, compiled)]
    assert by[0].dtype is torch.float64 and by[0].any() and torch.equal(*by)


def test_results_are_those_of_attend(torch):
    given = inputs(torch, requires_grad=False)
    options = {"return_lse": True, "return_weights": True, "return_scores": "scaled"}
    ours, theirs = attend.torch.attention(*given, **options), attend.attention(*given, **options)
    assert type(ours) is type(theirs) is attend.OutLseWeightsScores and all(map(torch.equal, ours, theirs))
    parameter = torch.nn.Parameter(given[0])
    with torch.no_grad():
        assert torch.equal(attend.torch.attention(parameter, *given[1:]), theirs.out)
    assert torch.equal(attend.torch.attention(parameter, *given[1:]), theirs.out)
    for name in ("cosine", "l1", "none", attend.gaussian(0.7), attend.additive(torch.randn(E))):
        for normalizer in ("softmax", "mean", "sum", "sigmoid", "relu2", "abs"):
            words = {"compatibility": name, "normalizer": normalizer}
            assert torch.equal(attend.torch.attention(parameter, *given[1:], **words), attend.attention(*given, **words)), words


def test_pages_are_read_where_no_gradient_is_required(torch):
    k, v = torch.randn(4, 2, HK, E), torch.randn(4, 2, HK, EV)
    q, table = torch.randn(5, H, E), torch.tensor([[0, 2], [3, 1]])
    options = {"block_table": table, "key_lengths": torch.tensor([3, 4])}
    expected = attend.attention_varlen(q, k, v, torch.tensor([0, 2, 5]), **options)
    assert torch.equal(attend.torch.attention_varlen(q, k, v, torch.tensor([0, 2, 5]), **options), expected)
    with pytest.raises(ValueError, match="^block_table: expected None where a tensor requires a gradient"):
        attend.torch.attention_varlen(q.requires_grad_(), k, v, torch.tensor([0, 2, 5]), **options)


def test_reverse_mode_of_functorch_gives_the_same_gradients(torch):
    q, k, v = inputs(torch, "float64")
    expected = torch.autograd.grad(attend.torch.attention(q, k, v).square().sum(), q)[0]
    k, v = k.detach(), v.detach()
    assert torch.equal(torch.func.grad(lambda q: attend.torch.attention(q, k, v).square().sum())(q.detach()), expected)


def test_what_there_is_no_formula_for_is_named(torch):
    q, k, v = inputs(torch, "float64")
    fixed = k.detach(), v.detach()
    call = lambda q: attend.torch.attention(q, *fixed)
    with pytest.raises(NotImplementedError, match=r"^attend.torch.attention: expected tensors without tangents.* \(jvp\)"):
        torch.func.jvp(call, (q.detach(),), (q.detach(),))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="dual tensor"):
        call(torch.autograd.forward_ad.make_dual(q.detach(), torch.ones_like(q)))
    with pytest.raises(NotImplementedError, match="^attend.torch.attention: expected tensors outside of vmap"):
        torch.vmap(call)(q.detach()[None])
    with pytest.raises(NotImplementedError, match="^attend.torch.attention_backward: expected tensors outside of vmap"):
        torch.func.jacrev(call)(q.detach())
    with pytest.raises(ValueError, match="^dout: expected an array whose memory can be read in place"):
        torch.autograd.grad(call(q).sum(dim=(0, 1, 2)), q, torch.eye(EV, dtype=q.dtype), is_grads_batched=True)
    first, = torch.autograd.grad(call(q).square().sum(), q, create_graph=True)
    torch.testing.assert_close(first, torch.autograd.grad(call(q).square().sum(), q)[0])
    with pytest.raises(NotImplementedError, match=r"^attend.torch.attention_backward: .*gradient of a gradient \(create_graph=True\)"):
        first.sum().backward()


ERRORS = [
    (TypeError, r"^k: expected a torch.Tensor, got ndarray", lambda q, k, v: attend.torch.attention(q, k.detach().numpy(), v)),
    (TypeError, r"^mask: expected a torch.Tensor, got ndarray",
     lambda q, k, v: attend.torch.attention(q, k, v, mask=k.detach().numpy() > 0)),
    (TypeError, r"unexpected keyword argument 'out'", lambda q, k, v: attend.torch.attention(q, k, v, out=q.detach())),
    (TypeError, r"unexpected keyword argument 'bais'", lambda q, k, v: attend.torch.attention(q, k, v, bais=1)),
    (TypeError, r"unexpected keyword argument 'mask'", lambda q, k, v: attend.torch.attention_varlen(q[0], k[0], v[0], q, q, mask=None)),
    (ValueError, r"^v: expected as many keys as k, 7, got 3", lambda q, k, v: attend.torch.attention(q, k, v[:, :, :3])),
    (ValueError, r"^value: expected as many keys as key, 7, got 3",
     lambda q, k, v: attend.torch.scaled_dot_product_attention(q, k, v[:, :, :3], enable_gqa=True)),
    (ValueError, r"^enable_gqa: expected True", lambda q, k, v: attend.torch.scaled_dot_product_attention(q, k, v)),
    (TypeError, r"^causal: expected True or False, got int", lambda q, k, v: attend.torch.attention(q, k, v, causal=1)),
    (TypeError, r"^window: expected a pair \(left, right\), got int", lambda q, k, v: attend.torch.attention(q, k, v, window=3)),
    (TypeError, r"^scale: expected a number, got str", lambda q, k, v: attend.torch.attention(q, k, v, scale="a")),
    (ValueError, r"^scale: expected a number, got a tensor that requires a gradient",
     lambda q, k, v: attend.torch.attention(q, k, v, scale=q.sum())),
    (ValueError, r"^seed: expected an integer from 0", lambda q, k, v: attend.torch.attention(q, k, v, dropout_p=0.1, seed=-1)),
    (ValueError, r"^normalizer: expected", lambda q, k, v: attend.torch.attention(q, k, v, normalizer="max")),
    (ValueError, r"^compatibility: expected", lambda q, k, v: attend.torch.attention(q, k, v, compatibility="gaussian")),
    (ValueError, r"^return_lse: expected False without softmax",
     lambda q, k, v: attend.torch.attention(q, k, v, normalizer="sum", return_lse=True)),
    (ValueError, r"^cu_seqlens_k, block_table: expected exactly one", lambda q, k, v: attend.torch.attention_varlen(
        q[0].transpose(0, 1), k[0].transpose(0, 1), v[0].transpose(0, 1), q.new_zeros(2).long())),
]


@pytest.mark.parametrize("kind, message, call", ERRORS, ids=lambda x: x if isinstance(x, str) else "")
def test_what_is_wrong_is_named_whichever_way_a_call_takes(torch, kind, message, call):
    given = inputs(torch)
    with pytest.raises(kind, match=message):
        call(*given)
    if "gradient" not in message:
        with pytest.raises(kind, match=message):
            call(*(x.detach() for x in given))
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(kind, match=message):  # by the operator
        call(*given)


def test_weights_and_scores_are_refused_where_a_gradient_is_required(torch):
    given = inputs(torch)
    for options, message in (({"return_weights": True}, "^return_weights: expected False where a tensor requires a gradient"),
                             ({"return_scores": "scaled"}, "^return_scores: expected None where a tensor requires a gradient")):
        with pytest.raises(ValueError, match=message):
            attend.torch.attention(*given, **options)
        with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ValueError, match=message):
            attend.torch.attention(*given, **options)
        with torch.no_grad():
            assert len(attend.torch.attention(*given, **options)) == 2


def test_the_stub_has_the_parameters_that_exist_and_the_example_runs(torch):
    import doctest

    tree = ast.parse((pathlib.Path(attend.torch.__file__).parent / "__init__.pyi").read_text())
    fields = {node.name: {x.target.id for x in node.body if isinstance(x, ast.AnnAssign)} for node in tree.body if isinstance(node, ast.ClassDef)}
    fields["_Options"] |= fields["_PackedOptions"] - {"block_table"}
    listed = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            of_node = {x.arg for x in node.args.args + node.args.kwonlyargs}
            listed.setdefault(node.name, set()).update(of_node | (fields[node.args.kwarg.annotation.slice.id] if node.args.kwarg else set()))
    assert set(listed) == set(attend.torch.__all__)
    for name, parameters in listed.items():
        assert parameters == set(inspect.signature(getattr(attend.torch, name)).parameters), name
        assert inspect.getdoc(getattr(attend.torch, name)), name
    failed, tried = doctest.testmod(attend.torch)
    assert tried and not failed


def test_inference_mode_and_views_of_conjugates_are_read_right(torch):
    given = inputs(torch, requires_grad=False)
    expected = attend.torch.attention(*given)
    with torch.inference_mode():
        assert torch.equal(attend.torch.attention(*given), expected)
    negated = torch.complex(given[0], -given[0]).conj().imag.requires_grad_()  # memory holds the other sign
    y = attend.torch.attention(negated, *given[1:])
    assert negated.is_neg() and torch.equal(y, expected)
    dout = torch.randn_like(y)
    by = [torch.autograd.grad(y, negated, x, retain_graph=True)[0] for x in (dout, torch.complex(dout, -dout).conj().imag)]
    assert torch.equal(*by)


def test_other_devices_and_dtypes_are_named(torch):
    q, k, v = inputs(torch, requires_grad=False)
    with pytest.raises(ValueError, match="^k: expected a tensor on cpu, got one on meta"):
        attend.torch.attention(q, k.to("meta"), v)
    with pytest.raises(TypeError, match="^q: expected float32, float64, float16 or bfloat16, got float8_e4m3fn"):
        attend.torch.attention(q.to(torch.float8_e4m3fn), k, v)
    nested = torch.nested.nested_tensor([q[0], k[0].repeat(2, 1, 1)], layout=torch.jagged)
    for function in (attend.torch.attention, attend.torch.scaled_dot_product_attention):
        with pytest.raises(ValueError, match="^(q|query): expected a dense tensor, got a nested one; attention_varlen is for"):
            function(nested, nested, nested)
    with pytest.raises(TypeError, match="^k: expected float32, the dtype of q, got float64"):
        attend.torch.attention(q, k.double(), v)
