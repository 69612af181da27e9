"""The CPU kernels (`kernels/cpu/`): compiled by the machine's own C++ compiler for its own processor, and called.

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

from polar_pipeline._util.cache import entry_name, open_entry, private_folder, write_entry
from polar_pipeline._util.share import share_path
from polar_pipeline._util.text import printable, printable_lines, quoted
from polar_pipeline.backend import block_pixels
from polar_pipeline.coefficients import gaussian, literals, ssim_literals
from polar_pipeline.cpu.ssim import SsimWindow
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: The environment's word on how the CPU computes: `compiled` where that is possible (the default), or `opencv`.
VARIABLE = "POLAR_PIPELINE_CPU"

_SOURCES = ("polarization.cpp", "ssim.cpp")
#: Square roots are vectorised only if they need not set errno, choices only if comparisons need not trap. NaN and
#: infinities keep their meaning.
_FLAGS = ("-std=c++14", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared")
_T = TypeVar("_T")
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
    files = [share_path("kernels", "cpu", name) for name in _SOURCES]
    sources = [path.read_text(encoding="utf-8") for path in files]
    entry = entry_name([sources, compiler, _run([*compiler, "--version"]), options, _processor()], ".so")
    kept = _load_entry(entry)
    if kept is not None:
        return kept
    with private_folder() as folder:
        library = folder / "kernels.so"
        _run([*compiler, *options, *map(str, files), "-o", str(library)])
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
        for function in (library.polarization_half, library.polarization_planes, library.similarity):
            function.restype = None
    except (OSError, AttributeError) as err:
        raise NativeError(f"compiled kernels cannot be loaded: {printable(str(err))}") from None
    return library


# --------------------------------------------------------------------------------------------- arguments of the kernels


class _Image(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("is_bytes", ctypes.c_int64)]


def _image(array: Optional[np.ndarray]) -> _Image:
    return _Image() if array is None else _Image(array.ctypes.data, array.dtype == np.uint8)


#: Products that the kernels compute, SSIM's aside, in the order of `struct Products` in `kernels/cpu/polarization.cpp`.
KERNEL_PRODUCTS = (*(f"angle_{angle}" for angle in ANGLES), "intensity", "stokes", "dolp", "aolp", "preview")


class Products(ctypes.Structure):
    """The arrays that products are written to. Build it with `make_products`, and keep the arrays while it is used."""

    _fields_ = [
        *((name, _Image) for name in KERNEL_PRODUCTS),
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("is_uint16", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("min_total", ctypes.c_float),
    ]


def make_products(
    out: Dict[str, np.ndarray],
    names: Iterable[str],
    pair: Sequence[np.ndarray],
    width: int,
    scale: float,
    min_total: float,
) -> Products:
    """The arrays that products are written to, and the scale of the angles.

    Args:
        out: Arrays by product.
        names: Those of them to compute.
        pair: (h, w) arrays for what SSIM compares: none, S0/2, or both estimates of it, as float32; or as uint16 both
            sums of two angles, in units of an angle's intensity.
        width: Output pixels per row.
        scale: One unit of an angle's intensity as a share of full scale.
        min_total: Smallest I0 + I45 + I90 + I135, in such units, that has a polarization; 0 if no product asks for it.
    """
    products = Products(width=width, scale=scale, min_total=min_total)
    for name in names:
        if name in KERNEL_PRODUCTS:
            setattr(products, name, _image(out[name]))
    for field, image in zip(("first", "second"), pair):
        setattr(products, field, image.ctypes.data)
        products.is_uint16 = image.dtype == np.uint16
    return products


class _Mosaic(ctypes.Structure):
    _fields_ = [
        ("raw", ctypes.c_void_p),
        ("step", ctypes.c_int64),
        ("is_wide", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("co_sited", ctypes.c_int32),
        ("place", ctypes.c_int32 * 4),
        ("full_scale", ctypes.c_int32),
        ("next", ctypes.c_int32),
    ]


class _Planes(ctypes.Structure):
    _fields_ = [
        ("angles", ctypes.c_void_p * 4),
        ("steps", ctypes.c_int64 * 4),
        ("saturated", ctypes.c_void_p),
        ("first", ctypes.c_int32),
        ("end", ctypes.c_int32),
    ]


class _Similarity(ctypes.Structure):
    _fields_ = [
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("map", _Image),
        ("sums", ctypes.c_void_p),
        ("is_uint16", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("step", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("stride", ctypes.c_int32),
        ("radius", ctypes.c_int32),
        ("next", ctypes.c_int32),
        ("taps", ctypes.c_float * 8),
    ]


class _Count(ctypes.Structure):
    _fields_ = [("saturated", ctypes.c_int64), ("dark", ctypes.c_int64)]


# -------------------------------------------------------------------------------------------------------------- kernels


class Kernels(NamedTuple):
    """The compiled kernels, and who runs them.

    Attributes:
        library: As loaded.
        pool: Threads to work on.
        threads: How many, the caller's included.
    """

    library: ctypes.CDLL
    pool: ThreadPoolExecutor
    threads: int

    def mosaic(self, frame: RawFrame, sensor: Sensor, co_sited: bool, to: Products) -> Tuple[int, int]:
        """Products of a mono mosaic at half resolution, bilinear or every angle at its own site.

        Args:
            frame: The mosaic.
            sensor: Its layout as seen in the frame.
            co_sited: Whether every angle is interpolated to the superpixel's centre.
            to: Where the products go, in units of `mosaic_scale`.

        Returns:
            (saturated, dark) pixels.
        """
        raw = frame.mosaic
        if raw.strides[1] != raw.itemsize or not raw.flags.aligned:
            raw = raw.copy()
        places = (2 * row + column for row, column in map(sensor.position, ANGLES))
        mosaic = _Mosaic(
            *(raw.ctypes.data, raw.strides[0], raw.itemsize == 2, *raw.shape, co_sited),
            (ctypes.c_int32 * 4)(*places),
            frame.full_scale,
        )

        def work() -> _Count:
            count = _Count()
            self.library.polarization_half(ctypes.byref(mosaic), ctypes.byref(to), ctypes.byref(count))
            return count

        counts = self._on_all(work)
        return sum(count.saturated for count in counts), sum(count.dark for count in counts)

    def planes(
        self, angles: Sequence[np.ndarray], saturated: Optional[np.ndarray], rows: Tuple[int, int], to: Products
    ) -> Tuple[int, int]:
        """Products of four angle images, by the calling thread.

        Args:
            angles: Four (rows, w) float32.
            saturated: (rows, w) uint8, not 0 where a pixel is saturated; None if no pixel is.
            rows: (first, end) row of the output that they are.
            to: The arrays that the products are written to.

        Returns:
            (saturated, dark) pixels.
        """
        planes = _Planes(
            (ctypes.c_void_p * 4)(*(image.ctypes.data for image in angles)),
            (ctypes.c_int64 * 4)(*(image.strides[0] // image.itemsize for image in angles)),
            None if saturated is None else saturated.ctypes.data,
            *rows,
        )
        count = _Count()
        self.library.polarization_planes(ctypes.byref(planes), ctypes.byref(to), ctypes.byref(count))
        return count.saturated, count.dark

    def similarity(
        self, pair: Tuple[np.ndarray, np.ndarray], scale: float, out: Optional[np.ndarray], window: SsimWindow
    ) -> np.ndarray:
        """The similarity of two images.

        Args:
            pair: (h, w) float32 or uint16, twice.
            scale: Factor that brings them to [0, 1].
            out: (h // stride, w // stride) float32 or uint8: the map; None if it is not wanted.
            window: The window of SSIM.

        Returns:
            Float64 sums of the map's blocks.
        """
        first, second = (np.require(image, requirements=["C", "A"]) for image in pair)
        height, width = first.shape
        size = (height // window.stride, width // window.stride)
        sums = np.empty(block_pixels(*size).shape)
        job = _Similarity(
            *(first.ctypes.data, second.ctypes.data, _image(out), sums.ctypes.data),
            *(first.dtype == np.uint16, scale, width, *size, window.stride, window.radius),
            taps=(ctypes.c_float * 8)(*gaussian(window.size, window.sigma)[window.radius :]),
        )
        self._on_all(lambda: self.library.similarity(ctypes.byref(job)))
        return sums

    def _on_all(self, work: Callable[[], _T]) -> List[_T]:
        """The same work by every thread."""
        others = [self.pool.submit(work) for _ in range(self.threads - 1)]
        return [work(), *(other.result() for other in others)]


def mosaic_scale(full_scale: int, co_sited: bool) -> float:
    """One unit of an angle's intensity as a share of full scale: a sixteenth of a raw number, or a raw number."""
    return 1 / (full_scale * (16 if co_sited else 1))
