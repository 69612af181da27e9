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
_STEPS, _CONVERGED, _REJECTED = 12, 1e-7, 4.0
#: Axis of the term of multiple scattering: its angle from the zenith, away from the sun, is this share of the sun's
#: elevation, with its deviation. It is 0.4 for air without aerosol (fitted to skies that the tests compute), 1 with
#: neutral points at equal distances from the sun. AoLP cannot tell it: for every axis some elevation fits alike.
_TILT, _TILT_SIGMA = 0.7, 0.3
#: Deviation of the term from 0 before it is measured: neutral points of clear skies are up to some 45 degrees apart,
#: which is a term of 0.2. Deviation of what is held fixed. No rule drops a small term: `docs/decisions.md` says why.
_TERM_SIGMA, _HELD = 0.1, 1e-6
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
        elevation_sigma: Standard deviation of the elevation; 0 if it was given. It includes that the sun is not exactly
            in the middle between neutral points.
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
    least-squares fit of AoLP. Light that was scattered again comes mostly from the horizon, and is polarized upward. It
    splits the unpolarized points at sun and antisun into neutral points above and below them, as a third unknown beside
    azimuth and elevation does. A deviation of this unknown that is known beforehand holds it near 0 where the image
    does not show it.

    Pixels beyond four standard deviations are rejected in each step. Deviations follow from the sums over squares of
    16x16 pixels, each compared with a fit to the other squares, so that they include noise that the demosaic spreads
    over neighbors. They include the third unknown, but no other error of the model. Sources:

    - Horvath and Varju: Polarized Light in Animal Vision, 2004 (the pattern of the sky).
    - Berry, Dennis and Lee: Polarization singularities in the clear sky. New Journal of Physics 6, 162, 2004 (neutral
      points).
    - Lambrinos et al.: A mobile robot employing insect strategies for navigation. Robotics and Autonomous Systems 30,
      2000 (the compass).
    - Liang and Zeger: Longitudinal data analysis using generalized linear models. Biometrika 73(1), 1986 (deviations).
    - Bell and McCaffrey: Bias reduction in standard errors for linear regression with multi-stage samples. Survey
      Methodology 28(2), 2002 (deviations from few squares).

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
    field = to_level @ (electric + 1j * np.cross(used_rays, electric)).T
    sky = _Sky(field, weight, blocks)
    start = np.linalg.eigh((field.real * weight) @ field.real.T)[1][:, 0]
    azimuth, height = _spherical(start * (1 if start[2] >= 0 else -1))
    if elevation is None:
        pattern, covariance = _fit(sky, _Pattern(azimuth, height, 0.0))
        if pattern.elevation < 0:
            pattern = _Pattern(pattern.azimuth + np.pi, -pattern.elevation, pattern.term)
        opposite, elevation = -pattern.elevation, pattern.elevation
        elevation_sigma = float(np.hypot(np.sqrt(covariance[1, 1]), pattern.elevation_sigma()))
    else:
        starts = (_Pattern(azimuth + turn, elevation, 0.0) for turn in (0, np.pi))
        single = min((_fit(sky, start, elevation, has_term=False)[0] for start in starts), key=sky.misfit)
        # Without a term the elevation would be held from the start, even where the term is then wrong.
        pattern, covariance = _fit(sky, single._replace(term=_TERM_SIGMA), elevation)
        opposite, elevation_sigma = pattern.elevation, 0.0
    residual = sky.misfit(pattern)
    if residual > _NO_SKY:
        raise ValueError(
            f"AoLP deviates from the pattern of a clear sky by {np.rad2deg(residual):.0f} degrees (median), at most "
            f"{np.rad2deg(_NO_SKY):.0f} are allowed: check mask, rays and attitude, and that no image is mirrored"
        )
    angles = np.full(is_used.shape, np.nan)
    angles[is_used] = sky.linearized(pattern)[0]
    return SunFit(
        (pattern.azimuth % (2 * np.pi), (pattern.azimuth + np.pi) % (2 * np.pi)),
        float(np.sqrt(covariance[0, 0]) / np.cos(pattern.elevation)),
        elevation,
        elevation_sigma,
        (residual, sky.misfit(_Pattern(pattern.azimuth + np.pi, opposite, pattern.term))),
        angles,
    )


class _Pattern(NamedTuple):
    """Azimuth and elevation of the sun, and the term of multiple scattering.

    With the sun s, the axis a of the term (a unit vector in the vertical plane of the sun) and complex transverse
    vectors e = u + iv, polarization is -(s e)^2 + term (a e)^2: the sum of two Rayleigh patterns.
    """

    azimuth: float
    elevation: float
    term: float

    def elevation_sigma(self) -> float:
        """Compute the deviation of the elevation that follows from the unknown axis of the term."""
        return abs(_TILT_SIGMA * self.term * self.elevation)


class _Sky(NamedTuple):
    """Usable pixels.

    Attributes:
        field: (3, N) E, plus i times the direction across E and the ray, in level axes.
        weight: (N,) weights.
        blocks: (N,) indices of blocks.
    """

    field: np.ndarray
    weight: np.ndarray
    blocks: np.ndarray

    def linearized(self, pattern: _Pattern) -> Tuple[np.ndarray, np.ndarray]:
        """Compute the angles from expected to measured E, -pi/2 to pi/2, and their (3, N) slopes.

        Slopes are along the azimuth, in rad of the unit sphere, the elevation and the term.
        """
        azimuth, elevation, term = pattern
        x, y, up = self.field
        toward = np.cos(azimuth) * x + np.sin(azimuth) * y
        side = np.cos(azimuth) * y - np.sin(azimuth) * x

        def within(angle: float) -> np.ndarray:
            return np.cos(angle) * toward + np.sin(angle) * up

        sun, above_sun = within(elevation), within(elevation + np.pi / 2)
        tilt = np.pi / 2 + _TILT * elevation
        axis, above_axis = within(tilt), within(tilt + np.pi / 2)
        light = term * axis**2 - sun**2
        inverse = 1 / np.where(np.abs(light) > 1e-12, light, 1e-12)
        slopes = (
            side * (sun - term * np.cos(tilt) / np.cos(elevation) * axis),
            sun * above_sun - term * _TILT * axis * above_axis,
            -0.5 * axis**2,
        )
        return np.angle(inverse) / 2, np.stack([(slope * inverse).imag for slope in slopes])

    def misfit(self, pattern: _Pattern) -> float:
        """Compute the median of the absolute angles."""
        return float(np.median(np.abs(self.linearized(pattern)[0])))


def _direction(azimuth: float, elevation: float) -> np.ndarray:
    level = np.cos(elevation)
    return np.array([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)])


def _spherical(direction: np.ndarray) -> Tuple[float, float]:
    """Return azimuth and elevation of a vector."""
    x, y, z = direction
    return float(np.arctan2(y, x)), float(np.arctan2(z, np.hypot(x, y)))


def _fit(
    sky: _Sky, pattern: _Pattern, known: Optional[float] = None, has_term: bool = True
) -> Tuple[_Pattern, np.ndarray]:
    """Refine a pattern by the method of Gauss and Newton.

    Prior knowledge enters as further measurements: a term of 0 with `_TERM_SIGMA`, and a known elevation with the
    deviation that the unknown axis of the term causes.

    Args:
        sky: The pixels.
        pattern: Where to start.
        known: Elevation of the sun, if it is known.
        has_term: Fit the term; otherwise it is 0.

    Returns:
        The pattern, and the (3, 3) covariance of azimuth (along the unit sphere), elevation and term.
    """
    for _ in range(_STEPS):
        azimuth, elevation, term = pattern
        angles, slopes = sky.linearized(pattern)
        size = np.abs(angles) * np.sqrt(sky.weight)
        weight = np.where(size <= _REJECTED * 1.4826 * np.median(size), sky.weight, 0)
        weighted = weight * slopes
        normal = weighted @ slopes.T
        sums = np.stack([np.bincount(sky.blocks, pull) for pull in weighted * angles])
        spread = sums @ sums.T * sums.shape[1] / (sums.shape[1] - 1)
        # Weights of pixels are relative: their errors give the variance of a pixel of weight 1, and so priors' weights.
        variance = spread[2, 2] / normal[2, 2]
        height_sigma = np.inf if known is None else max(pattern.elevation_sigma(), _HELD)
        prior = variance / np.array([np.inf, height_sigma, _TERM_SIGMA if has_term else _HELD]) ** 2
        offsets = np.array([0, 0 if known is None else elevation - known, term])
        inverse = np.linalg.inv(normal + np.diag(prior))
        step = -inverse @ (sums.sum(1) + prior * offsets)
        axes = np.stack([_direction(azimuth + np.pi / 2, 0), _direction(azimuth, elevation + np.pi / 2)])
        sun = _direction(azimuth, elevation) + step[:2] @ axes
        pattern = _Pattern(*_spherical(sun), term + float(step[2]))
        if np.abs(step).max() < _CONVERGED:
            break
    # Where few blocks determine the fit it follows their errors: each one is compared with a fit to the others.
    products = [np.bincount(sky.blocks, one * other) for one in weighted for other in slopes]
    blocks = np.stack(products, -1).reshape(-1, 3, 3)
    left_out = np.linalg.solve(np.eye(3) - blocks @ inverse, sums.T[..., np.newaxis])[..., 0]
    return pattern, inverse @ (left_out.T @ left_out + np.diag(prior * variance)) @ inverse
