"""The direction of the sun from the polarization of the sky."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline._util.values import number
from polar_pipeline.polarimetry.world.light import Images, checked_array, measured_light
from polar_pipeline.polarimetry.world.rays import checked_rays, level_axes, turned

#: Side of the squares of pixels whose errors may depend on each other, and the least number of squares with sky.
BLOCK, _LEAST_BLOCKS = 16, 12
#: Steps of the fit at most, rad from which it has converged, and standard deviations, by the median residual, from
#: which pixels are rejected.
_STEPS, _CONVERGED, _REJECTED = 12, 1e-9, 4.0
#: Median residual in rad from which AoLP does not follow the sky's pattern: that of random AoLP is 45 degrees.
_NO_SKY = np.deg2rad(30.0)


@dataclass(frozen=True, eq=False)
class SunFit:
    """Direction of the sun in rad: azimuths counter-clockwise from x of the level axes, elevations above their x and y.

    Attributes:
        azimuths: Both candidates, 0 to 2 pi, which differ by pi; the better one first. Without a given elevation it is
            the one whose sun is above the horizon: near the horizon (`elevation` below twice its deviation) either can
            be right.
        azimuth_sigma: Standard deviation of the azimuths.
        elevation: Elevation of the sun at the first azimuth, as fitted or given.
        elevation_sigma: Standard deviation of the elevation; 0 if it was given.
        residuals: For each azimuth, the median of the absolute angles between measured and expected AoLP. Without a
            given elevation they are equal.
        angles: (H, W) these angles for the first azimuth, with signs; NaN in pixels that were not used.
    """

    azimuths: Tuple[float, float]
    azimuth_sigma: float
    elevation: float
    elevation_sigma: float
    residuals: Tuple[float, float]
    angles: np.ndarray


def sky_compass(
    images: Images,
    rays: np.ndarray,
    attitude: np.ndarray,
    mask: Optional[np.ndarray] = None,
    elevation: Optional[float] = None,
    min_dolp: float = 0.1,
) -> SunFit:
    """Fit the direction of the sun to an image of the clear sky.

    Light that was scattered once is polarized across the plane through sun, observer and sky point (Rayleigh). So the
    sun is orthogonal to E everywhere: the eigenvector of the smallest eigenvalue of a weighted sum of E E^T starts a
    least-squares fit of AoLP. Pixels beyond four standard deviations are rejected in each step. Deviations follow from
    the sums of squares of 16x16 pixels, so that they include noise that the demosaic spreads over neighbors, but no
    error of the model. Sources:

    - Horvath and Varju: Polarized Light in Animal Vision, 2004 (the pattern of the sky).
    - Lambrinos et al.: A mobile robot employing insect strategies for navigation. Robotics and Autonomous Systems 30,
      2000 (the compass).
    - Liang and Zeger: Longitudinal data analysis using generalized linear models. Biometrika 73(1), 1986 (deviations).

    Args:
        images: Products `dolp` and `aolp`, or `stokes`; or a Stokes image (H, W, 3). With `aolp_sigma` pixels have
            weights by noise, otherwise by the square of DoLP.
        rays: `viewing_rays` of the images. Pixels whose ray is NaN are left out.
        attitude: (3, 3) rotation from the camera's axes to axes whose z points up, to whose x azimuths refer; or (3,)
            the direction of gravity in the camera's axes: then azimuths refer to the camera's x axis.
        mask: (H, W) bool: True where the sky is.
        elevation: Elevation of the sun in rad, -pi/2 to pi/2, if it is known, as from the time; None to fit it.
        min_dolp: DoLP from which pixels are used, 0 to 1; clouds and the sky near the sun have less.

    Raises:
        ValueError: Products, shapes, rays, the attitude or a number do not fit, too little polarized sky is left, or
            the median residual is above 30 degrees: this is not the pattern of a clear sky.
    """
    light = measured_light(images)
    if rays is None:
        raise ValueError("rays must be the viewing rays of the images (viewing_rays), got None")
    rays, to_level = checked_rays(rays, light.dolp.shape), level_axes(attitude)
    if elevation is not None:
        elevation = number("elevation", elevation, -np.pi / 2, np.pi / 2)
    is_used = light.dolp >= number("min_dolp", min_dolp, 0, 1)
    is_used &= np.isfinite(light.aolp) & np.isfinite(rays).all(-1)
    weight = light.dolp**2
    if light.aolp_sigma is not None:
        with np.errstate(divide="ignore"):
            weight = 1 / light.aolp_sigma**2
    is_used &= np.isfinite(weight) & (weight > 0)
    if mask is not None:
        is_used &= checked_array("mask", mask, is_used.shape, kinds="b") > 0
    row, column = np.nonzero(is_used)
    blocks = np.unique(row // BLOCK * is_used.shape[1] + column // BLOCK, return_inverse=True)[1]
    if not row.size or blocks.max() + 1 < _LEAST_BLOCKS:
        raise ValueError(f"needs polarized sky in at least {_LEAST_BLOCKS} squares of {BLOCK}x{BLOCK} pixels")

    aolp, used_rays, weight = light.aolp[is_used], rays[is_used], weight[is_used]
    electric = turned(np.stack([np.cos(aolp), -np.sin(aolp), np.zeros_like(aolp)], -1), used_rays)
    sky = _Sky(electric @ to_level.T, np.cross(used_rays, electric) @ to_level.T, weight, blocks)
    start = np.linalg.eigh((sky.electric * weight[:, np.newaxis]).T @ sky.electric)[1][:, 0]
    azimuth, fitted = _spherical(start * (1 if start[2] >= 0 else -1))
    if elevation is None:
        azimuth, fitted, deviations = _fit(sky, azimuth, fitted, 2)
        if fitted < 0:
            azimuth, fitted = azimuth + np.pi, -fitted
        opposite = -fitted
    else:
        fits = [_fit(sky, azimuth + turn, elevation, 1) for turn in (0, np.pi)]
        azimuth, fitted, deviations = min(fits, key=lambda fit: sky.misfit(fit[0], elevation))
        opposite = elevation
    residual = sky.misfit(azimuth, fitted)
    if residual > _NO_SKY:
        raise ValueError(
            f"AoLP deviates from the pattern of a clear sky by {np.rad2deg(residual):.0f} degrees (median), at most "
            f"{np.rad2deg(_NO_SKY):.0f} are allowed: check mask, rays and attitude, and that no image is mirrored"
        )
    angles = np.full(is_used.shape, np.nan)
    angles[is_used] = sky.angles(_direction(azimuth, fitted))
    return SunFit(
        (azimuth % (2 * np.pi), (azimuth + np.pi) % (2 * np.pi)),
        deviations[0] / np.cos(fitted),
        fitted,
        deviations[1],
        (residual, sky.misfit(azimuth + np.pi, opposite)),
        angles,
    )


class _Sky(NamedTuple):
    """Usable pixels: E, and the direction across E and the ray, (N, 3) in level axes; weights, indices of blocks."""

    electric: np.ndarray
    across: np.ndarray
    weight: np.ndarray
    blocks: np.ndarray

    def angles(self, sun: np.ndarray) -> np.ndarray:
        """Compute the angles from expected to measured E, -pi/2 to pi/2."""
        along, across = self.electric @ sun, self.across @ sun
        return np.arctan2(np.where(across < 0, -along, along), np.abs(across))

    def misfit(self, azimuth: float, elevation: float) -> float:
        """Compute the median of the absolute angles."""
        return float(np.median(np.abs(self.angles(_direction(azimuth, elevation)))))


def _direction(azimuth: float, elevation: float) -> np.ndarray:
    level = np.cos(elevation)
    return np.array([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)])


def _spherical(direction: np.ndarray) -> Tuple[float, float]:
    """Return azimuth and elevation of a vector."""
    x, y, z = direction
    return float(np.arctan2(y, x)), float(np.arctan2(z, np.hypot(x, y)))


def _fit(sky: _Sky, azimuth: float, elevation: float, count: int) -> Tuple[float, float, Tuple[float, float]]:
    """Refine a direction by the method of Gauss and Newton.

    Args:
        sky: The pixels.
        azimuth: Where to start.
        elevation: Where to start.
        count: 2 to fit both, 1 for the azimuth alone.

    Returns:
        Azimuth, elevation, and the deviations along both of the unit sphere.
    """
    for _ in range(_STEPS):
        sun = _direction(azimuth, elevation)
        axes = np.stack([_direction(azimuth + np.pi / 2, 0), _direction(azimuth, elevation + np.pi / 2)])[:count]
        along, across = sky.electric @ sun, sky.across @ sun
        slopes = across[:, np.newaxis] * (sky.electric @ axes.T) - along[:, np.newaxis] * (sky.across @ axes.T)
        slopes /= np.maximum(along**2 + across**2, 1e-12)[:, np.newaxis]
        angles = sky.angles(sun)
        size = np.abs(angles) * np.sqrt(sky.weight)
        weight = np.where(size <= _REJECTED * 1.4826 * np.median(size), sky.weight, 0)
        weighted = weight[:, np.newaxis] * slopes
        inverse = np.linalg.inv(weighted.T @ slopes)
        pulls = weighted * angles[:, np.newaxis]
        step = -inverse @ pulls.sum(0)
        if count == 1:
            azimuth += float(step[0]) / np.cos(elevation)
        else:
            azimuth, elevation = _spherical(sun + step @ axes)
        if np.abs(step).max() < _CONVERGED:
            break
    sums = np.stack([np.bincount(sky.blocks, pull) for pull in pulls.T])
    covariance = inverse @ (sums @ sums.T) @ inverse * sums.shape[1] / (sums.shape[1] - 1)
    deviations = np.sqrt(np.diag(covariance))
    return azimuth, elevation, (float(deviations[0]), float(deviations[1]) if count == 2 else 0.0)
