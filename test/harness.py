"""Kernels under test: the very same `kernels/*.cu`, run on the CPU by `test/host`, or on a GPU where there is one."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple

import numpy as np
from support import ROOT

from polar_pipeline.cuda.work import FRAME, OUTPUTS, Work
from polar_pipeline.products import PRODUCTS

HOST = Path(__file__).resolve().parent / "host"
KERNELS = ROOT / "kernels"
CACHE = ROOT / ".pytest_cache" / "d" / "kernels"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))
_INCLUDES = (f"-I{KERNELS}", f"-I{HOST}")
_COMMON = (
    "-std=c++14",
    "-g1",
    "-gdwarf-4",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-DPOLAR_HOST",
    *_INCLUDES,
)
#: The sanitizers' hooks are in `runner.cpp`; their libraries are not linked.
_CHECKED = (
    "-O1",
    "-fsanitize=thread,alignment,bounds,shift-exponent,float-cast-overflow,integer-divide-by-zero",
    "-fno-optimize-sibling-calls",  # or a hook's return address would be its caller's caller
    "-Wno-unknown-pragmas",
)

#: Every launch happens twice, and must not depend on these: (threads and blocks in reverse, content of memory that
#: nobody has written).
VARIANTS = ((False, 0xFF), (True, 0x35))


class KernelFault(AssertionError):
    """A kernel did what a GPU would punish, or may punish on some days."""


class Grid(NamedTuple):
    """How a kernel is launched: blocks along x, y, z; threads of a block; bytes of shared memory."""

    blocks: Tuple[int, int, int]
    threads: int
    shared_bytes: int = 0


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("writable", ctypes.c_int),
        ("name", ctypes.c_char_p),
    ]


# ----------------------------------------------------------------------------------------------------------- on the CPU


def _compile(output: Path, *arguments: str) -> Path:
    """One run of the compiler, whose result appears at once or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_suffix(f".{os.getpid()}")
    run = subprocess.run([str(COMPILER), *arguments, "-o", str(part)], capture_output=True, text=True, check=False)
    if run.returncode:
        raise KernelFault(f"{output.name} does not compile:\n{run.stderr}")
    part.replace(output)
    return output


@lru_cache(maxsize=None)
def _sources() -> bytes:
    """What every build depends on, besides the kernel: the shared sources and the compiler."""
    version = subprocess.run([str(COMPILER), "--version"], capture_output=True, check=True).stdout
    shared = [*sorted(KERNELS.glob("*.cuh")), *sorted(HOST.iterdir())]
    return version + b"".join(path.read_bytes() for path in shared if path.is_file())


def _key(*parts: object) -> str:
    return hashlib.sha256(_sources() + repr(parts).encode()).hexdigest()[:24]


@lru_cache(maxsize=None)
def _runner() -> Path:
    target = CACHE / f"runner-{_key(_COMMON)}.o"
    return target if target.exists() else _compile(target, *_COMMON, "-O2", "-c", str(HOST / "runner.cpp"))


def build(kernel: Path, defines: Mapping[str, object]) -> Path:
    """The library of one kernel, compiled unless it has been before. May be called from several threads.

    Args:
        kernel: A `.cu` file with one entry point of its name that takes a `Frame`.
        defines: Preprocessor definitions.
    """
    options = [f"-D{name}={value}" for name, value in sorted(defines.items())]
    target = CACHE / f"{kernel.stem}-{_key(kernel.read_bytes(), options, _COMMON, _CHECKED)}.so"
    if target.exists():
        return target
    entry = _compile(
        target.with_suffix(".o"),
        *_COMMON,
        *_CHECKED,
        "-c",
        str(HOST / "entry.cpp"),
        *options,
        f'-DKERNEL_FILE="{kernel}"',
        f"-DKERNEL_NAME={kernel.stem}",
    )
    # Linked apart: with -fsanitize the sanitizers' libraries would come along.
    _compile(target, "-shared", str(entry), str(_runner()))
    entry.unlink()
    return target


@lru_cache(maxsize=None)
def _load(library: Path) -> Callable[..., int]:
    function = ctypes.CDLL(str(library)).host_launch
    function.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32, ctypes.c_uint32),
        *(ctypes.POINTER(_Buffer), ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64),
    ]
    return function


def _source_lines(library: Path, message: str) -> str:
    """The fault's place in the library as the lines of the kernel that led there, innermost first."""
    found = re.search(r" \[\+(0x[0-9a-f]+)\]$", message)
    tool = shutil.which("addr2line")
    if not found or not tool:
        return message
    run = subprocess.run([tool, "-i", "-e", str(library), found.group(1)], capture_output=True, text=True, check=False)
    places = [Path(line.split(" ")[0]).name for line in run.stdout.splitlines()]
    chain = [place for place in places if place.split(":")[0] not in ("host.cuh", "entry.cpp", "runner.cpp")]
    return message[: found.start()] + (f" (at {', from '.join(chain)})" if chain else "")


def launch_on_host(
    library: Path,
    make_frame: Callable[[Mapping[str, int]], np.ndarray],
    grid: Grid,
    buffers: Mapping[str, np.ndarray],
    reverse: bool = False,
    poison: int = 0xFF,
) -> None:
    """Run a kernel once.

    Args:
        library: From `build`.
        make_frame: From the buffers' addresses to the kernel's argument, of type `FRAME`.
        grid: Launch parameters.
        buffers: Every memory that the kernel may touch; read-only arrays are inputs, the others change in place.
        reverse: Whether threads and blocks run from the last one to the first.
        poison: Byte that shared memory is filled with before every block.

    Raises:
        KernelFault: Memory out of bounds or misaligned, a race in shared memory, a deadlock, or undefined arithmetic.
    """
    frame = make_frame({name: array.ctypes.data for name, array in buffers.items()})
    rows = [
        (array.ctypes.data, array.nbytes, int(array.flags.writeable), name.encode()) for name, array in buffers.items()
    ]
    message = ctypes.create_string_buffer(1024)
    failed = _load(library)(
        frame.ctypes.data,
        frame.nbytes,
        (ctypes.c_uint32 * 3)(*grid.blocks),
        grid.threads,
        grid.shared_bytes,
        (_Buffer * len(rows))(*rows),
        len(rows),
        int(reverse),
        poison,
        message,
        len(message),
    )
    if failed:
        raise KernelFault(f"{library.name.split('-')[0]}: {_source_lines(library, message.value.decode())}")


def aligned(size: int, fill: int = 0, alignment: int = 256) -> np.ndarray:
    """(size,) uint8 at an address as a GPU's allocator gives it."""
    room = np.full(size + alignment, fill, np.uint8)
    start = -room.ctypes.data % alignment
    return room[start : start + size]
