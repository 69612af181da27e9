"""Orthogonal pixels of equal gain, at every place of the sensor.

The frames of a place do not tell a lamp that is polarized there from light that meets the polarizer at a slant, which
turns its axis by up to a quarter of the square of its angle to the optical axis, nor from gains that differ between
orthogonal pixels: one change of the polarizer's angles and the lamp together (a Lorentz boost of the cone of linearly
polarized light) leads from one to the other. That the gains are equal on average decides, as it does for the sensor as
a whole (`polarizer`).
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from polar_pipeline.sensor.mosaic import Sensor
from polar_pipeline.tools.calibrate.pixels import PixelFits
from polar_pipeline.tools.calibrate.reductions import (
    Surface,
    block_places,
    block_side,
    fit_surface,
    reduce_blocks,
    superpixels,
)

#: Blocks along the longer side, and rows that are changed at a time.
_BLOCKS, _ROWS = 32, 256
#: Steps of the solution; each squares the remaining error.
_STEPS = 3


def balance_pairs(
    fits: PixelFits, light: np.ndarray, used: np.ndarray, sensor: Sensor, target: Tuple[float, float]
) -> None:
    """Change the responses of the pixels in place, so that orthogonal ones have equal gains everywhere.

    `light` is the smooth part of their levels, (H, W). The relative differences `target` remain between the gains of
    pixels of 0 and 90, and of 45 and 135 degrees.
    """
    side = block_side(used.shape, sensor.period, _BLOCKS)
    shares = used.astype(np.float32)

    def sums(image: np.ndarray) -> np.ndarray:
        return reduce_blocks(np.add, superpixels(image * shares, sensor), side // 2)

    counts = sums(shares)
    keep = (counts > 0).all(0)
    level, cosine, sine = (
        sums(image)[:, keep] / counts[:, keep] for image in (fits.level / light, fits.cosine, fits.sine)
    )
    boost = np.zeros((2, level.shape[1]))
    for _ in range(_STEPS):
        gain, first, second = _boosted(level, cosine, sine, boost)
        pairs = np.stack([(gain[k] - gain[k + 2]) / gain.mean(0) - target[k] for k in range(2)], -1)
        slopes = [[(gain * s)[k] - (gain * s)[k + 2] for s in (first, second)] for k in range(2)] / gain.mean(0)
        boost -= np.linalg.solve(np.moveaxis(slopes, 2, 0), pairs[..., np.newaxis])[..., 0].T
    places = block_places(used.shape, side)[: keep.shape[0], : keep.shape[1]][keep]
    surfaces = [_shrunk_surface(values, counts[:, keep].sum(0), places, used.shape) for values in boost]
    for top in range(0, used.shape[0], _ROWS):
        rows = slice(top, top + _ROWS)
        level, cosine, sine = (image[rows] for image in (fits.level, fits.cosine, fits.sine))
        local = np.stack([surface.values(rows) for surface in surfaces])
        level[:], cosine[:], sine[:] = _boosted(level, cosine, sine, local)


def _shrunk_surface(values: np.ndarray, counts: np.ndarray, places: np.ndarray, shape: Tuple[int, ...]) -> Surface:
    """Fit a surface, and shrink it by what chance explains, as gains differ from pixel to pixel."""
    surface = fit_surface(values, counts, places, shape)
    smooth = surface.at(places)
    chance = np.mean((values - smooth) ** 2) * np.count_nonzero(surface.terms) / len(values)
    return surface._replace(terms=surface.terms * max(0.0, 1 - float(chance / np.mean(smooth**2))))


def _boosted(
    level: np.ndarray, cosine: np.ndarray, sine: np.ndarray, boost: np.ndarray
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Apply a boost of rapidity (boost[0], boost[1]) along S1 and S2 to responses; see `PixelFits`."""
    rapidity = np.maximum(np.hypot(*boost), 1e-12)
    along1, along2 = boost / rapidity
    along = along1 * cosine + along2 * sine
    grown = np.cosh(rapidity) + np.sinh(rapidity) * along
    more = (np.cosh(rapidity) - 1) * along + np.sinh(rapidity)
    return level * grown, (cosine + more * along1) / grown, (sine + more * along2) / grown
