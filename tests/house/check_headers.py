"""Each public header compiles alone: included first and twice, with the project's warnings as errors."""

import argparse
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
import os

FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def complaint(compiler, include, header):
    """What the compiler says against one header; empty where it is self-contained."""
    line = f'#include "{header.relative_to(include).as_posix()}"\n'
    done = subprocess.run([compiler, *FLAGS, f"-I{include}", "-x", "c++", "-"], input=line * 2 + "int main() {}\n",
                          capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{header}: does not compile alone\n{done.stderr}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", required=True, type=pathlib.Path)
    args = parser.parse_args()

    headers = sorted(args.include.rglob("*.hpp"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(lambda h: complaint(args.compiler, args.include, h), headers) if text]
    print("\n".join(complaints) or f"{len(headers)} headers compile alone")
    return 1 if complaints or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
