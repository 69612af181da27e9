"""Pictures of a sensor's pixels for the report: means over blocks, and places of defects."""

from __future__ import annotations

from typing import Tuple

import cv2
import numpy as np

from polar_pipeline.calibrate.reductions import reduce_blocks
from polar_pipeline.replay.picture import viridis

#: Longest side of a picture in pixels.
SIDE = 480
#: Colors of a picture of defects: pixels that can be used, and those that cannot.
GOOD, BAD = (40, 44, 52), (255, 255, 255)


def block_side(shape: Tuple[int, int], least: int, period: int) -> int:
    """Return the side of a block in pixels: a multiple of the mosaic's period that limits a picture to `SIDE`.

    Args:
        shape: (height, width) of the sensor.
        least: 1 where single pixels can be shown, else `period`.
        period: Pixels after which the mosaic repeats.
    """
    needed = -(-max(shape) // SIDE)
    return needed if needed <= least == 1 else -(-needed // period) * period


def block_means(image: np.ndarray, used: np.ndarray, side: int) -> np.ndarray:
    """Compute means over blocks of usable pixels; NaN in blocks without any.

    Args:
        image: (H, W).
        used: (H, W) bool.
        side: Side of a block in pixels; those at the right and the bottom may be smaller.

    Returns:
        (h, w) float64.
    """
    counts = reduce_blocks(np.add, used.astype(np.float64), side)
    sums = reduce_blocks(np.add, np.where(used, image, 0.0), side)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def robust_ends(values: np.ndarray, share: float) -> Tuple[float, float]:
    """Return the values below and above which a share of all values lies; NaN does not count."""
    low, high = np.percentile(values[~np.isnan(values)], [100 * share, 100 * (1 - share)])
    return float(low), float(high)


def map_picture(values: np.ndarray, ends: Tuple[float, float]) -> np.ndarray:
    """Paint numbers by the color map viridis; NaN is black.

    Args:
        values: (h, w), neither side longer than `SIDE`.
        ends: Values of the first and the last color; what lies beyond takes the color of the nearer one.

    Returns:
        (h', w', 3) uint8 RGB, enlarged by an integer factor if it is small.
    """
    low, high = ends
    rgb = viridis(np.nan_to_num((values - low) / ((high - low) or 1)))
    rgb[np.isnan(values)] = 0
    return _enlarged(rgb)


def defect_picture(causes: np.ndarray) -> np.ndarray:
    """Paint the places of defects, each at least two pixels wide.

    Args:
        causes: (H, W), not 0 where a pixel cannot be used.

    Returns:
        (h, w, 3) uint8 RGB, in `GOOD` and `BAD`; a block of pixels is `BAD` if any of its pixels is.
    """
    side = block_side(causes.shape, 1, 1)
    bad = reduce_blocks(np.maximum, (causes > 0).astype(np.uint8), side)
    if max(bad.shape) > SIDE // 2:  # one pixel of the picture may be lost on a screen
        bad = cv2.dilate(bad, np.ones((3, 3), np.uint8))
    return _enlarged(np.array([GOOD, BAD], np.uint8)[bad])


def _enlarged(rgb: np.ndarray) -> np.ndarray:
    """Repeat every pixel of a picture as often as fits in `SIDE`."""
    factor = max(1, SIDE // max(rgb.shape[:2]))
    return np.repeat(np.repeat(rgb, factor, 0), factor, 1)
