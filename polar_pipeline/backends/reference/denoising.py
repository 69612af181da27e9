"""Denoising of Stokes images by the known noise of raw pixels, in float64: the definition of the option `denoise`.

Polarization follows the scene's surfaces, as intensity does, and intensity is measured with less noise. So S1 and S2
are explained by S0 first: around every pixel, a straight line from S0 to each of them is fitted, as in the guided
filter of He, Sun and Tang (TPAMI 35, 2013), whose regularization is here the variance of S0 by noise. What the lines
leave over is noise and fine detail of polarization; the share of it that exceeds the noise is kept, as in the filter of
Lee (TPAMI 2, 1980). S0 itself passes Lee's filter. All windows are small and square, so that an output pixel depends on
17 x 17 pixels of the Stokes image.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from polar_pipeline.backends.reference.demosaicking import add_up
from polar_pipeline.backends.reference.noise import plane_gains, raw_variances
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import (
    DENOISE_AUTO,
    DENOISE_LEE,
    DENOISE_REACH,
    DENOISE_TAPS,
    LUMA,
)
from polar_pipeline.sensor.mosaic import Sensor


class Denoised(NamedTuple):
    """Denoised angle images, and the noise that is left in them.

    Attributes:
        angles: (4, H, W), of a color sensor (4, H, W, 3).
        left: (4, H, W), of luma: share that is kept of what S0 does not explain of S1 and S2; share that is kept of the
            differences of S0 from its mean; and two slopes: how much of the noise of S0 is in S1 and S2.
    """

    angles: np.ndarray
    left: np.ndarray


def denoise(angles: np.ndarray, sensor: Sensor, options: Options, full_scale: int) -> Denoised:
    """Denoise angle images.

    Args:
        angles: (4, H, W), of a color sensor (4, H, W, 3).
        sensor: The mosaic as the frame shows it.
        options: Options of the pipeline that computed the angles.
        full_scale: Raw number of a saturated pixel.
    """
    planes = angles if angles.ndim == 4 else angles[..., np.newaxis]
    luma = np.array(LUMA) if angles.ndim == 4 else np.ones(1)
    i0, i45, i90, i135 = planes
    s0, polarization = (i0 + i45 + i90 + i135) / 2, np.stack([i0 - i90, i45 - i135])
    gains = plane_gains(*options.method_on(sensor))

    def variances(mean_s0: np.ndarray) -> np.ndarray:
        return raw_variances(mean_s0 / 2, sensor, options, full_scale)

    # S1 and S2 as S0 explains them
    mean, means = box(s0, DENOISE_REACH), np.stack([box(part, DENOISE_REACH) for part in polarization])
    by_noise = variances(mean) @ gains.s0.T
    signal = np.maximum(box(s0 * s0, DENOISE_REACH) - mean * mean - by_noise, 0)
    products = np.stack([box(s0 * part, DENOISE_REACH) for part in polarization])
    slopes = (products - mean * means) / (signal + by_noise)
    offsets = means - slopes * mean
    slopes, offsets = (np.stack([box(part, DENOISE_REACH) for part in parts]) for parts in (slopes, offsets))
    explained = slopes * s0 + offsets
    # the share of the rest that is kept: the same for all colors, so that none appears
    rest = polarization - explained
    lee_mean = box(s0, DENOISE_LEE)
    of_colors = variances(lee_mean)
    noise = of_colors @ gains.polarization  # of S1 and of S2 of luma
    energy = blur(np.sum((rest @ luma) ** 2, 0))
    kept = np.maximum(1 - 2 * options.denoise_strength * noise / np.maximum(energy, _TINY), 0)
    # S0
    spread = np.maximum(box(s0 * s0, DENOISE_LEE) - lee_mean * lee_mean, _TINY)
    kept_s0 = np.maximum(1 - of_colors @ gains.s0.T / spread, 0)
    if options.denoising == "auto":  # all is kept where noise is too little to see
        low, high = DENOISE_AUTO
        ratio = np.sqrt(noise) / np.maximum(lee_mean @ luma, _TINY)
        least = 1 - np.clip((ratio - low) / (high - low), 0, 1)
        kept, kept_s0 = least + (1 - least) * kept, least[..., np.newaxis] * (1 - kept_s0) + kept_s0
    s1, s2 = explained + kept[..., np.newaxis] * rest
    change = lee_mean + kept_s0 * (s0 - lee_mean) - s0
    straight, diagonal = i0 + i90 + change, i45 + i135 + change
    denoised = np.stack([straight + s1, diagonal + s2, straight - s1, diagonal - s2]) / 2
    # noise remains in the means over the windows, in the slopes, and in what is kept
    left = np.stack([kept, kept_s0 @ luma, *((1 - kept) * (slopes @ luma))])
    return Denoised(denoised.reshape(angles.shape), left)


#: Below every variance.
_TINY = 1e-30


def box(image: np.ndarray, reach: int) -> np.ndarray:
    """Return (H, W, ...) means over squares of 2 `reach` + 1 pixels, the border mirrored about the last pixel."""
    return filtered(image, np.full(2 * reach + 1, 1 / (2 * reach + 1)), "reflect")


def blur(image: np.ndarray) -> np.ndarray:
    """Smooth an (H, W) image by the filter `DENOISE_TAPS`, the border mirrored about the last pixel."""
    return filtered(image, np.array([*DENOISE_TAPS[:0:-1], *DENOISE_TAPS]), "reflect")


def filtered(image: np.ndarray, taps: np.ndarray, border: Literal["reflect", "symmetric"]) -> np.ndarray:
    """Filter the columns of an (H, W, ...) image, then its rows; `border` is a mode of `np.pad`."""
    reach = len(taps) // 2
    for axis in (0, 1):
        padding = [(reach, reach) if k == axis else (0, 0) for k in range(image.ndim)]
        padded = np.moveaxis(np.pad(image, padding, border), axis, 0)
        side = image.shape[axis]
        image = np.moveaxis(add_up(tap * padded[k : k + side] for k, tap in enumerate(taps)), 0, axis)
    return image
