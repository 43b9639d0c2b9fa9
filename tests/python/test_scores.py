"""Soft caps, ALiBi, sinks, lists of score functions, dropout, and the scores that a call returns."""

import copy
import doctest
import pickle

import numpy as np
import pytest

import attend
from reference import (DTYPES, alibi, assert_close, attention, causal, kept, paper_slopes, plus, problem, scores_of, size_of,
                       soft_cap)

L, S, H = 5, 7, 4
RNG = np.random.default_rng(5)
BIAS = RNG.standard_normal((H, L, S)).astype(np.float32)
SLOPES = np.array([0.5, 0.0, -0.25, 2.0], np.float32)
SINKS = np.array([0.5, -np.inf, 40.0, -3.0], np.float32)


def check(options, times=4, arrays=None, **wanted):
    q, k, v = problem() if arrays is None else arrays
    got = attend.attention(q, k, v, return_lse=True, return_weights=True, **options)
    for given, expected in zip(got, attention(q, k, v, **wanted), strict=True):
        assert_close(given, expected, max(abs(v).max(), abs(np.nan_to_num(expected, posinf=0, neginf=0)).max()), times=times)
    return got


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cap", [0.05, 1.5, 30, 1e30])
def test_the_soft_cap_comes_before_the_bias(cap, dtype):
    check({"softcap": cap, "bias": BIAS, "scale": 2.0}, arrays=problem(dtype=dtype), score=[soft_cap(cap)], bias=BIAS, scale=2.0)


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 7, 8, 12, 16, 20])
def test_alibi_true_is_the_slopes_of_the_paper(heads):
    arrays = problem(H=heads, Hk=1)
    check({"alibi": True, "query_offset": 1}, arrays=arrays, bias=alibi(paper_slopes(heads), L, S, 1))


def test_slopes_of_the_paper_are_known_numbers():
    assert paper_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    assert paper_slopes(3).tolist() == [2.0**-4, 2.0**-8, 2.0**-2]


@pytest.mark.parametrize("offset", [0, 2, -3, "lower_right", [4, -1]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_given_slopes_weigh_the_distance_of_positions(dtype, offset):
    at = np.array({"lower_right": S - L}.get(offset, offset) if isinstance(offset, str) else offset)
    distance = abs(np.arange(L)[:, None] + at[..., None, None, None] - np.arange(S))
    bias = -SLOPES[:, None, None].astype(np.float64) * distance
    for slopes in (SLOPES, SLOPES.astype(np.float64), np.repeat(SLOPES, 2)[::2]):
        check({"alibi": slopes, "query_offset": offset}, arrays=problem(dtype=dtype), bias=bias)


def test_alibi_false_is_none():
    q, k, v = problem()
    for off in (False, np.False_, None):
        assert np.array_equal(attend.attention(q, k, v, alibi=off), attend.attention(q, k, v))
    assert np.array_equal(attend.attention(q, k, v, alibi=np.True_, query_offset=0), attend.attention(q, k, v, alibi=True, query_offset=0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sinks_join_the_denominator_and_nothing_else(dtype):
    arrays = problem(dtype=dtype)
    mask = RNG.random((2, 1, L, S)) < 0.5
    mask[0, 0, 2] = False
    out, lse, weights = check({"sinks": SINKS, "mask": mask}, arrays=arrays, sinks=SINKS, mask=mask)
    assert (lse[0, :, 2] == SINKS).all() and not out[0, :, 2].any() and not weights[0, :, 2].any()
    check({"sinks": SINKS, "softcap": 2.0, "scale": 3.0}, arrays=arrays, sinks=SINKS, score=[soft_cap(2.0)], scale=3.0)
    assert np.array_equal(attend.attention(*arrays, sinks=np.full(H, -np.inf, np.float32)), attend.attention(*arrays))


ORDERS = {
    "one function": (attend.soft_cap(0.5), [soft_cap(0.5)]),
    "bias, then cap": ([attend.bias(BIAS), attend.soft_cap(0.5)], [plus(BIAS), soft_cap(0.5)]),
    "cap, then bias": ((attend.soft_cap(0.5), attend.bias(BIAS)), [soft_cap(0.5), plus(BIAS)]),
    "slopes, then cap": ([attend.alibi(SLOPES), attend.soft_cap(0.5)], [plus(alibi(SLOPES, L, S, 1)), soft_cap(0.5)]),
    "paper's slopes, then cap": ([attend.alibi(), attend.soft_cap(0.5)], [plus(alibi(paper_slopes(H), L, S, 1)), soft_cap(0.5)]),
    "a cap in a cap": ([attend.soft_cap(2), attend.soft_cap(1), attend.bias(BIAS)], [soft_cap(2), soft_cap(1), plus(BIAS)]),
    "biases of many shapes": ([attend.bias(BIAS[:, :1]), attend.bias(BIAS[0]), attend.bias(BIAS[0, 0]), attend.bias(BIAS[:, :, :1])],
                              [plus(BIAS[:, :1]), plus(BIAS[0]), plus(BIAS[0, 0]), plus(BIAS[:, :, :1])]),
    "eight of them": ([attend.bias(BIAS[0]), attend.soft_cap(3)] * 4, [plus(BIAS[0]), soft_cap(3)] * 4),
    "none": ([], []),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_list_of_score_functions_comes_first_and_keeps_its_order(order, dtype):
    steps, functions = ORDERS[order]
    check({"score": steps, "query_offset": 1}, arrays=problem(dtype=dtype), score=functions)
    more = {"bias": BIAS[1], "softcap": 1.5, "mask": causal(L, S, 1)}
    check({"score": steps, "query_offset": 1, **more}, arrays=problem(dtype=dtype), score=[*functions, soft_cap(1.5)], bias=BIAS[1],
          mask=causal(L, S, 1))


def test_the_two_orders_can_be_told_apart():
    q, k, v = problem()
    y = [attend.attention(q, k, v, score=ORDERS[name][0]) for name in ("bias, then cap", "cap, then bias")]
    assert abs(y[0] - y[1]).max() > 0.01


def test_minus_infinity_in_a_list_excludes_whatever_follows():
    q, k, v = problem()
    bias = np.where(RNG.random((L, S)) < 0.4, -np.inf, BIAS[0]).astype(np.float32)
    bias[3] = -np.inf
    steps = [attend.bias(bias), attend.soft_cap(0.5), attend.bias(BIAS)]
    finite = np.where(bias == -np.inf, 0, bias)
    check({"score": steps}, score=[plus(finite), soft_cap(0.5), plus(BIAS)], mask=bias != -np.inf)
    want = attend.attention(q, k, v, score=steps)
    k[:, :, 2], v[:, :, 2] = np.nan, np.inf
    dead = np.where(np.arange(S) == 2, -np.inf, bias).astype(np.float32)
    steps[0] = attend.bias(dead)
    assert np.isfinite(attend.attention(q, k, v, score=steps)).all() and np.isfinite(want).all()


@pytest.mark.parametrize("normalizer", ["mean", "sum", "sigmoid", "relu2", "abs"])
def test_score_functions_serve_every_normalizer(normalizer):
    q, k, v = problem()
    options = {"softcap": 0.7, "alibi": True, "query_offset": 2, "bias": BIAS, "mask": causal(L, S, 2)}
    got = attend.attention(q, k, v, normalizer=normalizer, return_weights=True, **options)
    want = attention(q, k, v, normalizer=normalizer, score=[soft_cap(0.7)], bias=BIAS + alibi(paper_slopes(H), L, S, 2),
                     mask=causal(L, S, 2))
    assert_close(got.out, want[0], size_of(want[2], v), times=4)
    assert_close(got.weights, want[2], max(1, abs(want[2]).max()), times=4)


# --- Scores that are returned -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("L, S", [(5, 7), (1, 300), (70, 200)])
def test_the_three_stages_are_scaled_capped_and_biased(L, S, dtype):
    q, k, v = problem(L=L, S=S, dtype=dtype)
    bias = np.random.default_rng(7).standard_normal((H, L, S)).astype(np.float32)
    keep = causal(L, S, 2) & (np.random.default_rng(8).random((L, S)) < 0.8)
    options = {"scale": 0.7, "softcap": 1.5, "bias": bias, "mask": keep, "causal": True, "query_offset": 2, "score": attend.soft_cap(9)}
    heads = np.repeat(k, 2, 1)
    scaled = scores_of(q, heads, scale=0.7)
    capped = scores_of(q, heads, scale=0.7, score=[soft_cap(9), soft_cap(1.5)])
    plain = attend.attention(q, k, v, **options)
    for stage, want in (("scaled", scaled), ("capped", capped), ("biased", np.where(keep, capped + bias, -np.inf))):
        got = attend.attention(q, k, v, return_scores=stage, **options)
        assert type(got) is attend.OutScores and np.array_equal(got.out, plain)
        assert_close(got.scores, want, abs(scaled).max(), times=8)
    ended = attend.attention(q, k, v, key_lengths=S - 2, return_scores="scaled").scores
    assert (ended[..., S - 2 :] == -np.inf).all() and np.isfinite(ended[..., : S - 2]).all()


def test_scores_stand_last_and_beside_all_other_results():
    q, k, v = problem()
    kinds = {("lse",): attend.OutLseScores, ("weights",): attend.OutWeightsScores, ("lse", "weights"): attend.OutLseWeightsScores}
    want = attend.attention(q, k, v, return_lse=True, return_weights=True)
    for names, kind in kinds.items():
        got = attend.attention(q, k, v, return_scores="biased", **{f"return_{name}": True for name in names})
        assert type(got) is kind and got._fields == ("out", *names, "scores")
        for name in ("out", *names):
            assert np.array_equal(getattr(got, name), getattr(want, name))
    turned = attend.attention(*(x.swapaxes(1, 2) for x in (q, k, v)), layout="blhd", return_scores="biased")
    assert np.array_equal(turned.scores, got.scores)
    alone = attend.attention(q[0, 0], k[0, 0], v[0, 0], return_scores="biased").scores
    assert alone.shape == (L, S) and np.allclose(alone, got.scores[0, 0], atol=1e-5)


# --- Dropout ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 20, 2**32 + 5, 2**64 - 1, np.uint64(2**63)])
@pytest.mark.parametrize("L, S", [(5, 7), (1, 9), (18, 130)])
def test_what_dropout_keeps_is_philoxs_choice(L, S, seed):
    arrays = problem(B=2, H=2, L=L, S=S, Hk=1)
    keep = kept((2, 2, L, S), 0.3, int(seed))
    got = check({"dropout_p": 0.3, "seed": seed}, arrays=arrays, keep=keep)
    assert ((got.weights != 0) == (keep != 0)).all()
    assert np.array_equal(got.lse, attend.attention(*arrays, return_lse=True).lse)


def test_known_words_of_philox_come_out():
    """Counters and keys of the paper's own implementation, Random123: kat_vectors."""
    from reference import philox

    assert philox((0, 0), (0, 0, 0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox((ones, ones), (ones, ones, ones, ones)) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_the_mask_does_not_depend_on_threads_or_on_how_much_is_computed():
    q, k, v = problem(L=40, S=600)
    options = {"dropout_p": 0.5, "seed": 7, "return_weights": True}
    whole = attend.attention(q, k, v, **options)
    for threads in (1, 2, 5):
        assert np.array_equal(attend.attention(q, k, v, threads=threads, **options).out, whole.out)
    part = attend.attention(q[:, :2, :3], k[:, :1, :33], v[:, :1, :33], **options)
    assert ((part.weights != 0) == (whole.weights[:, :2, :3, :33] != 0)).all()
    assert not np.array_equal(attend.attention(q, k, v, **options | {"seed": 8}).weights != 0, whole.weights != 0)


def test_without_a_seed_every_call_draws_its_own():
    q, k, v = problem(L=20, S=100)
    first, second = (attend.attention(q, k, v, dropout_p=0.5) for _ in range(2))
    assert not np.array_equal(first, second)


def test_the_ends_of_the_range_drop_everything_and_nothing():
    q, k, v = problem()
    assert not attend.attention(q, k, v, dropout_p=1, seed=1).any()
    for nothing in ({"dropout_p": 0.0, "seed": 3}, {"dropout_p": 0}, {"seed": 2**64 - 1}, {"dropout_p": np.float32(0)}):
        assert np.array_equal(attend.attention(q, k, v, **nothing), attend.attention(q, k, v))


def test_dropped_weights_of_other_normalizers_are_scaled_alike():
    q, k, v = problem()
    keep = kept((2, H, L, S), 0.4, 11)
    want = attention(q, k, v, normalizer="sum", keep=keep)
    got = attend.attention(q, k, v, normalizer="sum", dropout_p=0.4, seed=11, return_weights=True)
    assert_close(got.weights, want[2], abs(want[2]).max(), times=4)
    assert_close(got.out, want[0], size_of(want[2], v), times=4)


# --- The objects --------------------------------------------------------------------------------------------------------


def test_soft_caps_are_values_and_the_others_their_arrays():
    a = attend.soft_cap(2)
    assert a == attend.soft_cap(2.0) and hash(a) == hash(attend.soft_cap(2.0)) and a != attend.soft_cap(3) and a != 2.0
    assert a != attend.gaussian(2) and repr(a) == "soft_cap(cap=2.0)" and pickle.loads(pickle.dumps(a)) == copy.deepcopy(a) == a
    assert attend.alibi().slopes is None and repr(attend.alibi()) == "alibi()"
    assert attend.alibi(SLOPES).slopes is SLOPES and repr(attend.alibi(SLOPES)) == "alibi(slopes=<numpy.ndarray float32 (4,)>)"
    assert attend.bias(BIAS).numbers is BIAS and repr(attend.bias(BIAS)) == "bias(numbers=<numpy.ndarray float32 (4, 5, 7)>)"
    for made, name in ((a, "cap"), (attend.alibi(), "slopes"), (attend.bias(BIAS), "numbers")):
        with pytest.raises(AttributeError, match=name):
            setattr(made, name, 1.0)
    assert doctest.testmod(attend._score).failed == 0 < doctest.testmod(attend._score).attempted


def test_arrays_in_a_list_are_read_by_every_call():
    q, k, v = problem()
    bias = BIAS.copy()
    step = attend.bias(bias)
    first = attend.attention(q, k, v, score=step)
    bias *= 2
    assert not np.array_equal(attend.attention(q, k, v, score=step), first)
    assert np.array_equal(attend.attention(q, k, v, score=[step]), attend.attention(q, k, v, bias=bias))


@pytest.mark.parametrize("make, error, words", [
    (lambda: attend.soft_cap(0), ValueError, "^cap: expected a finite number above 0, got 0"),
    (lambda: attend.soft_cap(float("inf")), ValueError, "^cap: .*inf"),
    (lambda: attend.soft_cap("1"), TypeError, "^cap: .*str"),
    (lambda: attend.alibi([1.0]), TypeError, "^slopes: expected an array.*list"),
    (lambda: attend.alibi(True), TypeError, "^slopes: .*bool"),
    (lambda: attend.bias(0.5), TypeError, "^bias: .*float"),
    (lambda: attend.bias(None), TypeError, "^bias: .*None"),
])
def test_wrong_parameters_are_refused_when_a_function_is_made(make, error, words):
    with pytest.raises(error, match=words):
        make()


WRONG = {
    "cap of 0": ({"softcap": 0}, ValueError, "softcap: .*above 0"),
    "negative cap": ({"softcap": -1.0}, ValueError, "softcap: .*above 0.*-1"),
    "infinite cap": ({"softcap": float("inf")}, ValueError, "softcap: .*inf"),
    "cap that is no number": ({"softcap": float("nan")}, ValueError, "softcap: .*nan"),
    "text as cap": ({"softcap": "1"}, TypeError, "softcap: .*number.*str"),
    "true as cap": ({"softcap": True}, TypeError, "softcap: .*bool"),
    "slopes of three heads": ({"alibi": SLOPES[:3], "query_offset": 0}, ValueError, r"alibi: .*\(4\).*\(3\)|alibi: .*\(4,\).*\(3,\)"),
    "wide slopes of three heads": ({"alibi": np.ones(3), "query_offset": 0}, ValueError, "alibi: "),
    "slopes of two axes": ({"alibi": SLOPES[:, None], "query_offset": 0}, ValueError, r"alibi: .*\(4, 1\)"),
    "integer slopes": ({"alibi": np.ones(H, int), "query_offset": 0}, TypeError, "alibi: .*int64"),
    "a list of slopes": ({"alibi": [1.0] * H, "query_offset": 0}, TypeError, "alibi: expected True, False, or an array.*list"),
    "a word as slopes": ({"alibi": "paper", "query_offset": 0}, TypeError, "alibi: .*str"),
    "slopes without an anchor": ({"alibi": True}, ValueError, "query_offset: .*upper_left.*lower_right"),
    "slopes of a list without an anchor": ({"score": attend.alibi()}, ValueError, "query_offset: .*upper_left.*lower_right"),
    "slopes twice": ({"alibi": True, "score": attend.alibi(), "query_offset": 0}, ValueError, "alibi: .*score"),
    "slopes twice in a list": ({"score": [attend.alibi()] * 2, "query_offset": 0}, ValueError, "score: .*once.*twice"),
    "sinks of three heads": ({"sinks": SINKS[:3]}, ValueError, "sinks: .*4.*3"),
    "wide sinks": ({"sinks": SINKS.astype(float)}, TypeError, "sinks: .*float32.*float64"),
    "integer sinks": ({"sinks": np.ones(H, int)}, TypeError, "sinks: .*int64"),
    "a number as sinks": ({"sinks": 1.0}, TypeError, "sinks: .*array.*float"),
    "sinks beside another normalizer": ({"sinks": SINKS, "normalizer": "mean"}, ValueError, "sinks: .*softmax.*mean"),
    "nine functions": ({"score": [attend.soft_cap(1)] * 9}, ValueError, "score: .*8"),
    "a word as a function": ({"score": "soft_cap"}, TypeError, "score: .*attend.soft_cap.*str"),
    "a word in a list": ({"score": [attend.soft_cap(1), "alibi"]}, TypeError, "score: .*str"),
    "a class as a function": ({"score": attend.alibi}, TypeError, "score: .*type"),
    "none in a list": ({"score": [None]}, TypeError, "score: .*None"),
    "a compatibility in a list": ({"score": attend.gaussian(1)}, TypeError, "score: .*gaussian"),
    "bias of another shape in a list": ({"score": attend.bias(BIAS[:, :, :6])}, ValueError, r"score: .*\(4, 5, 6\)"),
    "boolean bias in a list": ({"score": attend.bias(np.ones((L, S), bool))}, TypeError, "score: .*bool"),
    "wide bias in a list": ({"score": attend.bias(np.ones((L, S)))}, TypeError, "score: .*float32.*float64"),
    "slopes of three heads in a list": ({"score": attend.alibi(SLOPES[:3]), "query_offset": 0}, ValueError, "score: "),
    "negative probability": ({"dropout_p": -0.1}, ValueError, "dropout_p: .*-0.1"),
    "probability above 1": ({"dropout_p": 1.5}, ValueError, "dropout_p: .*1.5"),
    "probability that is no number": ({"dropout_p": float("nan")}, ValueError, "dropout_p: .*nan"),
    "text as probability": ({"dropout_p": "0"}, TypeError, "dropout_p: .*str"),
    "none as probability": ({"dropout_p": None}, TypeError, "dropout_p: .*None"),
    "negative seed": ({"seed": -1}, ValueError, r"seed: .*0 to 2\*\*64 - 1.*-1"),
    "seed beyond 64 bits": ({"seed": 2**64}, ValueError, "seed: .*18446744073709551616"),
    "half a seed": ({"seed": 0.5}, TypeError, "seed: .*integer.*float"),
    "true as a seed": ({"seed": True}, TypeError, "seed: .*bool"),
    "another stage": ({"return_scores": "raw"}, ValueError, "return_scores: expected 'scaled', 'capped', 'biased' or None, got 'raw'"),
    "true as a stage": ({"return_scores": True}, TypeError, "return_scores: .*bool"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_refused_by_name_and_nothing_is_written(what):
    options, error, words = WRONG[what]
    out = np.full((2, 4, 5, 6), 7, np.float32)
    with pytest.raises(error, match=f"^({words})") as caught:
        attend.attention(*problem(), out=out, **options)
    assert ": expected " in str(caught.value) and ", got " in str(caught.value) and (out == 7).all()


@pytest.mark.parametrize("own", [lambda s, at: s, max, np.tanh], ids=["lambda", "builtin", "ufunc"])
def test_functions_of_the_callers_own_are_said_to_be_missing(own):
    for score in (own, [attend.soft_cap(1), own]):
        with pytest.raises(NotImplementedError, match="^score: expected attend.soft_cap.*, got .*: this version calls no functions"):
            attend.attention(*problem(), score=score)


def test_out_may_not_be_where_slopes_sinks_or_biases_are_read():
    memory = np.zeros(4 * 5 * 7, np.float32)
    out = memory[:120].reshape(4, 5, 6)
    q, k, v = (x[0] for x in problem())
    for options in ({"sinks": memory[:4]}, {"alibi": memory[10:14], "query_offset": 0}, {"score": attend.bias(memory.reshape(4, 5, 7))}):
        with pytest.raises(ValueError, match="^out: .*(sinks|alibi|score)"):
            attend.attention(q, k, v, out=out, **options)


def test_a_plan_takes_the_options_of_a_call():
    shape = (1, 4, 64, 8)
    plan = lambda **options: attend.plan(shape, shape, shape, "float32", **options)
    table = np.zeros((4, 64, 64), np.float32)
    for options in ({"softcap": 3.0}, {"alibi": True}, {"alibi": SLOPES}, {"alibi": SLOPES.astype(float)}, {"sinks": SINKS}, {"score": [attend.bias(table)]},
                    {"dropout_p": 0.5, "seed": 1}):
        assert plan(**options)["keys"] == 64
    for options, words in (({"softcap": 0}, "softcap"), ({"sinks": SINKS[:3]}, "sinks"), ({"dropout_p": 2}, "dropout_p"),
                           ({"score": attend.bias(table[:3])}, "score")):
        with pytest.raises(ValueError, match=f"^{words}: "):
            plan(**options)


@pytest.mark.peers
def test_torch_tensors_serve_as_slopes_sinks_and_biases(torch):
    arrays = problem()
    tensor = torch.from_numpy
    y = attend.attention(*map(tensor, arrays), alibi=tensor(SLOPES), sinks=tensor(SINKS), score=attend.bias(tensor(BIAS)), query_offset=1)
    assert type(y) is torch.Tensor
    assert np.array_equal(y.numpy(), attend.attention(*arrays, alibi=SLOPES, sinks=SINKS, score=attend.bias(BIAS), query_offset=1))
    for name, options in (("sinks", {"sinks": torch.ones(4, requires_grad=True)}),
                          ("alibi", {"alibi": torch.ones(4, requires_grad=True), "query_offset": 0}),
                          ("score", {"score": attend.bias(torch.ones(5, 7, requires_grad=True))})):
        with pytest.raises(ValueError, match=f"^{name}: .*gradient.*attend.torch"):
            attend.attention(*map(tensor, arrays), **options)
