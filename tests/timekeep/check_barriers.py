#!/usr/bin/python3
"""Looks for the barriers of the timekeep page in the machine code for 64-bit Arm.

The model in protocol.pml takes memory for sequentially consistent. On Arm that needs barriers, each
of which the compiler makes from a C11 fence or an acquiring or releasing access. What is looked at
is the code between two accesses, not whether some barrier occurs somewhere.

usage: check_barriers.py SOURCE-FOLDER COMPILER OBJDUMP WORK-FOLDER
"""

import re
import subprocess
import sys
from pathlib import Path

PROBE = """
#define FASTCLOCK_INLINE
#include <fastclock.h>
struct fc_view_v1 fc_view_v1;
int probe_look(const unsigned char *block, uint64_t *sec, uint64_t *ns);
int probe_look(const unsigned char *block, uint64_t *sec, uint64_t *ns) {
    return fc_try_fine_(block, 8, FC_MONOTONIC, 1, fc_cpu_counter_ordered_, 0, sec, ns);
}
"""


def disassemble(arguments: list[str], objdump: str, target: Path) -> dict[str, list[str]]:
    """The instructions of each function of an object file, as text."""
    subprocess.run([*arguments, "-c", "-o", str(target)], check=True)
    text = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", str(target)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    functions: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <(.+)>:", line)
        if head:
            name = head.group(1)
            functions[name] = []
        elif re.match(r"\s+[0-9a-f]+:", line):
            functions[name].append(line.split(":", 1)[1].strip().split("//")[0].strip())
    return functions


def first(code: list[str], pattern: str, start: int = 0) -> int:
    """The place of the first instruction from `start` on that matches; fails if there is none."""
    for place in range(start, len(code)):
        if re.match(pattern, code[place]):
            return place
    raise SystemExit(f"FAILED  no {pattern} after instruction {start} in:\n" + "\n".join(code))


def check(claim: str, true: bool, code: list[str]) -> None:
    if not true:
        raise SystemExit(f"FAILED  {claim}\n" + "\n".join(code))
    print("ok     ", claim)


def check_reader(code: list[str]) -> None:
    sequence = first(code, r"ldar\s+w")
    mode = first(code, r"ldr\s+w", sequence)
    isb = first(code, r"isb", mode)
    counter = first(code, r"mrs\s+x\d+, cntvct_el0", isb)
    dependent = first(code, r"ldr\s+xzr", counter)
    barrier = first(code, r"dmb\s+ish(ld)?", dependent)
    again = first(code, r"ldr\s+w", barrier)
    check("reader: the sequence is loaded with acquire, before the mode", sequence < mode, code)
    check("reader: the counter is read behind an instruction barrier", isb < counter, code)
    check(
        "reader: a load that depends on the counter, then a barrier, before the second look",
        counter < dependent < barrier < again,
        code,
    )
    fields = [i for i, line in enumerate(code) if re.match(r"ld[rp]\s+x", line) and i > counter]
    fields = [i for i in fields if not code[i].startswith("ldr\txzr")]
    check("reader: last, limit, base and scale lie between the two looks", len(fields) >= 2, code)
    check(
        "reader: no field is loaded behind the barrier",
        all(i < barrier or "sp" in code[i] for i in fields),
        code,
    )


def check_writer(functions: dict[str, list[str]]) -> None:
    code = functions["fc_timekeep_page_write"]
    odd = first(code, r"str\s+w")
    second_odd = first(code, r"str\s+w", odd + 1)
    barrier = first(code, r"dmb\s+ish", second_odd)
    field = first(code, r"st[rp]\s+[wx]", barrier)
    even = first(code, r"stlr\s+w", field)
    second_even = first(code, r"stlr\s+w", even + 1)
    between = code[second_odd + 1 : barrier]
    check(
        "writer: both sequences are odd before the barrier, and the fields come behind it",
        not any(re.match(r"st[rp]\s", line) for line in between),
        code,
    )
    behind = [line for line in code[second_even + 1 :] if re.match(r"st[rp]\s+[wx]\d+, \[x", line)]
    check(
        "writer: both sequences are even again by a releasing store, behind every field",
        even < second_even and not behind,
        code,
    )
    code = functions["fc_timekeep_page_turn"]
    first(code, r"stlr\s+w")
    check("writer: the index is stored with release", True, code)
    code = functions["fc_timekeep_page_end"]
    limits = [i for i, line in enumerate(code) if re.match(r"str\s+x", line)]
    last_barrier = max(i for i, line in enumerate(code) if re.match(r"dmb\s+ish$", line))
    check("writer: a full barrier stands behind the lowered limits", bool(limits), code)
    # Stores that were moved out of line come back before the barrier: only a return follows it.
    check("writer: and the function ends with it", code[last_barrier + 1] == "ret", code)


def check_index(functions: dict[str, list[str]]) -> None:
    code = functions["fc_timekeep_page_read"]
    first(code, r"ldar\s+w")
    check("reader: the index is loaded with acquire", True, code)


def main() -> None:
    source, compiler, objdump, work = Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
    work.mkdir(parents=True, exist_ok=True)
    probe = work / "probe.c"
    probe.write_text(PROBE)
    options = [
        compiler,
        "-std=c11",
        "-O2",
        "-fno-tree-slp-vectorize",
        "-I",
        str(source / "include"),
        "-I",
        str(source / "core"),
    ]
    check_reader(disassemble([*options, str(probe)], objdump, work / "probe.o")["probe_look"])
    functions = disassemble(
        [*options, str(source / "core/timekeep_page.c")], objdump, work / "page.o"
    )
    check_writer(functions)
    check_index(functions)


if __name__ == "__main__":
    main()
