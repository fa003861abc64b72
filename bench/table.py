#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What each way of reading the time costs on this machine, side by side.

Runs the measuring programs of this folder by turns, several times over, so that what disturbs the
machine meets all of them alike, and puts their rows into one table. Needs the Python standard
library alone; the plot, which is drawn on request, needs matplotlib.

Each measuring program prints one JSON object with "rows": name, baseline (a row's name, or null),
min_ns and median_ns over its own interleaved rounds; and says in "interpreter" what ran it.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
BUILD = TOP / "build"
BIN = BUILD / "bench" / "bin"
VENV_PYTHON = BUILD / "venv" / "bin" / "python"

# The headings of the table, and the measuring program behind each.
PROGRAMS = {
    "C": [str(BIN / "reads")],
    "LuaJIT": ["luajit", str(HERE / "lua" / "reads.lua")],
    "Lua 5.4": ["lua5.4", str(HERE / "lua" / "reads.lua")],
    "CPython": [str(VENV_PYTHON), str(HERE / "python_reads.py")],
}

# Where a page has a skew for each processor.
SKEW = [str(BIN / "skew")]

# The targets: what is measured, in which program; what it is held against; the most it may be.
RATIO, PLUS_NS = "times", "ns more than"
TARGETS = [
    ("C", "inline relaxed", RATIO, 1.05, "C", "counter relaxed"),
    ("C", "inline ordered", RATIO, 1.18, "C", "counter ordered"),
    ("C", "inline ordered", RATIO, 1.05, "C", "counter ordered, scaled"),
    ("C", "call ordered", PLUS_NS, 2.0, "C", "inline ordered"),
    ("C", "call relaxed", PLUS_NS, 2.0, "C", "inline relaxed"),
    ("C", "inline coarse", RATIO, 0.25, "C", "libc coarse"),
    ("source timekeep", "inline ordered", RATIO, 1.10, "source kernel-page", "inline ordered"),
    ("LuaJIT", "fastclock ordered", RATIO, 1.10, "C", "call ordered"),
    ("LuaJIT", "fastclock relaxed", RATIO, 1.10, "C", "call relaxed"),
    ("Lua 5.4", "fastclock relaxed", PLUS_NS, 19.0, "Lua 5.4", "empty C function"),
    ("CPython", "fastclock relaxed", RATIO, 0.65, "CPython", "time.monotonic_ns"),
    ("CPython", "fastclock ordered", RATIO, 0.85, "CPython", "time.monotonic_ns"),
]
FIRST_READ_MAX_NS = 300_000
IMPORT_MAX_NS = 3_000_000


class Failure(Exception):
    """What ends the run, as a sentence for the user."""


def progress(text):
    print(text, file=sys.stderr, flush=True)


def run_json(command, env=None):
    """Runs a measuring program and returns the object that it prints."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env, check=True
        )
        return json.loads(done.stdout)
    except FileNotFoundError as error:
        raise Failure(f"{command[0]} is not there: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise Failure(f"{' '.join(command)} ended with exit code {error.returncode}") from error
    except json.JSONDecodeError as error:
        raise Failure(f"{' '.join(command)} printed no JSON: {error}") from error


def with_environment(**changes):
    return {**os.environ, **changes}


# ---- Rows ------------------------------------------------------------------------------------


def merge(results):
    """One list of rows from several runs of a program: least minimum, median of medians."""
    merged = []
    for row in results[0]["rows"]:
        same = [r for result in results for r in result["rows"] if r["name"] == row["name"]]
        merged.append(
            {
                "name": row["name"],
                "baseline": row["baseline"],
                "min_ns": min(r["min_ns"] for r in same),
                "median_ns": statistics.median(r["median_ns"] for r in same),
            }
        )
    by_name = {row["name"]: row for row in merged}
    for row in merged:
        base = by_name.get(row["baseline"])
        if row["baseline"] and not base:
            raise Failure(f"row '{row['name']}' has no baseline '{row['baseline']}'")
        row["ratio"] = row["min_ns"] / base["min_ns"] if base else None
    return merged


def measure(passes):
    """All programs by turns. Returns {heading: result of the last pass, with merged rows}."""
    results = {heading: [] for heading in PROGRAMS}
    for number in range(1, passes + 1):
        for heading, command in PROGRAMS.items():
            progress(f"measuring, pass {number} of {passes}: {heading}")
            results[heading].append(run_json(command))
    return {h: {**r[-1], "rows": merge(r)} for h, r in results.items()}


# ---- The machine -----------------------------------------------------------------------------


def first_line(path, start=""):
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(start):
                return line
    except OSError:
        pass
    return None


def cpu_model():
    line = first_line("/proc/cpuinfo", "model name")
    return line.split(":", 1)[1].strip() if line else platform.machine()


def machine(measured):
    c = measured["C"]
    clocksource = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    return {
        "cpu": cpu_model(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "hypervisor": "hypervisor" in (first_line("/proc/cpuinfo", "flags") or "").split(),
        "kernel": f"{platform.system()} {platform.release()}",
        "clocksource": first_line(clocksource) or "unknown",
        "source": c["info"]["source"],
        "compiler": c["compiler"],
        "libc": " ".join(platform.libc_ver()),
        "interpreters": [r["interpreter"] for r in measured.values() if "interpreter" in r],
        "load": os.getloadavg()[0],
    }


def machine_line(m):
    guest = ", guest of a hypervisor" if m["hypervisor"] else ""
    return (
        f"{m['cpu']} ({m['architecture']}, {m['processors']} processors{guest}); {m['kernel']}; "
        f"clocksource {m['clocksource']}; source {m['source']}; {m['compiler']}; {m['libc']}; "
        f"{'; '.join(m['interpreters'])}; load {m['load']:.2f}"
    )


# ---- What else `bench` measures --------------------------------------------------------------


# Those that are held against each other are measured by turns, as often as the rest.
FORCED_BY_TURNS = ["kernel-page", "timekeep"]
FORCED_ONCE = ["vdso", "syscall", "off"]


def source_costs(passes):
    """The C rows with each source forced: one process has one source."""
    results = {}
    for number in range(1, passes + 1):
        for source in FORCED_BY_TURNS + (FORCED_ONCE if number == 1 else []):
            progress(f"measuring, pass {number} of {passes}: source {source}")
            result = run_json(PROGRAMS["C"], with_environment(FASTCLOCK_SOURCE=source))
            results.setdefault(source, []).append(result)
    return {
        source: {
            "source": runs[-1]["info"]["source"],
            "refused": runs[-1]["info"]["refused"].get(source, ""),
            "rows": merge(runs),
        }
        for source, runs in results.items()
    }


def skew_costs(passes):
    """The ways to a count less its processor's skew; a reason where the program is not built."""
    if not Path(SKEW[0]).exists():
        return {"refused": "x86 alone has more than one way"}
    runs = []
    for number in range(1, passes + 1):
        progress(f"measuring, pass {number} of {passes}: the ways to a skewed counter")
        runs.append(run_json(SKEW))
    return {"missing": runs[-1]["missing"], "rows": merge(runs)}


def namespace_costs():
    """The C rows in a time namespace whose clocks are ahead; a reason where none can be made."""
    command = ["unshare", "--time", "--monotonic", "100000", "--boottime", "100000", "--fork"]
    probe = subprocess.run(
        [*command, "true"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if probe.returncode != 0:
        return {"refused": probe.stderr.strip()}
    progress("measuring in a time namespace")
    result = run_json(command + PROGRAMS["C"])
    if result["info"]["time_namespace"] != 1:
        raise Failure("unshare --time gave no time namespace")
    return {"source": result["info"]["source"], "rows": merge([result])}


def measure_more(report, passes):
    progress("measuring the first read of new processes")
    report["first_read"] = run_json([str(BIN / "cold")])
    progress("measuring import fastclock")
    report["import"] = run_json([*PROGRAMS["CPython"], "--import"])["import"]
    report["sources"] = source_costs(passes)
    report["time_namespace"] = namespace_costs()
    report["skew"] = skew_costs(passes)
    progress("measuring the distances of successive reads")
    distances = run_json(PROGRAMS["C"] + ["--rounds", "100", "--distances", "5000000"])
    report["distances"] = distances["distances"]


# ---- Verdicts --------------------------------------------------------------------------------


def verdicts(report):
    """Each target, what was measured, and whether it is met; minima over all rounds."""

    def rows_of(heading):
        source = heading.removeprefix("source ")
        if source == heading:
            return report["measured"][heading]["rows"]
        costs = report["sources"][source]
        if costs["source"] != source:
            raise Failure(f"no --check here: source {source} is refused: {costs['refused']}")
        return costs["rows"]

    def cost(heading, name):
        for row in rows_of(heading):
            if row["name"] == name:
                return row["min_ns"]
        raise Failure(f"{heading} has no row '{name}'")

    if report["import"]["median_ns"] <= 0:
        raise Failure("this machine is too busy for --check: an import took less than no time")
    lines = []
    for heading, name, kind, target, base_heading, base in TARGETS:
        ours, theirs = cost(heading, name), cost(base_heading, base)
        value = ours / theirs if kind == RATIO else ours - theirs
        lines.append(
            {
                "what": f"{heading}: {name}",
                "target": target,
                "unit": kind,
                "of": f"{base_heading}: {base}",
                "measured": value,
                "met": value <= target,
            }
        )
    for what, target, value in [
        ("first read of a process, proof included (median)", FIRST_READ_MAX_NS,
         report["first_read"]["first_median_ns"]),
        ("import fastclock beyond the interpreter's start (median)", IMPORT_MAX_NS,
         report["import"]["median_ns"]),
    ]:  # fmt: skip
        lines.append(
            {
                "what": what,
                "target": target / 1000,
                "unit": "us",
                "of": "",
                "measured": value / 1000,
                "met": value <= target,
            }
        )
    return lines


# ---- Printing --------------------------------------------------------------------------------


SOURCES = ["kernel-page", "timekeep", "vdso", "syscall", "libc"]


def print_choice(info):
    """The source in use, why it is that one, and why not an earlier or a wished one."""
    source, asked = info["source"], os.environ.get("FASTCLOCK_SOURCE", "")
    layout = f", page layout {info['layout']}" if source == "kernel-page" else ""
    print(f"fastclock {info['version']}: source {source}{layout}")
    if info["wanted_reason"]:
        print(f"  FASTCLOCK_SOURCE={asked} is not followed: {info['wanted_reason']}")
    elif info["wanted"] != "auto":
        print(f"  FASTCLOCK_SOURCE asks for {asked}")
    before = SOURCES[: SOURCES.index(source)] if source in SOURCES else SOURCES
    for other in SOURCES:
        if other in before or (other == info["wanted"] and other != source):
            print(f"  {other}: {info['refused'][other]}")
    if info["proof_rounds"]:
        first = "the first in the order, and " if not before else ""
        print(
            f"  {source}: {first}proved by {info['proof_rounds']} readings,"
            " each of which lay between two system calls"
        )
    elif source in SOURCES:
        print(f"  {source}: serves")
    if info["serving"] != source:
        print(f"  at this moment {info['serving']} answers: {info['serving_reason']}")
    if info["coarse_serving"] != info["serving"]:
        print(f"  the coarse clocks are answered by {info['coarse_serving']}")
    print()


def print_rows(rows, width):
    for row in rows:
        ratio = f"{row['ratio']:6.2f} of {row['baseline']}" if row["ratio"] else ""
        print(f"  {row['name']:<{width}} {row['min_ns']:8.2f} {row['median_ns']:8.2f}  {ratio}")


def print_head(width):
    print(f"  {'':<{width}} {'min ns':>8} {'med ns':>8}   ratio")


DEFINITIONS = """\
min ns   the least cost of one read, in nanoseconds, over all rounds; a round is 50 to 1000 reads
         of one kind in a loop, and rounds of all kinds alternate in an order that changes
med ns   the median over the same rounds
ratio    min ns divided by the min ns of the row named, which comes from the same run
loop     the loop around every C row with nothing in it; it is not taken off the other rows
counter  the CPU's counter alone: relaxed without, ordered with a fence; scaled: with one
         multiplication and one shift, the least that could give nanoseconds
inline   compiled into the caller; call: through the shared library
ordered  not before earlier instructions are done, as clock_gettime; relaxed: no fence
coarse   the time at the kernel's last tick"""


def print_table(report):
    print_choice(report["measured"]["C"]["info"])
    width = max(len(r["name"]) for m in report["measured"].values() for r in m["rows"])
    for heading, result in report["measured"].items():
        print(heading)
        print_head(width)
        print_rows(result["rows"], width)
        print()
    print(DEFINITIONS)
    print()
    print(machine_line(report["machine"]))


FORCED_ROWS = ["libc", "inline ordered", "inline relaxed", "call ordered", "inline coarse"]


def print_more(report):
    first, imported = report["first_read"], report["import"]
    print()
    print(f"first read of a process, proof included, {first['processes']} processes:")
    print(f"  min {first['first_min_ns'] / 1000:.0f} us, median"
          f" {first['first_median_ns'] / 1000:.0f} us, p90 {first['first_p90_ns'] / 1000:.0f} us;"
          f" the second read {first['second_median_ns'] / 1000:.1f} us, system calls around it"
          " included")  # fmt: skip
    print(f"import fastclock beyond the interpreter's own start, {imported['runs']} runs of each:")
    print(f"  min {imported['min_ns'] / 1e6:.2f} ms, median {imported['median_ns'] / 1e6:.2f} ms;"
          f" the interpreter alone {imported['interpreter_median_ns'] / 1e6:.1f} ms")  # fmt: skip
    columns = {f"FASTCLOCK_SOURCE={s}": c for s, c in report["sources"].items()}
    columns["in a time namespace"] = report["time_namespace"]
    for heading, costs in columns.items():
        print()
        if "rows" not in costs:
            print(f"{heading}: {costs['refused']}")
            continue
        refused = f" ({costs['refused']})" if costs.get("refused") else ""
        print(f"{heading}: source {costs['source']}{refused}")
        print_head(16)
        print_rows([r for r in costs["rows"] if r["name"] in FORCED_ROWS], 16)
    print()
    print("a count less the skew of its processor:")
    skew = report["skew"]
    if "rows" in skew:
        print_head(16)
        print_rows(skew["rows"], 16)
        for name in skew["missing"]:
            print(f"  {name}: does not exist here")
    else:
        print(f"  {skew['refused']}")
    print()
    print("distance of one read from the one before, ns:")
    print(f"  {'':<16} {'p50':>8} {'p99':>8} {'p99.99':>8} {'max':>10}")
    for d in report["distances"]:
        print(f"  {d['name']:<16} {d['p50_ns']:8} {d['p99_ns']:8} {d['p99_99_ns']:8}"
              f" {d['max_ns']:10}")  # fmt: skip


def print_verdicts(lines):
    print()
    width = max(len(line["what"]) for line in lines)
    for line in lines:
        verdict = "met" if line["met"] else "MISSED"
        of = f"{line['unit']} {line['of']}".strip()
        print(f"{line['what']:<{width}}  at most {line['target']:7.2f}  measured"
              f" {line['measured']:7.2f} {of}: {verdict}")  # fmt: skip


# ---- The plot --------------------------------------------------------------------------------


def plot(report, path):
    """The costs of all rows, and the distances of successive reads, as one picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(15, 8), layout="constrained")
    labels, minima, medians = [], [], []
    for heading, result in report["measured"].items():
        for row in result["rows"]:
            labels.append(f"{heading}: {row['name']}")
            minima.append(row["min_ns"])
            medians.append(row["median_ns"])
    places = range(len(labels))
    left.barh(places, minima, color="tab:blue", label="minimum")
    left.plot(medians, places, "k|", label="median")
    left.set_yticks(places, labels, fontsize=8)
    left.invert_yaxis()
    left.set_xscale("log")
    left.set_xlabel("cost of one read, ns")
    left.legend()
    bins = [2 ** (power / 2) for power in range(-4, 42)]  # to 2^20 ns, where the last one begins
    for d in report["distances"]:
        xs, counts = zip(*d["histogram"])
        name = f"{d['name']}: p50 {d['p50_ns']}, p99 {d['p99_ns']}, largest {d['max_ns']} ns"
        right.hist([max(x, 0.5) for x in xs], bins, weights=counts, histtype="step", label=name)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("distance of one read from the one before, ns (the last bar: that and more)")
    right.set_ylabel("reads")
    right.legend()
    figure.suptitle(machine_line(report["machine"]), fontsize=8, wrap=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    progress(f"plot: {path}")


# ---- The command -----------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="table.py", description="What each way of reading the time costs, side by side."
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("--passes", type=int, default=5, help="turns of all programs (default 5)")
    parser.add_argument(
        "--more",
        action="store_true",
        help="also the first read, the import, each source, a time namespace, the ways to a "
        "skewed counter, distances",
    )
    parser.add_argument(
        "--check", action="store_true", help="hold against the targets; implies --more"
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw a picture; implies --more")
    arguments = parser.parse_args()
    if arguments.passes < 1:
        parser.error("--passes must be at least 1")
    return arguments


def main():
    arguments = parse_arguments()
    measured = measure(arguments.passes)
    report = {"machine": machine(measured), "measured": measured}
    if arguments.more or arguments.check or arguments.plot:
        measure_more(report, arguments.passes)
    if arguments.check:
        report["targets"] = verdicts(report)
    if arguments.plot:
        plot(report, arguments.plot)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print_table(report)
        if "first_read" in report:
            print_more(report)
        if arguments.check:
            print_verdicts(report["targets"])
    return 0 if all(line["met"] for line in report.get("targets", [])) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"table.py: {failure}", file=sys.stderr)
        sys.exit(1)
