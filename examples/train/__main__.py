"""Trains a small model through attend, and the same one through PyTorch's attention; ends in 1 where they differ by more than noise."""

import argparse
import importlib
import pathlib
import sys

import torch

import attend

from . import comparison, report
from .run import Run, train

TASKS = {"digits": ("digits", "Digits"), "language": ("language", "Language"), "filter": ("filters", "Filter")}
PLOTS = pathlib.Path("build/train")


def whole(least, most=2**31 - 1):
    """A parser of whole numbers."""
    def number(text):
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, got {text}")
        return int(text)

    return number


def picture(text):
    """A parser of file names: a wrong one should not be found after the training."""
    if not text.endswith((".png", ".svg", ".pdf")):
        raise argparse.ArgumentTypeError(f"expected the name of a picture (.png, .svg, .pdf), got {text}")
    return pathlib.Path(text)


def arguments(argv):
    parser = argparse.ArgumentParser(prog="./dev train", description=__doc__)
    parser.add_argument("task", nargs="?", choices=TASKS, default="digits", help="default: digits")
    parser.add_argument("--steps", type=whole(1), help="of each training; default: what the task needs")
    parser.add_argument("--only", choices=("attend", "pytorch"), help="one training instead of three, and nothing to compare")
    parser.add_argument("--seed", type=whole(0), default=0, help="of weights and batches; default: 0")
    parser.add_argument("--threads", type=whole(1, 1024), default=torch.get_num_threads(),
                        help="of attend and of PyTorch; default: those of PyTorch, %(default)s here")
    parser.add_argument("--plot", type=picture, metavar="FILE", help=f"the curves, as .png, .svg or .pdf; default: {PLOTS}/TASK.png")
    return parser.parse_args(argv)


def main(argv=None):
    """0, or 1 where a check of comparison.py does not hold."""
    args = arguments(argv)
    torch.set_num_threads(args.threads)
    attend.set_num_threads(args.threads)
    module, name = TASKS[args.task]
    task = getattr(importlib.import_module(f"{__package__}.{module}"), name)()
    steps = args.steps or task.steps

    if args.only:
        runs = [Run(task, {"attend": "attend", "pytorch": "PyTorch"}[args.only], args.seed, steps)]
    else:
        trainings = (("attend", args.seed), ("PyTorch", args.seed), ("PyTorch", args.seed + 1))
        runs = [Run(task, name, seed, steps) for name, seed in trainings]
    first = {key: tensor.detach().clone() for key, tensor in runs[0].weights.items()}
    parameters = sum(tensor.numel() for tensor in first.values())
    print(f"{task.title}: {parameters} parameters, {steps} steps, seed {args.seed}, {args.threads} threads\n", flush=True)
    train(runs)

    print(report.results(task, runs))
    print("", *runs[0].notes(), sep="\n")
    plot = args.plot or PLOTS / f"{args.task}.png"
    report.plot(task, runs, plot)
    print(f"\nplot: {plot}")
    if args.only:
        return 0
    checks = comparison.checks(task, *runs, first)
    low, middle, high = comparison.speed(*runs[:2])
    print("", report.verdicts(checks), sep="\n")
    print(f"\na step through attend is {middle:.2f} times as fast (quartiles {low:.2f} to {high:.2f})")
    return 0 if all(check.holds() for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
