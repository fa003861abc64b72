# SPDX-License-Identifier: MIT
"""Compares the binary interface of the library with the committed baseline, core/fastclock.abi.

Any difference fails: a function or a member that was added too, since it has to be meant. After a
change that is meant:

    python3 tests/package/check_abi.py --source . --work build/abi --renew

and commit the baseline with the change. The library is built with debugging information for this;
types that the public headers do not declare are left out, and so are paths and line numbers, so that
the baseline is the same from every machine.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], text=True, capture_output=True, check=False)


def must(*command: object) -> str:
    result = run(*command)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {result.stdout}{result.stderr}")
    return result.stdout


def build(source: Path, work: Path) -> Path:
    must("cmake", "-S", source, "-B", work, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
         "-DFASTCLOCK_COMMAND=OFF")  # fmt: skip
    must("cmake", "--build", work, "--target", "fastclock")
    return work / "libfastclock.so"


def describe(source: Path, library: Path) -> str:
    text = must("abidw", "--headers-dir", source / "include", "--drop-private-types",
                "--drop-undefined-syms", "--no-corpus-path", "--no-comp-dir-path",
                "--no-show-locs", "--type-id-style", "hash", library)  # fmt: skip
    # The file names are what is left of this machine.
    text = text.replace(f"'{source.resolve()}/", "'")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="the project's root")
    parser.add_argument("--work", type=Path, required=True, help="where to build")
    parser.add_argument("--renew", action="store_true", help="write the baseline")
    arguments = parser.parse_args()
    arguments.source = arguments.source.resolve()
    baseline = arguments.source / "core/fastclock.abi"
    for tool in ("abidw", "abidiff"):
        if not shutil.which(tool):
            raise SystemExit(f"{tool} is needed: Debian's package abigail-tools")
    text = describe(arguments.source, build(arguments.source, arguments.work))
    if arguments.renew:
        baseline.write_text(text)
        print(f"{baseline} written")
        return 0
    current = arguments.work / "current.abi"
    current.write_text(text)
    difference = run("abidiff", baseline, current)
    if difference.returncode != 0:
        print(f"FAILED  the binary interface is the one of {baseline}")
        print(difference.stdout + difference.stderr)
        print("If the change is meant, renew the baseline: see --help.")
        return 1
    print("ok      the binary interface is the one of core/fastclock.abi")
    return 0


if __name__ == "__main__":
    sys.exit(main())
