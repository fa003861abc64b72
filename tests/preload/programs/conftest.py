# SPDX-License-Identifier: MIT
"""Real programs under libfastclock-preload.so, beside the same programs without it.

    build/venv/bin/python -m pytest tests/preload/programs

A test asserts that the answers are the same and that the clock calls go to the library. What the
program takes with and without it is measured by turns, and the ratios are printed at the end and
written to build/programs.json. That a program is no slower is asserted with the room that a shared
machine needs, and measured again before it is believed to be.

Everything runs on loopback or on a socket in a folder of its own; servers are started and stopped by
the tests.
"""

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
LIBRARY = "libfastclock-preload.so"
ROOM = 1.3  # how much slower is still put down to the machine
ATTEMPTS = 5

ratios = []


def pytest_addoption(parser):
    parser.addoption("--build-folder", default=str(TOP / "build" / "release"))


@pytest.fixture(scope="session")
def folder():
    """A folder that every user can enter."""
    path = Path(tempfile.mkdtemp(prefix="fastclock-programs-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def library(request, folder):
    built = Path(request.config.getoption("--build-folder")).resolve() / LIBRARY
    assert built.is_file(), f"{built} is not built"
    copy = folder / LIBRARY
    shutil.copy(built, copy)
    copy.chmod(0o755)
    return copy


@pytest.fixture(scope="session")
def fastclock(request):
    return Path(request.config.getoption("--build-folder")).resolve() / "fastclock"


def environment(preload=(), **more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FASTCLOCK_", "LD_"))}
    if preload:
        clean["LD_PRELOAD"] = ":".join(map(str, preload))
    return {**clean, "LC_ALL": "C.UTF-8", **more}


def run(command, preload=(), timeout=100, env=None, **options):
    """Runs a program to its end, which has to be a good one. Returns what it printed."""
    done = subprocess.run(
        [str(c) for c in command],
        env=environment(preload, **(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=timeout,
        **options,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def bindings(command, preload, tmp_path, **options):
    """Which clock calls of a program the dynamic linker has bound to the library."""
    run(
        command,
        preload,
        env={
            "LD_DEBUG": "bindings",
            "LD_DEBUG_OUTPUT": str(tmp_path / "bindings"),
            **options.pop("env", {}),
        },
        **options,
    )
    text = "".join(p.read_text(errors="replace") for p in tmp_path.glob("bindings.*"))
    names = ("clock_gettime", "gettimeofday", "time", "clock_getres", "timespec_get")
    return {
        name
        for name in names
        for line in text.splitlines()
        if f"symbol `{name}'" in line and f"{LIBRARY} [0]: " in line
    }


@contextlib.contextmanager
def server(command, preload, ready, user=None, timeout=30, **options):
    """Runs a server until the block ends; `ready` says whether it answers."""
    if user:
        account = pwd.getpwnam(user)
        options.update(user=account.pw_uid, group=account.pw_gid, extra_groups=[])
    process = subprocess.Popen(
        [str(c) for c in command],
        env=environment(preload),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **options,
    )
    try:
        end = time.monotonic() + timeout
        while not ready():
            assert process.poll() is None, process.stdout.read().decode(errors="replace")
            assert time.monotonic() < end, f"{command[0]} does not answer"
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def is_preloaded(pid):
    return LIBRARY in Path(f"/proc/{pid}/maps").read_text()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def compare(request):
    """compare(what, with_library, without, rounds): measures both by turns, keeps the ratio of the
    minima, and asserts that the library makes nothing slower."""

    def compared(what, with_library, without, rounds=3):
        attempts = 0
        while True:
            attempts += 1
            ours, theirs = [], []
            for number in range(rounds):
                pair = [(ours, with_library), (theirs, without)]
                for costs, measure in pair if number % 2 == 0 else reversed(pair):
                    costs.append(measure())
            ratio = min(ours) / min(theirs)
            if ratio <= ROOM or attempts == ATTEMPTS:
                break
        ratios.append({"program": what, "ratio": round(ratio, 3), "attempts": attempts})
        assert ratio <= ROOM, f"{what} takes {ratio:.2f} times as long with the library"
        return ratio

    return compared


def pytest_terminal_summary(terminalreporter):
    if not ratios:
        return
    terminalreporter.write_sep("-", "with the library, of without")
    for entry in ratios:
        terminalreporter.write_line(f"{entry['ratio']:7.3f}  {entry['program']}")
    path = TOP / "build" / "programs.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"ratios": ratios}, indent=2) + "\n")
