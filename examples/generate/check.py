#!/usr/bin/env python3
"""Tests of attend-generate; each argument behind the program's path names one.

    python check.py build/dev/examples/generate/attend-generate transcripts caches draws memory errors

expected.txt holds commands and what PyTorch continues their prompts with (train.py).
"""

import json
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COMMAND = "$ ./dev generate "
CONTEXT = 256  # of training


def transcripts_of(path):
    """(arguments, text) of each command in a document. A text ends where the next command or a fence begins, or the document."""
    text = path.read_text(encoding="utf-8")
    return [(shlex.split(arguments), printed)
            for arguments, printed in re.findall(rf"^{re.escape(COMMAND)}(.*)\n((?:(?!\$ |```).*\n)*)", text, re.MULTILINE)]


class Program:
    def __init__(self, path):
        self.path = path

    def run(self, *arguments):
        return subprocess.run([self.path, *map(str, arguments)], capture_output=True, timeout=100, check=False)

    def text(self, *arguments):
        done = self.run(*arguments)
        if done.returncode != 0:
            raise AssertionError(f"{shlex.join(map(str, arguments))}: exit code {done.returncode}: {done.stderr.decode()}")
        return done.stdout.decode()


def same(name, got, expected):
    if got != expected:
        at = next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b), min(len(got), len(expected)))
        raise AssertionError(f"{name}: differs from byte {at} on: got {got[at:at + 40]!r}, expected {expected[at:at + 40]!r}")


def transcripts(program):
    """Greedy texts are those of PyTorch, and the documents show them."""
    stored = transcripts_of(HERE / "expected.txt")
    assert len(stored) >= 4, "expected.txt: expected four transcripts or more"
    assert any("--window" in arguments for arguments, _ in stored), "expected.txt: expected a transcript with a window"
    for arguments, text in stored:
        same(shlex.join(arguments), program.text(*arguments), text)
    for document in (HERE / "README.md", HERE.parents[1] / "README.md"):
        shown = transcripts_of(document)
        assert shown, f"{document}: expected a transcript"
        assert all(one in stored for one in shown), f"{document}: expected transcripts of expected.txt alone"


def caches(program):
    """Contiguous, paged, a ring that holds everything, any number of threads: one text. A ring forgets what it should, and pages agree."""
    for arguments, text in transcripts_of(HERE / "expected.txt"):
        same("paged", program.text(*arguments, "--cache", "paged"), text)
        same("three threads", program.text(*arguments, "--threads", 3), text)
        if "--window" not in arguments and len(text) <= CONTEXT:
            same("a ring that holds everything", program.text(*arguments, "--window", 1000), text)
            same("a ring that is full at the end", program.text(*arguments, "--window", len(text)), text)
        elif "--window" not in arguments:
            same("the window of longer texts", program.text(*arguments, "--window", CONTEXT), text)
    # More than one piece of a prompt, drawn texts, and windows that are smaller than a piece.
    prompt = "And the earth was without form, and void; and darkness was upon the face of the deep. And the Spirit of God moved upon "
    for window in ([], ["--window", 1], ["--window", 50], ["--window", 64]):
        long = ["--prompt", prompt, "--tokens", 150, "--seed", 5, *window]
        same(f"paged, {window}", program.text(*long, "--cache", "paged"), program.text(*long))
    some = ["--prompt", prompt, "--tokens", 150, "--greedy"]
    assert program.text(*some) != program.text(*some, "--window", 8), "expected another text where each byte sees eight alone"


def draws(program):
    """Seeds decide; one likeliest byte, or hardly any temperature, is greedy."""
    some = ["--prompt", "The LORD ", "--tokens", 100]
    greedy = program.text(*some, "--greedy")
    same("equal seeds", program.text(*some, "--seed", 1), program.text(*some, "--seed", 1))
    assert program.text(*some, "--seed", 1) != program.text(*some, "--seed", 2), "expected another text from another seed"
    same("one likeliest byte", program.text(*some, "--top-k", 1, "--temperature", 2), greedy)
    same("hardly any temperature", program.text(*some, "--temperature", 1e-6), greedy)
    assert program.text(*some, "--temperature", 5) != program.text(*some, "--temperature", 5, "--top-k", 5), "expected fewer bytes"
    assert len(program.text(*some)) == len("The LORD ") + 100 + 1


def changed(path, change):
    """A copy of the weights whose header is another one of the same length."""
    data = (HERE / "kjv.safetensors").read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])
    return path


def refuses(program, expected, *arguments):
    done = program.run(*arguments)
    line = done.stderr.decode()
    assert done.returncode == 2 and not done.stdout and line.count("\n") == 1 and re.search(expected, line), (
        f"{shlex.join(map(str, arguments))}: expected exit code 2 and one line with {expected!r}, got {done.returncode}, "
        f"{done.stdout!r} and {line!r}")


def memory(program):
    """What no machine has room for is refused; the sanitizers end a program that asks for so much."""
    refuses(program, "not enough memory", "--prompt", "The", "--window", 2**40)
    refuses(program, "not enough memory", "--prompt", "The", "--tokens", 2**40, "--cache", "paged")


def errors(program):
    """Every mistake is one line that names what is wrong, exit code 2, and no text."""
    def refused(expected, *arguments):
        refuses(program, expected, *arguments)

    refused("--prompt is required")
    refused("--prompt: expected a byte or more, got none", "--prompt", "")
    refused("got @ at byte 2", "--prompt", "No@")
    refused("got 0xc3 at byte 1", "--prompt", "Né")
    some = ["--prompt", "The"]
    for option, value in (("tokens", 0), ("tokens", "ten"), ("tokens", 2**63), ("temperature", 0), ("temperature", "nan"), ("top-k", 0), ("seed", -1),
                          ("window", 0), ("threads", 0), ("cache", "ring")):
        refused(f"--{option}: expected .*, got {value}", *some, f"--{option}", value)
    refused("--cache: expected .*, got two lines", *some, "--cache", "two\nlines")
    refused("--greedy", *some, "--greedy", "--seed", 1)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        refused("missing.safetensors", *some, "--weights", folder / "missing.safetensors")

        def weights(expected, change):
            refused(expected, *some, "--weights", changed(folder / "changed.safetensors", change))

        weights(r"layers\.1\.o: shape .*, expected \(128, 4, 32\)", lambda h: h["layers.1.o"].update(shape=[128, 2, 64]))
        weights(r"layers\.0\.q: shape .*, expected 3 axes", lambda h: h["layers.0.q"].update(shape=[128, 128]))
        weights(r"layers\.0\.k: .* expected a divisor", lambda h: (h["layers.0.q"].update(shape=[2, 64, 128]), h["layers.0.k"].update(shape=[64, 1, 128]))[0])
        weights(r"norm: holds int16", lambda h: h["norm"].update(dtype="I16"))
        weights(r"layers\.2\.up", lambda h: h.update(other=h.pop("layers.2.up")))
        truncated = folder / "truncated.safetensors"
        truncated.write_bytes((HERE / "kjv.safetensors").read_bytes()[:-100])
        refused("truncated.safetensors", *some, "--weights", truncated)


def main():
    program, failed = Program(sys.argv[1]), 0
    for name in sys.argv[2:]:
        try:
            {"transcripts": transcripts, "caches": caches, "draws": draws, "memory": memory, "errors": errors}[name](program)
        except AssertionError as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
