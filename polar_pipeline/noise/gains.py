"""Gains from the raw pixels' noise to S0, S1 and S2, by method and place in the mosaic.

The methods are taken as filters, through which an impulse at every place of a tile goes. What chooses by what it sees
(`adaptive`, `weighted`) is replaced by what it does in a flat field with little noise.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Iterable, List, Sequence, Tuple

import numpy as np

from polar_pipeline.coefficients import ADR_BIAS, ADR_OTHER, ADR_SAME, BETA, LUMA, MHC_ACROSS, MHC_GREEN, MHC_ROW
from polar_pipeline.sensor.mosaic import ANGLES, Sensor

#: Elements of the covariance matrix of (S1, S2, S0) that are given, as (row, column).
TERMS = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
#: Side of a patch of raw pixels without borders: impulses reach 11 pixels, and it is a whole number of tiles.
_SIDE = 24
#: Gains below this are rounding.
_ZERO = 1e-9


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
    tile, angles = _responses(sensor, is_half, co_sited, demosaic, debayer, _SIDE)
    period = sensor.period // 2 if is_half else sensor.period
    i0, i45, i90, i135 = angles
    vector = np.stack([i0 - i90, i45 - i135, (i0 + i45 + i90 + i135) / 2], 1)
    gains = np.zeros((period, period, 3 if sensor.is_color else 1, len(ANGLES), len(TERMS)))
    for (row, column), response in zip(tile, vector):
        channel = sensor.color_index(row, column) if sensor.is_color else 0
        products = np.stack([response[first] * response[second] for first, second in TERMS], -1)
        by_place = products.reshape(-1, period, products.shape[1] // period, period, len(TERMS))
        gains[:, :, channel, sensor.angle_index(row, column)] += by_place.sum((0, 2))
    found = np.where(np.abs(gains) < _ZERO, 0, gains).astype(np.float32)
    found.flags.writeable = False
    return found


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
    tile, (i0, i45, i90, i135) = _responses(sensor, is_half, co_sited, demosaic, debayer, 2 * _SIDE)
    steps = [(dy, dx) for dy in range(stride) for dx in range(stride)]
    first, second = (
        _sum(_at(image, *step) for step in steps) / stride**2 for image in ((i0 + i90) / 2, (i45 + i135) / 2)
    )
    places = len(tile) // 4 if is_half else len(tile)
    variance = (np.sum(first * first) + np.sum(second * second)) / 2
    return float(variance / places), float(np.sum(first * second) / places)


def _responses(
    sensor: Sensor, is_half: bool, co_sited: bool, demosaic: str, debayer: str, side: int
) -> Tuple[List[Tuple[int, int]], np.ndarray]:
    """Compute the responses to impulses in a patch of `side` raw pixels without a border.

    Returns:
        The places of the impulses in the tile, and (4, places, h, w) the angles that they become.
    """
    tile = [(row, column) for row in range(sensor.period) for column in range(sensor.period)]
    raw = np.zeros((len(tile), side, side))
    for impulse, (row, column) in enumerate(tile):
        raw[impulse, row, column] = 1
    gray = _luma(raw, sensor, debayer) if sensor.is_color else raw
    if is_half and not co_sited:
        angles = np.stack([gray[:, i::2, j::2] for i, j in map(sensor.position, ANGLES)])
    else:
        angles = _angles(gray, sensor, demosaic)
        if is_half:
            angles = _sum(angles[..., i::2, j::2] for i in range(2) for j in range(2)) / 4
    return tile, angles


def _sum(images: Iterable[np.ndarray]) -> np.ndarray:
    """Sum images of one shape."""
    return reduce(np.add, images)


def _at(image: np.ndarray, dy: int, dx: int) -> np.ndarray:
    """Shift an image cyclically by an offset."""
    return np.roll(image, (-dy, -dx), (-2, -1))


def _around(image: np.ndarray, step: int) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the means of the two pixels `step` away in the row, in the column, and of the four on the diagonals."""
    row = (_at(image, 0, -step) + _at(image, 0, step)) / 2
    column = (_at(image, -step, 0) + _at(image, step, 0)) / 2
    return row, column, (_at(row, -step, 0) + _at(row, step, 0)) / 2


# ------------------------------------------------------------------------------------------------------ color lattice


def _luma(raw: np.ndarray, sensor: Sensor, debayer: str) -> np.ndarray:
    """Convert (n, side, side) color mosaics to luma of the completed colors."""
    side = raw.shape[-1]
    own = np.array([[sensor.color_index(y, x) for x in range(side)] for y in range(side)])
    of_row = np.where(own == 1, np.roll(own, -2, 1), own)
    green, row, column, across = _weighted(raw, own) if debayer == "weighted" else _filtered(raw, debayer)
    red, blue = (
        np.where(own == color, raw, np.where(own != 1, across, np.where(of_row == color, row, column)))
        for color in (0, 2)
    )
    return LUMA[0] * red + LUMA[1] * np.where(own == 1, raw, green) + LUMA[2] * blue


def _filtered(raw: np.ndarray, debayer: str) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return green at red and blue; at green the color of the row and of the column; blue at red and red at blue."""
    row, column, diagonal = _around(raw, 2)
    if debayer == "bilinear":
        return (row + column) / 2, row, column, diagonal
    far_row, far_column, _ = _around(raw, 4)

    def weigh(taps: Sequence[int], *values: np.ndarray) -> np.ndarray:
        return _sum(tap * value for tap, value in zip(taps, values)) / 16

    return (
        weigh(MHC_GREEN, raw, 2 * (row + column), 2 * (far_row + far_column)),
        weigh(MHC_ROW, raw, 2 * row, 2 * far_row, 2 * far_column, 4 * diagonal),
        weigh(MHC_ROW, raw, 2 * column, 2 * far_column, 2 * far_row, 4 * diagonal),
        weigh(MHC_ACROSS, raw, 4 * diagonal, 2 * (far_row + far_column)),
    )


def _weighted(raw: np.ndarray, own: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the colors of `_filtered` by edge weights, which are equal in a flat field, and color differences."""
    (row, column, _), (far_row, far_column, _) = _around(raw, 2), _around(raw, 4)
    green = (row + column) / 2 + (raw - (far_row + far_column) / 2) / 2
    completed = np.where(own == 1, raw, green)
    around = _around(raw - completed, 2)
    return (green, *(completed + difference for difference in around))


# --------------------------------------------------------------------------------------------------- polarizer mosaic


def _angles(mosaic: np.ndarray, sensor: Sensor, demosaic: str) -> np.ndarray:
    """Convert (n, side, side) mosaics of one color to (4, n, side, side) angles."""
    row, column, diagonal = _around(mosaic, 1)
    if demosaic == "gradient":
        far_row, far_column, _ = _around(mosaic, 2)
        detail = BETA * (mosaic - (far_row + far_column) / 2)
        row, column, diagonal = row + detail, column + detail, diagonal + detail
    elif demosaic == "adaptive":
        restored = _restored(mosaic, (mosaic + row + column + diagonal) / 4)
        row, column, diagonal = (
            mean + restored - outside for mean, outside in zip((row, column, diagonal), _around(restored, 1))
        )
    found = np.empty((len(ANGLES), *mosaic.shape))
    for angle, (i, j) in enumerate(map(sensor.position, ANGLES)):
        for r in range(2):
            for c in range(2):
                source = ((mosaic, row), (column, diagonal))[r ^ i][c ^ j]
                found[angle, :, r::2, c::2] = source[:, r::2, c::2]
    return found


def _restored(mosaic: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return ADR's sources of detail in a flat field: the total intensity, and a share of its missing part."""

    def low_pass(image: np.ndarray, axis: int) -> Tuple[np.ndarray, np.ndarray]:
        """Average pixels of the own phase and of the other one."""
        shifts = {step: np.roll(image, -step, axis) for step in range(-3, 4)}
        same = ADR_SAME[0] * image + ADR_SAME[1] * (shifts[-2] + shifts[2])
        other = ADR_OTHER[0] * (shifts[-1] + shifts[1]) + ADR_OTHER[1] * (shifts[-3] + shifts[3])
        return same / 16, other / 16

    own, *others = (image for half in low_pass(mosaic, -1) for image in low_pass(half, -2))
    mean = (own + _sum(others)) / 4
    return total + ADR_BIAS * (mosaic - total - (own - mean))
