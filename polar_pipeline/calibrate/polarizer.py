"""The polarizer and the lamp of a session: the angle and the brightness of each setting, from means over the sensor.

The mean over the pixels of one site j of the mosaic, at setting k with angle a and lamp factor b, is

    M = b (A + B cos 2a + C sin 2a)

Known angles determine b up to its mean. With unknown angles, one rotation and two more changes of (a, b) together
(those that map the cone of linearly polarized light onto itself) leave M as it is; they are chosen such that the mean
orientation of the pixels is the nominal one and that the mean gains of orthogonal pixels are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

import numpy as np

from polar_pipeline.sensor.forward import nominal_angles
from polar_pipeline.sensor.mosaic import Sensor

#: Fewest settings that determine pixels and lamp.
MIN_ANGLES = 4
#: Angles closer than this, in degrees, count as one.
_DISTINCT = 1.0
#: Degrees by which the pixels of a site can be turned from their nominal angle on average.
_MOST_TURNED = 12.0
#: Steps of the fit; it ends before where it changes nothing. And the size of imaginary steps.
_STEPS, _CONVERGED, _SMALL = 50, 1e-12, 1e-30


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
    is_known = None not in known
    guess, lamp = _measured(means, nominal)
    angles = np.deg2rad([float(a) for a in known if a is not None]) if is_known else guess
    count = distinct_angles(np.rad2deg(angles))
    if count < MIN_ANGLES:
        raise ValueError(
            f"at least {MIN_ANGLES} polarizer angles that differ modulo 180 degrees are needed, best 18, got {count}"
        )
    angles, lamp, terms = _fitted(means / scale, nominal, angles, lamp, None if is_known else known)
    angles = angles if is_known else angles % np.pi
    model = terms @ _basis(angles, lamp).T
    return Polarizer(angles, lamp, terms * scale, means - model * scale)


def _fitted(
    means: np.ndarray,
    nominal: np.ndarray,
    angles: np.ndarray,
    lamp: np.ndarray,
    known: Optional[Sequence[Optional[float]]],
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit angles, lamp factors and (J, 3) terms of the sites by Gauss-Newton.

    Args:
        means: (J, K), 1 on average.
        nominal: (J,) angles of the sites in rad.
        angles: (K,) in rad; those to begin with where they are not known.
        lamp: (K,) lamp factors to begin with.
        known: As of `fit_polarizer`; None if all angles are known.
    """
    sites, settings = means.shape
    given = [k for k, angle in enumerate(known or ()) if angle is not None]
    aim = np.deg2rad([float(known[k] or 0.0) for k in given]) if known else angles[given]
    aim = angles[given] + half_turn(aim - angles[given])

    def parts(parameters: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        lamp, terms, free = np.split(parameters, [settings, settings + 3 * sites])
        return (free if known else angles), lamp, terms.reshape(sites, 3)

    def remaining(parameters: np.ndarray) -> np.ndarray:
        """Return the residuals of the means, and of the choices that the means leave open; all should be 0."""
        angles, lamp, terms = parts(parameters)
        choices = [1 - lamp.mean()]
        if known:
            cosine, sine = np.cos(2 * nominal), np.sin(2 * nominal)
            turned = np.mean(aim - angles[given]) if given else cosine @ terms[:, 2] - sine @ terms[:, 1]
            choices += [cosine @ terms[:, 0], sine @ terms[:, 0], turned]
        return np.r_[(means - terms @ _basis(angles, lamp).T).ravel(), choices]

    lamp = lamp / lamp.mean()
    terms = np.linalg.lstsq(_basis(angles, lamp), means.T, rcond=None)[0].T
    found = np.r_[lamp, terms.ravel(), angles if known else []]
    for _ in range(_STEPS):
        # derivatives by imaginary steps, which are exact
        slopes = [remaining(found + step).imag / _SMALL for step in 1j * _SMALL * np.eye(len(found))]
        step = np.linalg.lstsq(np.stack(slopes, 1), -remaining(found), rcond=1e-12)[0]
        found = found + step
        if np.abs(step).max() < _CONVERGED:
            break
    return parts(found)


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
