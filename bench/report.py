"""Results as a table on a terminal, as Markdown, and as the part of the README between its two marks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    return result["case"]["dtype"].replace("float", "f")


def ratio(statistics: dict | None) -> str:
    """Median and quartiles."""
    return f"{statistics['median']:.2f} ({statistics['q1']:.2f}–{statistics['q3']:.2f})" if statistics else "-"


def speed(result: dict) -> list[str]:
    """How fast attend is: against the limit and against PyTorch."""
    times, fraction = result["times"], result["fraction"]
    return [
        milliseconds(times["attend"]),
        quartiles(times["attend"]),
        rate(result),
        f"{fraction['median']:.2f} {result['limit']}" if fraction else "disturbed",
        milliseconds(times.get("PyTorch")),
        ratio(result["ratio"]),
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
    (("attend, ms", 11), ("quartiles, ms", 19), ("rate", 11), ("of the limit", 16), ("PyTorch, ms", 12), ("times PyTorch", 18)),
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
    peers = "".join(f", {name} {version}" for name, version in versions.items() if name == "PyTorch")
    return (
        f"{machine['processor']}, {limits['isa']}, {machine['threads']} threads at {limits['clock'] * 1e-9:.1f} GHz; "
        f"limits {limits['fma_f32'] * 1e-9:.0f} GF/s float32, {limits['fma_f64'] * 1e-9:.0f} GF/s float64, "
        f"{limits['read'] * 1e-9:.0f} GB/s read; attend {versions['attend']}{peers}; medians of {rounds} {'round' if rounds == 1 else 'rounds'}"
    )


def heading(report: dict, table: Table) -> str:
    """What stands above the rows on the terminal."""
    return f"{summary(report)}\n{table.row(table.headings())}"


def markdown_of_overhead(report: dict) -> str:
    """What options cost as a Markdown table, followed by what the figures hold for."""
    rows = [OVERHEAD.headings(), ["---", "---", *["--:"] * len(OVERHEAD.columns)]]
    rows += [OVERHEAD.cells(result) for result in report["results"]]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", f"{summary(report)}.", ""])


def markdown(report: dict, headline_only: bool = False) -> str:
    """The results as a Markdown table, followed by what they hold for."""
    text = ["| work | dtype | ms | rate | of the limit | × PyTorch |", "|---|---|--:|--:|--:|--:|"]
    for result in report["results"]:
        if headline_only and not result["case"]["headline"] or not result["times"].get("attend"):
            continue
        name, dtype, time, _, rate, fraction, _, times_peer = SPEED.cells(result)
        text.append(f"| {name} | {dtype} | {time} | {rate} | {fraction} | {times_peer.partition(' ')[0]} |")
    return "\n".join([*text, "", f"{summary(report)}.", ""])


def has_marks(path: Path) -> bool:
    """Whether the file has the part that `update_readme` replaces."""
    return END in path.read_text(encoding="utf-8").partition(BEGIN)[2]


def update_readme(path: Path, report: dict) -> None:
    """Replaces the part of the README between the marks by the headline rows."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{markdown(report, headline_only=True)}{END}{after}", encoding="utf-8")
