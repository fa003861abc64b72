"""The rest of the ABI: arguments that are wrong, what is told, the counter, the processor."""

import errno
import os
import re
import time
from fractions import Fraction

import fastclock
import pytest
from conftest import ABI_H, ROOT, SOURCES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

UINT64_MAX = 2**64 - 1
INT32 = st.integers(-(2**31), 2**31 - 1)
# The fixture chooses a library and is the same for every example.
shared = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


# ---- The declarations ------------------------------------------------------------------------


def test_abi_h_holds_declarations_alone():
    assert not [line for line in ABI_H.read_text().splitlines() if line.lstrip().startswith("#")]


def test_every_declared_function_is_in_the_library(core):
    declared = [name for name in dir(fastclock.lib) if callable(getattr(fastclock.lib, name))]
    without_comments = re.sub(r"/\*.*?\*/", "", ABI_H.read_text(), flags=re.DOTALL)
    assert len(declared) == without_comments.count("(")
    for name in declared:
        assert core.address(name)


def test_the_version_is_the_headers(core):
    header = (ROOT / "include" / "fastclock.h").read_text()
    parts = [
        re.search(rf"FASTCLOCK_VERSION_{part} (\d+)", header).group(1)
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    assert core.ffi.string(core.lib.fc_version()).decode() == ".".join(parts)


# ---- Arguments that are wrong ----------------------------------------------------------------


def test_null_where_a_reading_goes_is_efault(core):
    assert core.lib.fc_read_ns(core.lib.FC_MONOTONIC, core.ffi.NULL) == -errno.EFAULT


def test_null_where_a_batch_goes_is_efault(core):
    assert core.lib.fc_fill_ns(core.lib.FC_MONOTONIC, core.ffi.NULL, 1) == -errno.EFAULT


def test_null_is_allowed_for_an_empty_batch(core):
    assert core.lib.fc_fill_ns(core.lib.FC_MONOTONIC, core.ffi.NULL, 0) == 0


def test_null_where_the_info_goes_is_efault(core):
    assert core.lib.fc_get_info(core.ffi.NULL, 1000) == -errno.EFAULT


def test_an_unknown_clock_is_einval_and_leaves_the_place_untouched(core):
    place = core.ffi.new("uint64_t *", 12345)
    assert core.lib.fc_read_ns(20, place) == -errno.EINVAL
    assert place[0] == 12345


def test_an_unknown_clock_leaves_the_batch_untouched(core):
    places = core.ffi.new("uint64_t[]", [12345] * 4)
    assert core.lib.fc_fill_ns(20, places, 4) == -errno.EINVAL
    assert list(places) == [12345] * 4


@shared
@given(number=INT32.filter(lambda n: n != -1 and not 1 <= n <= 5))
def test_a_number_that_is_no_source_is_einval_and_changes_nothing(core, number):
    before = core.info()
    assert core.lib.fc_select(number) == -errno.EINVAL
    after = core.info()
    assert (after.source, after.wanted) == (before.source, before.wanted)


@shared
@given(size=st.integers(0, 2**12))
def test_info_is_filled_as_far_as_the_size_goes_and_no_further(core, size):
    whole = core.ffi.sizeof("struct fc_info")
    room = max(size, whole) + 64
    filled = min(size, whole)
    results = []
    for pattern in (b"\xaa", b"\x55"):
        buffer = core.ffi.new("unsigned char[]", pattern * room)
        assert core.lib.fc_get_info(core.ffi.cast("struct fc_info *", buffer), size) == 0
        results.append(bytes(core.ffi.buffer(buffer)))
        assert results[-1][filled : filled + 64] == pattern * 64
    # A byte that was not written would still differ by the pattern.
    for at, (a, b) in enumerate(zip(results[0][:filled], results[1][:filled])):
        assert (a, b) != (0xAA, 0x55), f"byte {at} of {filled} was left out"


@shared
@given(size=st.integers(0, 2**32 - 1))
def test_info_tells_how_much_it_filled(core, size):
    info = core.ffi.new("struct fc_info *")
    whole = core.ffi.sizeof("struct fc_info")
    assert core.lib.fc_get_info(info, min(size, whole)) == 0
    assert info.size == (min(size, whole) if size >= 4 else info.size & 0xFFFFFFFF)
    more = core.ffi.new("struct fc_info *")
    assert core.lib.fc_get_info(more, max(size, whole)) == 0
    assert more.size == whole


# ---- What is told ----------------------------------------------------------------------------


def enumerators(core, enum):
    return core.ffi.typeof(f"enum {enum}").elements


def test_each_source_has_a_name_of_its_own(core):
    names = [core.ffi.string(core.lib.fc_source_name(n)) for n in enumerators(core, "fc_source")]
    assert len(set(names)) == len(names)
    assert b"unknown" not in names


@shared
@given(number=INT32.filter(lambda n: not -1 <= n <= 5))
def test_another_number_is_an_unknown_source(core, number):
    assert core.ffi.string(core.lib.fc_source_name(number)) == b"unknown"


def test_each_reason_has_a_sentence_of_its_own(core):
    texts = [core.ffi.string(core.lib.fc_reason_text(n)) for n in enumerators(core, "fc_reason")]
    assert len(set(texts)) == len(texts)
    assert all(len(text) > 10 for text in texts)
    assert core.ffi.string(core.lib.fc_reason_text(1000)) not in texts


@shared
@given(number=INT32)
def test_every_number_has_some_sentence_as_reason(core, number):
    assert len(core.ffi.string(core.lib.fc_reason_text(number))) > 10


@pytest.mark.parametrize("source", SOURCES)
def test_info_names_the_source_that_was_selected(core, source):
    core.select(source)
    name = core.ffi.string(core.lib.fc_source_name(core.info().source)).decode()
    assert name == ("libc" if source == "off" else source)
    assert core.info().wanted == core.info().source
    assert core.info().serving == core.info().source


def test_init_answers_0_where_a_source_serves(core):
    assert core.lib.fc_init() == 0


def test_resolutions_are_the_kernels(core):
    info = core.info()
    assert info.resolution_ns == round(time.clock_getres(time.CLOCK_MONOTONIC) * 1e9)
    assert info.coarse_resolution_ns == round(time.clock_getres(6) * 1e9)


def test_the_tai_offset_is_the_kernels(core):
    tai, realtime = time.clock_gettime_ns(time.CLOCK_TAI), time.clock_gettime_ns(0)
    assert core.info().tai_offset_s == round((tai - realtime) / 1e9)


# ---- errno -----------------------------------------------------------------------------------


def calls(core):
    """Every function of the ABI, with arguments right and wrong."""
    ffi, lib = core.ffi, core.lib
    ns, cpu = ffi.new("uint64_t *"), ffi.new("uint32_t *")
    info = ffi.new("struct fc_info *")
    nothing = [
        name
        for name in dir(lib)
        if name.endswith("_ns") and name not in ("fc_read_ns", "fc_fill_ns", "fc_ticks_to_ns")
    ]
    assert len(nothing) == 10
    for name in [*nothing, "vtime64", "fc_ticks", "fc_ticks_ordered", "fc_ticks_hz", "fc_init"]:
        yield name, lambda name=name: getattr(lib, name)()
    yield "fc_read_ns", lambda: lib.fc_read_ns(1, ns)
    yield "fc_read_ns, unknown", lambda: lib.fc_read_ns(20, ns)
    yield "fc_read_ns, NULL", lambda: lib.fc_read_ns(1, ffi.NULL)
    yield "fc_fill_ns, unknown", lambda: lib.fc_fill_ns(20, ns, 1)
    yield "fc_ticks_to_ns", lambda: lib.fc_ticks_to_ns(UINT64_MAX)
    yield "fc_getcpu", lambda: lib.fc_getcpu(cpu, cpu)
    yield "fc_select", lambda: lib.fc_select(lib.FC_SOURCE_AUTO)
    yield "fc_select, unknown", lambda: lib.fc_select(99)
    yield "fc_get_info", lambda: lib.fc_get_info(info, ffi.sizeof("struct fc_info"))
    yield "fc_source_name", lambda: lib.fc_source_name(99)
    yield "fc_reason_text", lambda: lib.fc_reason_text(99)
    yield "fc_version", lambda: lib.fc_version()


@pytest.mark.parametrize("source", SOURCES)
def test_no_call_changes_errno(core, source):
    core.select(source)
    changed = []
    for name, call in calls(core):
        core.ffi.errno = 12345
        call()
        if core.ffi.errno != 12345:
            changed.append(name)
        if name.startswith("fc_select"):
            core.select(source)
    assert changed == []


# ---- The counter -----------------------------------------------------------------------------


def kernels_factor(core):
    """Nanoseconds a tick times 2^32: exact, since the kernel's shift is at most 32."""
    return core.lib.fc_ticks_to_ns(2**32)


@shared
@given(ticks=st.one_of(st.integers(0, UINT64_MAX), st.integers(0, 64).map(lambda n: 2**n - 1)))
def test_ticks_to_ns_is_exact_and_saturates(core, ticks):
    exact = ticks * kernels_factor(core) >> 32
    assert core.lib.fc_ticks_to_ns(ticks) == min(exact, UINT64_MAX)


def test_ticks_hz_is_the_rate_of_ticks_to_ns(core):
    assert core.lib.fc_ticks_hz() == int(
        Fraction(10**9 << 32, kernels_factor(core)) + Fraction(1, 2)
    )


def test_ticks_run_at_the_rate_of_the_raw_clock(core):
    """A span of ticks lies between a span of raw time inside it and one around it."""
    lib = core.lib
    raw0 = lib.fc_raw_ns()
    ticks0 = lib.fc_ticks_ordered()
    raw1 = lib.fc_raw_ns()
    while lib.fc_raw_ns() < raw1 + 50_000_000:
        pass
    raw2 = lib.fc_raw_ns()
    ticks1 = lib.fc_ticks_ordered()
    raw3 = lib.fc_raw_ns()
    span = lib.fc_ticks_to_ns(ticks1 - ticks0)
    assert raw2 - raw1 - 2 <= span <= raw3 - raw0 + 2  # each reading is rounded down


def test_ticks_do_not_go_back(core):
    readings = [core.lib.fc_ticks_ordered() for _ in range(10_000)]
    assert readings == sorted(readings)


# ---- The processor ---------------------------------------------------------------------------


def test_getcpu_names_the_processor_that_the_thread_is_bound_to(core):
    allowed = os.sched_getaffinity(0)
    cpu, node = core.ffi.new("uint32_t *"), core.ffi.new("uint32_t *")
    try:
        for number in allowed:
            os.sched_setaffinity(0, {number})
            assert core.lib.fc_getcpu(cpu, node) == 0
            assert cpu[0] == number
            assert os.path.exists(f"/sys/devices/system/cpu/cpu{number}/node{node[0]}") or (
                node[0] == 0
            )
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize("wanted", ["neither", "cpu", "node"])
def test_getcpu_takes_null_for_what_is_not_wanted(core, wanted):
    number = core.ffi.new("uint32_t *", 99999)
    cpu = number if wanted == "cpu" else core.ffi.NULL
    node = number if wanted == "node" else core.ffi.NULL
    assert core.lib.fc_getcpu(cpu, node) == 0
    assert (number[0] == 99999) == (wanted == "neither")


def test_the_two_modes_are_two_libraries(libraries):
    """Else one half of this suite would test nothing new."""
    addresses = set()
    for mode in ("API", "ABI"):
        ffi, lib = libraries(mode)
        addresses.add(int(ffi.cast("uintptr_t", ffi.addressof(lib, "fc_monotonic_ns"))))
    assert len(addresses) == 2
    assert fastclock.lib is libraries("API")[1]
