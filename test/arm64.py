"""Tests of the CPU backend on arm64, emulated: `python test/arm64.py [arguments for pytest]`.

For x86-64 machines with Debian 12, Ubuntu 22.04 or newer; it needs neither root nor programs that these do not have. On
Ubuntu, `ARM64_PACKAGES` in the environment names the server of its packages for arm64.
Python, NumPy, OpenCV and pytest are the distribution's own packages for arm64, unpacked into `.matrix/arm64` and run by
QEMU's user-mode emulation. A cross compiler builds the kernels.
Both come from the distribution's packages, too, if they are not installed. The first run downloads 320 MB and takes
1.3 GB of disk. Nothing outside `.matrix` is changed.

Without arguments it runs `FILES`. Ends with pytest's exit status, or with 77 after a line that says what is
missing. An arm64 machine runs the same tests without emulation.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".matrix" / "arm64"
#: The kernels for arm64.
KERNELS = ROOT / "polar_pipeline" / "cpu" / "kernels_base.so"
#: What is run without arguments.
FILES = (
    "cpu/test_cpu.py",
    "cpu/test_calibrated.py",
    "cpu/test_library.py",
    *("cpu/test_geometry.py", "cpu/test_rectify.py"),
    "test_display.py",
    "quality/test_statistics.py",
)
#: Exit status for what cannot be tested here, as in automake.
SKIPPED = 77
#: Seconds for a test; the emulator takes some twenty times as long as the processor.
PATIENCE = 1200

#: Packages of the emulated machine, and what it lacks, pure Python, by pip.
PACKAGES = (
    *("python3", "python3-numpy", "python3-opencv", "libblas3", "liblapack3"),
    *("python3-pytest", "python3-pytest-timeout", "python3-pytest-xdist", "python3-hypothesis"),
)
PIP = ("ddsketch",)

_COMPONENTS = ("main", "universe")
#: Environment variable with the URI of the distribution's packages for arm64, where they are not beside those for
#: x86-64: Ubuntu has them on a server of their own.
_ARM64_URI = "ARM64_PACKAGES"
#: What in apt's configuration says how this machine reaches its servers.
_NETWORK = re.compile(r'Acquire::(?:http|https|ftp|Retries|ForceIPv|Check)[^ ]* ".+";')


class MissingError(Exception):
    """What is needed is not here and cannot be had; the text says what."""


# -------------------------------------------------------------------------------------------------------- distribution


def say(text: str) -> None:
    """A line about what happens now."""
    print(f"arm64: {text}", flush=True)


def run(command: Sequence[str], env: Optional[Mapping[str, str]] = None) -> str:
    """What a command prints.

    Raises:
        MissingError: It cannot be started, or fails.
    """
    try:
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
        )
    except OSError as err:
        raise MissingError(f"{command[0]}: {err.strerror}") from None
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()] or ["without a word"]
        errors = [line for line in lines if line.startswith("E:")] or lines[-1:]
        raise MissingError(f"{command[0]} failed ({done.returncode}): {'; '.join(errors)[:500]}")
    return done.stdout


def distribution() -> Tuple[str, str]:
    """(ID, code name) of the distribution, as ("debian", "bookworm").

    Raises:
        MissingError: It is none of those that this can use.
    """
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        text = ""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name, code = (fields.get(key, "").strip('"') for key in ("ID", "VERSION_CODENAME"))
    if name not in ("debian", "ubuntu") or not code:
        raise MissingError(f"packages of Debian or Ubuntu (this is {name or 'unknown'})")
    return name, code


def sources(name: str, code: str, architecture: str) -> List[str]:
    """The lines of `sources.list` for an architecture: the distribution's own part of what this machine uses."""
    keyring = Path(f"/usr/share/keyrings/{name}-archive-keyring.gpg")
    options = f"arch={architecture}" + (f" signed-by={keyring}" if keyring.exists() else "")
    if name == "ubuntu" and architecture == "arm64" and _ARM64_URI not in os.environ:
        raise MissingError(f"the URI of Ubuntu's packages for arm64, in the environment variable {_ARM64_URI}")
    lines = set()
    for target in run(["apt-get", "indextargets", "--no-release-info", "Created-By: Packages"]).split("\n\n"):
        fields = dict(line.split(": ", 1) for line in target.splitlines() if ": " in line)
        uri, release = fields.get("Repo-URI", ""), fields.get("Release", "")
        if release not in (code, f"{code}-updates", f"{code}-security") or fields.get("Component") not in _COMPONENTS:
            continue
        if architecture == "arm64":
            uri = os.environ.get(_ARM64_URI, uri)
        lines.add(f"deb [{options}] {uri} {release} {fields['Component']}")
    if not lines:
        raise MissingError(f"a source of {code}'s packages in apt's configuration")
    return sorted(lines)


class Apt:
    """An apt of its own: it installs nothing, and knows only the distribution's packages.

    Args:
        folder: For its lists and packages.
        architecture: Of the packages.
        status: What counts as installed, a file as dpkg's.
    """

    def __init__(self, folder: Path, architecture: str, status: Path) -> None:
        self._archives = folder / "cache" / "archives"
        nothing = folder / "nothing"
        for path in (folder / "lists" / "partial", self._archives / "partial", nothing):
            path.mkdir(parents=True, exist_ok=True)
        (folder / "sources.list").write_text("\n".join(sources(*distribution(), architecture)) + "\n")
        settings = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "root",  # root, too, downloads as the owner of this folder
            "Acquire::Languages": "none",
            "Debug::NoLocking": "true",  # others may not lock dpkg's files
            "Dir::Cache": folder / "cache",
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": nothing,
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": nothing,
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": nothing,
            "Dir::Log": nothing,
            "Dir::State::extended_states": folder / "extended_states",
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": status,
        }
        lines = [line for line in run(["apt-config", "dump"]).splitlines() if _NETWORK.fullmatch(line)]
        lines += [f'{name} "{value}";' for name, value in settings.items()]
        (folder / "apt.conf").write_text("\n".join(lines) + "\n")
        self._env = {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}

    def download(self, packages: Iterable[str]) -> List[Path]:
        """The files of packages, and of all that they need that is not installed."""
        run(["apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any"], self._env)
        run(["apt-get", "autoclean", "-q"], self._env)  # older versions, left by a run that was ended
        run(["apt-get", "install", "-q", "-y", "-d", "--no-install-recommends", *packages], self._env)
        return sorted(self._archives.glob("*.deb"))


def unpack(archives: Sequence[Path], to: Path) -> None:
    """Programs and libraries of packages, below `to`; nothing is configured."""
    for name in ("bin", "lib", "sbin"):
        (to / "usr" / name).mkdir(parents=True)
        (to / name).symlink_to(f"usr/{name}")
    extract = ["tar", "-x", "-C", str(to), "--keep-directory-symlink", "--no-same-owner", "--no-same-permissions"]
    extract += [f"--exclude={pattern}" for pattern in ("./usr/share/*", "./usr/games/*", "./var/*", "./etc/*")]

    def one(archive: Path) -> None:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as source:
            done = subprocess.run(extract, stdin=source.stdout, stderr=subprocess.PIPE, text=True, check=False)
        if source.returncode or done.returncode:
            raise MissingError(f"{archive.name} cannot be unpacked: {done.stderr.strip()[-300:]}")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, archives))


@contextmanager
def made_once(folder: Path, *depends_on: object) -> Iterator[bool]:
    """Whether a folder has to be filled: it is empty then. Not so if it was completed from the same things before."""
    mark = folder.with_suffix(".complete")
    key = hashlib.sha256(repr(depends_on).encode()).hexdigest()
    if mark.exists() and mark.read_text() == key:
        yield False
        return
    if mark.exists():
        mark.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield True
    mark.write_text(key)


def download_and_unpack(packages: Sequence[str], to: Path, architecture: str, status: Path) -> None:
    """Packages and what they need, below `to`; what was downloaded before, as for a run that was ended, is used."""
    started = time.monotonic()
    folder = to.with_name(f"apt-{to.name}")
    say(f"downloading {', '.join(packages)} ({architecture})")
    archives = Apt(folder, architecture, status).download(packages)
    size = sum(archive.stat().st_size for archive in archives)
    say(f"unpacking {len(archives)} packages, {size / 1e6:.0f} MB, after {time.monotonic() - started:.0f} s")
    unpack(archives, to)
    shutil.rmtree(folder)


# ------------------------------------------------------------------------------------------------------------- machine


class Tools(NamedTuple):
    """What runs on this machine.

    Attributes:
        emulator: QEMU's.
        compiler: g++ for arm64.
        libraries: What the compiler's `LD_LIBRARY_PATH` needs to be; empty for an installed one.
    """

    emulator: str
    compiler: str
    libraries: str


def find_tools() -> Tools:
    """Installed, or from packages."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    compiler = shutil.which("aarch64-linux-gnu-g++")
    packages = [] if emulator else ["qemu-user-static"]
    packages += [] if compiler else ["g++-aarch64-linux-gnu"]
    if emulator and compiler:
        return Tools(emulator, compiler, "")
    tools = FOLDER / "tools"
    with made_once(tools, distribution(), packages) as is_new:
        if is_new:
            download_and_unpack(packages, tools, "amd64", Path("/var/lib/dpkg/status"))
            for script in tools.glob("usr/aarch64-linux-gnu/lib/lib*.so"):  # of the linker, where packages install them
                if script.stat().st_size < 1000 and not script.is_symlink():
                    script.write_text(script.read_text().replace("/usr/aarch64-linux-gnu/lib/", ""))
    programs = tools / "usr" / "bin"
    return Tools(
        emulator or str(programs / "qemu-aarch64-static"),
        compiler or str(programs / "aarch64-linux-gnu-g++"),
        "" if compiler else str(tools / "usr" / "lib" / "x86_64-linux-gnu"),
    )


def make_root() -> Path:
    """The emulated machine's programs and libraries."""
    root = FOLDER / "root"
    with made_once(root, distribution(), PACKAGES) as is_new:
        if is_new:
            nothing = FOLDER / "nothing-installed"
            nothing.touch()
            download_and_unpack(PACKAGES, root, "arm64", nothing)
    return root


def make_site() -> Path:
    """Pure Python from pip."""
    site = FOLDER / "site"
    with made_once(site, PIP) as is_new:
        if is_new:
            say(f"pip: {', '.join(PIP)}")
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), *PIP]
            run([*command, "--only-binary=:all:", "--platform=any", "--python-version=3.8"])
    return site


def write_program(name: str, text: str) -> Path:
    """A script of the shell in `FOLDER`."""
    path = FOLDER / name
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def make_python(root: Path, emulator: str) -> Path:
    """A program that runs the emulated Python, and that it takes for itself (`sys.executable`).

    The loader is told where libraries are. QEMU's own way, a prefix that it puts before paths, would lead astray what
    starts at "/", as the walk to the cache of compiled kernels does.
    """
    folders = {path.parent for pattern in ("", "*/", "*/*/") for path in root.glob(f"usr/lib/{pattern}lib*.so.*")}
    interpreter = (root / "usr" / "bin" / "python3").resolve()
    loader = root / "lib" / "ld-linux-aarch64.so.1"
    path = FOLDER / "python"
    command = [emulator, "-cpu", "max", "-E", f"PYTHONHOME={root / 'usr'}", str(loader)]
    command += ["--library-path", ":".join(str(folder) for folder in sorted(folders)), "--argv0", str(path)]
    return write_program("python", f'exec {quoted(command)} {quoted([str(interpreter)])} "$@"\n')


def make_compiler(tools: Tools) -> Path:
    """A program that runs the cross compiler."""
    path = f"LD_LIBRARY_PATH={quoted([tools.libraries])} " if tools.libraries else ""
    return write_program("c++", f'{path}exec {quoted([tools.compiler])} "$@"\n')


def quoted(words: Sequence[str]) -> str:
    """Words of a command as the shell reads them."""
    return " ".join(shlex.quote(word) for word in words)


def emulated() -> Tuple[Path, Mapping[str, str]]:
    """The emulated Python, and the environment of its tests.

    Raises:
        MissingError: Something is not here and cannot be had.
    """
    for program in ("apt-get", "apt-config", "dpkg-deb", "tar"):
        if shutil.which(program) is None:
            raise MissingError(program)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process prepares, others wait
        tools, root, site = find_tools(), make_root(), make_site()
        python, compiler = make_python(root, tools.emulator), make_compiler(tools)
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        run(build, {**os.environ, "CXX": str(compiler)})
    others = ("PYTHON", "PYTEST", "POLAR_PIPELINE")  # of the machine that emulates
    env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    env.update(PYTHONPATH=f"{site}:{ROOT}", XDG_CACHE_HOME=str(FOLDER / "cache"))
    command = [
        str(python),
        "-c",
        "import platform, sys, cv2, numpy; print(platform.machine(), sys.version.split()[0], ",
    ]
    command[-1] += "numpy.__version__, cv2.__version__)"
    machine, *versions = run(command, env).split()
    if machine != "aarch64":
        raise MissingError(f"an emulator that works (it says {machine})")
    say("emulating {}: Python {}, NumPy {}, OpenCV {}".format(machine, *versions))
    return python, env


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    python: Path = Path(sys.executable)
    env: Mapping[str, str] = os.environ
    if platform.machine() != "aarch64":
        try:
            if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
                raise MissingError(f"Linux on x86-64 or arm64 (this is {platform.system()} on {platform.machine()})")
            python, env = emulated()
        except (MissingError, OSError) as err:
            say(f"skipped, missing: {err}")
            return SKIPPED
    started = time.monotonic()
    workers = min(4, os.cpu_count() or 1)
    chosen = arguments or ["-q", f"-n{workers}", *(f"test/{name}" for name in FILES)]
    options = ["-p", "no:cacheprovider", f"--timeout={PATIENCE}"]
    try:
        status = subprocess.call([str(python), "-m", "pytest", *options, *chosen], cwd=ROOT, env=env)
    finally:
        if platform.machine() != "aarch64":  # wheels of this machine do not have them
            KERNELS.unlink()
    say(f"pytest took {time.monotonic() - started:.0f} s, exit status {status}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
