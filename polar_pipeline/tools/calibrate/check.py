"""Evaluation of a calibration on new frames of uniform light: errors of DoLP and AoLP without it and with it."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import cv2
import numpy as np

from polar_pipeline.calibration import Calibration
from polar_pipeline.calibration.correction import correction_for
from polar_pipeline.tools.calibrate.polarizer import half_turn
from polar_pipeline.tools.calibrate.reductions import stokes, superpixels
from polar_pipeline.tools.calibrate.session import SessionFrame
from polar_pipeline.tools.calibrate.sums import DARK, UNPOLARIZED, SessionSums

#: Light at an unknown angle and of a lower DoLP counts as unpolarized.
_UNPOLARIZED_DOLP = 0.1
#: If all light has a higher DoLP, errors at low DoLP are not tested.
_STRONG_DOLP = 0.5
#: Minimum S0 as a share of full scale.
_MIN_LIGHT = 0.01
#: Rows and columns of the places by which errors are stated.
_PLACES = 3


class LightErrors(NamedTuple):
    """Errors in frames of one setting, root mean square over superpixels, without the noise of the frames."""

    dolp: float  # DoLP of the mean over superpixels
    aolp: float  # AoLP of the mean in degrees
    #: Error of the DoLP. It should be 0 of unpolarized light, 1 at a known angle, and otherwise the mean.
    dolp_error: float
    aolp_error: Optional[float]  # deviation of the AoLP from its mean in degrees; None of unpolarized light
    error: float  # error of (S1, S2)/S0, which contains both
    places: np.ndarray  # (3, 3), `error` by place


class CheckedSetting(NamedTuple):
    """Errors of one setting without and with the calibration; its angle is in degrees, None if unknown."""

    name: str
    angle: Optional[float]
    before: LightErrors
    after: LightErrors


class CheckResult(NamedTuple):
    """Result of a check."""

    settings: List[CheckedSetting]  # errors of each setting
    #: Mean black level of the calibration and of the dark frames, as shares of full scale; None without these.
    black: Optional[Tuple[float, float]]
    places: np.ndarray  # (2, 3, 3): errors of (S1, S2)/S0 by place over all settings, without and with the calibration
    ratio: float  # error without the calibration over all settings and places, divided by that with it


def in_halves(frames: Iterable[SessionFrame]) -> Iterator[SessionFrame]:
    """Yield the frames with every second one of a setting in a setting of its own, so that noise can be told apart."""
    counts: Dict[str, int] = defaultdict(int)
    for row in frames:
        yield row if row.setting == DARK else row._replace(setting=_half(row.setting, counts[row.setting] % 2))
        counts[row.setting] += 1


def _half(setting: str, number: int) -> str:
    return f"{setting}, half {number}"


def check_calibration(
    calibration: Calibration, sums: SessionSums, angles: Mapping[str, Optional[float]], offset: Tuple[int, int] = (0, 0)
) -> CheckResult:
    """Evaluate a calibration of the sensor by frames `in_halves`. Dark frames are optional.

    `angles` has the angle of each setting in degrees, None if unknown, and `offset` is the (x, y) of the frames' first
    pixel in the sensor's own readout.

    Raises:
        FrameError: The calibration lacks pixels of the frames.
        ValueError: Frames are dark or saturated.
    """
    correction = correction_for(calibration, offset, (False, False), sums.shape)
    four_of = partial(superpixels, sensor=sums.sensor, phase=correction.phase)
    black, gain, e1, e2 = map(four_of, correction.parameters("float32"))
    dark = four_of(sums.dark.mean().astype(np.float32)) if DARK in sums.settings else black
    good = np.ones(sums.shape, bool)
    good[correction.defects] = False
    settings = []
    for name, angle in angles.items():
        keys = [_half(name, number) for number in range(2)]
        halves = [sums.settings[key] for key in keys if key in sums.settings]
        used = np.logical_and.reduce(four_of(good & ~halves[0].saturated & ~halves[-1].saturated))
        if not used.any():
            raise ValueError(f"the frames of {name} are saturated: shorten the exposure")
        before, after = [], []
        for half in (halves[0], halves[-1]):
            pixels = four_of(half.mean().astype(np.float32))
            before.append(_normalized(pixels - dark, used, name))
            pixels -= black
            pixels *= gain
            _, s1, s2 = stokes(pixels)
            pixels += e1 * s1
            pixels += e2 * s2
            after.append(_normalized(pixels, used, name))
        is_weak = angle is None and np.hypot(*_mean_vector(after)) < _UNPOLARIZED_DOLP
        ideal = 0.0 if is_weak or UNPOLARIZED in name.lower() else None if angle is None else 1.0
        settings.append(CheckedSetting(name, angle, _errors(before, used, ideal), _errors(after, used, ideal)))
    if not settings:
        raise ValueError("a check needs frames of uniform light, best behind a polarizer at several angles")
    whole = four_of(good)
    levels = (float(black[whole].mean()), float(dark[whole].mean())) if DARK in sums.settings else None
    places = np.sqrt(np.mean(np.square([[row.before.places, row.after.places] for row in settings]), 0))
    before, after = np.linalg.norm([[row.before.error, row.after.error] for row in settings], axis=0)
    return CheckResult(settings, levels, places, float(before / after))


def _normalized(pixels: np.ndarray, used: np.ndarray, name: str) -> np.ndarray:
    """Return (2, n): (S1, S2)/S0 of the superpixels that are used, limited to [-2, 2]."""
    s0, s1, s2 = (image[used] for image in stokes(pixels))
    if s0.mean() < _MIN_LIGHT:
        raise ValueError(f"the frames of {name} have no light")
    return np.clip([s1, s2] / np.maximum(s0, _MIN_LIGHT / 10), -2, 2)


def _errors(halves: List[np.ndarray], used: np.ndarray, ideal: Optional[float]) -> LightErrors:
    """Compute the errors. Noise is independent in the two halves of the frames, so that it is not in products of both.

    Args:
        halves: (2, n), `_normalized` of each half.
        used: (h, w) bool: places of the n superpixels.
        ideal: DoLP of the light; None for that of the mean.
    """
    q, u = _mean_vector(halves)
    dolp, turn = float(np.hypot(q, u)), float(np.arctan2(u, q))
    if ideal is None:
        ideal = min(dolp, 1.0)
    along = [half[0] * np.cos(turn) + half[1] * np.sin(turn) - ideal for half in halves]
    across = [half[1] * np.cos(turn) - half[0] * np.sin(turn) for half in halves]
    squares = np.zeros((2, *used.shape))
    squares[:, used] = [one * other for one, other in (along, across)]
    dolp_error, aolp_error = (_root_mean(image, used).item() for image in squares)
    error, places = (_root_mean(squares.sum(0), used, count) for count in (1, _PLACES))
    aolp = round(float(np.rad2deg(turn / 2)), 3) % 180
    if ideal == 0:
        return LightErrors(dolp, aolp, error.item(), None, error.item(), places)
    return LightErrors(dolp, aolp, dolp_error, float(np.rad2deg(aolp_error / 2 / ideal)), error.item(), places)


def _mean_vector(halves: List[np.ndarray]) -> Tuple[float, float]:
    """Return the mean of (S1, S2)/S0 over superpixels."""
    q, u = np.concatenate(halves, 1).mean(1, dtype=np.float64).tolist()
    return q, u


def _root_mean(squares: np.ndarray, used: np.ndarray, count: int = 1) -> np.ndarray:
    """Return (count, count): roots of the means by place, at least of their standard errors: less is not measured.

    In the frames that a calibration was made from, means are negative; their amounts show its noise. The products
    `squares`, (h, w), are 0 where they are not `used`.
    """
    mean, square, share = (
        cv2.resize(image, (count, count), interpolation=cv2.INTER_AREA)
        for image in (squares, np.square(squares), used.astype(np.float64))
    )
    share = np.maximum(share, 1 / used.size)
    error = np.sqrt(square / share / (share * used.size / count**2))
    root: np.ndarray = np.sqrt(np.maximum(np.abs(mean) / share, error))
    return root


def describe_check(result: CheckResult) -> Iterator[str]:
    """Yield the lines that describe the result; the last one is the verdict."""
    if result.black is not None:
        yield "black level: {:.3%} of full scale in the calibration, {:.3%} in the dark frames".format(*result.black)
    for name, _, before, after in result.settings:
        text = f"{name}: DoLP {before.dolp:.4f} -> {after.dolp:.4f}, error {before.dolp_error:.4f} -> "
        text += f"{after.dolp_error:.4f}"
        if before.aolp_error is not None and after.aolp_error is not None:
            text += f"; AoLP {before.aolp:.2f} -> {after.aolp:.2f} degrees, error {before.aolp_error:.2f} -> "
            text += f"{after.aolp_error:.2f}"
        yield text
    differences = [row.after.aolp - row.angle for row in result.settings if row.angle is not None]
    if differences:
        turns = np.rad2deg(half_turn(np.deg2rad(differences)))
        yield f"AoLP minus the given angle: {np.mean(turns):+.2f} +-{np.std(turns):.2f} degrees"
    yield "error of (S1, S2)/S0 by place, top to bottom:"
    for row in zip(*result.places):
        yield "  " + "    ".join(f"{before:.4f} -> {after:.4f}" for before, after in zip(*row))
    if min(row.after.dolp for row in result.settings) > _STRONG_DOLP:
        yield (
            "low DoLP is untested, where gains matter most: all of this light is strongly polarized; add frames "
            "without a polarizer in a folder 'unpolarized'"
        )
    if result.ratio > 1:
        yield f"with the calibration errors are {result.ratio:.1f} times smaller than without"
    else:
        yield f"with the calibration errors are {1 / result.ratio:.1f} times LARGER than without: do not use it"
