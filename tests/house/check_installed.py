"""An installed copy serves find_package(attend): a program of two units is configured, built and run against it."""

import argparse
import pathlib
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--build", required=True, help="build folder of attend, already built")
    parser.add_argument("--consumer", required=True, help="source folder of the program")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--generator", required=True)
    parser.add_argument("--io", action="store_true", help="attend::io is installed, too")
    args = parser.parse_args([word for word in sys.argv[1:] if word])

    with tempfile.TemporaryDirectory() as folder:
        prefix, build = pathlib.Path(folder, "prefix"), pathlib.Path(folder, "build")
        # No other copy of attend on this machine may answer in place of the one just installed.
        for command in (
                [args.cmake, "--install", args.build, "--prefix", prefix],
                [args.cmake, "-S", args.consumer, "-B", build, "-G", args.generator, f"-DCMAKE_CXX_COMPILER={args.compiler}",
                 f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF", "-DCMAKE_BUILD_TYPE=Release",
                 f"-DWITH_IO={'ON' if args.io else 'OFF'}"],
                [args.cmake, "--build", build],
                [build / "consumer"]):
            subprocess.run(command, check=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
