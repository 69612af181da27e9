"""Reductions of images and of errors."""

from __future__ import annotations

from typing import Tuple

import numpy as np


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
