"""From a simulated sensor through its calibration to the products of a pipeline, against the simulated light."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import pytest
from sessions import estimate

from polar_pipeline import Pipeline
from polar_pipeline.calibrate.simulation import SimulatedSensor, simulate_sensor
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.sensor.mosaic import SENSORS

SHAPE = (64, 96)


def errors(camera: SimulatedSensor, calibration: Calibration, dolp: float, **options: Any) -> Tuple[float, float]:
    """Root mean square errors of DoLP and AoLP (degrees) in even light without noise, S0 = 1, 12 bit."""
    degrees, angles = [], []
    with Pipeline(camera.sensor, ("dolp", "aolp"), "cpu", bit_depth=12, calibration=calibration, **options) as pipeline:
        for aolp in np.arange(0, 180, 22.5):
            turn = np.deg2rad(2 * aolp)
            stokes = np.array([1.0, dolp * np.cos(turn), dolp * np.sin(turn)])
            out = pipeline(camera.expose(np.array([stokes] * 3) if camera.sensor.is_color else stokes))
            degrees.append(out["dolp"] - dolp)
            angles.append((np.rad2deg(out["aolp"]) - aolp + 90) % 180 - 90)
    return float(np.sqrt(np.mean(np.square(degrees)))), float(np.sqrt(np.mean(np.square(angles))))


@pytest.mark.parametrize("name", list(SENSORS))
@pytest.mark.parametrize("resolution", ["half", "full"])
def test_errors_are_an_eighth_of_those_with_dark_subtraction(name: str, resolution: str) -> None:
    """Each angle at its own site, and bilinear at full resolution, where neighbors blur both errors alike."""
    camera = simulate_sensor(SENSORS[name], SHAPE, 5)
    calibration = estimate(camera).calibration
    zero, defects = np.zeros(SHAPE), np.zeros(SHAPE, bool)
    defects[tuple(calibration.defects.T)] = True
    dark_only = Calibration.from_parameters(
        PixelParameters(calibration.parameters().black, zero + 1, zero, zero), camera.sensor, defects=defects
    )
    options = {"resolution": resolution, "demosaic": "bilinear", "co_sited": resolution == "full"}
    for dolp in (0.05, 0.3, 0.9):
        before, after = (errors(camera, one, dolp, **options) for one in (dark_only, calibration))
        assert before[0] > 8 * after[0], dolp
        assert before[1] > 8 * after[1], dolp
