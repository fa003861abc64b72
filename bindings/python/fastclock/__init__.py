"""The kernel's own time, at the price of reading the processor's counter.

    >>> import fastclock
    >>> fastclock.monotonic_ns()    # as time.monotonic_ns(), in two thirds of its time
    >>> fastclock.relaxed.monotonic_ns()    # no fence: faster again, see fastclock.relaxed
    >>> fastclock.info().source
    'kernel-page'

Reads, each in nanoseconds (an int) with `_ns` and in seconds (a float) without: `time`, `realtime`,
`monotonic`, `perf_counter`, `raw`, `boottime`, `tai`, and `time_coarse`, `monotonic_coarse` for the
values at the kernel's last tick. `vtime64()` is `time_ns()` by its old name.

`info()` tells which source serves and why; `select()` changes it. The whole C interface is
`fastclock.lib` and `fastclock.ffi`, by CFFI. The environment variable FASTCLOCK_SOURCE chooses the
source: auto, kernel-page, timekeep, vdso, syscall or off.
"""

from fastclock._clocks import (
    __version__,
    boottime,
    boottime_ns,
    monotonic,
    monotonic_coarse,
    monotonic_coarse_ns,
    monotonic_ns,
    perf_counter,
    perf_counter_ns,
    raw,
    raw_ns,
    realtime,
    realtime_ns,
    tai,
    tai_ns,
    ticks,
    ticks_ordered,
    time,
    time_coarse,
    time_coarse_ns,
    time_ns,
    vtime64,
)

# What is not a read is loaded when it is first asked for: CFFI takes longer to import than all the
# rest. Name -> the module that has it.
_LATER = {
    "Info": "fastclock._library",
    "ffi": "fastclock._abi",
    "fill_ns": "fastclock._library",
    "getcpu": "fastclock._library",
    "info": "fastclock._library",
    "lib": "fastclock._abi",
    "read_ns": "fastclock._library",
    "relaxed": None,  # a module itself
    "select": "fastclock._library",
    "ticks_hz": "fastclock._library",
    "ticks_to_ns": "fastclock._library",
}

__all__ = [
    "Info",
    "__version__",
    "boottime",
    "boottime_ns",
    "ffi",
    "fill_ns",
    "getcpu",
    "info",
    "lib",
    "monotonic",
    "monotonic_coarse",
    "monotonic_coarse_ns",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "raw",
    "raw_ns",
    "read_ns",
    "realtime",
    "realtime_ns",
    "relaxed",
    "select",
    "tai",
    "tai_ns",
    "ticks",
    "ticks_hz",
    "ticks_ordered",
    "ticks_to_ns",
    "time",
    "time_coarse",
    "time_coarse_ns",
    "time_ns",
    "vtime64",
]


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = _LATER[name]
    value = (
        import_module(f"fastclock.{name}") if home is None else getattr(import_module(home), name)
    )
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_LATER})
