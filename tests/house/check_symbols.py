"""What objects may define and need, read with nm.

kernel   Each object has no weak symbol, because a weak function that was compiled for AVX-512 can win over its namesake in
         the portable part; it defines one global symbol, its table, and needs nothing but memory functions of C.
library  No object refers to anything that prints, aborts or exits.
"""

import argparse
import re
import subprocess
import sys

WEAK = set("WwVvu")
DEFINED_GLOBAL = set("TDBRGSC")
KERNEL_MAY_NEED = {"memcpy", "memset", "memmove", "memcmp", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}

ENDS_PROCESS = r"abort|exit|_exit|_Exit|quick_exit|raise|kill|__assert_fail|__assert_perror_fail|_ZSt21__glibcxx_assert_fail.*"
PRINTS = (r"(__)?v?f?printf(_chk)?|(__)?v?dprintf(_chk)?|puts|fputs|putchar|putc|fputc|perror|psignal|v?syslog|stdout|stderr|"
          r"_ZSt4w?(cout|cerr|clog)|_ZNSt8ios_base4InitC[12]Ev")
FORBIDDEN = re.compile(rf"({ENDS_PROCESS}|{PRINTS})")


def symbols(nm, path):
    """(object, name, type) of every symbol of an object, an archive or a shared library."""
    dynamic = ["--dynamic"] if re.search(r"\.so(\.|$)", path) else []
    text = subprocess.run([nm, "--format=posix", *dynamic, path], check=True, capture_output=True, text=True).stdout
    member = path
    for line in text.splitlines():
        if line.endswith(":"):
            member = line[:-1]
        elif fields := line.split():
            yield member, fields[0].split("@")[0], fields[1]


def kernel_complaints(found):
    tables = [name for _, name, kind in found if kind in DEFINED_GLOBAL]
    if len(tables) != 1:
        yield f"expected one global symbol, the table of kernels, got {', '.join(tables) or 'none'}"
    for member, name, kind in found:
        if kind in WEAK:
            yield f"{member}: weak symbol {name}"
        elif kind == "U" and name not in KERNEL_MAY_NEED:
            yield f"{member}: needs {name}"


def library_complaints(found):
    for member, name, kind in found:
        if kind == "U" and FORBIDDEN.fullmatch(name):
            yield f"{member}: refers to {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nm", required=True)
    parser.add_argument("rule", choices=["kernel", "library"])
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()

    complaints = []
    for path in args.files:
        found = list(symbols(args.nm, path))
        if not found:
            complaints.append(f"{path}: expected symbols, got none")
        rule = kernel_complaints if args.rule == "kernel" else library_complaints
        complaints += [f"{path}: {text}" if path not in text else text for text in rule(found)]
    print("\n".join(complaints) or f"{len(args.files)} files keep the rule")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
