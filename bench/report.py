"""Results as a table on a terminal, as Markdown, and as the part of the README between its two marks."""

from __future__ import annotations

from pathlib import Path

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

COLUMNS = (  # heading, width; a negative width aligns left
    ("work", -42),
    ("dtype", -5),
    ("attend, ms", 11),
    ("quartiles, ms", 19),
    ("rate", 11),
    ("of the limit", 16),
    ("PyTorch, ms", 12),
    ("times PyTorch", 18),
)


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


def cells(result: dict) -> list[str]:
    """One row of the table."""
    times, fraction, ratio = result["times"], result["fraction"], result["ratio"]
    if not times.get("attend"):
        return [result["case"]["name"], short_dtype(result), *["-"] * (len(COLUMNS) - 2)]
    return [
        result["case"]["name"],
        short_dtype(result),
        milliseconds(times["attend"]),
        quartiles(times["attend"]),
        rate(result),
        f"{fraction['median']:.2f} {result['limit']}" if fraction else "disturbed",
        milliseconds(times.get("PyTorch")),
        f"{ratio['median']:.2f} ({ratio['q1']:.2f}–{ratio['q3']:.2f})" if ratio else "-",
    ]


def row(values) -> str:
    """One line of the terminal's table."""
    return "  ".join(
        f"{value:<{-width}}" if width < 0 else f"{value:>{width}}" for value, (_, width) in zip(values, COLUMNS, strict=True)
    ).rstrip()


def lines(result: dict) -> list[str]:
    """One result on the terminal: its row, and who was wrong."""
    wrong = result["errors"].keys() - result["times"].keys()
    errors = {name: "not finite" if result["errors"][name] is None else f"{result['errors'][name]:.3g}" for name in sorted(wrong)}
    notes = [f"  wrong, not timed: {name}, error {error} times the bound" for name, error in errors.items()]
    return [row(cells(result)), *notes]


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


def heading(report: dict) -> str:
    """What stands above the rows on the terminal."""
    return f"{summary(report)}\n{row([title for title, _ in COLUMNS])}"


def markdown(report: dict, headline_only: bool = False) -> str:
    """The results as a Markdown table, followed by what they hold for."""
    text = ["| work | dtype | ms | rate | of the limit | × PyTorch |", "|---|---|--:|--:|--:|--:|"]
    for result in report["results"]:
        if headline_only and not result["case"]["headline"] or not result["times"].get("attend"):
            continue
        name, dtype, time, _, speed, fraction, _, ratio = cells(result)
        text.append(f"| {name} | {dtype} | {time} | {speed} | {fraction} | {ratio.partition(' ')[0]} |")
    return "\n".join([*text, "", f"{summary(report)}.", ""])


def has_marks(path: Path) -> bool:
    """Whether the file has the part that `update_readme` replaces."""
    return END in path.read_text(encoding="utf-8").partition(BEGIN)[2]


def update_readme(path: Path, report: dict) -> None:
    """Replaces the part of the README between the marks by the headline rows."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{markdown(report, headline_only=True)}{END}{after}", encoding="utf-8")
