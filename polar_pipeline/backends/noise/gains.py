"""Gains from the raw pixels' noise to S0, S1 and S2, by method and place in the mosaic.

The methods are taken as filters, through which the reference sends an impulse at every place of a tile. What chooses by
what it sees (`adaptive`, `weighted`) is so replaced by what it does in a flat field with little noise.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Tuple

import numpy as np

from polar_pipeline.sensor.mosaic import Sensor

if TYPE_CHECKING:
    from polar_pipeline.backends.reference.noise import PlaneGains

#: Elements of the covariance matrix of (S1, S2, S0) that are given, as (row, column).
TERMS = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
#: Gains below this are rounding.
_ZERO = 1e-6


@lru_cache(maxsize=16)
def stokes_gains(sensor: Sensor, is_half: bool, co_sited: bool, demosaic: str, debayer: str) -> np.ndarray:
    """Compute the gains from the variance of raw pixels to the covariances of S0, S1 and S2.

    Args:
        sensor: The mosaic as the frame shows it.
        is_half: Whether an output pixel stands for a superpixel.
        co_sited: At half resolution, angles interpolated to the superpixel's center.
        demosaic: Method on the polarizer mosaic, resolved.
        debayer: Method on the color lattice.

    Returns:
        (n, n, channels, 4, 6) float32, read-only: by row and column of the output modulo n, color and polarizer of the
        raw pixels (in the order of `ANGLES`), and element in `TERMS`.
    """
    from polar_pipeline.backends.reference.noise import impulse_gains  # here: only pipelines that use noise need it

    rows, columns = zip(*TERMS)
    gains = impulse_gains(sensor, is_half, co_sited, demosaic, debayer)[..., rows, columns]
    rounded: np.ndarray = np.where(np.abs(gains) < _ZERO, 0, gains).astype(np.float32, order="C")
    rounded.flags.writeable = False
    return rounded


def exposure_shares(sensor: Sensor, is_half: bool, co_sited: bool, demosaic: str, debayer: str) -> np.ndarray:
    """Compute which shares of the gains come from the superpixels around. Arguments are those of `stokes_gains`."""
    from polar_pipeline.backends.reference.noise import exposure_shares as computed  # here: as above

    return computed(sensor, is_half, co_sited, demosaic, debayer)


def plane_gains(sensor: Sensor, is_half: bool, co_sited: bool, demosaic: str, debayer: str) -> PlaneGains:
    """Compute the gains of the images that are denoised. Arguments are those of `stokes_gains`."""
    from polar_pipeline.backends.reference.noise import plane_gains as computed  # here: as above

    return computed(sensor, is_half, co_sited, demosaic, debayer)


@lru_cache(maxsize=16)
def pair_gains(
    sensor: Sensor, is_half: bool, co_sited: bool, demosaic: str, debayer: str, stride: int = 1
) -> Tuple[float, float]:
    """Compute the gains from the variance of raw pixels to SSIM's images in mode `consistency`, in unpolarized light.

    Args:
        sensor: As for `stokes_gains`, and so are the next four.
        is_half: The same.
        co_sited: The same.
        demosaic: The same.
        debayer: The same.
        stride: Both images are averaged over so many pixels in each direction.

    Returns:
        (variance, covariance) of (I0 + I90)/2 and (I45 + I135)/2, averaged over the places of the mosaic.
    """
    from polar_pipeline.backends.reference.noise import impulse_responses  # here: as above

    i0, i45, i90, i135 = np.moveaxis(impulse_responses(sensor, is_half, co_sited, demosaic, debayer), 2, 0)
    pair = np.stack([i0 + i90, i45 + i135]) / 2
    shifts = product(range(stride), repeat=2)
    first, second = np.sum([np.roll(pair, shift, (-2, -1)) for shift in shifts], 0) / stride**2
    places = (sensor.period // 2 if is_half else sensor.period) ** 2
    variance = (np.sum(first * first) + np.sum(second * second)) / 2
    return float(variance / places), float(np.sum(first * second) / places)
