"""The smooth part of the light on the sensor, by lamp and lens, which a calibration keeps."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from polar_pipeline.calibrate.reductions import reduce_blocks, robust_deviation
from polar_pipeline.sensor.forward import color_indices
from polar_pipeline.sensor.mosaic import CHANNELS, Sensor

#: Highest sum of the exponents of x and y in the polynomial.
_DEGREE = 4
#: Blocks along the longer side, of which the polynomial fits the means.
_BLOCKS = 64
#: Fits; each leaves out the blocks that deviate by more than `_OUTLIER` robust standard deviations from the last.
_ROUNDS, _OUTLIER = 4, 4.0


def smooth_light(level: np.ndarray, used: np.ndarray, sensor: Sensor) -> np.ndarray:
    """Fit a polynomial of degree 4 in x and y to the levels, separately for each color.

    Args:
        level: (H, W), mean signal of each pixel.
        used: (H, W) bool, pixels that count.
        sensor: The mosaic.

    Returns:
        (H, W), what `level` is without what differs from pixel to pixel.
    """
    colors = color_indices(sensor, level.shape)
    light = np.zeros(level.shape)
    for color in range(len(CHANNELS) if sensor.is_color else 1):
        channel = colors == color
        # Every block holds complete superpixels, since the levels of the four angles need not be equal.
        values, counts, places = _blocks(level, channel & used, sensor.period)
        light[channel] = _fitted(values, counts, places, level.shape)[channel]
    return light


def _blocks(level: np.ndarray, used: np.ndarray, period: int) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means over blocks, their pixel counts, and their centers (x, y) in [-1, 1], without empty blocks."""
    size = period * max(2, -(-max(level.shape) // (_BLOCKS * period)))
    counts = reduce_blocks(np.add, used.astype(np.float64), size)
    y, x = (np.linspace(-1, 1, side) for side in level.shape)
    centers = [reduce_blocks(np.add, used * along, size) for along in (x, y[:, np.newaxis])]
    keep = counts > 0
    places = np.stack([center[keep] / counts[keep] for center in centers], -1)
    sums = reduce_blocks(np.add, np.where(used, level, 0), size)
    return sums[keep] / counts[keep], counts[keep], places


def _fitted(values: np.ndarray, counts: np.ndarray, places: np.ndarray, shape: Tuple[int, ...]) -> np.ndarray:
    """Fit a polynomial through block means robustly, and evaluate it as (H, W)."""
    if not values.size:
        return np.ones(shape)
    degree = _DEGREE if len(values) >= 60 else 1 if len(values) >= 8 else 0
    powers = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i)]
    design = np.stack([places[:, 0] ** i * places[:, 1] ** j for i, j in powers], 1)
    weights = np.sqrt(counts)
    for _ in range(_ROUNDS):
        terms = np.linalg.lstsq(design * weights[:, np.newaxis], values * weights, rcond=None)[0]
        errors = values - design @ terms
        limit = _OUTLIER * robust_deviation(errors) + 1e-12
        weights = np.where(np.abs(errors) <= limit, np.sqrt(counts), 0)
    y, x = (np.linspace(-1, 1, side) for side in shape)
    light = np.zeros(shape)
    for term, (i, j) in zip(terms, powers):
        light += term * np.outer(y**j, x**i)
    return np.maximum(light, 1e-6 * float(values.max()))
