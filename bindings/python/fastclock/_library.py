"""What is not a read, through CFFI: the choice of a source, what is known of it, and batches."""

import errno
import os
import typing

from fastclock._abi import ffi, lib


def _text(pointer: typing.Any) -> str:
    return bytes(ffi.string(pointer)).decode()


def _reason(number: int) -> str:
    return _text(lib.fc_reason_text(number))


# The sources that can be asked for, by the names that FASTCLOCK_SOURCE takes.
_SOURCES = {
    "off" if number == lib.FC_SOURCE_LIBC else _text(lib.fc_source_name(number)): number
    for number in sorted(ffi.typeof("enum fc_source").elements)
    if number != lib.FC_SOURCE_NONE
}

# Whose page, by the numbers of struct fc_info.
_TIMEKEEP = {0: None, 1: "own", 2: "host"}


class Info(typing.NamedTuple):
    """What was chosen and why, as things stood when info() was called."""

    source: str
    """The source chosen: kernel-page, timekeep, vdso, syscall, libc, or none."""
    reason: str
    """Why this source and no earlier one: a sentence for a person."""
    serving: str
    """What answers an ordered read at this moment; differs from `source` while that one has to
    stand back."""
    serving_reason: typing.Optional[str]
    """Why it differs, or None."""
    coarse_serving: str
    """What answers a read of the coarse clocks at this moment."""
    wanted: str
    """The source asked for by FASTCLOCK_SOURCE or select(); auto if none was."""
    wanted_reason: typing.Optional[str]
    """Why FASTCLOCK_SOURCE was not followed, or None."""
    reasons: typing.Dict[str, str]
    """For each source that is not in use, why: a sentence."""
    counter_hz: typing.Optional[int]
    """Ticks of the counter a second; None if that would have to be measured, see ticks_hz()."""
    counter: bool
    """Whether the counter may be read."""
    resolution_ns: int
    """Resolution of the clocks that are not coarse."""
    coarse_resolution_ns: int
    """Resolution of the coarse clocks: the length of the kernel's tick."""
    layout: typing.Optional[str]
    """Name of the layout of the kernel's page, or None if it was not recognised."""
    mode: typing.Optional[int]
    """The kernel's clock mode as its page has it now (1: the counter), or None."""
    time_namespace: typing.Optional[bool]
    """Whether the process is in a time namespace, or None if that is not known."""
    tai_offset_s: int
    """Seconds that TAI is ahead of realtime; 0 most likely means that nobody told the kernel."""
    proof_rounds: int
    """Readings, each bracketed by two system calls, that the source in use has passed."""
    slow_reads: int
    """Reads that left the fast path since the process began."""
    timekeep: typing.Optional[str]
    """Whose timekeep page is in use: "own" (this process's), "host", or None."""
    timekeep_in_service: bool
    """Whether its publisher trusts the counter now."""
    timekeep_interval_ns: int
    """Nanoseconds between two of its updates; 0 without a page, as are the next three."""
    timekeep_error_ns: int
    """The furthest that its monotonic clock was seen from the kernel's."""
    timekeep_steps: int
    """Times that the realtime clock was set meanwhile."""
    timekeep_outages: int
    """Times that the page had to be taken out of service."""


def _why(raw: typing.Any, source: str, reasons: typing.Dict[str, str]) -> str:
    """The sentence for Info.reason."""
    if raw.wanted_reason:
        return _reason(raw.wanted_reason)
    if raw.source == lib.FC_SOURCE_NONE:
        return "no source serves: " + "; ".join(f"{name}: {why}" for name, why in reasons.items())
    if raw.wanted == raw.source:
        return f"{source} was asked for"
    first = lib.FC_SOURCE_KERNEL_PAGE if raw.wanted == lib.FC_SOURCE_AUTO else raw.wanted
    if raw.source == first:
        return f"the first choice; it passed {raw.proof_rounds} readings bracketed by system calls"
    return f"{_text(lib.fc_source_name(first))} does not serve: {_reason(raw.reason[first])}"


def info() -> Info:
    """Tell which source was chosen and why, and what is known of the clocks, as things stand now.

    Chooses a source first, as a read does, if nothing has been read yet.
    """
    raw = ffi.new("struct fc_info *")
    lib.fc_get_info(raw, ffi.sizeof("struct fc_info"))
    source = _text(lib.fc_source_name(raw.source))
    reasons = {
        _text(lib.fc_source_name(number)): _reason(raw.reason[number])
        for number in range(lib.FC_SOURCE_KERNEL_PAGE, lib.FC_SOURCE_LIBC + 1)
        if number != raw.source
    }
    return Info(
        source=source,
        reason=_why(raw, source, reasons),
        serving=_text(lib.fc_source_name(raw.serving)),
        serving_reason=_reason(raw.serving_reason) if raw.serving_reason else None,
        coarse_serving=_text(lib.fc_source_name(raw.coarse_serving)),
        wanted=_text(lib.fc_source_name(raw.wanted)),
        wanted_reason=_reason(raw.wanted_reason) if raw.wanted_reason else None,
        reasons=reasons,
        counter_hz=raw.counter_hz or None,
        counter=bool(raw.counter),
        resolution_ns=raw.resolution_ns,
        coarse_resolution_ns=raw.coarse_resolution_ns,
        layout=_text(raw.layout) or None,
        mode=None if raw.mode < 0 else raw.mode,
        time_namespace=None if raw.time_namespace < 0 else bool(raw.time_namespace),
        tai_offset_s=raw.tai_offset_s,
        proof_rounds=raw.proof_rounds,
        slow_reads=raw.slow_reads,
        timekeep=_TIMEKEEP[raw.timekeep],
        timekeep_in_service=bool(raw.timekeep_in_service),
        timekeep_interval_ns=raw.timekeep_interval_ns,
        timekeep_error_ns=raw.timekeep_error_ns,
        timekeep_steps=raw.timekeep_steps,
        timekeep_outages=raw.timekeep_outages,
    )


def select(source: str) -> None:
    """Change the source of the whole process, proving it anew.

    source: auto, kernel-page, timekeep, vdso, syscall or off (what the C library does).
    Also the call to make after the process was restored from a checkpoint. Other threads may read
    meanwhile. Raises ValueError for any other name, and OSError (ENOTSUP), with the reason, if the
    source was refused: then the former choice stands, unless it was the very one, or needs a counter
    that has been forbidden since; info() tells what serves.
    """
    if not isinstance(source, str):
        raise TypeError(f"source must be a str, not {type(source).__name__}")
    if source not in _SOURCES:
        raise ValueError(f"source must be one of {', '.join(_SOURCES)}, not {source!r}")
    number = _SOURCES[source]
    error = lib.fc_select(number)
    if error:
        why = info().reason if number < 0 else _refusal(number)
        raise OSError(-error, f"{source} was refused: {why}")


def _refusal(number: int) -> str:
    raw = ffi.new("struct fc_info *")
    lib.fc_get_info(raw, ffi.sizeof("struct fc_info"))
    return _reason(raw.reason[number])


def _check(error: int, clock: int) -> None:
    if error == -errno.EINVAL:
        raise OSError(errno.EINVAL, f"the kernel knows no clock {clock}")
    if error:
        raise OSError(-error, f"clock {clock} cannot be read: {os.strerror(-error)}")


def read_ns(clock: int) -> int:
    """Read a clock by the kernel's number, ordered: nanoseconds.

    clock: time.CLOCK_MONOTONIC, fastclock.lib.FC_MONOTONIC_COARSE and their like; a number that is
    none of enum fc_clock is handed to the kernel (processor-time clocks and others).
    Raises OSError: EINVAL for a clock that the kernel does not know, or the kernel's own error.
    """
    ns = ffi.new("uint64_t *")
    _check(lib.fc_read_ns(clock, ns), clock)
    return int(ns[0])


def fill_ns(clock: int, out: typing.Any) -> int:
    """Fill a buffer with successive readings of one clock, in one call.

    clock: as for read_ns().
    out: a writable, contiguous buffer whose length is a multiple of 8 bytes, taken as unsigned
    64-bit integers of this machine: array.array("Q", ...), numpy.empty(n, "uint64"), a bytearray.
    Returns the number of readings. The interpreter's lock is released meanwhile. Raises TypeError
    or ValueError for another buffer, OSError as read_ns() does.
    """
    with memoryview(out) as view:
        if view.readonly:
            raise TypeError("out must be writable")
        if not view.c_contiguous:
            raise ValueError("out must be contiguous")
        if view.nbytes % 8:
            raise ValueError(f"out must have a multiple of 8 bytes, not {view.nbytes}")
        count = view.nbytes // 8
        with ffi.from_buffer("uint64_t[]", view, require_writable=True) as stamps:
            _check(lib.fc_fill_ns(clock, stamps, count), clock)
    return count


def ticks_hz() -> int:
    """Ticks of the counter a second, rounded to the nearest.

    From the kernel's own scale where its page serves; else measured once, which takes about 20 ms.
    """
    return lib.fc_ticks_hz()


def ticks_to_ns(ticks: int) -> int:
    """Convert a difference of ticks to nanoseconds, at the rate of the raw clock.

    ticks: 0 to 2**64 - 1, else OverflowError. Rounds down; a result that would not fit into 64 bits
    is 2**64 - 1.
    """
    if not 0 <= ticks < 2**64:
        raise OverflowError(f"ticks must be from 0 to 2**64 - 1, not {ticks}")
    return lib.fc_ticks_to_ns(ticks)


def getcpu() -> typing.Tuple[int, int]:
    """Tell which processor and NUMA node this thread is on: (cpu, node).

    The thread may have moved before the call returns. Raises OSError with the kernel's error.
    """
    numbers = ffi.new("uint32_t[2]")
    error = lib.fc_getcpu(numbers, numbers + 1)
    if error:
        raise OSError(-error, "the processor's number cannot be had")
    return numbers[0], numbers[1]
