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

from dataclasses import dataclass
from typing import List, Tuple

import numpy as np

from polar_pipeline.sensor.forward import color_indices, nominal_angles
from polar_pipeline.sensor.mosaic import Sensor

#: Minimum number of settings that determine pixels and lamp.
MIN_ANGLES = 4
#: Standard deviation of an angle as read, in degrees, unless it is given.
ANGLE_ERROR = 0.5
#: Angles closer than this, in degrees, count as one.
_DISTINCT = 1.0
#: Minimum range of the angles in degrees: within less, pixels' responses cannot be told from the light.
_MIN_RANGE = 30.0
#: Degrees by which the pixels of a site can be turned from their nominal angle on average.
_MAX_TURNED = 12.0
#: Degrees by which the angles as read, once rotated, can differ from those of the frames (root mean square).
_MAX_SPREAD = 15.0
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
    """The settings of a session."""

    angles: np.ndarray  # (K,) angles in rad
    #: (K,) angles in degrees as read, less the quarter turns of the camera between sessions; NaN if unknown.
    readings: np.ndarray
    lamp: np.ndarray  # (K,) brightness, 1 on average
    #: (K, 3), the lamp factor times (1, p cos 2a, p sin 2a) with ``p = (R - 1)/(R + 1)`` for the polarizer's extinction
    #: ratio R.
    basis: np.ndarray
    terms: np.ndarray  # (J, 3), A, B and C of each site, as shares of full scale
    residuals: np.ndarray  # (J, K), the means minus the model, as shares of full scale
    #: Relative differences between the gains of pixels of 0 and 90, and of 45 and 135 degrees.
    pair_differences: Tuple[float, float]
    pair_error: float  # standard deviation of pair differences
    turned: float  # mean angle of the pixels minus their nominal angle, in degrees


def fit_polarizer(
    means: np.ndarray, sensor: Sensor, readings: np.ndarray, sessions: np.ndarray, angle_error: float, extinction: float
) -> Polarizer:
    """Fit angles, lamp factors and terms of the sites by Gauss-Newton.

    Args:
        means: (J, K) means of the sites of the mosaic, row by row, without the black level.
        sensor: The mosaic.
        readings: (K,) angles of the settings in degrees, as read; NaN if unknown.
        sessions: (K,) session of each setting, from 0.
        angle_error: Standard deviation of angles as read, in degrees.
        extinction: Extinction ratio of the polarizer; infinite for an ideal one.

    Raises:
        ValueError: Fewer than four angles that are distinct modulo 180 degrees, angles that are all close to each
            other, no light, or angles as read that do not belong to these frames.
    """
    scale, nominal, (sites, settings) = float(means.mean()), site_angles(sensor), means.shape
    if scale <= 0 or float(means.min()) < -scale:
        raise ValueError("the frames of the polarizer are as dark as the dark frames: nothing can be measured")
    angles, readings = _align_angles(np.angle(np.exp(2j * nominal) @ means) / 2, readings, sessions)
    _check_spread(np.rad2deg(angles))
    lamp = means.mean(0)
    lamp = np.maximum(lamp, 1e-6 * lamp.max())
    lamp, means = lamp / lamp.mean(), means / scale
    has_reading = np.flatnonzero(np.isfinite(readings))
    aim = angles[has_reading] + half_turn(np.deg2rad(readings[has_reading]) - angles[has_reading])
    strength = 1 - 2 / (extinction + 1)
    terms = np.linalg.lstsq(_basis(angles, lamp, strength), means.T, rcond=None)[0].T
    pairs, harmonics = _pair_rows(sensor, terms[:, 0]), harmonic_rows(angles, sessions)
    sigma = np.deg2rad(angle_error)
    weights = np.ones(len(has_reading))

    def deviations(parameters: np.ndarray) -> np.ndarray:
        """Return every deviation over its standard deviation."""
        lamp, terms, angles = np.split(parameters, [settings, settings + 3 * sites])
        terms = terms.reshape(sites, 3)
        turn = np.mean(np.cos(2 * nominal) * terms[:, 2] - np.sin(2 * nominal) * terms[:, 1]) / 2
        rows = [
            ((means - terms @ _basis(angles, lamp, strength).T) / _MEAN).ravel(),
            weights * (angles[has_reading] - aim) / sigma,
            pairs @ terms[:, 0] / _PAIR,
            [turn / np.deg2rad(_ORIENTATION), (lamp.mean() - 1) / _MEAN],
        ]
        if len(np.unique(sessions)) > 1:
            rows.append(harmonics @ lamp / _LAMP)
        return np.concatenate(rows)

    parameters = np.r_[lamp, terms.ravel(), angles]
    for _ in range(_STEPS):
        # derivatives by imaginary steps, which are exact
        steps = 1j * _SMALL * np.eye(len(parameters))
        slopes = np.stack([deviations(parameters + step).imag / _SMALL for step in steps], 1)
        change = np.linalg.lstsq(slopes, -deviations(parameters), rcond=1e-14)[0]
        parameters = parameters + change
        turns = (parameters[-settings:][has_reading] - aim) / sigma
        weights = 1 / np.sqrt(1 + (turns / _ROBUST) ** 2)
        if np.abs(change).max() < _CONVERGED:
            break
    lamp, terms, angles = np.split(parameters, [settings, settings + 3 * sites])
    covariance = np.linalg.pinv(slopes.T @ slopes, rcond=1e-14, hermitian=True)
    means_a = settings + 3 * np.arange(sites)
    pair_variance = np.diag(pairs @ covariance[np.ix_(means_a, means_a)] @ pairs.T)
    basis, terms = _basis(angles, lamp, strength), terms.reshape(sites, 3)
    residuals, terms = (means - terms @ basis.T) * scale, terms * scale
    pair_differences = (_pair_rows(sensor, terms[:, 0]) @ terms[:, 0]).reshape(-1, 2).mean(0)
    return Polarizer(
        angles=angles,
        readings=readings,
        lamp=lamp,
        basis=basis,
        terms=terms,
        residuals=residuals,
        pair_differences=tuple(pair_differences.tolist()),
        pair_error=float(np.sqrt(pair_variance.mean())),
        turned=_mean_orientation(terms, nominal),
    )


def _align_angles(guess: np.ndarray, readings: np.ndarray, sessions: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Rotate the angles that ideal pixels measure, (K,) in rad, such that they fit the angles as read.

    Returns:
        (K,) angles in rad, and the readings less the quarters by which the camera was turned before sessions after the
        first.
    """
    has_reading = np.isfinite(readings)
    if not has_reading.any():
        return guess, readings
    turns = np.deg2rad(readings) - guess
    by_session = [turns[has_reading & (sessions == session)] for session in range(sessions.max() + 1)]
    offsets = np.array([np.angle(np.exp(2j * own).sum()) / 2 for own in by_session])  # 0 without readings
    quarters = np.rint(half_turn(offsets - offsets[0]) / (np.pi / 2))[sessions]
    start, readings = guess + offsets[0], readings - 90 * quarters
    errors = half_turn(np.deg2rad(readings) - start)[has_reading]
    spread = float(np.rad2deg(np.sqrt(np.mean(errors**2))))
    if spread > _MAX_SPREAD and np.median(np.abs(errors)) > np.deg2rad(_MAX_SPREAD / 3):
        raise ValueError(
            f"the given angles differ by {spread:.0f} degrees (root mean square) from those that the frames show: "
            "sensor, ROI offset or flips do not fit the frames, or the angles are counted clockwise; "
            "--angles unknown takes none"
        )
    return start, readings


def _check_spread(degrees: np.ndarray) -> None:
    """Check that angles determine the pixels and the lamp."""
    count, angle_range = distinct_angles(degrees), 180 - largest_gap(degrees)
    if count < MIN_ANGLES:
        raise ValueError(
            f"at least {MIN_ANGLES} polarizer angles that differ modulo 180 degrees are needed, best 18, got {count}"
        )
    if angle_range < _MIN_RANGE:
        raise ValueError(
            f"all polarizer angles lie within {angle_range:.0f} degrees: spread them over 180 degrees, best every 10"
        )


def _mean_orientation(terms: np.ndarray, nominal: np.ndarray) -> float:
    """Return the mean angle of the sites' pixels minus their nominal angle, in degrees."""
    measured = np.arctan2(terms[:, 2], terms[:, 1]) / 2
    turned = np.rad2deg(half_turn(measured - nominal))
    worst = int(np.argmax(np.abs(turned)))
    if abs(turned[worst]) > _MAX_TURNED:
        raise ValueError(
            f"pixels with a polarizer of {np.rad2deg(nominal[worst]):.0f} degrees react as at "
            f"{np.rad2deg(measured[worst]) % 180:.0f}: sensor, ROI offset or flips do not fit the frames, or the "
            "polarizer's angles are counted from another axis or clockwise; --angles unknown takes none"
        )
    return float(np.mean(turned))


def _pair_rows(sensor: Sensor, levels: np.ndarray) -> np.ndarray:
    """Return (pairs, J): from sites' A, roughly `levels`, to relative differences of orthogonal sites of a color."""
    nominal = site_angles(sensor)
    colors = color_indices(sensor, (sensor.period, sensor.period)).ravel()
    rows = []
    for color in np.unique(colors):
        own = colors == color
        level = levels[own].mean() * np.count_nonzero(own) / 4
        rows += [own * np.cos(2 * nominal) / level, own * np.sin(2 * nominal) / level]
    return np.stack(rows)


def harmonic_rows(angles: np.ndarray, sessions: np.ndarray) -> np.ndarray:
    """Return (2, K): from lamp factors to their amplitudes of cos 2a and sin 2a, averaged over the sessions.

    A lamp that drifts evenly in a session does not count.
    """
    rows = np.zeros((2, len(angles)))
    for session in np.unique(sessions):
        own = np.flatnonzero(sessions == session)
        turns = 2 * angles[own]
        design = np.stack([np.ones(len(own)), np.linspace(-1, 1, len(own)), np.cos(turns), np.sin(turns)], 1)
        rows[:, own] = np.linalg.pinv(design)[2:] / len(np.unique(sessions))
    return rows


def site_angles(sensor: Sensor) -> np.ndarray:
    """Return (J,) nominal angles in rad of the sites of the mosaic, row by row."""
    return nominal_angles(sensor, (sensor.period, sensor.period)).ravel()


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
