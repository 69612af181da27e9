"""The estimator against the simulator's truth, and what it says about sessions that are not as they should be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
from sessions import BENCH, electrons, estimate, inverted_terms, polarization_errors, record, true_parameters

from polar_pipeline.sensor.forward import nominal_angles
from polar_pipeline.sensor.frames import RawFrame
from polar_pipeline.sensor.mosaic import SENSORS, Sensor
from polar_pipeline.tools.calibrate import estimate as estimation
from polar_pipeline.tools.calibrate.defects import CAUSES
from polar_pipeline.tools.calibrate.errors import DEGREES, area_error
from polar_pipeline.tools.calibrate.estimate import CalibrationResult, calibrate
from polar_pipeline.tools.calibrate.pixels import make_exact_terms
from polar_pipeline.tools.calibrate.simulation import (
    DEAD,
    LEAKY,
    STUCK,
    Bench,
    Deviations,
    SimulatedSensor,
    simulate_sensor,
    synthetic_session,
)
from polar_pipeline.tools.calibrate.sums import DARK, SessionSums

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
    truth, found = true_parameters(camera), result.calibration.parameters()
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


@pytest.mark.parametrize(("sensor", "shape"), [(MONO, (24, 400)), (MONO, (16, 300)), (COLOR, (400, 24))])
def test_strips_are_calibrated(sensor: Sensor, shape: Tuple[int, int]) -> None:
    """Few blocks along the short side do not determine a polynomial of degree 4 there."""
    camera = simulate_sensor(sensor, shape, 3)
    result = estimate(camera, SHORT)
    check_parameters(camera, result, SHORT, 12)
    assert not result.causes.any()


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
@pytest.mark.parametrize("phase", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_e_is_multiplied_by_the_inverse_of_the_superpixel(sensor: Sensor, phase: Tuple[int, int]) -> None:
    """In regions that begin within a superpixel, too; of pixels turned by 8 +- 3 degrees, of an extinction ratio of 50.

    32-bit floats have 24 bits.
    """
    region, rng = sensor.as_read_out((phase[1], phase[0])), np.random.default_rng(0)
    angles = nominal_angles(region, (13, 18))
    turned = 2 * (angles + np.deg2rad(rng.normal(8, 3, angles.shape)))
    cosine, sine = (49 / 51 * wave for wave in (np.cos(turned), np.sin(turned)))
    found = np.stack([cosine, sine]).astype(np.float32)
    make_exact_terms(*found, region, phase)
    np.testing.assert_allclose(found, inverted_terms(cosine, sine, angles, phase), rtol=0, atol=1e-6)


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
def test_superpixels_are_those_of_the_sensor(sensor: Sensor) -> None:
    """In a region from its second row and column on, too; pixels turned by +-6 degrees make their groups matter.

    Noise makes less than 0.001, and rounding at most that of the coarser term; with the superpixels of the region the
    error is 0.013.
    """
    camera = simulate_sensor(sensor, SHAPE, 3, Deviations(angle=6.0))
    sums = SessionSums(sensor.as_read_out((1, 1)))
    for setting, _, mosaic in synthetic_session(camera, BENCH, 12, 1):
        sums.add(DARK if setting < 0 else str(setting), RawFrame(mosaic[1:, 1:], 4095))
    result = calibrate(sums, {str(k): angle for k, angle in enumerate(BENCH.angles)}, sensor, (1, 1))
    found, truth = result.calibration.parameters(), true_parameters(camera)
    step = max(scale.step for scale in result.calibration.scales[2:])
    for name in found._fields[2:]:
        error = getattr(found, name) - getattr(truth, name)[1:, 1:]
        assert rms(error[1:, 1:]) < 1.2 * np.hypot(0.001, step / np.sqrt(12)), name


@pytest.mark.parametrize(
    ("bits", "light", "are_known"), [(12, 0.8, True), (12, 0.8, False), (8, 0.4, True)], ids=["known", "unknown", "8"]
)
def test_stated_errors_are_those_found(bits: int, light: float, are_known: bool) -> None:
    """To 25 %: the statement leaves out what unknown angles and the smooth light add.

    At 8 bits and half the light, black levels that no noise dithers are most of the error.
    """
    camera, bench = simulate_sensor(MONO, SHAPE, 11), replace(BENCH, light=light)
    result = estimate(camera, bench, bits, None if are_known else dict.fromkeys(range(18)))
    assert [row.dolp for row in result.errors] == list(DEGREES)
    for row in result.errors:
        before = polarization_errors(camera, row.dolp, None, result.black)
        after = polarization_errors(camera, row.dolp, result.calibration.parameters(), result.black)
        stated = ((row.dolp_before, row.aolp_before), 0.03), ((row.dolp_error, row.aolp_error), 0.25)
        for (found, limit), (dolp, aolp) in zip(stated, (before, after)):
            assert found == pytest.approx((dolp, aolp if row.dolp else np.nan), rel=limit, nan_ok=True), row.dolp


def test_noise_explains_what_is_left_of_areas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then areas add nothing to the stated error of DoLP; 1 % of the light, left unexplained, would."""
    calls: List[Tuple[Any, ...]] = []
    monkeypatch.setattr(estimation, "area_error", lambda *arguments: calls.append(arguments) or area_error(*arguments))
    estimate(simulate_sensor(MONO, SHAPE, 11))
    ((maps, residual_variance, pair_error),) = calls
    assert area_error(maps, residual_variance, pair_error) == pair_error / 2
    assert area_error(maps._replace(left=maps.left + 1e-4), residual_variance, 0.0) > 0.001


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
    # noise explains what is left, but rounding of 8 bits is not independent from frame to frame
    assert rms(result.relative_residual[result.causes == 0]) == pytest.approx(1, rel=0.05)


def test_unknown_angles_are_found() -> None:
    """Up to what the sensor itself tells: the mean of 6144 deviations of 0.8 degrees, 0.01, and gains of 1 %."""
    camera = simulate_sensor(MONO, SHAPE, 6)
    angles = (3.0, 11.0, 29.5, 50.0, 71.0, 85.0, 99.0, 118.0, 133.0, 151.0, 177.0)
    bench = replace(SHORT, angles=angles, drift=0.04)
    result = estimate(camera, bench, angles=dict.fromkeys(range(11)))
    assert result.polarizer is not None
    errors = (np.rad2deg(result.polarizer.angles) - angles + 90) % 180 - 90
    assert np.abs(errors).max() < 0.06
    np.testing.assert_allclose(result.polarizer.lamp, bench.lamp() / bench.lamp().mean(), rtol=0, atol=2e-3)


@pytest.mark.parametrize("angle_error", [0.5, 1.0])
def test_one_known_angle_fixes_the_rotation(angle_error: float) -> None:
    """Weighted against the orientation of the pixels, which is expected at 0 +- 3 degrees and known to 0.01.

    The angle is off by less than a standard deviation, so that robust weights change the rotation by 0.035 at most.
    """
    camera = simulate_sensor(MONO, SHAPE, 6)
    readings = {**{str(k): None for k in range(9)}, "2": 47.0}
    result = calibrate(record(camera, SHORT), readings, MONO, (0, 0), angle_error=angle_error)
    turn = 7 * 3**2 / (3**2 + angle_error**2)
    assert result.polarizer is not None
    errors = (np.rad2deg(result.polarizer.angles) - SHORT.angles - turn + 90) % 180 - 90
    assert np.abs(errors).max() < 0.06
    assert result.angle.mean() == pytest.approx(turn, abs=0.1)
    assert result.warnings[0].startswith(f"all pixels are turned by {turn:+.1f} degrees")


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
    with pytest.raises(ValueError, match="clockwise; --angles unknown takes none"):
        estimate(camera, SHORT, angles={k: wrong(angle) for k, angle in enumerate(SHORT.angles)})


@pytest.mark.parametrize("sensor", [MONO, COLOR], ids=lambda sensor: sensor.name)
def test_vignetting_is_kept_unless_asked_for(sensor: Sensor) -> None:
    """A lens that darkens corners to 60 %: the correction leaves it, or with the flat field removes it."""
    camera = simulate_sensor(sensor, SHAPE, 8, Deviations(shading=0.4))
    good = np.ones(SHAPE, bool)
    for is_flat in (False, True):
        result = estimate(camera, is_flat_field=is_flat)
        found, truth = result.calibration.parameters().gain, true_parameters(camera, is_flat).gain
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
    assert "many defective pixels" in result.warnings[0]
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
        ({"full_well": 60_000.0}, {}, "unless frames are means of several"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_poor_sessions_bring_advice(deviations: Dict[str, Any], bench: Dict[str, Any], text: str) -> None:
    result = estimate(simulate_sensor(MONO, SHAPE, 13, Deviations(**deviations)), replace(SHORT, **bench))
    assert any(text in warning for warning in result.warnings), result.warnings


def test_too_many_defects_are_refused() -> None:
    camera = simulate_sensor(MONO, SHAPE, 9, Deviations(defects=0.04))
    with pytest.raises(ValueError, match=r"% of the pixels cannot be used \(.*no reaction.*\), at most 2% are allowed"):
        estimate(camera, SHORT)


@pytest.mark.parametrize("angles", [(0, 2, 4, 6, 8), (170, 175, 180, 185, 190)])
def test_angles_that_are_all_close_to_each_other(angles: Tuple[float, ...]) -> None:
    bench = Bench(angles, 2, 4)
    with pytest.raises(ValueError, match=r"lie within (8|9|19|20|21) degrees: spread them over 180 degrees"):
        estimate(simulate_sensor(MONO, SHAPE), bench)


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
    with pytest.raises(ValueError, match="as dark as the dark frames"):
        estimate(camera, replace(SHORT, light=0.0))


@pytest.mark.parametrize("levels", [(), (0.2, 0.6)], ids=["dark", "flat"])
def test_without_a_polarizer(levels: Tuple[float, ...]) -> None:
    """Black levels are measured, defects that show in the dark, and noise if there is light; pixels are ideal.

    8 pairs of 6144 pixels give a slope to 0.6 %, and 32 dark pairs their noise to 0.3 %, if no defects shift the means
    of so few pixels.
    """
    deviations = Deviations(defects=0.0 if levels else 5e-3)
    camera, rng = simulate_sensor(MONO, SHAPE, 14, deviations), np.random.default_rng(2)
    sums = record(camera, replace(BENCH, angles=()))
    for level in levels:
        for _ in range(8):
            sums.add(f"flat/{level}", RawFrame(camera.expose(np.array([level, 0, 0]), 12, rng), 4095))
    result = calibrate(sums, dict.fromkeys(sums.flat), MONO, (0, 0))
    shows = np.isin(camera.defects, (LEAKY, STUCK))
    np.testing.assert_array_equal(result.causes > 0, shows)
    black, *ideal = (image[~shows] for image in result.calibration.parameters())
    code = result.calibration.scales[0].step
    assert rms(black - camera.black[~shows]) < 1.1 * np.sqrt((2.5e-4**2 + (1 / 4095) ** 2 / 12) / 64 + code**2 / 12)
    np.testing.assert_array_equal(ideal, np.array([1, 0, 0])[:, np.newaxis] * np.ones_like(black))
    assert (result.polarizer, result.errors, result.warnings, result.problems) == (None, [], [], [])
    assert result.calibration.facts["settings"] == 0
    if levels:
        assert result.noise == pytest.approx((10_000, 2.5), rel=0.02)
    else:
        assert result.noise is None


def test_facts() -> None:
    """JSON keeps them as they are, for the file."""
    camera, notes = simulate_sensor(MONO, SHAPE, 3), {"temperature": 21.5}
    readings = {str(k): 20.0 * k for k in range(9)}
    facts = calibrate(record(camera, SHORT), readings, MONO, (0, 0), notes=notes).calibration.facts
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    measured = {name: facts.pop(name) for name in ("angles", "lamp", "noise")}
    assert [len(value) for value in measured.values()] == [9, 9, 2]
    assert facts == {
        "settings": 9,
        "frames": 36,
        "dark_frames": 16,
        "angles_known": True,
        "flat_field": False,
        "temperature": 21.5,
    }
