"""Standard deviations of DoLP and AoLP by noise, on one strip, with NumPy."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

import numpy as np

from polar_pipeline.coefficients import AOLP_SIGMA_MAX, SIGMA_ANGLE, SIGMA_LENGTH
from polar_pipeline.cpu.images import Image
from polar_pipeline.noise import NoiseModel

_F = np.float32
#: Keeps quotients finite: far below every variance.
_TINY = _F(1e-20)


class NoiseDeviations(NamedTuple):
    """Images of standard deviations.

    Attributes:
        component: Of DoLP as a component of (S1, S2)/S0, which can be negative.
        dolp: Of DoLP.
        aolp: Of AoLP in rad.
    """

    component: Image
    dolp: Image
    aolp: Image


def deviations(
    images: Sequence[Sequence[Image]], stokes: Sequence[Image], degree: Image, model: NoiseModel
) -> NoiseDeviations:
    """The standard deviations of a strip that begins with a row of the tile's first one.

    Args:
        images: By channel and angle, (H, W) float32 of full scale 1.
        stokes: S0, S1 and S2 of their luma.
        degree: DoLP.
        model: The noise of the frame.
    """
    out = NoiseDeviations(*(np.empty_like(degree) for _ in NoiseDeviations._fields))
    period = len(model.gains)
    for row in range(period):
        for column in range(period):
            site = (slice(row, None, period), slice(column, None, period))
            terms = _covariances([[image[site] for image in four] for four in images], model.gains[row, column], model)
            found = _of_covariances(terms, [plane[site] for plane in stokes], degree[site], model)
            for target, image in zip(out, found):
                target[site] = image
    return out


def _covariances(images: Sequence[Sequence[Image]], gains: np.ndarray, model: NoiseModel) -> List[Image]:
    """The elements `TERMS` of the covariance matrices of S1, S2 and S0."""
    terms = [np.zeros_like(images[0][0]) for _ in range(gains.shape[-1])]
    for four, gains_of_channel in zip(images, gains):
        for image, gains_of_angle in zip(four, gains_of_channel):
            variance = np.maximum(image, _F(0))
            variance *= _F(model.shot)
            variance += _F(model.floor)
            for index in np.flatnonzero(gains_of_angle):
                terms[index] += gains_of_angle[index] * variance
    return terms


def _of_covariances(terms: List[Image], stokes: Sequence[Image], degree: Image, model: NoiseModel) -> NoiseDeviations:
    v11, v12, v22, v10, v20, v00 = terms
    s0, s1, s2 = stokes
    square = s1 * s1 + s2 * s2
    length = np.sqrt(square)
    mean = _F(0.5) * (v11 + v22)
    weight = _F(1) / (square + mean)  # where (S1, S2) is less than its noise, its direction is any direction
    mixed = _F(2) * s1 * s2 * v12
    along = (s1 * s1 * v11 + mixed + s2 * s2 * v22 + mean * mean) * weight
    across = np.maximum((s2 * s2 * v11 - mixed + s1 * s1 * v22 + mean * mean) * weight, _TINY)
    along += np.square(degree) * v00
    along -= (s1 * v10 + s2 * v20) * (_F(2) / np.maximum(np.maximum(s0, length), _F(1e-9)))
    most, less, share, steep = map(_F, model.method)
    scale = most - less / (_F(1) + square / (across * share))
    component = np.sqrt(np.maximum(along, _TINY)) * scale * (_F(1) - steep * degree**4)
    component /= np.clip(s0, 1e-9, 4)
    ratio = np.minimum(degree / component, _F(1e4))
    dolp = component * (_F(1) - _F(SIGMA_LENGTH) / np.square(_F(1) + np.square(np.square(ratio))))
    ratio = np.maximum(length / (np.sqrt(across) * scale), _F(1e-3))
    aolp = (_F(1) + _F(SIGMA_ANGLE) / np.square(np.square(ratio))) / (_F(2) * ratio)
    return NoiseDeviations(component, np.minimum(dolp, _F(1)), np.minimum(aolp, _F(AOLP_SIGMA_MAX)))


def debiased(degree: Image, component: Image) -> Image:
    """DoLP without its bias, by the modified asymptotic estimator of Plaszczynski et al. (arXiv 1312.0437).

    Args:
        degree: DoLP as measured.
        component: `NoiseDeviations.component`.
    """
    square = np.square(np.minimum(degree / component, _F(1e4)))
    share = np.where(square > _F(1e-3), -np.expm1(-square) / np.maximum(square, _TINY), _F(1) - _F(0.5) * square)
    return degree * (_F(1) - _F(0.5) * share)
