"""The noise of the reference: standard deviations of DoLP and AoLP, and DoLP without its bias."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple, Tuple

import numpy as np

from polar_pipeline.backends.reference.demosaicking import demosaic_by
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import (
    AOLP_SIGMA_MAX,
    DENOISE_LEE,
    DENOISE_MEANS,
    DENOISE_OWN,
    DENOISE_REACH,
    DENOISE_SLOPES,
    LUMA,
    NOISE_ADAPTIVE,
    NOISE_LINEAR,
    NOISE_WEIGHTED,
    SIGMA_ANGLE,
    SIGMA_LENGTH,
)
from polar_pipeline.sensor.mosaic import ANGLES, CHANNELS, Sensor

#: Distance of impulses in a flat field: each reaches 11 pixels. Their size: sums with weights of whole 2^-n are exact.
_CELL, _IMPULSE = 32, 2.0**-30


class Uncertainty(NamedTuple):
    """Standard deviations of DoLP and AoLP, images of one size.

    Attributes:
        component: Standard deviation of DoLP, taken as a component of (S1, S2)/S0 that can be negative.
        dolp: Root mean square error of debiased DoLP.
        aolp: Standard deviation of AoLP in rad.
    """

    component: np.ndarray
    dolp: np.ndarray
    aolp: np.ndarray


def impulse_responses(
    sensor: Sensor, is_half: bool, co_sited: bool, interpolation: str, debayer: str, of_luma: bool = True
) -> np.ndarray:
    """Compute a method's response to an impulse in a flat field, for an impulse at each place of the mosaic.

    Arguments but the last are those of `demosaic_by`.

    Returns:
        (n, n, 4, h, w), read-only: by row and column of the impulse, the angle images around it over its size; of a
        color sensor their luma, or without `of_luma` (n, n, 4, h, w, 3).
    """
    period = sensor.period
    flat = np.full((period * _CELL, period * _CELL), 0.5)
    mosaic = flat.copy()
    for row, column in product(range(period), repeat=2):
        mosaic[_CELL * row + _CELL // 2 + row, _CELL * column + _CELL // 2 + column] += _IMPULSE
    angles, level = (demosaic_by(image, sensor, is_half, co_sited, interpolation, debayer) for image in (mosaic, flat))
    response = (angles - level) / _IMPULSE
    if sensor.is_color and of_luma:
        response = response @ np.array(LUMA)
    side = response.shape[1] // period
    cells = np.moveaxis(response.reshape(len(ANGLES), period, side, period, side, *response.shape[3:]), (1, 3), (0, 1))
    cells.flags.writeable = False
    return cells


@lru_cache(maxsize=16)
def impulse_gains(sensor: Sensor, is_half: bool, co_sited: bool, interpolation: str, debayer: str) -> np.ndarray:
    """Compute the gains from the variance of raw pixels to the covariance matrix of S1, S2 and S0.

    Returns:
        (n, n, channels, 4, 3, 3), read-only: by row and column of the output modulo n, color and polarizer of the raw
        pixels.
    """
    period = sensor.period // 2 if is_half else sensor.period
    gains = np.zeros((period, period, len(CHANNELS) if sensor.is_color else 1, len(ANGLES), 3, 3))
    responses = impulse_responses(sensor, is_half, co_sited, interpolation, debayer)
    for row, column in product(range(sensor.period), repeat=2):
        i0, i45, i90, i135 = responses[row, column]
        vector = np.stack([i0 - i90, i45 - i135, (i0 + i45 + i90 + i135) / 2], -1)
        color = sensor.color_index(row, column)
        for y, x in product(range(period), repeat=2):
            seen = vector[y::period, x::period].reshape(-1, 3)
            gains[y, x, color, sensor.angle_index(row, column)] += seen.T @ seen
    gains.flags.writeable = False
    return gains


@lru_cache(maxsize=16)
def exposure_shares(sensor: Sensor, is_half: bool, co_sited: bool, interpolation: str, debayer: str) -> np.ndarray:
    """Compute which shares of the gains come from raw pixels of the superpixels around an output pixel.

    Those beyond the nearest superpixels, which weigh little, count as these.

    Returns:
        (n, n, channels, 4, 3, 3) float32, read-only: indices of `impulse_gains`, then row and column of the superpixel.
    """
    period = sensor.period // 2 if is_half else sensor.period
    shares = np.zeros((period, period, len(CHANNELS) if sensor.is_color else 1, len(ANGLES), 3, 3), np.float32)
    responses = impulse_responses(sensor, is_half, co_sited, interpolation, debayer)
    at = np.arange(responses.shape[-1])
    superpixel = at if is_half else at // 2
    for row, column in product(range(sensor.period), repeat=2):
        i0, i45, i90, i135 = responses[row, column]
        energy = (i0 - i90) ** 2 + (i45 - i135) ** 2 + ((i0 + i45 + i90 + i135) / 2) ** 2
        down, right = (np.clip((_CELL // 2 + place) // 2 - superpixel, -1, 1) + 1 for place in (row, column))
        to = shares[:, :, sensor.color_index(row, column), sensor.angle_index(row, column)]
        np.add.at(to, np.ix_(at % period, at % period) + np.ix_(down, right), energy)
    shares /= np.maximum(shares.sum((-2, -1), keepdims=True), np.finfo(np.float32).tiny)
    shares.flags.writeable = False
    return shares


class MeansNoise(NamedTuple):
    """Covariances by noise between two Stokes images or their means, divided by the covariance of the two images.

    A wide mean is the mean over the window in which S0 explains S1 and S2, taken twice; a narrow mean is the mean over
    the window of Lee's filter of S0.

    Attributes:
        wide: Covariance of the first image and the wide mean of the second, divided by the covariance of the images.
        wide_both: Covariance of the wide mean of the first and the wide mean of the second, divided in the same way.
        narrow: Covariance of the narrow mean of the first and the second image, divided in the same way.
        narrow_both: Covariance of the narrow mean of the first and the narrow mean of the second, divided in the same
            way.
        mixed: Covariance of the narrow mean of the first and the wide mean of the second, divided in the same way.
    """

    wide: float
    wide_both: float
    narrow: float
    narrow_both: float
    mixed: float


class PlaneGains(NamedTuple):
    """Gains from the variance of raw pixels to those of the Stokes images, averaged over the places of the mosaic.

    Attributes:
        s0: (channels, colors): to S0 of each channel, by the color of the raw pixels.
        polarization: (colors,): to S1 and S2 of luma, their mean.
        left: Share of the latter that denoising leaves where S0 has no detail, and nothing is kept that it does not
            explain.
        light: Noise of means of S0 of luma, twice the same image.
        polarized: Noise of means of S0 of luma, and of S1 in light that is polarized along S1.
    """

    s0: np.ndarray
    polarization: np.ndarray
    left: float
    light: MeansNoise
    polarized: MeansNoise

    @property
    def of_means(self) -> Tuple[float, ...]:
        """The numbers of `struct NoiseOfMeans` of the kernels, in order."""
        return (*self.light, *self.polarized, self.left)


@lru_cache(maxsize=16)
def plane_gains(sensor: Sensor, is_half: bool, co_sited: bool, interpolation: str, debayer: str) -> PlaneGains:
    """Compute the gains of the images that are denoised. Arguments are those of `demosaic_by`."""
    method = (sensor, is_half, co_sited, interpolation, debayer)
    responses = impulse_responses(*method, of_luma=False)
    of_luma = responses @ np.array(LUMA) if sensor.is_color else responses
    channels = len(CHANNELS) if sensor.is_color else 1
    squares = (responses.sum(2).reshape(*responses.shape[:2], -1, channels) / 2) ** 2
    s0 = np.zeros((channels, channels))
    for row, column in product(range(sensor.period), repeat=2):
        s0[:, sensor.color_index(row, column)] += squares[row, column].sum(0)
    s0 /= (sensor.period // 2 if is_half else sensor.period) ** 2
    of_vectors = impulse_gains(*method).mean((0, 1)).sum(1)  # by color: S1, S2, S0
    polarization = (of_vectors[:, 0, 0] + of_vectors[:, 1, 1]) / 2
    i0, i45, i90, i135 = np.moveaxis(of_luma, 2, 0)
    light, along = (i0 + i45 + i90 + i135) / 2, i0 - i90
    places = range(sensor.period)
    # Shot noise of polarized light: there is more of it behind the polarizer along it, and less behind the one across.
    variance_changes = np.array(
        [[(1, 0, -1, 0)[sensor.angle_index(row, column)] for column in places] for row in places]
    )
    of_polarization = _noise_of_means(along, along, np.ones_like(variance_changes))
    return PlaneGains(
        s0,
        polarization,
        DENOISE_MEANS * of_polarization.wide_both,
        _noise_of_means(light, light, np.ones_like(variance_changes)),
        _noise_of_means(light, along, variance_changes),
    )


def _noise_of_means(first: np.ndarray, second: np.ndarray, variances: np.ndarray) -> MeansNoise:
    """Compute how much noise is left in means of two Stokes images, or is common to them.

    The more raw pixels neighboring output pixels share, the more their noise is correlated, and the more is left.

    Args:
        first: (n, n, h, w) impulse responses of the first image.
        second: The same of the second one.
        variances: (n, n) of raw pixels, by row and column of the impulse.
    """
    window = np.full(2 * DENOISE_REACH + 1, 1 / (2 * DENOISE_REACH + 1))
    twice, once = np.convolve(window, window), np.full(2 * DENOISE_LEE + 1, 1 / (2 * DENOISE_LEE + 1))
    margin = [(0, 0), (0, 0), (2 * DENOISE_REACH, 2 * DENOISE_REACH), (2 * DENOISE_REACH, 2 * DENOISE_REACH)]
    a, b = (np.pad(image, margin) for image in (first, second))  # so that `roll` meets only zeros

    def means(image: np.ndarray, taps: np.ndarray) -> np.ndarray:
        for axis in (-2, -1):
            image = np.sum([tap * np.roll(image, k - len(taps) // 2, axis) for k, tap in enumerate(taps)], 0)
        return image

    wide, narrow = means(b, twice), means(a, once)
    pairs = ((a, wide), (means(a, twice), wide), (narrow, b), (narrow, means(b, once)), (narrow, wide))
    covariance, *others = (float(np.sum(variances * np.sum(x * y, (-2, -1)))) for x, y in ((a, b), *pairs))
    return MeansNoise(*(other / covariance for other in others))


def raw_variances(intensity: np.ndarray, sensor: Sensor, options: Options, full_scale: int) -> np.ndarray:
    """Compute the variance of raw pixels by noise, from their intensities as shares of full scale."""
    full_well, read_noise = sensor.full_well, sensor.read_noise
    if options.calibration is not None and options.calibration.noise is not None:
        full_well, read_noise = options.calibration.noise
    full_well /= 10 ** (options.camera_gain / 20)
    significant = f"{full_scale:b}".rstrip("0")  # all ones: the rest is how far numbers are shifted
    level = 1 / (full_scale if "0" in significant else int(significant, 2))
    variances: np.ndarray = np.maximum(intensity, 0) / full_well + (read_noise / full_well) ** 2 + level**2 / 12
    return variances


def covariance(angles: np.ndarray, sensor: Sensor, options: Options, full_scale: int) -> np.ndarray:
    """Convert (4, H, W[, 3]) angle images to (H, W, 3, 3) covariance matrices of S1, S2 and S0 by noise."""
    is_half = options.resolution == "half"
    gains = impulse_gains(sensor, is_half, options.co_sited, options.interpolation, options.debayer)
    colors = angles if sensor.is_color else angles[..., np.newaxis]
    height, width = angles.shape[1:3]
    total = np.zeros((height, width, 3, 3))
    for color in range(colors.shape[-1]):
        for angle in range(len(ANGLES)):
            raw = raw_variances(colors[angle, ..., color], sensor, options, full_scale)
            tile = gains[:, :, color, angle]
            times = (-(-height // len(tile)), -(-width // len(tile)), 1, 1)
            total += raw[..., np.newaxis, np.newaxis] * np.tile(tile, times)[:height, :width]
    return total


def covariance_left(matrix: np.ndarray, left: np.ndarray, gains: PlaneGains) -> np.ndarray:
    """Return what denoising leaves of covariance matrices.

    S1 and S2 become their wide means, a slope times the difference of S0 from its wide mean, and a share of the rest;
    S0 becomes its narrow mean and a share of the difference from it (`MeansNoise`). Slopes, and the share of S0, count
    as numbers without noise.

    Args:
        matrix: (H, W, 3, 3) covariance matrices of S1, S2 and S0 by noise.
        left: (4, H, W) `Denoised.left`.
        gains: Of the method.
    """
    kept, kept_light = left[:2]
    slopes, removed, removed_light = np.moveaxis(left[2:], 0, -1), 1 - kept, 1 - kept_light
    light, both = gains.light, gains.polarized
    least = gains.left * (1 + DENOISE_SLOPES * kept_light)
    along = np.where(kept > 0, kept + DENOISE_OWN * removed, 0)  # what is kept of noise along the rest, and beside it
    rest = least + (1 - least) * (along**2 + kept**2) / 2
    detail = 1 - 2 * light.wide + light.wide_both  # variance of S0 less its wide mean
    # covariances of S1 and S2 without the slopes: with S0 less its wide mean, and with S0 as it becomes
    with_detail = removed * (both.wide - both.wide_both) + kept * (1 - both.wide)
    with_light = kept_light * (removed * both.wide + kept) + removed_light * (removed * both.mixed + kept * both.narrow)
    # covariance of S0 less its wide mean with S0 as it becomes
    of_slopes = kept_light * (1 - light.wide) + removed_light * (light.narrow - light.mixed)
    own = kept_light**2 + removed_light * (2 * kept_light * light.narrow + removed_light * light.narrow_both)

    common, variance = matrix[..., :2, 2], matrix[..., 2, 2, np.newaxis]
    once = with_detail[..., np.newaxis, np.newaxis] * slopes[..., :, np.newaxis] * common[..., np.newaxis, :]
    result = np.empty(matrix.shape)
    result[..., :2, :2] = rest[..., np.newaxis, np.newaxis] * matrix[..., :2, :2] + once + np.swapaxes(once, -1, -2)
    result[..., :2, :2] += detail * (slopes * variance)[..., np.newaxis] * slopes[..., np.newaxis, :]
    result[..., :2, 2] = with_light[..., np.newaxis] * common + of_slopes[..., np.newaxis] * slopes * variance
    result[..., 2, :2] = result[..., :2, 2]
    result[..., 2, 2] = own * matrix[..., 2, 2]
    return result


def uncertainty(matrix: np.ndarray, vector: np.ndarray, options: Options) -> Uncertainty:
    """Compute the standard deviations by noise.

    Args:
        matrix: (H, W, 3, 3) covariance matrices of S1, S2 and S0 by noise.
        vector: (H, W, 3) Stokes vectors.
        options: Options of the pipeline that computed them.
    """
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
    if options.is_learned:  # its network states all of the noise
        return NOISE_LINEAR
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


def significance(degree: np.ndarray, component: np.ndarray) -> np.ndarray:
    """Compute the chance that noise alone makes a DoLP at least as large, by Rayleigh's distribution.

    Args:
        degree: DoLP as measured.
        component: Standard deviation of DoLP (`Uncertainty.component`).
    """
    ratio = degree / np.maximum(component, 1e-30)
    return np.exp(-(ratio**2) / 2)
