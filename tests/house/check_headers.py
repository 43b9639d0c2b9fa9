"""Each public header compiles alone: included first and twice, with the project's warnings as errors. Those of C (*.h) do as C99,
too."""

import argparse
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
import os

FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
CXX, C = ["-std=c++20", "-x", "c++"], ["-std=c99", "-x", "c"]


def complaint(compiler, language, include, header):
    """What the compiler says against one header in one language; empty where it is self-contained."""
    line = f'#include "{header.relative_to(include).as_posix()}"\n'
    done = subprocess.run([compiler, *FLAGS, *language, f"-I{include}", "-"],
                          input=line * 2 + "int main(void) { return 0; }\n", capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{header}: does not compile alone as {language[-1]}\n{done.stderr}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--c-compiler", required=True)
    parser.add_argument("--include", required=True, type=pathlib.Path)
    args = parser.parse_args()

    headers, of_c = sorted(args.include.rglob("*.hpp")), sorted(args.include.rglob("*.h"))
    jobs = [(args.compiler, CXX, args.include, h) for h in headers + of_c]
    jobs += [(args.c_compiler, C, args.include, h) for h in of_c]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(lambda job: complaint(*job), jobs) if text]
    print("\n".join(complaints) or f"{len(headers + of_c)} headers compile alone")
    return 1 if complaints or not headers or not of_c else 0


if __name__ == "__main__":
    sys.exit(main())
