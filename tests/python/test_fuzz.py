"""A fixed run of the fuzzer (fuzz/) on every instruction set; `python -m fuzz` in this folder runs longer ones.

ATTEND_FUZZ_CALLS and ATTEND_FUZZ_SEED change how many calls are drawn on each set, and which.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import attend
from fuzz.__main__ import available, run_on

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
