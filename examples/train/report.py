"""What a training ends with: a table, and a picture of the curves."""

import statistics

from .comparison import block_seconds
from .run import label

SMOOTH = 0.95  # of a curve in the picture
STYLES = ({"color": "tab:orange", "linestyle": "--"}, {"color": "tab:blue"}, {"color": "0.75"})


def table(head, rows):
    """Lines of text: the first column to the left, the others to the right."""
    rows = [head, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
                     for row in rows)


def results(task, runs):
    """Losses, measures and times of each run."""
    last = max(1, len(runs[0].losses) // 20)
    rows = [[f"loss of the last {last} steps, {task.unit}", *(f"{statistics.fmean(run.losses[-last:]):.4f}" for run in runs)]]
    rows.append([f"loss held out, {task.unit}", *(f"{run.held_out().mean().item():.4f}" for run in runs)])
    measures = [run.measures() for run in runs]
    rows += [[name, *(its[name] for its in measures)] for name in measures[0]]
    rows.append(["ms a step, median", *(f"{1e3 * statistics.median(block_seconds(run)):.3g}" for run in runs)])
    return table(["", *(label(run, runs) for run in runs)], rows)


def verdicts(checks):
    """Each check of comparison.py, and whether it holds."""
    rows = [[check.name, f"{check.value:.2g}", f"{check.bound:.2g}", check.source, "holds" if check.holds() else "TOO FAR"]
            for check in checks]
    return table(["attend to PyTorch", "difference", "at most", "from", ""], rows)


def smooth(losses):
    """An exponential mean that begins without a bias to 0."""
    mean, weight, curve = 0.0, 0.0, []
    for loss in losses:
        mean, weight = SMOOTH * mean + (1 - SMOOTH) * loss, SMOOTH * weight + 1 - SMOOTH
        curve.append(mean / weight)
    return curve


def plot(task, runs, path):
    """The curves over steps on one side, over seconds on the other; the suffix of the path says which format."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogFormatter

    figure, (by_step, by_time) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for run, style in reversed(list(zip(runs, STYLES))):  # the first one above the others
        curve = smooth(run.losses)
        by_step.plot(range(1, len(curve) + 1), curve, label=label(run, runs), linewidth=1.5, **style)
        elapsed, clock = 0.0, []
        for seconds in run.seconds:
            elapsed += seconds
            clock.append(elapsed)
        by_time.plot(clock, curve, linewidth=1.5, **style)
    by_step.set(title=f"{task.title}: loss by steps", xlabel="steps", ylabel=task.unit, yscale="log")
    by_time.set(title="and by the time they took", xlabel="seconds", yscale="log")
    for axis in (by_step.yaxis, by_time.yaxis):
        axis.set_major_formatter(LogFormatter())
        axis.set_minor_formatter(LogFormatter())
    by_step.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
