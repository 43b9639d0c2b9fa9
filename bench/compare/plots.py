"""Results as pictures: a roofline, time over L, and how much faster attend is than each peer. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from . import dtypes
from .report import in_the_table

LINES = {"fma_f32": "float32", "fma_f64": "float64", "dpbf16": "dpbf16", "amx_bf16": "AMX bfloat16"}
TITLES = {"roofline": "Roofline", "time_over_l": "Time over L", "speed_up": "Times the time of attend"}
FORMATS = ("svg", "png")


def names_of(report: dict) -> list[str]:
    """attend and its peers, in the order that gives everybody the same colour in every picture."""
    return ["attend", *(name for name in report["machine"]["versions"] if name not in ("attend", "python", "numpy"))]


def colours(report: dict) -> dict[str, str]:
    every = ["#111111", *(f"C{i}" for i in range(10))]
    return dict(zip(names_of(report), every, strict=False))


def roofline(report: dict, axes) -> None:
    """Flops a second over flops a byte, below what the machine can do."""
    import numpy as np

    limits = report["machine"]["limits"]
    intensity = np.logspace(-1, 4, 400)
    for unit, name in LINES.items():
        if limits.get(unit):
            axes.plot(intensity, np.minimum(limits[unit], intensity * limits["read"]) * 1e-9, label=name, linewidth=1)
    marks = dict(zip(dtypes.NAMES, "os^v", strict=True))
    for dtype, mark in marks.items():
        done = [
            one for one in in_the_table(report) if one["case"]["dtype"] == dtype and one["times"].get("attend") and one["flops"]
        ]
        if done:
            x = [one["flops"] / one["moved_bytes"] for one in done]
            y = [one["flops"] / one["times"]["attend"]["median"] * 1e-9 for one in done]
            axes.scatter(x, y, marker=mark, s=18, label=f"attend, {dtype}", zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="flops per byte of q, k, v and result", ylabel="GF/s")
    axes.legend(fontsize=7)


def time_over_l(report: dict, axes) -> None:
    """Milliseconds of everybody over L, full and causal."""
    colour = colours(report)
    for pane, causal in zip(axes, (False, True), strict=True):
        points = [one for one in report["results"] if one["case"].get("sweep") and one["case"]["causal"] is causal]
        for name in names_of(report):
            timed = [(one["case"]["q"][2], one["times"][name]["median"] * 1e3) for one in points if one["times"].get(name)]
            if timed:
                pane.plot(*zip(*sorted(timed), strict=True), marker=".", label=name, color=colour[name])
        pane.set(xscale="log", yscale="log", xlabel="L = S", ylabel="ms", title="causal" if causal else "full")
        pane.set_xscale("log", base=2)
    named = {label: handle for pane in axes for handle, label in zip(*pane.get_legend_handles_labels(), strict=True)}
    if named:
        axes[0].legend(named.values(), named.keys(), fontsize=7)


def with_peers(report: dict) -> list[dict]:
    """The headline cases that a peer was timed in."""
    return [one for one in in_the_table(report) if one["case"]["headline"] and any(one["ratios"].values())]


def speed_up(report: dict, axes) -> None:
    """Bars of ratios, one group for each case; 1 is attend."""
    cases, colour = with_peers(report), colours(report)
    peers = names_of(report)[1:]
    height = 0.85 / max(1, len(peers))
    for position, peer in enumerate(peers):
        at = [(row, one["ratios"][peer]["median"]) for row, one in enumerate(cases) if one["ratios"].get(peer)]
        if at:
            rows, values = zip(*at, strict=True)
            axes.barh([row + (position + 0.5) * height - 0.425 for row in rows], values, height, label=peer, color=colour[peer])
    axes.set_yticks(
        range(len(cases)), [f"{one['case']['name']} ({dtypes.NAMES[one['case']['dtype']]})" for one in cases], fontsize=7
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} ×")
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    if cases:
        axes.legend(fontsize=7)


def draw(report: dict, folder: Path, kind: str = "svg") -> list[Path]:
    """Writes the pictures and returns their files."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "attend"  # the same results are the same bytes
    from matplotlib import pyplot

    files = []
    for name, title in TITLES.items():
        if name == "time_over_l":
            figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
            time_over_l(report, axes)
        elif name == "roofline":
            figure, axes = pyplot.subplots(figsize=(8, 5))
            roofline(report, axes)
        else:
            figure, axes = pyplot.subplots(figsize=(9, 2 + 0.7 * len(with_peers(report))))
            speed_up(report, axes)
        figure.suptitle(title)
        figure.tight_layout()
        files.append(folder / f"{name}.{kind}")
        figure.savefig(files[-1], metadata={"Date": None} if kind == "svg" else None)
        pyplot.close(figure)
    return files
