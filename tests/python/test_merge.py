"""Attention over parts of the keys, merged, is attention over all of them."""

import itertools

import numpy as np
import pytest

import attend
from reference import DTYPES, accumulator, assert_close, attention, problem


def parts(q, k, v, cuts, **options):
    return [attend.attention(q, k[:, :, a:b], v[:, :, a:b], return_lse=True, **{name: x[..., a:b] for name, x in options.items()})
            for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cuts", [(0, 7), (0, 3, 7), (0, 1, 2, 3, 4, 5, 6, 7), (0, 0, 4, 4, 7), (0, 7, 7)])
def test_any_cuts_give_the_whole_in_any_order(cuts, dtype):
    q, k, v = problem(dtype=dtype)
    mask = np.random.default_rng(1).random((2, 1, 5, 7)) < 0.6
    mask[0, 0, 1] = False
    out, lse, _ = attention(q, k, v, mask=mask)
    found = parts(q, k, v, cuts, mask=mask)
    for order in (found, found[::-1], found[1::2] + found[::2]):
        merged = attend.merge([part.out for part in order], (part.lse for part in order))
        assert type(merged) is attend.OutLse and (merged.out.dtype, merged.lse.dtype) == (dtype, accumulator(dtype))
        assert_close(merged.out, out, abs(v).max(), times=2)
        assert_close(merged.lse, lse, 4, times=2)
        assert not merged.out[0, :, 1].any() and (merged.lse[0, :, 1] == -np.inf).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("garbage", [0.0, 5.0, np.nan, np.inf, -np.inf])
def test_a_part_whose_lse_is_minus_infinity_adds_nothing_whatever_it_holds(garbage, dtype):
    rng = np.random.default_rng(2)
    out, lse = rng.standard_normal((2, 3, 4)).astype(dtype), (50 * rng.standard_normal((2, 3))).astype(accumulator(dtype))
    nothing, empty = np.full_like(out, garbage), np.full_like(lse, -np.inf)
    for outs, lses in (([out], [lse]), ([nothing, out], [empty, lse]), ([nothing, out, nothing], [empty, lse, empty])):
        y, log = attend.merge(outs, lses)
        assert np.array_equal(y, out) and np.array_equal(log, lse)
    y, log = attend.merge([nothing, nothing], [empty, empty])
    assert not y.any() and (log == -np.inf).all()


def test_logarithms_of_any_size_merge():
    one = np.ones((1, 2), np.float32)
    for low, high in ((-1e30, -1e30), (1e30, 1e30), (-3e38, 3e38), (88.0, 89.0), (-104.0, 0.0)):
        y, lse = attend.merge([one, -one], [np.float32([low]), np.float32([high])])
        share = 1 / (1 + np.exp(np.float64(np.float32(low)) - np.float64(np.float32(high))))
        assert_close(y, one * (1 - 2 * share))
        assert lse[0] == np.float32(high + np.log1p(np.exp(low - high)))


def test_infinite_and_absent_logarithms_give_nan():
    out = np.ones((3, 2), np.float32)
    y, lse = attend.merge([out, out], [np.float32([np.nan, np.inf, 0]), np.float32([0, 0, 0])])
    assert np.isnan(y[:2]).all() and np.isnan(lse[:2]).all() and np.array_equal(y[2], [1, 1])


def test_shapes_strides_and_packed_results():
    rng = np.random.default_rng(3)
    for shape in ((4,), (3, 4), (2, 3, 5, 4), (2, 0, 4), (3, 0), (1, 1, 1, 1, 1, 1, 2, 3)):
        outs = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
        lses = [rng.standard_normal(shape[:-1]).astype(np.float32) for _ in range(3)]
        y, lse = attend.merge(outs, lses)
        weights = np.exp(np.float64(lses) - np.log(np.exp(np.float64(lses)).sum(0)))
        assert_close(y, (weights[..., None] * outs).sum(0), 4)
        assert_close(lse, np.log(np.exp(np.float64(lses)).sum(0)), 4)
        turned = attend.merge([np.asfortranarray(x) for x in outs], [x[..., ::-1].copy()[..., ::-1] if x.ndim else x for x in lses])
        assert np.array_equal(turned.out, y) and np.array_equal(turned.lse, lse)


def test_sinks_stand_in_one_part():
    q, k, v = problem()
    sinks = np.float32([2, 0.5, -1, 40])
    whole = attend.attention(q, k, v, sinks=sinks, return_lse=True)
    found = [attend.attention(q, k[:, :, a:b], v[:, :, a:b], return_lse=True, sinks=sinks if a == 0 else None) for a, b in ((0, 3), (3, 7))]
    y, lse = attend.merge([part.out for part in found], [part.lse for part in found])
    assert_close(y, whole.out, abs(v).max(), times=2)
    assert_close(lse, whole.lse, 40)


OUT, LSE = np.zeros((2, 3, 4), np.float32), np.zeros((2, 3), np.float32)


@pytest.mark.parametrize("outs, lses, error, words", [
    ([OUT, OUT], [LSE], ValueError, "^outs, lses: .*2 and 1"),
    ([], [], ValueError, "^outs, lses: .*at least one"),
    ([OUT, OUT[:1]], [LSE, LSE[:1]], ValueError, r"^outs\[1\]: .*\(2, 3, 4\).*\(1, 3, 4\)"),
    ([OUT], [LSE[:1]], ValueError, r"^lses\[0\]: .*\(2, 3\).*\(1, 3\)"),
    ([OUT], [OUT], ValueError, r"^lses\[0\]: "),
    ([np.array(0, np.float32)], [LSE], ValueError, r"^outs\[0\]: .*rank"),
    ([OUT, OUT.astype(float)], [LSE, LSE], TypeError, r"^outs\[1\]: .*float32.*float64"),
    ([OUT], [LSE.astype(float)], TypeError, r"^lses\[0\]: .*float32.*float64"),
    ([OUT.astype(int)], [LSE], TypeError, r"^outs\[0\]: .*int64"),
    ([OUT.astype(np.float16)], [LSE.astype(np.float16)], TypeError, r"^lses\[0\]: .*float32.*float16"),
    ([OUT, [0.0]], [LSE, LSE], TypeError, r"^outs\[1\]: expected an array.*list"),
    ([OUT], ["x"], TypeError, r"^lses\[0\]: expected an array.*str"),
    (5, [LSE], TypeError, "^outs: expected a list of arrays, got int"),
    ([OUT], None, TypeError, "^lses: expected a list of arrays, got None"),
], ids=range(14))
def test_wrong_parts_are_refused_by_name(outs, lses, error, words):
    with pytest.raises(error, match=words):
        attend.merge(outs, lses)


def test_an_error_of_the_callers_own_iterator_comes_through():
    def broken():
        yield OUT
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        attend.merge(broken(), [LSE])
    assert np.array_equal(attend.merge(iter([OUT]), {"only": LSE}.values()).out, OUT)


@pytest.mark.peers
def test_results_are_of_the_kind_of_the_parts(torch):
    q, k, v = map(torch.from_numpy, problem())
    found = parts(q, k, v, (0, 3, 7))
    y, lse = attend.merge([part.out for part in found], [part.lse for part in found])
    assert type(y) is type(lse) is torch.Tensor
    assert torch.allclose(y, attend.attention(q, k, v), atol=1e-5)
    with pytest.raises(ValueError, match=r"^outs\[0\]: .*gradient"):
        attend.merge([torch.ones(2, 3, requires_grad=True)], [torch.ones(2)])
