"""docs/profiles.md against ONNX Runtime on the CPU: each test runs a model of one node and the call that the page puts beside it, and
compares them, or shows where the two differ by intention."""

import numpy as np
import pytest

import attend

pytestmark = pytest.mark.peers

B, H, HK, L, S, E, EV = 2, 4, 2, 5, 9, 8, 6
I, J = np.arange(L)[:, None], np.arange(S)
ATTENTION = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
GROUPED = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache",
           "position_ids", "attention_bias", "head_sink")


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


Q, K, V = random(B, H, L, E, seed=1), random(B, HK, S, E, seed=2), random(B, HK, S, EV, seed=3)


@pytest.fixture
def node():
    """The outputs of one node over named inputs."""
    runtime, helper = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx").helper

    def call(operator, known, inputs, outputs=("Y",), opset=24, domain="", **attributes):
        names = [name if name in inputs else "" for name in known]
        while not names[-1]:
            names.pop()
        describe = lambda name, x: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        graph = helper.make_graph([helper.make_node(operator, names, list(outputs), domain=domain, **attributes)], "graph",
                                  [describe(name, x) for name, x in inputs.items()],
                                  [helper.make_tensor_value_info(name, 1, None) for name in outputs if name])
        sets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
        model = helper.make_model(graph, opset_imports=sets, ir_version=10)
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, inputs)

    return call


@pytest.fixture(params=[23, 24, 25])
def opset(request):
    return request.param


@pytest.fixture
def onnx(node):
    """The operator Attention over q, k, v."""

    def call(q=Q, k=K, v=V, outputs=("Y",), opset=24, mask=None, past=None, lengths=None, **attributes):
        inputs = {"Q": q, "K": k, "V": v}
        if mask is not None:
            inputs["attn_mask"] = np.ascontiguousarray(mask)
        if past is not None:
            inputs["past_key"], inputs["past_value"] = map(np.ascontiguousarray, past)
            outputs = (*outputs, "present_key", "present_value")
        if lengths is not None:
            inputs["nonpad_kv_seqlen"] = np.array(lengths, np.int64)
        found = node("Attention", ATTENTION, inputs, outputs, opset, **attributes)
        return found[0] if len([name for name in outputs if name]) == 1 or past is not None else found

    return call


def same(mine, theirs):
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=5e-6)


def test_onnx_has_heads_before_length_and_groups_consecutive_query_heads(onnx, opset):
    same(attend.attention(Q, K, V), onnx(opset=opset))
    same(attend.attention(Q, K, V, scale=0.3), onnx(opset=opset, scale=0.3))


def test_onnx_of_rank_3_has_heads_within_the_width(onnx, opset):
    q, k, v = random(B, L, H * E, seed=4), random(B, S, HK * E, seed=5), random(B, S, HK * EV, seed=6)
    y = attend.attention(q.reshape(B, L, H, E), k.reshape(B, S, HK, E), v.reshape(B, S, HK, EV), layout="blhd")
    same(y.reshape(B, L, H * EV), onnx(q, k, v, opset=opset, q_num_heads=H, kv_num_heads=HK))


def test_onnx_masks_are_true_to_attend_or_added(onnx, opset):
    mask, bias = np.random.default_rng(7).random((B, 1, L, S)) < 0.6, random(H, L, S, seed=8)
    same(attend.attention(Q, K, V, mask=mask), onnx(mask=mask, opset=opset))
    same(attend.attention(Q, K, V, bias=bias), onnx(mask=bias, opset=opset))
    both = attend.attention(Q, K, V, mask=mask, causal=True, query_offset="upper_left")
    same(both, onnx(mask=mask, opset=opset, is_causal=1))


def test_onnx_is_causal_from_the_first_new_token(onnx, opset):
    same(attend.attention(Q, K, V, causal=True, query_offset="upper_left"), onnx(opset=opset, is_causal=1))
    past, new = (K[:, :, :4], V[:, :, :4]), (K[:, :, 4:].copy(), V[:, :, 4:].copy())
    same(attend.attention(Q, K, V, causal=True, query_offset=4), onnx(Q, *new, past=past, opset=opset, is_causal=1))


def test_onnx_lengths_are_key_lengths_and_move_the_corner(onnx):
    lengths = np.array([9, 6])
    same(attend.attention(Q, K, V, key_lengths=lengths), onnx(lengths=lengths))
    theirs = onnx(lengths=lengths, is_causal=1)
    same(attend.attention(Q, K, V, key_lengths=lengths, causal=True, query_offset="lower_right"), theirs)


def test_onnx_windows_count_both_sides_beside_the_query(onnx):
    theirs = onnx(opset=25, left_window_size=1, right_window_size=2)
    same(attend.attention(Q, K, V, window=(1, 2), query_offset="upper_left"), theirs)
    theirs = onnx(opset=25, left_window_size=2, is_causal=1)
    same(attend.attention(Q, K, V, window=(2, None), causal=True, query_offset="upper_left"), theirs)


def test_onnx_caps_before_it_adds(onnx, opset):
    bias = random(L, S, seed=9)
    same(attend.attention(Q, K, V, softcap=0.7, bias=bias), onnx(mask=bias, opset=opset, softcap=0.7))


def test_onnx_modes_are_stages_of_the_scores(onnx):
    bias = random(L, S, seed=10)
    options = dict(softcap=0.7, bias=bias)
    for mode, stage in enumerate(("scaled", "capped", "biased")):
        _, scores = onnx(outputs=("Y", "", "", "scores"), mask=bias, softcap=0.7, qk_matmul_output_mode=mode)
        same(attend.attention(Q, K, V, **options, return_scores=stage).scores, scores)
    _, weights = onnx(outputs=("Y", "", "", "scores"), mask=bias, softcap=0.7, qk_matmul_output_mode=3)
    same(attend.attention(Q, K, V, **options, return_weights=True).weights, weights)


def test_onnx_has_a_twin_with_its_own_names(onnx, opset):
    mask = np.random.default_rng(19).random((B, 1, L, S)) < 0.6
    past, new = (K[:, :, :4].copy(), V[:, :, :4].copy()), (K[:, :, 4:].copy(), V[:, :, 4:].copy())
    y, present_key, present_value, _ = attend.onnx.attention(Q, *new, mask, *past, opset=opset, is_causal=1, softcap=0.7, scale=0.5)
    same(y, onnx(Q, *new, mask=mask, past=past, opset=opset, is_causal=1, softcap=0.7, scale=0.5))
    assert np.array_equal(present_key, K) and np.array_equal(present_value, V)
    if opset >= 24:
        lengths = np.array([9, 6])
        y = attend.onnx.attention(Q, K, V, nonpad_kv_seqlen=lengths, opset=opset, is_causal=1)[0]
        same(y, onnx(lengths=lengths, opset=opset, is_causal=1))
    if opset >= 25:
        y = attend.onnx.attention(Q, K, V, opset=opset, left_window_size=1, right_window_size=2)[0]
        same(y, onnx(opset=opset, left_window_size=1, right_window_size=2))


def test_onnx_gives_0_for_an_empty_row(onnx, opset):
    mask = J < np.array([3, 9, 0, 1, 2])[:, None]
    same(attend.attention(Q, K, V, mask=mask), onnx(mask=mask, opset=opset))
    added = np.where(mask, 0, -np.inf).astype(np.float32)
    same(attend.attention(Q, K, V, bias=added), onnx(mask=added, opset=opset))
    assert not attend.attention(Q, K, V, mask=mask)[:, :, 2].any()


def test_onnxruntime_lets_an_excluded_nan_through_and_attend_does_not(onnx):
    v = V.copy()
    v[:, :, -1] = np.nan
    assert np.isnan(onnx(Q, K, v, is_causal=1)).any()
    same(attend.attention(Q, K, v, causal=True, query_offset="upper_left"), onnx(is_causal=1))


def test_onnxruntime_passes_a_query_of_nan_on_as_attend_does(onnx):
    q = Q.copy()
    q[0, 0, 1] = np.nan
    same(attend.attention(q, K, V), onnx(q))
    assert np.isnan(attend.attention(q, K, V)[0, 0, 1]).all()


def packed(x):
    """(B, H, L, E) as the grouped operator has it: (B, L, H E)."""
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(x.shape[0], x.shape[2], -1)


P, R = random(B, HK, L, E, seed=11), random(B, HK, L, E, seed=12)  # as many keys as queries


@pytest.fixture
def grouped(node):
    """com.microsoft GroupQueryAttention of a prompt, or of one token with a cache."""

    def call(q=Q, k=P, v=R, past=None, lengths=None, more={}, **attributes):
        total = k.shape[2] + (0 if past is None else past[0].shape[2])
        lengths = np.full(B, total) if lengths is None else np.asarray(lengths)
        inputs = {"query": packed(q), "key": packed(k), "value": packed(v), "seqlens_k": (lengths - 1).astype(np.int32),
                  "total_sequence_length": np.array(total, np.int32), **more}
        if past is not None:
            inputs["past_key"], inputs["past_value"] = past
        y = node("GroupQueryAttention", GROUPED, inputs, ("Y", "present_key", "present_value"), domain="com.microsoft", num_heads=H,
                 kv_num_heads=HK, **attributes)[0]
        return y.reshape(B, q.shape[2], H, E).swapaxes(1, 2)

    return call


def test_grouped_is_always_causal_and_scales_by_the_root_of_the_width(grouped):
    same(attend.attention(Q, P, R, causal=True), grouped())
    same(attend.attention(Q, P, R, causal=True, scale=0.3), grouped(scale=0.3))


def test_grouped_windows_count_the_query(grouped):
    for w in (1, 2, 3):
        same(attend.attention(Q, P, R, causal=True, window=(w - 1, 0)), grouped(local_window_size=w))


def test_grouped_caps_before_it_adds(grouped):
    bias = random(1, H, L, L, seed=13)
    same(attend.attention(Q, P, R, causal=True, softcap=0.7, bias=bias), grouped(softcap=0.7, more={"attention_bias": bias}))


def test_grouped_sinks_are_sinks_and_a_smooth_softmax_is_a_sink_of_0(grouped):
    sinks = random(H, seed=14)
    same(attend.attention(Q, P, R, causal=True, sinks=sinks), grouped(more={"head_sink": sinks}))
    same(attend.attention(Q, P, R, causal=True, sinks=np.zeros(H, np.float32)), grouped(smooth_softmax=1))


def test_grouped_lengths_are_one_less_than_key_lengths_and_the_new_token_is_the_last(grouped):
    lengths = np.array([5, 3])
    q, past = Q[:, :, :1], (random(B, HK, 4, E, seed=15), random(B, HK, 4, E, seed=16))
    new = random(B, HK, 1, E, seed=17), random(B, HK, 1, E, seed=18)
    k, v = (np.concatenate([old, np.zeros_like(one)], 2) for old, one in zip(past, new))
    for b, n in enumerate(lengths):
        k[b, :, n - 1], v[b, :, n - 1] = new[0][b, :, 0], new[1][b, :, 0]
    theirs = grouped(q, *new, past, lengths)
    same(attend.attention(q, k, v, key_lengths=lengths, causal=True, query_offset="lower_right"), theirs)
