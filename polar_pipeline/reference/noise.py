"""The noise of the reference: standard deviations of DoLP and AoLP, and DoLP without its bias."""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, NamedTuple, Tuple

import numpy as np

from polar_pipeline.coefficients import (
    AOLP_SIGMA_MAX,
    NOISE_ADAPTIVE,
    NOISE_LINEAR,
    NOISE_WEIGHTED,
    SIGMA_ANGLE,
    SIGMA_LENGTH,
)
from polar_pipeline.options import Options, make_options
from polar_pipeline.reference.demosaicking import demosaic
from polar_pipeline.sensor.mosaic import ANGLES, CHANNELS, Sensor

#: Side of the flat field that impulses are in, their size, and the distance from its border that none of them reaches.
_SIDE, _IMPULSE, _RIM = 48, 1e-8, 8


class Uncertainty(NamedTuple):
    """Standard deviations of DoLP and AoLP, images of one size.

    Attributes:
        component: Standard deviation of DoLP, taken as a component of (S1, S2)/S0 that can be negative.
        dolp: Standard deviation of DoLP.
        aolp: Standard deviation of AoLP in rad.
    """

    component: np.ndarray
    dolp: np.ndarray
    aolp: np.ndarray


@lru_cache(maxsize=32)
def impulse_gains(sensor: Sensor, resolution: str, co_sited: bool, method: str) -> Dict[object, np.ndarray]:
    """Compute the gains from the variance of raw pixels, by (color, polarizer), to the covariance of S1, S2 and S0.

    Args:
        sensor: The mosaic.
        resolution: Option `resolution`.
        co_sited: Option `co_sited`.
        method: The option `demosaic`.

    Returns:
        (n, n, 3, 3) each, by row and column of the output modulo n.
    """
    options = make_options(sensor, resolution=resolution, co_sited=co_sited, demosaic=method)
    step = 2 if resolution == "half" else 1
    period = sensor.period // step
    flat = np.full((_SIDE, _SIDE), 0.5)

    def stokes_of(mosaic: np.ndarray) -> np.ndarray:
        angles = demosaic(mosaic, sensor, options)
        i0, i45, i90, i135 = angles @ np.array([0.25, 0.5, 0.25]) if sensor.is_color else angles
        return np.stack([i0 - i90, i45 - i135, (i0 + i45 + i90 + i135) / 2], -1)

    level = stokes_of(flat)
    gains: Dict[object, np.ndarray] = {
        (color, angle): np.zeros((period, period, 3, 3)) for color in range(len(CHANNELS)) for angle in range(4)
    }
    for row in range(sensor.period):
        for column in range(sensor.period):
            mosaic = flat.copy()
            mosaic[_SIDE // 2 + row, _SIDE // 2 + column] += _IMPULSE
            response = (stokes_of(mosaic) - level) / _IMPULSE
            response = response[_RIM // step : -_RIM // step, _RIM // step : -_RIM // step]
            color = sensor.color_index(row, column) if sensor.is_color else 0
            for y in range(period):
                for x in range(period):
                    seen = response[y::period, x::period].reshape(-1, 3)
                    gains[color, sensor.angle_index(row, column)][y, x] += seen.T @ seen
    return gains


def covariance(angles: np.ndarray, sensor: Sensor, options: Options, full_scale: int) -> np.ndarray:
    """Convert (4, H, W[, 3]) angle images to (H, W, 3, 3) covariance matrices of S1, S2 and S0 by noise."""
    full_well, read_noise = sensor.full_well, sensor.read_noise
    if options.calibration is not None and options.calibration.noise is not None:
        full_well, read_noise = options.calibration.noise
    full_well /= 10 ** (options.camera_gain / 20)
    significant = f"{full_scale:b}".rstrip("0")  # all ones: the rest is how far numbers are shifted
    level = 1 / (full_scale if "0" in significant else int(significant, 2))
    gains = impulse_gains(sensor, options.resolution, options.co_sited, options.demosaic)
    colors = angles if sensor.is_color else angles[..., np.newaxis]
    height, width = angles.shape[1:3]
    total = np.zeros((height, width, 3, 3))
    for color in range(colors.shape[-1]):
        for angle in range(len(ANGLES)):
            raw = np.maximum(colors[angle, ..., color], 0) / full_well + (read_noise / full_well) ** 2 + level**2 / 12
            tile = gains[color, angle]
            times = (-(-height // len(tile)), -(-width // len(tile)), 1, 1)
            total += raw[..., np.newaxis, np.newaxis] * np.tile(tile, times)[:height, :width]
    return total


def uncertainty(
    angles: np.ndarray, vector: np.ndarray, sensor: Sensor, options: Options, full_scale: int
) -> Uncertainty:
    """Compute the standard deviations by noise.

    Args:
        angles: (4, H, W), of a color sensor (4, H, W, 3).
        vector: (H, W, 3) Stokes vectors.
        sensor: The mosaic as the frame shows it.
        options: Options of the pipeline that computed the angles.
        full_scale: Raw number of a saturated pixel.
    """
    matrix = covariance(angles, sensor, options, full_scale)
    s0, s1, s2 = np.moveaxis(vector, -1, 0)
    length = np.hypot(s1, s2)
    total = np.maximum(s0, 1e-12)
    degree = np.clip(length / np.where(s0 > 0, s0, np.inf), 0, 1)
    # Where (S1, S2) is less than its noise, its direction means nothing: then it is any direction.
    plane, polarization = matrix[..., :2, :2], vector[..., 1:]
    mean = np.trace(plane, axis1=-2, axis2=-1) / 2
    both = np.einsum("...i,...j", polarization, polarization) + mean[..., np.newaxis, np.newaxis] * np.eye(2) / 2
    both /= np.trace(both, axis1=-2, axis2=-1)[..., np.newaxis, np.newaxis]
    turned = np.eye(2) - both
    slope = degree * s1 / np.maximum(length, 1e-30), degree * s2 / np.maximum(length, 1e-30)
    along = np.einsum("...ij,...ji", both, plane) + degree**2 * matrix[..., 2, 2]
    along -= 2 * (slope[0] * matrix[..., 0, 2] + slope[1] * matrix[..., 1, 2])
    across = np.einsum("...ij,...ji", turned, plane)
    most, less, share, steep = _constants(options)
    scale = most - less / (1 + length**2 / across / share)
    component = np.sqrt(along) * scale * (1 - steep * degree**4) / total
    ratio = degree / np.maximum(component, 1e-30)
    dolp = component * (1 - SIGMA_LENGTH / (1 + ratio**4) ** 2)
    ratio = length / (np.sqrt(across) * scale)
    with np.errstate(divide="ignore", over="ignore"):
        aolp = (1 + SIGMA_ANGLE / ratio**4) / (2 * ratio)
    return Uncertainty(component, np.minimum(dolp, 1), np.minimum(aolp, AOLP_SIGMA_MAX))


def _constants(options: Options) -> Tuple[float, float, float, float]:
    if options.resolution == "half" and not options.co_sited:
        return NOISE_WEIGHTED if options.sensor.is_color and options.demosaic == "adaptive" else NOISE_LINEAR
    return NOISE_ADAPTIVE[options.resolution] if options.interpolation == "adaptive" else NOISE_LINEAR


def debiased(degree: np.ndarray, component: np.ndarray) -> np.ndarray:
    """Compute DoLP by the modified asymptotic estimator of Plaszczynski et al. (MNRAS 439, 2014, arXiv 1312.0437).

    Args:
        degree: DoLP as measured.
        component: Standard deviation of DoLP (`Uncertainty.component`).
    """
    square = (degree / np.maximum(component, 1e-30)) ** 2
    share = np.where(square > 0, -np.expm1(-square) / np.maximum(2 * square, 1e-300), 0.5)
    return degree * (1 - share)
