"""Tests on the systems that users have, as far as one x86-64 machine can stand in for them: `make test-matrix`.

    python test/matrix.py [--jobs N] [--list] [name ...]

Each system has a row in `LEGS`, an environment of its own below `.matrix`, and a log in `.matrix/logs`. What a machine
lacks for a row (an interpreter, a package index, tools for the emulator) is named, and the row skipped. The table at
the end is Markdown. Ends with 1 if a row failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".matrix"
LOGS = FOLDER / "logs"
#: Exit status of a command that cannot test anything on this machine, as in automake.
SKIPPED = 77
#: Seconds after which a row has failed; the longest took 1900 on a slow machine.
PATIENCE = 2700

#: ROS 2 as wheels, by distribution: what the extra `ros` asks for, in versions that belong together.
_JAZZY = (
    *("ros-rclpy==7.1.6", "ros-sensor-msgs==5.3.6", "ros-diagnostic-msgs==5.3.6", "ros-std-msgs==5.3.6"),
    *("ros-std-srvs==5.3.6", "ros-rmw-fastrtps-cpp==8.4.3"),
)
_KILTED = (
    *("ros-rclpy==9.1.2", "ros-sensor-msgs==5.5.1", "ros-diagnostic-msgs==5.5.1", "ros-std-msgs==5.5.1"),
    *("ros-std-srvs==5.5.1", "ros-rmw-fastrtps-cpp==9.3.3"),
)
#: Files that test kernels through a C++ compiler; neither Python's version nor ROS matters to them.
_KERNEL_FILES = (
    *("test_kernels.py", "test_ssim_kernel.py", "test_backend.py", "test_harness.py", "test_sanitizers.py"),
)
#: And those that only try the same code on more inputs.
_LONG_FILES = ("test_fuzz.py", "test_corpus.py", "test_compile.py")
#: And those that look at sources.
_SOURCE_FILES = (
    "test_package.py",
    "test_structure.py",
    "test_benchmarks.py",
)
#: What storages of S3 are tested with.
_S3 = ("moto[s3]", "flask", "flask-cors", "s3fs")


class SkipError(Exception):
    """Why a row cannot be tested on this machine."""


class Result(NamedTuple):
    """What came of a row: `passed`, `failed` or `skipped`; pytest's closing line, or the reason; and minutes."""

    state: str
    text: str
    minutes: float


class Leg(NamedTuple):
    """One system.

    Attributes:
        name: Of the row, its log and its environment.
        what: What is tested there.
        run: Runs it, writing into a log; gives the exit status.

    Raises:
        SkipError: By `run`, if this machine lacks what it needs.
    """

    name: str
    what: str
    run: Callable[[Path], int]


# ---------------------------------------------------------------------------------------------------------------- tools


def call(command: Sequence[object], log: Path, **environment: str) -> int:
    """Exit status of a command; what it prints is added to the log."""
    with log.open("ab") as stream:
        stream.write(f"$ {' '.join(map(str, command))}\n".encode())
        stream.flush()
        own = {"TMPDIR": str(temporary(log)), **environment}
        try:
            return subprocess.run(
                [str(word) for word in command],
                cwd=str(ROOT),
                env={**inherited(), **own},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            stream.write(f"stopped after {PATIENCE} s\n".encode())
            return 1


def inherited() -> Dict[str, str]:
    """This process's environment variables without those that ROS's wheels set for their own Python.

    Bytecode is kept: the tests start some hundred processes.
    """
    left_out = ("_ROS_WHEELS_BOOTSTRAP_COMPLETE", "PYTHONDONTWRITEBYTECODE")
    left = {name: value for name, value in os.environ.items() if name not in left_out}
    paths = left.pop("LD_LIBRARY_PATH", "").split(os.pathsep)
    kept = [path for path in paths if path and not path.startswith(sys.prefix)]
    return {**left, "LD_LIBRARY_PATH": os.pathsep.join(kept)} if kept else left


def temporary(log: Path) -> Path:
    """A folder for temporary files of a row."""
    folder = FOLDER / "tmp" / log.stem
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def interpreter(version: str) -> str:
    """A Python of a version such as `3.8`: on the path, or of pyenv.

    Raises:
        SkipError: There is none.
    """
    roots = [Path(root) for root in (os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv") if root]
    own = [str(path) for root in roots for path in root.glob(f"versions/{version}.*/bin/python")]
    for path in [shutil.which(f"python{version}"), *sorted(own, reverse=True)]:
        code = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
        if path and said([path, "-c", code]) == version:
            return path
    raise SkipError(f"no Python {version} with venv on this machine")


def said(command: Sequence[str]) -> Optional[str]:
    """What a command prints, None if it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return None
    return done.stdout.decode().strip() if done.returncode == 0 else None


def install(python: Path, log: Path, *requirements: str) -> None:
    """Install packages.

    Raises:
        SkipError: They cannot be had.
    """
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if call([*pip, *requirements], log):
        raise SkipError(f"pip cannot install {' '.join(requirements)} (see {log.relative_to(ROOT)})")


def environment(name: str, version: str, log: Path, *requirements: str) -> Path:
    """Python of a virtual environment with what the tests need; made again when the packaging changes.

    The package itself is read from the checkout: installed, it would rewrite its metadata beside the sources.

    Raises:
        SkipError: There is no such Python, or no package index.
    """
    folder = FOLDER / name
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join([(ROOT / "setup.py").read_text(encoding="utf-8"), *requirements])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    base = interpreter(version)
    if call([base, "-m", "venv", folder], log):
        raise SkipError(f"{base} makes no virtual environment (see {log.relative_to(ROOT)})")
    install(python, log, "--upgrade", "pip")
    install(python, log, f"{copy_of_the_package(log)}[dev]", *requirements)
    if call([python, "-m", "pip", "uninstall", "--yes", "--quiet", "polar_pipeline"], log):
        raise SkipError("pip cannot uninstall the copy of the package")
    stamp.write_text(wanted, encoding="utf-8")
    return python


def copy_of_the_package(log: Path) -> Path:
    """The files that pip reads to find what the package depends on."""
    folder = temporary(log) / "package"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "package.xml"):
        shutil.copy2(ROOT / name, folder)  # with the time of change: the kernels of the checkout are not built again
    for name in ("polar_pipeline", "resource", "kernels"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


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


def run_exhaustive(log: Path) -> int:
    """Products of parameters, and inputs, of which `make test` tries a part; what pip finds for each JetPack."""
    chosen = ["-m", "(exhaustive or scaled) and not gpu and not ros", *without("test_compile.py")]  # rows of their own
    return tests(here(), log, *chosen, POLAR_PIPELINE_MATRIX="1")


def run_library(version: str, log: Path) -> int:
    """The library and the tool without ROS."""
    python = environment(f"python{version}", version, log)
    # batches do not run on robots; the last fsspec for 3.8 does not know what changed on a web server
    batches = ["--ignore=test/batch"] if version == "3.8" else []
    chosen = without(*_KERNEL_FILES, *_LONG_FILES, *_SOURCE_FILES)
    return tests(python, log, "-m", "not gpu and not ros", *chosen, *batches)


def run_ros(version: str, packages: Tuple[str, ...], log: Path) -> int:
    """Every test with ROS; they mostly wait."""
    python = environment(log.stem, version, log, *packages)
    return tests(python, log, *_TWO_AT_ONCE, "-m", "ros and not gpu", POLAR_PIPELINE_MATRIX="1")


def run_s3(log: Path) -> int:
    """Recordings in storages of S3."""
    python = environment("s3", "3.12", log, *_S3)
    if call([python, "-c", "import moto.server, s3fs"], log):  # without which the tests are skipped
        return 1
    return tests(python, log, "-k", "s3 and not missing_packages", *files("test_remote.py"))


def run_nvrtc(package: str, log: Path) -> int:
    """What `benchmarks/kernels.py` compiles for both Jetsons, by one version of NVIDIA's compiler."""
    folder = FOLDER / log.stem
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        install(here(), log, "--no-deps", "--target", str(part), package)
        part.rename(folder)
    path = f"{folder}:{ROOT}"  # the first NVRTC on the path is the one that is used
    version = tuple(map(int, package.partition("==")[2].split(".")[:2]))
    check = f"from polar_pipeline.cuda.compile import find_library as find; assert find('sm_72').version == {version}"
    if call([here(), "-c", check], log, PYTHONPATH=path):
        return 1
    chosen = ["test/cuda/test_compile.py", "-m", "exhaustive", "-k", "fit_the_jetsons"]
    return tests(here(), log, *chosen, PYTHONPATH=path, POLAR_PIPELINE_MATRIX="1")


def run_arm64(log: Path) -> int:
    """The CPU backend under emulation."""
    status = call([here(), "test/arm64.py"], log)  # with pip
    if status == SKIPPED:
        raise SkipError(last_line(log))
    return status


#: Those that take longest first; two that mostly wait are apart.
LEGS = (
    Leg("arm64", "CPU backend, emulated: QEMU, the distribution's NumPy and OpenCV", run_arm64),
    Leg("jazzy", "ROS 2 Jazzy, Python 3.12: every ROS test", partial(run_ros, "3.12", _JAZZY)),
    Leg("exhaustive", "whole products of parameters; pip on JetPack 5, 6, 7", run_exhaustive),
    Leg("kilted", "ROS 2 Kilted, Python 3.13: every ROS test", partial(run_ros, "3.13", _KILTED)),
    Leg("python3.10", "library and tool (JetPack 6)", partial(run_library, "3.10")),
    Leg("python3.8", "library and tool (JetPack 5)", partial(run_library, "3.8")),
    Leg(
        "nvrtc-11.7",
        "the kernels of the shipped defaults, sm_72 and sm_87",
        partial(run_nvrtc, "nvidia-cuda-nvrtc-cu11==11.7.99"),
    ),
    Leg(
        "nvrtc-12.9",
        "the kernels of the shipped defaults, sm_72 and sm_87",
        partial(run_nvrtc, "nvidia-cuda-nvrtc-cu12==12.9.86"),
    ),
    Leg("s3", "batches of recordings in storages of S3 (moto)", run_s3),
)


# -------------------------------------------------------------------------------------------------------------- report


def last_line(log: Path) -> str:
    """The last words of a log."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def closing_lines(log: Path) -> List[str]:
    """What pytest said at its ends, such as `12 passed, 1 skipped in 3.45s`."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return re.findall(r"^(?:=+ )?(\d+ [a-z]+(?:, \d+ [a-z]+)* in [0-9.]+s(?: \([0-9:]+\))?)(?: =+)?$", text, re.M)


def crashes(log: Path) -> List[str]:
    """What Python said of processes that crashed: the beginning of the traceback of each."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return re.findall(r"^Fatal Python error: .*(?:\n.*){0,15}", text, re.M)


def test_leg(leg: Leg) -> Result:
    """Run one row."""
    log = LOGS / f"{leg.name}.log"
    log.unlink(missing_ok=True)
    print(f"{leg.name}: {leg.what}", flush=True)
    begin = time.monotonic()
    try:
        status = leg.run(log)
        closing = closing_lines(log)
        text = closing[-1] if closing else f"exit status {status}"
        result = Result("failed" if status else "passed", text, (time.monotonic() - begin) / 60)
    except SkipError as err:
        result = Result("skipped", str(err), (time.monotonic() - begin) / 60)
    print(f"{leg.name}: {result.state} after {result.minutes:.1f} min: {result.text}", flush=True)
    if result.state == "failed":
        print(
            "\n".join([*crashes(log), *log.read_text(encoding="utf-8", errors="replace").splitlines()[-60:]]),
            flush=True,
        )
    shutil.rmtree(temporary(log), ignore_errors=True)
    return result


def table(results: Dict[Leg, Result]) -> str:
    """The results as Markdown."""
    rows = ["| system | tested there | result | minutes |", "|---|---|---|---|"]
    for leg, (state, text, minutes) in results.items():
        shown = re.sub(r" in [0-9.:()hs ]+$", "", text) if state == "passed" else f"{state}: {text}"
        rows.append(f"| {leg.name} | {leg.what} | {shown} | {minutes:.1f} |")
    return "\n".join(rows)


def main() -> int:
    """Run the rows that are asked for, or all."""
    parser = argparse.ArgumentParser(description="Runs the tests on the systems that users have.")
    parser.add_argument("name", nargs="*", help="rows to run; all by default")
    jobs = (os.cpu_count() or 1) + 1  # some mostly wait
    parser.add_argument("--jobs", type=int, default=jobs, help="rows at a time (default: one more than cores)")
    parser.add_argument("--list", action="store_true", help="names the rows")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{leg.name}: {leg.what}" for leg in LEGS))
        return 0
    unknown = set(arguments.name) - {leg.name for leg in LEGS}
    if unknown:
        parser.error(f"names are {', '.join(leg.name for leg in LEGS)}; got {', '.join(sorted(unknown))}")
    chosen = [leg for leg in LEGS if not arguments.name or leg.name in arguments.name]
    LOGS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        results = dict(zip(chosen, pool.map(test_leg, chosen)))
    print(f"\n{table(results)}")
    states = [result.state for result in results.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("passed", "failed", "skipped"))
    print(f"\ntest matrix: {counts}")
    return 1 if "failed" in states else 0


if __name__ == "__main__":
    sys.exit(main())
