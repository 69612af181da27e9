"""Four numbers of a pixel in 32 bits: black level 8, gain 10, and 7 for each of the two terms of angle and extinction.

Each number is ``lowest + step * code``. For a sensor whose gains deviate by 1 %, angles by 0.8 degrees and black levels
by 0.15 % of full scale, with outliers up to eight times that, rounding has a standard deviation of a tenth to a third
of the noise of a calibration from 18 angles x 16 frames at 10 000 electrons.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple

import numpy as np


class Scale(NamedTuple):
    """Linear scale of a number's codes: ``lowest + step * code``."""

    lowest: float
    step: float


#: First bit and number of bits of the black level, the gain, e1 and e2.
FIELDS = ((0, 8), (8, 10), (18, 7), (25, 7))
Scales = Tuple[Scale, Scale, Scale, Scale]


def quantize(numbers: Tuple[np.ndarray, ...], used: np.ndarray) -> Tuple[np.ndarray, Scales]:
    """Encode the four numbers of every pixel; return the codes and their scales.

    Args:
        numbers: Four (H, W) images: black level, gain, e1 and e2.
        used: (H, W) bool: pixels whose numbers count; the range of those becomes that of the codes.

    Returns:
        (H, W) uint32, and the scales; equal numbers are kept exactly.
    """
    codes = np.zeros(used.shape, np.uint32)
    scales = []
    for image, (first, bits) in zip(numbers, FIELDS):
        of_used = image[used]
        lowest, highest = (float(of_used.min()), float(of_used.max())) if of_used.size else (0.0, 0.0)
        top = (1 << bits) - 1
        step = (highest - lowest) / top
        code = np.clip(np.rint((image - lowest) / step), 0, top) if step > 0 else np.zeros(image.shape)
        codes |= np.where(used, code, 0).astype(np.uint32) << np.uint32(first)
        scales.append(Scale(lowest, step))
    black, gain, e1, e2 = scales
    return codes, (black, gain, e1, e2)


def dequantize(codes: np.ndarray, scales: Scales, dtype: str = "float64") -> Tuple[np.ndarray, ...]:
    """Decode the four numbers of every pixel: images of the codes' shape."""
    found = []
    for (lowest, step), (first, bits) in zip(scales, FIELDS):
        code = (codes >> np.uint32(first)) & np.uint32((1 << bits) - 1)
        found.append((lowest + step * code.astype(dtype)).astype(dtype, copy=False))
    return tuple(found)
