"""Tables, documents and pictures of the benchmark, from results as they are stored; and its command."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attend.bench import command, dtypes, reached, report
from attend.bench.case import Case
from attend.bench.cases import all_cases
from attend.bench.expected import Expected

COMMAND = shutil.which(str(Path(sys.executable).with_name("attend"))) or shutil.which("attend")
LIMITS = {"isa": "avx512", "clock": 2e9, "fma_f32": 4e11, "fma_f64": 2e11, "dpbf16": None, "amx_bf16": 5e12, "read": 5e10}
VERSIONS = {"python": "3", "numpy": "2", "attend": "0.1.0", "PyTorch": "2.13.0", "JAX": "0.10"}


def spread(value):
    return dict.fromkeys(("median", "q1", "q3", "min", "max"), value) | {"samples": 3}


def result_of(case, seconds, peers, fraction=0.8, reasons=None):
    """What `measure` gives for these medians."""
    result = {
        "case": case.describe(),
        "flops": 10**9,
        "tiles_flops": {"attend": 10**9},
        "bytes": case.cache_bytes,
        "moved_bytes": case.moved_bytes,
        "errors": dict.fromkeys(["attend", *peers], 0.1),
        "allowed": dict.fromkeys(["attend", *peers], 1.0),
        "reasons": reasons or {},
        "times": {"attend": spread(seconds)} | {name: spread(time) for name, time in peers.items()},
        "limit": "fma_f32",
        "fraction": spread(fraction),
        "ratios": {name: spread(time / seconds) for name, time in peers.items()},
        "overhead": None,
        "per_tile": None,
    }
    return json.loads(json.dumps(result | {"reached": reached.comparisons(json.loads(json.dumps(result)))}))


@pytest.fixture
def stored(tmp_path):
    """A file of results: a case that reaches all, one that does not, two points of a curve."""
    shape = (1, 8, 2048, 64)
    wanted = Expected({"fma_f32": 0.78}, {"PyTorch": 1.5, "fastest": 1.2})
    good = Case("good", shape, shape, headline=True, expected=wanted)
    bad = Case("bad", shape, shape, headline=True, expected=wanted)
    results = [result_of(good, 1e-3, {"PyTorch": 2e-3, "JAX": 1.5e-3})]
    results.append(result_of(bad, 1e-3, {"PyTorch": 1.4e-3}, 0.5, {"JAX": "no bad"}))
    for causal in (False, True):
        point = Case(f"sweep {causal}", shape, shape, causal=causal, sweep=True)
        results.append(result_of(point, 1e-3, {"PyTorch": 2e-3}))
    machine = {"processor": "any", "threads": 2, "limits": LIMITS, "versions": VERSIONS}
    machine["missing"] = {"ggml": "not installed (ggml)"}
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"machine": machine, "rounds": 3, "results": results}))
    return file


def test_expected_stands_beside_what_was_reached(stored):
    good, bad, *_ = json.loads(stored.read_text())["results"]
    assert [one["holds"] for one in good["reached"]] == [True, True, True] and report.missed(good) == "nothing"
    assert report.missed(bad) == "fma_f32 0.50 < 0.78, PyTorch 1.40 < 1.5"
    assert report.times_fastest(good) == "1.50 JAX" and report.times_fastest(bad) == "1.40 PyTorch"
    assert report.expected(good) == "0.78, PyTorch 1.5, fastest 1.2"


def test_what_was_not_measured_is_said():
    shape = (1, 8, 2048, 64)
    case = Case("alone", shape, shape, expected=Expected({"fma_f32": 0.78}, {"PyTorch": 1.5, "fastest": 1.2}))
    result = result_of(case, 1e-3, {}) | {"fraction": None}
    result["reached"] = reached.comparisons(result)
    assert report.missed(result) == "fma_f32 not measured, PyTorch not measured, fastest peer not measured"


def test_at_most_is_compared_as_at_most():
    tiny = Case("tiny", (1, 1, 4, 16), (1, 1, 16, 16), expected=Expected(seconds=2e-6))
    assert report.missed(result_of(tiny, 1e-6, {})) == "nothing"
    assert report.missed(result_of(tiny, 3e-6, {})) == "seconds 3.00 > 2 µs"
    masked = Case("masked", (1, 1, 4, 16), (1, 1, 16, 16), mask="boolean", expected=Expected(of_none=1.15))
    result = result_of(masked, 1e-6, {}) | {"overhead": spread(1.2)}
    assert reached.comparisons(result) == [{"what": "none", "expected": 1.15, "reached": 1.2, "at_most": True, "holds": False}]


def test_the_document_has_every_cell_and_who_is_missing(stored):
    text = report.document(json.loads(stored.read_text()), [("Roofline", "pictures/r.svg")])
    lines = text.splitlines()
    (row,) = [line for line in lines if line.startswith("| bad |") and "<" in line]
    assert "fma_f32 0.50 < 0.78" in row
    table = lines[lines.index("## Milliseconds of everybody") :]
    (good,) = [line for line in table if line.startswith("| good |")]
    (bad,) = [line for line in table if line.startswith("| bad |")]
    assert good.split("|")[3:8] == [" 1.00 ", " 2.00 ", " 1.50 ", " not installed ", ""]
    assert bad.split("|")[5] == " – "
    assert "![Roofline](pictures/r.svg)" in text and "5000 GF/s amx_bf16" in text and "dpbf16, " not in text.split("\n")[4]
    assert not any(line.startswith("| sweep") for line in lines)


def test_a_wrong_peer_is_shown_as_wrong(stored):
    whole = json.loads(stored.read_text())
    del whole["results"][1]["times"]["PyTorch"]
    assert "| bad | f32 | 1.00 | wrong | – | not installed |" in report.of_every_peer(whole)


def test_the_table_of_the_readme_names_the_fastest_peer(stored):
    text = report.markdown(json.loads(stored.read_text()), headline_only=True)
    assert "| expected | × PyTorch | × fastest peer |" in text and "| 2.00 | 1.50 JAX |" in text and "sweep" not in text


def test_documents_are_written_in_the_folder_of_the_sources(stored, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as refused:
        command.main(["--from", str(stored), "--update-docs"])
    assert refused.value.code == 2
    (tmp_path / "docs").mkdir()
    assert command.main(["--from", str(stored), "--update-docs"]) == 0
    text = (tmp_path / "docs/performance.md").read_text()
    pictures = [line.partition("(")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert len(pictures) == 3
    for picture in pictures:
        drawn = (tmp_path / "docs" / picture).read_text()
        assert drawn.startswith("<?xml") and len(drawn) > 5000


@pytest.mark.parametrize("kind, begin", [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_pictures_are_drawn_from_stored_results(stored, tmp_path, kind, begin):
    pytest.importorskip("matplotlib")
    assert command.main(["--from", str(stored), "--plots", str(tmp_path), "--plot-format", kind]) == 0
    for name in ("roofline", "time_over_l", "speed_up"):
        assert (tmp_path / f"{name}.{kind}").read_bytes().startswith(begin)


def test_every_kind_of_work_with_an_expectation_is_measured():
    cases = [case for case in all_cases() if case.expected != Expected()]
    assert {case.dtype for case in cases if case.name.startswith("prefill 2048, E 128, causal")} == set(dtypes.NAMES)
    assert {case.dtype for case in cases if case.cold} == {"float32", "bfloat16", "float16"}
    kinds = ("short sequences, L 16", "vision", "77 keys", "boolean mask 2048", "bias 2048", "packed", "window 256", "from C++")
    for words in kinds:
        assert any(words in case.name for case in cases), words
    names = [(case.name, case.dtype) for case in all_cases()]
    assert len(names) == len(set(names))


@pytest.mark.skipif(COMMAND is None, reason="the command is not installed")
class TestCommand:
    """`attend bench` is `python -m attend.bench` of the interpreter beside the command, else of PATH."""

    def run(self, *arguments, program=COMMAND, **options):
        return subprocess.run([program, "bench", *arguments], capture_output=True, text=True, check=False, timeout=120, **options)

    def test_it_gives_arguments_and_exit_codes_through(self, stored):
        done = self.run("--list", "--filter", "vision")
        assert done.returncode == 0 and done.stdout == "vision, L 197 (float32)\n" and not done.stderr
        done = self.run("--from", "no such file")
        assert done.returncode == 2 and "--from" in done.stderr
        assert "--peers" in self.run("--help").stdout
        assert self.run("--from", str(stored)).returncode == 0

    def test_the_list_of_commands_has_it(self):
        done = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=True, timeout=60)
        assert "bench" in done.stdout

    def alone(self, tmp_path):
        """The command in a folder without an interpreter."""
        return shutil.copy(os.path.realpath(COMMAND), tmp_path / "attend")

    def test_without_an_interpreter_beside_it_asks_path(self, tmp_path):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (tmp_path / "bin/python3").chmod(0o755)
        done = self.run("--list", "--filter", "vision", program=self.alone(tmp_path), env={"PATH": f"{tmp_path}/bin"})
        assert done.returncode == 0 and done.stdout == "vision, L 197 (float32)\n", done.stderr

    def test_without_the_package_it_is_one_line_and_2(self, tmp_path):
        (tmp_path / "python3").write_text("#!/bin/sh\necho noise >&2\nexit 1\n")
        (tmp_path / "python3").chmod(0o755)
        for path in (str(tmp_path), str(tmp_path / "nowhere")):
            (tmp_path / "sub").mkdir(exist_ok=True)
            done = self.run("--list", program=self.alone(tmp_path / "sub"), env={"PATH": path})
            assert done.returncode == 2 and not done.stdout
            assert done.stderr.count("\n") == 1 and done.stderr.startswith("attend bench: expected ") and "attend" in done.stderr

    def test_an_interrupt_ends_it_as_one(self):
        line = [COMMAND, "bench", "--peers", "none", "--rounds", "100000", "--filter", "tiny call, L 4, S 16, E 16"]
        measuring = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert "attend" in measuring.stdout.readline()  # it measures
            time.sleep(0.5)
            measuring.send_signal(signal.SIGINT)
            _, errors = measuring.communicate(timeout=60)
        finally:
            measuring.kill()
        assert measuring.returncode == -signal.SIGINT and errors == "attend bench: interrupted\n"
