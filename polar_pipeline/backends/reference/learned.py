"""The correction of denoised Stokes images by a network, in float64: the definition of `demosaic: learned`.

A network sees S0, S1 and S2 of a superpixel's four pixels as ADR demosaics them and as they are denoised, and what lies
around, all in units of the noise of a raw pixel. It answers what to add to the denoised values. That is less than
`LEARNED_LIMIT` of the noise's standard deviation, so it cannot show or hide what stands out of the noise; and nothing
where noise is too little to see. It also states how much noise the result has, which it learned from pairs of frames
that differ by noise alone.

The network is a U-Net (Ronneberger, Fischer and Brox, MICCAI 2015) of superpixels at three levels of resolution
(`backends/network.py`). It was trained for superpixels whose first pixel lies behind the polarizer of 90 degrees, so
superpixels begin at such pixels, and S2 has the other sign where the next pixel of their row lies behind that of 135.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polar_pipeline.backends.network import LAYERS, alignment, grid_size, weights
from polar_pipeline.backends.reference.denoising import box
from polar_pipeline.backends.reference.noise import plane_gains, raw_variances
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import (
    LEARNED_CLIP,
    LEARNED_FADE,
    LEARNED_LIMIT,
    LEARNED_REACH,
)
from polar_pipeline.sensor.mosaic import Sensor

#: Below every S0 that counts.
_TINY = 1e-30


class Corrected(NamedTuple):
    """Corrected angle images, and what the network states of their noise.

    Attributes:
        angles: (4, H, W).
        noise: (4, H, W) numbers of `stated_covariance`.
    """

    angles: np.ndarray
    noise: np.ndarray


def correct_by_network(
    measured: np.ndarray, denoised: np.ndarray, sensor: Sensor, options: Options, full_scale: int
) -> Corrected:
    """Correct denoised angle images.

    Args:
        measured: (4, H, W) angle images by ADR.
        denoised: The same, denoised.
        sensor: The mosaic as the frame shows it.
        options: Options of the pipeline that computed the angles.
        full_scale: Raw number of a saturated pixel.
    """
    height, width = measured.shape[1:]
    (top, left), sign = alignment(sensor)
    rows, columns = grid_size(sensor, (height, width))
    before, after = _planes(measured, sign), _planes(denoised, sign)
    padding = [(0, 0), (top, 2 * rows - top - height), (left, 2 * columns - left - width)]
    before, after = (np.pad(planes, padding, "reflect") for planes in (before, after))
    # what is around a superpixel, and the noise of its raw pixels
    own = after.reshape(4, rows, 2, columns, 2).mean((2, 4))
    around = np.stack([box(plane, LEARNED_REACH) for plane in own])
    variance = raw_variances(own[0] / 2, sensor, options, full_scale)
    deviation = np.sqrt(variance)
    channels = []
    for k in range(4):
        for planes in (before, after)[: 1 if k == 3 else 2]:  # denoising leaves the last one as it is
            channels += [part - around[k] for part in _by_superpixel(planes[k])]
    contrast = np.clip(np.stack(channels) / deviation, -LEARNED_CLIP, LEARNED_CLIP) / 4
    level = np.clip(own[0] / deviation / 16, 0, 16)
    answer = np.tanh(network(np.concatenate([contrast, level[np.newaxis]])) / LEARNED_LIMIT)
    # less than the noise, and nothing where that cannot be seen
    low, high = LEARNED_FADE
    ratio = np.sqrt(plane_gains(*options.method_on(sensor)).polarization[0] * variance) / np.maximum(own[0], _TINY)
    share = np.clip((ratio - low) / (high - low), 0, 1)
    changes = LEARNED_LIMIT * answer[:12] * deviation * share
    of_noise = np.repeat(answer[12:], 4, 0)  # the same for all pixels of a superpixel
    parts = np.concatenate([changes, of_noise]).reshape(7, 4, rows, columns)
    images = np.stack([_of_superpixels(part) for part in parts])
    s0, s1, s2, *noise = images[:, top : top + height, left : left + width]
    change = np.stack([s0 + s1, s0 + sign * s2, s0 - s1, s0 - sign * s2]) / 2
    return Corrected(denoised + change, np.stack([1 + noise[0], 1 + noise[1], noise[2], sign * noise[3]]))


def stated_covariance(
    noise: np.ndarray, s0: np.ndarray, sensor: Sensor, options: Options, full_scale: int
) -> np.ndarray:
    """Compute (H, W, 3, 3) covariance matrices of S1, S2 and S0 by noise.

    The noise of S1 and S2 is that of S0 times two slopes, and a rest that is the same in all directions.

    Args:
        noise: (4, H, W): variances of S0 and of the rest, 0 to 2 times those by ADR; and the slopes, -1 to 1.
        s0: (H, W) S0 of the result.
        sensor: The mosaic as the frame shows it.
        options: Options of the pipeline.
        full_scale: Raw number of a saturated pixel.
    """
    gains, variance = plane_gains(*options.method_on(sensor)), raw_variances(s0 / 2, sensor, options, full_scale)
    light, rest = gains.s0[0, 0] * variance * noise[0], gains.polarization[0] * variance * noise[1]
    slopes = np.stack([noise[2], noise[3], np.ones_like(light)], -1)
    matrix: np.ndarray = light[..., np.newaxis, np.newaxis] * slopes[..., np.newaxis] * slopes[..., np.newaxis, :]
    matrix[..., (0, 1), (0, 1)] += rest[..., np.newaxis]
    return matrix


def _planes(angles: np.ndarray, sign: int) -> np.ndarray:
    """Convert angle images to (4, H, W): S0, S1, S2 times `sign`, and (I0 + I90 - I45 - I135)/2."""
    i0, i45, i90, i135 = angles
    return np.stack([(i0 + i45 + i90 + i135) / 2, i0 - i90, sign * (i45 - i135), (i0 + i90 - i45 - i135) / 2])


def _by_superpixel(image: np.ndarray) -> np.ndarray:
    """Convert (2 h, 2 w) to (4, h, w): the pixels of superpixels, row after row."""
    return np.stack([image[y::2, x::2] for y in (0, 1) for x in (0, 1)])


def _of_superpixels(parts: np.ndarray) -> np.ndarray:
    """Convert (4, h, w) to (2 h, 2 w): the inverse of `_by_superpixel`."""
    image = np.empty((2 * parts.shape[1], 2 * parts.shape[2]))
    for k, part in enumerate(parts):
        image[k // 2 :: 2, k % 2 :: 2] = part
    return image


# ---------------------------------------------------------------------------------------------------------- the network


def network(features: np.ndarray) -> np.ndarray:
    """Convert (29, h, w), sides multiples of `ALIGNMENT`, to (16, h, w): four pixels of S0, S1, S2, and the noise."""
    fine = _relu(convolve(_relu(convolve(features, "enter")), "encode_0"))
    middle = _relu(convolve(_relu(convolve(fine, "down_1")), "encode_1"))
    coarse = _relu(convolve(_relu(convolve(middle, "down_2")), "encode_2"))
    middle = _relu(convolve(_relu(middle + _doubled(convolve(coarse, "up_1"))), "decode_1"))
    fine = _relu(convolve(_relu(fine + _doubled(convolve(middle, "up_0"))), "decode_0"))
    return convolve(fine, "leave")


def convolve(image: np.ndarray, name: str) -> np.ndarray:
    """Apply a layer to a (channels, h, w) image."""
    layer, kernel, bias = LAYERS[name], weights()[name].astype(float), weights()[f"{name}_bias"].astype(float)
    reach = 1 if layer.size == 3 else 0
    height, width = (side // layer.stride for side in image.shape[1:])
    padded = np.pad(image, [(0, 0), (reach, reach), (reach, reach)])
    total = np.broadcast_to(bias[:, np.newaxis, np.newaxis], (layer.outputs, height, width)).copy()
    for y in range(layer.size):
        for x in range(layer.size):
            part = padded[:, y : y + layer.stride * height : layer.stride, x : x + layer.stride * width : layer.stride]
            total += np.tensordot(kernel[:, :, y, x], part, 1)
    return total


def _relu(image: np.ndarray) -> np.ndarray:
    return np.maximum(image, 0)


def _doubled(image: np.ndarray) -> np.ndarray:
    """Convert (4 n, h, w) to (n, 2 h, 2 w): each four channels are the pixels of a square, row after row."""
    return np.stack([_of_superpixels(image[k : k + 4]) for k in range(0, len(image), 4)])
