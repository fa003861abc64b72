# SPDX-License-Identifier: MIT
"""abi.h is read as it is by CFFI's cdef() and by LuaJIT's ffi.cdef(), and both call what they read."""

import subprocess
import sys
import time
from pathlib import Path

import cffi

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import declarations

LUA = """
local ffi = require "ffi"
ffi.cdef(io.open(arg[1]):read "*a")
local lib = ffi.load(arg[2])
for i = 3, #arg do
    assert(lib[arg[i]], arg[i])
end
assert(lib.fc_init() == 0)
local before = lib.fc_monotonic_ns()
assert(lib.fc_monotonic_ns() >= before and before > 0)
local info = ffi.new "struct fc_info"
assert(lib.fc_get_info(info, ffi.sizeof(info)) == 0)
assert(info.size == ffi.sizeof(info))
assert(lib.FC_SOURCE_AUTO == -1)
"""


def by_cffi(abi: Path, library: str, names: list[str]) -> None:
    ffi = cffi.FFI()
    ffi.cdef(abi.read_text())
    lib = ffi.dlopen(library)
    for name in names:
        assert getattr(lib, name), name
    assert lib.fc_init() == 0
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    ours = lib.fc_monotonic_ns()
    assert before <= ours <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    info = ffi.new("struct fc_info *")
    assert lib.fc_get_info(info, ffi.sizeof("struct fc_info")) == 0
    assert info.size == ffi.sizeof("struct fc_info")
    assert lib.FC_SOURCE_AUTO == -1


def main() -> None:
    library = sys.argv[1]
    abi = declarations.INCLUDE / "fastclock/abi.h"
    names = [f.name for f in declarations.abi_functions()]
    by_cffi(abi, library, names)
    print(f"ok      CFFI's cdef() reads abi.h as it is, and finds its {len(names)} functions")
    subprocess.run(["luajit", "-", str(abi), library, *names], input=LUA, text=True, check=True)
    print(f"ok      LuaJIT's ffi.cdef() reads abi.h as it is, and finds its {len(names)} functions")


if __name__ == "__main__":
    main()
