"""Smooth surfaces over the sensor: polynomials in x and y, which go from -1 to 1 over its pixels."""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

import numpy as np

from polar_pipeline.calibrate.reductions import robust_deviation

#: With fewer blocks than the first number the degree is 1 at most, than the second 0.
_FEW_BLOCKS = (60, 8)
#: Fits; each leaves out the blocks that deviate by more than `_OUTLIER` robust standard deviations from the last.
_ROUNDS, _OUTLIER = 4, 4.0


class Surface(NamedTuple):
    """A polynomial.

    Attributes:
        terms: (P,), factors of the products of powers.
        shape: (height, width) of the sensor.
    """

    terms: np.ndarray
    shape: Tuple[int, ...]

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return (n,): the values at places (x, y)."""
        return _design(places, _degree_of(len(self.terms))) @ self.terms

    def values(self, rows: slice = slice(None)) -> np.ndarray:
        """Return (h, W) float32: the values of the pixels in some rows."""
        degree = _degree_of(len(self.terms))
        y, x = (np.vander(np.linspace(-1, 1, side), degree + 1, increasing=True) for side in self.shape)
        factors = np.zeros((degree + 1, degree + 1))
        factors[tuple(zip(*_powers(degree)))] = self.terms  # by the exponents of x and y
        values: np.ndarray = (y[rows] @ factors.T).astype(np.float32) @ x.T.astype(np.float32)
        return values


def fit_surface(
    values: np.ndarray, counts: np.ndarray, places: np.ndarray, shape: Tuple[int, ...], degree: int = 4
) -> Surface:
    """Fit a surface through means of blocks, robustly.

    Args:
        values: (n,) means.
        counts: (n,) pixels in each block.
        places: (n, 2), x and y of their centers.
        shape: (height, width) of the sensor.
        degree: Highest sum of the exponents of x and y.
    """
    degree = degree if len(values) >= _FEW_BLOCKS[0] else 1 if len(values) >= _FEW_BLOCKS[1] else 0
    design = _design(places, degree)
    weights = np.sqrt(counts)
    for _ in range(_ROUNDS):
        terms = np.linalg.lstsq(design * weights[:, np.newaxis], values * weights, rcond=None)[0]
        errors = values - design @ terms
        weights = np.where(np.abs(errors) <= _OUTLIER * robust_deviation(errors) + 1e-12, np.sqrt(counts), 0)
    return Surface(terms, shape)


def block_places(shape: Tuple[int, ...], side: int) -> np.ndarray:
    """Return (h, w, 2): x and y of the centers of blocks of `side` pixels; the last ones may be smaller."""
    starts = [np.arange(0, length, side) for length in shape]
    y, x = ((start + np.minimum(start + side, length) - 1) / (length - 1) - 1 for start, length in zip(starts, shape))
    return np.stack(np.meshgrid(x, y), -1)


def _design(places: np.ndarray, degree: int) -> np.ndarray:
    """Return (n, P): the products of powers at places."""
    return np.stack([places[:, 0] ** i * places[:, 1] ** j for i, j in _powers(degree)], 1)


def _powers(degree: int) -> List[Tuple[int, int]]:
    """List the exponents of x and y."""
    return [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i)]


def _degree_of(count: int) -> int:
    """Return the degree of a polynomial of so many terms."""
    return next(degree for degree in range(count) if len(_powers(degree)) == count)
