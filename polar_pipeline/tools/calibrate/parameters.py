"""The parameters of the correction, from the responses of the pixels to the polarizer."""

from __future__ import annotations

from typing import Dict, Tuple

import numpy as np

from polar_pipeline.calibration import PixelParameters
from polar_pipeline.sensor.forward import color_indices
from polar_pipeline.sensor.mosaic import Sensor
from polar_pipeline.tools.calibrate.pixels import PixelFits
from polar_pipeline.tools.calibrate.polarizer import half_turn
from polar_pipeline.tools.calibrate.reductions import stokes, superpixels

#: Highest extinction ratio that is stated: beyond it noise decides.
MAX_EXTINCTION = 10_000.0


def interpret(sensor: Sensor, fits: PixelFits, light: np.ndarray) -> Dict[str, np.ndarray]:
    """Return gain relative to the smooth light, angle's deviation in degrees and extinction ratio, (H, W) by name."""
    angle = np.arctan2(fits.sine, fits.cosine)
    for nominal, at in _sites(sensor):
        angle[at] = np.rad2deg(half_turn(angle[at] / 2 - np.float32(np.deg2rad(nominal))))
    m = np.hypot(fits.cosine, fits.sine)
    np.minimum(m, (MAX_EXTINCTION - 1) / (MAX_EXTINCTION + 1), out=m)
    return {"gain": fits.level / light, "angle": angle, "extinction": (1 + m) / (1 - m)}


def correction_parameters(
    sensor: Sensor, fits: PixelFits, black: np.ndarray, level: np.ndarray, used: np.ndarray, phase: Tuple[int, int]
) -> PixelParameters:
    """Compute the parameters of the correction; pixels that are not used have those of an average pixel.

    Args:
        sensor: The mosaic of the region.
        fits: Responses of the pixels, of which `cosine` and `sine` become e1 and e2 in place.
        black: (H, W), black level.
        level: (H, W), what the gain makes even: the gain relative to the light nearby, or A itself.
        used: (H, W) bool.
        phase: (row, column) of the region's first pixel in its superpixel.
    """
    gain = np.where(used, level, 1).astype(np.float32)
    colors = color_indices(sensor, (sensor.period, sensor.period))
    for color in np.unique(colors):
        sites = [(slice(r, None, len(colors)), slice(c, None, len(colors))) for r, c in np.argwhere(colors == color)]
        total, count = (sum(float(image[at].sum(where=used[at])) for at in sites) for image in (gain, used))
        for at in sites:
            gain[at] *= count / total if total else 1
    for _, at in _sites(sensor):
        for image in (fits.cosine, fits.sine):
            image[at][~used[at]] = image[at].mean(where=used[at]) if used[at].any() else 0
    make_exact_terms(fits.cosine, fits.sine, sensor, phase)
    return PixelParameters(black, np.divide(1, gain, out=gain), fits.cosine, fits.sine)


def make_exact_terms(cosine: np.ndarray, sine: np.ndarray, sensor: Sensor, phase: Tuple[int, int] = (0, 0)) -> None:
    """Replace the factors by which pixels multiply S1 and S2, (H, W) each, by e1 and e2.

    An ideal pixel of angle t measures ``(cos 2t - cosine, sin 2t - sine)/2 (S1, S2)`` more. The correction has (S1, S2)
    only as M times the true ones, from the four pixels of the superpixel themselves, so the factor takes M^-1. Pixels
    of a superpixel that the region cuts take the M of the next complete one.

    Args:
        cosine: The factors of S1, changed in place to e1.
        sine: The factors of S2, changed in place to e2.
        sensor: The mosaic of the region.
        phase: (row, column) of the region's first pixel in its superpixel.
    """
    (_, m11, m21), (_, m12, m22) = (stokes(superpixels(image, sensor, phase) / 2) for image in (cosine, sine))
    inverse = np.stack([m22, -m12, -m21, m11]) / (m11 * m22 - m12 * m21)
    for nominal, at in _sites(sensor):
        rows, columns = (
            np.clip((np.arange(size)[along] + start) // 2 - start, 0, count - 1)
            for size, along, start, count in zip(cosine.shape, at, phase, m11.shape)
        )
        i11, i12, i21, i22 = inverse[:, rows][:, :, columns]
        turn = 2 * np.deg2rad(nominal)
        own1, own2 = (np.cos(turn) - cosine[at]) / 2, (np.sin(turn) - sine[at]) / 2
        cosine[at], sine[at] = own1 * i11 + own2 * i21, own1 * i12 + own2 * i22


def _sites(sensor: Sensor) -> Tuple[Tuple[int, Tuple[slice, slice]], ...]:
    """Return the angle in degrees and the place of the pixels of each of the four polarizers."""
    return tuple(
        (sensor.angles[r][c], (slice(r, None, 2), slice(c, None, 2))) for r, c in ((0, 0), (0, 1), (1, 0), (1, 1))
    )
