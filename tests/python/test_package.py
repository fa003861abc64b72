"""The package: names, results, errors, and what it does to the interpreter that imports it."""

import array
import errno
import inspect
import json
import os
import pathlib
import pickle
import subprocess
import sys
import time

import fastclock
import fastclock.relaxed
import pytest
from conftest import CLOCKS, SOURCES
from hypothesis import given
from hypothesis import strategies as st

UINT64_MAX = 2**64 - 1
RELAXED_EARLY_NS = 1000  # BRACKET_RELAXED_EARLY_NS of bracket.h

# Name of a read -> the kernel's clock.
ORDERED = {
    "time": 0,
    "realtime": 0,
    "monotonic": 1,
    "perf_counter": 1,
    "raw": 4,
    "boottime": 7,
    "tai": 11,
    "time_coarse": 5,
    "monotonic_coarse": 6,
}
RELAXED = {"time": 0, "realtime": 0, "monotonic": 1, "perf_counter": 1, "raw": 4}
READS = [(fastclock, name, clock, 0) for name, clock in ORDERED.items()] + [
    (fastclock.relaxed, name, clock, RELAXED_EARLY_NS) for name, clock in RELAXED.items()
]
each_read = pytest.mark.parametrize(
    "module, name, clock, early_ns", READS, ids=[f"{m.__name__}.{n}" for m, n, _, _ in READS]
)


@pytest.fixture(autouse=True)
def usual_source():
    yield
    fastclock.select("auto")


# ---- Results ---------------------------------------------------------------------------------


@each_read
def test_nanoseconds_agree_with_the_time_module(module, name, clock, early_ns):
    read = getattr(module, f"{name}_ns")
    before = time.clock_gettime_ns(clock)
    for _ in range(20_000):
        ours = read()
        after = time.clock_gettime_ns(clock)
        assert before - early_ns <= ours <= after
        before = after


@each_read
def test_seconds_agree_with_the_time_module(module, name, clock, early_ns):
    read = getattr(module, name)
    before = time.clock_gettime_ns(clock)
    for _ in range(20_000):
        ours = read()
        after = time.clock_gettime_ns(clock)
        assert float(before - early_ns) / 1e9 <= ours <= float(after) / 1e9
        before = after


@pytest.mark.parametrize("name", ["time", "monotonic", "perf_counter"])
def test_seconds_are_rounded_as_the_time_module_rounds_them(name):
    theirs, ours = getattr(time, name), getattr(fastclock, name)
    for _ in range(20_000):
        assert theirs() <= ours() <= theirs()


@pytest.mark.parametrize("name", ["time", "monotonic", "perf_counter"])
def test_the_time_modules_namesake_is_the_same_clock(name):
    theirs = getattr(time, f"{name}_ns")
    assert theirs() <= getattr(fastclock, f"{name}_ns")() <= theirs()


@each_read
def test_the_forms_are_an_int_and_a_float(module, name, clock, early_ns):
    assert type(getattr(module, f"{name}_ns")()) is int
    assert type(getattr(module, name)()) is float


def test_vtime64_is_time_ns_by_its_old_name():
    assert time.time_ns() <= fastclock.vtime64() <= time.time_ns()


counts_around_a_digit = st.sampled_from([0, 30, 60, 64]).flatmap(
    lambda bits: st.integers(max(0, 2**bits - 3), min(UINT64_MAX, 2**bits + 3))
)


@given(count=st.one_of(st.integers(0, UINT64_MAX), counts_around_a_digit))
def test_every_count_becomes_the_int_that_it_is(counts, count):
    """The accelerator makes its ints by hand: nothing may tell them from the interpreter's own."""
    made = counts.as_int(count)
    own = int(str(count))
    assert type(made) is int
    assert made == own
    assert hash(made) == hash(own)
    assert repr(made) == repr(own)
    assert sys.getsizeof(made) == sys.getsizeof(own)
    assert pickle.dumps(made) == pickle.dumps(own)
    assert made.bit_length() == own.bit_length()
    assert (made - own, made + 1, -made, made * made) == (0, own + 1, -own, own * own)
    assert made is own or sys.getrefcount(made) == sys.getrefcount(own)


@given(count=st.integers(0, UINT64_MAX))
def test_every_count_becomes_the_float_that_the_time_module_would_give(counts, count):
    assert counts.as_float(count) == float(count) / 1e9


def test_reads_leave_no_memory_behind(child):
    grown = child("""
import sys, fastclock, fastclock.relaxed
reads = [fastclock.time_ns, fastclock.monotonic_ns, fastclock.time, fastclock.relaxed.raw_ns]
def read(rounds):
    for _ in range(rounds):
        for f in reads:
            f()
    return sys.getallocatedblocks()
read(1000)
start = read(1000)
print(read(100_000) - start)
""")
    assert grown < 100


def test_reads_work_under_the_debugging_allocator_and_tracemalloc(child):
    """The ints made by hand come from the interpreter's allocator, whichever that is."""
    held = child(
        """
import fastclock, fastclock.relaxed, json, time, tracemalloc
tracemalloc.start()
before = tracemalloc.get_traced_memory()[0]
stamps = [fastclock.time_ns() for _ in range(10_000)]
held = tracemalloc.get_traced_memory()[0] - before
assert stamps == sorted(stamps) and stamps[-1] <= time.time_ns()
print(held)
""",
        PYTHONMALLOC="debug",
    )
    assert held > 10_000 * 32


# ---- Calls -----------------------------------------------------------------------------------


@each_read
@pytest.mark.parametrize("suffix", ["", "_ns"])
def test_a_read_refuses_arguments(module, name, clock, early_ns, suffix):
    read = getattr(module, name + suffix)
    with pytest.raises(TypeError, match="takes no arguments"):
        read(1)
    with pytest.raises(TypeError, match="no keyword arguments"):
        read(clock=1)


def public(module):
    return [(name, getattr(module, name)) for name in module.__all__]


@pytest.mark.parametrize("module", [fastclock, fastclock.relaxed], ids=lambda m: m.__name__)
def test_every_public_function_has_a_docstring_and_a_signature(module):
    functions = [(name, value) for name, value in public(module) if callable(value)]
    assert len(functions) >= 10
    for name, function in functions:
        assert len(inspect.getdoc(function)) > 60, name
        inspect.signature(function)


def test_a_read_has_a_signature_without_parameters():
    assert str(inspect.signature(fastclock.monotonic_ns)) == "()"


def test_all_names_what_is_there():
    listed = {name for name in dir(fastclock) if not name.startswith("_")}
    assert listed - {"relaxed"} <= {*fastclock.__all__}
    assert {*fastclock.__all__} <= {*dir(fastclock)}


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'fastclock' has no attribute 'nonsense'"):
        fastclock.nonsense  # noqa: B018


def test_the_version_is_the_librarys():
    from importlib.metadata import version

    assert fastclock.__version__ == fastclock.ffi.string(fastclock.lib.fc_version()).decode()
    assert fastclock.__version__ == version("fastclock")


# ---- Importing -------------------------------------------------------------------------------


def test_importing_brings_the_reads_alone(child):
    """CFFI and all else come when they are first asked for."""
    brought = child("""
import sys
before = set(sys.modules)
import fastclock
fastclock.monotonic_ns()
after = set(sys.modules)
import json
print(json.dumps(sorted(after - before)))
""")
    assert brought == ["fastclock", "fastclock._clocks"]


@pytest.mark.parametrize("name", ["lib", "ffi", "info", "Info", "relaxed", "select", "fill_ns"])
def test_what_comes_later_is_there_when_asked_for(child, name):
    assert child(f"""
import fastclock
a = fastclock.{name}
from fastclock import {name}
print("true" if a is {name} and fastclock.{name} is a else "false")
""")


def test_star_import_brings_everything(child):
    missing = child("""
from fastclock import *
import fastclock, json
print(json.dumps([name for name in fastclock.__all__ if name not in globals()]))
""")
    assert missing == []


def test_both_modules_share_one_copy_of_the_library(child):
    mapped = child("""
import fastclock, json
fastclock.lib
with open("/proc/self/maps") as maps:
    print(json.dumps(sorted({line.split()[-1] for line in maps if "libfastclock" in line})))
""")
    assert len(mapped) == 1
    assert pathlib.Path(mapped[0]).parent == pathlib.Path(fastclock.__file__).parent


# ---- info and select -------------------------------------------------------------------------


def test_info_has_what_it_promises():
    info = fastclock.info()
    assert isinstance(info, fastclock.Info)
    assert info.source == "kernel-page" or info.reasons["kernel-page"]
    assert len(info.reason) > 10
    assert info.counter_hz is None or 10**5 < info.counter_hz < 10**11
    assert info.resolution_ns == round(time.clock_getres(time.CLOCK_MONOTONIC) * 1e9)
    assert info.coarse_resolution_ns == round(time.clock_getres(CLOCKS["monotonic_coarse"]) * 1e9)
    assert set(info.reasons) == {"kernel-page", "timekeep", "vdso", "syscall", "libc"} - {
        info.source
    }


def test_info_leaves_out_nothing_that_the_library_tells():
    told = {name for name, _ in fastclock.ffi.typeof("struct fc_info").fields}
    assert told - {"size", "reason"} <= {*fastclock.Info._fields}
    assert {"reason", "reasons"} <= {*fastclock.Info._fields}


def test_info_tells_of_a_timekeep_page_of_ones_own(child):
    told = child("""
import fastclock, json
without = fastclock.info()
fastclock.select("timekeep")
fastclock.monotonic_ns()
print(json.dumps([without._asdict(), fastclock.info()._asdict()]))
""")
    assert (told[0]["timekeep"], told[0]["timekeep_interval_ns"]) == (None, 0)
    assert told[1]["source"] == "timekeep"
    assert told[1]["timekeep"] in ("own", "host")
    assert told[1]["timekeep_interval_ns"] > 0
    assert told[1]["reason"] == "timekeep was asked for"


@pytest.mark.parametrize("source", ["auto", *SOURCES])
def test_select_changes_the_source_for_both_modules(source, probe):
    fastclock.select(source)
    info = fastclock.info()
    name = "libc" if source == "off" else source
    assert info.wanted == name
    assert source == "auto" or info.source == name
    assert fastclock.time_ns() <= fastclock.lib.fc_realtime_ns() <= fastclock.time_ns()


@pytest.mark.parametrize("source", ["bogus", "", "none", "Kernel-Page", "syscall "])
def test_select_refuses_another_name_and_says_which_are_allowed(source):
    before = fastclock.info()
    with pytest.raises(ValueError, match="auto, kernel-page, timekeep, vdso, syscall, off"):
        fastclock.select(source)
    assert fastclock.info().source == before.source


@pytest.mark.parametrize("source", [None, 3, b"vdso"])
def test_select_refuses_what_is_no_str(source):
    with pytest.raises(TypeError, match="must be a str"):
        fastclock.select(source)


def test_select_of_a_refused_source_raises_with_the_reason_and_keeps_the_choice(child):
    told = child("""
import errno, fastclock, json, probe
fastclock.select("vdso")
assert probe.lib.probe_refuse_clock_gettime(errno.EPERM) == 0
try:
    fastclock.select("syscall")
except OSError as error:
    print(json.dumps([error.errno, str(error), fastclock.info().source]))
""")
    assert told[0] == errno.ENOTSUP
    assert "syscall was refused: the system call was refused" in told[1]
    assert told[2] == "vdso"


# ---- Reading by number, batches, the counter -------------------------------------------------


@pytest.mark.parametrize("name, clock", CLOCKS.items())
def test_read_ns_reads_a_clock_by_number(name, clock):
    assert time.clock_gettime_ns(clock) <= fastclock.read_ns(clock) <= time.clock_gettime_ns(clock)


def test_read_ns_of_an_unknown_clock_is_an_error_that_names_it():
    with pytest.raises(OSError, match="no clock 20") as caught:
        fastclock.read_ns(20)
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("clock", [2**31, "1", None, 1.5])
def test_read_ns_refuses_what_is_no_clock_number(clock):
    with pytest.raises((TypeError, OverflowError)):
        fastclock.read_ns(clock)


@pytest.mark.parametrize(
    "buffer",
    [
        array.array("Q", bytes(8 * 1000)),
        array.array("q", bytes(8 * 1000)),
        bytearray(8 * 1000),
        memoryview(bytearray(8 * 1002))[8:-8],
    ],
    ids=["array Q", "array q", "bytearray", "memoryview"],
)
def test_fill_ns_fills_a_buffer_with_successive_readings(buffer):
    before = time.monotonic_ns()
    assert fastclock.fill_ns(time.CLOCK_MONOTONIC, buffer) == 1000
    after = time.monotonic_ns()
    stamps = [before, *memoryview(buffer).cast("B").cast("Q"), after]
    assert stamps == sorted(stamps)


def test_fill_ns_leaves_the_rest_of_the_memory_alone():
    memory = bytearray(b"\xaa" * 80)
    fastclock.fill_ns(1, memoryview(memory)[16:64])
    assert memory[:16] == b"\xaa" * 16
    assert memory[64:] == b"\xaa" * 16


def test_fill_ns_takes_an_empty_buffer():
    assert fastclock.fill_ns(1, bytearray()) == 0


@pytest.mark.parametrize(
    "buffer, error, words",
    [
        (bytes(8), TypeError, "writable"),
        (bytearray(12), ValueError, "multiple of 8 bytes, not 12"),
        (memoryview(bytearray(64))[::2], ValueError, "contiguous"),
        ([0, 0], TypeError, "bytes-like"),
        (None, TypeError, "bytes-like"),
    ],
)
def test_fill_ns_refuses_another_buffer_and_says_why(buffer, error, words):
    with pytest.raises(error, match=words):
        fastclock.fill_ns(1, buffer)


def test_fill_ns_of_an_unknown_clock_leaves_the_buffer_untouched():
    buffer = bytearray(b"\xaa" * 16)
    with pytest.raises(OSError, match="no clock 20"):
        fastclock.fill_ns(20, buffer)
    assert buffer == b"\xaa" * 16


def test_ticks_convert_to_the_nanoseconds_between():
    raw0 = fastclock.raw_ns()
    ticks0 = fastclock.ticks_ordered()
    ticks1 = fastclock.ticks_ordered()
    raw1 = fastclock.raw_ns()
    assert fastclock.ticks_to_ns(ticks1 - ticks0) <= raw1 - raw0 + 2


def test_ticks_hz_is_what_info_tells():
    assert fastclock.info().counter_hz in (None, fastclock.ticks_hz())


@pytest.mark.parametrize("ticks", [-1, 2**64])
def test_ticks_to_ns_refuses_what_does_not_fit(ticks):
    with pytest.raises(OverflowError, match="from 0 to 2\\*\\*64 - 1"):
        fastclock.ticks_to_ns(ticks)


def test_getcpu_names_the_processor():
    allowed = os.sched_getaffinity(0)
    try:
        for number in allowed:
            os.sched_setaffinity(0, {number})
            assert fastclock.getcpu()[0] == number
    finally:
        os.sched_setaffinity(0, allowed)


# ---- The command -----------------------------------------------------------------------------


def command(*arguments, before=(), **environment):
    return subprocess.run(
        [*before, sys.executable, "-m", "fastclock", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_command_tells_every_field_as_text():
    done = command()
    assert done.returncode == 0
    assert done.stderr == ""
    for field in fastclock.Info._fields:
        assert f"{field}:" in done.stdout


def test_the_command_tells_the_same_as_json():
    done = command("--json")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert set(told) == {"version", *fastclock.Info._fields}
    assert told["source"] == fastclock.info().source


def test_the_command_refuses_what_it_does_not_know():
    done = command("--nonsense")
    assert done.returncode == 2
    assert "--nonsense" in done.stderr


@pytest.mark.parametrize("option, words", [("--help", "--json"), ("--version", "0.")])
def test_the_command_has_help_and_version(option, words):
    done = command(option)
    assert done.returncode == 0
    assert words in done.stdout


def test_the_command_fails_where_no_source_serves(built):
    code = """
import errno, probe, runpy, sys
assert probe.lib.probe_refuse_clock_gettime(errno.EPERM) == 0
sys.argv = ["fastclock"]
runpy.run_module("fastclock", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(built), "FASTCLOCK_SOURCE": "syscall"},
    )
    assert done.returncode == 1
    assert "no source serves; " in done.stderr or "no source serves: " in done.stderr
    assert "syscall: the system call was refused" in done.stderr


# ---- The stubs -------------------------------------------------------------------------------


def test_the_stubs_match_what_is_there(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "fastclock"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


USER = """
import array
import fastclock
import fastclock.relaxed

stamp: int = fastclock.monotonic_ns() + fastclock.relaxed.monotonic_ns() + fastclock.vtime64()
seconds: float = fastclock.time() + fastclock.relaxed.time() + fastclock.monotonic_coarse()
source: str = fastclock.info().source
hertz: int = fastclock.info().counter_hz or fastclock.ticks_hz()
filled: int = fastclock.fill_ns(1, array.array("Q", [0]))
by_c: int = fastclock.lib.fc_monotonic_ns() + fastclock.lib.FC_MONOTONIC
fastclock.select("auto")
"""


def check_types(tmp_path, program):
    (tmp_path / "user.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "user.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )


def test_a_program_with_types_passes_a_type_checker(tmp_path):
    done = check_types(tmp_path, USER)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "fastclock.monotonic_ns(1)",
        "name: str = fastclock.time_ns()",
        "fastclock.select(3)",
        "fastclock.lib.fc_read_ns()",
        "fastclock.lib.no_such_function()",
        "fastclock.relaxed.boottime_ns()",
    ],
)
def test_a_wrong_program_does_not_pass_a_type_checker(tmp_path, line):
    done = check_types(tmp_path, USER + line + "\n")
    assert done.returncode == 1, done.stdout
    assert "user.py:13: error" in done.stdout
