"""The command: options, cases, and where results go. A wrong result of attend makes the exit status 1, wrong usage 2."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import attend

from . import dtypes, machine, plots, report
from .case import Case
from .cases import all_cases
from .measure import measure
from .peers import ADAPTERS, load
from .peers.attend import Attend

README, DOCUMENT, PICTURES = Path("README.md"), Path("docs/performance.md"), Path("docs/performance")
EPILOG = """peers: {}. Those that are not installed are named and left out; pip install 'attend[bench]' installs all. Results
are compared with float64 before they are timed. --update-readme and --update-docs belong to the sources of attend and are
given in their folder."""


class Parser(argparse.ArgumentParser):
    """One whose errors are one line, as those of the whole command are."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def parser() -> Parser:
    made = Parser(
        prog="attend bench",
        description="Measures attend against this machine's limits and against its peers, interleaved in one process.",
        epilog=EPILOG.format(", ".join(ADAPTERS)),
    )
    made.add_argument("--quick", action="store_true", help="3 rounds of short samples: a look, no measurement")
    made.add_argument("--rounds", type=int, help="rounds of each case (default 15)")
    made.add_argument("--filter", default="", metavar="TEXT", help="only cases whose name or dtype contains TEXT")
    made.add_argument("--overhead", action="store_true", help="only cases with an option, and what it costs over none")
    made.add_argument("--peers", metavar="A,B,...", help="whom to measure beside attend (default: all; none: nobody)")
    made.add_argument("--sweep", action="store_true", help="also the points of time over L; --update-docs has them anyway")
    made.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    made.add_argument("--threads", type=int, help="threads of all contenders and limits (default: what attend uses)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    made.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as Markdown")
    made.add_argument("--plots", type=Path, metavar="DIR", help="write pictures: roofline, time over L (with --sweep), peers")
    made.add_argument("--plot-format", choices=plots.FORMATS, default="svg", help="of --plots (default svg)")
    made.add_argument("--update-readme", action="store_true", help="write the headline rows between the marks in README.md")
    made.add_argument("--update-docs", action="store_true", help="write docs/performance.md and its pictures")
    made.add_argument("--from", type=Path, metavar="FILE", dest="stored", help="show the JSON of an earlier run instead")
    return made


def arguments(words: list[str] | None) -> argparse.Namespace:
    """The options, checked: what would fail after minutes of measuring fails now."""
    made = parser()
    options = made.parse_args(words)
    for name in ("json", "markdown"):
        file = getattr(options, name)
        if file and not file.parent.is_dir():
            made.error(f"--{name}: expected a file in a folder that exists, got {file}")
    if options.plots and not options.plots.is_dir():
        made.error(f"--plots: expected a folder that exists, got {options.plots}")
    if options.stored and not options.stored.is_file():
        made.error(f"--from: expected the JSON of an earlier run, got {options.stored}")
    if options.overhead and (options.update_readme or options.update_docs):
        made.error("--overhead: expected without --update-readme and --update-docs, whose tables have other columns")
    if options.update_readme and not (README.is_file() and report.has_marks(README)):
        made.error(f"--update-readme: expected {report.BEGIN} and {report.END} in README.md of this folder, got none")
    if options.update_docs and not DOCUMENT.parent.is_dir():
        made.error(f"--update-docs: expected the folder of attend's sources, got one without {DOCUMENT.parent}")
    if (options.plots or options.update_docs) and find_spec("matplotlib") is None:
        made.error(
            f"{'--plots' if options.plots else '--update-docs'}: expected matplotlib (pip install 'attend[bench]'), got none"
        )
    for name in ("rounds", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            made.error(f"--{name}: expected at least 1, got {value}")
    options.peers = list(ADAPTERS) if options.peers is None else [] if options.peers == "none" else options.peers.split(",")
    for peer in options.peers:
        if peer not in ADAPTERS:
            made.error(f"--peers: expected some of {','.join(ADAPTERS)}, or none, got {peer!r}")
    options.rounds = options.rounds or (3 if options.quick else 15)
    options.threads = options.threads or attend.info()["threads"]
    return options


def why_not(case: Case) -> str | None:
    """Why the arrays of this case cannot be made here."""
    if case.arrays == "torch" and find_spec("torch") is None:
        return "torch is not installed"
    return None if dtypes.can_make(case.dtype) else "ml_dtypes is not installed"


def chosen(options: argparse.Namespace) -> list[Case]:
    cases = [case for case in all_cases() if options.filter in f"{case.name} {case.dtype}"]
    if options.overhead:
        cases = [case for case in cases if case.plain]
    if not (options.sweep or options.plots or options.update_docs or "sweep" in options.filter):
        cases = [case for case in cases if not case.sweep]
    return cases


def run(options: argparse.Namespace, cases: list[Case], table: report.Table) -> dict:
    """Measures the cases and prints a row for each as soon as it is there."""
    peers, missing = load(options.peers, options.threads)
    contenders = [Attend(options.threads), *peers]
    result = {
        "machine": machine.describe(options.threads, contenders, missing),
        "rounds": options.rounds,
        "quick": options.quick,
        "results": [],
        "left_out": {},
    }
    print(report.heading(result, table), flush=True)
    for case in cases:
        if reason := why_not(case):
            result["left_out"][f"{case.name} ({case.dtype})"] = reason
            print(f"{case.name} ({case.dtype}): left out, {reason}", flush=True)
            continue
        one = measure(case, contenders, options.threads, options.rounds, 2e-3 if options.quick else 2e-2)
        result["results"].append(one)
        print("\n".join(report.lines(one, table)), flush=True)
    result["machine"]["limits"] = machine.measure_again(result["machine"]["limits"], options.threads)
    return result


def stored(options: argparse.Namespace, table: report.Table) -> dict | None:
    """The results of an earlier run, printed; nothing where they have none for the table."""
    result = json.loads(options.stored.read_text())
    if options.overhead:
        result["results"] = [one for one in result["results"] if one.get("overhead")]
        if not result["results"]:
            print(f"attend bench: --from: expected results of cases beside none, got {options.stored} without any", file=sys.stderr)
            return None
    print("\n".join([report.heading(result, table), *(line for one in result["results"] for line in report.lines(one, table))]))
    return result


def write(options: argparse.Namespace, result: dict) -> None:
    """Everything that was asked for beside the table on the terminal."""
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.markdown:
        text = report.markdown_of_overhead(result) if options.overhead else report.markdown(result)
        options.markdown.write_text(text, encoding="utf-8")
    if options.plots:
        plots.draw(result, options.plots, options.plot_format)
    if options.update_readme:
        report.update_readme(README, result)
    if options.update_docs:
        PICTURES.mkdir(exist_ok=True)
        files = plots.draw(result, PICTURES)
        titled = list(zip(plots.TITLES.values(), (f"performance/{file.name}" for file in files), strict=True))
        DOCUMENT.write_text(report.document(result, titled), encoding="utf-8")


def main(words: list[str] | None = None) -> int:
    options = arguments(words)
    cases = chosen(options)
    if options.list:
        print("\n".join(f"{case.name} ({case.dtype})" for case in cases))
        return 0
    if not cases:
        print(f"attend bench: --filter: expected part of a case's name, got {options.filter!r}", file=sys.stderr)
        return 2
    table = report.OVERHEAD if options.overhead else report.SPEED
    try:
        result = stored(options, table) if options.stored else run(options, cases, table)
    except KeyboardInterrupt:
        print("attend bench: interrupted", file=sys.stderr)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)  # whoever started this learns that it was ended, not that it failed
    if result is None:
        return 2
    write(options, result)
    wrong = (one["errors"].keys() - one["times"].keys() for one in result["results"])
    return int(any(names & {"attend", "none"} for names in wrong))
