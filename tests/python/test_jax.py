"""attend.jax: the results of attend.attention by their bits, gradients beside those of JAX itself, and JAX's transformations."""

import ast
import doctest
import importlib.util
import inspect
import math
import pathlib

import numpy as np
import pytest
import reference

import attend

jax = pytest.importorskip("jax")
import attend.jax  # noqa: E402  where jax is, this must be there: ./dev builds it
import jax.numpy as jnp  # noqa: E402

pytestmark = pytest.mark.peers

B, H, HK, L, S, E, EV = 2, 4, 2, 5, 7, 8, 6
random = np.random.default_rng(3)


def normal(*shape, dtype="float32"):
    return random.standard_normal(shape).astype(dtype)


Q, K, V = normal(B, H, L, E), normal(B, HK, S, E), normal(B, HK, S, EV)
X = normal(B, H, 12, E)  # as many queries as keys, cells of a grid
MASK = random.random((B, 1, L, S)) < 0.7
TABLE = normal(H, 5)


def same(mine, theirs):
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    np.testing.assert_array_equal(mine, theirs)


OPTIONS = {
    "none": {},
    "causal": {"causal": True, "query_offset": "lower_right"},
    "window": {"causal": True, "window": (2, None), "query_offset": 1, "prefix": 1},
    "positions per batch": {"causal": True, "query_offset": np.array([0, 2], np.int32), "prefix": np.array([1, 0], np.uint8)},
    "a length": {"key_lengths": 4},
    "lengths": {"key_lengths": [7, 3]},
    "lower right of lengths": {"causal": True, "query_offset": "lower_right", "key_lengths": np.array([7, 6], np.int16)},
    "one segment per row": {"query_segments": np.array([0, 0, 1, 1, -1]), "key_segments": np.array([0, 0, 0, 1, 1, 1, -1])},
    "segments per batch": {"query_segments": np.arange(B * L, dtype=np.uint8).reshape(B, L) // 3,
                           "key_segments": np.arange(B * S, dtype=np.int8).reshape(B, S) // 3},
    "mask": {"mask": MASK},
    "bias": {"bias": normal(H, 1, S)},
    "relative": {"relative": TABLE, "query_offset": 0},
    "scale": {"scale": -0.3},
    "soft cap": {"softcap": 2},
    "paper's slopes": {"alibi": True, "query_offset": 0},
    "slopes": {"alibi": np.linspace(0, 1, H), "query_offset": 0},
    "sinks": {"sinks": normal(H)},
    "gaussian": {"compatibility": attend.gaussian(0.7)},
    "additive": {"compatibility": attend.additive(normal(E))},
    "cosine, relu2": {"compatibility": "cosine", "normalizer": "relu2"},
    "l1, sigmoid": {"compatibility": "l1", "normalizer": "sigmoid", "scale": 2},
    "none, mean": {"compatibility": "none", "normalizer": "mean", "bias": normal(L, S)},
    "dropout": {"dropout_p": 0.4, "seed": 2**40 + 3},
    "reproducible, threads": {"reproducible": True, "threads": 1},
    "all together": {"causal": True, "query_offset": np.array([2, 1]), "mask": MASK, "bias": normal(1, S),
                     "alibi": np.ones(H, np.float32), "sinks": normal(H), "softcap": 3.0, "key_lengths": np.array([6, 7]), "dropout_p": 0.2, "seed": 9},
}
GRIDS = {
    "neighbourhood": {"grid": (3, 4), "neighborhood": 3},
    "shifted": {"grid": (3, 4), "neighborhood": (1, 3), "border": "shift"},
    "dilated": {"grid": (3, 4), "neighborhood": (3, 1), "dilation": (1, 2), "relative": normal(1, 3, 3)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_bits_are_those_of_attention(name):
    options = OPTIONS[name]
    want = attend.attention(Q, K, V, **options)
    same(attend.jax.attention(Q, K, V, **options), want)
    same(jax.jit(lambda q, k, v: attend.jax.attention(q, k, v, **options))(Q, K, V), want)


@pytest.mark.parametrize("name", GRIDS)
def test_regions_of_a_grid_have_the_bits_of_attention(name):
    same(jax.jit(lambda x: attend.jax.attention(x, x, x, **GRIDS[name]))(X), attend.attention(X, X, X, **GRIDS[name]))


@pytest.mark.parametrize("name", [n for n, options in OPTIONS.items() if any(isinstance(x, np.ndarray) for x in options.values())])
def test_arrays_among_the_options_may_be_traced(name):
    options = OPTIONS[name]
    arrays = {n: x for n, x in options.items() if isinstance(x, np.ndarray)}
    rest = {n: x for n, x in options.items() if n not in arrays}
    call = jax.jit(lambda arrays: attend.jax.attention(Q, K, V, **arrays, **rest))
    same(call(arrays), attend.attention(Q, K, V, **options))


def test_a_number_of_rank_0_and_weights_may_be_traced():
    call = jax.jit(lambda n, w: attend.jax.attention(Q, K, V, key_lengths=n, compatibility=attend.additive(w)))
    w = normal(E)
    for n in (3, 6):
        same(call(n, w), attend.attention(Q, K, V, key_lengths=n, compatibility=attend.additive(w)))


@pytest.mark.parametrize("layout", ["bhld", "blhd"])
@pytest.mark.parametrize("axes", [2, 3, 4])
def test_both_layouts_and_all_ranks_give_out_and_lse(layout, axes):
    q, k, v = Q, K, V
    if layout == "blhd" and axes > 2:
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    for _ in range(4 - axes):
        q, k, v = q[0], k[0], v[0]
    want = attend.attention(q, k, v, layout=layout, return_lse=True)
    for call in (attend.jax.attention, jax.jit(attend.jax.attention, static_argnames=("layout", "return_lse"))):
        got = call(q, k, v, layout=layout, return_lse=True)
        assert type(got) is attend.OutLse
        same(got.out, want.out)
        same(got.lse, want.lse)


@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_all_dtypes_are_near_the_definition_and_have_the_bits_of_attention(dtype):
    q, k, v = reference.problem(dtype=dtype)
    with jax.enable_x64(True):
        got, lse = attend.jax.attention(q, k, v, causal=True, query_offset=2, return_lse=True)
        assert str(got.dtype) == dtype and str(lse.dtype) == reference.accumulator(dtype)
        same(got, attend.attention(q, k, v, causal=True, query_offset=2))
        out, _, _ = reference.attention(q, k, v, mask=reference.causal(L, S, 2))
        reference.assert_close(got, out, abs(v.astype(np.float64)).max())


def test_jax_computes_the_same():
    theirs = jax.jit(jax.nn.dot_product_attention, static_argnames=("scale", "is_causal"))
    q, k, v = (jnp.asarray(x.swapaxes(1, 2)) for x in (Q, K, V[..., [0, 1, 2, 3, 4, 5, 0, 1]]))
    bias, lengths = normal(1, H, L, S), np.array([7, 4], np.int32)
    for mine, other in (({}, {}), ({"scale": 0.2}, {"scale": 0.2}), ({"bias": bias}, {"bias": bias}),
                        ({"key_lengths": lengths}, {"key_value_seq_lengths": lengths}),
                        ({"causal": True, "query_offset": 0}, {"is_causal": True})):
        got, want = attend.jax.attention(q, k, v, layout="blhd", **mine), theirs(q, k, v, **other)
        np.testing.assert_allclose(got, want, rtol=0, atol=5e-6)


def dense(q, k, v, *, mask=True, bias=0.0, relative=None, alibi=None, sinks=None, softcap=None, causal=False):
    """(out, lse) by JAX's own operations, for query_offset 0."""
    k, v = (jnp.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    s = jnp.einsum("...id,...jd->...ij", q, k) / math.sqrt(q.shape[-1])
    if softcap is not None:
        s = softcap * jnp.tanh(s / softcap)
    s = s + bias
    steps = np.arange(s.shape[-1]) - np.arange(s.shape[-2])[:, None]
    if relative is not None:
        reach = relative.shape[-1] // 2
        s = s + relative[:, np.clip(steps, -reach, reach) + reach]
    if alibi is not None:
        s = s - alibi[:, None, None] * abs(steps)
    s = jnp.where(np.broadcast_to(mask, s.shape) & ((steps <= 0) | (not causal)), s, -jnp.inf)
    if sinks is not None:
        s = jnp.concatenate([s, jnp.broadcast_to(sinks[:, None, None], (*s.shape[:-1], 1))], -1)
    lse = jax.nn.logsumexp(s, -1)
    return jnp.exp(s - lse[..., None])[..., :k.shape[-2]] @ v, lse


DIFFERENTIATED = {
    "nothing else": ({}, {}),
    "causal, soft cap": ({}, {"causal": True, "softcap": 1.5}),
    "mask, bias": ({"bias": normal(H, 1, S, dtype="float64")}, {"mask": MASK | (np.arange(S) == 0)}),
    "sinks, slopes": ({"sinks": normal(H, dtype="float64"), "alibi": normal(H, dtype="float64")}, {}),
    "relative": ({"relative": normal(H, 5, dtype="float64")}, {}),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_are_those_of_jax(name):
    arrays, options = DIFFERENTIATED[name]
    arrays = {"q": Q.astype("float64"), "k": K.astype("float64"), "v": V.astype("float64"), **arrays}
    to_out, to_lse = normal(B, H, L, EV, dtype="float64"), normal(B, H, L, dtype="float64")

    def loss(of):
        def compute(arrays):
            out, lse = of(arrays)
            return (out * to_out).sum() + (lse * to_lse).sum()
        return compute

    with jax.enable_x64(True):
        mine = loss(lambda arrays: attend.jax.attention(**arrays, **options, query_offset=0, return_lse=True))
        value, got = jax.jit(jax.value_and_grad(mine))(arrays)
        want_value, want = jax.jit(jax.value_and_grad(loss(lambda arrays: dense(**arrays, **options))))(arrays)
        np.testing.assert_allclose(value, want_value, rtol=1e-12)
        assert set(got) == set(arrays)
        for key in arrays:
            assert got[key].dtype == arrays[key].dtype
            np.testing.assert_allclose(got[key], want[key], rtol=0, atol=1e-11, err_msg=key)


@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_gradients_have_the_bits_of_attention_backward(dtype):
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    bias, dout = normal(1, 1, L, 1), normal(B, H, L, EV).astype(dtype)
    options = {"causal": True, "query_offset": 1, "dropout_p": 0.3, "seed": 5}
    with jax.enable_x64(True):
        out, back = jax.vjp(lambda *x: attend.jax.attention(*x[:3], bias=x[3], **options), q, k, v, bias)
        got = back(jnp.asarray(dout))
    mine = attend.attention(q, k, v, bias=bias, return_lse=True, **options)
    same(out, mine.out)
    want = attend.attention_backward(dout, q, k, v, mine.out, mine.lse, bias=bias, **options)
    for x, name in zip(got, ("dq", "dk", "dv", "dbias"), strict=True):
        same(x, want[name])


def test_only_gradients_that_are_asked_for_are_computed():
    def loss(q, bias):
        return attend.jax.attention(q, K, V, bias=bias, mask=MASK).sum()

    bias = normal(L, S)
    text = jax.jit(jax.grad(loss)).lower(Q, bias).as_text()
    assert 'results = "dq"' in text
    text = jax.jit(jax.grad(loss, 1)).lower(Q, bias).as_text()
    assert 'results = "dbias"' in text
    assert "attend_attention_backward" not in jax.jit(loss).lower(Q, bias).as_text()


def test_integers_and_booleans_have_no_gradient():
    def loss(q, mask, lengths):
        return attend.jax.attention(q, K, V, mask=mask, key_lengths=lengths).sum()

    dq, dmask, dlengths = jax.grad(loss, (0, 1, 2), allow_int=True)(Q, MASK, np.array([7, 3]))
    assert dq.shape == Q.shape and dmask.dtype == dlengths.dtype == jax.dtypes.float0
    assert jax.grad(loss, 1, allow_int=True)(Q, MASK, np.array([7, 3])).dtype == jax.dtypes.float0


@pytest.mark.parametrize("compatibility, normalizer", [("additive", "softmax"), ("additive", "mean"), ("cosine", "sigmoid"), ("l1", "abs")])
def test_every_form_has_the_gradients_of_attention_backward(compatibility, normalizer):
    w, dout = normal(E), normal(B, H, L, EV)
    has_lse = normalizer == "softmax"

    def form(w):
        return {"compatibility": attend.additive(w) if compatibility == "additive" else compatibility, "normalizer": normalizer}

    got = jax.vjp(lambda q, k, v, w: attend.jax.attention(q, k, v, **form(w)), Q, K, V, w)[1](dout)
    mine = attend.attention(Q, K, V, return_lse=has_lse, **form(w))
    out, lse = mine if has_lse else (mine, None)
    want = attend.attention_backward(dout, Q, K, V, out, lse, **form(w))
    for x, name in zip(got, ("dq", "dk", "dv", "dadditive"), strict=True):
        same(x, want.get(name, np.zeros_like(w)))


def test_a_row_without_keys_has_gradients_of_0():
    mask = MASK & (np.arange(L) != 2)[:, None]
    dq, dk = jax.grad(lambda q, k: (attend.jax.attention(q, k, V, mask=mask) ** 2).sum(), (0, 1))(Q, K)
    assert not np.asarray(dq)[:, :, 2].any() and np.isfinite(dk).all() and np.asarray(dk).any()


def test_jvp_is_refused_by_jax():
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(lambda q: attend.jax.attention(q, K, V), (Q,), (Q,))


# What is mapped, and over which axis.
MAPPED = {
    "all three": {"q": 0, "k": 0, "v": 0},
    "queries alone": {"q": 0},
    "values alone, by their heads": {"v": 1},
    "a bias": {"bias": 0},
    "a bias, dropout": {"bias": 0},
    "a mask, queries": {"mask": 1, "q": 2},
    "sinks, slopes": {"sinks": 0, "alibi": 0},
    "lengths": {"key_lengths": 0},
    "lengths, offsets, everything": {"key_lengths": 0, "query_offset": 0, "q": 0, "k": 0, "v": 0},
}
N = 3


def mapped_problem(mapped, batch):
    shapes = {"q": (*batch, H, L, E), "k": (*batch, HK, S, E), "v": (HK, S, EV), "bias": (H, 1, S), "sinks": (H,), "alibi": (H,)}
    arrays = {}
    for name in {"q", "k", "v"} | (set(mapped) - {"mask", "key_lengths", "query_offset"}):
        shape = list(shapes[name])
        if name in mapped:
            shape.insert(mapped[name], N)
        arrays[name] = normal(*shape)
    if "mask" in mapped:
        arrays["mask"] = random.random((L, N, S)) < 0.7
    if "key_lengths" in mapped:
        arrays["key_lengths"] = random.integers(0, S + 1, (N, *batch)).astype(np.int32)
    if "query_offset" in mapped:
        arrays["query_offset"] = random.integers(0, 3, (N, *batch)).astype(np.int32)
    return arrays


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", MAPPED)
def test_vmap_gives_the_bits_of_each_alone(name, batch):
    mapped = MAPPED[name]
    if name.startswith("values") and batch:
        batch = (1,)
    arrays = mapped_problem(mapped, batch)
    options = {"causal": True} | ({} if "query_offset" in mapped else {"query_offset": 1})
    options |= {"dropout_p": 0.2, "seed": 4} if "dropout" in name else {}
    wanted = [n for n in arrays if n in ("q", "k", "v", "bias", "sinks", "alibi")]

    def loss(some, rest):
        out, lse = attend.jax.attention(**some, **rest, **options, return_lse=True)
        return (out**2).sum() + jnp.where(lse > -jnp.inf, lse, 0).sum(), (out, lse)

    some = {n: arrays.pop(n) for n in wanted}
    axes = ({n: mapped.get(n) for n in some}, {n: mapped.get(n) for n in arrays})
    by, (out, lse) = jax.jit(jax.vmap(jax.grad(loss, has_aux=True), axes))(some, arrays)
    for n in range(N):
        alone = {key: np.take(x, n, mapped[key]) if key in mapped else x for key, x in (some | arrays).items()}
        q, k, v = (alone.pop(key) for key in "qkv")
        want = attend.attention(q, k, v, **alone, **options, return_lse=True)
        same(out[n], want.out)
        same(lse[n], want.lse)
        dlse = (want.lse > -np.inf).astype(np.float32)
        want = attend.attention_backward(2 * want.out, q, k, v, *want, dlse=dlse, **alone, **options)
        for key, x in by.items():
            same(x[n], want[f"d{key}"])


def test_maps_nest():
    q, k = normal(2, 3, H, L, E), normal(3, HK, S, E)
    call = jax.vmap(jax.vmap(lambda q, k: attend.jax.attention(q, k, V[0])), in_axes=(0, None))
    same(call(q, k), np.stack([attend.attention(x, k, V[0]) for x in q]))


def test_matrices_may_be_mapped():
    for layout in ("bhld", "blhd"):
        same(jax.vmap(lambda q, k, v: attend.jax.attention(q, k, v, layout=layout))(Q[:, 0], K[:, 0], V[:, 0]),
             attend.attention(Q[:, :1], K[:, :1], V[:, :1])[:, 0])


def test_a_shared_argument_of_a_map_has_the_sum_of_the_gradients():
    shared = jax.grad(lambda k: (jax.vmap(lambda q: attend.jax.attention(q, k, V[0]))(Q) ** 2).sum())(K[0])
    apart = [jax.grad(lambda k: (attend.jax.attention(q, k, V[0]) ** 2).sum())(K[0]) for q in Q]
    np.testing.assert_allclose(shared, apart[0] + apart[1], rtol=1e-5, atol=1e-6)


def test_checkpoint_scan_and_donation_change_nothing():
    def loss(q, k, v):
        return (attend.jax.attention(q, k, v, sinks=jnp.zeros(H)) ** 2).sum()

    want = jax.grad(loss, (0, 1, 2))(Q, K, V)
    for got, x in zip(jax.jit(jax.grad(jax.checkpoint(loss), (0, 1, 2)))(Q, K, V), want, strict=True):
        same(got, x)
    _, layers = jax.lax.scan(lambda x, _: (attend.jax.attention(x, x, x),) * 2, jnp.asarray(X), length=2)
    once = attend.attention(X, X, X)
    same(layers[1], attend.attention(once, once, once))
    given = jnp.asarray(X)
    same(jax.jit(lambda x: attend.jax.attention(x, x, x), donate_argnums=0)(given), once)
    same(jax.jit(lambda q, k, v: attend.jax.attention(q, k, v), donate_argnums=0)(jnp.asarray(X), X, X), once)


def test_a_seed_is_an_integer_a_key_or_traced_and_never_compiled():
    traces = []

    def call(seed):
        traces.append(seed)
        return attend.jax.attention(Q, K, V, dropout_p=0.5, seed=seed)

    compiled = jax.jit(call)
    for n in (0, 7, 2**31 - 1):
        want = attend.attention(Q, K, V, dropout_p=0.5, seed=n)
        for seed in (jax.random.key(n), jax.random.PRNGKey(n), np.uint32(n)):
            same(compiled(seed), want)
        same(call(n), want)
    assert sum(isinstance(seed, jax.core.Tracer) for seed in traces) == 3  # one of each kind
    words = np.array([2**31 + 1, 5], np.uint32)
    same(compiled(words), attend.attention(Q, K, V, dropout_p=0.5, seed=(2**31 + 1 << 32) + 5))
    with pytest.raises(jax.errors.JaxRuntimeError, match="seed: expected an integer of at least 0, got -1"):
        jax.block_until_ready(compiled(np.int32(-1)))


def test_shards_of_a_mesh_are_calls_of_their_own():
    mesh, part = jax.sharding.Mesh(jax.devices()[:1], ("data",)), jax.sharding.PartitionSpec("data")
    whole = jax.sharding.PartitionSpec()

    def loss(q, k, v):  # k is the same for all shards, and so are its gradients
        return (attend.jax.attention(q, k, v) ** 2).sum()

    call = jax.jit(jax.shard_map(jax.value_and_grad(lambda *x: jax.lax.psum(loss(*x), "data"), (0, 1)), mesh=mesh,
                                 in_specs=(part, whole, part), out_specs=(whole, (part, whole))))
    value, (dq, dk) = call(Q, K[:1], V)
    want, (want_dq, want_dk) = jax.value_and_grad(loss, (0, 1))(Q, K[:1], V)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    same(dq, want_dq)
    same(dk, want_dk)


@pytest.mark.parametrize("shapes", [((2, 0, 4), (2, 3, 4), (2, 3, 5)), ((2, 3, 4), (2, 0, 4), (2, 0, 5)),
                                    ((0, 3, 4), (0, 3, 4), (0, 3, 5)), ((2, 3, 0), (2, 3, 0), (2, 3, 5)), ((2, 3, 4), (2, 3, 4), (2, 3, 0))])
def test_axes_may_be_empty(shapes):
    q, k, v = (normal(*shape) for shape in shapes)
    same(jax.jit(attend.jax.attention)(q, k, v), attend.attention(q, k, v))
    for x, by in zip((q, k, v), jax.grad(lambda *x: attend.jax.attention(*x).sum(), (0, 1, 2))(q, k, v), strict=True):
        assert by.shape == x.shape


def test_arrays_are_neither_copied_nor_converted():
    compiled = jax.jit(lambda q, k, v, bias: attend.jax.attention(q, k, v, bias=bias, causal=True, query_offset=0)).lower(
        Q, K, V, normal(L, S)).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes == 0
    assert memory.output_size_in_bytes == B * H * L * EV * 4
    assert " copy(" not in compiled.as_text()


def test_calls_side_by_side_are_right():
    many = [normal(H, 40, E) for _ in range(12)]
    got = jax.jit(lambda xs: [attend.jax.attention(x, x, x, threads=n % 3 + 1) for n, x in enumerate(xs)])(many)
    for x, y in zip(many, got, strict=True):
        same(y, attend.attention(x, x, x))


REFUSED = {
    "a shape": (ValueError, "^k: expected the width of q, 8, got 7", {"k": K[..., :7]}),
    "a dtype": (TypeError, "^v: expected float32, the dtype of q, got float16", {"v": V.astype(np.float16)}),
    "integers": (TypeError, "^q: expected float32", {"q": Q.astype(np.int32)}),
    "a list": (TypeError, "^q: expected an array of JAX or NumPy, got builtins.list", {"q": [1.0]}),
    "a masked array": (TypeError, "^k: expected an array of JAX or NumPy, got numpy.ma", {"k": np.ma.masked_array(K)}),
    "a mask of numbers": (TypeError, "^mask: expected", {"mask": np.ones((L, S), np.float32)}),
    "a bias that does not broadcast": (ValueError, "^bias: expected a shape that broadcasts", {"bias": normal(3, S)}),
    "no offset": (ValueError, "^query_offset: expected", {"causal": True}),
    "a length known to be too large": (ValueError, "^key_lengths: expected values from 0 to 7, got 9", {"key_lengths": [1, 9]}),
    "lengths of floats": (TypeError, "^key_lengths: expected", {"key_lengths": np.array([1.0, 2.0])}),
    "a word": (ValueError, "^normalizer: expected 'softmax'", {"normalizer": "hard"}),
    "no seed": (ValueError, "^seed: expected", {"dropout_p": 0.1}),
    "a seed of another shape": (ValueError, "^seed: expected", {"dropout_p": 0.1, "seed": np.zeros(3, np.uint32)}),
    "a seed of floats": (TypeError, "^seed: expected integers", {"dropout_p": 0.1, "seed": np.zeros(())}),
    "a negative seed": (ValueError, "^seed: expected an integer from 0", {"dropout_p": 0.1, "seed": -1}),
    "an LSE of a mean": (ValueError, "^return_lse: expected False", {"normalizer": "mean", "return_lse": True}),
    "a word for a flag": (TypeError, "^return_lse: expected True or False", {"return_lse": "yes"}),
    "a number for slopes": (TypeError, "^alibi: expected", {"alibi": 1.0}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named_when_a_call_is_traced(name):
    error, text, wrong = REFUSED[name]
    arrays = {"q": Q, "k": K, "v": V, **wrong}
    with pytest.raises(error, match=text):
        attend.jax.attention(**arrays)
    with pytest.raises(error, match=text):
        jax.eval_shape(lambda: attend.jax.attention(**arrays))


def test_a_traced_value_that_must_be_known_is_named():
    for option in ("scale", "causal", "dropout_p", "return_lse", "threads"):
        with pytest.raises(TypeError, match=f"^{option}: expected a value that is known when the call is traced"):
            jax.jit(lambda x, option=option: attend.jax.attention(Q, K, V, **{option: x}))(1)


def test_what_only_numbers_show_is_an_error_of_the_run():
    call = jax.jit(lambda n: attend.jax.attention(Q, K, V, key_lengths=n))
    with pytest.raises(jax.errors.JaxRuntimeError, match="key_lengths: expected values from 0 to 7, got 9 for batch 1"):
        jax.block_until_ready(call(np.array([1, 9])))
    same(call(np.array([1, 7])), attend.attention(Q, K, V, key_lengths=[1, 7]))
    with pytest.raises(ValueError, match="^key_lengths: expected values from 0 to 7, got 9"):  # known before it runs
        attend.jax.attention(Q, K, V, key_lengths=jnp.array([1, 9]))


def test_an_attribute_or_a_result_of_a_later_version_is_an_error():
    def call(results="out", **attributes):
        made = jax.ffi.ffi_call("attend_attention", jax.ShapeDtypeStruct((B, H, L, EV), np.float32))
        return made(Q, K, V, **{"operands": "q k v", "results": results, "rank": 4, **attributes})

    same(call(), attend.attention(Q, K, V))
    for wrong in ({"later": 1}, {"results": "other"}, {"normalizer": "later"}, {"rank": 5}):
        with pytest.raises(jax.errors.JaxRuntimeError, match="attend.jax: "):
            jax.block_until_ready(call(**wrong))


def test_a_build_without_handlers_says_what_to_do(monkeypatch):
    monkeypatch.delattr(attend._core, "jax")
    spec = importlib.util.spec_from_file_location("attend.jax_again", attend.jax.__file__)
    with pytest.raises(ImportError, match="attend.jax: .* install jax"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_the_stub_has_the_parameters_that_exist_and_the_example_runs():
    tree = ast.parse(pathlib.Path(attend.jax.__file__).with_suffix(".pyi").read_text())
    options, call = (next(node for node in tree.body if getattr(node, "name", None) == name) for name in ("_Options", "attention"))
    listed = [field.target.id for field in options.body] + [a.arg for a in call.args.args + call.args.kwonlyargs]
    assert sorted(listed) == sorted(inspect.signature(attend.jax.attention).parameters)
    failed, tried = doctest.testmod(attend.jax)
    assert tried and not failed


def test_it_is_loaded_when_it_is_first_used():
    assert "jax" in dir(attend) and attend.jax.__name__ == "attend.jax" and attend.jax.__all__ == ["attention"]
