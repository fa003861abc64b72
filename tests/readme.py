#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The examples of README.md, run as they stand against what is installed below build/.

The C example is compiled and linked by pkg-config, shared and inline; Python and Lua run theirs. An
example that fails, or whose last line of output is not what it promises, fails the test.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
INSTALLED = TOP / "build" / "install"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def example(language):
    """The one block in this language that is a whole program."""
    blocks = [body for name, body in BLOCK.findall((TOP / "README.md").read_text())
              if name == language]  # fmt: skip
    if len(blocks) != 1:
        raise AssertionError(f"README.md has {len(blocks)} blocks of {language}, not one")
    return blocks[0]


def run(*command, **changes):
    done = subprocess.run(
        command,
        env={**os.environ, **changes},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def expect(output, pattern):
    if not re.search(pattern, output):
        raise AssertionError(f"expected {pattern!r}, got {output!r}")


def check_c(folder):
    (folder / "program.c").write_text(example("c"))
    libraries = next(INSTALLED.glob("lib*/**/libfastclock.so")).parent
    found = {"PKG_CONFIG_PATH": str(libraries / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "fastclock", **found).split()
    program = str(folder / "program")
    run("cc", "-Wall", "-Wextra", "-Werror", str(folder / "program.c"), "-o", program, *flags)
    output = run(program, LD_LIBRARY_PATH=str(libraries))
    expect(output, r"^1\d{18} ns since 1970\ntook \d+ ns\n$")


def check_python(folder):
    (folder / "program.py").write_text(example("python"))
    output = run(str(TOP / "build/venv/bin/python"), str(folder / "program.py"))
    expect(output, r"^\d+ (kernel-page|vdso|syscall)\n$")


def check_lua(folder):
    (folder / "program.lua").write_text(example("lua"))
    for interpreter, tree, version in [("luajit", "luajit", "5.1"), ("lua5.4", "5.4", "5.4")]:
        rocks = TOP / "build" / "lua" / tree
        output = run(
            interpreter,
            str(folder / "program.lua"),
            LUA_PATH=f"{rocks}/share/lua/{version}/?.lua",
            LUA_CPATH=f"{rocks}/lib/lua/{version}/?.so",
        )
        expect(output, r"^\d+(LL)?\t(kernel-page|vdso|syscall)\n$")


def main():
    failed = 0
    checks = [check_c, check_python, check_lua]
    for check in checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(Path(folder))
                print(f"ok {check.__name__}")
            except (AssertionError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"FAILED {check.__name__}: {error}")
    print(f"{len(checks) - failed} of {len(checks)} examples of README.md hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
