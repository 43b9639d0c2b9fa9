"""Measuring one case: everything in one process, interleaved round by round.

A round is: limit, contenders, limit. The limit of a round is the larger of those measured right before and right after it, and
ratios are taken within a round before their median is. Each result is compared with float64 before it is timed; a wrong one is
reported and never timed. A case with an option is measured beside "none", attend over the same arrays without it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from time import perf_counter, sleep

from . import machine, reached
from .case import Case
from .inputs import Inputs
from .peers import Call, Peer, Unsupported
from .peers.attend import FromCpp

# Worker threads of whoever ran before may still spin and take a processor from whoever runs next (OpenMP's do, for milliseconds).
SETTLE_SECONDS = 0.02
# A peer whose call takes longer is measured in the first rounds alone: its ratio is large, and no neighbour changes that.
SLOW_SECONDS, SLOW_ROUNDS = 0.5, 3
COMPARED = 4  # caches, beside the last, of which a peer's results are compared


def spread(samples: Sequence[float]) -> dict | None:
    """Median, quartiles and extremes of what is a number among these samples; nothing where none is."""
    samples = [sample for sample in samples if math.isfinite(sample)]
    if not samples:
        return None
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return {"median": middle, "q1": low, "q3": high, "min": min(samples), "max": max(samples), "samples": len(samples)}


def seconds_of(calls: list[Call]) -> float:
    """Mean time of one call, over these one after the other."""
    if isinstance(calls[0], FromCpp):
        return calls[0].seconds(len(calls))
    begin = perf_counter()
    for call in calls:
        call()
    return (perf_counter() - begin) / len(calls)


def none_is_infinite(error: float) -> float:
    """An error that sorts above all others where it is no number."""
    return math.inf if math.isnan(error) else error


def worst_error(contender: Peer, inputs: Inputs, calls: list[Call]) -> float:
    """The largest error of its calls, in units of the bound; NaN counts as infinite. Of dozens of caches, a peer computes some."""
    meant, own = contender.meant(inputs), contender.name == "attend"
    if inputs.case.backward:
        return none_is_infinite(meant.error_of_all(tuple(contender.shaped(inputs, one) for one in calls[0]()), widened=not own))
    caches = range(len(calls)) if own else sorted({*range(len(calls))[:COMPARED], len(calls) - 1})
    errors = (meant.error(contender.shaped(inputs, calls[cache]()), cache, widened=not own) for cache in caches)
    return max(none_is_infinite(error) for error in errors)


class Contest:
    """The contenders of one case, by name: those who can make its calls and give right results."""

    def __init__(self, contenders: list[Peer], inputs: Inputs, sample_seconds: float):
        self.asked = {one.name: (one, inputs) for one in contenders}
        if inputs.plain:
            self.asked["none"] = contenders[0], inputs.plain
        self.calls: dict[str, list[Call]] = {}
        self.counts: dict[str, int] = {}  # of calls in one sample
        self.slow: set[str] = set()
        self.cache = 0  # the next, whoever is next: contenders share memory, so that none is met again before all others were
        self.errors: dict[str, float] = {}
        self.allowed: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        self.kernels: dict[str, str] = {}
        for name, (one, given) in self.asked.items():
            with one.running():
                self.enter(name, one, given, sample_seconds)

    def enter(self, name: str, one: Peer, given: Inputs, sample_seconds: float) -> None:
        """Compares what a contender computes, and finds how many of its calls make a sample that the clock resolves."""
        try:
            if given.case.backward and not one.differentiates:
                raise Unsupported("no gradients")
            calls = one.calls(given)
        except Unsupported as reason:
            self.reasons[name] = str(reason)
            return
        if kernel := one.kernel(given, calls):
            self.kernels[name] = kernel
        self.errors[name], self.allowed[name] = worst_error(one, given, calls), one.allowed(given.case)
        if self.errors[name] <= self.allowed[name]:
            self.calls[name] = calls
            # The comparison was the first warm-up, this is the second.
            seconds = seconds_of(calls[:COMPARED])
            self.counts[name] = max(1, round(sample_seconds / seconds))
            if seconds > SLOW_SECONDS and name not in ("attend", "none"):
                self.slow.add(name)

    def order(self, turn: int) -> list[str]:
        """Who is sampled in this round: forward in one, backward in the next."""
        names = [name for name in self.calls if turn < SLOW_ROUNDS or name not in self.slow]
        return names if turn % 2 == 0 else names[::-1]

    def sample(self, name: str) -> float:
        """Seconds of one call of this contender, now."""
        calls, count = self.calls[name], self.counts[name]
        turn = [calls[(self.cache + i) % len(calls)] for i in range(count)]
        self.cache += count
        with self.asked[name][0].running():
            sleep(SETTLE_SECONDS)
            return seconds_of(turn)


def measure(case: Case, contenders: list[Peer], threads: int, rounds: int, sample_seconds: float) -> dict:
    """All rounds of one case; attend is the first contender."""
    inputs = Inputs.random(case)
    contest = Contest(contenders, inputs, sample_seconds)
    times: dict[str, list[float]] = {name: [] for name in contest.calls}
    limits = []
    before = machine.Limits.measure(inputs, threads)
    for turn in range(rounds):
        for name in contest.order(turn):
            times[name].append(contest.sample(name))
        after = machine.Limits.measure(inputs, threads)
        limits.append(before.larger(after))
        before = after

    own = contenders[0]
    mine, without = times.get("attend", []), times.get("none", [])
    peers = {name: samples for name, samples in times.items() if name not in ("attend", "none")}
    tiles = {name: own.tiles_flops(given) for name, (one, given) in contest.asked.items() if one is own}
    overhead = [time / none for time, none in zip(mine, without)]
    counted = [limit for limit in limits if math.isfinite(limit.fma)]
    result = {
        "case": case.describe(),
        "flops": inputs.flops,
        "tiles_flops": tiles,
        "bytes": case.cache_bytes,
        "moved_bytes": case.moved_bytes,
        "bound": case.bound,
        # In units of the bound; `allowed` is what counts as right.
        "errors": {name: error if math.isfinite(error) else None for name, error in contest.errors.items()},
        "allowed": contest.allowed,
        "kernels": contest.kernels,  # where a peer has several and says which
        "reasons": contest.reasons,  # why who was not asked
        "times": {name: spread(samples) for name, samples in times.items()},  # seconds of one call
        "limit": (counted or limits)[-1].name(inputs),
        "peaks": {
            "fma": spread([limit.fma for limit in limits]),
            "read": spread([limit.read for limit in limits]),
            "validity": spread([limit.validity for limit in limits]),
        },
        "fraction": spread([limit.seconds(inputs) / time for limit, time in zip(limits, mine)]),
        "ratios": {name: spread([peer / time for peer, time in zip(samples, mine)]) for name, samples in peers.items()}
        if mine
        else {},
        "overhead": spread(overhead),  # time over that of "none"
        "per_tile": spread([ratio * tiles["none"] / tiles["attend"] for ratio in overhead]),  # the same of one flop of tiles
    }
    return result | {"reached": reached.comparisons(result)}
