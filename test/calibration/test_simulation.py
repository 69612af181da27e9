"""The simulated sensor against the model's formula, its statistics, and the ideal sensor."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import pytest

from polar_pipeline.calibration.simulation import DEAD, LEAKY, STUCK, Deviations, SimulatedSensor, simulate_sensor
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS, Sensor

MONO, COLOR = SENSORS["IMX250MZR"], SENSORS["IMX250MYR"]
#: No two pixels differ.
IDEAL = Deviations(0.0, 0.0, (1e12, 0.0), (0.0, 0.0), (0.0, 0.0))


def light(is_color: bool, shape: Tuple[int, int] = (64, 96)) -> np.ndarray:
    """Any scene with S0 up to 1, polarized by up to 0.7."""
    rng = np.random.default_rng(3)
    s0 = rng.uniform(0.2, 1, (*shape, 3, 1) if is_color else (*shape, 1))
    return np.concatenate([s0, s0 * rng.uniform(-0.5, 0.5, (*s0.shape[:-1], 2))], -1)


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
@pytest.mark.parametrize("bit_depth", [8, 12])
def test_a_sensor_without_deviations_is_the_ideal_one(sensor: Sensor, bit_depth: int) -> None:
    camera = simulate_sensor(sensor, (64, 96), 0, IDEAL)
    scene = light(sensor.is_color)
    np.testing.assert_array_equal(camera.expose(scene, bit_depth), expose(scene, sensor, bit_depth))
    noisy = camera.expose(scene, bit_depth, np.random.default_rng(1))
    np.testing.assert_array_equal(noisy, expose(scene, sensor, bit_depth, 1e4, 2.5, np.random.default_rng(1)))


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
def test_pixels_follow_the_formula(sensor: Sensor) -> None:
    """I = d + g/2 (S0 + c S1 + s S2), pixel by pixel, by the tile as it is printed; rounding allows half a level."""
    camera = simulate_sensor(sensor, (16, 20), 5, Deviations(shading=0.4))
    scene = light(sensor.is_color, (16, 20))
    raw = camera.expose(scene, 16, exposure=0.7, temperature_offset=10) / 65535
    for y in range(16):
        for x in range(20):
            angle = 2 * np.deg2rad(sensor.angles[y % 2][x % 2] + camera.deviation[y, x])
            m = (camera.extinction[y, x] - 1) / (camera.extinction[y, x] + 1)
            s0, s1, s2 = scene[y, x, sensor.colors[y % 4][x % 4]] if sensor.is_color else scene[y, x]
            seen = camera.gain[y, x] / 2 * (s0 + m * np.cos(angle) * s1 + m * np.sin(angle) * s2)
            black = camera.black[y, x] + 10 * camera.drift[y, x]
            assert abs(raw[y, x] - black - 0.7 * camera.shade[y, x] * seen) <= 0.51 / 65535


def test_statistics_are_those_asked_for() -> None:
    """Means and deviations of 24576 pixels; their own standard errors are 0.6 % and below of the deviations."""
    camera = simulate_sensor(MONO, (128, 192), 1, Deviations(defects=0.03))
    good = camera.defects == 0
    assert camera.gain[good].std() == pytest.approx(0.01, rel=0.03)
    assert camera.deviation.std() == pytest.approx(0.8, rel=0.03)
    assert abs(camera.deviation.mean()) < 0.03
    assert camera.extinction.mean() == pytest.approx(300, rel=0.02)
    assert camera.extinction.std() == pytest.approx(80, rel=0.03)
    assert camera.extinction.min() >= 50
    assert camera.black.mean() == pytest.approx(0.008, rel=0.01)
    assert camera.black.std() == pytest.approx(0.0015, rel=0.03)
    # 0.03 of 24576 are 737, with a standard deviation of 27; a third of each kind
    assert 737 - 5 * 27 < (~good).sum() < 737 + 5 * 27
    for kind in (LEAKY, DEAD, STUCK):
        assert 246 - 5 * 16 < (camera.defects == kind).sum() < 246 + 5 * 16


def test_defective_pixels() -> None:
    camera = simulate_sensor(MONO, (64, 96), 0, Deviations(defects=0.05))
    dark, bright = (camera.expose(np.array([s0, 0.0, 0.0]), 16) / 65535.0 for s0 in (0.0, 0.5))
    dead, stuck, leaky = (camera.defects == kind for kind in (DEAD, STUCK, LEAKY))
    np.testing.assert_array_equal(dark[dead | stuck], bright[dead | stuck])
    assert (bright - dark)[leaky].min() > 0.2
    assert (dark - camera.black)[leaky].min() > 0.04
    assert np.abs((dark - camera.black)[camera.defects == 0]).max() <= 0.51 / 65535


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
@pytest.mark.parametrize("flat_field", [False, True])
def test_parameters_correct_to_second_order(sensor: Sensor, flat_field: bool) -> None:
    """With the true Stokes vector in place of the superpixel's, the correction is exact, up to the mean gain."""
    camera = simulate_sensor(sensor, (64, 96), 2, Deviations(shading=0.3 if flat_field else 0.0))
    found = camera.parameters(flat_field)
    vector = np.array([0.8, 0.4, -0.3])
    scene = np.broadcast_to(vector, (*camera.shape, 3, 3) if sensor.is_color else (*camera.shape, 3))
    z = (camera.expose(scene, 16) / 65535 - found.black) * found.gain
    ideal = expose(scene, sensor, 16) / 65535
    # e1 and e2 are by the light at the pixel, which gain and shade scale: z holds their product with it
    signal = (z / relative(camera, flat_field) + found.e1 * vector[1] + found.e2 * vector[2]) / ideal
    np.testing.assert_allclose(signal, 1, rtol=0, atol=3e-4)  # rounding of the dimmest pixels, 0.15, and of ideal


def relative(camera: SimulatedSensor, flat_field: bool) -> np.ndarray:
    """Mean gain of each pixel's colour, found by slices of the tile."""
    gain = camera.gain * camera.shade if flat_field else camera.gain
    if not camera.sensor.is_color:
        return np.full(camera.shape, gain.mean())
    rows, columns = np.indices(camera.shape)
    colors = np.array(camera.sensor.colors)[rows % 4, columns % 4]
    return np.choose(colors, [gain[colors == color].mean() for color in range(3)])


def test_shares_shapes_and_depths_out_of_range_are_refused() -> None:
    for deviations in (Deviations(defects=1.0), Deviations(shading=-0.1), Deviations(shading=1.0)):
        with pytest.raises(ValueError, match="must be in"):
            simulate_sensor(MONO, (16, 16), 0, deviations)
    camera = simulate_sensor(MONO, (16, 16))
    with pytest.raises(ValueError, match="bit_depth must be 8 to 16, got 7"):
        camera.expose(np.zeros(3), 7)
    with pytest.raises(ValueError, match="broadcast"):
        camera.expose(np.zeros((5, 5, 3)))
