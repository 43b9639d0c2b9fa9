#!/usr/bin/env python3
"""The ladder in Python: ten steps from a fully connected layer to multi-head attention.

    python ladder.py            # all steps; exit code 1 where a difference is over its bound
    python ladder.py 2 6        # these steps

Each step is a function in `python`, its docstring the formula. It yields comparisons and lines of text. What stands under
`attend` comes from `attend.attention`, what stands under `NumPy` from plain sums; a few lines claim a size instead, such as 1
for "nearly all". The steps and their random numbers are those of the C++ programs beside this file. `./dev build` makes the
package.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "python"))

from steps_1_to_5 import any_region, convolution, fully_connected, general_form, vectors
from steps_6_to_10 import causal_self_attention, common_form, many_heads, masks, matrix_form

STEPS = (fully_connected, convolution, vectors, any_region, general_form,
         common_form, matrix_form, masks, causal_self_attention, many_heads)


def report(step):
    """Prints a step's lines: how many numbers, the pair that differs most, by how much, and the largest part of a bound that a
    difference takes. Returns how many comparisons failed."""
    print(f"{step.__doc__.splitlines()[0]}\n")
    print(f"  {'':<46} {'numbers':>7} {'attend':>14} {'NumPy':>14} {'largest difference':>18} {'of bound':>9}")
    failed = 0
    for line in step():
        if isinstance(line, str):
            print(f"  {line}")
            continue
        failed += not line.holds()
        if not line.comparable():
            print(f"  {line.name:<46} expected the shape {np.shape(line.plain)}, got {np.shape(line.attend)}")
            continue
        difference = line.difference()
        at = np.unravel_index(difference.argmax(), difference.shape)
        pair = f"{np.asarray(line.attend)[at]:>14.7g} {np.asarray(line.plain)[at]:>14.7g}"
        if line.bound is None:
            part = "same bits" if line.holds() else "OTHER BITS"
        else:
            part = f"{100 * line.part():7.2g} %{'' if line.holds() else '  TOO LARGE'}"
        print(f"  {line.name:<46} {difference.size:>7} {pair} {difference[at]:>18.2g} {part}")
    print()
    return failed


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", nargs="*", type=int, help="from 1 to 10; default: all")
    chosen = parser.parse_args(arguments).step or range(1, len(STEPS) + 1)
    for number in chosen:
        if not 1 <= number <= len(STEPS):
            parser.error(f"step: expected a number from 1 to {len(STEPS)}, got {number}")
    failed = sum(report(STEPS[number - 1]) for number in chosen)
    if failed:
        print(f"ladder: expected every difference within its bound, got {failed} that are not", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
