"""The claim that everything comes down to: a reading lies between two by raw system call."""

import pytest
from conftest import CLOCKS, NEVER_BACK, SOURCES, assert_all_inside

MILLION = 1_000_000
RELAXED = {"realtime": 0, "monotonic": 1, "raw": 4}
RELAXED_EARLY_NS = 1000  # BRACKET_RELAXED_EARLY_NS: what a pipeline can hold at the very most


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_million_readings_lie_in_their_brackets(core, bracket, source, clock):
    core.select(source)
    tallies = bracket(CLOCKS[clock], MILLION, read=core.address(f"fc_{clock}_ns"))
    assert_all_inside(tallies, MILLION)


@pytest.mark.parametrize("clock", NEVER_BACK)
@pytest.mark.parametrize("source", SOURCES)
def test_readings_of_one_thread_never_go_back(core, bracket, source, clock):
    core.select(source)
    tallies = bracket(CLOCKS[clock], MILLION // 10, read=core.address(f"fc_{clock}_ns"))
    assert tallies.back == 0, tallies


@pytest.mark.parametrize("clock", RELAXED)
@pytest.mark.parametrize("source", SOURCES)
def test_relaxed_readings_are_early_by_the_pipeline_at_most(core, bracket, source, clock):
    core.select(source)
    tallies = bracket(
        RELAXED[clock],
        MILLION // 10,
        read=core.address(f"fc_{clock}_relaxed_ns"),
        early_ns=RELAXED_EARLY_NS,
    )
    assert_all_inside(tallies, MILLION // 10)


@pytest.mark.parametrize("source", SOURCES)
def test_vtime64_is_the_realtime_clock(core, bracket, source):
    core.select(source)
    assert_all_inside(bracket(0, MILLION // 10, read=core.address("vtime64")), MILLION // 10)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("source", SOURCES)
def test_readings_by_number_lie_in_their_brackets(core, bracket, source, clock):
    core.select(source)
    tallies = bracket(CLOCKS[clock], MILLION // 10, read_number=core.address("fc_read_ns"))
    assert_all_inside(tallies, MILLION // 10)


def test_a_bracket_tells_a_wrong_clock(core, bracket):
    """Raw time, claimed to be monotonic: the check itself must be able to fail."""
    tallies = bracket(CLOCKS["monotonic"], 1000, read=core.address("fc_realtime_ns"))
    assert tallies.outside > 900, tallies
    assert tallies.control_outside == 0, tallies


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("number", range(-1, 21))
def test_each_clock_id_is_answered_as_by_the_kernel(core, probe, source, number):
    """Value or errno."""
    core.select(source)
    before, after = probe.ffi.new("uint64_t *"), probe.ffi.new("uint64_t *")
    ours = core.ffi.new("uint64_t *")
    kernels_error = probe.lib.probe_syscall_ns(number, before)
    our_error = core.lib.fc_read_ns(number, ours)
    assert probe.lib.probe_syscall_ns(number, after) == kernels_error
    assert our_error == kernels_error
    if our_error == 0:
        assert before[0] <= ours[0] <= after[0]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_batch_is_a_run_of_readings_within_one_bracket(core, probe, clock):
    number, count = CLOCKS[clock], 10_000
    before, after = probe.ffi.new("uint64_t *"), probe.ffi.new("uint64_t *")
    out = core.ffi.new("uint64_t[]", count)
    assert probe.lib.probe_syscall_ns(number, before) == 0
    assert core.lib.fc_fill_ns(number, out, count) == 0
    assert probe.lib.probe_syscall_ns(number, after) == 0
    stamps = [before[0], *out, after[0]]
    assert stamps == sorted(stamps)
