# SPDX-License-Identifier: MIT
"""Installs the library and uses it as users do: by pkg-config, by find_package, shared and static.

Also looks into what was installed: names, versions and segments of the shared library, names in the
static one. What may be exported is read from the headers.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import declarations

HERE = Path(__file__).resolve().parent
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-O2"]

failures = 0


def claim(sentence: str, holds: bool, why: str = "") -> None:
    global failures
    print(f"{'ok     ' if holds else 'FAILED '} {sentence}", flush=True)
    if not holds:
        failures += 1
        if why:
            print("    " + why.strip().replace("\n", "\n    "), flush=True)


def run(*command: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(c) for c in command],
        env={**os.environ, **(env or {})},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def must(*command: object, env: dict[str, str] | None = None) -> str:
    result = run(*command, env=env)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}")
    return result.stdout


class Package:
    def __init__(self, build: Path, work: Path):
        self.work = work
        self.prefix = work / "prefix"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        must("cmake", "--install", build, "--prefix", self.prefix)
        self.lib = next(self.prefix.rglob("libfastclock.so")).parent
        self.static = self.lib / "libfastclock.a"

    def pkg_config(self, *arguments: str) -> list[str]:
        path = str(self.lib / "pkgconfig")
        return must("pkg-config", *arguments, "fastclock", env={"PKG_CONFIG_PATH": path}).split()

    def build_and_run(self, sentence: str, compiler: str, flags: list[str], static: bool) -> Path:
        program = self.work / ("program" + re.sub(r"\W+", "-", sentence))
        language = "c++" if "++" in compiler else "c"
        libraries = self.pkg_config("--libs")
        if static:
            libraries = [str(self.static) if f == "-lfastclock" else f for f in libraries]
        result = run(
            compiler, *STRICT, *flags, *self.pkg_config("--cflags"),
            "-x", language, HERE / "program.c", "-x", "none", *libraries, "-o", program,
        )  # fmt: skip
        if result.returncode == 0:
            result = run(program, env={"LD_LIBRARY_PATH": str(self.lib)})
        claim(sentence, result.returncode == 0, f"exit code {result.returncode}\n{result.stdout}")
        return program


# ---- Building against it --------------------------------------------------------------------------


def by_pkg_config(package: Package) -> None:
    languages = [
        *((c, s) for c in ("gcc", "clang") for s in ("c11", "gnu11", "c17")),
        *((c, s) for c in ("g++", "clang++") for s in ("c++11", "c++14", "c++17", "c++20")),
    ]
    for compiler, standard in languages:
        for inline in ([], ["-DFASTCLOCK_INLINE"]):
            for static in (False, True):
                # A strict standard hides clock_gettime, which the program itself wants.
                flags = [f"-std={standard}", "-D_POSIX_C_SOURCE=200809L", *inline]
                words = f"{compiler} -std={standard}{' inlined' if inline else ''}"
                package.build_and_run(
                    f"{words}, {'static' if static else 'shared'}: builds cleanly and is right",
                    compiler, flags, static,
                )  # fmt: skip


def by_position(package: Package) -> None:
    for compiler in ("gcc", "clang", "g++", "clang++"):
        for words, flags in (
            ("position-independent", ["-fPIE", "-pie"]),
            ("not position-independent", ["-fno-pie", "-no-pie"]),
            ("not position-independent, -O0", ["-fno-pie", "-no-pie", "-O0"]),
        ):
            program = package.build_and_run(
                f"{compiler}, {words}: inlined reads are on the page",
                compiler, [*flags, "-DFASTCLOCK_INLINE", "-D_POSIX_C_SOURCE=200809L"], False,
            )  # fmt: skip
            if "no-pie" in flags[-1] and compiler in ("gcc", "g++"):
                copied = "R_X86_64_COPY" in must("readelf", "-rW", program)
                claim(f"{compiler}, {words}: it is the copied view that was tried", copied)


def by_moving(package: Package) -> None:
    moved = package.work / "moved"
    shutil.copytree(package.prefix, moved, symlinks=True)
    path = moved / package.lib.relative_to(package.prefix) / "pkgconfig"
    for variable in ("prefix", "libdir", "includedir"):
        value = must("pkg-config", f"--variable={variable}", "fastclock",
                     env={"PKG_CONFIG_PATH": str(path)}).strip()  # fmt: skip
        claim(f"pkg-config's {variable} follows when the tree is moved",
              Path(value).resolve().is_relative_to(moved.resolve()), value)  # fmt: skip
    value = Path(must("pkg-config", "--variable=prefix", "fastclock",
                      env={"PKG_CONFIG_PATH": str(path)}).strip())  # fmt: skip
    claim("pkg-config's prefix is the prefix", value.resolve() == moved.resolve(), str(value))


def by_multiarch(package: Package, source: Path, build: Path) -> None:
    """Debian's own layout: the libraries in a directory for the architecture."""
    other, prefix = package.work / "multiarch-build", package.work / "multiarch"
    must("cmake", "-S", source, "-B", other, "-G", "Ninja", "-DFASTCLOCK_COMMAND=OFF",
         "-DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu", f"-DCMAKE_INSTALL_PREFIX={prefix}")  # fmt: skip
    must("cmake", "--build", other)
    must("cmake", "--install", other)
    path = {"PKG_CONFIG_PATH": str(prefix / "lib/x86_64-linux-gnu/pkgconfig")}
    for variable, expected in (
        ("prefix", prefix),
        ("libdir", prefix / "lib/x86_64-linux-gnu"),
        ("includedir", prefix / "include"),
    ):
        value = must("pkg-config", f"--variable={variable}", "fastclock", env=path).strip()
        claim(f"in a multiarch tree pkg-config's {variable} is right",
              Path(value).resolve() == expected.resolve(), value)  # fmt: skip


def configure_consumer(package: Package, wanted: str) -> tuple[Path, bool, str]:
    build = package.work / f"consumer-{wanted}"
    result = run("cmake", "-S", HERE / "consumer", "-B", build, "-G", "Ninja",
                 f"-DCMAKE_PREFIX_PATH={package.prefix}", f"-DFASTCLOCK_WANTED={wanted}")  # fmt: skip
    return build, result.returncode == 0, result.stdout


def by_find_package(package: Package, version: str) -> None:
    major, minor, patch = map(int, version.split("."))
    build, configured, output = configure_consumer(package, version)
    claim(f"find_package(fastclock {version}) finds it", configured, output)
    if configured:
        built = run("cmake", "--build", build)
        claim("a project with both targets, in C and C++, builds", built.returncode == 0,
              built.stdout)  # fmt: skip
        for target in ("fastclock", "fastclock_static"):
            for language in ("c", "cc"):
                ran = run(build / f"{target}_{language}")
                claim(f"fastclock::{target}, .{language}: runs from where it is and is right",
                      ran.returncode == 0, ran.stdout)  # fmt: skip
        needed = must("readelf", "-d", build / "fastclock_static_c")
        claim("what is linked with fastclock::fastclock_static needs no shared library of it",
              "libfastclock" not in needed, needed)  # fmt: skip
    for wanted in (f"{major}.{minor + 1}", f"{major + 1}", f"{major}.{minor}.{patch + 1}"):
        _, configured, output = configure_consumer(package, wanted)
        claim(f"find_package(fastclock {wanted}) is refused, for this is {version}",
              not configured and "version" in output, output)  # fmt: skip


# ---- Looking into it ------------------------------------------------------------------------------


def symbols(*arguments: object) -> list[tuple[str, str]]:
    """Type and name of each symbol that nm lists."""
    found = []
    for line in must("nm", *arguments).splitlines():
        match = re.match(r"(?:[0-9a-f]+)? +([A-Za-z]) (\S+)$", line)
        if match:
            found.append((match[1], match[2]))
    return found


def look_into_shared(package: Package, version: str) -> None:
    library = package.lib / "libfastclock.so"
    major, minor, _ = version.split(".")
    dynamic = must("readelf", "-dW", library)
    soname = re.search(r"SONAME.*\[(.*)\]", dynamic)
    claim(f"the SONAME is libfastclock.so.{major}",
          bool(soname) and soname[1] == f"libfastclock.so.{major}", dynamic)  # fmt: skip
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    claim("it needs the C library and nothing else", needed == ["libc.so.6"], str(needed))
    claim("it has no text relocations", "TEXTREL" not in dynamic, dynamic)
    claim("its symbols are all bound at once", "NOW" in dynamic, dynamic)

    exported, versions = set(), set()
    for kind, name in symbols("-D", "--defined-only", "--with-symbol-versions", library):
        bare, _, tag = name.partition("@@")
        if kind != "A":
            exported.add(bare)
            versions.add(tag)
    expected = declarations.exported_symbols()
    claim("it exports what the headers declare, no less", exported >= expected,
          f"missing: {sorted(expected - exported)}")  # fmt: skip
    claim("it exports what the headers declare, no more", exported <= expected,
          f"surplus: {sorted(exported - expected)}")  # fmt: skip
    claim(f"every symbol has the version FASTCLOCK_{major}.{minor}",
          versions == {f"FASTCLOCK_{major}.{minor}"}, str(versions))  # fmt: skip

    segments = must("readelf", "-lW", library)
    both = [s for s in segments.splitlines() if re.match(r"\s+[A-Z_]+ +0x.* (RWE|WE|RWX)\b", s)]
    claim("no segment is both writable and executable", not both, "\n".join(both))
    claim("what is relocated is read-only afterwards", "GNU_RELRO" in segments, segments)


def look_into_static(package: Package) -> None:
    own = re.compile(r"fc_\w+$|vtime64$")
    globals_ = {name for kind, name in symbols("-g", "--defined-only", package.static)}
    strangers = sorted(name for name in globals_ if not own.match(name))
    claim("the static library defines no global name but fc_… and vtime64", not strangers,
          str(strangers))  # fmt: skip
    expected = declarations.exported_symbols()
    claim("the static library defines all that the headers declare", globals_ >= expected,
          f"missing: {sorted(expected - globals_)}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="the project's root")
    parser.add_argument("--build", type=Path, required=True, help="a build directory, built")
    arguments = parser.parse_args()
    arguments.source, arguments.build = arguments.source.resolve(), arguments.build.resolve()
    header = (arguments.source / "include/fastclock.h").read_text()
    version = ".".join(re.findall(r"FASTCLOCK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
    package = Package(arguments.build, arguments.build / "package")
    look_into_shared(package, version)
    look_into_static(package)
    by_pkg_config(package)
    by_position(package)
    by_moving(package)
    by_multiarch(package, arguments.source, arguments.build)
    by_find_package(package, version)
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
