"""Noise of a sensor from pairs of frames: the photon transfer curve."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

import numpy as np

from polar_pipeline.tools.calibrate.reductions import robust_deviation
from polar_pipeline.tools.calibrate.sums import NoisePoint

#: Points of the curve above this share of full scale do not count: clipping narrows their noise.
_HIGHEST = 0.9
#: The brightest point must be at least this share of full scale above the black level.
_BRIGHT = 0.02
#: Minimum slope that is noise of electrons: ten million at full scale.
_MIN_SLOPE = 1e-7
#: Iterations of the robust fit, and its limit in standard deviations (Huber).
_ITERATIONS, _HUBER = 20, 1.5


class Noise(NamedTuple):
    """Noise of every pixel: electrons at full scale, and the standard deviation of a reading in electrons."""

    full_well: float
    read_noise: float

    def variance(self, signal: np.ndarray) -> np.ndarray:
        """Compute the variance of one frame in squares of full scale; signal excludes the black level."""
        variance: np.ndarray = np.maximum(signal, 0) / self.full_well + (self.read_noise / self.full_well) ** 2
        return variance


def fit_noise(points: Sequence[NoisePoint], black: float, level: float) -> Optional[Noise]:
    """Fit full well and read noise by ``variance = (signal - black) / full_well + (read noise/full_well)^2``.

    Returns None if the points do not determine a line: no pairs, or no light. Mean black level and one level are shares
    of full scale; rounding to a level adds 1/12 of its square to the variance.
    """
    rounding = level**2 / 12
    dithered = 3 * rounding  # half a level: below it, rounding is no noise of its own
    used = [point for point in points if point.signal < _HIGHEST and point.variance > dithered]
    if len(used) < 2:
        return None
    rows = np.array([(point.signal - black, point.variance, point.pixels) for point in used])
    signal, measured, pixels = rows.T
    if signal.max() < _BRIGHT:
        return None
    design, weights = np.stack([signal, np.ones_like(signal)], 1), np.ones(len(used))
    slope, base = float(np.median(measured / np.maximum(signal, _BRIGHT))), 0.0
    for _ in range(_ITERATIONS):
        expected = np.maximum(slope * signal, 0) + max(base, 0.0) + rounding
        sigma = expected * np.sqrt(2 / pixels) + rounding / 10  # of a measured variance
        root = np.sqrt(weights) / sigma
        slope, base = np.linalg.lstsq(design * root[:, np.newaxis], (measured - rounding) * root, rcond=None)[0]
        distance = np.abs((measured - rounding - slope * signal - base) / sigma)
        scale = max(1.0, robust_deviation(distance))
        weights = np.minimum(1, _HUBER * scale / np.maximum(distance, 1e-12))
    if slope <= _MIN_SLOPE:
        return None
    return Noise(float(1 / slope), float(np.sqrt(max(base, 0.0)) / slope))
