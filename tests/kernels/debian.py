# SPDX-License-Identifier: MIT
"""Debian's kernels, by apt, without a trace in the system's own apt.

Each suite has its own apt state below the cache folder: sources, lists, downloads. The mirror is the
one that the system's apt uses; signatures are checked against Debian's archive keyring by apt, and
the package once more against the checksum of the signed list. What is kept is the kernel's image
alone, beside a record that names where it came from.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LISTS_MAX_AGE_S = 24 * 3600
APT_TIMEOUT_S = 240


class FetchError(Exception):
    """A kernel that cannot be had; the text says what was tried and what came back."""


def cache_folder() -> Path:
    """Outside the source tree, so that a fresh clone does not fetch again."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "fastclock" / "kernels"


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def call(command, env=None, cwd=None) -> str:
    try:
        done = subprocess.run(
            command, env=env, cwd=cwd, capture_output=True, text=True, timeout=APT_TIMEOUT_S
        )
    except FileNotFoundError as error:
        raise FetchError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{' '.join(command)}: no end after {APT_TIMEOUT_S} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise FetchError(f"{' '.join(command)}: exit {done.returncode}: {' / '.join(last)}")
    return done.stdout


def mirror() -> str:
    """The address from which the system's own apt takes Debian's packages."""
    lines = call(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI) $(RELEASE) $(COMPONENT)",
            "Created-By: Packages",
            "Origin: Debian",
        ]
    ).splitlines()
    for line in lines:
        uri, release, component = line.split()
        if component == "main" and "-" not in release:
            return uri
    raise FetchError("the system's apt has no source of Debian's main archive; run apt-get update")


class Suite:
    """One of Debian's suites, with an apt of its own."""

    def __init__(self, name: str, architectures):
        self.name = name
        self.architectures = architectures
        self.root = cache_folder() / "apt" / name
        self.env = dict(os.environ, APT_CONFIG=str(self.root / "apt.conf"), LC_ALL="C")

    def _configure(self):
        for folder in ("lists/partial", "cache/archives/partial", "parts", "downloads"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "status").touch()
        architectures = ",".join(self.architectures)
        source = f"deb [arch={architectures} signed-by={KEYRING}] {mirror()} {self.name} main\n"
        sources = self.root / "sources.list"
        if not sources.exists() or sources.read_text() != source:
            sources.write_text(source)
            (self.root / "updated").unlink(missing_ok=True)
        quoted = " ".join(f'"{a}";' for a in self.architectures)
        (self.root / "apt.conf").write_text(f"""\
Dir::State "{self.root}";
Dir::State::status "{self.root}/status";
Dir::Cache "{self.root}/cache";
Dir::Etc::sourcelist "{sources}";
Dir::Etc::sourceparts "{self.root}/parts";
APT::Architecture "{self.architectures[0]}";
APT::Architectures {{ {quoted} }};
APT::Sandbox::User "root";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-hidpi::DefaultEnabled "false";
""")

    def update(self, say):
        """Brings the lists up to date, at most once a day."""
        if not os.path.exists(KEYRING):
            raise FetchError(f"no {KEYRING}: install debian-archive-keyring")
        self._configure()
        stamp = self.root / "updated"
        if stamp.exists() and time.time() - stamp.stat().st_mtime < LISTS_MAX_AGE_S:
            return
        say(f"{self.name}: updating apt's lists")
        call(["apt-get", "update", "--error-on=any"], self.env)
        stamp.touch()

    def show(self, package: str, architecture: str) -> dict:
        text = call(
            ["apt-cache", "show", "--no-all-versions", f"{package}:{architecture}"], self.env
        )
        return dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", text.split("\n\n")[0], re.M))

    def kernel_package(self, architecture: str) -> dict:
        """The package that holds the image: by way of the one that always names the newest."""
        package = self.show(f"linux-image-cloud-{architecture}", architecture)
        for kind in ("linux-image", "linux-binary"):
            pattern = rf"\b({kind}-[0-9][^ ,|]*-cloud-{architecture}(?:-unsigned)?)\b"
            found = re.search(pattern, package.get("Depends", ""))
            if found:
                package = self.show(found.group(1), architecture)
        if not re.match(r"linux-(image|binary)-[0-9]", package.get("Package", "")):
            raise FetchError(f"{self.name}: linux-image-cloud-{architecture} names no kernel")
        return package

    def fetch(self, architecture: str, say) -> dict:
        """The newest kernel: its record, with the path of the image under `image`."""
        folder = cache_folder() / f"{self.name}-{architecture}"
        asked = folder / "asked"  # when the lists were last asked for the newest one
        cached = read_record(folder)
        if cached and asked.exists() and newer(asked, self.root / "updated"):
            return cached
        package = self.kernel_package(architecture)
        if cached and cached["deb_sha256"] == package["SHA256"]:
            asked.touch()
            return cached
        say(f"{self.name}: fetching {package['Package']} {package['Version']}")
        downloads = self.root / "downloads"
        shutil.rmtree(downloads)
        downloads.mkdir()
        call(
            ["apt-get", "download", f"{package['Package']}:{architecture}={package['Version']}"],
            self.env,
            downloads,
        )
        (deb,) = downloads.glob("*.deb")
        if sha256(deb) != package["SHA256"]:
            raise FetchError(f"{deb.name}: SHA256 is not that of the signed list")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        extract_image(deb, folder / "vmlinuz")
        record = {
            "suite": self.name,
            "architecture": architecture,
            "package": package["Package"],
            "version": package["Version"],
            "deb_sha256": package["SHA256"],
            "image_sha256": sha256(folder / "vmlinuz"),
        }
        (folder / "record.json").write_text(json.dumps(record, indent=2) + "\n")
        asked.touch()
        deb.unlink()
        return read_record(folder)


def newer(one: Path, other: Path) -> bool:
    return one.stat().st_mtime > other.stat().st_mtime


def read_record(folder: Path):
    """The record of a cached kernel; None if there is none or the image is not what it says."""
    try:
        record = json.loads((folder / "record.json").read_text())
        if sha256(folder / "vmlinuz") != record["image_sha256"]:
            return None
    except (OSError, ValueError, KeyError):
        return None
    return dict(record, image=str(folder / "vmlinuz"))


def extract_image(deb: Path, to: Path):
    with (
        subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE
        ) as unpack,
        tarfile.open(fileobj=unpack.stdout, mode="r|") as tar,
    ):
        for member in tar:
            if member.isfile() and re.search(
                r"^\./(boot/vmlinuz-|(usr/)?lib/modules/[^/]+/vmlinuz$)", member.name
            ):
                with open(to, "wb") as file:
                    shutil.copyfileobj(tar.extractfile(member), file)
                unpack.kill()
                return
    raise FetchError(f"{deb.name} holds no kernel image")


def fetch(suite: str, architecture: str, architectures, say) -> dict:
    """One kernel, from the cache or by apt. Raises FetchError.

    One that is cached and whole is used as it is when its suite cannot be asked for a newer one;
    the record says so then, under `stale`."""
    root = cache_folder()
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        apt = Suite(suite, architectures)
        try:
            apt.update(say)
            return apt.fetch(architecture, say)
        except FetchError as error:
            cached = read_record(root / f"{suite}-{architecture}")
            if cached is None:
                raise
            say(f"{suite}: could not look for a newer kernel ({error}); using the cached one")
            return dict(cached, stale=str(error))
