"""Structure in the gains that is not the sensor's: texture of the lamp, or dirt on the polarizer."""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

import cv2
import numpy as np

from polar_pipeline.tools.calibrate.reductions import robust_deviation

#: Correlation of same-angle neighbors along both x and y from which gains are texture. Sensors have hardly any:
#: columns and rows of a readout deviate together along one axis, and are left out.
_CORRELATION = 0.25
#: Superpixels along the squares whose means are taken as lens and lamp, and how often they are subtracted: small ones
#: leave nothing of a lens where texture is looked for; larger ones leave large grains, where its error is measured.
_SEEN, _MEASURED = (17, 2), (33, 1)
#: Robust deviations to which pixels are limited; and tiles along a side, of which the median counts, as dust and the
#: corners of a lens are in few of them.
_OUTLIER, _TILES = 4.0, 4
#: Maximum factor by which the covariance falls from 2 to 4 pixels. That of grains of one pixel, which are hardly
#: visible, falls by more.
_MAX_FALL = 8.0


class Texture(NamedTuple):
    """Texture in the gains."""

    #: The lower of the correlations of pixels' gains with those two columns beside and two rows below.
    correlation: float
    is_visible: bool  # whether the correlation shows texture
    error: float  # error of DoLP that the texture makes; 0 without texture


def measure_texture(gain: np.ndarray, used: np.ndarray) -> Texture:
    """Measure the texture in gains relative to the light nearby, (H, W), without smooth light, columns and rows."""
    correlation = min(_medians(gain, used, *_SEEN)[:2])
    is_visible = correlation >= _CORRELATION
    square = _medians(gain, used, *_MEASURED)[2] if is_visible else 0.0
    return Texture(correlation, is_visible, float(np.sqrt(max(square, 0.0))))


def _medians(gain: np.ndarray, used: np.ndarray, side: int, rounds: int) -> List[float]:
    """Return the medians of `_measure` over tiles, without the means of squares of `side` superpixels."""
    deviation = np.zeros(gain.shape, np.float32)
    for at in ((slice(r, None, 2), slice(c, None, 2)) for r in range(2) for c in range(2)):
        own = np.where(used[at], gain[at] - 1, 0).astype(np.float32)
        for _ in range(rounds):
            own -= cv2.blur(own, (side, side), borderType=cv2.BORDER_REFLECT)
        for axis in range(2):
            own -= np.median(own, axis, keepdims=True)
        limit = _OUTLIER * robust_deviation(own)
        deviation[at] = np.clip(own, -limit, limit)
    count = _TILES if min(gain.shape) >= 16 * _TILES else 1
    tiles = [tile for band in np.array_split(deviation, count) for tile in np.array_split(band, count, 1)]
    medians: List[float] = np.median([_measure(tile) for tile in tiles], 0).tolist()
    return medians


def _measure(tile: np.ndarray) -> Tuple[float, float, float]:
    """Return the correlations along x and y, and the square of the error of DoLP."""
    near_x, near_y, far_x, far_y = (_covariance(tile, *step) for step in ((0, 2), (2, 0), (0, 4), (4, 0)))
    near, far, variance = max(near_x + near_y, 0.0) / 2, (far_x + far_y) / 2, max(float(tile.var()), 1e-12)
    # without distance: the covariance of blurred noise follows exp(-distance^2)
    whole = near * (near / max(far, near / _MAX_FALL, 1e-12)) ** (1 / 3)
    orthogonal = (_covariance(tile, 1, 1) + _covariance(tile[:, ::-1], 1, 1)) / 2
    return near_x / variance, near_y / variance, (whole - orthogonal) / 2


def _covariance(image: np.ndarray, rows: int, columns: int) -> float:
    """Return the mean product of pixels of mean 0 with those this many rows below and columns to the right."""
    height, width = image.shape
    return float(np.mean(image[rows:, columns:] * image[: height - rows, : width - columns]))
