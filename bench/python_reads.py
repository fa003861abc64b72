#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a read of the time costs in CPython, by the ways there are, as one JSON object.

Rounds of all kinds alternate, in an order that changes, so that what disturbs the machine meets all
of them alike. A call is made by a local name, as a careful program would; the loop around it is not
taken off. With --import, what `import fastclock` adds to the start of the interpreter instead.
"""

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import time

import fastclock

UNROLLED = 10  # calls in a turn of the loop, to keep the loop's share small

# Name, what is called (None: nothing), the row that it is held against.
ROWS = [
    ("loop", None, None),
    ("time.monotonic_ns", time.monotonic_ns, None),
    ("time.perf_counter_ns", time.perf_counter_ns, None),
    ("time.time_ns", time.time_ns, None),
    ("time.monotonic", time.monotonic, None),
    ("fastclock ordered", fastclock.monotonic_ns, "time.monotonic_ns"),
    ("fastclock relaxed", fastclock.relaxed.monotonic_ns, "time.monotonic_ns"),
    ("fastclock coarse", fastclock.monotonic_coarse_ns, "time.monotonic_ns"),
    ("fastclock time_ns, ordered", fastclock.time_ns, "time.time_ns"),
    ("fastclock time_ns, relaxed", fastclock.relaxed.time_ns, "time.time_ns"),
    ("fastclock float, ordered", fastclock.monotonic, "time.monotonic"),
    ("fastclock float, relaxed", fastclock.relaxed.monotonic, "time.monotonic"),
    ("CFFI ordered", fastclock.lib.fc_monotonic_ns, "time.monotonic_ns"),
    ("CFFI relaxed", fastclock.lib.fc_monotonic_relaxed_ns, "time.monotonic_ns"),
]


def make_round(called):
    """A function that makes `turns` turns of the loop and returns what they took, in ns."""
    body = "\n".join(["        " + ("f()" if called else "pass")] * UNROLLED)
    source = (
        "def a_round(turns, f, now):\n"
        "    start = now()\n"
        f"    for _ in turns:\n{body}\n"
        "    return now() - start\n"
    )
    scope = {}
    exec(compile(source, "<round>", "exec"), scope)
    return scope["a_round"]


def measure(rounds, calls):
    turns = range(max(1, calls // UNROLLED))
    calls = len(turns) * UNROLLED
    kinds = [(name, make_round(called), called) for name, called, _ in ROWS]
    costs = {name: [] for name, _, _ in ROWS}
    order = random.Random(1)
    for _ in range(rounds):
        order.shuffle(kinds)
        for name, a_round, called in kinds:
            # Ordered, so that the calls are within; its own cost is shared by all calls of a round.
            costs[name].append(a_round(turns, called, fastclock.monotonic_ns) / calls)
    return [
        {
            "name": name,
            "baseline": baseline,
            "min_ns": min(costs[name]),
            "median_ns": statistics.median(costs[name]),
        }
        for name, _, baseline in ROWS
    ]


def measure_import(runs):
    """Whole children, with and without the import, by turns."""
    spans = {"pass": [], "import fastclock": []}
    for _ in range(runs):
        for code, values in spans.items():
            start = time.monotonic_ns()
            subprocess.run([sys.executable, "-c", code], check=True, stdin=subprocess.DEVNULL)
            values.append(time.monotonic_ns() - start)
    alone, imported = spans["pass"], spans["import fastclock"]
    return {
        "runs": runs,
        "interpreter_min_ns": min(alone),
        "interpreter_median_ns": statistics.median(alone),
        "min_ns": min(imported) - min(alone),
        "median_ns": statistics.median(imported) - statistics.median(alone),
    }


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=positive, default=400, help="rounds of each kind")
    parser.add_argument("--calls", type=positive, default=500, help="calls in a round")
    parser.add_argument("--import", action="store_true", dest="imports", help="the import instead")
    parser.add_argument(
        "--runs", type=positive, default=40, help="interpreters started of each kind"
    )
    parser.add_argument("--json", action="store_true", help="JSON: the only form there is")
    options = parser.parse_args()
    result = {"interpreter": f"{platform.python_implementation()} {platform.python_version()}"}
    if options.imports:
        result["import"] = measure_import(options.runs)
    else:
        result["rows"] = measure(options.rounds, options.calls)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
