#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The experiments of the documents that this project came from, run again on this machine.

Each figure is printed beside the one that the document gave. On the host they are measured by turns
and the minimum of several passes is shown; with --guest they are run once more under an emulated
processor whose kernel was told to use first tsc and then hpet, since what a slow clocksource costs
is what two of the documents are about. A guest's figures say nothing about the host's, only about
each other.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
BUILD = TOP / "build" / "bench"
GUEST_BUILD = TOP / "build" / "founding"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

READS = 5_000_000
GUEST_READS = 100_000
GUEST_SUITE = "trixie"
GUEST_TIMEOUT_S = 240

sys.path.insert(0, str(HERE.parent))  # table.py, for the machine's line
sys.path.insert(0, str(TOP / "tests" / "kernels"))  # guests

from table import Failure, cpu_model, progress, run_json  # noqa: E402

# ---- What the documents say ----------------------------------------------------------------------

FREEBSD = {"system call": 310.0, "library": 46.0}  # gettimeofday, ns, a 32-bit program, 2600K
LINUX = {  # ns, before and after the two patches
    "realtime": (16.7, 15.2),
    "monotonic": (17.3, 15.5),
    "realtime-coarse": (3.6, 3.0),
    "monotonic-coarse": (4.2, 3.6),
}
OPENBSD_COARSE = {  # a million reads by system call: real, user and system seconds
    ("tsc", "monotonic"): (1.23, 0.78, 0.45),
    ("tsc", "monotonic-coarse"): (1.18, 0.74, 0.45),
    ("hpet", "monotonic"): (4.73, 0.82, 3.91),
    ("hpet", "monotonic-coarse"): (1.19, 0.73, 0.46),
}
OPENBSD_STRESS = {  # five million reads: real, user and system seconds; None: not given
    "library": (0.11, None, None),
    "system call": (9.99, 2.64, 3.36),
}
WAYS = ["sgdt", "sidt", "sldt", "lsl"]
VTIME64 = [  # cycles of a whole vtime64: name, bits, with user restart, with kernel restart
    ("Intel 060f05 core2", 32, (112.0, 111.1, 107.1, 196.1), (90.0, 91.0, 86.0, 128.0)),
    ("Intel 060f05 core2", 64, (102.1, 104.1, 96.2, 178.1), (76.0, 78.1, 76.5, 113.0)),
    ("AMD 0f4102 revF opteron", 32, (80.1, 80.1, 58.1, 156.0), (43.0, 43.1, 28.0, 82.0)),
    ("AMD 0f4102 revF opteron", 64, (67.1, 65.1, 41.0, 136.0), (29.0, 28.6, 16.0, 72.0)),
    ("AMD 0f2102 revE opteron", 32, (77.0, 77.7, 56.0, 154.3), (44.0, 42.8, 28.0, 82.6)),
    ("AMD 0f2102 revE opteron", 64, (65.0, 63.1, 40.0, 137.6), (27.0, 25.6, 14.5, 72.0)),
    ("Intel 0f0401 nocona", 32, (231.7, 225.9, 218.0, 421.5), (111.9, 120.1, 108.6, 225.0)),
    ("Intel 0f0401 nocona", 64, (212.3, 210.0, 200.7, 449.9), (100.9, 100.0, 100.0, 158.0)),
    ("Intel 0f0403 p4 desktop", 32, (232.1, 244.1, 221.4, 420.1), (129.5, 116.1, 112.0, 228.0)),
    ("Intel 0f0403 p4 desktop", 64, (216.1, 216.8, 204.1, 396.1), (104.9, 102.2, 100.0, 138.0)),
    ("Intel 0f0209 xeon", 32, (240.1, 232.1, 224.4, 384.1), (136.0, 136.1, 132.5, 200.0)),
]

# ---- Measuring on the host -----------------------------------------------------------------------


def quickest(results, key="real_s"):
    return min(results, key=lambda result: result[key])


def measure_host(passes):
    """Every experiment `passes` times, by turns; of each the quickest."""
    commands = {
        **{
            ("stress", way, call): [BUILD / "bin" / f"stress-{program}", call, str(READS)]
            for way, program in (
                ("library", "library"),
                ("system call", "syscall"),
                ("fastclock", "fastclock"),
            )
            for call in ("monotonic", "gettimeofday")
        },
        **{
            ("gettime", clock, way): [BUILD / "fastclock", "gettime", "--json", *flags, "mono"]
            for clock, coarse in (("monotonic", []), ("monotonic-coarse", ["-c"]))
            for way, flags in (("system call", ["-s", *coarse]), ("fastclock", coarse))
        },
    }
    results = {name: [] for name in commands}
    for number in range(1, passes + 1):
        progress(f"the stress programs and gettime, pass {number} of {passes}")
        for name, command in commands.items():
            results[name].append(run_json([str(c) for c in command]))
    best = {name: quickest(of) for name, of in results.items()}
    progress("the four clocks, by every way")
    timing = run_json([str(BUILD / "fastclock"), "timing", "--milliseconds", "20", "--json"])
    progress("the processor's number, by every way")
    return {
        "stress": [{**r, "way": way} for (kind, way, _), r in best.items() if kind == "stress"],
        "gettime": [r for (kind, *_), r in best.items() if kind == "gettime"],
        "reads": timing["reads"],
        "getcpu": run_json([str(BUILD / "fastclock"), "getcpu", "--json"]),
        "info": run_json([str(BUILD / "fastclock"), "info", "--json"]),
    }


# ---- Measuring in guests -------------------------------------------------------------------------


def build_guest():
    progress("building the experiments for a guest")
    log = GUEST_BUILD / "build.log"
    GUEST_BUILD.mkdir(parents=True, exist_ok=True)
    configure = ["cmake", "-S", TOP, "-B", GUEST_BUILD, "-G", "Ninja"]
    configure += ["-DCMAKE_BUILD_TYPE=Release", "-DFASTCLOCK_BENCH=ON"]
    configure += ["-DFASTCLOCK_FOUNDING_STATIC=ON"]
    targets = ["stress_library", "stress_syscall", "stress_fastclock", "founding_guest"]
    build = ["cmake", "--build", GUEST_BUILD, "--target", *targets, "fastclock_command"]
    with open(log, "w") as output:
        for command in (configure, build):
            if subprocess.run(command, stdout=output, stderr=output).returncode != 0:
                raise Failure(f"the experiments cannot be built for a guest; see {log}")


def guest_commands():
    number = str(GUEST_READS)
    lines = [
        f"stress:{way} /stress-{way} monotonic {number}"
        for way in ("library", "syscall", "fastclock")
    ]
    for clock, coarse in (("monotonic", ""), ("monotonic-coarse", "-c ")):
        lines.append(
            f"gettime:{clock}:syscall /fastclock gettime --json -s {coarse}-n {number} mono"
        )
        lines.append(
            f"gettime:{clock}:fastclock /fastclock gettime --json {coarse}-n {number} mono"
        )
        lines.append(
            f"gettime:{clock}:timekeep FASTCLOCK_SOURCE=timekeep"
            f" /fastclock gettime --json {coarse}-n {number} mono"
        )
    lines.append("info /fastclock info --json")
    return "\n".join(lines) + "\n"


def measure_guests():
    import debian
    import qemu

    build_guest()
    progress(f"fetching the kernel of Debian {GUEST_SUITE}, if it is not here")
    try:
        kernel = debian.fetch(GUEST_SUITE, "amd64", ["amd64"], progress)
    except debian.FetchError as error:
        raise Failure(f"the guest's kernel cannot be had: {error}") from error
    (GUEST_BUILD / "commands").write_text(guest_commands())
    programs = {
        "init": GUEST_BUILD / "bin" / "founding_guest",
        "fastclock": GUEST_BUILD / "fastclock",
        "commands": GUEST_BUILD / "commands",
        **{
            f"stress-{way}": GUEST_BUILD / "bin" / f"stress-{way}"
            for way in ("library", "syscall", "fastclock")
        },
    }
    qemu.pack_initramfs(programs, GUEST_BUILD / "initramfs")
    guests = {}
    for clocksource in ("tsc", "hpet"):
        progress(f"a guest on {clocksource}")
        said = {}

        def on_line(line, said=said):
            if "failed" in line:
                raise Failure(f"in a guest, {line['check']} ended with status {line['failed']}")
            said.update({line["check"]: line["result"]} if "check" in line else line)

        try:
            qemu.boot(
                "x86_64",
                kernel["image"],
                GUEST_BUILD / "initramfs",
                f"clocksource={clocksource}",
                True,
                GUEST_BUILD / f"{clocksource}.log",
                GUEST_TIMEOUT_S,
                on_line,
            )
        except qemu.GuestError as error:
            raise Failure(f"the guest on {clocksource}: {error}") from error
        if said["clocksource"] != clocksource:
            raise Failure(f"the guest took {said['clocksource']} for {clocksource}")
        guests[clocksource] = said
    return {"kernel": kernel["version"], "clocksources": guests}


# ---- Tables --------------------------------------------------------------------------------------


def host_stress(report, way, call):
    return next(r for r in report["host"]["stress"] if (r["way"], r["call"]) == (way, call))


def ns_per_read(result):
    return result["real_s"] * 1e9 / result["reads"]


def seconds(values):
    return [f"{v:.2f}" if v is not None else "" for v in values]


def spent(result, reads):
    scale = reads / result["reads"]
    return [result[key] * scale for key in ("real_s", "user_s", "system_s")]


def table_stress(report):
    rows = []
    for way in ("library", "system call", "fastclock"):
        then = OPENBSD_STRESS.get(way, (None, None, None))
        now = spent(host_stress(report, way, "monotonic"), READS)
        rows.append([f"by {way}", *seconds(then), *seconds(now)])
    return {
        "title": "Five million reads: time without a system call (OpenBSD, May 2020)",
        "unit": "seconds",
        "columns": ["", "then: real", "user", "sys", "now: real", "user", "sys"],
        "rows": rows,
    }


def table_freebsd(report):
    rows = []
    for way in ("system call", "library", "fastclock"):
        result = host_stress(report, way, "gettimeofday")
        iterations = f"{result['reads'] / result['real_s'] / 1e6:.1f}"
        then = FREEBSD.get(way)
        rows.append(
            [
                f"by {way}",
                f"{then:.0f}" if then else "",
                f"{1e3 / then:.1f}" if then else "",
                f"{ns_per_read(result):.1f}",
                iterations,
            ]
        )
    return {
        "title": "gettimeofday: fast gettimeofday and clock_gettime (FreeBSD, June 2012)",
        "unit": "ns a call, and millions of calls a second",
        "columns": ["", "then: ns", "millions/s", "now: ns", "millions/s"],
        "rows": rows,
    }


def host_read(report, clock, way, source=None):
    found = [
        r["min_ns"]
        for r in report["host"]["reads"]
        if (r["clock"], r["way"], r["source"]) == (clock, way, source)
    ]
    return f"{found[0]:.1f}" if found and found[0] is not None else "none"


def table_linux(report):
    rows = []
    for clock, (before, after) in LINUX.items():
        now = [
            host_read(report, clock, way)
            for way in ("system call", "vDSO", "fastclock", "fastclock, relaxed")
        ]
        rows.append([clock, f"{before:.1f}", f"{after:.1f}", *now])
    return {
        "title": "Four clocks: simpler and faster vDSO clock_gettime (Linux, March 2012)",
        "unit": "ns a read",
        "columns": [
            "",
            "then: before",
            "after",
            "now: system call",
            "vDSO",
            "fastclock",
            "fastclock relaxed",
        ],
        "rows": rows,
    }


def table_openbsd(report):
    rows = []
    now_source = report["host"]["info"]["machine"]["clocksource"]["current"]
    for (source, clock), then in OPENBSD_COARSE.items():
        row = [f"{source}, {clock}", *seconds(then)]
        if source == now_source:
            by_call, by_fastclock = (
                next(r for r in report["host"]["gettime"] if (r["clock"], r["way"]) == (clock, way))
                for way in ("system call", "fastclock")
            )
            row += [*seconds(spent(by_call, 1_000_000)), f"{by_fastclock['real_s']:.4f}"]
        else:
            row += ["", "", "", ""]
        rows.append(row)
    return {
        "title": "A million reads by system call, and what a slow counter costs (OpenBSD, May 2020)",
        "unit": "seconds",
        "columns": [
            "clocksource, clock",
            "then: real",
            "user",
            "sys",
            "now: real",
            "user",
            "sys",
            "by fastclock: real",
        ],
        "rows": rows,
    }


def table_guest(report):
    guests = report["guest"]["clocksources"]

    def cost(source, name):
        result = guests[source][name]
        return f"{ns_per_read(result):.0f}" if result else "none"

    rows = []
    for source in guests:
        for clock in ("monotonic", "monotonic-coarse"):
            rows.append(
                [
                    f"{source}, {clock}",
                    *(cost(source, f"gettime:{clock}:{way}") for way in ("syscall",)),
                    cost(source, "stress:library") if clock == "monotonic" else "",
                    *(cost(source, f"gettime:{clock}:{way}") for way in ("fastclock", "timekeep")),
                ]
            )
    return {
        "title": f"The same in a guest: Linux {report['guest']['kernel']} on an emulated processor",
        "unit": "ns a read; to be compared with each other only",
        "columns": [
            "clocksource, clock",
            "system call",
            "library",
            "fastclock",
            "fastclock, timekeep page",
        ],
        "rows": rows,
    }


def table_vtime64(report):
    getcpu = report["host"]["getcpu"]
    ways = {w["name"]: w for w in getcpu["ways"]}
    since = [name for name in ways if name not in WAYS]
    columns = ["", "bits", *WAYS, *since]
    rows = []

    def cell(name, key):
        value = ways[name][key] if name in ways else None
        mark = "*" if name in WAYS and ways.get(name, {}).get("note") else ""
        return "–" if value is None else f"{value:.1f}{mark}"

    for restart, index in (("user", 2), ("kernel", 3)):
        rows.append([f"{restart} restart, then", *[""] * (len(columns) - 1)])
        for entry in VTIME64:
            figures = [f"{v:.1f}" for v in entry[index]]
            rows.append([f"  {entry[0]}", str(entry[1]), *figures, *[""] * len(since)])
        key = f"{restart}_restart_cycles"
        if "family" in getcpu:
            version = "".join(f"{getcpu[k]:02x}" for k in ("family", "model", "stepping"))
            name = f"{getcpu['vendor']} {version}"
        else:
            name = getcpu["processor"]
        now = [cell(n, key) for n in (*WAYS, *since)]
        rows.append([f"  now: {name}", str(getcpu["bits"]), *now])
    notes = [
        f"{n}: {w['absent'] or w['note']}" for n, w in ways.items() if w["absent"] or w["note"]
    ]
    return {
        "title": "vtime64 with a scale for each processor (Linux, November 2006)",
        "unit": "cycles of the counter for a whole reading",
        "columns": columns,
        "rows": rows,
        "notes": notes,
    }


def tables(report):
    yield table_stress(report)
    yield table_freebsd(report)
    yield table_linux(report)
    yield table_openbsd(report)
    if "guest" in report:
        yield table_guest(report)
    yield table_vtime64(report)


def machine(report):
    info = report["host"]["info"]
    m = info["machine"]
    hypervisor = f", guest of {m['hypervisor']['name']}" if m["hypervisor"] else ""
    return (
        f"{cpu_model()}{hypervisor}; Linux {m['kernel']}; clocksource "
        f"{m['clocksource']['current']}; source {info['source']}; {compiler()}"
    )


def compiler():
    cache = (BUILD / "CMakeCache.txt").read_text()
    path = re.search(r"^CMAKE_C_COMPILER:\w+=(.*)$", cache, re.MULTILINE)[1]
    return subprocess.run([path, "--version"], capture_output=True, text=True).stdout.split("\n")[0]


def print_text(report):
    print(report["machine"])
    for table in tables(report):
        widths = [
            max(len(row[i]) for row in (table["columns"], *table["rows"]))
            for i in range(len(table["columns"]))
        ]
        print(f"\n{table['title']}\n{table['unit']}\n")
        for row in (table["columns"], *table["rows"]):
            cells = [row[0].ljust(widths[0])]
            cells += [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
            print("  ".join(cells).rstrip())
        for note in table.get("notes", []):
            print(f"  {note}")


def markdown(report):
    lines = [f"Measured on {report['machine']}.", "", "![then and now](founding.png)"]
    for table in tables(report):
        lines += ["", f"### {table['title']}", "", f"In {table['unit']}.", ""]
        lines.append("| " + " | ".join(table["columns"]) + " |")
        lines.append("|" + "---|" + "--:|" * (len(table["columns"]) - 1))
        lines += ["| " + " | ".join(row) + " |" for row in table["rows"]]
        if table.get("notes"):
            lines += ["", *(f"- {note}" for note in table["notes"])]
    return "\n".join(lines)


def write_document(report, path):
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise Failure(f"{path} lacks the marks between which the tables go")
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    path.write_text(f"{head}{BEGIN}\n\n{markdown(report)}\n\n{END}{tail}")
    progress(f"tables: {path}")


# ---- The plot ------------------------------------------------------------------------------------

SYSTEM, LIBRARY, OURS = "#b0413e", "#4f6d8f", "#3a7d44"


def plot(report, path):
    """A read then and now, by each document's own measure; the axis is logarithmic, as what the
    documents are about is factors."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = plot_groups(report)
    figure, axes = plt.subplots(figsize=(11, 0.34 * sum(len(g[1]) + 1 for g in groups) + 1.4))
    position, ticks, labels = 0, [], []
    for title, bars in groups:
        axes.text(0.35, position, title, fontsize=9, fontweight="bold", va="center")
        position += 1
        for label, ns, colour, then in bars:
            axes.barh(position, ns, color=colour, alpha=0.45 if then else 1, height=0.8)
            figure_text = f"{ns:,.0f}" if ns >= 100 else f"{ns:.3g}"
            axes.text(ns * 1.06, position, figure_text, fontsize=8, va="center")
            ticks.append(position)
            labels.append(label)
            position += 1
    axes.set_xscale("log")
    axes.set_xlim(0.3, max(ns for _, bars in groups for _, ns, _, _ in bars) * 3)
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.set_ylim(position, -1)
    axes.set_xlabel("ns a read; pale: the document's figure, full: measured now")
    axes.spines[["top", "right"]].set_visible(False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=c) for c in (SYSTEM, LIBRARY, OURS)]
    axes.legend(
        handles,
        ["system call", "library", "fastclock"],
        loc="lower right",
        fontsize=8,
        frameon=False,
    )
    figure.text(0.01, 0.003, report["machine"], fontsize=6)
    figure.tight_layout(rect=(0, 0.015, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    progress(f"plot: {path}")


def plot_groups(report):
    def now(way, call):
        return ns_per_read(host_stress(report, way, call))

    groups = [
        (
            "FreeBSD 2012: gettimeofday",
            [
                ("2012, system call", FREEBSD["system call"], SYSTEM, True),
                ("now, system call", now("system call", "gettimeofday"), SYSTEM, False),
                ("2012, library", FREEBSD["library"], LIBRARY, True),
                ("now, library", now("library", "gettimeofday"), LIBRARY, False),
                ("now, fastclock", now("fastclock", "gettimeofday"), OURS, False),
            ],
        ),
        (
            "OpenBSD 2020: five million reads, each",
            [
                ("2020, system call", 9.99e9 / READS, SYSTEM, True),
                ("now, system call", now("system call", "monotonic"), SYSTEM, False),
                ("2020, library", 0.11e9 / READS, LIBRARY, True),
                ("now, library", now("library", "monotonic"), LIBRARY, False),
                ("now, fastclock", now("fastclock", "monotonic"), OURS, False),
            ],
        ),
    ]
    bars = []
    for clock, (_, after) in LINUX.items():
        bars.append((f"2012, {clock}, vDSO", after, LIBRARY, True))
        for way, colour, name in (("vDSO", LIBRARY, "vDSO"), ("fastclock", OURS, "fastclock")):
            bars.append(
                (f"now, {clock}, {name}", float(host_read(report, clock, way)), colour, False)
            )
    groups.append(("Linux 2012: four clocks", bars))
    if "guest" in report:
        guests = report["guest"]["clocksources"]
        bars = []
        for source, said in guests.items():
            for name, colour, label in (
                ("gettime:monotonic:syscall", SYSTEM, "system call"),
                ("stress:library", LIBRARY, "library"),
                ("gettime:monotonic:fastclock", OURS, "fastclock"),
                ("gettime:monotonic:timekeep", OURS, "fastclock, timekeep page"),
            ):
                bars.append((f"{source}, {label}", ns_per_read(said[name]), colour, False))
        groups.append(("A guest on an emulated processor, by clocksource", bars))
    return groups


# ---- The command ---------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("--passes", type=int, default=3, help="turns on the host (default 3)")
    parser.add_argument("--guest", action="store_true", help="in guests on tsc and on hpet too")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw a picture")
    parser.add_argument("--document", type=Path, metavar="MD", help="put the tables into a page")
    parser.add_argument("--from", type=Path, metavar="JSON", dest="saved", help="measured before")
    arguments = parser.parse_args()
    if arguments.passes < 1:
        parser.error("--passes must be at least 1")
    if arguments.saved:
        report = json.loads(arguments.saved.read_text())
    else:
        report = {"host": measure_host(arguments.passes)}
        report["machine"] = machine(report)
        if arguments.guest:
            report["guest"] = measure_guests()
    if arguments.plot:
        plot(report, arguments.plot)
    if arguments.document:
        write_document(report, arguments.document)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print_text(report)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"founding.py: {failure}", file=sys.stderr)
        sys.exit(1)
