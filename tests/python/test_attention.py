"""What `attend.attention` computes, returns and leaves alone, seen from Python."""

import copy
import functools
import inspect
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import attend
from reference import DTYPES, accumulator, assert_close, attention, causal, problem


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_every_rank_and_dtype_gives_the_definition(rank, dtype):
    q, k, v = problem(dtype=dtype)
    want = attention(q, k, v)[0]
    if rank < 4:
        q, k, v, want = q[0], k[0], v[0], want[0]
    if rank < 3:
        q, k, v, want = q[0], k[0], v[0], want[0]
    if rank == 5:
        q, k, v, want = (x.reshape(2, 1, *x.shape[1:]) for x in (q, k, v, want))
    y = attend.attention(q, k, v)
    assert y.dtype == dtype and type(y) is np.ndarray and y.flags.c_contiguous
    assert_close(y, want, abs(v).max())


@pytest.mark.parametrize("options, allowed", [
    ({"causal": True, "query_offset": "upper_left"}, causal(5, 7)),
    ({"causal": True, "query_offset": "lower_right"}, causal(5, 7, 2)),
    ({"causal": True, "query_offset": -2}, causal(5, 7, -2)),
    ({"causal": True, "query_offset": np.int8(1)}, causal(5, 7, 1)),
    ({"causal": True, "query_offset": [0, 3]}, np.stack([causal(5, 7), causal(5, 7, 3)])[:, None]),
    ({"window": (1, 0), "query_offset": 1}, causal(5, 7, 1) & ~causal(5, 7, -1)),
    ({"window": [None, 2], "query_offset": 0}, causal(5, 7, 2)),
    ({"window": (2**40, 2**70), "query_offset": 0}, True),
    ({"causal": True, "query_offset": 0, "prefix": 3}, causal(5, 7) | (np.arange(7) < 3)),
    ({"causal": True, "query_offset": 0, "prefix": (3, 0)}, causal(5, 7) | (np.arange(7) < [[[[3]]], [[[0]]]])),
    ({"key_lengths": 4}, np.arange(7) < 4),
    ({"key_lengths": np.array([0, 7], np.uint8)}, np.arange(7) < [[[[0]]], [[[7]]]]),
    ({"key_lengths": np.array([3, 5, 6, 2])[::2]}, np.arange(7) < [[[[3]]], [[[6]]]]),
], ids=str)
def test_options_that_choose_keys_give_what_a_mask_gives(options, allowed):
    q, k, v = problem()
    for given, expected in zip(attend.attention(q, k, v, return_lse=True, return_weights=True, **options),
                               attention(q, k, v, mask=allowed), strict=True):
        assert_close(given, expected, abs(v).max(), times=4)


def test_bias_scale_and_mask_enter_the_score_as_the_definition_says():
    q, k, v = problem()
    rng = np.random.default_rng(1)
    bias, mask = rng.standard_normal((4, 5, 7)).astype(np.float32), rng.random((2, 1, 1, 7)) < 0.7
    want = attention(q, k, v, mask=mask, bias=bias, scale=-0.3)[0]
    assert_close(attend.attention(q, k, v, mask=mask, bias=bias, scale=-0.3), want, abs(v).max())
    assert_close(attend.attention(*(x.astype(np.float64) for x in (q, k, v)), mask=mask, bias=bias, scale=np.float32(-0.3)),
                 attention(q, k, v, mask=mask, bias=bias, scale=float(np.float32(-0.3)))[0], abs(v).max())


def test_layout_blhd_is_the_same_call_on_turned_arrays():
    q, k, v = problem()
    y, lse, weights = attend.attention(q, k, v, causal=True, query_offset=1, return_lse=True, return_weights=True)
    turned = attend.attention(*(x.swapaxes(1, 2).copy() for x in (q, k, v)), layout="blhd", causal=True, query_offset=1,
                              return_lse=True, return_weights=True)
    assert np.array_equal(turned.out, y.swapaxes(1, 2))
    assert np.array_equal(turned.lse, lse) and np.array_equal(turned.weights, weights)


def test_what_was_asked_for_comes_in_one_order_by_name_and_by_position():
    q, k, v = problem()
    out, lse, weights = attention(q, k, v)
    for names in (("out", "lse"), ("out", "weights"), ("out", "lse", "weights")):
        result = attend.attention(q, k, v, return_lse="lse" in names, return_weights="weights" in names)
        assert isinstance(result, tuple) and result._fields == names
        for name, array in zip(names, result, strict=True):
            assert array is getattr(result, name)
            assert_close(array, {"out": out, "lse": lse, "weights": weights}[name], abs(v).max(), times=4)
    assert result.lse.shape == (2, 4, 5) and result.weights.shape == (2, 4, 5, 7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_and_scores_have_the_dtype_of_the_inputs_and_lse_that_of_the_sums(dtype):
    result = attend.attention(*problem(dtype=dtype), return_lse=True, return_weights=True, return_scores="biased")
    assert [array.dtype.name for array in result] == [dtype, accumulator(dtype), dtype, dtype]


def test_a_row_without_keys_is_zero_with_lse_minus_infinity():
    q, k, v = problem()
    v[:] = np.nan
    out, lse, weights = attend.attention(q, k, v, mask=np.zeros(7, bool), return_lse=True, return_weights=True)
    assert not out.any() and not weights.any() and (lse == -np.inf).all()


@pytest.mark.parametrize("L", [1, 5, 70])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("way", ["mask", "bias", "key_lengths", "causal", "window"])
def test_what_an_excluded_key_holds_changes_no_bit(way, poison, L):
    q, k, v = problem(L=L, S=80)
    dead = np.arange(80) >= 74
    options = {"mask": {"mask": ~dead}, "bias": {"bias": np.where(dead, -np.inf, 0.5).astype(np.float32)}, "key_lengths": {"key_lengths": 74},
               "causal": {"causal": True, "query_offset": 74 - L}, "window": {"window": (100, 0), "query_offset": 74 - L}}[way]
    want = attend.attention(q, k, v, return_lse=True, **options)
    k[:, :, dead], v[:, :, dead] = poison, poison
    for given, expected in zip(attend.attention(q, k, v, return_lse=True, **options), want, strict=True):
        assert np.isfinite(given).all() and np.array_equal(given, expected)


@pytest.mark.parametrize("shapes", [
    ((0, 2, 3, 4), (0, 2, 5, 4), (0, 2, 5, 6)), ((1, 0, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)), ((1, 2, 0, 4), (1, 2, 5, 4), (1, 2, 5, 6)),
    ((1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 6)), ((1, 2, 3, 0), (1, 2, 5, 0), (1, 2, 5, 6)), ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 0)),
], ids=["B=0", "H=0", "L=0", "S=0", "E=0", "Ev=0"])
def test_empty_dimensions_give_empty_results_or_zeros(shapes):
    q, k, v = (np.ones(shape, np.float32) for shape in shapes)
    out, lse, weights = attend.attention(q, k, v, return_lse=True, return_weights=True)
    assert out.shape == (*q.shape[:3], v.shape[3]) and lse.shape == q.shape[:3] and weights.shape == (*q.shape[:3], k.shape[2])
    assert (out == (0 if k.shape[2] == 0 else 1)).all()


def test_per_batch_options_of_no_batches_may_be_empty_lists():
    q, k, v = problem(B=0)
    assert attend.attention(q, k, v, key_lengths=[], causal=True, query_offset=[]).shape == (0, 4, 5, 6)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_bits(threads):
    q, k, v = problem(L=40, S=300, E=16, dtype="float32")
    assert np.array_equal(attend.attention(q, k, v, threads=threads), attend.attention(q, k, v))


def test_reproducible_makes_prefill_in_pieces_equal_prefill_at_once():
    q, k, v = problem(L=48, S=48, E=16, Hk=4)
    whole = attend.attention(q, k, v, causal=True, reproducible=True)
    for begin, end in ((0, 1), (1, 17), (17, 48)):
        piece = attend.attention(q[:, :, begin:end], k[:, :, :end], v[:, :, :end], causal=True, query_offset=begin, reproducible=True)
        assert np.array_equal(piece, whole[:, :, begin:end])


def test_inputs_keep_their_bytes_and_their_reference_counts():
    arrays = problem()
    mask = np.ones((5, 7), bool)
    copies = [x.tobytes() for x in arrays]
    before = [sys.getrefcount(x) for x in (*arrays, mask)]
    for _ in range(100):
        attend.attention(*arrays, mask=mask, return_lse=True)
        with pytest.raises(ValueError):
            attend.attention(*arrays, mask=mask, scale=np.nan)
    assert [x.tobytes() for x in arrays] == copies
    assert [sys.getrefcount(x) for x in (*arrays, mask)] == before


def test_many_threads_may_call_at_once():
    q, k, v = problem(L=16, S=64, E=16)
    want, wrong = attend.attention(q, k, v), []

    def work():
        for _ in range(200):
            if not np.array_equal(attend.attention(q.copy(), k.copy(), v.copy()), want):
                wrong.append("other numbers")
            try:
                attend.attention(q, k[..., :3], v)
                wrong.append("no error")
            except ValueError:
                pass

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_other_python_threads_run_during_a_call():
    q, k, v = problem(B=2, H=8, Hk=8, L=2048, S=2048, E=64, Ev=64)
    ticks, done = [], threading.Event()

    def count():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    began = time.perf_counter()
    attend.attention(q, k, v, threads=1)
    ended = time.perf_counter()
    done.set()
    counter.join()
    during = sum(began < tick < ended for tick in ticks)
    assert during >= 50 * (ended - began), f"{during} ticks in {ended - began:.2f} s"


LONG_CALL = """
    import sys, time
    import numpy as np
    import attend

    x = np.zeros((1, 16, 65536, 64), np.float32)
    attend.attention(x[:, :, :16], x[:, :, :16], x[:, :, :16])
    print("ready", flush=True)
    try:
        attend.attention(x, x, x)
    except KeyboardInterrupt:
        small = x[:, :, :64]
        assert np.array_equal(attend.attention(small, small, small), small)
        print("interrupted", flush=True)
        sys.exit(7)
    sys.exit("the call came to its end")
"""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_stops_a_long_call_soon_and_the_library_goes_on():
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(LONG_CALL)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        time.sleep(0.5)
        began = time.perf_counter()
        child.send_signal(signal.SIGINT)
        printed, complaint = child.communicate(timeout=30)
        seconds = time.perf_counter() - began
    finally:
        child.kill()
    assert (printed, child.returncode) == ("interrupted\n", 7), complaint
    assert seconds < 2.0, f"{seconds:.2f} s after the signal"  # 0.1 s or so on an idle machine; tests share theirs


def test_a_signal_handlers_own_exception_comes_through():
    code = """
        import signal, numpy as np, attend

        class Enough(Exception): pass
        def stop(*_): raise Enough
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        x = np.zeros((1, 16, 65536, 64), np.float32)
        try:
            attend.attention(x, x, x)
        except Enough:
            print("enough")
    """
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert child.stdout == "enough\n", child.stderr


PARAMETERS = ("(q, k, v, *, mask=None, bias=None, causal=False, window=None, query_offset=None, prefix=None, query_segments=None, "
              "key_segments=None, key_lengths=None, grid=None, neighborhood=None, dilation=1, border='clip', relative=None, scale=None, "
              "softcap=None, alibi=None, sinks=None, score=None, compatibility='dot', normalizer='softmax', dropout_p=0.0, seed=None, "
              "layout='bhld', out=None, return_lse=False, return_weights=False, return_scores=None, reproducible=False, threads=None)")


def test_functions_that_run_in_core_look_like_functions_of_python():
    for function in (attend.attention, attend.attention_varlen, attend.decode):
        assert function.__module__ == "attend" and function.__doc__.startswith(("Exact attention", "Attention over packed", "New queries"))
        assert inspect.isroutine(function) and repr(function) == f"<function attend.{function.__name__}>"
        assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is function
    assert str(inspect.signature(attend.attention)) == PARAMETERS
    options = {name for name in inspect.signature(attend.attention).parameters} - {"mask", "bias", "layout", "return_weights", "return_scores"}
    assert set(inspect.signature(attend.attention_varlen).parameters) == options | {"cu_seqlens_q", "cu_seqlens_k", "block_table"}


def test_arguments_may_come_by_place_or_by_name_in_any_order():
    q, k, v = problem()
    want = attend.attention(q, k, v, causal=True, query_offset=1)
    made_at_run_time = {"".join(["cau", "sal"]): True, "".join(["query_", "offset"]): 1}
    assert np.array_equal(attend.attention(v=v, query_offset=1, q=q, causal=True, k=k), want)
    assert np.array_equal(attend.attention(q, k, v=v, **made_at_run_time), want)
    assert np.array_equal(functools.partial(attend.attention, q, causal=True)(k, v, query_offset=1), want)

    class Model:
        attend = attend.attention

    with pytest.raises(TypeError, match="^q: expected an array.*Model"):
        Model().attend(q, k)


def test_import_needs_numpy_alone():
    code = "import sys; import attend; print(sorted({'torch', 'jax', 'ml_dtypes', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_plan_says_what_would_run_without_running_it():
    shape = (1, 8, 2048, 64)
    full, half = (attend.plan(shape, shape, shape, dtype, causal=causal) for dtype, causal in (("float32", False), (np.float32, True)))
    assert full["operation"] == "forward" and full["dtype"] == "float32" and full["isa"] in attend.info()["instruction_sets"]["available"]
    assert (full["batch"], full["heads"], full["kv_heads"], full["queries"], full["keys"]) == (1, 8, 8, 2048, 2048)
    assert full["flops"] == 4 * 8 * 2048 * 2048 * 64
    assert full["bytes"] == 4 * 8 * 2048 * 64 * 4
    assert full["tiles_skipped"] == 0 and half["tiles_skipped"] > 0 and half["flops"] < 0.6 * full["flops"]
    assert full["kernel"] in full["text"] and full["reason"]
    assert attend.plan((1, 8, 1, 64), shape, shape, np.dtype("float64"))["kernel"] != full["kernel"]


def test_info_names_version_instruction_sets_and_threads():
    info = attend.info()
    assert info["version"] == attend.__version__
    sets = info["instruction_sets"]
    assert "scalar" in sets["available"] and set(sets["available"]) <= set(sets["detected"])
    assert "scalar" in sets["compiled"]


def test_set_num_threads_is_what_info_tells():
    before = attend.info()["threads"]
    try:
        attend.set_num_threads(3)
        assert attend.info()["threads"] == 3
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="threads"):
                attend.set_num_threads(wrong)
        with pytest.raises(TypeError, match="threads"):
            attend.set_num_threads(1.5)
        assert attend.info()["threads"] == 3
    finally:
        attend.set_num_threads(before)


def test_attend_isa_narrows_and_refuses_what_it_does_not_know():
    code = "import attend; print(attend.info()['instruction_sets']['available'])"
    run = lambda isa: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "ATTEND_ISA": isa})
    assert run("scalar").stdout == "['scalar']\n"
    refused = run("sse9")
    assert refused.returncode == 1 and "ValueError: ATTEND_ISA" in refused.stderr
