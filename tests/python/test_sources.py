"""Each source forced in turn, and proof that it was used: by what the processor executes."""

import errno
import json
import os
import pathlib
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from conftest import CLOCKS, SOURCES, assert_all_inside

CLOCKSOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

# Runs in a child with FASTCLOCK_SOURCE set: the library chooses from the environment.
STEPS = """
import json, fastclock, probe
steps = {}
for name in ("fc_monotonic_ns", "fc_realtime_ns", "fc_raw_ns", "fc_boottime_ns", "fc_tai_ns",
             "fc_monotonic_relaxed_ns", "fc_monotonic_coarse_ns", "vtime64"):
    address = int(fastclock.ffi.cast("uintptr_t", fastclock.ffi.addressof(fastclock.lib, name)))
    runs = []
    # Stepping is slow enough for the kernel to write its page meanwhile, which costs a second look:
    # the shortest of several runs is the undisturbed one.
    for _ in range(8):
        out = probe.ffi.new("struct probe_steps *")
        error = probe.lib.probe_steps(address, out)
        assert error == 0, error
        runs.append({key: getattr(out, key) for key in dir(out)})
    steps[name] = min(runs, key=lambda run: run["instructions"])
info = fastclock.info()
print(json.dumps({"steps": steps, "source": info.source, "serving": info.serving,
                  "coarse_serving": info.coarse_serving, "wanted": info.wanted}))
"""


@pytest.fixture(scope="module", params=SOURCES)
def stepped(request, built):
    """(the source asked for, what a child executed that was told so by the environment)"""
    done = subprocess.run(
        [sys.executable, "-c", STEPS],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(built), "FASTCLOCK_SOURCE": request.param},
    )
    assert done.returncode == 0, done.stderr
    return request.param, json.loads(done.stdout)


def test_info_names_the_source_that_the_environment_asks_for(stepped):
    source, told = stepped
    name = "libc" if source == "off" else source
    assert (told["source"], told["serving"], told["wanted"]) == (name, name, name)
    assert told["coarse_serving"] == name


def test_the_source_asked_for_is_what_is_executed(stepped):
    source, told = stepped
    for name, steps in told["steps"].items():
        counter_reads = 0 if "coarse" in name else 1
        if source == "kernel-page":
            expected = {"counter": counter_reads, "syscalls": 0, "vdso": 0, "libc": 0}
        elif source == "vdso":
            assert steps.pop("vdso") > 0, (name, steps)
            expected = {"counter": 0, "syscalls": 0, "libc": 0}
        elif source == "syscall":
            expected = {"counter": 0, "syscalls": 1, "vdso": 0, "libc": 0}
        else:
            assert steps.pop("vdso") > 0, (name, steps)
            expected = {"counter": 0, "syscalls": 0, "libc": 1}
        assert {key: steps[key] for key in expected} == expected, (name, steps)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["monotonic_ns", "relaxed.monotonic_ns", "time_coarse", "raw"])
def test_system_calls_are_made_by_the_source_that_needs_them(child, tmp_path, source, name):
    """The compiled reads of the package, counted from outside by strace."""
    log, reads = tmp_path / "strace", 5000
    child(
        f"""
import fastclock, fastclock.relaxed
for _ in range({reads}):
    fastclock.{name}()
print("null")
""",
        before=["strace", "-f", "-e", "trace=clock_gettime", "-o", str(log)],
        FASTCLOCK_SOURCE=source,
    )
    made = log.read_text().count("clock_gettime(")
    if source == "syscall":
        assert made >= reads
    else:
        assert made < reads / 10  # the proof at the start, and what the interpreter does itself


TELL = """
import json, fastclock
print(json.dumps({"version": fastclock.__version__, **fastclock.info()._asdict()}))
"""


@pytest.mark.parametrize(
    "value", ["bogus", "KERNEL-PAGE", " vdso", "vdso ", "none", "libc", "auto,vdso", "1", "vds"]
)
def test_an_unknown_source_is_refused_with_the_allowed_names_and_changes_nothing(child, value):
    usual = child(TELL)
    told = child(TELL, FASTCLOCK_SOURCE=value)
    for name in ("auto", "kernel-page", "timekeep", "vdso", "syscall", "off"):
        assert name in told["wanted_reason"]
    assert told["reason"] == told["wanted_reason"]
    assert told["wanted"] == "auto"
    assert told["source"] == usual["source"]


@pytest.mark.parametrize("value", ["", "auto"])
def test_auto_and_nothing_are_the_usual_choice(child, value):
    usual = child(TELL)
    told = child(TELL, FASTCLOCK_SOURCE=value)
    assert told["wanted_reason"] is None
    assert (told["source"], told["wanted"]) == (usual["source"], "auto")


def test_on_this_host_the_usual_choice_is_told_with_its_proof(child):
    told = child(TELL)
    if pathlib.Path(CLOCKSOURCE).read_text().strip() == "tsc":
        assert told["source"] == "kernel-page"
        assert told["proof_rounds"] > 0
        assert told["layout"]
    assert told["source"] in ("kernel-page", "vdso", "syscall")
    assert told["source"] not in told["reasons"]
    assert all(len(reason) > 10 for reason in told["reasons"].values())


# ---- Hosts and faults ------------------------------------------------------------------------

BRACKETS = (
    """
import json, fastclock, probe
def brackets(rounds, control=True):
    result = {}
    for name, number in %r.items():
        out = probe.ffi.new("struct probe_brackets *")
        read = int(fastclock.ffi.cast("uintptr_t",
                                      fastclock.ffi.addressof(fastclock.lib, f"fc_{name}_ns")))
        probe.lib.probe_brackets(number, read, 0, rounds, 0, control, out)
        result[name] = {key: getattr(out, key) for key in dir(out)}
    return result
"""
    % CLOCKS
)


def assert_brackets(result, rounds):
    assert set(result) == set(CLOCKS)
    for tallies in result.values():
        assert_all_inside(SimpleNamespace(**tallies), rounds)


NAMESPACE = (
    BRACKETS
    + """
info = fastclock.info()
print(json.dumps({"brackets": brackets(100_000), "now": fastclock.monotonic_ns(),
                  "boot": fastclock.boottime_ns(), "raw": fastclock.raw_ns(),
                  "relaxed": fastclock.relaxed.monotonic_ns(),
                  "coarse": fastclock.monotonic_coarse_ns(), "time": fastclock.time_ns(),
                  "info": info._asdict()}))
"""
)
UNSHARE = ["unshare", "--time", "--monotonic", "100000", "--boottime", "200000", "--fork"]


@pytest.mark.parametrize("source", ["auto", *SOURCES])
def test_readings_in_a_time_namespace_lie_in_their_brackets(child, source):
    told = child(NAMESPACE, before=UNSHARE, FASTCLOCK_SOURCE=source)
    assert_brackets(told["brackets"], 100_000)


@pytest.mark.parametrize("source", ["auto", *SOURCES])
def test_the_offsets_of_a_time_namespace_are_added(child, source):
    def all_clocks():
        coarse = time.clock_gettime_ns(6)
        return {
            "coarse": coarse + 100_000 * 10**9,
            "now": time.monotonic_ns() + 100_000 * 10**9,
            "relaxed": time.monotonic_ns() + 100_000 * 10**9,
            "raw": time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + 100_000 * 10**9,
            "boot": time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 200_000 * 10**9,
            "time": time.time_ns(),
        }

    before = all_clocks()
    told = child(NAMESPACE, before=UNSHARE, FASTCLOCK_SOURCE=source)
    after = all_clocks()
    for name, earliest in before.items():
        assert earliest <= told[name] <= after[name], name


def test_a_time_namespace_is_served_from_the_page_and_told(child):
    outside = child(TELL)
    told = child(NAMESPACE, before=UNSHARE)["info"]
    assert told["time_namespace"] is True
    assert outside["time_namespace"] is False
    assert told["serving"] == outside["serving"]
    assert told["slow_reads"] == 0


# The dynamic loader and the interpreter's locks read the counter themselves: everything is loaded
# before the counter goes, and printed when it is back.
DISABLED = (
    BRACKETS
    + """
fastclock.Info, fastclock.relaxed, fastclock.lib
assert probe.lib.probe_counter(0) == 0
result = {"brackets": brackets(100_000, control=False), "info": fastclock.info()}
before = fastclock.raw_ns()
ticks = fastclock.ticks()
result["ticks_between"] = before <= ticks <= fastclock.raw_ns()
result["hz"] = fastclock.ticks_hz()
result["reads"] = [fastclock.time_ns(), fastclock.relaxed.time_ns(), fastclock.time_coarse_ns()]
assert probe.lib.probe_counter(1) == 0
result["info"] = result["info"]._asdict()
print(json.dumps(result))
"""
)


@pytest.fixture(params=["auto", "kernel-page", "vdso", "syscall"])
def disabled(child, request):
    """A child with the counter disabled by prctl before the first read."""
    return child(DISABLED, FASTCLOCK_SOURCE=request.param)


def test_a_disabled_counter_is_not_read_and_the_system_call_serves(disabled):
    assert_brackets(disabled["brackets"], 100_000)
    assert disabled["info"]["serving"] == "syscall"
    assert disabled["info"]["counter"] is False


def test_a_disabled_counter_is_told_as_the_reason(child):
    told = child(DISABLED)["info"]
    assert "PR_SET_TSC" in told["reasons"]["kernel-page"]
    assert "PR_SET_TSC" in told["reasons"]["vdso"]
    assert told["coarse_serving"] == "kernel-page"  # which needs no counter


def test_ticks_are_raw_nanoseconds_where_the_counter_is_disabled(child):
    told = child(DISABLED)
    assert told["ticks_between"] is True
    assert told["hz"] == 10**9


REFUSED = """
import json, errno, fastclock, fastclock.relaxed, probe
assert probe.lib.probe_refuse_clock_gettime({error}) == 0
answers = {{}}
for where in (fastclock, fastclock.relaxed):
    for name in where.__all__:
        if name.endswith("_ns") and name not in ("fill_ns", "read_ns", "ticks_to_ns"):
            for form in (name, name[:-3]):
                try:
                    answers[f"{{where.__name__}}.{{form}}"] = getattr(where, form)()
                except OSError as error:
                    answers[f"{{where.__name__}}.{{form}}"] = [error.errno, str(error)]
ns = fastclock.ffi.new("uint64_t *", 7)
print(json.dumps({{"answers": answers, "source": fastclock.info().source,
                  "reason": fastclock.info().reason, "init": fastclock.lib.fc_init(),
                  "read": [fastclock.lib.fc_read_ns(1, ns), ns[0]],
                  "raw": fastclock.lib.fc_monotonic_ns()}}))
"""


@pytest.mark.parametrize("error", ["errno.EPERM", "errno.ENOSYS"])
def test_where_nothing_serves_no_time_is_invented(child, error):
    """clock_gettime refused by seccomp: nothing can be proved, and nothing answers."""
    told = child(REFUSED.format(error=error), FASTCLOCK_SOURCE="syscall")
    assert told["source"] == "none"
    assert told["init"] == -errno.ENOTSUP
    assert told["read"] == [-errno.ENOTSUP, 7]
    assert told["raw"] == 2**64 - 1


@pytest.mark.parametrize("error", ["errno.EPERM", "errno.ENOSYS"])
def test_where_nothing_serves_every_read_raises_with_the_reasons(child, error):
    told = child(REFUSED.format(error=error), FASTCLOCK_SOURCE="syscall")
    assert len(told["answers"]) == 28
    for name, answer in told["answers"].items():
        assert isinstance(answer, list), f"{name} answered {answer}"
        assert answer[0] == errno.ENOTSUP, name
        assert "syscall: the system call was refused" in answer[1], name
