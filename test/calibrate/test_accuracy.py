"""What a calibration is for: errors of DoLP and AoLP, on a simulated sensor, against those without it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from sessions import BENCH, electrons, estimate, polarization_errors

from polar_pipeline.calibrate.estimate import CalibrationResult
from polar_pipeline.calibrate.simulation import SimulatedSensor, simulate_sensor
from polar_pipeline.sensor.mosaic import SENSORS

DEGREES = (0.05, 0.3, 0.9, 0.95)


@lru_cache(maxsize=1)
def camera() -> SimulatedSensor:
    """Gains of +-1 %, angles of +-0.8 degrees, ER 300 +-80, black level 0.8 +-0.15 %, 10 000 electrons."""
    return simulate_sensor(SENSORS["IMX250MZR"], (64, 96), 11)


@lru_cache(maxsize=2)
def calibrated(are_known: bool) -> CalibrationResult:
    return estimate(camera(), angles=None if are_known else dict.fromkeys(range(18)))


@pytest.mark.parametrize("dolp", DEGREES)
@pytest.mark.parametrize(("are_known", "times"), [(True, 8.0), (False, 5.0)], ids=["known", "unknown"])
def test_errors_are_a_fraction_of_those_without_it(dolp: float, are_known: bool, times: float) -> None:
    """By the acceptance of the feature: at least 8 times smaller with known angles, 5 times with unknown ones."""
    result = calibrated(are_known)
    before = polarization_errors(camera(), dolp, None, result.black)
    after = polarization_errors(camera(), dolp, result.calibration.parameters(), result.black)
    assert before[0] > times * after[0]
    assert before[1] > times * after[1]


@pytest.mark.parametrize("dolp", DEGREES)
def test_errors_are_near_the_shot_noise_of_the_frames(dolp: float) -> None:
    """Within twice the limit that the electrons set.

    With N electrons of a pixel in all frames, no estimate of its response by amplitude is better than 1/sqrt(N). In
    even light of S0 = 1 a pixel's own error is that times its signal, so S1 and S2 each have at least
    sqrt(2) * 0.5 / sqrt(N), and so has the DoLP; the AoLP has it over 2 DoLP.
    """
    limit = np.sqrt(0.5 / electrons(camera(), BENCH))
    result = calibrated(True)
    of_dolp, of_aolp = polarization_errors(camera(), dolp, result.calibration.parameters(), result.black)
    assert of_dolp < 2 * limit
    assert of_aolp < 2 * np.rad2deg(limit / (2 * dolp))


@pytest.mark.parametrize("are_known", [True, False])
@pytest.mark.parametrize("dolp", DEGREES)
def test_stated_errors_are_those_found(dolp: float, are_known: bool) -> None:
    """To 25 %: the statement is of the first order, and leaves out what unknown angles and the smooth light add."""
    result = calibrated(are_known)
    (row,) = [row for row in result.errors if row.dolp == dolp]
    before = polarization_errors(camera(), dolp, None, result.black)
    after = polarization_errors(camera(), dolp, result.calibration.parameters(), result.black)
    assert (row.dolp_before, row.aolp_before) == pytest.approx(before, rel=0.03)
    assert (row.dolp_error, row.aolp_error) == pytest.approx(after, rel=0.25)


@pytest.mark.parametrize("dolp", DEGREES)
def test_stated_errors_include_rounded_black_levels(dolp: float) -> None:
    """At 8 bits and half the light, black levels that no noise dithers are most of the error."""
    result = estimate(camera(), replace(BENCH, light=0.4), 8)
    (row,) = [row for row in result.errors if row.dolp == dolp]
    after = polarization_errors(camera(), dolp, result.calibration.parameters(), result.black)
    assert (row.dolp_error, row.aolp_error) == pytest.approx(after, rel=0.25)
    assert after[0] > 1.5 * np.sqrt(0.5 / electrons(camera(), replace(BENCH, light=0.4)))
