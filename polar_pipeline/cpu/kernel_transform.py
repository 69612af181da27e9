"""The linear planes of a frame and the map of an output, as the CPU kernels (`kernels/cpu/geometry.cpp`) take them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import List, Optional

import numpy as np

from polar_pipeline.geometry import SamplingMap

#: Why a pixel is invalid, in `LinearPlanes.flags` and in the masks of an output.
SATURATED, DARK, OUTSIDE = 1, 2, 4


@dataclass(frozen=True)
class LinearPlanes:
    """What is interpolated: it depends linearly on the intensities, so that means of it are physical.

    Attributes:
        channels: (H, W, 4) float32 of each colour: I0 + I90, I45 + I135, S1 and S2.
        flags: (H, W) uint8: `SATURATED`, `DARK` or 0.
        scale: One unit of them as a share of full scale.
    """

    channels: List[np.ndarray]
    flags: np.ndarray
    scale: float


class KernelTransform(ctypes.Structure):
    """Planes of one colour and a map. Build it with `kernel_transform`, and keep both while it is used."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("linear", "flags", "rows", "positions", "turns")),
        *((name, ctypes.c_int64) for name in ("source_width", "origin", "right", "down")),
        *((name, ctypes.c_int32) for name in ("scale", "height", "width")),
        ("turn", ctypes.c_float),
        ("next", ctypes.c_int32),
    ]


@dataclass(frozen=True)
class InvalidPixels:
    """Where pixels of the planes are invalid.

    Attributes:
        flags: Those of the planes.
        rows: (H,) uint8: not 0 where a row has such a pixel, so that the others need not be looked at.
    """

    flags: np.ndarray
    rows: np.ndarray


def kernel_transform(channel: np.ndarray, invalid: Optional[InvalidPixels], sampling: SamplingMap) -> KernelTransform:
    """Planes of one colour and a map as the kernels take them.

    Args:
        channel: (H, W, 4) float32.
        invalid: Its invalid pixels; None where there are none.
        sampling: The map.
    """
    width = sampling.source[1]
    (right, down, origin) = (int(column + width * row) for column, row in sampling.corner.T)
    flags, rows = (None, None) if invalid is None else (invalid.flags, invalid.rows)
    arrays = (channel, flags, rows, sampling.positions, sampling.turns)
    addresses = (None if array is None else array.ctypes.data for array in arrays)
    return KernelTransform(
        *addresses,
        *(width, origin, right, down, sampling.scale, *sampling.size, sampling.turn),
    )
