"""The wheel and the sdist: built here, installed and used where the tree is not."""

import json
import pathlib
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest
from conftest import ROOT


def run(*command, **keywords):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **keywords
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built_packages(tmp_path_factory):
    """(sdist, wheel); the wheel is built from the sdist, and so from nothing but it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def elsewhere(built_packages, tmp_path_factory):
    """The interpreter of a new environment with the wheel in it."""
    home = tmp_path_factory.mktemp("elsewhere")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--disable-pip-version-check", built_packages[1], cwd=home)
    return python


@pytest.fixture(scope="module")
def files(built_packages):
    """The wheel's files: name -> bytes."""
    with zipfile.ZipFile(built_packages[1]) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def test_the_wheel_holds_the_package_and_the_command_and_nothing_beside_them(files):
    parts = [pathlib.PurePath(name).parts for name in files]
    tops = {top for top, *_ in parts}
    assert {top for top in tops if "-" not in top} == {"fastclock"}
    assert {pathlib.PurePath(top).suffix for top in tops} == {"", ".data", ".dist-info"}
    scripts = [name for _, kind, *name in parts if kind == "scripts"]
    assert scripts == [["fastclock"]]


@pytest.mark.parametrize(
    "name", ["py.typed", "__init__.pyi", "_clocks.pyi", "_abi.pyi", "relaxed.py", "__main__.py"]
)
def test_the_wheel_holds_what_users_and_type_checkers_need(files, name):
    assert f"fastclock/{name}" in files


def test_the_wheel_holds_one_library_under_its_soname(files, tmp_path):
    libraries = [name for name in files if "libfastclock.so" in name]
    assert len(libraries) == 1
    (tmp_path / "library").write_bytes(files[libraries[0]])
    dynamic = run("readelf", "-d", tmp_path / "library")
    assert f"Library soname: [{pathlib.PurePath(libraries[0]).name}]" in dynamic


def test_both_modules_look_for_the_library_beside_them_and_nowhere_else(files, tmp_path):
    modules = [name for name in files if name.startswith("fastclock/") and name.endswith(".so")]
    assert len(modules) == 2
    for name in modules:
        (tmp_path / "module").write_bytes(files[name])
        dynamic = run("readelf", "-d", tmp_path / "module")
        assert "runpath: [$ORIGIN]" in dynamic, name
        assert "Shared library: [libfastclock.so." in dynamic, name


def test_the_module_of_the_whole_abi_is_for_every_version_of_python(files):
    assert "fastclock/_abi.abi3.so" in files


def test_nothing_compiled_knows_the_tree_that_it_was_built_in(files):
    for name, content in files.items():
        assert str(ROOT).encode() not in content, name


def test_the_sdist_holds_what_it_is_built_from_and_no_tests(built_packages):
    with tarfile.open(built_packages[0]) as sdist:
        names = [pathlib.PurePath(*pathlib.PurePath(n).parts[1:]) for n in sdist.getnames()]
    top = {name.parts[0] for name in names if name.parts}
    assert {"include", "core", "bindings", "CMakeLists.txt", "pyproject.toml", "LICENSE"} <= top
    assert not top & {"tests", "build", "bench"}


def test_the_wheel_works_where_the_tree_is_not(elsewhere):
    told = json.loads(
        run(
            elsewhere,
            "-I",
            "-c",
            "import fastclock, json, time\n"
            "a = time.monotonic_ns(); b = fastclock.monotonic_ns()\n"
            "c = fastclock.lib.fc_monotonic_ns(); d = time.monotonic_ns()\n"
            "print(json.dumps({'file': fastclock.__file__, 'stamps': [a, b, c, d],"
            " 'info': fastclock.info()._asdict()}))",
            cwd="/",
        )
    )
    assert told["file"].startswith(str(elsewhere.parent.parent))
    assert told["stamps"] == sorted(told["stamps"])
    assert told["info"]["source"] in ("kernel-page", "vdso", "syscall")


def test_the_module_as_a_command_works_where_the_tree_is_not(elsewhere):
    assert "source:" in run(elsewhere, "-I", "-m", "fastclock", cwd="/")


def test_the_command_works_where_the_tree_is_not(elsewhere):
    told = json.loads(run(elsewhere.with_name("fastclock"), "info", "--json", cwd="/"))
    assert told["source"] in ("kernel-page", "vdso", "syscall")


def test_the_command_finds_the_library_that_it_preloads_where_the_tree_is_not(elsewhere):
    maps = run(elsewhere.with_name("fastclock"), "run", "--", "cat", "/proc/self/maps", cwd="/")
    assert f"{elsewhere.parent.parent}/lib/fastclock/libfastclock-preload.so" in maps
