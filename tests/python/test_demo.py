"""The demo's table, and that what it tells people to type works."""

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
demo = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(demo)


def test_demo_shows_every_layer_within_its_bound():
    line = [sys.executable, ROOT / "examples" / "demo.py"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    rows = [row for row in rows if len(row) == 5 and row[0].isdigit()]
    assert [int(row[0]) for row in rows] == list(range(demo.LAYERS))
    assert all(float(error) <= float(bound) and float(ms) > 0 for _, error, bound, ms, _ in rows)
    assert all(line in done.stdout for _, line in demo.NEXT)


@pytest.mark.parametrize("line", [line for _, line in demo.NEXT if line.startswith(".venv/")])
def test_what_to_try_next_works(line, tmp_path):
    program, *arguments = shlex.split(line)
    program = Path(sys.executable).with_name(Path(program).name)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run([program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_a_layer_over_its_bound_fails_the_demo(monkeypatch, capsys):
    facts = {"passed": False, "largest_error": 1.0, "bound": 2e-6, "milliseconds": 1.0, "flops": 1.0, "bytes": 1.0}
    facts["limits"] = {"fma_flops_per_second": 1e9, "read_bytes_per_second": 1e9}
    monkeypatch.setattr(demo, "find_command", lambda: "attend")
    monkeypatch.setattr(demo, "check", lambda command, layer: facts)
    assert demo.main() == 1
    shown = capsys.readouterr()
    assert "over the bound" in shown.out and "6 of 6" in shown.err
