"""The document of the ladder of kernels says what its programs are.

  a fence ```c++ FILE   is a part of this file of the sources: consecutive lines, at any depth of indentation; a line `…` stands for
                        lines left out
  the table             between its marks has a row for every contender that is timed, in the order of the ladder
  every step            has an excerpt

Times are never compared: `./dev kernel-ladder --update-docs docs/ladder-of-kernels.md` measures them.
"""

import argparse
import pathlib
import re
import sys

from check_ladder import FENCE, located

TABLE = re.compile(r"^<!-- kernel-ladder:begin -->\n(.*?)^<!-- kernel-ladder:end -->$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (\w+) \|", re.MULTILINE)
CONTENDER = re.compile(r'^ +\{"(\w+)", dtype::\w+, isa::\w+, (true|false),', re.MULTILINE)
FILES_OF_STEPS = {"naive.cpp", "tiled.cpp", "lanes.cpp", "avx512.cpp", "amx.inl"}


def complaints(sources, text):
    excerpts = [(name, block) for kind, name, block in FENCE.findall(text) if kind == "c++"]
    for name, block in excerpts:
        path = sources / name
        if not path.is_file():
            yield f"expected a file of {sources.name} after ```c++, got {name or 'nothing'}"
        elif located(block, path.read_text(encoding="utf-8").splitlines(), str.strip) is None:
            yield f"not in {name}:\n{block}"
    for name in sorted(FILES_OF_STEPS - {name for name, _ in excerpts}):
        yield f"expected an excerpt of {name}, got none"

    timed = [name for name, is_timed in CONTENDER.findall((sources / "contenders.cpp").read_text(encoding="utf-8"))
             if is_timed == "true"]
    tables = TABLE.findall(text)
    rows = [name for name in ROW.findall(tables[0]) if name != "step"] if len(tables) == 1 else []
    if not timed or rows != timed:
        yield f"the table: expected rows {timed}, got {rows}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", required=True, type=pathlib.Path, help="folder of the steps")
    parser.add_argument("--document", required=True, type=pathlib.Path)
    args = parser.parse_args()

    found = list(complaints(args.sources, args.document.read_text(encoding="utf-8")))
    print("\n".join(found) or f"{args.document.name} agrees with {args.sources.name}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
