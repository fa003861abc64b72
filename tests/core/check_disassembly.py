# SPDX-License-Identifier: MIT
"""The fast path of a read, in the built library: no call, division, locked instruction or store.

The fast path is what is executed from a function's entry if no conditional jump is taken, up to its
return. The relaxed read has no fence and reads the counter once; the ordered one has one fence, right
before the counter; the coarse one has neither.
"""

import re
import subprocess
import sys
from dataclasses import dataclass


@dataclass
class Instruction:
    address: int
    name: str
    operands: str

    def __str__(self) -> str:
        return f"{self.address:x}: {self.name} {self.operands}"


# What a read may have: fences of the processor, and reads of the counter.
EXPECTED = {
    "fc_monotonic_ns": ["lfence", "rdtsc"],
    "fc_realtime_ns": ["lfence", "rdtsc"],
    "fc_raw_ns": ["lfence", "rdtsc"],
    "fc_boottime_ns": ["lfence", "rdtsc"],
    "fc_tai_ns": ["lfence", "rdtsc"],
    "vtime64": ["lfence", "rdtsc"],
    "fc_monotonic_relaxed_ns": ["rdtsc"],
    "fc_realtime_relaxed_ns": ["rdtsc"],
    "fc_raw_relaxed_ns": ["rdtsc"],
    "fc_monotonic_coarse_ns": [],
    "fc_realtime_coarse_ns": [],
}
FENCES = {"lfence", "mfence", "sfence", "rdtscp", "rdtsc", "cpuid", "serialize"}
LOADS_ONLY = re.compile(r"(cmp|test|bt)[bwlq]?$")  # their last operand is not written
ENDS_OTHERWISE = re.compile(r"(hlt|ud2|int3?|syscall|sysenter)$")


def disassemble(library: str) -> dict[str, list[Instruction]]:
    """The exported functions by name; two names may be one function."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "-M", "att", library],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    functions: dict[int, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in text.splitlines():
        start = re.match(r"([0-9a-f]+) <.*>:$", line)
        if start:
            current = functions.setdefault(int(start[1], 16), [])
            continue
        match = re.match(
            r"\s*([0-9a-f]+):\s+((?:lock |rep |repz |notrack |bnd )*\S+)\s*(.*)$", line
        )
        if match:
            operands = match[3].split("#")[0].strip()
            current.append(Instruction(int(match[1], 16), match[2], operands))
    names = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    return {
        name: functions[int(address, 16)]
        for address, name in re.findall(r"^([0-9a-f]+) T (\w+)", names, flags=re.MULTILINE)
    }


def fast_path(name: str, body: list[Instruction]) -> list[Instruction]:
    """From the entry on, no conditional jump taken, up to the return."""
    at = {instruction.address: index for index, instruction in enumerate(body)}
    path: list[Instruction] = []
    index = 0
    while True:
        if index >= len(body) or len(path) > len(body):
            raise SystemExit(f"{name}: no way from its entry to a return")
        instruction = body[index]
        path.append(instruction)
        if instruction.name in ("ret", "retq", "repz ret", "repz retq"):
            return path
        if ENDS_OTHERWISE.match(instruction.name):
            raise SystemExit(f"{name}: {instruction}")
        if instruction.name in ("jmp", "jmpq"):
            target = instruction.operands.split()[0]
            if not re.fullmatch(r"[0-9a-f]+", target) or int(target, 16) not in at:
                raise SystemExit(f"{name} leaves itself on the fast path: {instruction}")
            index = at[int(target, 16)]
        else:
            index += 1


def stores(instruction: Instruction) -> bool:
    """Whether an instruction of AT&T syntax writes memory: its last operand is a memory operand."""
    if LOADS_ONLY.match(instruction.name) or instruction.name.startswith(("nop", "lea", "endbr")):
        return False
    if (
        instruction.name.startswith(("push", "call", "movs", "stos"))
        and "%" in instruction.operands
    ):
        return instruction.name.startswith(("push", "stos")) or "(" not in instruction.operands
    operands = re.split(r",(?![^(]*\))", instruction.operands)
    return (
        len(operands) >= 1
        and operands[-1].endswith(")")
        and not (len(operands) == 1 and instruction.name.startswith(("mul", "imul", "div", "idiv")))
    )


def problems(name: str, path: list[Instruction]) -> list[str]:
    found = []
    for instruction in path:
        word = instruction.name
        if word.startswith("call"):
            found.append(f"calls: {instruction}")
        if re.match(r"i?div", word):
            found.append(f"divides: {instruction}")
        if word.startswith("lock") or word.startswith("xchg"):
            found.append(f"locks: {instruction}")
        if stores(instruction):
            found.append(f"stores: {instruction}")
    fences = [i.name for i in path if i.name in FENCES]
    if fences != EXPECTED[name]:
        found.append(f"has {fences}, not {EXPECTED[name]}")
    return found


def main() -> int:
    functions = disassemble(sys.argv[1])
    failed = 0
    for name in EXPECTED:
        if name not in functions:
            raise SystemExit(f"{sys.argv[1]} has no function {name}")
        path = fast_path(name, functions[name])
        found = problems(name, path)
        failed += bool(found)
        print(f"{'FAILED ' if found else 'ok     '} {name}: {len(path)} instructions, "
              f"no call, division, lock or store; {', '.join(EXPECTED[name]) or 'no counter'}")  # fmt: skip
        for problem in found:
            print(f"    {problem}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
