# SPDX-License-Identifier: MIT
"""The command under test: the one that a build folder holds, and a copy that CMake installed."""

import json
import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def pytest_addoption(parser):
    parser.addoption(
        "--build-folder",
        default=str(TOP / "build" / "release"),
        help="where CMake has built the command, with FASTCLOCK_TESTS=ON",
    )


class Command:
    """Runs a program; `run` for text, `json` for the one object that it prints."""

    def __init__(self, path):
        self.path = Path(path)
        assert self.path.is_file(), f"{self.path} is not built"

    def run(self, *arguments, env=None, prefix=(), timeout=60, **options):
        return subprocess.run(
            [*prefix, self.path, *arguments],
            env={**clean_environment(), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            **options,
        )

    def json(self, *arguments, exit_code=0, **options):
        done = self.run(*arguments, "--json", **options)
        assert done.returncode == exit_code, done.stderr
        return json.loads(done.stdout)


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("FASTCLOCK_")}


@pytest.fixture(scope="session")
def build_folder(request):
    return Path(request.config.getoption("--build-folder")).resolve()


@pytest.fixture(scope="session")
def fastclock(build_folder):
    return Command(build_folder / "fastclock")


@pytest.fixture(scope="session")
def lying(build_folder):
    return Command(build_folder / "tests" / "cli" / "fastclock-lying")


@pytest.fixture(scope="session")
def installed(build_folder, tmp_path_factory):
    """The prefix of a copy installed elsewhere."""
    prefix = tmp_path_factory.mktemp("prefix")
    subprocess.run(
        ["cmake", "--install", build_folder, "--prefix", prefix], check=True, capture_output=True
    )
    return prefix
