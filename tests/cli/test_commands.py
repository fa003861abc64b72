# SPDX-License-Identifier: MIT
"""What the commands tell."""

import json
import os
import platform
import re
import subprocess
import time
from pathlib import Path

import pytest

CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0")
CLOCKS = [
    "realtime",
    "monotonic",
    "raw",
    "boottime",
    "tai",
    "realtime-coarse",
    "monotonic-coarse",
]
SOURCES = ["kernel-page", "timekeep", "vdso", "syscall", "libc"]


# ---- info ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def info(fastclock):
    return fastclock.json("info")


def test_info_tells_what_the_kernel_says_of_its_clocksource(info):
    told = info["machine"]["clocksource"]
    assert told["current"] == (CLOCKSOURCE / "current_clocksource").read_text().strip()
    assert told["available"] == (CLOCKSOURCE / "available_clocksource").read_text().split()
    assert info["machine"]["kernel"] == platform.release()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags of x86")
def test_info_tells_the_flags_that_the_kernel_sees(info):
    flags = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1]
    features = info["machine"]["counter"]["features"]
    for ours, kernels in {
        "rdtscp": "rdtscp",
        "rdpid": "rdpid",
        "nonstop": "nonstop_tsc",
        "umip": "umip",
    }.items():
        assert features[ours] == (kernels in flags.split()), ours
    assert (info["machine"]["hypervisor"] is not None) == ("hypervisor" in flags.split())


def test_info_names_every_source_and_why_it_is_not_used(info):
    assert [s["name"] for s in info["sources"]] == SOURCES
    in_use = [s["name"] for s in info["sources"] if s["state"] in ("in use", "standing back")]
    assert in_use == [info["source"]]
    for source in info["sources"]:
        if source["state"] in ("refused", "not asked for"):
            assert source["reason"]


def test_info_tells_the_resolution_of_every_clock(info):
    assert [c["name"] for c in info["clocks"]] == CLOCKS
    for clock in info["clocks"]:
        id_by_libc = {"realtime": 0, "monotonic": 1, "monotonic-coarse": 6}.get(clock["name"])
        if id_by_libc is not None:
            assert clock["resolution_ns"] == round(time.clock_getres(id_by_libc) * 1e9)


def test_info_measures_what_a_read_costs_and_could_cost(info):
    costs = {c["name"]: c["min_ns"] for c in info["costs"]}
    for name in ("system call", "libc", "fastclock", "fastclock, coarse"):
        assert costs[name] > 0, name
    assert all(c["min_ns"] is None or c["min_ns"] <= c["median_ns"] for c in info["costs"])


def test_info_always_has_advice(info):
    assert info["advice"]
    assert any(c in info["advice"][0]["text"] for c in ("reading", "clock", "process", "counter"))


def test_info_as_text_holds_what_the_object_holds(fastclock, info):
    text = fastclock.run("info").stdout
    for word in (info["source"], info["machine"]["kernel"], *CLOCKS, *SOURCES):
        assert word in text


@pytest.mark.parametrize("source", ["vdso", "syscall"])
def test_info_says_that_the_environment_asked_for_a_slower_source(fastclock, source):
    told = fastclock.json("info", env={"FASTCLOCK_SOURCE": source})
    assert told["source"] == told["wanted"] == told["serving"] == source
    assert any(a["problem"] and source in a["text"] for a in told["advice"])


def test_info_says_why_the_environment_was_not_followed(fastclock):
    told = fastclock.json("info", env={"FASTCLOCK_SOURCE": "sundial"})
    assert "FASTCLOCK_SOURCE must be" in told["wanted_reason"]
    assert any(a["problem"] and "FASTCLOCK_SOURCE" in a["text"] for a in told["advice"])


def test_info_sees_a_time_namespace_and_its_offsets(fastclock):
    told = fastclock.json(
        "info", prefix=["unshare", "--time", "--monotonic", "1000", "--boottime", "2000", "--fork"]
    )
    assert told["time_namespace"] == {
        "inside": True,
        "monotonic_offset_s": 1000,
        "boottime_offset_s": 2000,
    }


def test_info_outside_of_a_namespace_says_so(info):
    assert info["time_namespace"]["inside"] is False


def test_info_tells_a_clocksource_that_cannot_be_read_from_one_that_is_only_called_so(
    fastclock, tmp_path
):
    """Another name alone is no reason for advice: that comes from what is measured."""
    fake = tmp_path / "current_clocksource"
    fake.write_text("hpet\n")
    told = fastclock.json(
        "info",
        prefix=[
            "unshare",
            "--mount",
            "sh",
            "-c",
            f'mount --bind {fake} {CLOCKSOURCE}/current_clocksource && exec "$0" "$@"',
        ],
    )
    assert told["machine"]["clocksource"]["current"] == "hpet"
    assert told["serving"] == "kernel-page"
    assert not any(a["problem"] for a in told["advice"])


def test_info_without_proc_names_what_a_sandbox_has_to_allow(fastclock):
    hide = 'mount -t tmpfs none /proc && exec "$0" "$@"'
    told = fastclock.json("info", prefix=["unshare", "--mount", "sh", "-c", hide])
    assert told["source"] == "vdso"
    page = next(s for s in told["sources"] if s["name"] == "kernel-page")
    assert page["state"] == "refused" and "maps" in page["reason"]
    assert any(a["problem"] and "/proc/self/maps" in a["text"] for a in told["advice"])


# ---- gettime -------------------------------------------------------------------------------------


def test_gettime_prints_times_as_time_does(fastclock):
    done = fastclock.run("gettime", "-n", "1000", "mono")
    assert re.fullmatch(r"real \d+\.\d{3}\nuser \d+\.\d{3}\nsys \d+\.\d{3}\n", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "clock"),
    [
        (["mono"], "monotonic"),
        (["real"], "realtime"),
        (["-c", "mono"], "monotonic-coarse"),
        (["real", "-c"], "realtime-coarse"),
    ],
)
def test_gettime_reads_the_clock_that_was_named(fastclock, arguments, clock):
    told = fastclock.json("gettime", "-n", "1000", *arguments)
    assert told["clock"] == clock and told["reads"] == 1000 and told["way"] == "fastclock"


def test_gettime_reads_a_million_times_if_not_told_otherwise(fastclock):
    assert fastclock.json("gettime", "mono")["reads"] == 1_000_000


def count_gettimes(fastclock, trace, *arguments):
    """How many system calls that read a clock `fastclock gettime` makes."""
    prefix = ["strace", "-f", "-e", "trace=clock_gettime", "-o", trace]
    assert fastclock.run("gettime", *arguments, prefix=prefix).returncode == 0
    return len(re.findall(r"clock_gettime\(CLOCK_MONOTONIC,", trace.read_text()))


def test_gettime_by_system_call_makes_one_for_each_read(fastclock, tmp_path):
    few, many = (
        count_gettimes(fastclock, tmp_path / "trace", "-n", n, "-s", "mono") for n in ("1", "10001")
    )
    # the proof of the source makes a few, and repeats what was interrupted
    assert abs(many - few - 10000) < 100


def test_gettime_by_fastclock_makes_none(fastclock, tmp_path):
    few, many = (
        count_gettimes(fastclock, tmp_path / "trace", "-n", n, "mono") for n in ("1", "100001")
    )
    assert abs(many - few) < 100


# ---- timing --------------------------------------------------------------------------------------


def test_timing_has_a_loop_for_each_way_and_clock(fastclock):
    told = fastclock.json("timing", "--milliseconds", "2", "--loops", "2", "monotonic", "tai")
    seen = {(loop["clock"], loop["way"], loop["loop"]) for loop in told["loops"]}
    for clock in ("monotonic", "tai"):
        for way in ("system call", "vDSO", "libc", "fastclock"):
            assert (clock, way, 0) in seen and (clock, way, 1) in seen
    for loop in told["loops"]:
        assert loop["time_s"] >= 0.002
        assert loop["ns_per_iteration"] == pytest.approx(
            loop["time_s"] * 1e9 / loop["iterations"], abs=0.01
        )


def test_timing_measures_each_source_that_can_be_used(fastclock):
    told = fastclock.json("timing", "--milliseconds", "1", "monotonic")
    measured = {r["source"] for r in told["reads"] if r["source"] and r["min_ns"]}
    assert {"kernel-page", "vdso", "syscall", "libc"} <= measured


def test_timing_measures_four_clocks_if_none_is_named(fastclock):
    told = fastclock.json("timing", "--milliseconds", "1")
    assert {r["clock"] for r in told["reads"]} == {
        "realtime",
        "monotonic",
        "realtime-coarse",
        "monotonic-coarse",
    }


def test_timing_as_text_has_both_tables(fastclock):
    text = fastclock.run("timing", "--milliseconds", "1", "raw").stdout
    assert re.search(r"^test +loop +time +iterations +periteration$", text, re.MULTILINE)
    assert re.search(r"^raw, system call +0 ", text, re.MULTILINE)
    assert re.search(r"^raw( +\d+\.\d)+", text, re.MULTILINE)


# ---- getcpu --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def getcpu(fastclock):
    return fastclock.json("getcpu")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86")
def test_getcpu_has_the_old_ways_and_what_came_since(getcpu):
    assert [w["name"] for w in getcpu["ways"]] == [
        "sgdt",
        "sidt",
        "sldt",
        "lsl",
        "rdtscp",
        "rdpid",
        "rseq",
        "vDSO",
        "syscall",
    ]


def test_getcpu_has_cycles_or_a_reason_in_every_cell(getcpu):
    for way in getcpu["ways"]:
        assert (way["user_restart_cycles"] is None) == (way["absent"] is not None), way
        if way["kernel_restart_cycles"] is None:
            assert way["absent"] or way["no_kernel_restart"], way


@pytest.mark.skipif(platform.machine() != "x86_64", reason="UMIP is of x86")
def test_getcpu_says_that_umip_answers_with_a_dummy(getcpu):
    flags = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1]
    if "umip" not in flags.split():
        pytest.skip("this processor has no UMIP")
    for way in getcpu["ways"]:
        if way["name"] in ("sgdt", "sidt", "sldt"):
            assert "UMIP" in (way["absent"] or way["note"])
            assert not way["gives_the_number"]


def test_getcpu_learns_the_right_number_by_what_was_made_for_it(getcpu):
    for way in getcpu["ways"]:
        if way["name"] in ("rseq", "vDSO", "syscall", "rdtscp", "rdpid") and not way["absent"]:
            assert way["gives_the_number"], way["name"]


def test_getcpu_restarts_where_a_signal_interrupts_it(fastclock, tmp_path):
    """The kernel puts the interrupted sequence back, or kills where it is not what it should be."""
    source, library = tmp_path / "storm.c", tmp_path / "storm.so"
    source.write_text(
        "#include <signal.h>\n#include <sys/time.h>\n"
        "static void nothing(int number) { (void)number; }\n"
        "__attribute__((constructor)) static void storm(void) {\n"
        "    const struct itimerval every = {{0, 50}, {0, 50}};\n"
        "    signal(SIGALRM, nothing);\n"
        "    setitimer(ITIMER_REAL, &every, 0);\n"
        "}\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    told = fastclock.json("getcpu", env={"LD_PRELOAD": str(library)})
    assert all(w["absent"] or w["user_restart_cycles"] for w in told["ways"])


@pytest.fixture
def without_counter(tmp_path):
    """The environment of a process that may not read the counter. It is forbidden after the dynamic
    linker has run, which reads the counter itself and would be killed."""
    source, library = tmp_path / "forbid.c", tmp_path / "forbid.so"
    source.write_text(
        "#include <sys/prctl.h>\n"
        "__attribute__((constructor)) static void forbid(void) {"
        " prctl(PR_SET_TSC, PR_TSC_SIGSEGV); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library)}


def test_getcpu_without_a_counter_is_unavailable(fastclock, without_counter):
    done = fastclock.run("getcpu", env=without_counter)
    assert done.returncode == 3 and "counter" in done.stderr


def test_info_without_a_counter_says_who_forbade_it(fastclock, without_counter):
    told = fastclock.json("info", env=without_counter)
    assert told["machine"]["counter"]["readable"] is False
    assert told["serving"] == "syscall" and told["coarse_serving"] == "kernel-page"
    assert any(a["problem"] and "PR_SET_TSC" in a["text"] for a in told["advice"])


def test_gettime_without_a_counter_still_reads(fastclock, without_counter):
    assert fastclock.json("gettime", "-n", "1000", "mono", env=without_counter)["reads"] == 1000


def test_timing_without_a_counter_leaves_out_what_would_be_killed(fastclock, without_counter):
    told = fastclock.json("timing", "-m", "1", "monotonic", env=without_counter)
    ways = {r["way"] for r in told["reads"] if r["min_ns"] is not None}
    assert "system call" in ways and "libc" not in ways and "vDSO" not in ways


def test_check_without_a_counter_is_content(fastclock, without_counter):
    assert fastclock.json("check", "-s", "1", env=without_counter)["right"] is True


# ---- check ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checked(fastclock):
    return fastclock.json("check", "--seconds", "1")


def test_check_finds_nothing_wrong_here(checked):
    assert checked["right"] is True and checked["wrong_readings"] == 0
    assert checked["hand_over"]["back"] == 0


def test_check_brackets_every_clock(checked):
    assert [c["name"] for c in checked["clocks"]] == CLOCKS
    for clock in checked["clocks"]:
        assert clock["brackets"] > 1000 and clock["outside"] == 0


def test_check_runs_on_every_processor(checked):
    assert checked["threads"] == max(2, len(os.sched_getaffinity(0)))
    assert checked["hand_over"]["steps"] > 1000


def test_check_has_a_histogram_by_powers_of_two(checked):
    histogram = checked["cost"]["histogram"]
    for bucket in histogram:
        size = bucket["to_ns"] + 1
        assert size & (size - 1) == 0 and bucket["from_ns"] in (0, size // 2)
    cost = checked["cost"]
    assert cost["p50_ns"] <= cost["p90_ns"] <= cost["p99_ns"] <= cost["p99.9_ns"]
    assert cost["p99.99_ns"] <= cost["largest_ns"] <= histogram[-1]["to_ns"]


@pytest.mark.parametrize(
    "lie",
    [
        "goes-back",
        "differs-between-processors",
        "cannot-be-read",
        "is-ahead",
        "is-behind",
    ],
)
def test_check_finds_a_clock_that_lies(lying, lie):
    if lie == "differs-between-processors" and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor only")
    done = lying.run("check", "--seconds", "1", env={"LIE": lie})
    assert done.returncode == 1
    assert "WRONG" in done.stdout


def test_check_says_which_clock_lied(lying):
    told = lying.json("check", "--seconds", "1", env={"LIE": "is-ahead"}, exit_code=1)
    wrong = {c["name"]: c["largest_outside_ns"] for c in told["clocks"] if c["outside"]}
    assert list(wrong) == ["boottime"] and 0 < wrong["boottime"] <= 1_000_000


def test_check_with_a_clock_that_does_not_lie_is_content(lying):
    assert lying.run("check", "--seconds", "1", env={"LIE": "nothing"}).returncode == 0


def test_check_counts_falls_to_the_slow_path_from_a_source(fastclock):
    assert fastclock.json("check", "-s", "1", env={"FASTCLOCK_SOURCE": "vdso"})["right"] is True


def test_check_shows_progress_where_it_takes_longer_than_two_seconds(fastclock):
    done = fastclock.run("check", "--seconds", "3")
    assert "1 of 3 s" in done.stderr and "2 of 3 s" in done.stderr


# ---- run -----------------------------------------------------------------------------------------


def clock_gettime_file(fastclock, *arguments, **options):
    """Which file answers clock_gettime in a program under `fastclock run`."""
    script = (
        "import ctypes\n"
        "class I(ctypes.Structure):\n"
        "    _fields_=[('f',ctypes.c_char_p),('b',ctypes.c_void_p),"
        "('n',ctypes.c_char_p),('a',ctypes.c_void_p)]\n"
        "l=ctypes.CDLL(None); i=I(); l.dladdr(l.clock_gettime, ctypes.byref(i)); print(i.f.decode())"
    )
    return fastclock.run("run", *arguments, "--", "/usr/bin/python3", "-c", script, **options)


def test_run_puts_the_library_before_the_c_library(fastclock):
    done = clock_gettime_file(fastclock)
    assert done.returncode == 0 and done.stdout.strip().endswith("libfastclock-preload.so")


def test_run_comes_after_what_was_preloaded_already(fastclock):
    done = fastclock.run("run", "--json", "--", "true", env={"LD_PRELOAD": "libm.so.6"})
    told = json.loads(done.stdout)["environment"]["LD_PRELOAD"]
    assert re.fullmatch(r"libm\.so\.6:/.*/libfastclock-preload\.so", told)


def test_run_has_the_exit_code_of_the_program(fastclock):
    assert fastclock.run("run", "--", "sh", "-c", "exit 42").returncode == 42


def test_run_passes_arguments_on_untouched(fastclock):
    done = fastclock.run("run", "printf", "%s|", "--json", "-s", "a b")
    assert done.stdout == "--json|-s|a b|"


def test_run_hands_source_and_order_to_the_program(fastclock):
    done = fastclock.run("run", "--source", "vdso", "--relaxed", "--", "env")
    assert "FASTCLOCK_SOURCE=vdso" in done.stdout.split()
    assert "FASTCLOCK_RELAXED=1" in done.stdout.split()


def test_run_without_options_asks_for_nothing(fastclock):
    assert "FASTCLOCK_" not in fastclock.run("run", "--", "env").stdout


def test_run_as_json_runs_nothing(fastclock, tmp_path):
    done = fastclock.run("run", "--json", "--", "touch", tmp_path / "touched")
    assert json.loads(done.stdout)["arguments"] == ["touch", str(tmp_path / "touched")]
    assert not (tmp_path / "touched").exists()


def test_run_names_a_program_that_is_not_there(fastclock):
    done = fastclock.run("run", "--", "no-such-program")
    assert done.returncode == 127 and "no-such-program" in done.stderr


def test_run_names_a_program_that_cannot_be_run(fastclock, tmp_path):
    (tmp_path / "data").write_text("no program")
    done = fastclock.run("run", "--", tmp_path / "data")
    assert done.returncode == 126 and str(tmp_path / "data") in done.stderr


def test_run_without_a_program_says_how_it_is_used(fastclock):
    done = fastclock.run("run")
    assert done.returncode == 125 and "PROGRAM" in done.stderr


def test_run_refuses_an_unknown_source_and_names_those_that_exist(fastclock):
    done = fastclock.run("run", "--source", "sundial", "--", "true")
    assert done.returncode == 125
    assert "'sundial'" in done.stderr and "kernel-page" in done.stderr


def test_run_refuses_a_static_program(fastclock, tmp_path):
    (tmp_path / "p.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", "-o", tmp_path / "p", tmp_path / "p.c"], check=True)
    done = fastclock.run("run", "--", tmp_path / "p")
    assert done.returncode == 125 and "statically" in done.stderr


def test_run_refuses_a_program_with_raised_privileges(fastclock, tmp_path):
    (tmp_path / "p").write_bytes(Path("/bin/true").read_bytes())
    (tmp_path / "p").chmod(0o4755)
    done = fastclock.run("run", "--", tmp_path / "p")
    assert done.returncode == 125 and "privileges" in done.stderr


# ---- installed -----------------------------------------------------------------------------------


def test_the_installed_command_finds_the_installed_library(installed):
    done = subprocess.run(
        [installed / "bin" / "fastclock", "run", "--json", "--", "true"],
        capture_output=True,
        text=True,
        check=True,
    )
    library = Path(json.loads(done.stdout)["environment"]["LD_PRELOAD"])
    assert library.is_relative_to(installed) and library.is_file()


def test_the_manual_is_installed(installed):
    page = installed / "share" / "man" / "man1" / "fastclock.1"
    assert page.read_text().startswith(".nh\n.TH FASTCLOCK 1")
