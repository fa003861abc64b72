"""What all tests of the Python suite share.

The suite tests the installed package, and the C core through it: through CFFI in API mode, which is
fastclock.lib, and in ABI mode, which is abi.h as cdef and the installed library opened by dlopen.
From the root of the project, on a machine that `./dev test` has set up:

    build/venv/bin/pip install '.[test]'
    build/venv/bin/python -m pytest

The library for ABI mode is the one in build/install, or what FASTCLOCK_LIBRARY names. Needed beside
the package: a C compiler, libseccomp's headers, strace, unshare (util-linux), and root for time
namespaces. Nothing is skipped: what is missing fails.
"""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig
from types import SimpleNamespace

import cffi
import fastclock
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ABI_H = ROOT / "include" / "fastclock" / "abi.h"

CLOCKS = {
    "realtime": 0,
    "monotonic": 1,
    "raw": 4,
    "realtime_coarse": 5,
    "monotonic_coarse": 6,
    "boottime": 7,
    "tai": 11,
}
FINE = ["realtime", "monotonic", "raw", "boottime", "tai"]
NEVER_BACK = ["monotonic", "raw", "boottime"]
SOURCES = ["kernel-page", "vdso", "syscall", "off"]
SOURCE_NUMBERS = {"auto": -1, "kernel-page": 1, "timekeep": 2, "vdso": 3, "syscall": 4, "off": 5}


# ---- What is built for the tests -------------------------------------------------------------


def _compile(name, source, target, *flags):
    """One extension module, by the C compiler that Python was built with or its like."""
    command = [
        *sysconfig.get_config_var("CC").split()[:1],
        *("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-fPIC", "-shared"),
        f"-I{sysconfig.get_path('include')}",
        *(str(source), "-o", str(target / f"{name}.so"), *flags),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A folder with the modules `probe` and `counts`, which children find by PYTHONPATH."""
    target = tmp_path_factory.mktemp("built")
    builder = cffi.FFI()
    builder.cdef((HERE / "probe.h").read_text())
    builder.set_source("probe", '#include "probe.h"')
    builder.emit_c_code(str(target / "probe.c"))
    _compile(
        "probe", target / "probe.c", target, f"-I{HERE}", str(HERE / "probe.c"), "-lseccomp", "-ldl"
    )
    package = pathlib.Path(fastclock.__file__).parent
    library = next(package.glob("libfastclock.so.*"))
    _compile(
        "counts",
        HERE / "counts.c",
        target,
        *(f"-I{ROOT / 'include'}", str(library), f"-Wl,-rpath,{package}"),
    )
    sys.path.insert(0, str(target))
    yield target
    sys.path.remove(str(target))


@pytest.fixture(scope="session")
def probe(built):
    """probe.c through CFFI: .lib and .ffi."""
    import probe

    return probe


@pytest.fixture(scope="session")
def counts(built):
    import counts

    return counts


# ---- The library, twice ----------------------------------------------------------------------


def _installed_library():
    named = os.environ.get("FASTCLOCK_LIBRARY")
    if named:
        return named
    found = sorted((ROOT / "build" / "install").glob("lib*/**/libfastclock.so"))
    if not found:
        pytest.fail(
            "no libfastclock.so below build/install: install the library there, as ./dev test "
            "does, or name it in FASTCLOCK_LIBRARY"
        )
    return str(found[0])


def _in_api_mode():
    return fastclock.ffi, fastclock.lib


def _in_abi_mode():
    ffi = cffi.FFI()
    ffi.cdef(ABI_H.read_text())
    return ffi, ffi.dlopen(_installed_library())


@pytest.fixture(scope="session")
def libraries():
    made = {}

    def get(mode):
        if mode not in made:
            made[mode] = _in_api_mode() if mode == "API" else _in_abi_mode()
        return made[mode]

    return get


@pytest.fixture(params=["API", "ABI"])
def core(request, libraries):
    """The C core: .ffi, .lib, .mode, .address(name), .info(), .select(name)."""
    ffi, lib = libraries(request.param)

    def address(name):
        return int(ffi.cast("uintptr_t", ffi.addressof(lib, name)))

    def info():
        out = ffi.new("struct fc_info *")
        assert lib.fc_get_info(out, ffi.sizeof("struct fc_info")) == 0
        return out

    def select(source):
        error = lib.fc_select(SOURCE_NUMBERS[source])
        reason = ffi.string(lib.fc_reason_text(info().reason[max(0, SOURCE_NUMBERS[source])]))
        assert error == 0, f"{source} was refused: {reason.decode()}"

    yield SimpleNamespace(
        ffi=ffi, lib=lib, mode=request.param, address=address, info=info, select=select
    )
    select("auto")


# ---- Brackets and children -------------------------------------------------------------------


@pytest.fixture(scope="session")
def bracket(probe):
    """bracket(clock's number, read=address or read_number=address, ...): the tallies."""

    def run(clock, rounds, read=0, read_number=0, early_ns=0, control=True):
        out = probe.ffi.new("struct probe_brackets *")
        probe.lib.probe_brackets(clock, read, read_number, rounds, early_ns, control, out)
        return SimpleNamespace(**{name: getattr(out, name) for name in dir(out)})

    return run


def assert_all_inside(tallies, rounds):
    """None outside, and so few void that the claim stands on nearly all of the rounds."""
    assert tallies.refused == 0, tallies
    assert tallies.rounds == rounds, tallies
    assert tallies.errors == 0, tallies
    assert tallies.outside == 0, tallies
    assert tallies.good >= rounds * 99 // 100, tallies


@pytest.fixture
def child(built):
    """child(code, ...): runs Python code in a new interpreter that sees the package and the built
    modules, and returns the JSON object that it prints."""

    def run(code, before=(), **environment):
        done = subprocess.run(
            [*before, sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={
                **{k: v for k, v in os.environ.items() if k != "FASTCLOCK_SOURCE"},
                "PYTHONPATH": f"{built}{os.pathsep}{HERE}",
                **environment,
            },
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    return run
