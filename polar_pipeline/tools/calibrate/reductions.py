"""Parts and reductions of images, and smooth surfaces: polynomials in x and y from -1 to 1 over the sensor."""

from __future__ import annotations

import math
from typing import NamedTuple, Tuple

import numpy as np
from numpy.polynomial import polynomial

from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: Degree, the highest sum of the exponents of x and y -> minimum number of blocks. Light that meets the polarizer at a
#: slant follows the square of the distance to the center, and near 30 degrees also its fourth power.
_MIN_BLOCKS = {4: 60, 1: 8, 0: 0}
#: Fits; each leaves out the blocks that deviate by more than `_OUTLIER` robust standard deviations from the last.
_ROUNDS, _OUTLIER = 4, 4.0


def superpixels(image: np.ndarray, sensor: Sensor, phase: Tuple[int, int] = (0, 0)) -> np.ndarray:
    """Return (4, h, w): the pixels of complete superpixels of an image, in the order of `ANGLES`.

    `phase` is the (row, column) of the image's first pixel in its superpixel.
    """
    top, left = phase
    height, width = ((side - start) // 2 for side, start in zip(image.shape, phase))
    places = map(sensor.as_read_out((left, top)).position, ANGLES)
    return np.stack([image[top + r :: 2, left + c :: 2][:height, :width] for r, c in places])


def stokes(pixels: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return S0, S1 and S2 of (4, ...) superpixels."""
    i0, i45, i90, i135 = pixels
    return (i0 + i45 + i90 + i135) / 2, i0 - i90, i45 - i135


def block_side(shape: Tuple[int, ...], period: int, blocks: int, min_periods: int = 2) -> int:
    """Return the side in pixels, a multiple of `period`, of at most `blocks` blocks along the longer side of a shape.

    A side has at least `min_periods` of the mosaic's periods.
    """
    return period * max(min_periods, -(-max(shape) // (blocks * period)))


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


class Surface(NamedTuple):
    """A polynomial."""

    #: (degree + 1, degree + 1), factors by the exponents of x and y; 0 where their sum exceeds the degree, and for
    #: exponents that too few blocks along an axis determine.
    terms: np.ndarray
    shape: Tuple[int, ...]  # (height, width) of the sensor

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return (n,): the values at places (x, y)."""
        x, y = places.T
        values: np.ndarray = polynomial.polyval2d(x, y, self.terms)
        return values

    def values(self, rows: slice = slice(None)) -> np.ndarray:
        """Return (h, W) float32: the values of the pixels in some rows."""
        y, x = (polynomial.polyvander(np.linspace(-1, 1, side), len(self.terms) - 1) for side in self.shape)
        values: np.ndarray = (y[rows] @ self.terms.T).astype(np.float32) @ x.T.astype(np.float32)
        return values


def fit_surface(values: np.ndarray, counts: np.ndarray, places: np.ndarray, shape: Tuple[int, ...]) -> Surface:
    """Fit a surface robustly through n means of blocks, by the number of pixels in each and its center (x, y)."""
    degree = next(degree for degree, blocks in _MIN_BLOCKS.items() if len(values) >= blocks)
    x, y = places.T
    exponents = np.arange(degree + 1)
    used = exponents[:, np.newaxis] + exponents <= degree
    # blocks are squares: a strip has few along its short side, which determine fewer terms
    height, width = shape
    columns, rows = (round(math.sqrt(len(values) * ratio)) for ratio in (width / height, height / width))
    used[max(1, columns) :] = False
    used[:, max(1, rows) :] = False
    design = polynomial.polyvander2d(x, y, (degree, degree))[:, used.ravel()]
    weights = np.sqrt(counts)
    terms = np.zeros(used.shape)
    for _ in range(_ROUNDS):
        terms[used] = np.linalg.lstsq(design * weights[:, np.newaxis], values * weights, rcond=None)[0]
        errors = values - design @ terms[used]
        weights = np.where(np.abs(errors) <= _OUTLIER * robust_deviation(errors) + 1e-12, np.sqrt(counts), 0)
    return Surface(terms, shape)


def block_places(shape: Tuple[int, ...], side: int) -> np.ndarray:
    """Return (h, w, 2): x and y of the centers of blocks of `side` pixels; the last ones may be smaller."""
    starts = [np.arange(0, length, side) for length in shape]
    y, x = ((start + np.minimum(start + side, length) - 1) / (length - 1) - 1 for start, length in zip(starts, shape))
    return np.stack(np.meshgrid(x, y), -1)
