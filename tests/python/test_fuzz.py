"""A fixed run of the fuzzer (fuzz/) on every instruction set; `python -m fuzz` in this folder runs longer ones.

ATTEND_FUZZ_CALLS and ATTEND_FUZZ_SEED change how many calls are drawn on each set, and which.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import attend
import reference
from fuzz import definition
from fuzz.__main__ import available, run_on
from fuzz.compare import Broken, require_bits, require_truth
from fuzz.program import Call, Program

CALLS = int(os.environ.get("ATTEND_FUZZ_CALLS", 2000))
SEED = int(os.environ.get("ATTEND_FUZZ_SEED", 1))
SETS = list(attend.info()["instruction_sets"]["compiled"])


@pytest.fixture(scope="module")
def runs():
    """All runs at once, as many as there are processors: a call seldom has work for more than one."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {isa: pool.submit(run_on, isa, CALLS, SEED + n, 60) for n, isa in enumerate(available())}


@pytest.mark.parametrize("isa", SETS)
def test_calls_of_every_kind_are_near_the_truth_and_the_same_in_other_words(isa, runs, capsys):
    if isa not in runs:
        pytest.skip(f"this processor has no {isa}")
    code, text = runs[isa].result()
    assert code == 0, text
    with capsys.disabled():
        print(f"\n{text.splitlines()[0]}")


# --- That it can fail ---------------------------------------------------------------------------------------------------


def small_call(dtype):
    q, k, v = reference.problem(dtype=dtype)
    return Call(q, k, v, {})


@pytest.mark.parametrize("name", ["out", "lse", "weights", "biased"])
@pytest.mark.parametrize("change", [lambda x, much: float(x) + much, lambda x, much: np.nan, lambda x, much: np.copysign(np.inf, float(x))],
                         ids=["off", "nan", "infinite"])
@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_one_wrong_element_of_any_result_is_found(name, change, dtype):
    call = small_call(dtype)
    given = call.results(("lse", "weights", "biased"))
    require_truth(call, given)
    wrong = given[name].copy()
    wrong.flat[3] = change(wrong.flat[3], 50 * reference.BOUND[dtype])
    with pytest.raises(Broken, match=name):
        require_truth(call, {**given, name: wrong})


def test_one_bit_is_found_and_so_is_the_sign_of_zero():
    want = np.array([1, 0, np.nan], np.float32)
    require_bits("the same", {"out": want.copy()}, {"out": want})
    for at, other in ((0, np.nextafter(np.float32(1), np.float32(2))), (1, -0.0), (1, np.nan), (2, 0)):
        got = want.copy()
        got[at] = other
        with pytest.raises(Broken, match=rf"out\[{at}\]"):
            require_bits("changed", {"out": got}, {"out": want})


def test_a_failure_prints_a_call_that_can_be_run():
    program = Program()
    program.let("q", "np.array(np.random.default_rng(1).standard_normal((1, 2, 3)), 'float32')")
    program.do("q[0, 0, 0] = 2.0")
    program.let("k", "q[:, ::-1]")
    program.let("v", "np.broadcast_to(q[:, :1], (1, 2, 3))")
    program.option("score", "[attend.soft_cap(0.5), attend.alibi()]", [("soft_cap", 0.5), ("alibi", None)])
    program.option("causal", "True")
    names = {}
    exec(program.text(), names)
    call = program.call()
    require_bits("as printed", {"out": names["y"]}, {"out": call.run()})
    require_truth(call, call.results())


def test_philox_has_the_known_answers():
    last = 2**32 - 1
    answers = {0: "6627e8d5 e169c58d bc57ac4c 9b00dbd8", last: "408f276d 41c83b0e a20bc7c6 6d5451fd"}  # of Random123
    for word, answer in answers.items():
        keys = 4 * np.int64(word) + np.arange(4)
        words = definition.philox(word << 32 | word, word, word, word, keys)
        assert " ".join(f"{int(x):08x}" for x in words) == answer
