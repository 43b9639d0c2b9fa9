#!/usr/bin/env python3
"""Attention of a real model, layer by layer, through the command `attend`, each layer checked against float64.

Needs the command alone: `./dev demo` builds and runs it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data" / "minilm_qkv.npz"
LAYERS = 6

NEXT = (  # what it shows, what to type in the repository's folder
    ("mask the future", ".venv/bin/attend check examples/data/minilm_qkv.npz --names l3_q,l3_k,l3_v --causal --time"),
    ("see the route of a call, and why", ".venv/bin/attend plan --shape 1,32,8,1,4096,128"),
    (
        "keep output and weights",
        ".venv/bin/attend run examples/data/minilm_qkv.npz --names l0_q,l0_k,l0_v --weights -o layer0.npz",
    ),
    (
        "the same from Python",
        '.venv/bin/python -c "import attend, numpy; '
        "z = numpy.load('examples/data/minilm_qkv.npz'); "
        "print(attend.attention(z['l0_q'], z['l0_k'], z['l0_v']).shape)\"",
    ),
    ("against this machine's limits, and those of its peers that are installed", "./dev bench --quick"),
)


def find_command() -> str:
    """The command of this environment, or the one on the path."""
    beside = Path(sys.executable).with_name("attend")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("attend")
    if not found:
        sys.exit(f"demo: expected the command attend beside {sys.executable} or on the path, got none; ./dev demo builds it")
    return found


def check(command: str, layer: int) -> dict:
    """The facts of one layer; a failed check is among them, anything else ends the demo."""
    names = ",".join(f"l{layer}_{tensor}" for tensor in "qkv")
    done = subprocess.run(
        [command, "check", DATA, "--names", names, "--time", "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 1):  # it has said on stderr why
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def main() -> int:
    command = find_command()
    print("all-MiniLM-L6-v2 reads the opening of Alice's Adventures in Wonderland: 12 heads, 134 tokens, width 32, float32")
    print(flush=True)
    layers = [check(command, layer) for layer in range(LAYERS)]
    # The limits were measured once per layer. Disturbances only lower them, so the highest of this run are the machine's.
    fma, read = (max(facts["limits"][name] for facts in layers) for name in ("fma_flops_per_second", "read_bytes_per_second"))
    print("layer  largest error     bound      ms  of the limit")
    for layer, facts in enumerate(layers):
        fraction = 1e3 * max(facts["flops"] / fma, facts["bytes"] / read) / facts["milliseconds"]
        print(
            f"{layer:>5}  {facts['largest_error']:>13.1e}  {facts['bound']:>8.1e}  {facts['milliseconds']:>6.3f}"
            f"  {fraction:>12.2f}{'' if facts['passed'] else '  over the bound'}"
        )
    print()
    print("errors: against the same attention in float64. ms: median of one call. limit: this machine's multiply-adds and")
    print(f"memory, measured between the layers: {fma * 1e-9:.0f} GF/s, {read * 1e-9:.0f} GB/s.")
    failed = sum(not facts["passed"] for facts in layers)
    if failed:
        print(f"demo: expected every layer within its bound, got {failed} of {LAYERS} over it", file=sys.stderr)
        return 1
    print(f"All {LAYERS} layers are within their bounds.")
    print()
    print("What to try next:")
    for what, line in NEXT:
        print(f"  # {what}\n  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
