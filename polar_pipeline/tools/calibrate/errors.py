"""The errors of DoLP and AoLP that a calibration leaves, and those without it."""

from __future__ import annotations

from typing import List, NamedTuple

import numpy as np

from polar_pipeline.calibration.quantization import Scales
from polar_pipeline.sensor.mosaic import ANGLES, Sensor
from polar_pipeline.tools.calibrate.illumination import LightMaps
from polar_pipeline.tools.calibrate.pixels import Design, PixelFits
from polar_pipeline.tools.calibrate.polarizer import half_turn
from polar_pipeline.tools.calibrate.reductions import stokes, superpixels

#: DoLPs whose errors are stated, and the one that stands for all.
DEGREES = (0.0, 0.1, 0.5, 0.9)
HEADLINE = 0.1
#: Error of DoLP by what the fit leaves of whole areas, relative to that (simulated: 0.2 of a polarizer that wobbles, up
#: to 1.8 of dust), and what noise may leave by chance, relative to what it leaves on average.
_MISFIT, _CHANCE = 0.3, 1.1
#: Directions of polarization over which errors are averaged.
_DIRECTIONS = np.deg2rad(np.arange(0, 180, 22.5))
#: Maximum number of superpixels that are evaluated, and number of those with random errors.
_MAX_SAMPLE, _DRAWN = 1 << 16, 1 << 14


class ExpectedError(NamedTuple):
    """Errors at one DoLP, root mean square over pixels and directions, in light of half full scale without noise.

    After the correction, errors come from residuals of the fit, the rounding of black levels and parameters, and the
    gains of orthogonal pixels. Before it, only the black levels are subtracted. Errors of AoLP are in degrees, and NaN
    at DoLP 0.
    """

    dolp: float
    dolp_error: float
    aolp_error: float
    dolp_before: float
    aolp_before: float


def area_error(maps: LightMaps, residual_variance: float, pair_error: float) -> float:
    """Return the error of DoLP that all pixels of an area have in common.

    `residual_variance` is the mean square of the residuals of pixels relative to their noise, `pair_error` that of
    `Polarizer`.
    """
    return float(
        np.hypot(_MISFIT * np.sqrt(max(maps.left - _CHANCE * residual_variance * maps.chance, 0.0)), pair_error / 2)
    )


def sample_superpixels(sensor: Sensor, gain: np.ndarray, fits: PixelFits, used: np.ndarray) -> np.ndarray:
    """Return (3, 4, n): gain, cosine and sine (see `PixelFits`) of superpixels without defects all over the sensor."""
    step = int(np.ceil(np.sqrt(used.size / 4 / _MAX_SAMPLE))) | 1  # odd, so that every color is among them

    def sample(image: np.ndarray) -> np.ndarray:
        return superpixels(image, sensor)[:, ::step, ::step]

    keep = sample(used).all(0)
    return np.stack([sample(image)[:, keep] for image in (gain, fits.cosine, fits.sine)])


def expected_errors(
    sample: np.ndarray,
    scales: Scales,
    designs: List[Design],
    residual_variance: float,
    black_variance: float,
    common: float,
    texture: float = 0.0,
) -> List[ExpectedError]:
    """Compute the expected errors at each of `DEGREES` of superpixels with S0 = 1.

    Args:
        sample: (3, 4, n) of `sample_superpixels`.
        scales: Scales by which the parameters were rounded.
        designs: Least squares of the pixels of each angle.
        residual_variance: Mean square of the residuals of pixels, relative to the designs' variance.
        black_variance: Variance of the black level of a pixel, in squares of full scale.
        common: Error of DoLP that pixels have in common (`area_error`).
        texture: Error of DoLP by texture (`Texture`), which is in the gains of the sample, but is not the pixels'.
    """
    gain, cosine, sine = sample
    random = np.random.default_rng(0).standard_normal((len(ANGLES), _DRAWN))
    errors = []
    for degree in DEGREES:
        squares = []
        for psi in _DIRECTIONS:
            stokes = np.array([1.0, degree * np.cos(2 * psi), degree * np.sin(2 * psi)])
            ideal = (1 + degree * np.cos(2 * (psi - np.deg2rad(ANGLES))))[:, np.newaxis] / 2
            variances = [
                _pixel_variance(design, stokes, signal, residual_variance, black_variance, scales)
                for design, signal in zip(designs, ideal[:, 0].tolist())
            ]
            after = ideal + np.sqrt(variances)[:, np.newaxis] * random
            before = gain * (1 + cosine * stokes[1] + sine * stokes[2]) / 2
            squares.append([*_mean_squares(after, degree, psi), *_mean_squares(before, degree, psi)])
        after_dolp, after_aolp, before_dolp, before_aolp = np.mean(squares, 0)
        turn = np.rad2deg(1 / 2 / degree) if degree else np.nan  # error of AoLP by that of DoLP
        after_dolp, after_aolp = after_dolp + texture**2, after_aolp + (turn * texture) ** 2
        # the measured parameters have their noise, and the texture, too
        before_dolp, before_aolp = max(before_dolp - after_dolp, 0), max(before_aolp - after_aolp, 0)
        after_dolp += common**2
        rows = after_dolp, after_aolp + (turn * common) ** 2, before_dolp, before_aolp
        errors.append(ExpectedError(degree, *np.sqrt(rows).tolist()))
    return errors


def _mean_squares(pixels: np.ndarray, degree: float, psi: float) -> List[float]:
    """Return mean squares of the errors of DoLP and AoLP (degrees) of superpixels (4, n) in polarized light."""
    s0, s1, s2 = stokes(pixels)
    turn = np.rad2deg(half_turn(np.arctan2(s2, s1) / 2 - psi))
    return [float(np.mean((np.hypot(s1, s2) / s0 - degree) ** 2)), float(np.mean(turn**2))]


def _pixel_variance(
    design: Design, stokes: np.ndarray, signal: float, residual_variance: float, black_variance: float, scales: Scales
) -> float:
    """Compute the variance of a corrected pixel by errors of its parameters, for an ideal value of `signal`.

    From ``I' = z + e1 S1 + e2 S2`` with the gain proportional to 1/A, c = B/A and s = C/A: an error of (A, B, C) adds
    ``-(S0 dA + S1 dB + S2 dC)/(2A)``, and one of the black level also shifts A, B and C.
    """
    slope = -stokes / (2 * design.level)
    by_black = -float(slope @ design.solver.sum(1)) - 1
    own = 2 * signal - stokes[0]  # light along the pixel's polarizer, which the own term multiplies
    weights = (1.0, signal, own, np.sqrt(max(stokes[1] ** 2 + stokes[2] ** 2 - own**2, 0)))
    rounding = sum((weight * scale.step) ** 2 / 12 for weight, scale in zip(weights, scales))
    covariance = (design.solver * design.variance) @ design.solver.T  # of A, B and C by the noise of the frames
    return residual_variance * float(slope @ covariance @ slope) + by_black**2 * black_variance + rounding
