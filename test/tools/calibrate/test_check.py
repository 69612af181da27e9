"""The evaluation of a calibration on new frames."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import numpy as np
import pytest
from sessions import record, superpixels, true_parameters

from polar_pipeline.calibration import Calibration
from polar_pipeline.options import make_options
from polar_pipeline.sensor.frames import FrameError, RawFrame
from polar_pipeline.sensor.mosaic import SENSORS
from polar_pipeline.tools.calibrate.check import CheckResult, check_calibration, describe_check, in_halves
from polar_pipeline.tools.calibrate.estimate import calibrate
from polar_pipeline.tools.calibrate.session import SessionFrame, add_frames
from polar_pipeline.tools.calibrate.simulation import (
    Bench,
    Deviations,
    SimulatedSensor,
    simulate_sensor,
    synthetic_session,
)
from polar_pipeline.tools.calibrate.sums import DARK

MONO = SENSORS["IMX250MZR"]
#: Full well of 2000 electrons: the noise of single frames is as large as the errors.
CAMERA = simulate_sensor(MONO, (96, 144), 3, Deviations(full_well=2000, defects=0.002))
#: Angle and DoLP of the light of each setting, and the angle that is given.
LIGHT: Dict[str, Tuple[float, float, Optional[float]]] = {
    "20": (20.0, 1.0, 20.0),
    "110": (110.0, 1.0, 110.0),
    "part": (60.0, 0.5, None),
    "unpolarized": (0.0, 0.0, None),
    "9 to 12 s": (30.0, 0.02, None),
}


def stokes(name: str) -> np.ndarray:
    angle, dolp, _ = LIGHT[name]
    turn = np.deg2rad(2 * angle)
    return 0.8 * np.array([1, dolp * np.cos(turn), dolp * np.sin(turn)])


def perfect(camera: SimulatedSensor, offset: Tuple[int, int] = (0, 0)) -> Calibration:
    return Calibration.from_parameters(true_parameters(camera), MONO, offset, camera.defects > 0)


def check(
    calibration: Calibration, *names: str, dark: int = 0, count: int = 8, top: int = 0, left: int = 0
) -> CheckResult:
    """Check a calibration on noisy frames of CAMERA from (left, top) on."""
    rng = np.random.default_rng(7)
    frames = [(DARK, np.zeros(3))] * dark + [(name, stokes(name)) for name in names for _ in range(count)]
    mosaics = ((name, CAMERA.expose(light, 12, rng)[top:, left:]) for name, light in frames)
    options = make_options(bit_depth=12, roi_offset=(left, top))
    rows = (SessionFrame(name, "", RawFrame(mosaic, 4095)) for name, mosaic in mosaics)
    angles = {name: LIGHT[name][2] for name in names}
    return check_calibration(calibration, add_frames(in_halves(rows), options), angles, (left, top))


def without_noise(name: str) -> Tuple[float, float]:
    """Errors of DoLP and AoLP (degrees) of good superpixels without noise; of unpolarized light DoLP itself."""
    angle, dolp, _ = LIGHT[name]
    mosaic = CAMERA.expose(stokes(name), 16) / 65535 - CAMERA.black
    is_good = superpixels((CAMERA.defects == 0).astype(float), CAMERA)[0] == 2
    s0, s1, s2 = (image[is_good] for image in superpixels(mosaic, CAMERA))
    turn = (np.rad2deg(np.arctan2(s2, s1)) / 2 - angle + 90) % 180 - 90
    return float(np.sqrt(np.mean((np.hypot(s1, s2) / s0 - dolp) ** 2))), float(np.sqrt(np.mean(turn**2)))


def test_halves_are_those_of_each_setting() -> None:
    """Of settings that take turns, too, with frames without light in between."""
    frame = RawFrame(np.zeros((16, 16), np.uint16), 4095)
    names = [row.setting for row in in_halves(SessionFrame(name, "", frame) for name in ("0", "90", DARK, "0", "90"))]
    assert names == ["0, half 0", "90, half 0", DARK, "0, half 1", "90, half 1"]


@pytest.mark.parametrize("name", ["20", "part", "unpolarized"])
@pytest.mark.parametrize(("top", "left"), [(0, 0), (1, 0), (3, 1)])
def test_errors_are_those_without_noise(name: str, top: int, left: int) -> None:
    """3456 superpixels: their root mean square is known to 1.2 %, the product of the halves' noise adds 3 %."""
    result = check(perfect(CAMERA), name, top=top, left=left)
    (row,) = result.settings
    dolp_error, aolp_error = without_noise(name)
    assert row.before.dolp_error == pytest.approx(dolp_error, rel=0.12)
    assert row.after.dolp_error < 0.3 * dolp_error
    if name == "unpolarized":
        assert row.before.aolp_error is None
    else:
        assert row.before.aolp_error == pytest.approx(aolp_error, rel=0.12)
        assert row.after.aolp == pytest.approx(LIGHT[name][0], abs=0.05)
    assert row.after.dolp == pytest.approx(LIGHT[name][1], abs=0.001)
    assert result.ratio > 3


def test_the_calibration_of_another_camera_is_worse_than_none() -> None:
    """Gains of two cameras do not depend on each other, so that their errors add up to sqrt(2) times those of one."""
    other = true_parameters(simulate_sensor(MONO, (96, 144), 4))._replace(black=CAMERA.black)
    result = check(Calibration.from_parameters(other, MONO, (0, 0), CAMERA.defects > 0), "unpolarized")
    assert result.ratio == pytest.approx(np.sqrt(0.5), rel=0.05)
    assert list(describe_check(result))[-1].endswith("times LARGER than without: do not use it")


def test_a_wrong_black_level_shows_with_dark_frames() -> None:
    """The calibration's is too high by 2 % of full scale, as with light in its dark frames: DoLP is too high by 5 %."""
    parameters = true_parameters(CAMERA)
    wrong = parameters._replace(black=parameters.black + 0.02)
    result = check(Calibration.from_parameters(wrong, MONO, (0, 0), CAMERA.defects > 0), "20", "110", dark=16)
    good = CAMERA.defects == 0
    assert result.black == pytest.approx((0.02 + CAMERA.black[good].mean(), CAMERA.black[good].mean()), abs=1e-4)
    assert result.settings[0].after.dolp_error == pytest.approx(0.4 / 0.38 - 1, rel=0.05)
    assert result.ratio < 0.5


def test_frames_of_the_calibration_itself_do_not_flatter_it() -> None:
    """What is left of them is of the order of the errors in new frames."""
    camera = simulate_sensor(MONO, (96, 144), 3)
    bench = Bench(tuple(range(0, 180, 20)), 4, 16)
    angles: Dict[str, Optional[float]] = {str(k): angle for k, angle in enumerate(bench.angles)}
    calibration = calibrate(record(camera, bench, seed=1), angles, MONO).calibration
    options = make_options(bit_depth=12)
    ratios = []
    for seed in (1, 2):
        rows = (
            SessionFrame(DARK if setting < 0 else str(setting), "", RawFrame(mosaic, 4095))
            for setting, _, mosaic in synthetic_session(camera, bench, 12, seed)
        )
        ratios.append(check_calibration(calibration, add_frames(in_halves(rows), options), angles).ratio)
    own, new = ratios
    assert own < 1.5 * new


def test_light_of_low_dolp_at_no_angle_is_unpolarized() -> None:
    (row,) = check(perfect(CAMERA), "9 to 12 s").settings
    assert row.after.aolp_error is None
    assert row.after.dolp_error == pytest.approx(0.02, abs=0.001)


@pytest.mark.parametrize(
    ("names", "is_tested"),
    [(("20", "110"), False), (("20",), False), (("20", "unpolarized"), True), (("20", "9 to 12 s"), True)],
)
def test_light_of_high_dolp_alone_tests_no_low_dolp(names: Tuple[str, ...], is_tested: bool) -> None:
    lines = list(describe_check(check(perfect(CAMERA), *names)))
    assert any(line.startswith("low DoLP is untested") for line in lines) is not is_tested
    assert lines[-1].startswith("with the calibration errors are ")


def test_places() -> None:
    """A calibration that is only wrong at the left of the bottom: its gains alternate by 2 % between columns there."""
    parameters = true_parameters(CAMERA)
    parameters.gain[64:, :48:2] *= 1.02
    result = check(Calibration.from_parameters(parameters, MONO, (0, 0), CAMERA.defects > 0), "unpolarized")
    after = result.places[1]
    assert after[2, 0] == pytest.approx(0.014, rel=0.15)  # (0.01 of I0 - I90, and of I45 - I135)
    after[2, 0] = 0
    assert after.max() < 0.005
    lines = list(describe_check(result))
    assert lines[-2].split(" -> ")[1].split()[0] == f"{result.places[1][2, 0]:.4f}"


def test_what_cannot_be_checked_is_said() -> None:
    with pytest.raises(ValueError, match="a check needs frames of uniform light"):
        check(perfect(CAMERA), dark=2)
    with pytest.raises(FrameError, match="the calibration is of 48x48 pixels"):
        check(perfect(simulate_sensor(MONO, (48, 48))), "20")


def test_saturated_frames_are_not_said_to_be_dark() -> None:
    frames = [SessionFrame("20", "", RawFrame(np.full(CAMERA.shape, 4095, np.uint16), 4095))] * 2
    sums = add_frames(in_halves(frames), make_options(bit_depth=12))
    with pytest.raises(ValueError, match="the frames of 20 are saturated: shorten the exposure"):
        check_calibration(perfect(CAMERA), sums, {"20": 20.0})
