"""The fuzzer on every instruction set of this machine, each in a process of its own: `python -m fuzz --help`."""

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENOUGH = 1000  # calls that cover everything


def available():
    import attend

    sets = attend.info()["instruction_sets"]
    return [name for name in sets["compiled"] if name in sets["detected"]]


def run_on(isa, calls, seed, minutes):
    """(exit code, text) of a run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "call.py"
        command = [sys.executable, "-m", "fuzz", "--here", "--calls", str(calls), "--seed", str(seed), "--trace", str(trace)]
        environment = {**os.environ, "ATTEND_ISA": isa, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                       "HYPOTHESIS_STORAGE_DIRECTORY": folder,
                       "PYTHONPATH": os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60 * minutes)
            code, text = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            said = late.stdout or ""
            code, text = -1, f"{said if isinstance(said, str) else said.decode()}not done after {minutes} minutes"
        if code != 0 and trace.exists() and "y = attend." not in text:  # it died, or hangs, in this call
            text += f"\nexit code {code} in this call:\n{trace.read_text()}"
    return code, f"{isa}, seed {seed}: {text.strip()}"


def run_here(calls, seed, trace):
    from fuzz import session
    from fuzz.compare import Broken

    try:
        coverage = session.run(calls, seed, trace)
    except Broken as broken:
        print(broken)
        return 1
    print(coverage.text())
    missing = coverage.missing()
    if missing:
        print("not covered: " + ", ".join(missing) + ("" if calls >= ENOUGH else f"; asked of {ENOUGH} calls and more"))
    return 1 if missing and calls >= ENOUGH else 0


def main():
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--calls", type=int, default=20000, help="calls to draw on each instruction set (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the draws; default: a new one, which is printed")
    parser.add_argument("--isa", help="instruction sets, with commas between them; default: all that this machine has")
    parser.add_argument("--minutes", type=float, default=600, help="after which a run counts as hanging (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time (%(default)s)")
    parser.add_argument("--here", action="store_true", help="run in this process, on the set that ATTEND_ISA says")
    parser.add_argument("--trace", help=argparse.SUPPRESS)
    how = parser.parse_args()
    seed = secrets.randbelow(2**32) if how.seed is None else how.seed
    if how.here:
        return run_here(how.calls, seed, how.trace)
    sets = how.isa.split(",") if how.isa else available()
    failed = 0
    with ThreadPoolExecutor(max(1, how.jobs)) as pool:
        # A seed of its own for each set: what one set draws, the others need not draw again.
        for code, text in pool.map(lambda n: run_on(sets[n], how.calls, seed + n, how.minutes), range(len(sets))):
            print(text, flush=True)
            failed |= code != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
