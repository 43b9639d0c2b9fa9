"""Gradients from Python: slopes of the forward, their names, shapes and dtypes, refusals."""

import attend
import numpy as np
import pytest

random = np.random.default_rng(7)


def normal(*shape):
    return random.standard_normal(shape)


def problem(**options):
    q, k, v = normal(2, 4, 3, 5), normal(2, 2, 6, 5), normal(2, 2, 6, 4)
    y, lse = attend.attention(q, k, v, return_lse=True, **options)
    return q, k, v, y, lse, normal(*y.shape), normal(*lse.shape)


def slope(loss, x):
    """Central differences of a loss by every element of x, which is moved in place."""
    by, step = np.empty(x.shape), 1e-5
    for at in np.ndindex(*x.shape):
        here = x[at]
        x[at] = here + step
        more = loss()
        x[at] = here - step
        by[at] = (more - loss()) / (2 * step)
        x[at] = here
    return by


@pytest.mark.parametrize("options", [
    {}, {"causal": True, "query_offset": "lower_right"}, {"softcap": 1.5}, {"dropout_p": 0.3, "seed": 5}, {"layout": "bhld"}])
def test_gradients_are_slopes(options):
    q, k, v, y, lse, dout, dlse = problem(**options)
    got = attend.attention_backward(dout, q, k, v, y, lse, dlse=dlse, **options)
    assert list(got) == ["dq", "dk", "dv"]

    def loss():
        out, log = attend.attention(q, k, v, return_lse=True, **options)
        return (dout * out).sum() + (dlse * log).sum()

    for name, x in (("dq", q), ("dk", k), ("dv", v)):
        np.testing.assert_allclose(got[name], slope(loss, x), atol=1e-7, err_msg=name)


def test_arrays_among_the_options_have_gradients_of_their_shapes():
    options = {"bias": normal(4, 1, 6), "sinks": normal(4), "alibi": normal(4), "relative": normal(1, 5), "query_offset": 2}
    q, k, v, y, lse, dout, _ = problem(**options)
    got = attend.attention_backward(dout, q, k, v, y, lse, **options)
    assert set(got) == {"dq", "dk", "dv", "dbias", "dsinks", "dalibi", "drelative"}
    for name in ("bias", "sinks", "alibi", "relative"):
        by = slope(lambda: (dout * attend.attention(q, k, v, **options)).sum(), options[name])
        np.testing.assert_allclose(got[f"d{name}"], by, atol=1e-7, err_msg=name)


def test_arrays_of_the_score_list_have_gradients_by_their_place():
    first, slopes, second = normal(4, 3, 1), normal(4), normal(1, 6)
    options = {"score": [attend.bias(first), attend.soft_cap(2.0), attend.alibi(slopes), attend.bias(second)], "query_offset": 0}
    q, k, v, y, lse, dout, _ = problem(**options)
    got = attend.attention_backward(dout, q, k, v, y, lse, **options)
    assert list(got) == ["dq", "dk", "dv", "dscore"] and got["dscore"][1] is None
    for place, x in ((0, first), (2, slopes), (3, second)):
        by = slope(lambda: (dout * attend.attention(q, k, v, **options)).sum(), x)
        np.testing.assert_allclose(got["dscore"][place], by, atol=1e-7, err_msg=str(place))


@pytest.mark.parametrize("compatibility", ["dot", "cosine", "gaussian", "l1", "additive", "none"])
@pytest.mark.parametrize("normalizer", ["softmax", "mean", "sum", "sigmoid", "relu2", "abs"])
def test_gradients_of_every_form_are_slopes(compatibility, normalizer):
    weights, bias = normal(5), normal(4, 1, 6)
    functions = {"gaussian": attend.gaussian(1.3), "additive": attend.additive(weights)}
    options = {"compatibility": functions.get(compatibility, compatibility), "normalizer": normalizer, "bias": bias}
    q, k, v = normal(2, 4, 3, 5), normal(2, 2, 6, 5), normal(2, 2, 6, 4)
    has_lse = normalizer == "softmax"
    y, lse = attend.attention(q, k, v, return_lse=True, **options) if has_lse else (attend.attention(q, k, v, **options), None)
    dout = normal(*y.shape)
    got = attend.attention_backward(dout, q, k, v, y, lse, **options)
    inputs = {"dq": q, "dk": k, "dv": v, "dbias": bias, **({"dadditive": weights} if compatibility == "additive" else {})}
    assert list(got) == list(inputs)
    for name, x in inputs.items():
        by = slope(lambda: (dout * attend.attention(q, k, v, **options)).sum(), x)
        np.testing.assert_allclose(got[name], by, atol=1e-6 * max(1, np.abs(by).max()), err_msg=name)


def test_packed_sequences_of_a_form_without_lse():
    q, k, v = normal(7, 4, 5), normal(9, 2, 5), normal(9, 2, 3)
    at_q, at_k = np.array([0, 3, 7]), np.array([0, 4, 9])
    y = attend.attention_varlen(q, k, v, at_q, at_k, normalizer="mean", causal=True)
    dout = normal(*y.shape)
    got = attend.attention_varlen_backward(dout, q, k, v, y, None, at_q, at_k, normalizer="mean", causal=True)
    by = slope(lambda: (dout * attend.attention_varlen(q, k, v, at_q, at_k, normalizer="mean", causal=True)).sum(), k)
    np.testing.assert_allclose(got["dk"], by, atol=1e-7)


def test_slopes_of_the_paper_have_none():
    q, k, v, y, lse, dout, _ = problem(alibi=True, query_offset=0)
    assert list(attend.attention_backward(dout, q, k, v, y, lse, alibi=True, query_offset=0)) == ["dq", "dk", "dv"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradients_have_the_dtype_of_what_they_belong_to(dtype):
    q, k, v = (normal(2, 3, 4).astype(dtype) for _ in range(3))
    bias = np.zeros((3, 3), np.float32)
    y, lse = attend.attention(q, k, v, bias=bias, return_lse=True)
    got = attend.attention_backward(y, q, k, v, y, lse, bias=bias)
    assert {name: str(x.dtype) for name, x in got.items()} == {"dq": dtype, "dk": dtype, "dv": dtype, "dbias": "float32"}


def test_packed_sequences_give_what_each_gives_alone():
    q, k, v = normal(7, 4, 5), normal(9, 2, 5), normal(9, 2, 3)
    at_q, at_k = np.array([0, 3, 7]), np.array([0, 4, 9])
    y, lse = attend.attention_varlen(q, k, v, at_q, at_k, causal=True, return_lse=True)
    dout = normal(*y.shape)
    got = attend.attention_varlen_backward(dout, q, k, v, y, lse, at_q, at_k, causal=True)
    for s in range(2):
        a, b = slice(at_q[s], at_q[s + 1]), slice(at_k[s], at_k[s + 1])
        rows = [x[None, part] for x, part in ((dout, a), (q, a), (k, b), (v, b), (y, a))]
        alone = attend.attention_backward(*rows, lse[a].T[None].copy(), causal=True, query_offset="lower_right", layout="blhd")
        for name, part in (("dq", a), ("dk", b), ("dv", b)):
            assert (alone[name][0] == got[name][part]).all(), name


def test_only_what_is_wanted_is_computed():
    options = {"bias": normal(4, 1, 6), "score": [attend.bias(normal(6)), attend.soft_cap(2.0)]}
    q, k, v, y, lse, dout, _ = problem(**options)
    everything = attend.attention_backward(dout, q, k, v, y, lse, **options)
    for names in (["dq"], ("dk", "dbias"), {"dv", "dscore"}, []):
        some = attend.attention_backward(dout, q, k, v, y, lse, wanted=names, **options)
        assert set(some) == set(names)
        for name in names:
            np.testing.assert_array_equal(some[name][0], everything[name][0])
    with pytest.raises(ValueError, match="^wanted: expected names of gradients of this call, dq, dk, dv, dbias, dscore, got 'dsinks'"):
        attend.attention_backward(dout, q, k, v, y, lse, wanted=["dq", "dsinks"], **options)
    with pytest.raises(TypeError, match="^wanted: expected a list of names of gradients, or None for all, got str"):
        attend.attention_backward(dout, q, k, v, y, lse, wanted="dq", **options)


def test_what_is_wrong_is_named():
    q, k, v, y, lse, dout, _ = problem()
    with pytest.raises(ValueError, match=r"^dout: expected shape \(2, 4, 3, 4\), got \(2, 4, 3, 5\)"):
        attend.attention_backward(q, q, k, v, y, lse)
    with pytest.raises(TypeError, match="^dout: expected float64, got float32"):
        attend.attention_backward(dout.astype("float32"), q, k, v, y, lse)
    with pytest.raises(ValueError, match="^lse: expected shape"):
        attend.attention_backward(dout, q, k, v, y, lse[..., :2])
    with pytest.raises(ValueError, match="^lse: expected none beside normalizer mean, which has no LSE, got an array"):
        attend.attention_backward(dout, q, k, v, y, lse, normalizer="mean")
    with pytest.raises(ValueError, match="^dlse: expected none beside normalizer sum"):
        attend.attention_backward(dout, q, k, v, y, None, dlse=lse, normalizer="sum")
    with pytest.raises(ValueError, match=r"^lse: expected an array of shape \(2, 4, 3\), got none"):
        attend.attention_backward(dout, q, k, v, y, None)
    with pytest.raises(ValueError, match="^seed: expected"):
        attend.attention_backward(dout, q, k, v, y, lse, dropout_p=0.5)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'lse'"):
        attend.attention_backward(dout, q, k, v, y)
    with pytest.raises(TypeError, match="unexpected keyword argument 'return_lse'"):
        attend.attention_backward(dout, q, k, v, y, lse, return_lse=True)
