# SPDX-License-Identifier: MIT
"""What libfastclock-preload.so is made of. What it does is claimed by tests/preload."""

import re
import subprocess

import pytest

NAMES = {"clock_gettime", "clock_getres", "gettimeofday", "time", "timespec_get"}
# Of the C library: the kernel's doors, words and bytes, the environment. Nothing that allocates,
# locks, looks up or prints.
ALLOWED = {
    "__errno_location",
    "syscall",
    "getauxval",
    "getenv",
    "secure_getenv",
    "open",
    "openat",
    "close",
    "read",
    "fstat",
    "stat",
    "mmap",
    "munmap",
    "madvise",
    "memchr",
    "memcmp",
    "memcpy",
    "memset",
    "strchr",
    "strcmp",
    "strlen",
    "__rseq_offset",
    "__rseq_size",
    "__stack_chk_fail",
    "__tls_get_addr",
}
# What every shared library has from the compiler's start files.
OF_THE_COMPILER = {
    "__cxa_finalize",
    "__gmon_start__",
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
}


@pytest.fixture(scope="module")
def library(build_folder):
    return build_folder / "libfastclock-preload.so"


def read(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_it_exports_the_posix_names_and_nothing_else(library):
    symbols = read("nm", "-D", "--defined-only", library).split("\n")
    assert {line.split()[-1] for line in symbols if line} == NAMES


def test_its_names_have_no_version_which_would_hide_them_from_programs(library):
    table = read("readelf", "--wide", "--dyn-syms", library)
    for name in NAMES:
        assert re.search(rf" {name}$", table, re.MULTILINE), name


def test_it_calls_nothing_that_allocates_locks_or_prints(library):
    symbols = read("nm", "-D", "--undefined-only", library).split("\n")
    called = {line.split()[-1].split("@")[0] for line in symbols if line}
    assert called - OF_THE_COMPILER <= ALLOWED


def test_it_needs_the_c_library_alone(library):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", read("readelf", "--dynamic", library))
    assert needed == ["libc.so.6"]


def test_nothing_of_its_own_runs_at_load(library):
    dynamic = read("readelf", "--dynamic", library)
    pointers = {
        kind: int(size) // 8 for kind, size in re.findall(r"\((\w+_ARRAY)SZ\)\s+(\d+)", dynamic)
    }
    assert pointers == {"INIT_ARRAY": 1, "FINI_ARRAY": 1}  # the compiler's frame_dummy and its like
    assert "TEXTREL" not in dynamic


def test_every_symbol_is_bound_before_the_first_call(library):
    assert re.search(r"\(FLAGS_1\).*NOW", read("readelf", "--dynamic", library))
