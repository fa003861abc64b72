# SPDX-License-Identifier: MIT
"""Debian's kernels, by apt, without a trace in the system's own apt; and a newer emulator.

Each suite has its own apt state below the cache folder: sources, lists, downloads. The mirror is the
one that the system's apt uses; signatures are checked against Debian's archive keyring by apt, and
the package once more against the checksum of the signed list. What is kept is the kernel's image
and the modules that were asked for, beside a record that names where they came from; of the emulator
its packages' files.
"""

import contextlib
import fcntl
import hashlib
import json
import lzma
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

# An emulator that has a device which the system's own may be too old for: the program, what it loads
# into the guest, and the guest's firmware. The libraries are those of the system's own.
EMULATOR = "qemu-system-x86_64"
EMULATOR_SUITE = "bookworm-backports"
EMULATOR_PACKAGES = ["qemu-system-x86", "qemu-system-data", "seabios"]
EMULATOR_DATA = ["usr/share/qemu", "usr/share/seabios"]


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

    def download(self, package: dict, say) -> Path:
        """The package as a file, which the next download replaces."""
        say(f"{self.name}: fetching {package['Package']} {package['Version']}")
        downloads = self.root / "downloads"
        shutil.rmtree(downloads)
        downloads.mkdir()
        name = f"{package['Package']}:{package['Architecture']}={package['Version']}"
        call(["apt-get", "download", name], self.env, downloads)
        (deb,) = downloads.glob("*.deb")
        if sha256(deb) != package["SHA256"]:
            raise FetchError(f"{deb.name}: SHA256 is not that of the signed list")
        return deb

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
        deb = self.download(package, say)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        image = r"^\./(boot/vmlinuz-|(usr/)?lib/modules/[^/]+/vmlinuz$)"
        (folder / "vmlinuz").write_bytes(extract(deb, image, "kernel image"))
        record = {
            "suite": self.name,
            "architecture": architecture,
            "package": package["Package"],
            "version": package["Version"],
            "deb_sha256": package["SHA256"],
            "image_sha256": sha256(folder / "vmlinuz"),
        }
        write_record(folder, record)
        asked.touch()
        deb.unlink()
        return read_record(folder)

    def fetch_module(self, record: dict, name: str, say) -> Path:
        """A module of the kernel that was fetched; its file, not compressed."""
        folder = cache_folder() / f"{self.name}-{record['architecture']}"
        path = folder / f"{name}.ko"
        known = record.get("modules", {})
        if name in known and path.exists() and sha256(path) == known[name]:
            return path
        package = {}
        # Some kernels have their modules in a package beside the image's.
        for kind in ("linux-modules-", "linux-image-"):
            with contextlib.suppress(FetchError):
                package = self.show(
                    re.sub(r"^linux-(binary|image)-", kind, record["package"]),
                    record["architecture"],
                )
                break
        if package.get("Version") != record["version"]:
            raise FetchError(f"{self.name}: no modules of {record['package']} {record['version']}")
        deb = self.download(package, say)
        data = extract(deb, rf"/{re.escape(name)}\.ko(\.xz)?$", f"module {name}")
        deb.unlink()
        path.write_bytes(lzma.decompress(data) if data.startswith(b"\xfd7zXZ") else data)
        kept = json.loads((folder / "record.json").read_text())
        kept.setdefault("modules", {})[name] = sha256(path)
        write_record(folder, kept)
        return path

    def fetch_emulator(self, say) -> dict:
        """The emulator's record; `command` begins its command line."""
        folder = cache_folder() / "emulator"
        asked = folder / "asked"
        cached = read_emulator(folder)
        if cached and asked.exists() and newer(asked, self.root / "updated"):
            return cached
        packages = [self.show(name, self.architectures[0]) for name in EMULATOR_PACKAGES]
        debs = {f"{p['Package']} {p['Version']}": p["SHA256"] for p in packages}
        if not cached or cached["debs"] != debs:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for package in packages:
                deb = self.download(package, say)
                call(["dpkg-deb", "--extract", str(deb), str(folder)])
                deb.unlink()
            program = folder / "usr" / "bin" / EMULATOR
            write_record(folder, {"debs": debs, "program_sha256": sha256(program)})
        asked.touch()
        return read_emulator(folder)


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


def write_record(folder: Path, record: dict):
    (folder / "record.json").write_text(json.dumps(record, indent=2) + "\n")


def read_emulator(folder: Path):
    """The record of the cached emulator; None if there is none or it is not what the record says."""
    program = folder / "usr" / "bin" / EMULATOR
    try:
        record = json.loads((folder / "record.json").read_text())
        if sha256(program) != record["program_sha256"]:
            return None
    except (OSError, ValueError, KeyError):
        return None
    command = [str(program)]
    for data in EMULATOR_DATA:
        command += ["-L", str(folder / data)]
    return dict(record, command=command)


def extract(deb: Path, pattern: str, what: str) -> bytes:
    """The file of a package whose name the pattern fits."""
    with (
        subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE
        ) as unpack,
        tarfile.open(fileobj=unpack.stdout, mode="r|") as tar,
    ):
        for member in tar:
            if member.isfile() and re.search(pattern, member.name):
                data = tar.extractfile(member).read()
                unpack.kill()
                return data
    raise FetchError(f"{deb.name} holds no {what}")


@contextlib.contextmanager
def locked():
    """The cache folder, for one process at a time."""
    root = cache_folder()
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield root


def fetch(suite: str, architecture: str, architectures, say) -> dict:
    """One kernel, from the cache or by apt. Raises FetchError.

    One that is cached and whole is used as it is when its suite cannot be asked for a newer one;
    the record says so then, under `stale`."""
    with locked() as root:
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


def fetch_module(record: dict, architectures, name: str, say) -> Path:
    """A module of a kernel that was fetched. Raises FetchError."""
    with locked():
        return Suite(record["suite"], architectures).fetch_module(record, name, say)


def has_device(command, device: str) -> bool:
    """Whether the emulator tells of the device's options, or that it has none."""
    try:
        done = subprocess.run([*command, "-device", f"{device},help"], capture_output=True)
    except OSError:
        return False
    return done.returncode == 0 and device.encode() in done.stdout


def fetch_emulator(device: str, say) -> list:
    """How the command line of an emulator begins that has the device: the system's own, or a newer
    one. Raises FetchError."""
    if has_device([EMULATOR], device):
        return [EMULATOR]
    with locked() as root:
        apt = Suite(EMULATOR_SUITE, ["amd64"])
        try:
            apt.update(say)
            record = apt.fetch_emulator(say)
        except FetchError as error:
            record = read_emulator(root / "emulator")
            if record is None:
                raise
            say(f"{EMULATOR_SUITE}: could not look for a newer emulator ({error})")
    if not has_device(record["command"], device):
        raise FetchError(f"no device {device} in {', '.join(record['debs'])}, or it does not run")
    return record["command"]
