#!/usr/bin/env python3
"""Measures attend against this machine's limits and against PyTorch where it is installed.

Everything runs in one process, interleaved round by round: limit, contenders, limit, contenders, ..., limit. The limit of a
round is the larger of those measured right before and right after it, and ratios are taken within a round before their median
is. Each result is compared with float64 before it is timed; a wrong one is reported, never timed, and makes the exit status 1.
A case with an option is measured beside "none", attend over the same arrays without it: `--overhead` shows what the option costs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from time import perf_counter, sleep

import numpy as np

import attend
import machine
import report
from cases import Case, all_cases
from contenders import Call, can_call, installed
from inputs import Inputs

README = Path(__file__).resolve().parent.parent / "README.md"


def spread(samples: list[float]) -> dict | None:
    """Median, quartiles and extremes of what is a number among these samples; nothing where none is."""
    samples = [sample for sample in samples if math.isfinite(sample)]
    if not samples:
        return None
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return {"median": middle, "q1": low, "q3": high, "min": min(samples), "max": max(samples), "samples": len(samples)}


def seconds_of(calls: list[Call], repeats: int = 1) -> float:
    """Mean time of one call, over all of them in turn."""
    begin = perf_counter()
    for _ in range(repeats):
        for call in calls:
            call()
    return (perf_counter() - begin) / (repeats * len(calls))


def worst_error(contender, inputs: Inputs, calls: list[Call]) -> float:
    """The largest error of all calls, in units of the bound; NaN counts as infinite."""
    meant = contender.meant(inputs)
    errors = (meant.error(contender.shaped(inputs, call()), cache) for cache, call in enumerate(calls))
    return max(math.inf if math.isnan(error) else error for error in errors)


# Worker threads of whoever ran before may still spin and take a processor from whoever runs next (OpenMP's do, for milliseconds).
SETTLE_SECONDS = 0.02


def measure(case: Case, contenders: list, threads: int, rounds: int, sample_seconds: float) -> dict:
    """All rounds of one case."""
    inputs = Inputs.random(case)
    own, plain = contenders[0], inputs.plain
    asked = {one.name: (one, inputs) for one in contenders}
    if plain:
        asked["none"] = own, plain
    calls = {name: made for name, (one, given) in asked.items() if (made := one.calls(given))}
    errors = {name: worst_error(*asked[name], made) for name, made in calls.items()}
    calls = {name: made for name, made in calls.items() if errors[name] <= 1}
    # The comparison was the first warm-up; the second says how many calls make a sample that the clock resolves.
    repeats = {name: max(1, round(sample_seconds / (seconds_of(made) * len(made)))) for name, made in calls.items()}

    times = {name: [] for name in calls}
    limits = []
    before = machine.Limits.measure(inputs, threads)
    for turn in range(rounds):
        order = list(calls) if turn % 2 == 0 else list(reversed(calls))
        for name in order:
            sleep(SETTLE_SECONDS)
            times[name].append(seconds_of(calls[name], repeats[name]))
        after = machine.Limits.measure(inputs, threads)
        limits.append(before.larger(after))
        before = after

    mine, theirs, without = (times.get(name, []) for name in ("attend", "PyTorch", "none"))
    tiles = {name: own.tiles_flops(given) for name, (one, given) in asked.items() if one is own}
    overhead = [time / none for time, none in zip(mine, without)]
    counted = [limit for limit in limits if math.isfinite(limit.fma)]
    return {
        "case": case.describe(),
        "flops": inputs.flops,
        "tiles_flops": tiles,
        "bytes": case.cache_bytes,
        "bound": case.bound,
        "errors": {name: error if math.isfinite(error) else None for name, error in errors.items()},  # in units of the bound
        "times": {name: spread(samples) for name, samples in times.items()},  # seconds of one call
        "limit": (counted or limits)[-1].name(inputs),
        "peaks": {
            "fma": spread([limit.fma for limit in limits]),
            "read": spread([limit.read for limit in limits]),
            "validity": spread([limit.validity for limit in limits]),
        },
        "fraction": spread([limit.seconds(inputs) / time for limit, time in zip(limits, mine)]),
        "ratio": spread([peer / time for peer, time in zip(theirs, mine)]),
        "overhead": spread(overhead),  # time over that of "none"
        "per_tile": spread([ratio * tiles["none"] / tiles["attend"] for ratio in overhead]),  # the same of one flop of tiles
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures attend against this machine's limits and against PyTorch.")
    parser.add_argument("--quick", action="store_true", help="3 rounds of short samples: a look, no measurement")
    parser.add_argument("--rounds", type=int, help="rounds of each case (default 15)")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only cases whose name or dtype contains TEXT")
    parser.add_argument("--overhead", action="store_true", help="only cases with an option, and what it costs over none")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    parser.add_argument("--threads", type=int, help="threads of all contenders and limits (default: what attend uses)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as Markdown")
    parser.add_argument("--update-readme", action="store_true", help="write the headline rows between the marks in README.md")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="stored", help="show the JSON of an earlier run instead")
    options = parser.parse_args()
    # What would fail after minutes of measuring fails now.
    for name in ("json", "markdown"):
        file = getattr(options, name)
        if file and not file.parent.is_dir():
            parser.error(f"--{name}: expected a file in a folder that exists, got {file}")
    if options.stored and not options.stored.is_file():
        parser.error(f"--from: expected the JSON of an earlier run, got {options.stored}")
    if options.overhead and options.update_readme:
        parser.error("--overhead: expected without --update-readme, whose table has other columns, got both")
    if options.update_readme and not report.has_marks(README):
        parser.error(f"--update-readme: expected {report.BEGIN} and {report.END} in README.md, got a file without them")
    for name in ("rounds", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name}: expected at least 1, got {value}")
    options.rounds = options.rounds or (3 if options.quick else 15)
    options.threads = options.threads or attend.info()["threads"]
    return options


def run(options: argparse.Namespace, cases: list[Case], table: report.Table) -> dict:
    """Measures the cases and prints a row for each as soon as it is there."""
    contenders = installed(options.threads)
    result = {
        "machine": machine.describe(options.threads, contenders),
        "rounds": options.rounds,
        "quick": options.quick,
        "results": [],
    }
    print(report.heading(result, table), flush=True)
    for case in cases:
        one = measure(case, contenders, options.threads, options.rounds, 2e-3 if options.quick else 2e-2)
        result["results"].append(one)
        print("\n".join(report.lines(one, table)), flush=True)
    result["machine"]["limits"] = machine.measure_again(result["machine"]["limits"], options.threads)
    return result


def main() -> int:
    options = arguments()
    cases = [case for case in all_cases() if can_call(case) and options.filter in f"{case.name} {case.dtype}"]
    if options.overhead:
        cases = [case for case in cases if case.plain]
    if options.list:
        print("\n".join(f"{case.name} ({case.dtype})" for case in cases))
        return 0
    if not cases:
        print(f"bench: --filter: expected part of a case's name, got {options.filter!r}", file=sys.stderr)
        return 2
    table = report.OVERHEAD if options.overhead else report.SPEED
    if options.stored:
        result = json.loads(options.stored.read_text())
        if options.overhead:
            result["results"] = [one for one in result["results"] if one.get("overhead")]
            if not result["results"]:
                print(f"bench: --from: expected results of cases beside none, got {options.stored} without any", file=sys.stderr)
                return 2
        print("\n".join([report.heading(result, table), *(line for one in result["results"] for line in report.lines(one, table))]))
    else:
        result = run(options, cases, table)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.markdown:
        text = report.markdown_of_overhead(result) if options.overhead else report.markdown(result)
        options.markdown.write_text(text, encoding="utf-8")
    if options.update_readme:
        report.update_readme(README, result)
    return int(any(one["errors"].keys() - one["times"].keys() for one in result["results"]))


if __name__ == "__main__":
    sys.exit(main())
