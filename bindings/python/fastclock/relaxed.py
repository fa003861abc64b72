"""The reads without a fence: half the cost, under the same names.

A reading may be early by the depth of the processor's pipeline, and two threads that hand readings
to each other may see them out of order. Good for stamping many events in one thread; where one
thread must not see another's stamp in its own future, use the ordered reads of `fastclock`.
"""

from fastclock._clocks import (
    relaxed_monotonic as monotonic,
    relaxed_monotonic_ns as monotonic_ns,
    relaxed_perf_counter as perf_counter,
    relaxed_perf_counter_ns as perf_counter_ns,
    relaxed_raw as raw,
    relaxed_raw_ns as raw_ns,
    relaxed_realtime as realtime,
    relaxed_realtime_ns as realtime_ns,
    relaxed_time as time,
    relaxed_time_ns as time_ns,
)

__all__ = [
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "raw",
    "raw_ns",
    "realtime",
    "realtime_ns",
    "time",
    "time_ns",
]
