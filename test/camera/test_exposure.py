"""The exposure control: a simulated camera whose light jumps, blinks and moves, and answers by hand."""

from __future__ import annotations

import math
from typing import Any, List, Tuple

import numpy as np
import pytest
from simulated_exposure import RANGES, SIDE, SimulatedCamera, light_of

from polar_pipeline.camera.exposure import BRIGHTEN_BAND, DARKEN_BAND, ExposureControl, stops_to_add
from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.quality.brightest import BrightestAngles

LATENCIES = (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize(("kind", "bits"), [("street", 12), ("street", 8), ("contrast", 12), ("window", 12)])
def test_the_light_falls_and_rises_a_hundred_times(kind: str, bits: int, latency: int) -> None:
    camera, light = SimulatedCamera(latency, bits), light_of(kind)
    camera.run(light, 60)
    assert abs(math.log2(camera.levels[-1] / 0.85)) < BRIGHTEN_BAND + 0.02
    assert camera.run(light / 100, 60) <= latency + 3
    assert camera.reversals(60) <= 1
    assert camera.run(light, 60) <= 3 * latency + 10
    assert camera.reversals(60) <= 1
    assert camera.saturated[-1] <= 0.006
    assert abs(math.log2(camera.levels[-1] / 0.85)) < BRIGHTEN_BAND + 0.02


@pytest.mark.parametrize("kind", ["street", "contrast", "wall"])
@pytest.mark.parametrize("dimmed", [1.0, 0.02])
def test_nothing_changes_in_a_quiet_scene(kind: str, dimmed: float) -> None:
    camera, light = SimulatedCamera(2), light_of(kind) * dimmed
    camera.run(light, 40)
    camera.changes.clear()
    camera.run(light, 300)
    assert not camera.changes


@pytest.mark.parametrize("latency", [1, 4, 6])
@pytest.mark.parametrize("lamp", ["all", "small"])
@pytest.mark.parametrize(("on", "off"), [(1, 1), (1, 4), (2, 2), (3, 3), (5, 5), (4, 8), (10, 10), (20, 20), (30, 30)])
def test_a_blinking_light_changes_little(on: int, off: int, lamp: str, latency: int) -> None:
    camera, light = SimulatedCamera(latency), light_of("street")
    lit = light * 10
    if lamp == "small":
        lit = light.copy()
        lit[:10, :15] += 100 * np.median(light)
    camera.run(light, 40)
    camera.changes.clear()
    for frame in range(60):
        camera.expose(lit if frame % (on + off) < on else light)
    assert len(camera.changes) <= (0 if on == 1 else 4)


@pytest.mark.parametrize("latency", [1, 6])
def test_tunnels(latency: int) -> None:
    """Every 20 s at 24 Hz, 2000 times darker, which is more than exposure and gain can make up for."""
    camera, light = SimulatedCamera(latency), light_of("street")
    camera.run(light, 60)
    for _ in range(2):
        assert camera.run(light / 2000, 240) <= latency + 3
        assert camera.exposures[-1] == pytest.approx(math.log2(20000) + 18 / (20 * math.log10(2)), abs=0.01)
        assert camera.run(light, 240) <= 3 * latency + 10
        assert camera.saturated[-1] <= 0.006


@pytest.mark.parametrize("latency", [1, 6])
def test_a_sun_enters_the_picture(latency: int) -> None:
    """It is 300 times as bright as the sky and covers 3 %: in the end it is not saturated."""
    camera, light = SimulatedCamera(latency), light_of("street")
    camera.run(light, 60)
    camera.changes.clear()
    y, x = np.mgrid[:SIDE, :SIDE]
    for frame in range(150):
        is_sun = np.hypot(x + 8 - min(frame, 30), y - 15) < 6
        camera.expose(np.where(is_sun[..., None], 300.0, light))
    assert camera.saturated[-1] <= 0.006
    assert len(camera.changes) <= 10
    assert np.mean(np.array(camera.saturated[-100:]) > 0.006) == 0


def test_glints_do_not_count() -> None:
    """0.2 % of the superpixels, others in every frame, are 30 times as bright."""
    camera, light, chance = SimulatedCamera(2), light_of("wall"), np.random.default_rng(5)
    for frame in range(240):
        camera.changes = [] if frame == 40 else camera.changes
        camera.expose(np.where(chance.random((SIDE, SIDE, 1)) < 0.002, 30 * light, light))
    assert not camera.changes
    assert camera.levels[-1] > 0.7


@pytest.mark.parametrize("latency", LATENCIES)
def test_a_camera_that_does_not_state_exposures(latency: int) -> None:
    camera, light = SimulatedCamera(latency, is_stated=False), light_of("street")
    camera.run(light, 60)
    for scene in (light / 20, light):
        assert camera.run(scene, 60) <= 3 * (latency + 9)
        assert camera.reversals(60) <= 1
        assert camera.saturated[-1] <= 0.006


@pytest.mark.parametrize("latency", [1, 6])
@pytest.mark.parametrize(("kind", "bits"), [("low contrast", 8), ("low contrast", 12), ("flat", 8), ("flat", 12)])
def test_noise_of_a_dark_frame_does_not_count_as_light(kind: str, bits: int, latency: int) -> None:
    """The 99.5th percentile of the brightest of four noisy numbers is up to 0.7 stops above that of the scene."""
    camera, light = SimulatedCamera(latency, bits), 100 * light_of(kind)
    camera.run(light, 60)
    assert camera.run(light / 100, 60) <= latency + 3
    assert abs(math.log2(camera.levels[-1] / 0.85)) < BRIGHTEN_BAND + 0.02


@pytest.mark.parametrize("latency", [1, 3, 6])
def test_a_sky_in_8_bits(latency: int) -> None:
    camera, light = SimulatedCamera(latency, 8), 50 * light_of("sky")
    camera.run(light, 60)
    assert camera.run(light / 100, 60) <= latency + 3
    assert camera.run(light, 60) <= 3 * latency + 10
    assert camera.reversals(60) <= 1
    assert camera.saturated[-1] <= 0.006


@pytest.mark.parametrize("rise", [1.8, 2.0])
def test_a_small_rise_of_a_scene_with_a_gap_darkens_little(rise: float) -> None:
    """All of the bright part is saturated, and the dark part is far below it: the dark part does not count."""
    camera, light = SimulatedCamera(2), light_of("bimodal")
    camera.run(light, 60)
    before = camera.exposures[-1]
    camera.run(rise * light, 60)
    assert before - 1 < min(camera.exposures[60:]) < before
    assert camera.saturated[-1] <= 0.006


@pytest.mark.parametrize(
    ("rise", "on", "off", "latency"), [(2, 5, 40, 1), (10, 40, 5, 3), (100, 2, 6, 3), (100, 3, 3, 3), (100, 5, 40, 5)]
)
def test_a_scene_with_a_gap_in_a_blinking_light(rise: float, on: int, off: int, latency: int) -> None:
    camera, light = SimulatedCamera(latency), light_of("bimodal")
    camera.run(light, 80)
    for frame in range(180):
        camera.expose(light * (rise if frame % (on + off) < on else 1.0))
    changes = np.array(camera.changes)
    assert max(((changes >= first) & (changes < first + 60)).sum() for first in range(80, 201)) <= 4


@pytest.mark.parametrize(("mean", "deviation"), [(0.004, 0.3), (0.004, 0.5), (0.005, 0.1)])
def test_fluctuating_glints_do_not_darken_the_scene(mean: float, deviation: float) -> None:
    """A share of the superpixels, another one in every frame, is 30 times as bright; the percentile allows 0.5 %."""
    camera, light, chance = SimulatedCamera(2), light_of("street"), np.random.default_rng(3)
    for _ in range(400):
        share = mean * math.exp(chance.normal(0, deviation))
        camera.expose(np.where(chance.random((SIDE, SIDE, 1)) < share, 30 * light, light))
    assert min(camera.exposures[60:]) > camera.exposures[60] - 1


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("factor", [10.0, 100.0, 0.01])
def test_lost_commands_are_repeated(factor: float, lost: int) -> None:
    camera, light = SimulatedCamera(2), 10 * light_of("street") / max(factor, 1)
    camera.run(light, 60)
    camera.lost = lost
    camera.run(factor * light, 120)
    assert camera.saturated[-1] <= 0.006
    assert abs(math.log2(camera.levels[-1] / 0.85)) < BRIGHTEN_BAND + 0.02


def test_a_camera_that_ignores_commands_gets_few() -> None:
    camera, light = SimulatedCamera(2), light_of("street")
    camera.run(light, 60)
    camera.changes.clear()
    camera.lost = 1000
    camera.run(light / 10, 500)
    assert 4 <= len(camera.changes) <= 8
    camera.lost = 0
    camera.run(light / 10, 500)
    assert abs(math.log2(camera.levels[-1] / 0.85)) < BRIGHTEN_BAND + 0.02


@pytest.mark.parametrize("factor", [0.3, 60.0])
def test_another_program_sets_the_exposure(factor: float) -> None:
    camera, light = SimulatedCamera(2), light_of("street") * 10
    camera.run(light, 60)
    camera.set(factor * 2 ** camera.exposures[-1], 0.0)
    camera.run(light, 100)
    assert camera.saturated[-1] <= 0.006
    assert abs(math.log2(camera.levels[-1] / 0.85)) < BRIGHTEN_BAND + 0.02


@pytest.mark.parametrize("step", [0.7, 0.8, 0.9])
@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_a_camera_that_rounds_exposures_up(step: float, factor: float) -> None:
    """Steps are shares of the best exposure, which lies between two of them; the upper one saturates too much."""
    camera, light = SimulatedCamera(2), light_of("street")
    camera.run(light, 60)
    coarse_us = step * 2 ** camera.exposures[-1]
    camera.rounds = lambda time_us: math.ceil(time_us / coarse_us) * coarse_us
    camera.run(light / factor, 60)
    camera.run(light, 60)
    assert camera.saturated[-1] <= 0.006
    assert camera.levels[-1] > 0.75 * step
    camera.changes.clear()
    camera.run(light, 300)
    assert not camera.changes


# -------------------------------------------------------------------------------------------------------------- by hand


def control(exposure_us: float = 1000.0, gain_db: float = 0.0, **settings: Any) -> ExposureControl:
    return ExposureControl(CameraSettings(**settings), RANGES, exposure_us, gain_db)


def commands(made: ExposureControl, *frames: Tuple[float, float]) -> List[Any]:
    """Commands after frames by their level and their exposure time at 0 dB; levels above 1 are saturated."""
    return [made.step(BrightestAngles(min(level, 1.0), float(level > 1)), time_us, 0.0) for level, time_us in frames]


@pytest.mark.parametrize(
    ("level", "saturated", "stops"),
    [
        (0.85, 0.0, 0.0),
        (0.425, 0.0, 1.0),
        (0.95, 0.0, math.log2(0.85 / 0.95)),
        (0.0, 0.0, math.log2(0.85 / 2e-3)),
        (1.0, 0.005, math.log2(0.85)),  # the percentile itself is at full scale
        # the 50th and the 99.5th percentile of a normal distribution are 2.576 deviations apart
        (1.0, 0.5, math.log2(0.85) - 2.5758),
        (1.0, 1.0, math.log2(0.85) - 2.5758 - 3.7190),
    ],
)
def test_stops_to_add(level: float, saturated: float, stops: float) -> None:
    assert stops_to_add(BrightestAngles(level, saturated), CameraSettings()) == pytest.approx(stops, abs=1e-3)


def test_darkening_needs_two_frames_and_brightening_six() -> None:
    made = control()
    assert commands(made, (0.97, 1000), (0.97, 1000)) == [None, (pytest.approx(1000 * 0.85 / 0.97), 0.0)]
    made = control()
    assert commands(made, *[(0.6, 1000)] * 6) == [None] * 5 + [(pytest.approx(1000 * 0.85 / 0.6), 0.0)]
    made = control()  # more than two stops
    assert commands(made, (0.1, 1000), (0.11, 1000)) == [None, (pytest.approx(1000 * 0.85 / 0.11), 0.0)]
    made = control()
    edges = (0.85 * 2 ** (DARKEN_BAND - 0.01), 0.85 / 2 ** (BRIGHTEN_BAND - 0.01))
    assert commands(made, *[(edges[k % 7 == 0], 1000) for k in range(60)]) == [None] * 60


def test_frames_taken_before_a_change_ask_for_nothing_new() -> None:
    made = control()
    (_, first, *others) = commands(made, *[(0.1, 1000)] * 7)
    assert first == (pytest.approx(8500), 0.0)
    assert others == [None] * 5
    assert commands(made, (0.85, 8500), (0.85, 8500)) == [None, None]


@pytest.mark.parametrize("unknown", [(math.nan, 0.0), (1000.0, math.nan), (math.inf, 0.0)])
def test_frames_without_a_number_change_nothing(unknown: Tuple[float, float]) -> None:
    made = control()
    good = BrightestAngles(0.85, 0.0)
    answers = [made.step(good, 1000.0, 0.0) for _ in range(20)]
    answers += [made.step(good, *unknown) for _ in range(3)]
    answers += [made.step(bad, 1000.0, 0.0) for bad in (BrightestAngles(math.nan, 0.0), BrightestAngles(1.0, math.nan))]
    answers += [made.step(good, 1000.0, 0.0) for _ in range(20)]
    assert answers == [None] * 45
    assert commands(made, *[(0.1, 1000)] * 2)[-1] == (pytest.approx(8500), 0.0)
    assert control(exposure_us=math.nan).command == pytest.approx((30.0, 0.0))


def test_time_comes_before_gain_and_both_have_limits() -> None:
    made = control(exposure_max_us=10000.0, gain_max_db=12.0)
    assert commands(made, *[(0.085, 10000)] * 2)[-1] == (10000.0, pytest.approx(12.0))
    made = control(10000.0, exposure_max_us=10000.0, gain_max_db=12.0)
    assert commands(made, *[(0.2125, 10000)] * 6)[-1] == (10000.0, pytest.approx(12.0, abs=0.05))
    made = control(frame_rate=50.0, exposure_max_us=1e6)
    assert commands(made, *[(0.01, 10000)] * 2)[-1] == (20000.0, pytest.approx(18.0))
    assert control(exposure_us=90000.0, exposure_max_us=10000.0).command == (10000.0, pytest.approx(18.0))
    without = ExposureControl(CameraSettings(), {"exposure_us": (50.0, 5000.0)}, 1000.0, None)
    assert [without.step(BrightestAngles(0.01, 0.0), 1000.0, None) for _ in range(2)][-1] == (
        pytest.approx(5000.0),
        0.0,
    )


@pytest.mark.parametrize(
    ("hz", "time_us", "gain_db", "expected"),
    [
        (50, 9000.0, 0.0, (9000.0, 0.0)),  # shorter than half a period
        (50, 15000.0, 0.0, (10000.0, 20 * math.log10(1.5))),
        (60, 20000.0, 0.0, (2 * 1e6 / 120, 20 * math.log10(1.2))),
        (50, 20000.0, 6.0, (20000.0, 6.0)),
        (0, 15000.0, 0.0, (15000.0, 0.0)),
    ],
)
def test_lamps_flicker(hz: int, time_us: float, gain_db: float, expected: Tuple[float, float]) -> None:
    assert control(time_us, gain_db, flicker_hz=hz).command == pytest.approx(expected, abs=1e-6)


def test_without_gain_lamps_may_flicker() -> None:
    made = ExposureControl(CameraSettings(flicker_hz=50), {"exposure_us": (30.0, 1e6)}, 15000.0)
    assert made.command == (pytest.approx(15000.0), 0.0)
