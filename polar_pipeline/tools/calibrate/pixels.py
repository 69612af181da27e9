"""Least squares of every pixel: its response to the light behind the polarizer."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.sensor.mosaic import ANGLES, Sensor
from polar_pipeline.tools.calibrate.illumination import LightMaps
from polar_pipeline.tools.calibrate.noise import Noise
from polar_pipeline.tools.calibrate.polarizer import Polarizer, site_angles
from polar_pipeline.tools.calibrate.sums import FrameSums, SessionSums

#: Pixels whose values of all settings are in memory at once.
_BAND_PIXELS = 1 << 18
#: Without measured noise, the variance of a value is proportional to the signal plus this share of its highest.
_FLOOR = 0.02
#: A pixel whose values differ by less than this share of what is usual between the settings is dead or stuck.
_LEAST_CONTRAST = 0.2


class Design(NamedTuple):
    """The least squares of the pixels behind one polarizer angle.

    Attributes:
        solver: (3, K), from a pixel's values to its A, B and C.
        basis: (K, 3), from A, B and C to the values.
        variance: (K,) of the mean of each setting's frames, in squares of full scale, of a pixel in average light.
        level: Mean A of these pixels.
    """

    solver: np.ndarray
    basis: np.ndarray
    variance: np.ndarray
    level: float

    def covariance(self) -> np.ndarray:
        """Return (3, 3): covariance of A, B and C by the noise of the frames."""
        return (self.solver * self.variance) @ self.solver.T

    def freedom(self) -> np.ndarray:
        """Return (K,): variance of what the fit leaves of each setting, relative to that of the values.

        The error with which the other settings predict a setting is what the fit leaves of it, divided by this.
        """
        own: np.ndarray = 1 - np.einsum("kt,tk->k", self.basis, self.solver)
        return np.maximum(own, 1e-3)


class PixelFits(NamedTuple):
    """Responses of the pixels, images of (H, W) float32: a value is ``lamp level (1 + cosine cos 2a + sine sin 2a)``.

    Attributes:
        level: A as a share of full scale.
        cosine: B/A, by which a pixel multiplies S1.
        sine: C/A, by which it multiplies S2.
        excess: Error with which the other settings predict each setting, root mean square over the settings, relative
            to the noise that is expected; 1 where noise explains it.
    """

    level: np.ndarray
    cosine: np.ndarray
    sine: np.ndarray
    excess: np.ndarray


def site_means(
    sums: SessionSums, settings: List[FrameSums], black: np.ndarray, used: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Compute the mean signal of the mosaic's sites at each setting, and find the pixels that react to the polarizer.

    Args:
        sums: Sums of the session.
        settings: Settings of the polarizer.
        black: (H, W), black level.
        used: (H, W) bool: pixels that count.

    Returns:
        (J, K) means, and (H, W) bool: those of the pixels that count whose signal follows the polarizer.
    """
    lowest, highest = np.full(sums.shape, np.inf), np.full(sums.shape, -np.inf)
    for one in settings:
        mean = one.mean()
        np.minimum(lowest, mean, out=lowest)
        np.maximum(highest, mean, out=highest)
    contrast = highest - lowest
    reacts = used & (contrast >= _LEAST_CONTRAST * np.median(contrast[used]))
    period = sums.sensor.period
    means = np.zeros((period**2, len(settings)))
    for k, one in enumerate(settings):
        signal = one.mean() - black
        for site in range(period**2):
            at = (slice(site // period, None, period), slice(site % period, None, period))
            count = np.count_nonzero(reacts[at])
            means[site, k] = signal[at].sum(where=reacts[at]) / max(1, count)
    return means, reacts


def designs(
    sensor: Sensor, polarizer: Polarizer, frames: np.ndarray, noise: Optional[Noise], level: float
) -> List[Design]:
    """Set up the least squares of each angle in `ANGLES`, weighted by the noise of its pixels at each setting.

    Args:
        sensor: The mosaic.
        polarizer: The settings.
        frames: (K,) number of frames.
        noise: Noise of the sensor; None if it is not known.
        level: One level as a share of full scale.
    """
    basis = polarizer.basis
    angles = site_angles(sensor)
    found = []
    for angle in ANGLES:
        sites = np.isclose(angles, np.deg2rad(angle))
        terms = polarizer.terms[sites].mean(0)
        signal = np.maximum(basis @ terms, 0)
        if noise is None:
            variance = (signal + _FLOOR * signal.max()) / frames
        else:
            variance = (noise.variance(signal) + level**2 / 12) / frames
            variance = np.maximum(variance, 1e-4 * variance.max())  # models are not exact
        root = 1 / np.sqrt(variance)
        solver = np.linalg.pinv(basis * root[:, np.newaxis]) * root
        found.append(Design(solver, basis, variance, float(terms[0])))
    return found


def fit_pixels(
    sums: SessionSums, settings: List[FrameSums], black: np.ndarray, maps: LightMaps, by_angle: List[Design]
) -> PixelFits:
    """Fit A, B and C of every pixel, in bands of rows."""
    height, width = sums.shape
    terms, every = np.zeros((3, height, width), np.float32), (slice(None),)
    excess = np.zeros((height, width), np.float32)
    step = max(2, _BAND_PIXELS // width // 2 * 2)
    for top in range(0, height, step):
        rows = slice(top, top + step)
        values = np.stack([(one.mean(rows) - black[rows]) / maps.factor(k, rows) for k, one in enumerate(settings)])
        for r in range(2):
            for c in range(2):
                design = by_angle[sums.sensor.angle_index(r, c)]
                at = (slice(r, None, 2), slice(c, None, 2))
                own = values[every + at]
                found = np.tensordot(design.solver, own, 1)
                left = own - np.tensordot(design.basis, found, 1)
                terms[:, rows][every + at] = found
                scale = 1 / (design.variance * design.freedom() * len(settings))
                excess[rows][at] = np.sqrt(np.tensordot(scale, left**2, 1))
        terms[1:, rows] /= np.maximum(terms[0, rows], 1e-9)
    return PixelFits(terms[0], terms[1], terms[2], excess)
