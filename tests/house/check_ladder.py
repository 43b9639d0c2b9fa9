"""The documents of the ladder say what its programs say.

In each document:
  a fence ```text NAME   is a part of the report of the program NAME: consecutive lines; a line `…` stands for lines left out
  a fence ```c++ NAME    is a part of its source, in the same way, at any depth of indentation
  a row of the table     that names a program by its number, and a line of its report, bears the figures of that line
  a section `## N …`     has a number of three digits or with a decimal point only where report or source of program N has it
  an image               is one of the pictures that the programs write, and every one is shown
Later documents have the formulas, excerpts, pictures and figures of the first. Every program ends with 0.

Rounding errors and plans depend on the instruction set, and last digits on the compiler and its mathematical library. The documents'
are those of AVX-512; they are compared with --exact alone, and not on other machines or where ATTEND_ISA asks for another set. Times
are never compared. --update, which is exact, writes what the programs say into the documents and their pictures into the folder, as
long as it is only such figures that differ.
"""

import argparse
import dataclasses
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

DOCUMENTED_ISA = "avx512"
GAP = "…"

FENCE = re.compile(r"^```([^\s`]+)[ \t]*(\S*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
IMAGE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")
SECTION = re.compile(r"^## +(\d+)\b.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w…])", re.ASCII)
# | statement | [number of the program] | `line of its report` | bound | largest difference | part of the bound |
ROW = re.compile(r"^(\|.*\| \[(\d+)\] \| `([^`]+)` \| [^|]+ \|) ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
LINK = re.compile(r"^\[(\d+)\]: (\S+)$", re.MULTILINE)  # of that number
EXACT = "–"

COMPARISON = re.compile(r"^  (?P<name>\S.*?) +(?P<count>\d+) +\S+ +\S+ +(?P<difference>\S+) +(?P<part>\S+) %$")
TIME = re.compile(r"[\d.]+(?:e[+-]\d+)? ms\b")
PLAN = re.compile(r"the plan computes .*")


def key(line, exact):
    """A line without what may differ: times, and unless `exact` what depends on the instruction set."""
    line = TIME.sub("? ms", line)
    if not exact:
        line = PLAN.sub("the plan computes ?", line)
        if found := COMPARISON.match(line):
            line = f"  {found['name']} {found['count']}"
    return line


def long_numbers(text):
    """Its numbers of three digits or more, and those with a decimal point: the ones that a program vouches for."""
    return {number for number in NUMBER.findall(text) if "." in number or len(number) >= 3}


@dataclasses.dataclass
class Program:
    name: str
    source: list
    report: list

    def figures(self, named):
        """(largest difference, largest part of the bound) of the comparisons of this name; dashes for claims; else nothing."""
        found = [match for match in map(COMPARISON.match, self.report) if match and match["name"] == named]
        if found:
            largest = {what: max((match[what] for match in found), key=float) for what in ("difference", "part")}
            return largest["difference"], f"{largest['part']} %"
        claims = (line.strip().startswith(named) for line in self.report if not COMPARISON.match(line))
        return (EXACT, EXACT) if any(claims) else None


def run(program, pictures):
    """The finished process, and whether it ran on the documented instruction set, as it does unless another is asked for."""
    asked = os.environ.get("ATTEND_ISA")
    for isa in [asked] if asked else [DOCUMENTED_ISA, ""]:
        done = subprocess.run([program, pictures], capture_output=True, text=True, encoding="utf-8",
                              env={**os.environ, "ATTEND_ISA": isa})
        if "ATTEND_ISA: expected" not in done.stderr:
            break
    return done, isa == DOCUMENTED_ISA


def pieces(block):
    """The runs of lines between lines `…`."""
    return [list(lines) for gap, lines in itertools.groupby(block.splitlines(), lambda line: line.strip() == GAP) if not gap]


def located(block, lines, of_line):
    """Where each piece of a block stands among the lines, in order; nothing where one does not."""
    places, start = [], 0
    for piece in pieces(block):
        wanted = [of_line(line) for line in piece]
        fits = (at for at in range(start, len(lines) - len(piece) + 1)
                if all(of_line(line) == want for line, want in zip(lines[at:], wanted)))
        at = next(fits, None)
        if at is None:
            return None
        places.append(at)
        start = at + len(piece)
    return places


class Document:
    """A document and its complaints; `text` is brought up to date on the way."""

    def __init__(self, path, programs, exact, update):
        self.path, self.programs, self.exact, self.update = path, programs, exact, update
        self.text = path.read_text(encoding="utf-8")
        self.complaints = []
        self.links = {number: pathlib.PurePosixPath(link).stem for number, link in LINK.findall(self.text)}
        for number, link in LINK.findall(self.text):
            if not (path.parent / link).is_file() or self.links[number].split("_")[0] != f"{int(number):02}":
                self.complain(f"expected [{number}]: to be program {number}, got {link}")
        self.text = FENCE.sub(self.fence, self.text)
        self.text = ROW.sub(self.row, self.text)
        for section in SECTION.finditer(self.text):
            self.section(section)
        self.has_all()

    def complain(self, text):
        self.complaints.append(f"{self.path.name}: {text}")

    def fence(self, found):
        kind, name, block = found.groups()
        if kind not in ("text", "c++"):
            return found[0]
        program = self.programs.get(name)
        if program is None:
            self.complain(f"expected a program's name after ```{kind}, got {name or 'nothing'}")
        elif kind == "c++":
            if located(block, program.source, str.strip) is None:
                self.complain(f"not in the source of {name}:\n{block}")
        elif located(block, program.report, lambda line: key(line, self.exact)) is None:
            places = located(block, program.report, lambda line: key(line, False))
            if places is None or not self.update:
                self.complain(f"not in the report of {name}:\n{block}")
            else:
                return f"```text {name}\n{self.renewed(block, places, program.report)}```"
        return found[0]

    @staticmethod
    def renewed(block, places, report):
        fresh = iter([line for place, piece in zip(places, pieces(block)) for line in report[place:place + len(piece)]])
        return "".join((line if line.strip() == GAP else next(fresh)) + "\n" for line in block.splitlines())

    def row(self, found):
        start, number, line, *written = found.groups()
        name = self.links.get(number)
        program = self.programs.get(name)
        figures = program and program.figures(line)
        if figures is None:
            self.complain(f"the table expects of {name or number} the line: {line}")
        elif tuple(written) != figures and (self.exact or EXACT in figures):
            if self.update:
                return f"{start} {figures[0]} | {figures[1]} |"
            self.complain(f"the table expects of {name}, {line}: {' and '.join(written)}; got {' and '.join(figures)}")
        return found[0]

    def section(self, found):
        prose = re.sub(r"\]\([^)]*\)", "]", FENCE.sub("", found[0]))
        for name, program in self.programs.items():
            if int(name.split("_")[0]) == int(found[1]):
                known = long_numbers("\n".join(program.report + program.source))
                for number in sorted(long_numbers(prose) - known):
                    self.complain(f"section {found[1]}: {number} is not in the report or the source of {name}")

    def has_all(self):
        rows = {self.links.get(found[2]) for found in ROW.finditer(self.text)}
        blocks = {(kind, name) for kind, name, _ in FENCE.findall(self.text)}
        sections = {int(found[1]) for found in SECTION.finditer(self.text)}
        for name in self.programs:
            for what, there in {"an excerpt": ("c++", name) in blocks, "a report": ("text", name) in blocks,
                                "a row of the table": name in rows, "a section": int(name.split("_")[0]) in sections}.items():
                if not there:
                    self.complain(f"expected {what} of {name}, got none")

    def common(self):
        """What another edition has to have, too."""
        blocks = [(kind, name, block) for kind, name, block in FENCE.findall(self.text) if kind in ("math", "text", "c++")]
        rows = [(found[2], found[3], *found.groups()[3:]) for found in ROW.finditer(self.text)]
        return blocks + [("image", path) for path in IMAGE.findall(self.text)] + [("row", *row) for row in rows]


def compare_editions(first, other):
    a, b = first.common(), other.common()
    for mine, theirs in itertools.zip_longest(a, b):
        if mine != theirs:
            other.complain(f"differs from {first.path.name}: expected {mine}, got {theirs}")
            return


def compare_pictures(made, folder, documents, exact, update):
    """Complaints about the folder of pictures and what the documents show of it."""
    fresh, kept = ({path.name: path.read_bytes() for path in place.glob("*.svg")} for place in (made, folder))
    if update:
        for name in fresh.keys() - {name for name in kept if kept[name] == fresh.get(name)}:
            (folder / name).write_bytes(fresh[name])
            kept[name] = fresh[name]
    for name in sorted(fresh.keys() ^ kept.keys()):
        yield f"{folder.name}/{name}: expected a picture that a program writes, got " + ("none" if name in fresh else "another")
    for name in sorted(fresh.keys() & kept.keys()):
        if exact and fresh[name] != kept[name]:
            yield f"{folder.name}/{name}: is not the picture that its program writes"
    for document in documents:
        shown = IMAGE.findall(document.text)
        for path in shown:
            if not (document.path.parent / path).is_file():
                yield f"{document.path.name}: shows {path}, which is not there"
        for name in sorted(fresh.keys() - {pathlib.PurePosixPath(path).name for path in shown}):
            yield f"{document.path.name}: expected the picture {name}, got none"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, type=pathlib.Path, help="folder of the programs ladder_01, ladder_02, …")
    parser.add_argument("--sources", required=True, type=pathlib.Path, help="folder of their sources")
    parser.add_argument("--pictures", required=True, type=pathlib.Path, help="folder of the documents' pictures")
    parser.add_argument("--exact", action="store_true", help="rounding figures, too, where the instruction set is the documented one")
    parser.add_argument("--update", action="store_true", help="renew figures and pictures (needs AVX-512)")
    parser.add_argument("documents", nargs="+", type=pathlib.Path)
    args = parser.parse_args()

    programs, complaints, exact = {}, [], args.exact or args.update
    with tempfile.TemporaryDirectory() as made:
        for source in sorted(args.sources.glob("[0-9][0-9]_*.cpp")):
            done, documented = run(args.programs / f"ladder_{source.stem[:2]}", made)
            exact = exact and documented
            if done.returncode != 0:
                complaints.append(f"{source.stem}: ended with {done.returncode}\n{done.stdout}{done.stderr}")
            programs[source.stem] = Program(source.stem, source.read_text(encoding="utf-8").splitlines(), done.stdout.splitlines())
        if args.update and not exact:
            sys.exit(f"--update: expected {DOCUMENTED_ISA}, whose figures the documents have; got another instruction set")
        if not programs:
            complaints.append(f"{args.sources}: expected programs, got none")

        documents = [Document(path, programs, exact, args.update) for path in args.documents]
        for other in documents[1:]:
            compare_editions(documents[0], other)
        complaints += compare_pictures(pathlib.Path(made), args.pictures, documents, exact, args.update)
    for document in documents:
        complaints += document.complaints
        if args.update and document.text != document.path.read_text(encoding="utf-8"):
            document.path.write_text(document.text, encoding="utf-8")
    figures = "with all figures" if exact else f"without rounding figures, which are those of {DOCUMENTED_ISA}"
    print("\n".join(complaints) or f"{len(documents)} documents agree with {len(programs)} programs, {figures}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
