# SPDX-License-Identifier: MIT
"""The manual page is what its source says."""

import subprocess

from conftest import TOP


def test_the_manual_page_is_made_from_its_source(tmp_path):
    made = tmp_path / "fastclock.1"
    subprocess.run(["go-md2man", "-in", TOP / "docs" / "fastclock.1.md", "-out", made], check=True)
    assert made.read_text() == (TOP / "docs" / "fastclock.1").read_text(), (
        "make it anew: go-md2man -in docs/fastclock.1.md -out docs/fastclock.1"
    )


def test_the_manual_page_is_readable(tmp_path):
    shown = subprocess.run(
        ["man", "--warnings", "-l", TOP / "docs" / "fastclock.1"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
    )
    assert shown.stderr == ""
    for heading in ("NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT"):
        assert f"\n{heading}\n" in "\n" + shown.stdout
