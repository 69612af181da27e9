"""Tests on the systems that users have, as far as one x86-64 machine can stand in for them: `make test-matrix`.

    python test/matrix.py [--jobs N] [--list] [name ...]

Each system has a row in `LEGS`, an environment of its own below `.matrix`, and a log in `.matrix/logs`. What a machine
lacks for a row (an interpreter, a package index, tools for the emulator) is named, and the row skipped. The table at
the end is Markdown. Ends with 1 if a row failed.

Environments are kept for the next run. If the variable `CI` is set, a row removes its environment when it ends.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".matrix"
LOGS, TEMPORARY = FOLDER / "logs", FOLDER / "tmp"
#: Exit status of a command that cannot test anything on this machine, as in automake.
SKIPPED = 77
#: Exit status of pytest that found no tests.
NO_TESTS = 5
#: Seconds after which a row has failed; the longest took 1900 on a slow machine.
TIMEOUT = 2700

#: ROS 2 as wheels, by distribution: what the extra `ros` asks for, in versions that belong together.
_JAZZY = (
    *("ros-rclpy==7.1.6", "ros-sensor-msgs==5.3.6", "ros-diagnostic-msgs==5.3.6", "ros-std-msgs==5.3.6"),
    *("ros-std-srvs==5.3.6", "ros-rmw-fastrtps-cpp==8.4.3"),
)
_KILTED = (
    *("ros-rclpy==9.1.2", "ros-sensor-msgs==5.5.1", "ros-diagnostic-msgs==5.5.1", "ros-std-msgs==5.5.1"),
    *("ros-std-srvs==5.5.1", "ros-rmw-fastrtps-cpp==9.3.3"),
)
#: Files to which Python's version does not matter.
_OTHER_FILES = (
    # compiled kernels; `test_cpu.py` and others run them too
    *("backends/cuda/test_*.py", "backends/cpu/test_[cgr][ae]*.py"),
    "test_fuzz.py",  # the same code on more inputs
    *("test_package.py", "test_benchmarks.py"),  # sources
    *("test_cluster.py", "test_command.py", "test_overview.py"),  # processes of batches
)
#: Files of long tests with ROS.
_LONG_FILES = ("test_bench.py", "test_drill*.py", "test_attack.py", "test_lifecycle.py", "test_record.py")
#: Beginnings of the names of what the rows do not use.
_LEFT_OUT = ("nvidia-cuda-", "ruff", "mypy", "vermin", "clang-format")
#: What storages of S3 are tested with.
_S3 = ("moto[s3]", "flask", "flask-cors", "s3fs")


#: What pytest says at its end, such as `12 passed, 1 skipped in 3.45s`.
_CLOSING = re.compile(r"(?:=+ )?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [0-9.]+s")


class SkipError(Exception):
    """Why a row cannot be tested on this machine."""


class Result(NamedTuple):
    """What came of a row: `passed`, `failed` or `skipped`; pytest's closing line, or the reason; and minutes."""

    state: str
    text: str
    minutes: float


# ---------------------------------------------------------------------------------------------------------------- tools


def call(command: Sequence[object], log: Path, **environment: str) -> int:
    """Exit status of a command; what it prints is added to the log, and its temporary files are removed."""
    temporary = tempfile.mkdtemp(dir=str(TEMPORARY))
    with log.open("ab") as stream:
        stream.write(f"$ {' '.join(map(str, command))}\n".encode())
        stream.flush()
        try:
            return subprocess.run(
                [str(word) for word in command],
                cwd=str(ROOT),
                env={**inherited(), "TMPDIR": temporary, **environment},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            stream.write(f"stopped after {TIMEOUT} s\n".encode())
            return 1
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def inherited() -> Dict[str, str]:
    """This process's environment variables without those that ROS's wheels set for their own Python.

    Bytecode is kept: the tests start some hundred processes.
    """
    left_out = ("_ROS_WHEELS_BOOTSTRAP_COMPLETE", "PYTHONDONTWRITEBYTECODE")
    left = {name: value for name, value in os.environ.items() if name not in left_out}
    paths = left.pop("LD_LIBRARY_PATH", "").split(os.pathsep)
    kept = [path for path in paths if path and not path.startswith(sys.prefix)]
    return {**left, "LD_LIBRARY_PATH": os.pathsep.join(kept)} if kept else left


def interpreter(version: str) -> str:
    """A Python of a version such as `3.8`: on the path, or of pyenv.

    Raises:
        SkipError: There is none.
    """
    roots = [Path(root) for root in (os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv") if root]
    own = [str(path) for root in roots for path in root.glob(f"versions/{version}.*/bin/python")]
    check = f"import ensurepip, sys; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for path in [shutil.which(f"python{version}"), *sorted(own, reverse=True)]:
        if path and subprocess.run([path, "-c", check], capture_output=True, check=False).returncode == 0:
            return path
    raise SkipError(f"no Python {version} with venv on this machine")


def install(python: Path, log: Path, *arguments: str) -> None:
    """Install packages by pip's arguments.

    Raises:
        SkipError: They cannot be had.
    """
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if call([*pip, *arguments], log):
        raise SkipError(f"pip cannot install {' '.join(arguments)} (see {log.relative_to(ROOT)})")


def stated_requirements() -> List[str]:
    """What the package and its extras need, as its metadata state it."""
    code = r"from importlib.metadata import requires; print(*requires('polar_pipeline'), sep='\n')"
    lines = subprocess.run([str(here()), "-c", code], cwd=str(ROOT), stdout=subprocess.PIPE, text=True, check=True)
    return lines.stdout.splitlines()


def requirements() -> List[str]:
    """What the package and its extra `dev` need, but for compilers and linters, as pip takes it."""
    wanted = [line for line in stated_requirements() if " extra == " not in line or line.endswith('"dev"')]
    plain = [re.sub(r"(;| and) extra == .*", "", line) for line in wanted]
    return [line for line in plain if not line.startswith(_LEFT_OUT)]


def environment(name: str, version: str, log: Path, *more: str) -> Path:
    """Python of a virtual environment with what the tests need; made again when that changes.

    The package itself is read from the checkout. Only modules that are used are compiled to bytecode.

    Raises:
        SkipError: There is no such Python, or no package index.
    """
    folder, needed = FOLDER / name, [*requirements(), *more]
    python, stamp = folder / "bin" / "python", folder / "installed"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == "\n".join(needed):
        return python
    shutil.rmtree(folder, ignore_errors=True)
    base = interpreter(version)
    if call([base, "-m", "venv", folder], log):
        raise SkipError(f"{base} makes no virtual environment (see {log.relative_to(ROOT)})")
    install(python, log, "--upgrade", "pip")
    install(python, log, "--no-compile", *needed)
    stamp.write_text("\n".join(needed), encoding="utf-8")
    return python


def tests(python: Path, log: Path, *arguments: str, **environment: str) -> int:
    """Run pytest from the checkout; its own files stay with the row."""
    command = [python, "-m", "pytest", "-q", "-o", f"cache_dir={FOLDER / 'cache' / log.stem}", *arguments]
    return call(command, log, **{"PYTHONPATH": str(ROOT), **environment})


def here() -> Path:
    """Python of the environment of `make test`; without one, this Python."""
    python = ROOT / ".venv" / "bin" / "python"
    return python if python.exists() else Path(sys.executable)


def files(*names: str) -> List[str]:
    """Paths of test files by name."""
    return [str(found.relative_to(ROOT)) for name in names for found in sorted((ROOT / "test").rglob(name))]


def without(*names: str) -> List[str]:
    """Every test file but some, as arguments."""
    return ["test", *(f"--ignore={path}" for path in files(*names))]


# ---------------------------------------------------------------------------------------------------------------- rows


#: For tests that mostly wait.
_TWO_AT_ONCE = ("-n", "2", "--dist", "loadfile")
#: Tests without ROS, GPU and cameras, which have rows of their own: two rows with cameras at once lose frames.
_PLAIN = "not gpu and not ros and not camera"


def run_exhaustive(log: Path) -> int:
    """More of products of parameters, and of inputs, than `make test` tries; what pip finds for each JetPack."""
    # a quarter of them: all take 18 minutes. test_compile.py has rows of its own
    chosen = ["-m", f"(exhaustive or scaled) and {_PLAIN}", "--share=4", *without("test_compile.py")]
    return tests(here(), log, *chosen, POLAR_PIPELINE_MATRIX="1")


def run_library(version: str, log: Path) -> int:
    """The library and the tool without ROS."""
    python = environment(f"python{version}", version, log)
    if version == "3.8":
        # batches do not run on robots, and the last fsspec for 3.8 does not know what changed on a web server. The
        # simulated sessions of calibration take long, and call what test_estimate.py calls
        others = (*_OTHER_FILES, "batch/test_*.py", "test_on_bench.py")
        return tests(python, log, "-m", _PLAIN, "--share=3", *without(*others))
    # few: Python 3.8 and `make test` run more, with the oldest and the newest NumPy and OpenCV
    return tests(python, log, "-m", _PLAIN, "--share=6", *without(*_OTHER_FILES))


def run_jazzy(log: Path) -> int:
    """Every test with ROS, in all variants; they mostly wait."""
    python = environment(log.stem, "3.12", log, *_JAZZY)
    return tests(python, log, *_TWO_AT_ONCE, "-m", "ros and not gpu", POLAR_PIPELINE_MATRIX="1")


def run_kilted(log: Path) -> int:
    """Half of the tests with ROS on the newest Python, without the long ones: `make test` runs all with Kilted."""
    python = environment(log.stem, "3.13", log, *_KILTED)
    return tests(python, log, *_TWO_AT_ONCE, "-m", "ros and not gpu", "--share=2", *without(*_LONG_FILES))


def run_s3(log: Path) -> int:
    """Recordings in storages of S3."""
    python = environment("s3", "3.12", log, *_S3)
    if call([python, "-c", "import moto.server, s3fs"], log):  # without which the tests are skipped
        return 1
    return tests(python, log, "-k", "s3 and not missing_packages", *files("test_remote.py"))


def run_site(log: Path) -> int:
    """The documentation site: links, pictures, examples; and the guides, whose blocks run as written."""
    docs = [line.partition(";")[0].strip() for line in stated_requirements() if line.endswith('"docs"')]
    python = environment("site", "3.12", log, *docs)
    return tests(python, log, *files("test_site.py", "test_guides.py"))


def run_nvrtc(package: str, log: Path) -> int:
    """What `benchmarks/kernels.py` compiles for both Jetsons, by one version of NVIDIA's compiler."""
    folder = FOLDER / log.stem
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        install(here(), log, "--no-deps", "--target", str(part), package)
        part.rename(folder)
    path = f"{folder}:{ROOT}:{ROOT / 'benchmarks'}"  # the first NVRTC on the path is the one that is used
    version = tuple(map(int, package.partition("==")[2].split(".")[:2]))
    check = f"from nvrtc import find_library; assert find_library('sm_72').version == {version}"
    if call([here(), "-c", check], log, PYTHONPATH=path):
        return 1
    chosen = ["test/backends/cuda/test_compile.py", "-m", "exhaustive", "-k", "fit_the_jetsons"]
    return tests(here(), log, *chosen, PYTHONPATH=path, POLAR_PIPELINE_MATRIX="1")


def run_arm64(log: Path) -> int:
    """The CPU backend under emulation."""
    status = call([here(), "test/arm64.py"], log)  # with pip
    if status == SKIPPED:
        raise SkipError(log.read_text(encoding="utf-8", errors="replace").splitlines()[-1])
    return status


def run_camera(log: Path) -> int:
    """Cameras on loopback, in the environment of `make test`, which has ROS 2 Kilted."""
    if call([here(), "-c", "import ctypes; ctypes.CDLL('libaravis-0.8.so.0')"], log):
        if os.geteuid() or not shutil.which("apt-get"):
            raise SkipError("libaravis-0.8.so.0 is not installed, which takes root and apt-get")
        apt = ["apt-get", "-q", "-y"]
        if call([*apt, "update"], log) or call([*apt, "install", "--no-install-recommends", "libaravis-0.8-0"], log):
            raise SkipError(f"apt-get cannot install libaravis-0.8-0 (see {log.relative_to(ROOT)})")
    elsewhere = tests(here(), log, "-m", "camera", "test", "--ignore=test/camera", POLAR_PIPELINE_MATRIX="1")
    status = tests(here(), log, "test/camera", POLAR_PIPELINE_MATRIX="1")
    return status or (0 if elsewhere == NO_TESTS else elsewhere)


_SHIPPED = "the kernels of the shipped defaults, sm_72 and sm_87"
#: Row -> what is tested there, and what runs it: that writes into a log, and returns the exit status. Those that take
#: longest come first; those that mostly wait are apart.
LEGS: Dict[str, Tuple[str, Callable[[Path], int]]] = {
    "arm64": ("CPU backend, emulated: QEMU, the distribution's NumPy and OpenCV", run_arm64),
    "jazzy": ("ROS 2 Jazzy, Python 3.12: every ROS test", run_jazzy),
    "exhaustive": ("more of large products of parameters; pip on JetPack 5, 6, 7", run_exhaustive),
    "kilted": ("ROS 2 Kilted, Python 3.13: node, rig, streams", run_kilted),
    "python3.8": ("a third of the tests of library and tool (JetPack 5)", partial(run_library, "3.8")),
    "camera": ("Aravis: cameras on loopback, and the node on ROS 2 Kilted", run_camera),
    "python3.10": ("a sixth of the tests of library and tool (JetPack 6)", partial(run_library, "3.10")),
    "nvrtc-11.7": (_SHIPPED, partial(run_nvrtc, "nvidia-cuda-nvrtc-cu11==11.7.99")),
    "nvrtc-12.9": (_SHIPPED, partial(run_nvrtc, "nvidia-cuda-nvrtc-cu12==12.9.86")),
    "site": ("the documentation site, and its guides as written, Python 3.12", run_site),
    "s3": ("batches of recordings in storages of S3 (moto)", run_s3),
}


# -------------------------------------------------------------------------------------------------------------- report


def test_row(name: str) -> Result:
    """Run one row."""
    what, run = LEGS[name]
    log, begin = LOGS / f"{name}.log", time.monotonic()
    log.unlink(missing_ok=True)
    print(f"{name}: {what}", flush=True)
    try:
        status = run(log)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        counts = [found[1] for line in lines for found in [_CLOSING.match(line)] if found]
        text = counts[-1] if counts else f"exit status {status}"
        result = Result("failed" if status else "passed", text, (time.monotonic() - begin) / 60)
    except SkipError as err:
        lines, result = [], Result("skipped", str(err), (time.monotonic() - begin) / 60)
    finally:
        if os.environ.get("CI"):
            shutil.rmtree(FOLDER / name, ignore_errors=True)
    print(f"{name}: {result.state} after {result.minutes:.1f} min: {result.text}", flush=True)
    if result.state == "failed":
        print("\n".join(lines[-100:]), flush=True)
    return result


def main() -> int:
    """Run the rows that are asked for, or all."""
    parser = argparse.ArgumentParser(description="Runs the tests on the systems that users have.")
    parser.add_argument("name", nargs="*", help="rows to run; all by default")
    jobs = (os.cpu_count() or 1) + 1  # some mostly wait
    parser.add_argument("--jobs", type=int, default=jobs, help="rows at a time (default: one more than cores)")
    parser.add_argument("--list", action="store_true", help="names the rows")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{name}: {what}" for name, (what, _) in LEGS.items()))
        return 0
    unknown = set(arguments.name) - set(LEGS)
    if unknown:
        parser.error(f"names are {', '.join(LEGS)}; got {', '.join(sorted(unknown))}")
    chosen = [name for name in LEGS if not arguments.name or name in arguments.name]
    FOLDER.mkdir(exist_ok=True)
    lock = (FOLDER / "lock").open("w")  # until the process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        parser.error(f"another run uses {FOLDER}")
    shutil.rmtree(TEMPORARY, ignore_errors=True)
    for folder in (LOGS, TEMPORARY):
        folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        results = dict(zip(chosen, pool.map(test_row, chosen)))
    print("\n| system | tested there | result | minutes |\n|---|---|---|---|")
    for name, (state, text, minutes) in results.items():
        shown = text if state == "passed" else f"{state}: {text}"
        print(f"| {name} | {LEGS[name][0]} | {shown} | {minutes:.1f} |")
    states = [result.state for result in results.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("passed", "failed", "skipped"))
    print(f"\ntest matrix: {counts}")
    return 1 if "failed" in states else 0


if __name__ == "__main__":
    sys.exit(main())
