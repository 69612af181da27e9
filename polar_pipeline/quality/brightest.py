"""Brightest angles of a frame's superpixels, by which exposure is judged: one saturated angle spoils DoLP and AoLP."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.backends.cpu.library import KernelsError, load_kernels
from polar_pipeline.sensor.frames import MIN_SIDE, Frame, FrameError, RawFrame

#: Superpixels that are enough, and every how many rows and columns of superpixels one counts, if that leaves enough.
#: Of 2448x2048 pixels 1/16 counts. Rows that are far apart cost less: a row is read from memory whole.
ENOUGH, STRIDES = 1 << 16, ((8, 2), (4, 1), (2, 1), (1, 1))
#: Ranks of the distribution of the brightest angles, 0 to 1.
RANKS = np.linspace(0, 1, 65)[:-1]
#: Most bits of a pixel that are told apart.
_BITS = 12


class BrightestAngles(NamedTuple):
    """Brightest angles of the superpixels of a frame.

    Attributes:
        level: Percentile, as a share of full scale, 0 to 1.
        saturated: Share of the superpixels with a saturated angle, 0 to 1.
        levels: Those at the ranks `RANKS`, as shares of full scale, saturated ones 1; None if unknown.
    """

    level: float
    saturated: float
    levels: Optional[np.ndarray] = None


def measure_brightest(frame: Frame, percentile: float = 99.5, roi: Tuple[int, ...] = (0, 0, 0, 0)) -> BrightestAngles:
    """Measure the brightest angles of a sample of a frame's superpixels, which takes about 0.3 ms.

    Args:
        frame: Mosaic as numbers or packed.
        percentile: 0 to 100.
        roi: Region of the frame; it and its errors are those of `exposure_region`.
    """
    region = exposure_region(roi, frame.shape)
    count = region[2] * region[3] // 4
    strides = next(pair for pair in STRIDES if count >= ENOUGH * pair[0] * pair[1] or pair == (1, 1))
    full_scale = frame.full_scale
    shift = max(0, full_scale.bit_length() - _BITS)
    histogram = np.zeros((full_scale >> shift) + 2, np.uint32)
    if isinstance(frame, RawFrame) and frame.mosaic.strides[1] != frame.mosaic.itemsize:
        frame = RawFrame(np.ascontiguousarray(frame.mosaic), full_scale)
    try:
        load_kernels().count_brightest(histogram, frame, (*region, *strides), shift)
    except KernelsError:  # without compiled kernels, all superpixels count
        x, y, width, height = region
        mosaic = frame.unpack().mosaic[y : y + height // 2 * 2, x : x + width // 2 * 2]
        peaks = mosaic.reshape(height // 2, 2, width // 2, 2).max((1, 3)).astype(np.int64)
        np.add.at(histogram, np.where(peaks >= full_scale, len(histogram) - 1, peaks >> shift), 1)
    sums = np.cumsum(histogram)
    positions = np.append(RANKS, percentile / 100) * sums[-1]
    bins = np.searchsorted(sums, positions)
    # a number stands for all light that rounds to it
    inside = 1 - (sums[bins] - positions) / np.maximum(histogram[bins], 1)
    levels = np.clip(((bins + inside) * (1 << shift) - 0.5) / full_scale, 0, 1)
    levels[bins == len(histogram) - 1] = 1
    return BrightestAngles(float(levels[-1]), float(histogram[-1] / sums[-1]), levels[:-1])


def exposure_region(roi: Tuple[int, ...], shape: Tuple[int, int]) -> Tuple[int, int, int, int]:
    """Return a region (x, y, width, height) of a frame with even x and y; a size of 0 extends to the border.

    Raises:
        FrameError: The region does not lie within the frame's (height, width), or is too small (cause `exposure`).
    """
    x, y = (place // 2 * 2 for place in roi[:2])
    width, height = roi[2] or shape[1] - x, roi[3] or shape[0] - y
    if x + width > shape[1] or y + height > shape[0] or min(width, height) < MIN_SIDE:
        raise FrameError(
            "exposure",
            f"camera.exposure_roi must lie within {shape[1]}x{shape[0]} pixels and have {MIN_SIDE}x{MIN_SIDE} of them, "
            f"got {list(roi)}",
        )
    return x, y, width, height
