"""The estimator against the simulator's truth, and what it says about sessions that are not as they should be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest
from sessions import BENCH, electrons, estimate, record

from polar_pipeline.calibrate.defects import CAUSES
from polar_pipeline.calibrate.estimate import CalibrationResult, calibrate
from polar_pipeline.calibrate.simulation import (
    DEAD,
    LEAKY,
    STUCK,
    Bench,
    Deviations,
    SimulatedSensor,
    simulate_sensor,
    synthetic_session,
)
from polar_pipeline.calibrate.sums import DARK, SessionSums
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import SENSORS, Sensor

MONO, COLOR = SENSORS["IMX250MZR"], SENSORS["IMX250MYR"]
#: A short session: 9 angles, 4 frames each.
SHORT = Bench(tuple(range(0, 180, 20)), 4, 16)
#: Pixels of the simulated sensors.
SHAPE = (64, 96)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def check_parameters(camera: SimulatedSensor, result: CalibrationResult, bench: Bench, bits: int) -> None:
    """Found parameters minus true ones, each at most 1.2 times what theory says.

    Black level: read noise over the root of the dark frames, and rounding to codes; where rounding to levels exceeds
    the read noise, its 1/sqrt(12) of a level, which no number of frames takes away. Gain: 1/sqrt(N) of N electrons,
    that black level over the signal, and 15 terms of the smooth light from pixels of 1 %. e1 and e2: half the error
    of c and s, which for evenly weighted least squares is sqrt(2/N); weights make it smaller, a turn by the mean
    deviation of unknown angles larger.
    """
    good = camera.defects == 0
    truth, found = camera.parameters(), result.calibration.parameters()
    codes = np.array([scale.step for scale in result.calibration.scales]) / np.sqrt(12)
    level = 1 / ((1 << bits) - 1)
    read = camera.read_noise / camera.full_well
    rounding = level / np.sqrt(12) if read < level / 2 else level / np.sqrt(12 * bench.dark_frames)
    black = np.sqrt(read**2 / bench.dark_frames + rounding**2)
    count = electrons(camera, bench)
    pixels = good.sum() / (3 if camera.sensor.is_color else 1)
    signal = bench.light / 2 * (0.7 if camera.sensor.is_color else 1)
    dim = signal / (bench.light / 2)
    gain = np.sqrt(1 / (count * dim) + (black / signal) ** 2 + 15 * 0.01**2 / pixels)
    turn = np.sqrt(2 / (count * dim) + (black / signal) ** 2) / 2 + np.deg2rad(0.8) / np.sqrt(good.sum())
    for name, limit, code in zip(found._fields, (black, gain, turn, turn), codes):
        error = (getattr(found, name) - getattr(truth, name))[good]
        assert rms(error) < 1.2 * np.hypot(limit, code), name


@pytest.mark.parametrize("are_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("bits", [8, 12])
@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
def test_parameters_are_recovered(sensor: Sensor, bits: int, are_known: bool) -> None:
    camera = simulate_sensor(sensor, SHAPE, 3)
    result = estimate(camera, SHORT, bits, None if are_known else dict.fromkeys(range(9)))
    check_parameters(camera, result, SHORT, bits)
    assert not result.causes.any()
    assert result.warnings == []


def test_maps_are_recovered() -> None:
    """Angle and extinction ratio; m is known to sqrt(2/N), its mean over the pixels to a 78th of that."""
    camera = simulate_sensor(MONO, SHAPE, 4)
    result = estimate(camera)
    count = electrons(camera, BENCH)
    assert rms(result.angle - camera.deviation) < np.rad2deg(np.sqrt(2 / count) / 2)
    assert rms(result.gain / camera.gain - 1) < 1.2 * np.sqrt(1 / count + 15 * 0.01**2 / camera.gain.size)
    lost, truth = (2 / (1 + ratio) for ratio in (result.extinction, camera.extinction))  # 1 - m
    assert rms(lost - truth) < np.sqrt(2 / count)
    assert abs((lost - truth).mean()) < 4 * np.sqrt(2 / count / lost.size) + 2e-4  # black levels are rounded
    assert rms(result.black - camera.black) < 1.1 * np.sqrt((2.5e-4**2 + (1 / 4095) ** 2 / 12) / 64)
    # 15 degrees of freedom in 18 settings; noise explains what is left
    assert np.median(result.excess) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("bits", "full_well", "read_noise", "errors"),
    [(12, 6000.0, 6.0, (0.01, 0.03)), (8, 40_000.0, 30.0, (0.02, 0.1)), (8, 40_000.0, 90.0, (0.02, 0.1))],
)
def test_noise_is_measured(bits: int, full_well: float, read_noise: float, errors: Tuple[float, float]) -> None:
    """To 1 % and 3 %: 18 x 8 pairs of 6144 pixels give a slope to about 0.2 %, and 32 dark pairs their noise to 1 %.

    At 8 bits and 40 000 electrons rounding has 1/12 of a level's square, a read noise of 45 electrons, which is not the
    sensor's.
    """
    deviations = Deviations(full_well=full_well, read_noise=read_noise, defects=2e-3)
    result = estimate(simulate_sensor(MONO, SHAPE, 5, deviations), bit_depth=bits)
    assert result.noise is not None
    assert result.noise.full_well == pytest.approx(full_well, rel=errors[0])
    assert result.noise.read_noise == pytest.approx(read_noise, rel=errors[1])
    assert result.calibration.facts["noise"]["full_well"] == pytest.approx(full_well, rel=errors[0])
    assert np.median(result.excess) == pytest.approx(1, rel=0.03)


def test_unknown_angles_are_found() -> None:
    """Up to what the sensor itself tells: the mean of 6144 deviations of 0.8 degrees, 0.01, and gains of 1 %."""
    camera = simulate_sensor(MONO, SHAPE, 6)
    angles = (3.0, 11.0, 29.5, 50.0, 71.0, 85.0, 99.0, 118.0, 133.0, 151.0, 177.0)
    bench = replace(SHORT, angles=angles, drift=0.04)
    result = estimate(camera, bench, angles=dict.fromkeys(range(11)))
    errors = (np.array(result.angles) - angles + 90) % 180 - 90
    assert np.abs(errors).max() < 0.06
    np.testing.assert_allclose(result.lamp, bench.lamp() / bench.lamp().mean(), rtol=0, atol=2e-3)


def test_one_known_angle_fixes_the_rotation() -> None:
    camera = simulate_sensor(MONO, SHAPE, 6)
    unknown = dict.fromkeys(range(9))
    result = estimate(camera, SHORT, angles={**unknown, 2: 47.0})
    assert result.angles[2] == pytest.approx(47, abs=1e-6)
    errors = (np.array(result.angles) - SHORT.angles - 7 + 90) % 180 - 90
    assert np.abs(errors).max() < 0.06
    assert result.angle.mean() == pytest.approx(7, abs=0.1)
    (warning,) = result.warnings
    assert warning.startswith("all pixels are turned by +7.0 degrees")


@pytest.mark.parametrize("offset", [(1, 0), (0, 1), (1, 1)])
def test_a_wrong_readout_is_refused(offset: Tuple[int, int]) -> None:
    """Frames that start at another pixel of the tile than they are said to."""
    camera = simulate_sensor(MONO, SHAPE, 6)
    shifted = replace(camera, sensor=MONO.as_read_out(offset))
    sums = record(shifted, SHORT)
    sums.sensor = MONO
    angles = {str(k): angle for k, angle in enumerate(SHORT.angles)}
    with pytest.raises(ValueError, match="ROI offset or flips do not fit the frames"):
        calibrate(sums, angles, MONO)


@pytest.mark.parametrize("wrong", [lambda angle: -angle, lambda angle: angle + 45], ids=["clockwise", "another zero"])
def test_angles_counted_otherwise_are_refused(wrong: Callable[[float], float]) -> None:
    camera = simulate_sensor(MONO, SHAPE, 6)
    with pytest.raises(ValueError, match="from another axis or clockwise; --angles unknown takes none"):
        estimate(camera, SHORT, angles={k: wrong(angle) for k, angle in enumerate(SHORT.angles)})


@pytest.mark.parametrize("drift", [0.0, 0.03, 0.3])
def test_lamp_drift_is_recovered(drift: float) -> None:
    """Site means of 1536 pixels have a relative noise of 1/sqrt(1536 x 4 x 4000), 2e-4."""
    camera = simulate_sensor(MONO, SHAPE, 7)
    bench = replace(SHORT, drift=drift)
    result = estimate(camera, bench)
    np.testing.assert_allclose(result.lamp, bench.lamp() / bench.lamp().mean(), rtol=0, atol=8e-4)
    check_parameters(camera, result, replace(bench, light=bench.light * (1 - drift / 2)), 12)
    assert result.warnings == []


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
def test_vignetting_is_kept_unless_asked_for(sensor: Sensor) -> None:
    """A lens that darkens corners to 60 %: the correction leaves it, or with the flat field removes it."""
    camera = simulate_sensor(sensor, SHAPE, 8, Deviations(shading=0.4))
    good = np.ones(SHAPE, bool)
    for is_flat in (False, True):
        result = estimate(camera, is_flat_field=is_flat)
        found, truth = result.calibration.parameters().gain, camera.parameters(is_flat).gain
        ratio = found / truth
        # corners have 0.6 of the electrons; the color with the least light 0.7
        noise = np.sqrt(1 / (0.5 * electrons(camera, BENCH)) + 15 * 0.01**2 / (good.sum() / 3))
        rounding = result.calibration.scales[1].step / np.sqrt(12)
        assert rms(ratio / ratio.mean() - 1) < 1.3 * np.hypot(noise, rounding)
        span = np.percentile(found, 99.9) / np.percentile(found, 0.1)
        assert (span > 1.5) == is_flat


def test_defects_are_found() -> None:
    """Every one whose reading shows it; and no other pixel, since the limits are eight standard deviations."""
    camera = simulate_sensor(MONO, (96, 128), 9, Deviations(defects=0.01))
    result = estimate(camera, SHORT)
    found, truth = result.causes > 0, camera.defects > 0
    assert truth.sum() > 80
    assert not (found & ~truth).any()
    np.testing.assert_array_equal(found[np.isin(camera.defects, (LEAKY, DEAD, STUCK))], True)
    assert sorted(map(tuple, result.calibration.defects)) == sorted(map(tuple, np.argwhere(truth)))
    check_parameters(camera, result, SHORT, 12)
    (warning,) = result.warnings
    assert "defective pixels" in warning
    # those without a reaction, unless their dark frames alone exclude them
    fixed = np.isin(camera.defects, (DEAD, STUCK)) & (result.causes >> CAUSES.index("black level") & 1 == 0)
    assert fixed.sum() > 20
    assert (result.causes[fixed] >> CAUSES.index("no reaction") & 1).all()


def test_one_pixel_with_a_bad_polarizer_is_found() -> None:
    camera = simulate_sensor(MONO, SHAPE, 9)
    camera.extinction[10, 20] = 5.0
    camera.deviation[30, 41] = 15.0
    camera.gain[50, 60] = 0.8
    camera.black[3, 4] = 0.04
    result = estimate(camera, SHORT)
    named = {place: result.causes[place] for place in ((10, 20), (30, 41), (50, 60), (3, 4))}
    for place, cause in zip(named, ("extinction", "angle", "gain", "black level")):
        assert named[place] >> CAUSES.index(cause) & 1
    assert np.count_nonzero(result.causes) == 4


def test_saturation_is_reported() -> None:
    """Pixels that saturate are defects; many of them end the calibration with advice."""
    camera = simulate_sensor(MONO, SHAPE, 10)
    camera.gain[20:24, 30:40] *= 1.35
    camera.shade[:] = np.where(camera.gain > 1.2, 1, 0.95)
    result = estimate(camera, replace(SHORT, light=0.85))
    assert (result.causes[20:24, 30:40] & 1).all()
    assert np.count_nonzero(result.causes) == 40
    assert any("saturated" in text and "shorten" in text for text in result.warnings)
    with pytest.raises(ValueError, match="saturated in some frames, at most 2% are allowed: shorten"):
        estimate(camera, replace(SHORT, light=1.05))


@dataclass(frozen=True)
class TiltedBench(Bench):
    """A polarizer tilted by 30 degrees around an axis at `tilt_axis` degrees."""

    tilt_axis: float = 0.0

    def stokes(self, setting: int) -> np.ndarray:
        """The axis appears turned, since what is across the tilt axis appears shorter.

        Each side of the glass lets through more of the light that is polarized across the tilt axis (Fresnel).
        """
        index, tilt = 1.5, np.deg2rad(30)
        turned = np.deg2rad(self.angles[setting] - self.tilt_axis)
        angle = 2 * (np.arctan2(np.sin(turned) * np.cos(tilt), np.cos(turned)) + np.deg2rad(self.tilt_axis))
        inside, outside = np.cos(np.arcsin(np.sin(tilt) / index)), np.cos(tilt)
        straight = 1 - ((index - 1) / (index + 1)) ** 2
        s = 1 - ((outside - index * inside) / (outside + index * inside)) ** 2
        p = 1 - ((index * outside - inside) / (index * outside + inside)) ** 2
        through = np.hypot(s * np.cos(turned), p * np.sin(turned)) ** 2 / straight**2
        return through * self.light * self.lamp()[setting] * np.array([1, np.cos(angle), np.sin(angle)])


@pytest.mark.parametrize("tilt_axis", [0.0, 30.0])
@pytest.mark.parametrize("are_known", [True, False], ids=["known", "unknown"])
def test_a_tilted_polarizer_is_reported(tilt_axis: float, are_known: bool) -> None:
    """At 30 degrees the simulated sheet's light changes by 4 %, and its angle by 4 degrees."""
    camera = simulate_sensor(MONO, SHAPE, 11)
    bench = TiltedBench(tuple(range(0, 360, 20)), 2, 16, drift=0.02, tilt_axis=tilt_axis)
    result = estimate(camera, bench, angles=None if are_known else dict.fromkeys(range(18)))
    (warning,) = [text for text in result.warnings if "tilted" in text and "parallel" in text]
    assert ("the light changes by" if not are_known else "the gains of orthogonal pixels differ by") in warning
    level = estimate(
        camera, Bench(bench.angles, 2, 16, drift=0.02), angles=None if are_known else dict.fromkeys(range(18))
    )
    assert not any("tilted" in text for text in level.warnings)


def test_a_response_that_is_not_linear_is_reported() -> None:
    """A square of 4 % at full scale: cos^2 has half of it at twice the frequency."""
    camera = simulate_sensor(MONO, SHAPE, 12)
    for square in (0.0, 0.04):
        sums = SessionSums(MONO)
        for setting, _, mosaic in synthetic_session(camera, SHORT, 12, 1):
            share = mosaic / 4095
            bent = np.rint(4095 * (share - square * share**2)).astype(np.uint16)
            sums.add(DARK if setting < 0 else str(setting), RawFrame(bent, 4095))
        result = calibrate(sums, {str(k): angle for k, angle in enumerate(SHORT.angles)}, MONO)
        assert [("gamma" in text) for text in result.warnings] == ([True] if square else [])


def test_a_wrong_reading_is_reported() -> None:
    camera = simulate_sensor(MONO, SHAPE, 12)
    result = estimate(camera, angles={7: 75.0})
    (warning,) = [text for text in result.warnings if "deviates" in text]
    assert "setting 7 deviates by +5.0 degrees" in warning


@pytest.mark.parametrize(
    ("deviations", "bench", "text"),
    [
        ({}, {"angles": (0.0, 45.0, 90.0, 135.0)}, "only 4 settings"),
        ({}, {"frames": 2}, "only 2 frames of setting 0"),
        ({}, {"frames": 1}, "full well and read noise are unknown"),
        ({}, {"dark_frames": 4}, "only 4 dark frames"),
        ({}, {"light": 0.2}, "reach 2"),
        ({}, {"angles": (0.0, 5.0, 10.0, 15.0, 20.0, 90.0, 95.0, 100.0, 105.0)}, "spread the angles evenly"),
        ({"shading": 0.7}, {}, "integrating sphere"),
        ({"black": (0.2, 0.002)}, {"light": 0.6}, "cover the lens"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_poor_sessions_bring_advice(deviations: Dict[str, Any], bench: Dict[str, Any], text: str) -> None:
    result = estimate(simulate_sensor(MONO, SHAPE, 13, Deviations(**deviations)), replace(SHORT, **bench))
    assert any(text in warning for warning in result.warnings), result.warnings


def test_few_bits_in_16_bring_advice() -> None:
    result = estimate(simulate_sensor(MONO, SHAPE, 13), replace(SHORT, light=0.04), 16)
    assert any("of 65535: name the camera's number of bits" in warning for warning in result.warnings)


def test_too_many_defects_are_refused() -> None:
    camera = simulate_sensor(MONO, SHAPE, 9, Deviations(defects=0.04))
    with pytest.raises(ValueError, match=r"% of the pixels cannot be used \(.*no reaction.*\), at most 2% are allowed"):
        estimate(camera, SHORT)


@pytest.mark.parametrize("angles", [(0.0, 60.0, 120.0), (0.0, 45.0, 90.0, 180.0, 225.0), (10.0, 10.0, 10.0, 10.0)])
@pytest.mark.parametrize("are_known", [True, False], ids=["known", "unknown"])
def test_too_few_angles_are_refused(angles: Tuple[float, ...], are_known: bool) -> None:
    bench = replace(SHORT, angles=angles)
    with pytest.raises(ValueError, match="at least 4 polarizer angles that differ modulo 180 degrees are needed"):
        estimate(simulate_sensor(MONO, SHAPE), bench, angles=None if are_known else dict.fromkeys(range(len(angles))))


def test_sessions_without_dark_or_light_are_refused() -> None:
    camera = simulate_sensor(MONO, SHAPE)
    with pytest.raises(ValueError, match="needs dark frames"):
        calibrate(record(camera, replace(SHORT, dark_frames=0)), {str(k): 20.0 * k for k in range(9)}, MONO)
    with pytest.raises(ValueError, match="needs frames of a rotated polarizer"):
        calibrate(record(camera, replace(SHORT, angles=())), {}, MONO)
    with pytest.raises(ValueError, match="as dark as the dark frames"):
        estimate(camera, replace(SHORT, light=0.0))
