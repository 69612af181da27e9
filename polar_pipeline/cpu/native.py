"""The library of the CPU kernels (`kernels/cpu/`), compiled by the machine's own C++ compiler for its own processor.

Without a compiler, or where the environment says `POLAR_PIPELINE_CPU=opencv`, the backend does everything by OpenCV.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import List, Optional, Sequence, Tuple, Union

from polar_pipeline._util.cache import entry_name, open_entry, private_folder, write_entry
from polar_pipeline._util.share import share_path
from polar_pipeline._util.text import printable, printable_lines, quoted
from polar_pipeline.coefficients import literals, ssim_literals

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


def _run(command: Sequence[str]) -> str:
    """What a command prints.

    Raises:
        NativeError: It fails.
    """
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise NativeError(f"{printable(command[0])}: {printable(str(err))}") from None
    text = done.stdout.decode(errors="replace")
    if done.returncode:
        raise NativeError(f"{printable(command[0])} failed ({done.returncode}): {printable_lines(text.strip())}")
    return text


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
        OSError: There is nowhere to compile, or nothing: the installation has no kernels.
    """
    native = "-march=native" if platform.machine() in ("x86_64", "AMD64", "i686") else "-mcpu=native"
    numbers = {**literals(), **ssim_literals()}
    options = [*_FLAGS, native, *(f"-D{name}={numbers[name]}" for name in sorted(numbers))]
    files = sorted(path for path in share_path("kernels", "cpu").iterdir() if path.suffix in (".cpp", ".hpp"))
    sources = [path.read_text(encoding="utf-8") for path in files]
    entry = entry_name([sources, compiler, _run([*compiler, "--version"]), options, _processor()], ".so")
    kept = _load_entry(entry)
    if kept is not None:
        return kept
    with private_folder() as folder:
        library = folder / "kernels.so"
        _run([*compiler, *options, *(str(path) for path in files if path.suffix == ".cpp"), "-o", str(library)])
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
