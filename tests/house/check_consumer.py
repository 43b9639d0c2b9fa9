"""A user's project of two units and one in C builds and runs: against an installed copy (find_package), or with the sources in
its own build (add_subdirectory), where attend brings no test, command or target of its own with it."""

import argparse
import pathlib
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--consumer", required=True, help="source folder of the project")
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--installed-from", help="build folder of attend, already built")
    origin.add_argument("--sources", help="source folder of attend")
    parser.add_argument("options", nargs="*", help="further words for the project's configuration, after --")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        prefix, build = pathlib.Path(folder, "prefix"), pathlib.Path(folder, "build")

        def run(*command):
            subprocess.run(command, check=True)

        if args.installed_from:
            run(args.cmake, "--install", args.installed_from, "--prefix", prefix)
            # No other copy of attend on this machine may answer in place of this one.
            origin = [f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF"]
        else:
            origin = [f"-DATTEND_SOURCE={args.sources}"]
        run(args.cmake, "-S", args.consumer, "-B", build, *origin, *args.options)
        run(args.cmake, "--build", build, "--parallel")
        run(build / "consumer")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
