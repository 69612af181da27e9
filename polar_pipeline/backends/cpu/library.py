"""The library of the CPU kernels (`kernels/cpu/`), which `setup.py` builds for several instruction sets."""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Set, Tuple

import numpy as np

from polar_pipeline._util.text import printable
from polar_pipeline.backends.cpu.arguments import Bracket, Frame
from polar_pipeline.sensor.frames import Frame as RawPixels
from polar_pipeline.sensor.frames import PackedFrame

#: Where the libraries are.
FOLDER = Path(__file__).parent
#: Packings of pixels in the order of `enum Packing` in `kernels/cpu/brightest.cpp`.
PACKINGS = ("u8", "u16", "p", "packed")
#: Instruction sets, the best first -> what Linux calls the features of a processor that has them.
LEVELS = {
    "avx512": {
        *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512_vbmi2"),
        *("avx512_vnni", "avx512_bitalg", "avx512_vpopcntdq", "gfni", "avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"),
    },
    "avx2": {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"},
    "sse4": {"sse4_2", "popcnt"},
    "base": set(),
}


class KernelsError(RuntimeError):
    """Error for missing compiled kernels; the text gives the reason."""


class Kernels(NamedTuple):
    """The compiled kernels.

    Attributes:
        library: Loaded library.
        level: Their instruction set, of `LEVELS`.
    """

    library: ctypes.CDLL
    level: str

    def compute(self, frame: Frame, threads: int) -> None:
        """Compute a frame without the interpreter lock.

        Args:
            frame: Argument of the kernels.
            threads: Most threads to use; results do not depend on it.

        Raises:
            MemoryError: There is not enough memory.
        """
        if self.library.compute_frame(ctypes.byref(frame), threads):
            raise MemoryError("not enough memory to compute a frame")

    def merge(self, bracket: Bracket, threads: int) -> None:
        """Merge exposures without the interpreter lock.

        Raises:
            MemoryError: There is not enough memory.
        """
        if self.library.merge_exposures(ctypes.byref(bracket), threads):
            raise MemoryError("not enough memory to merge exposures")

    def copy_rows(self, target: np.ndarray, rows: np.ndarray, threads: int) -> None:
        """Copy a frame for a device to fetch, without the interpreter lock and past the caches.

        Args:
            target: (N,) uint8, at least the bytes of the frame, which come without the padding of its rows.
            rows: (H, ...) pixels or packed bytes, contiguous within a row.
            threads: Most threads to use.
        """
        count, step = len(rows), rows.strides[0]
        self.library.copy_rows(
            *(ctypes.c_void_p(target.ctypes.data), ctypes.c_void_p(rows.ctypes.data)),
            *(ctypes.c_int64(number) for number in (count, rows.nbytes // count, step)),
            threads,
        )

    def count_brightest(self, histogram: np.ndarray, frame: RawPixels, place: Tuple[int, ...], shift: int) -> None:
        """Count superpixels of a frame by their brightest pixel, in one thread, without the interpreter lock.

        Args:
            histogram: (N,) uint32, to which is added: by the pixel >> `shift`, and saturated ones in the last bin.
            frame: Mosaic, contiguous within a row, or packed pixels.
            place: x and y, both even, width, height; every how many rows and columns of superpixels one counts.
            shift: Low bits of a pixel that the bins leave out.
        """
        rows = frame.rows if isinstance(frame, PackedFrame) else frame.mosaic
        packing = frame.fmt.packing if isinstance(frame, PackedFrame) else f"u{8 * rows.itemsize}"
        bits = frame.fmt.bits if isinstance(frame, PackedFrame) else 8 * rows.itemsize
        self.library.count_brightest(
            *(ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(rows.strides[0])),
            *(PACKINGS.index(packing), bits, frame.full_scale, shift),
            *((ctypes.c_int32 * 6)(*place), ctypes.c_void_p(histogram.ctypes.data)),
        )


def processor_features() -> Set[str]:
    """Return the features of an x86-64 processor as Linux names them; empty for others, or if unknown.

    The file alone would not do: under QEMU, an arm64 process reads the features of the host.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return set()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.partition(":")[2].split())


@lru_cache(maxsize=1)
def load_kernels() -> Kernels:
    """Load the kernels for the best instruction set that this processor has.

    Raises:
        KernelsError: None were built for this processor, or they cannot be loaded.
    """
    features = processor_features()
    for level, needed in LEVELS.items():
        path = FOLDER / f"kernels_{level}.so"
        if path.exists() and needed <= features:
            return _load(path, level)
    raise KernelsError("no CPU kernels were built when the package was installed: install g++, then install it again")


def _load(path: Path, level: str) -> Kernels:
    try:
        library = ctypes.CDLL(str(path))
        library.frame_bytes.restype = ctypes.c_int64
        size = library.frame_bytes()
    except (OSError, AttributeError) as err:
        raise KernelsError(f"the CPU kernels cannot be loaded: {printable(str(err))}") from None
    if size != ctypes.sizeof(Frame) + ctypes.sizeof(Bracket) or not hasattr(library, "count_brightest"):
        raise KernelsError("the CPU kernels are of another version: install the package again")
    return Kernels(library, level)
