# SPDX-License-Identifier: MIT
"""In a guest whose kernel was told to use the HPET, programs gain from the timekeep page.

The guest is a kernel of Debian's under an emulated processor, as for `./dev kernels`, with the
programs of this machine and the libraries that they need. Its figures are compared with each other
only: the same program, without the library and with it, one after the other in one guest.
"""

import re
import sys
from pathlib import Path

import pytest

from conftest import LIBRARY, TOP, ratios, run

sys.path.insert(0, str(TOP / "tests" / "kernels"))

import debian  # noqa: E402
import qemu  # noqa: E402

POSTGRES = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
PRELOADED = f"LD_PRELOAD=/{LIBRARY} FASTCLOCK_SOURCE=timekeep"
SUITE = "trixie"
# What the page may be off by where the processor that follows the kernel's clock is emulated, and
# stands still whenever the emulator does.
EMULATED_ERROR_NS = 1_000_000
TIMEOUT_S = 150
TURNS = 3


def libraries(program):
    """What a program is linked with, as files: as the dynamic linker finds it here."""
    return re.findall(r"(/\S+) \(0x", run(["ldd", program]))


@pytest.fixture(scope="module")
def guest(library, folder):
    """What each program said in a guest on hpet, without the library and with it."""
    programs = {
        "pg_test_timing": POSTGRES / "pg_test_timing",
        "redis-server": Path("/usr/bin/redis-server"),
        "redis-benchmark": Path("/usr/bin/redis-benchmark"),
        "clocks": folder / "clocks-plain",
        "stress": folder / "stress-library",
    }
    init = folder / "guest-init"
    run(["gcc", "-O2", "-static", "-o", init, TOP / "bench" / "founding" / "guest.c"])
    source = Path(__file__).with_name("clocks.c")
    run(["gcc", "-O2", "-pthread", "-o", programs["clocks"], source])
    stress = TOP / "bench" / "founding" / "stress.c"
    include = TOP / "include"
    run(["gcc", "-O2", "-DBY_LIBRARY", f"-I{include}", "-o", programs["stress"], stress])
    commands = [
        f"clocks:auto LD_PRELOAD=/{LIBRARY} /clocks",
        f"clocks:timekeep {PRELOADED} /clocks {EMULATED_ERROR_NS}",
    ]
    benchmark = "-n 3000 -t get -P 1 -c 1 --csv -s"
    for name, variables in (("theirs", "THEIRS=1"), ("ours", PRELOADED)):
        commands += [
            f"timing:{name} {variables} /pg_test_timing -d 2",
            f"stress:{name} {variables} /stress gettimeofday 100000",
            f"&redis {variables} /redis-server --port 0 --save '' --unixsocket /tmp/{name}",
        ]
    for turn in range(TURNS):
        for name in ("theirs", "ours"):
            commands.append(f"redis:{name}:{turn} /redis-benchmark {benchmark} /tmp/{name}")
    (folder / "guest-commands").write_text("\n".join(commands) + "\n")
    files = {
        "init": init,
        "commands": folder / "guest-commands",
        LIBRARY: library,
        **programs,
    }
    for program in programs.values():
        files.update({path.lstrip("/"): path for path in libraries(program)})
    qemu.pack_initramfs(files, folder / "guest-initramfs")
    kernel = debian.fetch(SUITE, "amd64", ["amd64"], lambda text: None)
    said = {}

    def on_line(line):
        assert "failed" not in line, f"{line['check']} ended with status {line['failed']}"
        said.update({line["check"]: line["result"]} if "check" in line else line)

    qemu.boot(
        "x86_64",
        kernel["image"],
        folder / "guest-initramfs",
        "clocksource=hpet",
        True,
        folder / "guest.log",
        TIMEOUT_S,
        on_line,
    )
    assert said["clocksource"] == "hpet"
    return said


@pytest.mark.parametrize("source", ["auto", "timekeep"])
def test_the_answers_are_right_there(guest, source):
    assert guest[f"clocks:{source}"] == "4 threads, 20000 reads each, 0 wrong\n"


def test_pg_test_timing_is_at_least_ten_times_lower(guest):
    ours, theirs = (
        float(re.search(r"overhead: ([\d.]+) ns", guest[f"timing:{who}"])[1])
        for who in ("ours", "theirs")
    )
    ratios.append({"program": "on hpet: pg_test_timing", "ratio": round(ours / theirs, 3)})
    assert theirs >= 10 * ours


def test_a_program_that_stamps_events_is_measurably_quicker(guest):
    ours, theirs = (guest[f"stress:{who}"]["real_s"] for who in ("ours", "theirs"))
    ratios.append({"program": "on hpet: gettimeofday in a loop", "ratio": round(ours / theirs, 3)})
    assert 2 * ours < theirs


def test_redis_answers_its_quickest_requests_no_later(guest):
    """What most requests take there is when the emulator runs which processor."""

    def quickest_ms(who):
        tables = (guest[f"redis:{who}:{turn}"].splitlines() for turn in range(TURNS))
        return min(
            float(values.split(",")[names.split(",").index('"min_latency_ms"')].strip('"'))
            for names, values in ((lines[0], lines[-1]) for lines in tables)
        )

    ours, theirs = quickest_ms("ours"), quickest_ms("theirs")
    ratios.append({"program": "on hpet: Redis, a request", "ratio": round(ours / theirs, 3)})
    assert ours <= theirs
