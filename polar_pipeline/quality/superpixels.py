"""What the light of superpixels shows: a gamma, and pictures that are not the mosaic of a polarization sensor."""

from __future__ import annotations

from typing import Iterator, Tuple

import numpy as np

from polar_pipeline.quality.sample import Sample
from polar_pipeline.sensor.frames import FrameWarning
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: Means and highest numbers, as shares of full scale, between which nothing is dark or saturated; minimum of squares.
_DARKEST, _BRIGHTEST, _MIN_SQUARES = 0.03, 0.97, 64
#: Largest median and 95th percentile of the degree of polarization that gradients of a gray picture feign. For the
#: relative difference of I0 + I90 and I45 + I135, in which gradients cancel, the median's limit is divided by 10 and
#: the percentile's by 5: gains of real sensors make a difference of 0.3 % or more.
_GRAY, _MAX_GRAY = 0.012, 0.06
#: Smallest median change of the light from square to square of a scene. Without detail, a gray picture may be a lamp's.
_ROUGH = 0.02
#: Scatter of I0 + I90 against I45 + I135 above which colors make it: of real and synthetic mosaics it is below 0.008.
_SCATTERED = 0.015
#: Smallest standard deviation of q² - u² that shows a gamma; largest number that is a gamma (real linear frames give
#: 0.95 to 1.12); standard errors by which it must be below; and rounds of the fit.
_MIN_SPREAD, _MAX_GAMMA, _SIGMAS, _ROUNDS = 0.002, 0.85, 4.0, 8
#: Added to the diagonal of the fit's matrix, so that light without polarization can be fitted too.
_RIDGE = 1e-9


def superpixel_means(sample: Sample, sensor: Sensor) -> np.ndarray:
    """Return (N, 4) means behind the polarizers at `ANGLES`, as shares of full scale, of squares that are usable.

    Those of a color sensor count once for each color filter. `sensor` is the mosaic as read out.
    """
    order = [2 * row + column for row, column in map(sensor.position, ANGLES)]
    quads = sample.tiles.reshape(-1, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 4, 4)[..., order]
    light = quads if sensor.is_color else quads.mean(1, keepdims=True)
    usable = (light.min(2) > _DARKEST) & (sample.highest.reshape(-1, 1) < _BRIGHTEST * sample.full_scale)
    return light[usable]


def light_warnings(light: np.ndarray) -> Iterator[FrameWarning]:
    """Yield what contradicts a linear sensor behind polarizers in the light of `superpixel_means`.

    Behind ideal polarizers I0 + I90 = I45 + I135. Errors of gains and angles add to their relative difference what is
    constant and linear in q = S1/S0 and u = S2/S0; numbers that are a power of the light add a multiple of q² - u².
    """
    if len(light) < _MIN_SQUARES:
        return
    i0, i45, i90, i135 = light.T
    total = light.sum(1) / 2
    q, u, difference = (i0 - i90) / total, (i45 - i135) / total, (i0 + i90 - i45 - i135) / total
    degree, roughness = np.hypot(q, u), np.median(np.abs(np.diff(np.log(total))))
    if roughness > _ROUGH and _is_small(degree, _GRAY, _MAX_GRAY) and _is_small(difference, _GRAY / 10, _MAX_GRAY / 5):
        yield FrameWarning(
            "mosaic",
            "neighbors are alike: this is a gray picture or a product, not the mosaic of a polarization sensor",
        )
        return
    slope, error, scatter = _fitted_slope(q, u, difference)
    if scatter > _SCATTERED:
        if _is_small(q, _GRAY, _MAX_GRAY) or _is_small(u, _GRAY, _MAX_GRAY):
            yield FrameWarning(
                "mosaic",
                "one diagonal of the tile has equal pixels and the other has not: this is the picture of a Bayer color "
                "camera, not the mosaic of a polarization sensor",
            )
        return
    if np.std(q**2 - u**2) > _MIN_SPREAD and slope + _SIGMAS * error < (1 - 1 / _MAX_GAMMA) / 2:
        yield FrameWarning(
            "gamma",
            f"the numbers follow a gamma of about {1 / (1 - 2 * slope):.2f}, so the degree of polarization is too low: "
            "switch it off in the camera (camera.features: {GammaEnable: false}); it cannot be undone reliably",
        )


def _is_small(values: np.ndarray, median: float, highest: float) -> bool:
    """Return whether absolute values and their 95th percentile are below limits."""
    middle, high = np.percentile(np.abs(values), (50, 95))
    return bool(middle < median and high < highest)


def _fitted_slope(q: np.ndarray, u: np.ndarray, difference: np.ndarray) -> Tuple[float, float, float]:
    """Fit a difference robustly (Tukey's biweight) by q² - u², q, u and a constant.

    Returns:
        The factor of q² - u², its standard error, and the scatter of the differences around the fit.
    """
    columns = np.stack([q * q - u * u, q, u, np.ones_like(q)], 1).astype(np.float64)
    weight = np.ones(len(q))
    for _ in range(_ROUNDS):
        weighted = weight[:, np.newaxis] * columns
        inverse = np.linalg.inv(columns.T @ weighted + _RIDGE * np.eye(4))
        factors = inverse @ (weighted.T @ difference)
        rest = difference - columns @ factors
        scatter = max(1.4826 * float(np.median(np.abs(rest))), 1e-6)
        weight = np.square(np.clip(1 - np.square(rest / (4.685 * scatter)), 0, None))
    meat = columns.T @ (np.square(weight * rest)[:, np.newaxis] * columns)
    return float(factors[0]), float(np.sqrt(max((inverse @ meat @ inverse)[0, 0], 0))), scatter
