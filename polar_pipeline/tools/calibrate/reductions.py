"""Parts and reductions of images, and of errors."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from polar_pipeline.sensor.mosaic import ANGLES, Sensor


def superpixels(image: np.ndarray, sensor: Sensor, phase: Tuple[int, int] = (0, 0)) -> np.ndarray:
    """Return (4, h, w): the pixels of complete superpixels of an image, in the order of `ANGLES`.

    Args:
        image: (H, W).
        sensor: The mosaic of the image.
        phase: (row, column) of the image's first pixel in its superpixel.
    """
    top, left = phase
    height, width = ((side - start) // 2 for side, start in zip(image.shape, phase))
    places = map(sensor.as_read_out((left, top)).position, ANGLES)
    return np.stack([image[top + r :: 2, left + c :: 2][:height, :width] for r, c in places])


def stokes(pixels: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return S0, S1 and S2 of (4, ...) superpixels."""
    i0, i45, i90, i135 = pixels
    return (i0 + i45 + i90 + i135) / 2, i0 - i90, i45 - i135


def block_side(shape: Tuple[int, ...], period: int, blocks: int, periods: int = 2) -> int:
    """Return the side in pixels, a multiple of `period`, of at most `blocks` blocks along the longer side of a shape.

    Args:
        shape: (H, W).
        period: Pixels after which the mosaic repeats.
        blocks: Blocks along the longer side, at most.
        periods: Least number of periods in a side.
    """
    return period * max(periods, -(-max(shape) // (blocks * period)))


def reduce_blocks(operation: np.ufunc, images: np.ndarray, side: int) -> np.ndarray:
    """Reduce (..., H, W) to (..., ceil(H / side), ceil(W / side)): blocks of `side` x `side` by `np.add` or similar.

    Those at the right and the bottom may be smaller.
    """
    tops, lefts = (np.arange(0, length, side) for length in images.shape[-2:])
    reduced: np.ndarray = operation.reduceat(operation.reduceat(images, tops, -2), lefts, -1)
    return reduced


def robust_deviation(errors: np.ndarray) -> float:
    """Estimate the standard deviation of errors, fewer than half of them outliers, by the median of their amounts."""
    return 1.4826 * float(np.median(np.abs(errors)))
