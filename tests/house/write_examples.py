"""Writes the examples of headers and documents out as programs, and prints the names of their files, one a line.

An example is a fence ```cpp in the comment that opens a header, or in a Markdown document; in a header of C (*.h), a fence ```c.
One without `int main` becomes the body of it. A file is rewritten only where it changed, so that nothing is compiled again without need.
"""

import argparse
import pathlib
import re
import sys

FENCE = {language: re.compile(rf"^```{language}\b[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
         for language in ("cpp", "c")}
STANDARD_HEADERS = ("array", "cassert", "cmath", "cstdint", "iostream", "string", "utility", "vector")


def opening_comment(text):
    """The comment lines at the top of a header, without their slashes."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(re.sub(r"^// ?", "", line))
    return "\n".join(lines) + "\n"


def program(code, header):
    """A whole program from the code of one fence."""
    if re.search(r"^\s*int main\s*\(", code, re.MULTILINE):
        return code
    own, body = [], []
    for line in code.splitlines():
        (own if line.startswith("#include") else body).append(line)
    includes = ["#include <attend/attend.hpp>", *([f"#include <attend/{header}>"] if header else []), *own,
                *(f"#include <{name}>" for name in STANDARD_HEADERS)]
    indented = "\n".join(f"  {line}" if line else "" for line in body)
    return "\n".join(dict.fromkeys(includes)) + "\n\nint main() {\n" + indented + "\n}\n"


def c_program(code, header):
    """The same in C."""
    indented = "\n".join(f"  {line}" if line else "" for line in code.splitlines())
    return f"#include <attend/{header}>\n\n#include <assert.h>\n#include <stdio.h>\n\nint main(void) {{\n{indented}\n  return 0;\n}}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    written = {}
    for source in args.sources:
        text = source.read_text(encoding="utf-8")
        is_c, is_header = source.suffix == ".h", source.suffix in (".h", ".hpp")
        language = "c" if is_c else "cpp"
        fences = FENCE[language].findall(opening_comment(text) if is_header else text)
        if is_header and not fences:
            sys.exit(f"{source}: expected an example in a ```{language} fence in the comment that opens the header, got none")
        for number, code in enumerate(fences, 1):
            name = source.stem.lower() + ("" if len(fences) == 1 else f"_{number}") + f".{language}"
            written[name if is_header else f"doc_{name}"] = (c_program(code, source.name) if is_c else
                                                             program(code, source.name if is_header else None))
    for stale in set(path.name for path in args.out.iterdir() if path.suffix in (".c", ".cpp")) - set(written):
        (args.out / stale).unlink()
    for name, text in written.items():
        path = args.out / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    print("\n".join(written))


if __name__ == "__main__":
    main()
