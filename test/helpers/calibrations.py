"""Calibrations of sensors whose pixels deviate, and of lenses, for tests."""

from __future__ import annotations

from typing import Dict, Tuple

import cv2
import numpy as np

from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.geometry import LensCalibration, make_lens
from polar_pipeline.sensor.mosaic import SENSORS, Sensor, get_sensor

#: (height, width) of the calibrated region, more than any frame of the tests.
REGION = (96, 112)


def some_calibration(
    sensor: Sensor,
    shape: Tuple[int, int] = REGION,
    offset: Tuple[int, int] = (0, 0),
    seed: int = 0,
    defects: float = 0.01,
) -> Calibration:
    """A sensor with deviations several times those of real ones, so that what is wrong shows."""
    rng = np.random.default_rng(seed)
    parameters = _random_parameters(rng, shape, (0.01, 0.004), 0.05)
    return Calibration.from_parameters(parameters, sensor, offset, rng.random(shape) < defects)


def mild_calibration(shape: Tuple[int, int] = REGION, defects: float = 0.01) -> Calibration:
    """A mono sensor with twice the deviations of real ones, which the CPU still corrects in 16-bit integers."""
    rng = np.random.default_rng(0)
    parameters = _random_parameters(rng, shape, (0.01, 0.002), 0.02)
    return Calibration.from_parameters(parameters, SENSORS["IMX250MZR"], defects=rng.random(shape) < defects)


def defective_calibration(sensor: str, shape: Tuple[int, int], seed: int = 0, defects: int = 12) -> Calibration:
    """A sensor whose pixels deviate by a percent, with defects, of which two are neighbors."""
    rng, bad = np.random.default_rng(seed), np.zeros(shape, bool)
    parameters = _random_parameters(rng, shape, (0.01, 0.002), 0.01)
    bad[tuple(rng.integers(2, side - 4, defects) for side in shape)] = defects > 0
    bad[10, 12:14] = defects > 0
    return Calibration.from_parameters(parameters, get_sensor(sensor), defects=bad)


def realistic_calibration(sensor: Sensor, shape: Tuple[int, int]) -> Calibration:
    """A sensor with deviations as real ones have them, without defects."""
    parameters = _random_parameters(np.random.default_rng(2), shape, (0.008, 0.0015), 0.01)
    return Calibration.from_parameters(parameters, sensor)


def _random_parameters(
    rng: np.random.Generator, shape: Tuple[int, int], offset: Tuple[float, float], deviation: float
) -> PixelParameters:
    """Parameters drawn at random: mean and deviation of the offset; deviation of the gain and of the analyzer."""
    return PixelParameters(
        rng.normal(*offset, shape), rng.normal(1, deviation, shape), *rng.normal(0, deviation, (2, *shape))
    )


def ideal_calibration(sensor: Sensor, shape: Tuple[int, int] = REGION) -> Calibration:
    """A sensor without deviations."""
    zero = np.zeros(shape)
    return Calibration.from_parameters(PixelParameters(zero, zero + 1, zero, zero), sensor)


#: Coefficients of each lens model.
MODELS: Dict[str, Tuple[float, ...]] = {
    "plumb_bob": (-0.25, 0.06, 0.01, -0.02, 0.003),
    "rational_polynomial": (0.3, 0.05, 0.01, -0.02, 0.003, 0.5, 0.1, 0.01),
    "equidistant": (0.02, -0.01, 0.003, 0.001),
}


def lens(shape: Tuple[int, int], model: str = "plumb_bob", turned: bool = False, zoom: float = 1.0) -> LensCalibration:
    """A wide lens in front of frames of (height, width); `turned` as the left one of a stereo camera."""
    height, width = shape
    k = (0.75 * width, 0, 0.48 * width, 0, 0.74 * width, 0.53 * height, 0, 0, 1)
    r, p = np.zeros(9), np.zeros(12)
    if turned:
        r = cv2.Rodrigues(np.array([0.03, -0.04, 0.15]))[0].reshape(-1)
    if turned or zoom != 1:
        f = 0.7 * width * zoom
        p = np.array([f, 0, width / 2, -20, 0, f, height / 2, 0, 0, 0, 1, 0])
    return make_lens(shape, model, MODELS[model], k, r, p)


def turned(world: np.ndarray, rotate: int) -> np.ndarray:
    """Points (n, 3) in the axes of a camera rotated as its image is, counter-clockwise: x to the right, y down."""
    x, y, z = world.T
    for _ in range(rotate // 90):
        x, y = y, -x
    return np.stack([x, y, z], -1)
