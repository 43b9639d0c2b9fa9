"""One run in one process, and so on one instruction set: draws calls, checks them, counts what they covered."""

import os
import traceback
from collections import Counter

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase

import attend
from fuzz import packed, properties, strategies
from fuzz.compare import Broken, require_truth

OPTIONS = ("alibi", "bias", "causal", "compatibility", "dropout_p", "key_lengths", "key_segments", "layout", "mask",
           "normalizer", "prefix", "query_offset", "query_segments", "relative", "reproducible", "scale", "score", "seed",
           "sinks", "softcap", "threads", "window")
OPTIONS_OF_GRIDS = ("border", "dilation", "grid", "neighborhood")  # grids of so many cells would take too long


class Coverage:
    """What a run has seen: calls across tiles and chunks, kernels, options, properties that had something to compare."""

    def __init__(self):
        self.calls = self.crossing = self.packed = 0
        self.kernels, self.options, self.crossing_options, self.properties = Counter(), Counter(), Counter(), Counter()

    def add(self, call, truths):
        self.calls += 1
        self.packed += call.packed is not None
        across = False
        for q_shape, k_shape, v_shape, truth in parts_of(call, truths):
            how = {name: call.options[name] for name in ("layout", "reproducible") if name in call.options}
            plan = attend.plan(q_shape, k_shape, v_shape, call.q.dtype, **how)
            across |= crosses(truth, plan)
            self.kernels[plan["kernel"]] += 1
        self.crossing += across
        self.options.update(list(call.options))
        if across:
            self.crossing_options.update(list(call.options))

    def text(self):
        of = lambda counts: ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
        across = ", ".join(f"{name} {n} ({self.crossing_options[name]})" for name, n in sorted(self.options.items()))
        share = self.crossing / max(1, self.calls)
        return "\n".join([
            f"{self.calls} calls, {self.packed} of them packed, {self.crossing} ({share:.0%}) across tiles' ends and a chunk's",
            f"kernels: {of(self.kernels)}", f"options (across a chunk): {across}", f"properties: {of(self.properties)}"])

    def missing(self):
        """What a run of some hundred calls should have seen, and this one has not."""
        lacks = [f"option {name} across a chunk" for name in OPTIONS if not self.crossing_options[name]]
        lacks += [f"option {name}" for name in OPTIONS_OF_GRIDS if not self.options[name]]
        lacks += [f"property {name}" for name in {*properties.DENSE, *packed.PACKED} if not self.properties[name]]
        lacks += [f"kernel {name}" for name in ("few_queries", "forward") if not self.kernels[name]]
        if 3 * self.crossing < self.calls:
            lacks.append(f"a third of the calls across a chunk ({self.crossing} of {self.calls})")
        return lacks


def parts_of(call, truths):
    """Shapes and truth of the call, or of each of its sequences."""
    if call.packed is None:
        yield call.q.shape, call.k.shape, call.v.shape, truths
        return
    for (_, _, alone), truth in zip(packed.sequences(call), truths, strict=True):
        yield *(x.swapaxes(0, 1).shape for x in (alone.q, alone.k, alone.v)), truth


def crosses(truth, plan):
    """Whether a row weighs keys on both sides of a chunk's end that also lie at least two tiles' ends apart."""
    keys = np.arange(truth.allowed.shape[-1])
    first = np.where(truth.allowed, keys, len(keys)).min(-1, initial=len(keys))
    last = np.where(truth.allowed, keys, -1).max(-1, initial=-1)
    ends = lambda n: last // n - first // n
    return bool(((last > first) & (ends(plan["chunk_keys"]) >= 1) & (ends(plan["tile_keys"]) >= 2)).any())


def check(program, coverage):
    """The call against the truth, and the properties that were drawn for it."""
    call = program.call()
    given = call.results(program.results)
    truths = packed.require_truths(call, given) if program.packed else require_truth(call, given)
    coverage.add(call, truths)
    for name in sorted(program.checks):
        holds = (packed.PACKED if program.packed else properties.DENSE)[name]
        coverage.properties[name] += holds(call, given, truths) is not False


def run(calls, seed, trace=None):
    """Draws so many calls; gives the coverage, or raises `Broken` with the smallest failing call that was found. `trace` names
    a file that holds the call at work, for a process that dies of it."""
    coverage = Coverage()

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=calls, database=None, deadline=None, print_blob=False, report_multiple_bugs=False,
                         phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck))
    @hypothesis.given(strategies.calls())
    def every_call(program):
        if trace:
            with open(trace, "w") as file:
                file.write(program.text())
        try:
            check(program, coverage)
        except Broken as broken:
            raise Broken(f"{program.text()}\n# {broken}") from None
        except Exception:
            raise Broken(f"{program.text()}\n# {traceback.format_exc()}") from None

    every_call()
    if trace and os.path.exists(trace):
        os.remove(trace)
    return coverage
