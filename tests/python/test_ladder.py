"""The ladder's ten steps, and with --peers the same sums against PyTorch's Linear, Conv2d, MultiheadAttention and attention."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import attend
from reference import BOUND, causal, neighbors

LADDER = Path(__file__).resolve().parents[2] / "examples" / "ladder"

_spec = importlib.util.spec_from_file_location("ladder", LADDER / "ladder.py")
ladder = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ladder)

from ladder_sums import GIVEN, Comparison, convolve, four_ulp, numbers, project, unasked, weighted_sum  # noqa: E402  (ladder.py adds its path)


@pytest.mark.parametrize("step", ladder.STEPS, ids=lambda step: step.__name__)
def test_attention_and_plain_sums_agree_at_every_step(step):
    comparisons = [line for line in step() if not isinstance(line, str)]
    over = [(c.name, c.part() if c.bound is not None else "other bits") for c in comparisons if not c.holds()]
    assert comparisons and not over


def test_the_steps_are_those_of_the_cpp_programs():
    assert [f"{number:02}_{step.__name__}" for number, step in enumerate(ladder.STEPS, 1)] == sorted(p.stem for p in LADDER.glob("*.cpp"))


def test_the_numbers_are_those_of_the_cpp_programs():
    state, mask = 7 << 40, 2**64 - 1
    for got in numbers((2, 3), 7).ravel():
        want = -6.0
        for _ in range(12):
            state = z = (state + 0x9E3779B97F4A7C15) & mask
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
            want += ((z ^ (z >> 31)) >> 11) * 2.0**-53
        assert got == want


def test_the_report_prints_the_chosen_steps():
    line = [sys.executable, LADDER / "ladder.py", "1", "4"]
    done = subprocess.run(line, capture_output=True, text=True, encoding="utf-8", check=False, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    assert [row for row in done.stdout.splitlines() if row[:1].isdigit()] == [ladder.STEPS[n].__doc__.splitlines()[0] for n in (0, 3)]
    assert "  parameters: the filter q 3; a row of W (step 1) 1000;" in done.stdout and "TOO LARGE" not in done.stdout
    rows = [row for row in done.stdout.splitlines() if row.startswith("  mean, N = ")]
    assert [row.split()[4] for row in rows] == ["3", "3", "3"] and all(row.endswith("%") for row in rows)


@pytest.mark.parametrize("comparison, shown", [
    (Comparison("over", np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-9]), 9e-10), "TOO LARGE"),
    (Comparison("one bound of two", np.array([1.0, 2.0]), np.array([1.5, 2.0]), np.array([0.4, 9.0])), "TOO LARGE"),
    (Comparison("not zero", np.array([1e-300]), np.zeros(1), 0), "TOO LARGE"),
    (Comparison("NaN", np.array([np.nan]), np.array([1.0]), 1.0), "TOO LARGE"),
    (Comparison("infinite", np.array([np.inf]), np.array([1.0]), 1.0), "TOO LARGE"),
    (Comparison("minus zero", np.array([-0.0]), np.array([0.0]), None), "OTHER BITS"),
    (Comparison("another type", np.ones(1, np.float32), np.ones(1), None), "OTHER BITS"),
    (Comparison("another shape", np.ones((1, 1)), np.ones(2), 1.0), "expected the shape (2,), got (1, 1)"),
    (Comparison("nothing", np.ones(0), np.ones(0), 1.0), "expected the shape (0,), got (0,)"),
], ids=lambda value: getattr(value, "name", ""))
def test_a_comparison_that_fails_is_shown_and_ends_in_1(comparison, shown, monkeypatch, capsys):
    def step():
        """0  A step that fails"""
        yield "some text"
        yield Comparison("right", np.ones(3), np.ones(3), four_ulp(1))
        yield comparison

    monkeypatch.setattr(ladder, "STEPS", (step,))
    assert not comparison.holds() and ladder.main([]) == 1
    printed = capsys.readouterr()
    assert shown in printed.out and "got 1 that are not" in printed.err


@pytest.mark.parametrize("number", ["0", "11", "two"])
def test_a_step_that_is_not_there_is_an_error(number, capsys):
    with pytest.raises(SystemExit) as ended:
        ladder.main(["3", number])
    assert ended.value.code == 2 and number in capsys.readouterr().err


# --- PyTorch ------------------------------------------------------------------------------------------------------------
# Every number on attend's side comes from `attend.attention`. PyTorch gets the same weights and inputs and gives two answers: in
# the type of the test, and in float64 from the same numbers. attend has to be within its bound of both. The bound is the
# contract's: 2e-6 or 1e-12 of max |v| where weights are shares, else of each result's Σ_j |w_j v_j|, called `size`.

peers = pytest.mark.peers
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


def random(*shape, dtype, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def module(torch, made, **parameters):
    """`made` with these parameters, as a function of tensors that computes in their type."""
    tensors = {name.replace("__", "."): torch.from_numpy(value) for name, value in parameters.items()}
    assert set(tensors) == {name for name, _ in made.named_parameters()}

    def run(*inputs, **options):
        dtype = inputs[0].dtype
        return torch.func.functional_call(made.to(dtype).eval(), {name: x.to(dtype) for name, x in tensors.items()}, inputs, options)

    return run


def assert_agrees(torch, got, run, inputs, size):
    tensors = [torch.from_numpy(x) for x in inputs]
    bound = BOUND[got.dtype.name] * np.asarray(size, np.float64)
    with torch.no_grad():
        for answer in (run(*tensors), run(*(x.double() for x in tensors))):
            assert got.shape == tuple(answer.shape)
            part = (np.abs(got.astype(np.float64) - answer.double().numpy()) / bound).max()
            assert part <= 1, f"largest part of a bound: {part:.3g}"


def with_one(x):
    """A last column of ones: the input that a layer's bias weighs."""
    return np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)


@peers
@dtypes
@pytest.mark.parametrize("T, d, h", [(1, 1, 1), (1, 7, 3), (5, 64, 32), (33, 65, 10), (7, 512, 129)])
def test_a_layer_is_torchs_linear(torch, T, d, h, dtype):
    x, W, b = random(T, d, dtype=dtype), random(h, d, dtype=dtype), random(h, dtype=dtype)
    run = module(torch, torch.nn.Linear(d, h), weight=W, bias=b)
    W_b, x_1 = np.column_stack([W, b]), with_one(x)
    size = np.abs(x_1) @ np.abs(W_b).T
    assert_agrees(torch, project(W_b, x_1), run, [x], size)  # the elements are the columns of W
    assert_agrees(torch, weighted_sum(W_b, x_1.T).T, run, [x], size)  # the elements are the components of x


@peers
@dtypes
@pytest.mark.parametrize("filters", [1, 4])
@pytest.mark.parametrize("n", [1, 3, 5])
@pytest.mark.parametrize("grid", [(1, 1), (1, 9), (7, 5), (16, 16), (33, 20)], ids=str)
def test_a_neighbourhood_with_a_table_is_torchs_conv2d(torch, grid, n, filters, dtype):
    F, x = random(filters, n, n, dtype=dtype), random(1, *grid, dtype=dtype)
    y = convolve(F, x.reshape(-1, 1), grid).reshape(filters, *grid)
    made = torch.nn.Conv2d(1, filters, n, padding=n // 2, bias=False)
    size = module(torch, made, weight=abs(F[:, None]))(torch.from_numpy(abs(x)).double()).numpy()
    assert_agrees(torch, y, module(torch, made, weight=F[:, None]), [x], size)
    if min(grid) >= n:  # no padding: the cells whose window lies inside
        inside = np.s_[:, n // 2 : grid[0] - n // 2, n // 2 : grid[1] - n // 2]
        made = torch.nn.Conv2d(1, filters, n, bias=False)
        assert_agrees(torch, y[inside], module(torch, made, weight=F[:, None]), [x], size[inside])


@peers
@dtypes
@pytest.mark.parametrize("kernel, dilation", [((1, 1), (1, 1)), ((3, 3), (1, 1)), ((5, 5), (1, 1)), ((3, 5), (2, 1)), ((5, 3), (2, 3))])
@pytest.mark.parametrize("grid", [(1, 1), (7, 5), (19, 16)], ids=str)
def test_channels_and_dilation_are_those_of_torchs_conv2d(torch, grid, kernel, dilation, dtype):
    channels, filters, cells = 3, 4, grid[0] * grid[1]
    F, b, x = random(filters, channels, *kernel, dtype=dtype), random(filters, dtype=dtype), random(channels, *grid, dtype=dtype)
    # A key/value head per channel, and a group of heads on it, one per filter.
    reach = [(n - 1) * step + 1 for n, step in zip(kernel, dilation, strict=True)]
    table = np.zeros((channels * filters, *reach), dtype)  # offsets that the dilation steps over are never read
    table[:, :: dilation[0], :: dilation[1]] = F.swapaxes(0, 1).reshape(-1, *kernel)
    parts = attend.attention(unasked(channels * filters, cells, like=x), unasked(channels, cells, like=x), x.reshape(channels, cells, 1),
                             grid=grid, neighborhood=kernel, dilation=dilation, relative=table, **GIVEN)
    # The channels are added up by one more sum, with the bias as its last element.
    elements = np.concatenate([parts.reshape(channels, filters * cells), np.repeat(b, cells)[None]])
    y = weighted_sum(np.ones((1, channels + 1), dtype), elements).reshape(filters, *grid)
    padding = [(n - 1) * step // 2 for n, step in zip(kernel, dilation, strict=True)]
    made = torch.nn.Conv2d(channels, filters, kernel, padding=padding, dilation=dilation)
    size = module(torch, made, weight=abs(F), bias=abs(b))(torch.from_numpy(abs(x)).double()).detach().numpy()
    assert_agrees(torch, y, module(torch, made, weight=F, bias=b), [x], size)


def many_heads(x, source, W, b, heads, **options):
    """Step 10 for sequences x (B, L, A) and source (B, S, C): result, weights, and what rounding errors of the result go by."""
    def projected(name, of):
        rows = with_one(of).reshape(-1, of.shape[-1] + 1)
        return project(np.column_stack([W[name], b[name]]), rows).reshape(*of.shape[:-1], heads, -1)

    Q, K, V = projected("Q", x), projected("K", source), projected("V", source)
    O, weights = attend.attention(Q, K, V, layout="blhd", return_weights=True, **options)
    O = O.reshape(*x.shape[:-1], -1)
    # Rounding errors of O go by max |v|; what W_O adds up is smaller, and the result is held to that.
    size = abs(O).astype(np.float64) @ abs(W["O"]).T.astype(np.float64) + abs(b["O"])
    rows = with_one(O).reshape(-1, O.shape[-1] + 1)
    return project(np.column_stack([W["O"], b["O"]]), rows).reshape(x.shape), weights, size


@peers
@dtypes
@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("B, T, S", [(1, 1, 1), (2, 7, 7), (1, 33, 33), (2, 5, 29), (1, 1, 50)])
@pytest.mark.parametrize("source_width", [512, 40])
def test_many_heads_are_torchs_multi_head_attention(torch, source_width, B, T, S, is_causal, dtype):
    shapes = {"Q": (512, 512), "K": (512, source_width), "V": (512, source_width), "O": (512, 512)}
    W = {name: random(*shape, dtype=dtype, seed=seed) / np.sqrt(shape[1], dtype=dtype)
         for seed, (name, shape) in enumerate(shapes.items())}
    b = {name: random(512, dtype=dtype, seed=seed) for seed, name in enumerate(shapes)}
    x, source = random(B, T, 512, dtype=dtype, seed=5), random(B, S, source_width, dtype=dtype, seed=6)
    options = {"causal": True, "query_offset": "upper_left"} if is_causal else {}
    y, weights, size = many_heads(x, source, W, b, 8, **options)

    made = torch.nn.MultiheadAttention(512, 8, kdim=source_width, vdim=source_width, batch_first=True)
    if source_width == 512:  # one domain: PyTorch holds the three matrices as one
        inward = {"in_proj_weight": np.concatenate([W["Q"], W["K"], W["V"]])}
    else:
        inward = {"q_proj_weight": W["Q"], "k_proj_weight": W["K"], "v_proj_weight": W["V"]}
    theirs = module(torch, made, **inward, in_proj_bias=np.concatenate([b["Q"], b["K"], b["V"]]), out_proj__weight=W["O"],
                    out_proj__bias=b["O"])
    excluded = ~torch.from_numpy(causal(T, S)) if is_causal else None  # there, True is what is left out

    def run(part, **how):
        return lambda x, source: theirs(x, source, source, attn_mask=excluded, **how)[part]

    assert_agrees(torch, y, run(0, need_weights=False), [x, source], size)
    assert_agrees(torch, weights, run(1, average_attn_weights=False), [x, source], 1)


def ways(H, L, S, dtype):
    """Options of attend, and what says the same to PyTorch: rows that see no key are left to our own tests, PyTorch makes them NaN."""
    rng = np.random.default_rng([H, L, S])
    i, j = np.arange(L)[:, None], np.arange(S)
    keep, bias = rng.random((H, L, S)) < 0.7, random(H, L, S, dtype=dtype)
    keep[..., 0] = True
    holes, at = np.where(keep, bias, np.float32(-np.inf)), i + S - L
    yield {}, {}
    yield {"scale": -0.4}, {"scale": -0.4}
    yield {"causal": True, "query_offset": "upper_left"}, {"is_causal": True}
    yield {"window": (5, 60), "query_offset": "lower_right"}, {"attn_mask": (at - 5 <= j) & (j <= at + 60)}
    yield {"key_lengths": (S + 1) // 2}, {"attn_mask": np.broadcast_to(j < (S + 1) // 2, (L, S)).copy()}
    yield {"mask": keep}, {"attn_mask": keep}
    yield {"bias": bias}, {"attn_mask": bias}
    yield {"bias": holes}, {"attn_mask": holes}


def assert_is_torchs(torch, q, k, v, ours, theirs):
    def run(q, k, v):
        mask = theirs.get("attn_mask")
        if mask is not None:
            mask = torch.from_numpy(mask)
            mask = mask if mask.dtype is torch.bool else mask.to(q.dtype)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **{**theirs, "attn_mask": mask})

    assert_agrees(torch, attend.attention(q, k, v, **ours), run, [q, k, v], abs(v).max())


@peers
@dtypes
@pytest.mark.parametrize("H, L, S, E, Ev", [(1, 1, 1, 1, 1), (2, 7, 7, 5, 3), (3, 35, 35, 64, 64), (2, 35, 129, 33, 7), (1, 130, 77, 64, 64)])
def test_masks_and_scores_are_torchs_scaled_dot_product_attention(torch, H, L, S, E, Ev, dtype):
    q, k, v = (random(2, H, *size, dtype=dtype, seed=seed) for seed, size in enumerate(((L, E), (S, E), (S, Ev))))
    for ours, theirs in ways(H, L, S, dtype):
        assert_is_torchs(torch, q, k, v, ours, theirs)


@peers
@dtypes
@pytest.mark.parametrize("border", ["clip", "shift"])
@pytest.mark.parametrize("grid, kernel, dilation", [
    ((1, 1), (1, 1), (1, 1)), ((7, 5), (3, 3), (1, 1)), ((7, 5), (3, 5), (2, 1)), ((13, 10), (5, 3), (1, 3)),
], ids=str)
def test_neighbourhoods_are_torchs_attention_under_their_mask(torch, grid, kernel, dilation, border, dtype):
    cells = grid[0] * grid[1]
    q, k, v = (random(2, 3, cells, 16, dtype=dtype, seed=seed) for seed in range(3))
    assert_is_torchs(torch, q, k, v, {"grid": grid, "neighborhood": kernel, "dilation": dilation, "border": border},
                     {"attn_mask": neighbors(grid, kernel, dilation, border)})
