# SPDX-License-Identifier: MIT
"""How the command takes its arguments, and how it refuses those that it cannot take."""

import re
import subprocess

import pytest

from conftest import TOP

COMMANDS = ["info", "gettime", "timing", "getcpu", "check", "run", "publish"]
MANUAL = TOP / "docs" / "fastclock.1.md"


def test_help_lists_every_command(fastclock):
    done = fastclock.run("--help")
    assert done.returncode == 0 and done.stderr == ""
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE)


def test_without_arguments_it_explains_itself_and_fails(fastclock):
    done = fastclock.run()
    assert done.returncode == 2
    assert done.stdout == "" and "usage: fastclock" in done.stderr


def test_version_is_the_headers(fastclock):
    header = (TOP / "include" / "fastclock.h").read_text()
    parts = [
        re.search(rf"FASTCLOCK_VERSION_{p} (\d+)", header)[1] for p in ("MAJOR", "MINOR", "PATCH")
    ]
    assert fastclock.run("--version").stdout == f"fastclock {'.'.join(parts)}\n"


def test_an_unknown_command_is_named_with_those_that_exist(fastclock):
    done = fastclock.run("gettiem")
    assert done.returncode == 2
    assert "gettiem" in done.stderr
    assert all(command in done.stderr for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(fastclock, command):
    done = fastclock.run(command, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"usage: fastclock {command} ")
    assert "--json" in done.stdout and "--help" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_the_manual(fastclock, command):
    section = re.search(rf"^## {command}\n(.*?)^#", MANUAL.read_text(), re.DOTALL | re.MULTILINE)[1]
    options = re.findall(r"^  (?:-\w,|   ) (--\w+)", fastclock.run(command, "--help").stdout, re.M)
    assert "--json" in options
    for option in set(options) - {"--json", "--help"}:
        assert f"**{option}**" in section, f"{option} is not in the manual"


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_named_with_those_that_exist(fastclock, command):
    done = fastclock.run(command, "--frobnicate")
    assert done.returncode == (125 if command == "run" else 2)
    assert "--frobnicate" in done.stderr and "--json" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["info", "getcpu", "check", "publish"])
def test_operands_are_refused_where_none_are_taken(fastclock, command):
    done = fastclock.run(command, "surplus")
    assert done.returncode == 2 and "'surplus'" in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["gettime", "-n", "0", "mono"],
        ["gettime", "-n", "-1", "mono"],
        ["gettime", "-n", "1e6", "mono"],
        ["gettime", "-n", "", "mono"],
        ["gettime", "-n", "99999999999999999999999", "mono"],
        ["timing", "--loops", "0"],
        ["timing", "--milliseconds", "x"],
        ["check", "--seconds", "0"],
        ["check", "--seconds", "86401"],
    ],
)
def test_a_number_out_of_bounds_is_named_with_the_bounds(fastclock, arguments):
    done = fastclock.run(*arguments)
    wrong = arguments[2]
    assert done.returncode == 2 and done.stdout == ""
    assert f"'{wrong}'" in done.stderr
    assert re.search(r"from \d+ to \d+", done.stderr)


@pytest.mark.parametrize("arguments", [["gettime", "-n"], ["check", "--seconds"], ["run", "-s"]])
def test_a_missing_argument_is_named(fastclock, arguments):
    done = fastclock.run(*arguments)
    assert done.returncode in (2, 125)
    assert "missing" in done.stderr and arguments[1] in done.stderr


def test_an_unknown_clock_is_named_with_those_that_exist(fastclock):
    done = fastclock.run("timing", "monotonic", "sundial")
    assert done.returncode == 2
    assert "'sundial'" in done.stderr and "monotonic-coarse" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["mono", "real"], ["tai"], ["MONO"]])
def test_gettime_takes_mono_or_real_and_nothing_else(fastclock, arguments):
    done = fastclock.run("gettime", *arguments)
    assert done.returncode == 2 and "mono" in done.stderr and "real" in done.stderr


@pytest.mark.parametrize("command", ["info", "getcpu"])
def test_a_result_that_cannot_be_written_is_an_error(fastclock, command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [fastclock.path, command], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 3 and "cannot write" in done.stderr
