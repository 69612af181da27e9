"""NVIDIA's NPP, with which `gpu.py` compares the color demosaic."""

from __future__ import annotations

import ctypes
import ctypes.util
import site
from pathlib import Path
from typing import Callable, Optional

from timing import cupy


def find_debayer() -> Optional[Callable[[int, int, int, int], None]]:
    """NPP's color filter array to RGB, bilinear, 8 bit; None where NPP is not installed."""
    libraries = []
    for name in ("nppicc", "nppc"):
        folders = [Path("/usr/local/cuda/lib64"), *(Path(p) for p in site.getsitepackages())]
        paths = [str(p) for folder in folders for p in sorted(folder.rglob(f"lib{name}.so*"))]
        found = paths[0] if paths else ctypes.util.find_library(name)
        if not found:
            return None
        libraries.append(ctypes.CDLL(found))

    class Size(ctypes.Structure):
        _fields_ = [("width", ctypes.c_int), ("height", ctypes.c_int)]

    class Rect(ctypes.Structure):
        _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "width", "height")]

    class Context(ctypes.Structure):
        _fields_ = [
            ("stream", ctypes.c_void_p),
            *((name, ctypes.c_int) for name in ("device", "multiprocessors", "threads_per_sm", "threads_per_block")),
            ("shared_per_block", ctypes.c_size_t),
            *((name, ctypes.c_int) for name in ("major", "minor")),
            ("flags", ctypes.c_uint),
            ("reserved", ctypes.c_int),
        ]

    function = libraries[0].nppiCFAToRGB_8u_C1C3R_Ctx
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    context = Context(
        None,
        0,
        properties["multiProcessorCount"],
        properties["maxThreadsPerMultiProcessor"],
        properties["maxThreadsPerBlock"],
        properties["sharedMemPerBlock"],
        properties["major"],
        properties["minor"],
        0,
        0,
    )

    def debayer(source: int, target: int, width: int, height: int) -> None:
        context.stream = cupy.cuda.get_current_stream().ptr
        status = function(
            ctypes.c_void_p(source),
            width,
            Size(width, height),
            Rect(0, 0, width, height),
            ctypes.c_void_p(target),
            3 * width,
            1,  # NPPI_BAYER_RGGB
            0,  # NPPI_INTER_UNDEFINED: the only one it takes, bilinear
            context,
        )
        if status != 0:
            raise RuntimeError(f"nppiCFAToRGB_8u_C1C3R_Ctx returned {status}")

    return debayer
