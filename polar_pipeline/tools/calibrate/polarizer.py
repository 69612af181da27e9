"""The polarizer and the lamp of a session: the angle and the brightness of each setting, from means over the sensor.

The mean over the pixels of one site j of the mosaic, at setting k with angle a and lamp factor b, is

    M = b (A + B cos 2a + C sin 2a)

Angles and lamp factors are estimated together. One rotation and two more changes of (a, b) together (those that map
the cone of linearly polarized light onto itself) leave M as it is. What is known decides them, each with its standard
deviation: the angles as read, the gains of orthogonal pixels, which are equal on average, and the mean orientation of
the pixels. Several sessions, between which camera or lamp is turned by 90 degrees, tell these changes from the
polarization of the lamp, which then has the other sign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Optional, Tuple

import numpy as np

from polar_pipeline.sensor.forward import color_indices, nominal_angles
from polar_pipeline.sensor.mosaic import Sensor

#: Fewest settings that determine pixels and lamp.
MIN_ANGLES = 4
#: Standard deviation of an angle as read, in degrees, unless it is given.
ANGLE_ERROR = 0.5
#: Angles closer than this, in degrees, count as one.
_DISTINCT = 1.0
#: Least range of the angles in degrees: within less, pixels' responses cannot be told from the light.
_LEAST_RANGE = 30.0
#: Degrees by which the pixels of a site can be turned from their nominal angle on average.
_MOST_TURNED = 12.0
#: Degrees by which the angles as read, once rotated, can differ from those of the frames (root mean square).
_MOST_SPREAD = 15.0
#: Standard deviations: of a mean over the sensor, relative to the mean of all; of the difference between the mean gains
#: of orthogonal pixels; of the pixels' mean orientation in degrees; and of the lamp's polarization, averaged over
#: several sessions.
_MEAN, _PAIR, _ORIENTATION, _LAMP = 2e-4, 7e-4, 3.0, 7e-4
#: An angle that deviates by this many standard deviations from the fit counts half.
_ROBUST = 3.0
#: Steps of the fit; it ends before where it changes nothing. And the size of imaginary steps.
_STEPS, _CONVERGED, _SMALL = 50, 1e-10, 1e-30


@dataclass(frozen=True)
class Polarizer:
    """The settings of a session.

    Attributes:
        angles: (K,) angles in rad.
        lamp: (K,) brightness, 1 on average.
        basis: (K, 3), the lamp factor times (1, p cos 2a, p sin 2a) with ``p = (R - 1)/(R + 1)`` for the polarizer's
            extinction ratio R.
        terms: (J, 3), A, B and C of each site, as shares of full scale.
        residuals: (J, K), the means minus the model, as shares of full scale.
        pair_error: Standard deviation of the difference between the gains of orthogonal pixels, relative.
        read: Angle of each setting in degrees as read, less the quarters by which the camera was turned between
            sessions; None if it is unknown.
    """

    angles: np.ndarray
    lamp: np.ndarray
    basis: np.ndarray
    terms: np.ndarray
    residuals: np.ndarray
    pair_error: float
    read: Tuple[Optional[float], ...]


@dataclass(frozen=True)
class Readings:
    """What is known of the settings before the fit.

    Attributes:
        angles: Angle of each setting in degrees, as read; None if it is unknown.
        error: Standard deviation of those angles, in degrees.
        extinction: Extinction ratio of the polarizer; infinite for an ideal one.
        sessions: Session of each setting, from 0.
    """

    angles: Tuple[Optional[float], ...]
    error: float
    extinction: float
    sessions: Tuple[int, ...]


def fit_polarizer(means: np.ndarray, sensor: Sensor, readings: Readings) -> Polarizer:
    """Fit angles and lamp factors.

    Args:
        means: (J, K) means of the sites of the mosaic, row by row, without the black level.
        sensor: The mosaic.
        readings: What is known of the settings.

    Raises:
        ValueError: Fewer than four angles that are distinct modulo 180 degrees, angles that are all close to each
            other, no light, or angles as read that do not belong to these frames.
    """
    nominal = site_angles(sensor)
    scale = float(means.mean())
    if scale <= 0 or float(means.min()) < -scale:
        raise ValueError("the frames of the polarizer are as dark as the dark frames: nothing can be measured")
    start, readings = _rotated(np.angle(np.exp(2j * nominal) @ means) / 2, readings)
    lamp = means.mean(0)
    lamp = np.maximum(lamp, 1e-6 * lamp.max())
    count = distinct_angles(np.rad2deg(start))
    if count < MIN_ANGLES:
        raise ValueError(
            f"at least {MIN_ANGLES} polarizer angles that differ modulo 180 degrees are needed, best 18, got {count}"
        )
    angle_range = 180 - largest_gap(np.rad2deg(start))
    if angle_range < _LEAST_RANGE:
        raise ValueError(
            f"all polarizer angles lie within {angle_range:.0f} degrees: spread them over 180 degrees, best every 10"
        )
    fit = _fitted(means / scale, sensor, readings, start, lamp / lamp.mean())
    return replace(fit, terms=fit.terms * scale, residuals=fit.residuals * scale)


def _rotated(guess: np.ndarray, readings: Readings) -> Tuple[np.ndarray, Readings]:
    """Rotate the angles that ideal pixels measure, (K,) in rad, such that they fit the angles as read.

    Returns:
        (K,) angles in rad to begin with, and the readings less the quarters by which the camera was turned before
        sessions after the first.

    Raises:
        ValueError: The given angles differ too much.
    """
    read = np.deg2rad(np.array(readings.angles, float))
    is_given, sessions = np.isfinite(read), np.array(readings.sessions)
    if not is_given.any():
        return guess, readings
    offsets = [_mean_turn((read - guess)[is_given & (sessions == one)]) for one in range(sessions.max() + 1)]
    quarters = np.rint(half_turn(np.array(offsets) - offsets[0]) / (np.pi / 2))[sessions]
    start = guess + offsets[0]
    turns = half_turn((read - quarters * np.pi / 2 - start)[is_given])
    spread = float(np.rad2deg(np.sqrt(np.mean(turns**2))))
    if spread > _MOST_SPREAD and np.median(np.abs(turns)) > np.deg2rad(_MOST_SPREAD / 3):
        raise ValueError(
            f"the given angles differ by {spread:.0f} degrees (root mean square) from those that the frames show: "
            "sensor, ROI offset or flips do not fit the frames, or the angles are counted clockwise; "
            "--angles unknown takes none"
        )
    pairs = zip(readings.angles, quarters.tolist())
    return start, replace(readings, angles=tuple(None if angle is None else angle - 90 * n for angle, n in pairs))


def _mean_turn(turns: np.ndarray) -> float:
    """Return the mean of angles modulo half a turn, in rad; 0 without any."""
    return float(np.angle(np.sum(np.exp(2j * turns)))) / 2


def _fitted(means: np.ndarray, sensor: Sensor, readings: Readings, angles: np.ndarray, lamp: np.ndarray) -> Polarizer:
    """Fit angles, lamp factors and terms of the sites by Gauss-Newton.

    Args:
        means: (J, K), 1 on average.
        sensor: The mosaic.
        readings: What is known of the settings.
        angles: (K,) in rad, to begin with.
        lamp: (K,) lamp factors, to begin with.
    """
    read = np.deg2rad(np.array(readings.angles, float))
    given = np.flatnonzero(np.isfinite(read))
    aim = angles[given] + half_turn(read[given] - angles[given])
    (sites, settings), nominal = means.shape, site_angles(sensor)
    strength = 1 - 2 / (readings.extinction + 1)
    terms = np.linalg.lstsq(_basis(angles, lamp, strength), means.T, rcond=None)[0].T
    is_several = len(set(readings.sessions)) > 1
    pairs, harmonics = _pair_rows(sensor, terms[:, 0]), harmonic_rows(angles, readings.sessions)
    sigma = np.deg2rad(readings.error)
    weights = np.ones(len(given))

    def remaining(parameters: np.ndarray) -> np.ndarray:
        """Return every deviation over its standard deviation."""
        lamp, terms, angles = np.split(parameters, [settings, settings + 3 * sites])
        terms = terms.reshape(sites, 3)
        turn = np.mean(np.cos(2 * nominal) * terms[:, 2] - np.sin(2 * nominal) * terms[:, 1]) / 2
        rows = [
            ((means - terms @ _basis(angles, lamp, strength).T) / _MEAN).ravel(),
            weights * (angles[given] - aim) / sigma,
            pairs @ terms[:, 0] / _PAIR,
            [turn / np.deg2rad(_ORIENTATION), (lamp.mean() - 1) / _MEAN],
        ]
        if is_several:
            rows.append(harmonics @ lamp / _LAMP)
        return np.concatenate(rows)

    found = np.r_[lamp, terms.ravel(), angles]
    for _ in range(_STEPS):
        # derivatives by imaginary steps, which are exact
        slopes = np.stack([remaining(found + row).imag / _SMALL for row in 1j * _SMALL * np.eye(len(found))], 1)
        step = np.linalg.lstsq(slopes, -remaining(found), rcond=1e-14)[0]
        found = found + step
        turns = (found[-settings:][given] - aim) / sigma
        weights = 1 / np.sqrt(1 + (turns / _ROBUST) ** 2)
        if np.abs(step).max() < _CONVERGED:
            break
    lamp, terms, angles = np.split(found, [settings, settings + 3 * sites])
    covariance = np.linalg.pinv(slopes.T @ slopes, rcond=1e-14, hermitian=True)
    means_a = settings + 3 * np.arange(sites)
    pair_variance = np.diag(pairs @ covariance[np.ix_(means_a, means_a)] @ pairs.T)
    basis, terms = _basis(angles, lamp, strength), terms.reshape(sites, 3)
    return Polarizer(
        angles=angles,
        lamp=lamp,
        basis=basis,
        terms=terms,
        residuals=means - terms @ basis.T,
        pair_error=float(np.sqrt(pair_variance.mean())),
        read=readings.angles,
    )


def _pair_rows(sensor: Sensor, levels: np.ndarray) -> np.ndarray:
    """Return (pairs, J): from the sites' A to the relative differences between orthogonal sites of one color.

    `levels` are the sites' A, (J,), roughly.
    """
    nominal = site_angles(sensor)
    colors = color_indices(sensor, (sensor.period, sensor.period)).ravel()
    rows = []
    for color in np.unique(colors):
        own = colors == color
        level = levels[own].mean() * np.count_nonzero(own) / 4
        rows += [own * np.cos(2 * nominal) / level, own * np.sin(2 * nominal) / level]
    return np.stack(rows)


def pair_differences(polarizer: Polarizer, sensor: Sensor) -> Tuple[float, float]:
    """Return the relative differences between the gains of pixels of 0 and 90, and of 45 and 135 degrees."""
    levels = polarizer.terms[:, 0]
    first, second = (_pair_rows(sensor, levels) @ levels).reshape(-1, 2).mean(0).tolist()
    return first, second


def harmonic_rows(angles: np.ndarray, sessions: Tuple[int, ...]) -> np.ndarray:
    """Return (2, K): from lamp factors to their amplitudes of cos 2a and sin 2a, averaged over the sessions.

    A lamp that drifts evenly in a session does not count.
    """
    rows = np.zeros((2, len(angles)))
    for one in set(sessions):
        own = np.flatnonzero(np.array(sessions) == one)
        turns = 2 * angles[own]
        design = np.stack([np.ones(len(own)), np.linspace(-1, 1, len(own)), np.cos(turns), np.sin(turns)], 1)
        rows[:, own] = np.linalg.pinv(design)[2:] / len(set(sessions))
    return rows


def site_angles(sensor: Sensor) -> np.ndarray:
    """Return (J,) nominal angles in rad of the sites of the mosaic, row by row."""
    return nominal_angles(sensor, (sensor.period, sensor.period)).ravel()


def orientations(polarizer: Polarizer, sensor: Sensor) -> np.ndarray:
    """Return (J,) mean deviations of the sites' pixels from their nominal angle, in degrees.

    Raises:
        ValueError: By so much that the mosaic cannot be the right one; the message says what may be wrong.
    """
    nominal = site_angles(sensor)
    measured = np.arctan2(polarizer.terms[:, 2], polarizer.terms[:, 1]) / 2
    turned = np.rad2deg(half_turn(measured - nominal))
    worst = int(np.argmax(np.abs(turned)))
    if abs(turned[worst]) > _MOST_TURNED:
        raise ValueError(
            f"pixels with a polarizer of {np.rad2deg(nominal[worst]):.0f} degrees react as at "
            f"{np.rad2deg(measured[worst]) % 180:.0f}: sensor, ROI offset or flips do not fit the frames, or the "
            "polarizer's angles are counted from another axis or clockwise; --angles unknown takes none"
        )
    return turned


def half_turn(angle: np.ndarray) -> np.ndarray:
    """Wrap angles in rad to [-pi/2, pi/2)."""
    turned: np.ndarray = (angle + np.pi / 2) % np.pi - np.pi / 2
    return turned


def distinct_angles(degrees: np.ndarray) -> int:
    """Count the angles that differ by more than a degree, modulo 180 degrees, from each angle counted before."""
    counted: List[float] = []
    for angle in degrees.tolist():
        if all(abs((angle - other + 90) % 180 - 90) > _DISTINCT for other in counted):
            counted.append(angle)
    return len(counted)


def largest_gap(degrees: np.ndarray) -> float:
    """Return the largest gap between angles in degrees, modulo 180 degrees."""
    ordered = np.sort(degrees % 180)
    return float(np.diff(np.r_[ordered, ordered[0] + 180]).max())


def _basis(angles: np.ndarray, lamp: np.ndarray, strength: float) -> np.ndarray:
    """Return `Polarizer.basis`."""
    return np.stack([lamp, lamp * strength * np.cos(2 * angles), lamp * strength * np.sin(2 * angles)], 1)
