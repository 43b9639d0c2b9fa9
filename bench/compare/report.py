"""Results as tables: on a terminal, as Markdown, between the two marks of the README, and as `docs/performance.md`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import dtypes
from .reached import fastest

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def digits(value: float) -> str:
    """Three significant digits without an exponent."""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def milliseconds(statistics: dict | None, which: str = "median") -> str:
    return digits(statistics[which] * 1e3) if statistics else "-"


def quartiles(statistics: dict) -> str:
    return f"{milliseconds(statistics, 'q1')}–{milliseconds(statistics, 'q3')}"


def rate(result: dict) -> str:
    """What the limit is counted in: multiply-adds, or bytes of keys and values."""
    seconds = result["times"]["attend"]["median"]
    if result["limit"] == "read":
        return f"{digits(result['bytes'] / seconds * 1e-9)} GB/s"
    return f"{digits(result['flops'] / seconds * 1e-9)} GF/s"


def short_dtype(result: dict) -> str:
    return dtypes.NAMES[result["case"]["dtype"]]


def ratio(statistics: dict | None) -> str:
    """Median and quartiles."""
    return f"{statistics['median']:.2f} ({statistics['q1']:.2f}–{statistics['q3']:.2f})" if statistics else "-"


def times_fastest(result: dict) -> str:
    """The time of the fastest peer over that of attend, and who that is."""
    best = fastest(result)
    return f"{best[1]['median']:.2f} {best[0]}" if best else "-"


def expected(result: dict) -> str:
    """What the case should reach: of the limit, and against whom."""
    said = result["case"]["expected"]
    parts = [f"{said['of_limit'][result['limit']]:.2f}"] if result["limit"] in said["of_limit"] else []
    parts += [f"{peer} {ratio:g}" for peer, ratio in said["over"].items()]
    if said["of_none"]:
        parts.append(f"none ≤ {said['of_none']:g}")
    if said["seconds"]:
        parts.append(f"≤ {said['seconds'] * 1e6:g} µs")
    return ", ".join(parts) or "-"


def missed(result: dict) -> str:
    """Which of these it does not reach, and which were not measured."""
    short = [one for one in result["reached"] if one["holds"] is False]
    texts = []
    for one in short:
        sign, unit, factor = (">" if one["at_most"] else "<"), "", 1.0
        if one["what"] == "seconds":
            unit, factor = " µs", 1e6
        texts.append(f"{one['what']} {one['reached'] * factor:.2f} {sign} {one['expected'] * factor:g}{unit}")
    texts += [f"{one['what']} not measured" for one in result["reached"] if one["holds"] is None]
    return ", ".join(texts) or ("nothing" if result["reached"] else "-")


def of_the_limit(result: dict) -> str:
    fraction = result["fraction"]
    return f"{fraction['median']:.2f} {result['limit']}" if fraction else "disturbed"


def speed(result: dict) -> list[str]:
    """How fast attend is: against the limit, PyTorch and the fastest peer, beside what was expected."""
    times = result["times"]
    return [
        milliseconds(times["attend"]),
        quartiles(times["attend"]),
        rate(result),
        of_the_limit(result),
        ratio(result["ratios"].get("PyTorch")),
        times_fastest(result),
        expected(result),
    ]


def overhead(result: dict) -> list[str]:
    """What the option of a case costs: against none, as a whole and for a tile that is visited."""
    times = result["times"]
    tiles = result["tiles_flops"]
    return [
        milliseconds(times["attend"]),
        milliseconds(times.get("none")),
        ratio(result["overhead"]),
        f"{tiles['attend'] / tiles['none']:.3f}",
        ratio(result["per_tile"]),
    ]


@dataclass(frozen=True)
class Table:
    """One way to show results: beside the work and its type, columns with their widths, and what stands in them."""

    columns: tuple[tuple[str, int], ...]
    values: Callable[[dict], list[str]]

    def headings(self) -> list[str]:
        return ["work", "dtype", *(title for title, _ in self.columns)]

    def cells(self, result: dict) -> list[str]:
        """One row."""
        timed = result["times"].get("attend")
        return [result["case"]["name"], short_dtype(result), *(self.values(result) if timed else ["-"] * len(self.columns))]

    def row(self, values: list[str]) -> str:
        """One line on the terminal."""
        work, dtype, *numbers = values
        aligned = (f"{value:>{width}}" for value, (_, width) in zip(numbers, self.columns, strict=True))
        return "  ".join([f"{work:<42}", f"{dtype:<5}", *aligned]).rstrip()


SPEED = Table(
    (
        ("attend, ms", 11),
        ("quartiles, ms", 19),
        ("rate", 11),
        ("of the limit", 16),
        ("times PyTorch", 18),
        ("times the fastest peer", 22),
        ("expected", 34),
    ),
    speed,
)
OVERHEAD = Table(
    (("attend, ms", 11), ("none, ms", 11), ("times none", 18), ("tiles of none", 13), ("times none, per tile", 20)), overhead
)


def lines(result: dict, table: Table) -> list[str]:
    """One result on the terminal: its row, and who was wrong."""
    wrong = result["errors"].keys() - result["times"].keys()
    errors = {name: "not finite" if result["errors"][name] is None else f"{result['errors'][name]:.3g}" for name in sorted(wrong)}
    notes = [f"  wrong, not timed: {name}, error {error} times the bound" for name, error in errors.items()]
    return [table.row(table.cells(result)), *notes]


def summary(report: dict) -> str:
    """What the figures hold for: machine, versions, limits, rounds."""
    machine, rounds = report["machine"], report["rounds"]
    limits, versions = machine["limits"], machine["versions"]
    peers = "".join(f", {name} {version}" for name, version in versions.items() if name not in ("attend", "python", "numpy"))
    units = {"float32": "fma_f32", "float64": "fma_f64", "dpbf16": "dpbf16", "amx_bf16": "amx_bf16"}
    rates = "".join(f"{limits[unit] * 1e-9:.0f} GF/s {name}, " for name, unit in units.items() if limits.get(unit))
    missing = "".join(f"; {name}: {reason}" for name, reason in machine.get("missing", {}).items())
    return (
        f"{machine['processor']}, {limits['isa']}, {machine['threads']} threads at {limits['clock'] * 1e-9:.1f} GHz; "
        f"limits {rates}{limits['read'] * 1e-9:.0f} GB/s read; attend {versions['attend']}{peers}; "
        f"medians of {rounds} {'round' if rounds == 1 else 'rounds'}{missing}"
    )


def heading(report: dict, table: Table) -> str:
    """What stands above the rows on the terminal."""
    return f"{summary(report)}\n{table.row(table.headings())}"


def markdown_of_overhead(report: dict) -> str:
    """What options cost as a Markdown table, followed by what the figures hold for."""
    rows = [OVERHEAD.headings(), ["---", "---", *["--:"] * len(OVERHEAD.columns)]]
    rows += [OVERHEAD.cells(result) for result in report["results"]]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", f"{summary(report)}.", ""])


def table_of(headings: list[str], rows: list[list[str]], words: int = 2) -> list[str]:
    """Lines of a Markdown table; the first `words` columns are aligned to the left."""
    marks = ["---"] * words + ["--:"] * (len(headings) - words)
    return [f"| {' | '.join(headings)} |", f"|{'|'.join(marks)}|", *(f"| {' | '.join(row)} |" for row in rows)]


def without_quartiles(text: str) -> str:
    return text.partition(" (")[0]


def markdown(report: dict, headline_only: bool = False) -> str:
    """The results as a Markdown table, followed by what they hold for."""
    rows = []
    for result in in_the_table(report):
        if headline_only and not result["case"]["headline"] or not result["times"].get("attend"):
            continue
        name, dtype, time, _, rate, fraction, times_peer, times_best, wanted = SPEED.cells(result)
        rows.append([name, dtype, time, rate, fraction, wanted, without_quartiles(times_peer), times_best])
    headings = ["work", "dtype", "ms", "rate", "of the limit", "expected", "× PyTorch", "× fastest peer"]
    return "\n".join([*table_of(headings, rows), "", f"{summary(report)}.", ""])


def in_the_table(report: dict) -> list[dict]:
    """All results but those that are points of curves."""
    return [result for result in report["results"] if not result["case"].get("sweep")]


def of_every_peer(report: dict) -> list[str]:
    """Milliseconds of every contender as a Markdown table."""
    versions, missing = report["machine"]["versions"], report["machine"].get("missing", {})
    peers = [name for name in versions if name not in ("attend", "python", "numpy")] + list(missing)
    rows = []
    for result in in_the_table(report):
        times = result["times"]
        cells = [
            "not installed" if missing.get(name, "").startswith("not installed") else milliseconds(times.get(name))
            for name in peers
        ]
        wrong = [name in result["errors"] and name not in times for name in peers]
        cells = ["wrong" if bad else cell.replace("-", "–") for cell, bad in zip(cells, wrong, strict=True)]
        rows.append([result["case"]["name"], short_dtype(result), milliseconds(times.get("attend")), *cells])
    return table_of(["work", "dtype", "attend", *peers], rows)


def of_what_was_expected(report: dict) -> list[str]:
    """Expected beside reached for every case of which something was, as a Markdown table."""
    rows = []
    for result in in_the_table(report):
        if expected(result) == "-" or not result["times"].get("attend"):
            continue
        by = {one["what"]: one for one in result["reached"]}
        name, dtype, time, _, _, fraction, times_peer, times_best, wanted = SPEED.cells(result)
        none = f"{by['none']['reached']:.2f}" if by.get("none", {}).get("reached") else "–"
        rows.append([name, dtype, time, fraction, without_quartiles(times_peer), times_best, none, wanted, missed(result)])
    headings = ["work", "dtype", "ms", "of the limit", "× PyTorch", "× fastest peer", "× none", "expected", "short of"]
    return table_of(headings, rows)


DOCUMENT = """\
# Performance

Written by `./dev bench --update-docs`; `attend bench` measures the same on your machine.

{summary}.

Every figure is a median of rounds interleaved in one process: limit, everybody, limit. A limit is the multiply-add peak of a type
(`fma_f32`, `fma_f64`, `dpbf16`, `amx_bf16`) or, for decoding with cold keys and values, what takes longer of products and reading
(`read`). Ratios are the time of a peer over that of attend within a round. Each result was compared with float64 before it was
timed; errors, and why a peer was not asked, stand in the JSON. Decoding goes through more than 1 GiB of caches in turn.

## Expected and reached

`expected` was fixed before anything was measured: the fraction of the limit, then the least ratio to each peer named; `none` is the
same call without its option, and its ratio a most. `short of` is what was not reached.

{expected}

## Milliseconds of everybody

– : no call of this peer for the case; `wrong`: a result that is not within its bound, so that it was not timed.

{everybody}

## Pictures

{pictures}
"""


def document(report: dict, pictures: list[tuple[str, str]]) -> str:
    """`docs/performance.md`; pictures are pairs of a title and an address."""
    return DOCUMENT.format(
        summary=summary(report),
        expected="\n".join(of_what_was_expected(report)),
        everybody="\n".join(of_every_peer(report)),
        pictures="\n\n".join(f"![{title}]({address})" for title, address in pictures),
    )


def has_marks(path: Path) -> bool:
    """Whether the file has the part that `update_readme` replaces."""
    return END in path.read_text(encoding="utf-8").partition(BEGIN)[2]


def update_readme(path: Path, report: dict) -> None:
    """Replaces the part of the README between the marks by the headline rows."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{markdown(report, headline_only=True)}{END}{after}", encoding="utf-8")
