"""Smooth surfaces over the sensor: polynomials in x and y, which go from -1 to 1 over its pixels."""

from __future__ import annotations

import math
from typing import NamedTuple, Tuple

import numpy as np
from numpy.polynomial import polynomial

from polar_pipeline.tools.calibrate.reductions import robust_deviation

#: Degree, the highest sum of the exponents of x and y -> fewest blocks for it. Light that meets the polarizer at a
#: slant follows the square of the distance to the center, and near 30 degrees also its fourth power.
_FEWEST_BLOCKS = {4: 60, 1: 8, 0: 0}
#: Fits; each leaves out the blocks that deviate by more than `_OUTLIER` robust standard deviations from the last.
_ROUNDS, _OUTLIER = 4, 4.0


class Surface(NamedTuple):
    """A polynomial.

    Attributes:
        terms: (degree + 1, degree + 1), factors by the exponents of x and y; 0 where their sum exceeds the degree, and
            for exponents that too few blocks along an axis determine.
        shape: (height, width) of the sensor.
    """

    terms: np.ndarray
    shape: Tuple[int, ...]

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
    """Fit a surface through means of blocks, robustly.

    Args:
        values: (n,) means.
        counts: (n,) pixels in each block.
        places: (n, 2), x and y of their centers.
        shape: (height, width) of the sensor.
    """
    degree = next(degree for degree, fewest in _FEWEST_BLOCKS.items() if len(values) >= fewest)
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
