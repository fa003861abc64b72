# SPDX-License-Identifier: MIT
"""Guests: an initramfs of static programs, booted under QEMU without acceleration, whose results come
as marked lines over the serial console."""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path, PurePosixPath

MARK = b"@fastclock "
BOOT_TIMEOUT_S = 90  # to the first line of init; four seconds where nothing else runs

MACHINES = {
    "x86_64": {
        "emulator": "qemu-system-x86_64",
        "arguments": ["-cpu", "max", "-vga", "none"],
        "console": "ttyS0",
        # The watchdog of a clocksource needs a quiet machine: the guest is told to trust its TSC.
        "append": "tsc=reliable",
    },
    "aarch64": {
        "emulator": "qemu-system-aarch64",
        "arguments": ["-M", "virt", "-cpu", "max"],
        "console": "ttyAMA0",
        "append": "",
    },
}


class GuestError(Exception):
    """A guest that did not do its work; the text says how far it came."""


class Restorable:
    """What a guest needs whose state is saved, and whose emulator goes back to it: a disk that takes
    the state, and a way to tell the emulator to."""

    def __init__(self, folder: str):
        self.monitor = os.path.join(folder, "monitor")
        disk = os.path.join(folder, "disk")
        with open(disk, "wb") as file:
            file.truncate(1 << 20)
        self.environment = dict(os.environ, TMPDIR=folder)  # where the disk's changes go
        self.arguments = [
            "-drive",
            f"if=none,format=raw,snapshot=on,file={disk}",
            "-qmp",
            f"unix:{self.monitor},server=on,wait=off",
        ]

    def restore(self, after_s: float):
        """Saves the state, and goes back to it when the guest has gone on for a while."""
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(self.monitor)
            with end.makefile("rw") as line:
                line.readline()  # the greeting
                self._ask(line, "qmp_capabilities")
                self._command(line, "savevm fastclock")
                time.sleep(after_s)
                self._command(line, "loadvm fastclock")

    def _command(self, line, command: str):
        said = self._ask(line, "human-monitor-command", {"command-line": command})
        if said:
            raise GuestError(f"{command}: {said.strip()}")

    @staticmethod
    def _ask(line, execute: str, arguments=None):
        line.write(json.dumps({"execute": execute, "arguments": arguments or {}}) + "\n")
        line.flush()
        while text := line.readline():
            answer = json.loads(text)
            if "error" in answer:
                raise GuestError(f"{execute}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise GuestError(f"{execute}: the emulator has ended")


def cpio_entry(name: str, mode: int, data: bytes, number: int, device=(0, 0)) -> bytes:
    """One member of a `newc` archive, the format of an initramfs."""
    encoded = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    head += b"\0" * (-len(head) % 4)
    return head + data + b"\0" * (-len(data) % 4)


def pack_initramfs(programs: dict, to: Path):
    """`programs`: path in the guest (without the first slash) -> file here."""
    directory, regular, character = 0o040755, 0o100755, 0o020600
    parents = {str(p) for name in programs for p in PurePosixPath(name).parents} - {"."}
    members = [
        ("dev", directory, b"", (0, 0)),
        ("dev/console", character, b"", (5, 1)),  # init's standard output
        *((name, directory, b"", (0, 0)) for name in ("proc", "sys", "tmp", *sorted(parents))),
        *((name, regular, Path(file).read_bytes(), (0, 0)) for name, file in programs.items()),
    ]
    archive = b"".join(
        cpio_entry(name, mode, data, number, device)
        for number, (name, mode, data, device) in enumerate(members, 1)
    )
    archive += cpio_entry("TRAILER!!!", 0, b"", 0)
    to.write_bytes(archive + b"\0" * (-len(archive) % 512))


def boot(
    machine: str,
    kernel: str,
    initramfs: Path,
    append: str,
    parallel: bool,
    log: Path,
    timeout_s: float,
    on_line,
    emulator=(),
    device=None,
):
    """Boots and calls `on_line` with each result, a dict, as it comes. Returns when the guest has
    said that it is done. Raises GuestError if it never does, or says what is no JSON.

    `parallel`: the guest's two processors run at once; else in turn. `emulator`: how the command
    line begins, if not as usual. `device`: one more, in a guest that may say `restore`."""
    with contextlib.ExitStack() as stack:
        restorable = None
        if device:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fastclock-"))
            restorable = Restorable(folder)
        command = command_line(machine, kernel, initramfs, append, parallel, emulator)
        if restorable:
            command += ["-device", device, *restorable.arguments]
        watch(command, restorable, log, timeout_s, on_line)


def command_line(machine, kernel, initramfs, append, parallel, emulator):
    what = MACHINES[machine]
    return [
        *(emulator or [what["emulator"]]),
        *what["arguments"],
        "-accel",
        f"tcg,thread={'multi' if parallel else 'single'}",
        "-m",
        "512",
        "-smp",
        "2",
        "-nographic",
        "-net",
        "none",
        "-no-reboot",
        "-kernel",
        kernel,
        "-initrd",
        str(initramfs),
        "-append",
        f"console={what['console']} quiet loglevel=1 panic=-1 {what['append']} {append}",
    ]


def watch(command, restorable, log: Path, timeout_s: float, on_line):
    """Runs the emulator and hears what the guest says."""
    last = "nothing"
    done = False
    timed_out = threading.Event()
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        emulator = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=restorable.environment if restorable else None,
        )
    except FileNotFoundError as error:
        raise GuestError(f"{command[0]} is not installed") from error

    awake = threading.Event()

    def wake(after_s: float):
        """Bytes on the serial line, until the guest says something again."""
        while not awake.wait(after_s) and emulator.poll() is None:
            try:
                emulator.stdin.write(b"\n")
                emulator.stdin.flush()
            except OSError:
                return

    def kill():
        timed_out.set()
        emulator.kill()

    timers = [threading.Timer(timeout_s, kill), threading.Timer(BOOT_TIMEOUT_S, kill)]
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        with open(log, "wb") as file:
            for line in emulator.stdout:
                file.write(line)
                file.flush()
                if MARK not in line:
                    continue
                timers[1].cancel()
                text = line[line.index(MARK) + len(MARK) :].strip()
                try:
                    result = json.loads(text)
                except ValueError as error:
                    raise GuestError(f"the guest said {text!r}") from error
                if "wake" in result:
                    awake.clear()
                    threading.Thread(target=wake, args=(result["wake"],), daemon=True).start()
                    continue
                if "restore" in result and restorable:
                    restorable.restore(result["restore"])
                    continue
                awake.set()
                if "done" in result:
                    done = True
                elif "error" in result:
                    raise GuestError(result["error"])
                else:
                    last = result.get("start") or result.get("check") or "its kernel's name"
                on_line(result)
    finally:
        for timer in timers:
            timer.cancel()
        emulator.kill()
        emulator.wait()
        awake.set()
        emulator.stdout.close()
        emulator.stdin.close()
    if not done:
        why = (
            "killed by the watchdog"
            if timed_out.is_set()
            else f"the emulator ended with {emulator.returncode}"
        )
        raise GuestError(f"{why}; the last thing heard of was {last}; see {log}")
