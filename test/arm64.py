"""Tests of the CPU backend on arm64, emulated: `python test/arm64.py [arguments for pytest]`.

For x86-64 machines with Debian 12, Ubuntu 22.04 or newer; it needs neither root nor programs that these do not have.
Ubuntu has packages for arm64 on a server of their own: there, `APT_CONFIG` in the environment names a file of settings
for apt, whose `Dir::Etc::sourcelist` is a list of both servers.
Python, NumPy, OpenCV and pytest are the distribution's own packages for arm64, unpacked into `.matrix/arm64` and run by
QEMU's user-mode emulation. A cross compiler builds the kernels.
Both come from the distribution's packages, too, if they are not installed. The first run downloads 320 MB and takes
1.3 GB of disk. Nothing outside `.matrix` is changed.

Without arguments it runs `FILES`. Ends with pytest's exit status, or with 77 after a line that says what is
missing. An arm64 machine runs the same tests without emulation.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".matrix" / "arm64"
#: The kernels for arm64.
KERNELS = ROOT / "polar_pipeline" / "backends" / "cpu" / "kernels_base.so"
#: What is run without arguments: the compiled kernels.
FILES = tuple(f"backends/cpu/test_{name}.py" for name in ("cpu", "calibrated", "library", "geometry", "rectify"))
#: What is left out: large frames, in which the same code runs longer, and all but one lens; NumPy makes their maps.
LEFT_OUT = "wider_than_a_tile or more_than_one_strip or equidistant or rational_polynomial"
#: Of N tests one is run: the compiled kernels differ by instructions alone, and emulation takes long.
SHARE = 2
#: Exit status for what cannot be tested here, as in automake.
SKIPPED = 77
#: Seconds for a test; the emulator takes some twenty times as long as the processor.
TIMEOUT = 1200

#: Packages of the emulated machine.
PACKAGES = (
    *("python3", "python3-numpy", "python3-opencv", "python3-yaml", "libblas3", "liblapack3"),
    *("python3-pytest", "python3-pytest-timeout", "python3-pytest-xdist", "python3-hypothesis"),
)


class MissingError(Exception):
    """What is needed is not here and cannot be had; the text says what."""


def say(text: str) -> None:
    """Print a line about what happens now."""
    print(f"arm64: {text}", flush=True)


def run(command: Sequence[object], env: Optional[Mapping[str, str]] = None) -> str:
    """Run a command; return what it prints.

    Raises:
        MissingError: It cannot be started, or fails.
    """
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    except OSError as err:
        raise MissingError(f"{words[0]}: {err.strerror}") from None
    except subprocess.CalledProcessError as err:
        last = (err.stderr.strip() or err.stdout.strip() or "without a word").splitlines()[-1]
        raise MissingError(f"{words[0]} failed ({err.returncode}): {last[:500]}") from None


def make_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Fill a folder; what an earlier run completed is used again."""
    part = folder.with_suffix(".part")
    if not folder.exists():
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        fill(part)
        part.rename(folder)
    return folder


# ------------------------------------------------------------------------------------------------------------- packages


def unpack(packages: Sequence[str], to: Path, architecture: str, status: Path) -> None:
    """Unpack programs and libraries of packages, and of all that they need, below a folder; nothing is configured.

    Args:
        packages: Of the distribution.
        to: The folder.
        architecture: Of the packages.
        status: What counts as installed, a file as dpkg's.
    """
    apt = to.with_name(f"apt-{architecture}")
    for path in (apt / "lists" / "partial", apt / "cache" / "archives" / "partial"):
        path.mkdir(parents=True, exist_ok=True)
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",  # root, too, downloads as the owner of this folder
        "Acquire::Languages": "none",
        "Debug::NoLocking": "true",  # others may not lock dpkg's files
        "Dir::Cache": apt / "cache",
        "Dir::State::extended_states": apt / "extended_states",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": status,
    }
    command = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]
    say(f"downloading {', '.join(packages)} ({architecture})")
    run([*command, "update"])
    run([*command, "install", "-y", "-d", "--no-install-recommends", *packages])
    for name in ("bin", "lib", "sbin"):
        (to / "usr" / name).mkdir(parents=True)
        (to / name).symlink_to(f"usr/{name}")
    left_out = [f"--exclude=./{path}/*" for path in ("usr/share", "usr/games", "var", "etc")]
    extract = ["tar", "-x", "-C", str(to), "--keep-directory-symlink", "--no-same-owner", *left_out]
    for archive in sorted((apt / "cache" / "archives").glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as source:
            done = subprocess.run(extract, stdin=source.stdout, stderr=subprocess.PIPE, text=True, check=False)
        if source.returncode or done.returncode:
            raise MissingError(f"{archive.name} cannot be unpacked: {done.stderr.strip()[-300:]}")
    shutil.rmtree(apt)


# ------------------------------------------------------------------------------------------------------------- machine


def find_tools() -> Tuple[str, str]:
    """The emulator, and the shell's command of the cross compiler: installed, or from packages."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if emulator and compiler:
        return emulator, compiler

    def fill(folder: Path) -> None:
        unpack(["qemu-user-static", "g++-aarch64-linux-gnu"], folder, "amd64", Path("/var/lib/dpkg/status"))
        for script in folder.glob("usr/aarch64-linux-gnu/lib/lib*.so"):  # of the linker, where packages install them
            if script.stat().st_size < 1000 and not script.is_symlink():
                script.write_text(script.read_text().replace("/usr/aarch64-linux-gnu/lib/", ""))

    usr = make_once(FOLDER / "tools", fill) / "usr"
    libraries = shlex.quote(str(usr / "lib" / "x86_64-linux-gnu"))
    command = shlex.quote(str(usr / "bin" / "aarch64-linux-gnu-g++"))
    return str(usr / "bin" / "qemu-aarch64-static"), f"env LD_LIBRARY_PATH={libraries} {command}"


def make_root() -> Path:
    """The emulated machine's programs and libraries."""
    nothing = FOLDER / "nothing-installed"
    nothing.touch()
    name = f"root-{zlib.crc32(' '.join(PACKAGES).encode()):08x}"  # other packages, another folder
    return make_once(FOLDER / name, lambda folder: unpack(PACKAGES, folder, "arm64", nothing))


def write_program(name: str, command: str) -> Path:
    """A script of the shell in `FOLDER`, which passes its arguments to a command."""
    path = FOLDER / name
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)
    return path


def make_python(root: Path, emulator: str) -> Path:
    """A program that runs the emulated Python, and that it takes for itself (`sys.executable`).

    The loader is told where libraries are. QEMU's own way, a prefix that it puts before paths, would lead astray what
    starts at "/".
    """
    folders = {path.parent for pattern in ("", "*/", "*/*/") for path in root.glob(f"usr/lib/{pattern}lib*.so.*")}
    loader = root / "lib" / "ld-linux-aarch64.so.1"
    command = [emulator, "-cpu", "max", "-E", f"PYTHONHOME={root / 'usr'}", str(loader)]
    command += ["--library-path", ":".join(str(folder) for folder in sorted(folders))]
    command += ["--argv0", str(FOLDER / "python"), str((root / "usr" / "bin" / "python3").resolve())]
    return write_program("python", shlex.join(command))


def emulated() -> Tuple[Path, Mapping[str, str]]:
    """The emulated Python, and the environment of its tests.

    Raises:
        MissingError: Something is not here and cannot be had.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise MissingError(f"Linux on x86-64 or arm64 (this is {platform.system()} on {platform.machine()})")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (emulator, compiler), root = find_tools(), make_root()
    python, cross = make_python(root, emulator), write_program("c++", compiler)
    run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], {**os.environ, "CXX": str(cross)})
    others = ("PYTHON", "PYTEST", "POLAR_PIPELINE")  # of the machine that emulates
    env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    env.update(PYTHONPATH=str(ROOT))
    versions = "platform.machine(), sys.version.split()[0], numpy.__version__, cv2.__version__"
    machine, *found = run([python, "-c", f"import platform, sys, cv2, numpy; print({versions})"], env).split()
    if machine != "aarch64":
        raise MissingError(f"an emulator that works (it says {machine})")
    say("emulating {}: Python {}, NumPy {}, OpenCV {}".format(machine, *found))
    return python, env


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    python: Path = Path(sys.executable)
    env: Mapping[str, str] = os.environ
    is_emulated = platform.machine() != "aarch64"
    if is_emulated:
        os.chdir(str(ROOT))
        try:
            python, env = emulated()
        except (MissingError, OSError) as err:
            say(f"skipped, missing: {err}")
            return SKIPPED
    workers = min(4, os.cpu_count() or 1)
    files = [f"test/{name}" for name in FILES]
    chosen = arguments or ["-q", f"-n{workers}", f"--share={SHARE}", "-k", f"not ({LEFT_OUT})", *files]
    options = ["-p", "no:cacheprovider", f"--timeout={TIMEOUT}"]
    try:
        return subprocess.call([str(python), "-m", "pytest", *options, *chosen], cwd=str(ROOT), env=env)
    finally:
        if is_emulated:  # wheels of this machine do not have them
            KERNELS.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
