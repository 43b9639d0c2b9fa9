"""The general form from Python: y_i = sum over allowed j of w(q_i, k_j) v_j, for every way to make weights and regions."""

import copy
import doctest
import functools
import pickle
import sys

import numpy as np
import pytest

import attend
import reference
from reference import DTYPES, NORMALIZER, assert_close, attention, causal, neighbors, problem, size_of, tensor_of

WIDTH = 8
W = np.random.default_rng(9).standard_normal(WIDTH).astype(np.float32)
PAIRS = {  # what attend is given, and its definition
    "dot": ("dot", "dot"),
    "cosine": ("cosine", "cosine"),
    "l1": ("l1", "l1"),
    "none": ("none", "none"),
    "gaussian": (attend.gaussian(1.5), reference.gaussian(1.5)),
    "additive": (attend.additive(W), reference.additive(W)),
}


def ways(L, S, dtype):
    """Options of a call, and what they mean to the definition."""
    rng = np.random.default_rng(3)
    bias = rng.standard_normal((4, L, S)).astype(dtype)
    holes, rows = np.where(rng.random((L, S)) < 0.2, -np.inf, bias[0]).astype(dtype), rng.random((2, 1, L, 1)) < 0.6
    return [
        ({}, {}),
        ({"causal": True, "query_offset": "lower_right", "bias": bias}, {"mask": causal(L, S, S - L), "bias": bias}),
        ({"bias": holes, "scale": -0.7}, {"bias": holes, "scale": -0.7}),
        ({"mask": rows}, {"mask": rows}),  # rows without any key
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normalizer", NORMALIZER)
@pytest.mark.parametrize("compatibility", PAIRS)
def test_every_compatibility_under_every_normalizer_is_its_definition(compatibility, normalizer, dtype):
    given, meant = PAIRS[compatibility]
    times = 16 if normalizer == "relu2" else 4  # where hardly a score is positive, relu2 magnifies how scores were rounded
    for L, S in ((5, 7), (20, 131)):  # few rows and many: two kernels
        q, k, v = problem(L=L, S=S, E=WIDTH, dtype=dtype)
        for options, definition in ways(L, S, dtype):
            y, weights = attend.attention(q, k, v, compatibility=given, normalizer=normalizer, return_weights=True, **options)
            out, _, all_weights = attention(q, k, v, compatibility=meant, normalizer=normalizer, **definition)
            assert y.dtype == weights.dtype == dtype
            assert_close(y, out, size_of(all_weights, v), times)
            assert_close(weights, all_weights, max(1.0, abs(all_weights).max()), times)


@pytest.mark.parametrize("normalizer", NORMALIZER)
def test_a_row_without_keys_is_zero_under_every_normalizer(normalizer):
    q, k, v = problem()
    v[:] = np.nan
    y, weights = attend.attention(q, k, v, mask=np.zeros(7, bool), normalizer=normalizer, return_weights=True)
    assert not y.any() and not weights.any()


def test_only_softmax_has_an_lse():
    q, k, v = problem()
    _, lse = attend.attention(q, k, v, compatibility="cosine", return_lse=True)
    assert_close(lse, attention(q, k, v, compatibility="cosine")[1], times=4)
    for normalizer in set(NORMALIZER) - {"softmax"}:
        with pytest.raises(ValueError, match=f"^return_lse: expected False .*softmax.*, got True beside '{normalizer}'"):
            attend.attention(q, k, v, normalizer=normalizer, return_lse=True)


def test_the_mean_stays_in_range_where_the_sum_does_not():
    x = np.full((1000, 1), 1e36, np.float32)
    q = np.ones((1, 1), np.float32)
    ones = np.ones_like(x)
    assert np.allclose(attend.attention(q, ones, x, normalizer="mean"), x[0], rtol=1e-5, atol=0)
    assert np.isinf(attend.attention(q, ones, x, normalizer="sum")).all()


def test_none_reads_neither_queries_nor_keys():
    q, k, v = problem()
    bias = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)
    want = attend.attention(q, k, v, compatibility="none", normalizer="sum", bias=bias)
    q[:], k[:] = np.nan, np.inf
    assert np.array_equal(attend.attention(q, k, v, compatibility="none", normalizer="sum", bias=bias), want)
    assert_close(want, bias.astype(np.float64) @ np.repeat(v, 2, 1), size_of(np.broadcast_to(bias, (2, 4, 5, 7)), v))


def test_layout_blhd_is_the_same_call_on_turned_arrays():
    q, k, v = problem()
    table = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    options = {"compatibility": "l1", "normalizer": "mean", "relative": table, "query_offset": 1}
    turned = attend.attention(*(x.swapaxes(1, 2).copy() for x in (q, k, v)), layout="blhd", **options)
    assert np.array_equal(turned, attend.attention(q, k, v, **options).swapaxes(1, 2))


# --- Regions and tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options, kernel, dilation", [
    ({"neighborhood": 3}, (3, 3), (1, 1)),
    ({"neighborhood": (3, 3)}, (3, 3), (1, 1)),
    ({"neighborhood": [1, 7], "dilation": 1}, (1, 7), (1, 1)),
    ({"neighborhood": (5, np.int8(3)), "border": "shift"}, (5, 3), (1, 1)),
    ({"neighborhood": 3, "dilation": 2}, (3, 3), (2, 2)),
    ({"neighborhood": 3, "dilation": (1, 2), "border": "shift"}, (3, 3), (1, 2)),
    ({"neighborhood": (3, 3), "dilation": (2, 3), "border": "clip"}, (3, 3), (2, 3)),
    ({"neighborhood": (2**62 - 1, 99), "dilation": 2**40}, (1, 1), (1, 1)),  # all but the cell itself lies outside
    ({"neighborhood": 99}, (99, 99), (1, 1)),
], ids=str)
def test_a_neighbourhood_is_the_mask_of_its_cells(options, kernel, dilation, dtype):
    grid = (6, 9)
    q, k, v = problem(L=54, S=54, E=WIDTH, dtype=dtype)
    allowed = neighbors(grid, kernel, dilation, options.get("border", "clip"))
    y = attend.attention(q, k, v, grid=grid, **options)
    assert_close(y, attention(q, k, v, mask=allowed)[0], abs(v).max())
    assert np.array_equal(y, attend.attention(q, k, v, mask=allowed)), "structured and boolean masks give equal bits"


def test_a_neighbourhood_combines_with_every_other_mask():
    grid = (6, 9)
    q, k, v = problem(L=54, S=54, E=WIDTH)
    keep = np.random.default_rng(1).random((2, 1, 54, 54)) < 0.7
    allowed = neighbors(grid, (5, 3)) & causal(54, 54) & keep & (np.arange(54) < [[[[50]]], [[[20]]]])
    y = attend.attention(q, k, v, grid=grid, neighborhood=(5, 3), causal=True, mask=keep, key_lengths=[50, 20], normalizer="mean")
    want, _, weights = attention(q, k, v, mask=allowed, normalizer="mean")
    assert_close(y, want, size_of(weights, v))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset, L, S", [
    ("upper_left", 5, 7), ("lower_right", 5, 7), (-3, 20, 131), ([0, 3], 20, 131), (None, 33, 33), ("lower_right", 1, 300),
])
@pytest.mark.parametrize("heads, reach", [(1, 0), (4, 2), (4, 400)])
def test_a_relative_table_is_added_by_offset(heads, reach, offset, L, S, dtype):
    q, k, v = problem(L=L, S=S, dtype=dtype)
    table = np.random.default_rng(4).standard_normal((heads, 2 * reach + 1)).astype(np.float32)
    table[0, 0] = -np.inf if reach else 1.0
    first = {"upper_left": 0, "lower_right": S - L, None: 0}.get(offset, offset) if not isinstance(offset, list) else offset
    bias = reference.relative(table, L, S, first)
    y, lse = attend.attention(q, k, v, relative=table, query_offset=offset, return_lse=True)
    out, want_lse, weights = attention(q, k, v, bias=bias)
    assert_close(y, out, size_of(weights, v), times=2)
    assert_close(lse, want_lse, max(1.0, abs(want_lse[np.isfinite(want_lse)]).max(initial=0.0)), times=4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 3, 5), (1, 21, 3)], ids=str)
@pytest.mark.parametrize("kernel", [None, (3, 5)])
def test_a_relative_table_on_a_grid_is_added_by_rows_and_columns(kernel, shape, dtype):
    grid = (6, 9)
    q, k, v = problem(L=54, S=54, dtype=dtype)
    table = np.random.default_rng(4).standard_normal(shape).astype(dtype)
    rest = np.random.default_rng(5).standard_normal((54, 54)).astype(dtype)
    y = attend.attention(q, k, v, grid=grid, neighborhood=kernel, relative=table, bias=rest)
    bias = reference.relative_on_grid(table, grid) + rest
    assert_close(y, attention(q, k, v, bias=bias, mask=True if kernel is None else neighbors(grid, kernel))[0], abs(v).max())


def test_a_convolution_is_a_sum_over_a_neighbourhood():
    rows, columns, filters, width = 13, 10, 3, 2
    rng = np.random.default_rng(6)
    image, w = rng.standard_normal((rows, columns, width)), rng.standard_normal((filters, 3, 3))
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    want = np.zeros((filters, rows, columns, width))
    for r in range(3):
        for c in range(3):
            want += w[:, r, c, None, None, None] * padded[r : r + rows, c : c + columns]
    cells = rows * columns
    q, k, v = np.zeros((filters, cells, 1)), np.zeros((1, cells, 1)), image.reshape(1, cells, width)
    y = attend.attention(q, k, v, grid=(rows, columns), neighborhood=3, relative=w, compatibility="none", normalizer="sum")
    terms = 9 * abs(w).max() * abs(image).max()
    assert abs(y.reshape(want.shape) - want).max() <= 4 * np.finfo(np.float64).eps * terms


def test_defaults_of_a_neighbourhood_may_be_named_without_one():
    arrays = problem()
    want = attend.attention(*arrays)
    for dilation in (1, np.int64(1), (1, 1), [1, 1]):
        assert np.array_equal(attend.attention(*arrays, neighborhood=None, dilation=dilation, border="".join(("cl", "ip"))), want)


# --- Arrays and objects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_tables_and_weights_may_be_narrow_and_have_any_strides(dtype):
    q, k, v = problem(E=WIDTH, dtype=dtype)
    rng = np.random.default_rng(7)
    wide, weights = rng.standard_normal((4, 2, 9)).astype(np.float32), rng.standard_normal(3 * WIDTH).astype(np.float32)
    for table, w in ((wide[::-1, 1, ::-1], weights[::-3]), (np.broadcast_to(wide[:1, 0], (4, 9)), np.broadcast_to(weights[:1], WIDTH))):
        options = {"query_offset": 2}
        y = attend.attention(q, k, v, relative=table, compatibility=attend.additive(w), **options)
        assert np.array_equal(y, attend.attention(q, k, v, relative=table.copy(), compatibility=attend.additive(w.copy()), **options))
        want = attention(q, k, v, bias=reference.relative(table, 5, 7, 2), compatibility=reference.additive(w))[0]
        assert_close(y, want, abs(v).max(), times=2)


def test_arrays_of_the_form_keep_their_bytes_and_reference_counts():
    q, k, v = problem(E=WIDTH)
    table, w = np.ones((4, 3), np.float32), W.copy()
    compatibility = attend.additive(w)
    held = (table, w, compatibility)
    before, copies = [sys.getrefcount(x) for x in held], [table.tobytes(), w.tobytes()]
    for _ in range(100):
        attend.attention(q, k, v, relative=table, query_offset=0, compatibility=compatibility)
        with pytest.raises(ValueError):
            attend.attention(q, k, v, relative=table, query_offset=0, compatibility=compatibility, scale=np.nan)
    assert [sys.getrefcount(x) for x in held] == before and [table.tobytes(), w.tobytes()] == copies


def test_out_over_a_table_or_over_weights_is_refused():
    q, k, v = (x[0, 0] for x in problem(E=WIDTH, Ev=WIDTH))
    memory = np.zeros(5 * WIDTH + 9, np.float32)
    out = memory[: 5 * WIDTH].reshape(5, WIDTH)
    with pytest.raises(ValueError, match="^out: .*overlaps relative"):
        attend.attention(q, k, v, relative=memory[None, 5 * WIDTH - 1 :][:, :9], query_offset=0, out=out)
    with pytest.raises(ValueError, match="^out: .*overlaps additive"):
        attend.attention(q, k, v, compatibility=attend.additive(memory[:WIDTH]), out=out)


def test_additive_reads_its_array_at_every_call():
    q, k, v = problem(E=WIDTH)
    w = W.copy()
    compatibility = attend.additive(w)
    first = attend.attention(q, k, v, compatibility=compatibility)
    w *= 2
    second = attend.attention(q, k, v, compatibility=compatibility)
    assert not np.array_equal(first, second)
    assert np.array_equal(second, attend.attention(q, k, v, compatibility=attend.additive(w.copy())))
    assert compatibility.w is w


def test_gaussians_are_values():
    a = attend.gaussian(2)
    assert a == attend.gaussian(2.0) and hash(a) == hash(attend.gaussian(np.float32(2))) and a != attend.gaussian(3) and a != 2.0
    assert repr(a) == "gaussian(sigma=2.0)" and eval(repr(a), {"gaussian": attend.gaussian}) == a and type(a.sigma) is float
    assert pickle.loads(pickle.dumps(a)) == copy.deepcopy(a) == a


def test_the_docstrings_example_runs():
    failed, tried = doctest.testmod(attend._compatibility)
    assert tried and not failed


def test_additives_are_their_array():
    a, b = attend.additive(W), attend.additive(W)
    assert a == a and a != b and a.w is W
    assert repr(a) == "additive(w=<numpy.ndarray float32 (8,)>)"
    for other in (pickle.loads(pickle.dumps(a)), copy.deepcopy(a)):
        assert type(other) is attend.additive and np.array_equal(other.w, W) and other.w is not W


@pytest.mark.parametrize("made, name", [(attend.gaussian(1), "sigma"), (attend.additive(W), "w")], ids=["gaussian", "additive"])
def test_functions_do_not_change(made, name):
    for attribute in (name, "another"):
        with pytest.raises(AttributeError, match=attribute):
            setattr(made, attribute, 3.0)
    with pytest.raises(AttributeError, match=name):
        delattr(made, name)


@pytest.mark.parametrize("make, error, words", [
    (lambda: attend.gaussian(0), ValueError, "^sigma: expected a finite number above 0, got 0"),
    (lambda: attend.gaussian(-1.0), ValueError, "^sigma: .*above 0, got -1.0"),
    (lambda: attend.gaussian(float("inf")), ValueError, "^sigma: .*inf"),
    (lambda: attend.gaussian(float("nan")), ValueError, "^sigma: .*nan"),
    (lambda: attend.gaussian("1"), TypeError, "^sigma: expected a number, got str"),
    (lambda: attend.gaussian(True), TypeError, "^sigma: .*bool"),
    (lambda: attend.gaussian(None), TypeError, "^sigma: .*None"),
    (lambda: attend.additive([1.0]), TypeError, "^additive: expected an array.*, got list"),
    (lambda: attend.additive(1.0), TypeError, "^additive: .*float"),
])
def test_functions_refuse_wrong_parameters_when_they_are_made(make, error, words):
    with pytest.raises(error, match=words):
        make()


# --- Plans and PyTorch --------------------------------------------------------------------------------------------------


def test_a_plan_names_the_functions_and_counts_the_tiles_of_a_neighbourhood():
    shape = (1, 8, 4096, 64)
    near, whole = (attend.plan(shape, shape, shape, "float32", **options) for options in
                   ({"grid": (64, 64), "neighborhood": 7, "compatibility": attend.gaussian(2), "normalizer": "mean"}, {}))
    assert (near["compatibility"], near["normalizer"]) == ("gaussian", "mean")
    assert (whole["compatibility"], whole["normalizer"]) == ("dot", "softmax")
    assert whole["tiles_skipped"] == 0 < near["tiles_skipped"] and near["flops"] < 0.5 * whole["flops"]
    table = np.zeros((8, 3), np.float32)
    assert attend.plan(shape, shape, shape, "float32", relative=table)["kernel"] == whole["kernel"]
    for options, words in (({"normalizer": "softmin"}, "^normalizer: "), ({"neighborhood": 3}, "^neighborhood: .*grid"),
                           ({"relative": table[:3]}, "^relative: "), ({"compatibility": attend.additive(W)}, "^additive: .*64")):
        with pytest.raises(ValueError, match=words):
            attend.plan(shape, shape, shape, "float32", **options)


@pytest.mark.peers
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensors_give_torch_tensors(torch, dtype):
    arrays = problem(E=WIDTH, dtype=dtype)
    table, w = np.random.default_rng(8).standard_normal((4, 5)).astype(dtype), W.astype(dtype)
    tensor = functools.partial(tensor_of, torch)
    for options, same in (({"relative": table}, {"relative": tensor(table)}),
                          ({"compatibility": attend.additive(w)}, {"compatibility": attend.additive(tensor(w))}),
                          ({"compatibility": "cosine"}, {"compatibility": "cosine"})):
        y = attend.attention(*map(tensor, arrays), query_offset=0, normalizer="abs", **same)
        assert type(y) is torch.Tensor and y.dtype is getattr(torch, dtype)
        assert np.array_equal(y.double().numpy(), attend.attention(*arrays, query_offset=0, normalizer="abs", **options).astype(np.float64))
    assert "torch" in repr(attend.additive(tensor(w))) and "8" in repr(attend.additive(tensor(w)))


@pytest.mark.peers
def test_torch_tensors_that_require_a_gradient_are_refused_by_name(torch):
    q, k, v = map(torch.from_numpy, problem(E=WIDTH))
    w, table = torch.ones(WIDTH, requires_grad=True), torch.ones(4, 3, requires_grad=True)
    for name, options in (("additive", {"compatibility": attend.additive(w)}), ("relative", {"relative": table, "query_offset": 0})):
        with pytest.raises(ValueError, match=f"^{name}: .*gradient.*attend.torch"):
            attend.attention(q, k, v, **options)
    with pytest.raises(ValueError, match="^sigma: .*gradient"):
        attend.gaussian(torch.tensor(1.0, requires_grad=True))


@pytest.mark.peers
def test_a_convolution_is_torchs(torch):
    rng = np.random.default_rng(11)
    image, w = torch.from_numpy(rng.standard_normal((4, 1, 12, 9))), torch.from_numpy(rng.standard_normal((5, 1, 3, 5)))
    want = torch.nn.functional.conv2d(image, w, padding=(1, 2))  # (pixels' numbers, filters, rows, columns)
    y = attend.attention(torch.zeros(5, 108, 1).double(), torch.zeros(1, 108, 1).double(), image.reshape(4, 108).T[None],
                         compatibility="none", normalizer="sum", grid=(12, 9), neighborhood=(3, 5), relative=w[:, 0])
    assert torch.allclose(y, want.reshape(4, 5, 108).permute(1, 2, 0), rtol=0, atol=1e-12)
