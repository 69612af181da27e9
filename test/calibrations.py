"""Calibrations of sensors whose pixels deviate, for tests."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.sensor.mosaic import SENSORS, Sensor

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
