"""Evaluation of a calibration on new frames of uniform light: errors of DoLP and AoLP without it and with it."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.calibrate.polarizer import half_turn
from polar_pipeline.calibrate.session import SessionFrame
from polar_pipeline.calibrate.sums import DARK, UNPOLARIZED, SessionSums
from polar_pipeline.calibration import Calibration
from polar_pipeline.calibration.correction import Correction, correction_for
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: Light at an unknown angle and of a lower DoLP is taken as unpolarized.
_UNPOLARIZED_DOLP = 0.1
#: Least S0 as a share of full scale.
_LEAST_LIGHT = 0.01
#: Rows and columns of the places by which errors are stated.
_PLACES = 3


class LightErrors(NamedTuple):
    """Errors in frames of one setting, root mean square over superpixels, without the noise of the frames.

    Attributes:
        dolp: DoLP of the mean over superpixels.
        aolp: AoLP of the mean in degrees.
        dolp_error: Error of the DoLP. It should be 0 of unpolarized light, 1 at a given angle, and otherwise the mean.
        aolp_error: Deviation of the AoLP from its mean in degrees; None of unpolarized light.
        places: (3, 3) mean squares of the errors of (S1, S2)/S0 by place.
    """

    dolp: float
    aolp: float
    dolp_error: float
    aolp_error: Optional[float]
    places: np.ndarray


class CheckedSetting(NamedTuple):
    """Errors of one setting: its name, its angle in degrees if given, errors without and with the calibration."""

    name: str
    angle: Optional[float]
    before: LightErrors
    after: LightErrors


class CheckResult(NamedTuple):
    """Result of a check.

    Attributes:
        settings: The settings.
        black: Mean black level of the calibration and of the dark frames, as shares of full scale; None without these.
        places: (2, 3, 3): errors of (S1, S2)/S0 by place over all settings, without and with the calibration.
        ratio: Their error over all places without the calibration, divided by that with it.
    """

    settings: List[CheckedSetting]
    black: Optional[Tuple[float, float]]
    places: np.ndarray
    ratio: float


def in_halves(frames: Iterable[SessionFrame]) -> Iterator[SessionFrame]:
    """Yield the frames with every second one of a setting in a setting of its own, so that noise can be told apart."""
    for number, row in enumerate(frames):
        yield row if row.setting == DARK else row._replace(setting=_half(row.setting, number % 2))


def _half(setting: str, number: int) -> str:
    return f"{setting}, half {number}"


def check_calibration(
    calibration: Calibration, sums: SessionSums, angles: Mapping[str, Optional[float]], offset: Tuple[int, int] = (0, 0)
) -> CheckResult:
    """Evaluate a calibration.

    Args:
        calibration: The calibration, of the sensor of the frames.
        sums: Sums of the frames `in_halves`, in the order of the sensor's own readout. Dark frames are optional.
        angles: Angle of each setting in degrees; None if it is unknown.
        offset: (x, y) of the frames' first pixel in that readout.

    Raises:
        FrameError: The calibration lacks pixels of the frames.
        ValueError: There is no light.
    """
    correction = correction_for(calibration, offset, (False, False), sums.shape)
    parameters = correction.parameters()
    dark = sums.dark.mean() if DARK in sums.settings else None
    black = parameters.black if dark is None else dark
    good = np.ones(sums.shape, bool)
    good[correction.defects] = False
    found = []
    for name, angle in angles.items():
        keys = [_half(name, number) for number in range(2)]
        halves = [sums.settings[key] for key in keys if key in sums.settings]
        used = good & ~halves[0].saturated & ~halves[-1].saturated
        whole = np.logical_and.reduce(_superpixels(used, sums.sensor, correction))
        before, after = [], []
        for half in (halves[0], halves[-1]):
            mean = half.mean()
            before.append(_stokes(_superpixels(mean - black, sums.sensor, correction)))
            z = _superpixels((mean - parameters.black) * parameters.gain, sums.sensor, correction)
            _, s1, s2 = _stokes(z)
            e1, e2 = (_superpixels(image, sums.sensor, correction) for image in (parameters.e1, parameters.e2))
            after.append(_stokes(z + e1 * s1 + e2 * s2))
        s0 = np.mean(after[0][0], where=whole)
        if not s0 > _LEAST_LIGHT:
            raise ValueError(f"the frames of {name} have no light: their mean is {s0:.2%} of full scale")
        dolp = np.hypot(*(np.mean(image / after[0][0], where=whole) for image in after[0][1:]))
        is_unpolarized = UNPOLARIZED in name.lower() or (angle is None and dolp < _UNPOLARIZED_DOLP)
        ideal = 0.0 if is_unpolarized else None if angle is None else 1.0
        found.append(CheckedSetting(name, angle, _errors(before, whole, ideal), _errors(after, whole, ideal)))
    if not found:
        raise ValueError("a check needs frames of uniform light, best behind a polarizer at several angles")
    squares = [[row.before.places for row in found], [row.after.places for row in found]]
    total = np.maximum(np.nanmean(squares, (1, 2, 3)), 1e-12)
    levels = None if dark is None else (float(parameters.black[good].mean()), float(dark[good].mean()))
    places = np.sqrt(np.maximum(np.nanmean(squares, 1), 0))
    return CheckResult(found, levels, places, float(np.sqrt(total[0] / total[1])))


def _superpixels(image: np.ndarray, sensor: Sensor, correction: Correction) -> np.ndarray:
    """Return (4, h, w): the pixels of complete superpixels, in the order of `ANGLES`."""
    top, left = correction.phase
    image = image[top:, left:]
    height, width = (side // 2 * 2 for side in image.shape)
    places = {sensor.angle_index(r + top, c + left): (r, c) for r in range(2) for c in range(2)}
    return np.stack([image[r:height:2, c:width:2] for r, c in (places[k] for k in range(len(ANGLES)))])


def _stokes(pixels: np.ndarray) -> np.ndarray:
    """Return (3, h, w): S0, S1 and S2 of superpixels."""
    i0, i45, i90, i135 = pixels
    return np.stack([pixels.sum(0) / 2, i0 - i90, i45 - i135])


def _errors(halves: List[np.ndarray], used: np.ndarray, ideal: Optional[float]) -> LightErrors:
    """Compute the errors; noise is independent in the two halves of the frames, so it is not in products of both.

    Args:
        halves: (3, h, w) Stokes vectors by the two halves of the frames.
        used: (h, w) bool.
        ideal: DoLP that the light has; None if it is that of the mean.
    """
    vectors = [np.where(used, stokes[1:] / np.where(used, stokes[0], 1), 0) for stokes in halves]
    q, u = sum(vector.sum((1, 2)) for vector in vectors) / (2 * np.count_nonzero(used))
    dolp, turn = float(np.hypot(q, u)), float(np.arctan2(u, q))
    if ideal is None:
        ideal = min(dolp, 1.0)
    along, across = [], []
    for q_image, u_image in vectors:
        along.append(q_image * np.cos(turn) + u_image * np.sin(turn) - ideal)
        across.append(u_image * np.cos(turn) - q_image * np.sin(turn))
    squares = [np.where(used, one[0] * one[1], np.nan) for one in (along, across)]
    dolp_square, aolp_square = (max(0.0, float(np.nanmean(square))) for square in squares)
    rows = [np.array_split(row, _PLACES, 1) for row in np.array_split(squares[0] + squares[1], _PLACES, 0)]
    places = np.array([[np.nanmean(place) for place in row] for row in rows])
    aolp = float(np.rad2deg(turn / 2)) % 180
    if ideal == 0:
        return LightErrors(dolp, aolp, float(np.sqrt(dolp_square + aolp_square)), None, places)
    return LightErrors(
        dolp, aolp, float(np.sqrt(dolp_square)), float(np.rad2deg(np.sqrt(aolp_square) / 2 / ideal)), places
    )


def describe_check(result: CheckResult) -> Iterator[str]:
    """Yield the lines that describe the result; the last one is the verdict."""
    if result.black is not None:
        yield "black level: {:.3%} of full scale in the calibration, {:.3%} in the dark frames".format(*result.black)
    for name, _, before, after in result.settings:
        text = f"{name}: DoLP {before.dolp:.4f} -> {after.dolp:.4f}, error {before.dolp_error:.4f} -> "
        text += f"{after.dolp_error:.4f}"
        if before.aolp_error is not None and after.aolp_error is not None:
            text += f"; AoLP {before.aolp:.2f} -> {after.aolp:.2f} degrees, error {before.aolp_error:.3f} -> "
            text += f"{after.aolp_error:.3f}"
        yield text
    given = [(row.after.aolp, row.angle) for row in result.settings if row.angle is not None]
    if given:
        turns = [np.rad2deg(half_turn(np.deg2rad(aolp - angle))) for aolp, angle in given]
        yield f"AoLP minus the given angle: {np.mean(turns):+.2f} +-{np.std(turns):.2f} degrees"
    yield "error of (S1, S2)/S0 by place, top to bottom:"
    for row in zip(*result.places):
        yield "  " + "    ".join(f"{before:.4f} -> {after:.4f}" for before, after in zip(*row))
    if result.ratio > 1:
        yield f"with the calibration errors are {result.ratio:.1f} times smaller than without"
    else:
        yield f"with the calibration errors are {1 / result.ratio:.1f} times LARGER than without: do not use it"
