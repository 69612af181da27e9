"""The errors of DoLP and AoLP that a calibration leaves, and those without it."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

import numpy as np

from polar_pipeline.calibrate.pixels import Design
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.sensor.forward import nominal_angles
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: DoLPs whose errors are stated.
DEGREES = (0.05, 0.3, 0.9, 0.95)
#: Directions of polarization over which errors are averaged.
_DIRECTIONS = np.deg2rad(np.arange(0, 180, 22.5))
#: Superpixels that are looked at, at most.
_SAMPLE = 1 << 16


class ExpectedError(NamedTuple):
    """Errors at one DoLP, root mean square over pixels and directions, in light of half full scale without noise.

    Attributes:
        dolp: The DoLP.
        dolp_error: Dolp error of the DoLP after correction: the noise of the calibration's frames and its rounding.
        aolp_error: Aolp error of the AoLP in degrees.
        dolp_before: Dolp before of the DoLP with nothing but the black levels subtracted.
        aolp_before: Aolp before of the AoLP in degrees.
    """

    dolp: float
    dolp_error: float
    aolp_error: float
    dolp_before: float
    aolp_before: float


def expected_errors(
    calibration: Calibration, sensor: Sensor, designs: List[Design], black_variance: float, used: np.ndarray
) -> List[ExpectedError]:
    """Compute the expected errors at each of `DEGREES`.

    Args:
        calibration: The calibration.
        sensor: The mosaic of its region.
        designs: By which the pixels of each angle were fitted.
        black_variance: Black variance of the black level of a pixel, in squares of full scale.
        used: (H, W) bool, pixels without defects.
    """
    before = _before(calibration.parameters(), sensor, used)
    found = []
    for degree in DEGREES:
        variances = np.array(
            [
                polarization_variances(
                    degree,
                    psi,
                    [
                        _pixel_variance(d, t, degree, psi, black_variance, calibration)
                        for d, t in zip(designs, np.deg2rad(ANGLES))
                    ],
                )
                for psi in _DIRECTIONS
            ]
        )
        dolp, aolp = np.sqrt(variances.mean(0))
        found.append(ExpectedError(degree, float(dolp), float(np.rad2deg(aolp)), *before[degree]))
    return found


def _pixel_variance(
    design: Design, angle: float, degree: float, psi: float, black_variance: float, calibration: Calibration
) -> float:
    """Compute the variance of a corrected pixel of nominal angle `angle` by errors of its parameters, for S0 = 1.

    From ``I' = z + e1 S1 + e2 S2`` with the gain proportional to 1/A, c = B/A and s = C/A: an error of (A, B, C) adds
    ``-(S0 dA + S1 dB + S2 dC)/(2A)``, and one of the black level also shifts A, B and C.
    """
    stokes = np.array([1.0, degree * np.cos(2 * psi), degree * np.sin(2 * psi)])
    slope = -stokes / (2 * design.level)
    by_black = -float(slope @ design.solver.sum(1)) - 1
    signal = (1 + stokes[1] * np.cos(2 * angle) + stokes[2] * np.sin(2 * angle)) / 2
    weights = (1.0, signal, stokes[1], stokes[2])
    rounding = sum((weight * scale.step) ** 2 / 12 for weight, scale in zip(weights, calibration.scales))
    return float(slope @ design.covariance() @ slope) + by_black**2 * black_variance + rounding


def polarization_variances(degree: float, psi: float, pixels: List[float]) -> Tuple[float, float]:
    """Compute the variances of DoLP and AoLP (rad) of a superpixel from those of its pixels, for S0 = 1.

    Args:
        degree: DoLP.
        psi: AoLP in rad.
        pixels: Variances of the pixels in the order of `ANGLES`.
    """
    c, s = np.cos(2 * psi), np.sin(2 * psi)
    # dS0 = sum/2, dS1 = d0 - d90, dS2 = d45 - d135; the derivative of each output by each pixel
    signs = np.array([[1, 0, -1, 0], [0, 1, 0, -1]])
    radial = c * signs[0] + s * signs[1] - degree / 2
    across = (c * signs[1] - s * signs[0]) / (2 * degree)
    return float(radial**2 @ np.array(pixels)), float(across**2 @ np.array(pixels))


def _before(parameters: PixelParameters, sensor: Sensor, used: np.ndarray) -> Dict[float, Tuple[float, float]]:
    """Compute the errors of DoLP and AoLP (degrees) if only the black levels are subtracted."""
    height, width = (side // 2 * 2 for side in used.shape)
    step = max(1, int(np.ceil(np.sqrt(height * width / 4 / _SAMPLE))))
    angles = nominal_angles(sensor, used.shape)

    def quads(image: np.ndarray) -> np.ndarray:
        """Return (4, n): the pixels of superpixels, one row per angle."""
        rows = [image[r:height:2, c:width:2][::step, ::step].ravel() for r in range(2) for c in range(2)]
        order = np.argsort([sensor.angle_index(r, c) for r in range(2) for c in range(2)])
        return np.stack(rows)[order]

    keep = quads(used).all(0)
    gain, e1, e2, t = (quads(image)[:, keep] for image in (parameters.gain, parameters.e1, parameters.e2, angles))
    found = {}
    for degree in DEGREES:
        errors = []
        for psi in _DIRECTIONS:
            s1, s2 = degree * np.cos(2 * psi), degree * np.sin(2 * psi)
            ideal = (1 + s1 * np.cos(2 * t) + s2 * np.sin(2 * t)) / 2
            i0, i45, i90, i135 = (ideal - e1 * s1 - e2 * s2) / gain
            q, u, total = i0 - i90, i45 - i135, (i0 + i45 + i90 + i135) / 2
            turn = (np.arctan2(u, q) / 2 - psi + np.pi / 2) % np.pi - np.pi / 2
            errors.append((np.mean((np.hypot(q, u) / total - degree) ** 2), np.mean(turn**2)))
        dolp, aolp = np.sqrt(np.mean(errors, 0)) if keep.any() else (np.nan, np.nan)
        found[degree] = (float(dolp), float(np.rad2deg(aolp)))
    return found
