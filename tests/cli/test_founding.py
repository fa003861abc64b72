# SPDX-License-Identifier: MIT
"""The stress programs of `./dev bench founding` do what the documents' programs did."""

import json
import re
import subprocess

import pytest

PROGRAMS = {"library": "library", "syscall": "system call", "fastclock": "fastclock"}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("call", ["monotonic", "gettimeofday"])
def test_a_stress_program_tells_what_its_reads_took(build_folder, program, call):
    done = subprocess.run(
        [build_folder / "bin" / f"stress-{program}", call, "1000"],
        check=True,
        capture_output=True,
        text=True,
    )
    told = json.loads(done.stdout)
    assert (told["way"], told["call"], told["reads"]) == (PROGRAMS[program], call, 1000)
    assert told["real_s"] > 0


@pytest.mark.parametrize(
    ("program", "expected"), [("library", 0), ("syscall", 20000), ("fastclock", 0)]
)
@pytest.mark.parametrize(
    ("call", "name"), [("monotonic", "clock_gettime"), ("gettimeofday", "gettimeofday")]
)
def test_a_stress_program_enters_the_kernel_as_often_as_its_name_says(
    build_folder, tmp_path, program, expected, call, name
):
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-e", f"trace={name}", "-o", trace]
    command += [build_folder / "bin" / f"stress-{program}", call, "20000"]
    subprocess.run(command, check=True, capture_output=True)
    made = len(re.findall(rf"{name}\(", trace.read_text()))
    assert expected <= made < expected + 500  # the proof of fastclock's source makes some


@pytest.mark.parametrize(
    "arguments", [[], ["sundial"], ["monotonic", "0"], ["monotonic", "x"], ["monotonic", "1", "2"]]
)
def test_a_stress_program_refuses_what_it_cannot_take(build_folder, arguments):
    done = subprocess.run(
        [build_folder / "bin" / "stress-library", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2 and "usage" in done.stderr
