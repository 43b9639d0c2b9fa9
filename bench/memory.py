#!/usr/bin/env python3
"""What a forward and backward call holds beside its arguments and results: the table of docs/training.md.

    python bench/memory.py [--lengths 1024,4096,16384] [--update-docs docs/training.md]

Each call runs in a process of its own, whose largest resident memory is set back right before it (Linux: /proc/self/clear_refs). Arguments and the
memory of results are there by then; what the call adds above that is what it holds.
"""

import argparse
import pathlib
import subprocess
import sys

import numpy as np

HEADS, WIDTH = 4, 64
BEGIN, END = "<!-- memory: begin -->", "<!-- memory: end -->"
WORK = {"causal": {"causal": True}, "window of 256": {"window": (255, 0)}, "causal, ALiBi": {"causal": True, "alibi": True}}


def resident(field):
    """MiB that this process holds now (VmRSS), or held at most (VmHWM)."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def arrays(length):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, HEADS, length, WIDTH), np.float32) for _ in range(4)]


def attend_call(length, options):
    import attend

    q, k, v, dout = arrays(length)

    def call():
        out, lse = attend.attention(q, k, v, return_lse=True, **options)
        return out, attend.attention_backward(dout, q, k, v, out, lse, **options)

    return call


def torch_call(length, options):
    """PyTorch's own function, whose only way to say a window or ALiBi is a dense mask or bias."""
    import torch

    q, k, v, dout = (torch.from_numpy(array) for array in arrays(length))
    for one in (q, k, v):
        one.requires_grad_()

    def call():
        mask = None
        at = torch.arange(length)
        if "window" in options:
            mask = (at <= at[:, None]) & (at >= at[:, None] - options["window"][0])
        if "alibi" in options:
            slopes = 2.0 ** (-8 * torch.arange(1, HEADS + 1) / HEADS)
            mask = -slopes[:, None, None] * (at[:, None] - at).abs()
            mask.masked_fill_(at > at[:, None], -torch.inf)
            mask = mask[None]
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
        return out, torch.autograd.grad(out, (q, k, v), dout)

    return call


CALLS = {"attend": attend_call, "PyTorch": torch_call}


def measure(who, length, work):
    """MiB of one call above what was there; its results, which are 4 arrays of this size, are no part of it."""
    call = CALLS[who](length, WORK[work])
    CALLS[who](16, WORK[work])()  # what the library loads and starts once
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    results = call()
    held = resident("VmHWM") - before - 4 * HEADS * length * WIDTH * 4 / 2**20
    assert results is not None
    return max(0.0, held)


def in_its_own_process(who, length, work):
    line = [sys.executable, __file__, "--measure", f"{who};{length};{work}"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return float(done.stdout)


def table(lengths):
    lines = [f"| {HEADS} heads, E {WIDTH}, float32 | " + " | ".join(f"L {length}" for length in lengths) + " |",
             "|---|" + "--:|" * len(lengths)]
    for work in WORK:
        for who in CALLS:
            cells = [f"{in_its_own_process(who, length, work):.0f} MiB" for length in lengths]
            lines.append(f"| {work}, {who} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description="Memory of forward and backward, beside arguments and results.")
    parser.add_argument("--lengths", default="1024,4096,16384", help="lengths of the sequences, with commas")
    parser.add_argument("--update-docs", type=pathlib.Path, metavar="FILE", help="write the table between its marks")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        who, length, work = options.measure.split(";")
        print(measure(who, int(length), work))
        return 0
    lines = table([int(length) for length in options.lengths.split(",")])
    if options.update_docs:
        text = options.update_docs.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        options.update_docs.write_text("\n".join([before + BEGIN, *lines, END]) + rest.split(END)[1], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
