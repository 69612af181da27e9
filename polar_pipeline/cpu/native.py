"""The library of the CPU kernels (`kernels/cpu/`), compiled by the machine's own C++ compiler for its own processor.

Without a compiler, or where the environment says `POLAR_PIPELINE_CPU=opencv`, the backend does everything by OpenCV.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import List, Optional, Sequence, Tuple, Union

from polar_pipeline._util.cache import entry_name, open_entry, private_folder, write_entry
from polar_pipeline._util.share import share_path
from polar_pipeline._util.stop_flag import PROCESS_STOP, StoppedError
from polar_pipeline._util.text import printable, printable_lines, quoted
from polar_pipeline.coefficients import literals, ssim_literals

_LOG = logging.getLogger(__name__)
#: The environment's word on how the CPU computes: `compiled` where that is possible (the default), or `opencv`.
VARIABLE = "POLAR_PIPELINE_CPU"

#: Its functions.
_FUNCTIONS = (
    "polarization_superpixels",
    "polarization_demosaiced",
    "correct_frame",
    "polarization_planes",
    "polarization_transformed",
    "transform_angles",
    "debayer",
    "demosaic_color",
    "polarization_switch",
    "similarity",
)
#: Square roots are vectorised only if they need not set errno, choices only if comparisons need not trap. NaN and
#: infinities keep their meaning.
_FLAGS = ("-std=c++14", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared")
#: Seconds for the compiler; a slow core takes some ten.
_PATIENCE = 120.0
#: Seconds between two looks whether the process was asked to end.
_STOP_PERIOD = 0.1


class NativeError(RuntimeError):
    """There are no compiled kernels; the text says why."""


# ------------------------------------------------------------------------------------------------------------- compiler


def find_compiler() -> Tuple[str, ...]:
    """The C++ compiler's command: what `CXX` holds, else the first one of the usual names.

    Raises:
        NativeError: There is none, or the environment does not want one.
        ValueError: `POLAR_PIPELINE_CPU` holds something else.
    """
    wanted = os.environ.get(VARIABLE) or "compiled"
    if wanted not in ("compiled", "opencv"):
        raise ValueError(f"{VARIABLE} must be compiled or opencv, got {quoted(wanted)}")
    if wanted == "opencv":
        raise NativeError(f"{VARIABLE} is opencv")
    if sys.byteorder != "little":
        raise NativeError("the kernels are for little-endian processors")
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError as err:
        raise NativeError(f"CXX is no command: {printable(os.environ['CXX'])}: {err}") from None
    for program, *arguments in [named] if named else [["c++"], ["g++"], ["clang++"]]:
        path = shutil.which(program)
        if path:
            return (path, *arguments)
    looked_for = printable(named[0]) if named else "c++, g++ or clang++"
    raise NativeError(f"no C++ compiler ({looked_for}): install build-essential")


def _run(command: Sequence[str], **variables: str) -> str:
    """What a command prints.

    Args:
        command: A program that may start others, which end with it.
        variables: Changes of its environment.

    Raises:
        NativeError: It fails.
        StoppedError: This process was asked to end.
    """
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
            start_new_session=True,  # a group of its own, with the programs that a compiler starts
        )
    except OSError as err:
        raise NativeError(f"{printable(command[0])}: {printable(str(err))}") from None
    with process:
        try:
            text = _wait(process).decode(errors="replace")
        except BaseException:
            with suppress(OSError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise NativeError(f"{printable(command[0])} failed ({process.returncode}): {printable_lines(text.strip())}")
    return text


def _wait(process: subprocess.Popen[bytes]) -> bytes:
    """What a process has printed when it ends.

    Raises:
        NativeError: It takes too long.
        StoppedError: This process was asked to end.
    """
    end = time.monotonic() + _PATIENCE
    while not PROCESS_STOP.is_set():
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_STOP_PERIOD)[0]
        if time.monotonic() > end:
            raise NativeError(f"the compiler takes more than {_PATIENCE:g} s")
    raise StoppedError("asked to end while CPU kernels were compiled")


def _processor() -> List[str]:
    """What tells processors apart that take different instructions: the folder of the cache may serve several."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    keys = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU implementer", "CPU part", "CPU variant")
    return [platform.machine(), *sorted({line for line in lines if line.split(":")[0].strip() in keys})]


def find_library() -> ctypes.CDLL:
    """The kernels for this machine. The first call compiles them, if that was not done before: a few seconds.

    Raises:
        NativeError: There are none; the text says why.
        StoppedError: This process was asked to end while they were compiled.
        ValueError: `POLAR_PIPELINE_CPU` asks for something else.
    """
    found = _found(find_compiler())
    if isinstance(found, str):
        raise NativeError(found)
    return found


@lru_cache(maxsize=4)
def _found(compiler: Tuple[str, ...]) -> Union[ctypes.CDLL, str]:
    """`compile_library`, or why it failed: that is not tried again either."""
    try:
        return compile_library(compiler)
    except NativeError as err:
        return str(err)
    except OSError as err:
        return f"kernels cannot be compiled: {err}"


def compile_library(compiler: Tuple[str, ...]) -> ctypes.CDLL:
    """The kernels, from disk if they were compiled before.

    Args:
        compiler: Its command.

    Raises:
        NativeError: They do not compile, or what comes out cannot be loaded.
        StoppedError: This process was asked to end.
        OSError: There is nowhere to compile, or nothing: the installation has no kernels.
    """
    native = "-march=native" if platform.machine() in ("x86_64", "AMD64", "i686") else "-mcpu=native"
    numbers = {**literals(), **ssim_literals()}
    options = [*_FLAGS, native, *(f"-D{name}={numbers[name]}" for name in sorted(numbers))]
    folder = share_path("kernels", "cpu")
    files = sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".hpp"))
    sources = [path.read_text(encoding="utf-8") for path in (*files, *folder.parent.glob("*.h"))]
    entry = entry_name([sources, compiler, _run([*compiler, "--version"]), options, _processor()], ".so")
    kept = _load_entry(entry)
    if kept is not None:
        return kept
    _LOG.info("compiling the CPU kernels, once per machine: some ten seconds")
    with private_folder() as folder:
        library = folder / "kernels.so"
        command = [*compiler, *options, *(str(path) for path in files if path.suffix == ".cpp"), "-o", str(library)]
        _run(command, TMPDIR=str(folder))
        write_entry(entry, library.read_bytes())
        return _load_entry(entry) or _load(str(library))


def _load_entry(name: str) -> Optional[ctypes.CDLL]:
    """What was kept; None where that is nothing of use, or lies in a folder from which programs cannot be loaded."""
    entry = open_entry(name)
    if entry is not None:
        # The very file that was checked, whatever has taken its place since. It stays open: the loader takes a second
        # file of the same name, here of the same number, for the one that it has.
        with suppress(NativeError):
            return _load(f"/proc/self/fd/{entry.descriptor}")
    return None


def _load(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
        for name in _FUNCTIONS:
            getattr(library, name).restype = None
    except (OSError, AttributeError) as err:
        raise NativeError(f"compiled kernels cannot be loaded: {printable(str(err))}") from None
    return library
