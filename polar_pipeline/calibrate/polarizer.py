"""The polarizer and the lamp of a session: the angle and the brightness of each setting, from means over the sensor.

The mean over the pixels of one site j of the mosaic, at setting k with angle a and lamp factor b, is

    M = b (A + B cos 2a + C sin 2a)

Known angles determine b up to its mean. With unknown angles, one rotation and two more changes of (a, b) together
(those that map the cone of linearly polarized light onto itself) leave M as it is; they are chosen such that the mean
orientation of the pixels is the nominal one and that the mean gains of orthogonal pixels are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline.sensor.forward import nominal_angles
from polar_pipeline.sensor.mosaic import Sensor

#: Fewest settings that determine pixels and lamp.
MIN_ANGLES = 4
#: Angles closer than this, in degrees, count as one.
_DISTINCT = 1.0
#: Degrees by which the pixels of a site can be turned from their nominal angle on average.
_MOST_TURNED = 12.0
#: Steps of the fit; it ends before where it changes nothing.
_STEPS, _CONVERGED = 50, 1e-12


@dataclass(frozen=True)
class Polarizer:
    """The settings of a session.

    Attributes:
        angles: (K,) angles in rad; the given ones where all were known, else in [0, pi).
        lamp: (K,) brightness, 1 on average.
        terms: (J, 3), A, B and C of each site, as shares of full scale.
        residuals: (J, K), the means minus the model, as shares of full scale.
    """

    angles: np.ndarray
    lamp: np.ndarray
    terms: np.ndarray
    residuals: np.ndarray

    def degrees(self) -> Tuple[float, ...]:
        """Return the angles in degrees."""
        return tuple(np.rad2deg(self.angles).tolist())

    def basis(self) -> np.ndarray:
        """Return (K, 3): the lamp factor times (1, cos 2a, sin 2a)."""
        return _basis(self.angles, self.lamp)


def fit_polarizer(means: np.ndarray, sensor: Sensor, known: Sequence[Optional[float]]) -> Polarizer:
    """Fit lamp factors, and the angles unless all are known.

    Args:
        means: (J, K) means of the sites of the mosaic, row by row, without the black level.
        sensor: The mosaic.
        known: Angle in degrees of each setting, or None. Where some are unknown, the known ones count only for the
            rotation of all: it is such that their mean deviation is 0.

    Raises:
        ValueError: Fewer than four angles that are distinct modulo 180 degrees, or no light.
    """
    nominal = site_angles(sensor)
    scale = float(means.mean())
    if scale <= 0 or float(means.min()) < -scale:
        raise ValueError("the frames of the polarizer are as dark as the dark frames: nothing can be measured")
    is_known = all(angle is not None for angle in known)
    guess, lamp = _measured(means, nominal)
    angles = np.deg2rad([float(a) for a in known if a is not None]) if is_known else guess
    count = distinct_angles(np.rad2deg(angles))
    if count < MIN_ANGLES:
        raise ValueError(
            f"at least {MIN_ANGLES} polarizer angles that differ modulo 180 degrees are needed, best 18, got {count}"
        )
    fit = _Fit(means / scale, nominal, known, is_known)
    angles, lamp, terms = fit.solve(angles, lamp)
    angles = angles if is_known else angles % np.pi
    model = terms @ _basis(angles, lamp).T
    return Polarizer(angles, lamp, terms * scale, means - model * scale)


class _Fit(NamedTuple):
    """Gauss-Newton fit of the lamp factors, the terms of the sites and, if unknown, the angles."""

    means: np.ndarray
    nominal: np.ndarray
    known: Sequence[Optional[float]]
    is_known: bool

    def solve(self, angles: np.ndarray, lamp: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Solve for (angles, lamp factors, (J, 3) terms), from first values of the angles and the lamp."""
        sites, settings = self.means.shape
        lamp = lamp / lamp.mean()
        terms = np.linalg.lstsq(_basis(angles, lamp), self.means.T, rcond=None)[0].T
        for _ in range(_STEPS):
            rows, errors = self._equations(angles, lamp, terms)
            step = np.linalg.lstsq(rows, errors, rcond=1e-12)[0]
            lamp = lamp + step[:settings]
            terms = terms + step[settings : settings + 3 * sites].reshape(sites, 3)
            if not self.is_known:
                angles = angles + step[settings + 3 * sites :]
            if np.abs(step).max() < _CONVERGED:
                break
        return angles, lamp, terms

    def _equations(self, angles: np.ndarray, lamp: np.ndarray, terms: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Set up the linear equations of a step: residuals of the data, and the undetermined choices."""
        sites, settings = self.means.shape
        shape = _basis(angles, np.ones(settings))
        light = terms @ shape.T
        columns = settings + 3 * sites + (0 if self.is_known else settings)
        rows = np.zeros((sites, settings, columns))
        for k in range(settings):
            rows[:, k, k] = light[:, k]
            for j in range(sites):
                rows[j, k, settings + 3 * j : settings + 3 * j + 3] = lamp[k] * shape[k]
            if not self.is_known:
                slope = 2 * (terms[:, 2] * shape[k, 1] - terms[:, 1] * shape[k, 2])
                rows[:, k, settings + 3 * sites + k] = lamp[k] * slope
        errors = self.means - lamp * light
        choices = [(np.r_[np.full(settings, 1 / settings), np.zeros(columns - settings)], 1 - lamp.mean())]
        if not self.is_known:
            choices += self._open_choices(angles, terms, columns)
        every = np.concatenate([rows.reshape(-1, columns), [row for row, _ in choices]])
        return every, np.concatenate([errors.reshape(-1), [error for _, error in choices]])

    def _open_choices(self, angles: np.ndarray, terms: np.ndarray, columns: int) -> List[Tuple[np.ndarray, float]]:
        """Return equations for choices that unknown angles leave open: two of the gains, one of the rotation."""
        sites, settings = self.means.shape
        found = []
        place = settings + 3 * np.arange(sites)
        for factor in (np.cos(2 * self.nominal), np.sin(2 * self.nominal)):
            row = np.zeros(columns)
            row[place] = factor
            found.append((row, -float(row[place] @ terms[:, 0])))
        row = np.zeros(columns)
        given = [k for k, angle in enumerate(self.known) if angle is not None]
        if given:
            row[settings + 3 * sites + np.array(given)] = 1 / len(given)
            aim = np.deg2rad([float(self.known[k] or 0.0) for k in given])
            found.append((row, float(np.mean(half_turn(aim - angles[given])))))
        else:
            row[place + 1] = -np.sin(2 * self.nominal)
            row[place + 2] = np.cos(2 * self.nominal)
            found.append((row, -float(row[place + 1] @ terms[:, 1] + row[place + 2] @ terms[:, 2])))
        return found


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
    """Count the angles that differ by more than a degree modulo 180 degrees."""
    rising = np.sort(np.asarray(degrees) % 180)
    gaps = np.diff(np.r_[rising, rising[0] + 180])
    return max(1, int(np.count_nonzero(gaps > _DISTINCT)))


def _basis(angles: np.ndarray, lamp: np.ndarray) -> np.ndarray:
    return np.stack([lamp, lamp * np.cos(2 * angles), lamp * np.sin(2 * angles)], 1)


def _measured(means: np.ndarray, nominal: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Return angle and brightness of each setting as a sensor of ideal pixels would measure them."""
    s1 = 2 * (np.cos(2 * nominal) @ means)
    s2 = 2 * (np.sin(2 * nominal) @ means)
    lamp = means.mean(0)
    return np.arctan2(s2, s1) / 2, np.maximum(lamp, 1e-6 * lamp.max())
