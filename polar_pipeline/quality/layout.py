"""Check by a frame whether sensor, offset and flips in the parameters are right. Imports no ROS.

A mono frame fits every ROI offset and flip: read with the tile shifted by one column or row, it is the frame of a scene
whose polarization is mirrored, and shifted by both, turned by 90 degrees. Only knowledge of the scene tells them
apart (`offsets_of_polarizer`). A color frame shows more: neighbors behind one color filter, so that a shift by one
mixes colors, and a shift by two exchanges green with red and blue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import List, Optional, Tuple

import numpy as np

from polar_pipeline.options import Options
from polar_pipeline.sensor.frames import Frame, PackedFrame
from polar_pipeline.sensor.mosaic import ANGLES, Tile

#: Side in pixels of the regions over which each place of the tile is averaged, so that detail of the scene cancels.
REGION = 64
#: Regions along the shorter side, and the smallest number of usable regions.
_REGIONS_ALONG, _MIN_REGIONS = 8, 8
#: Means of a region, as a ratio of full scale, between which nothing is dark or saturated.
_USABLE = (0.03, 0.95)
#: A layout does not fit if its misfit (relative) is this large and that many times the best one's. Scenes without
#: color stay below the first; of synthetic ones in color, the least colorful reaches 1.35 times the best.
_MISFIT, _TIMES = 0.012, 1.3
#: Without colors every misfit grows, as there is less to fit: a color filter shows by more than this.
_TIMES_MONO = 2.0
#: The same for the pairs of a mono tile, whose gains differ by about 0.01.
_PAIRS, _TIMES_PAIRS = 0.03, 2.0
#: Smallest degree of polarization behind a sheet polarizer, and the largest error of its angle in degrees.
_MIN_DEGREE, _MAX_ERROR_DEG = 0.2, 15.0


@dataclass(frozen=True)
class LayoutCheck:
    """Result of a layout check: whether it fits, None if the frame does not show it, and the reason."""

    fits: Optional[bool]
    text: str


def tile_means(frame: Frame) -> np.ndarray:
    """Compute (N, 4, 4) means of each place of a 4x4 tile, as ratios of full scale, in N regions spread over the frame.

    Dark regions, and those with saturated places, are left out.
    """
    height, width = frame.shape
    if min(height, width) < REGION:
        return np.empty((0, 4, 4), np.float32)
    step = max(1, min(height, width) // (_REGIONS_ALONG * REGION))
    bands = np.arange(height // REGION * REGION).reshape(height // REGION, REGION)[::step]
    if isinstance(frame, PackedFrame):
        some = replace(frame, rows=frame.rows[bands.ravel()]).unpack().mosaic
    else:
        some = frame.mosaic[bands.ravel()]
    if frame.full_scale < np.iinfo(some.dtype).max:
        some = np.minimum(some, some.dtype.type(frame.full_scale))  # numbers above it mean full scale
    columns, tiles = width // REGION, REGION // 4
    some = some[:, : columns * REGION].reshape(len(bands), tiles, 4, columns, tiles, 4)[:, :, :, ::step]
    means = some.mean((1, 4), dtype=np.float32) / np.float32(frame.full_scale)
    means = means.transpose(0, 2, 1, 3).reshape(-1, 4, 4)
    usable = (means.mean((1, 2)) > _USABLE[0]) & (means.max((1, 2)) < _USABLE[1])
    found: np.ndarray = means[usable]
    return found


@lru_cache(maxsize=128)
def _unexplained(colors: Optional[Tile]) -> np.ndarray:
    """Return (16, 16): the projection of a tile's logarithms onto the residual of polarizer and color factors."""
    polarizer = [2 * (r % 2) + c % 2 for r in range(4) for c in range(4)]
    color = [colors[r][c] if colors else 0 for r in range(4) for c in range(4)]
    factors = np.concatenate([np.eye(4)[polarizer], np.eye(3)[color]], 1)
    return np.eye(16) - factors @ np.linalg.pinv(factors)


def misfit(means: np.ndarray, colors: Optional[Tile]) -> float:
    """Measure the deviation of tiles from a factor per polarizer times one per color: relative, median of regions."""
    rest = np.log(means.reshape(-1, 16)) @ _unexplained(colors)
    return float(np.median(np.sqrt(np.square(rest).mean(1))))


def check_layout(frame: Frame, options: Options) -> LayoutCheck:
    """Check whether a frame can come from the sensor, offset and flips of the options."""
    means = tile_means(frame)
    means = means[means.min((1, 2)) > _USABLE[0]]
    if len(means) < _MIN_REGIONS:
        return LayoutCheck(None, "too little in view that is neither dark nor saturated")
    return _check_color(means, frame.shape, options) if options.sensor.is_color else _check_mono(means, options)


def _check_mono(means: np.ndarray, options: Options) -> LayoutCheck:
    rggb = ((0, 0, 1, 1), (0, 0, 1, 1), (1, 1, 2, 2), (1, 1, 2, 2))
    shifted = [tuple(tuple(np.roll(rggb, shift, (0, 1))[r]) for r in range(4)) for shift in product(range(4), repeat=2)]
    plain, best = misfit(means, None), min(misfit(means, colors) for colors in shifted)
    if plain > _MISFIT and plain > _TIMES_MONO * best:
        return LayoutCheck(
            False, f"the frame shows color filters, sensor {options.sensor.name} has none: IMX250MYR would fit"
        )
    quad = means.reshape(-1, 2, 2, 2, 2).mean((1, 3))
    (a, b), (c, d) = quad.transpose(1, 2, 0)
    crossed, rows, columns = (
        float(np.abs(difference).sum() / quad.sum()) for difference in (a + d - b - c, a + b - c - d, a + c - b - d)
    )
    if crossed > _PAIRS and crossed > _TIMES_PAIRS * min(rows, columns):
        return LayoutCheck(
            False,
            f"{'rows' if rows < columns else 'columns'} of the tile hold orthogonal polarizers, not its diagonals",
        )
    return LayoutCheck(None, "no contradiction; a mono frame does not tell odd offsets and flips apart")


def _check_color(means: np.ndarray, shape: Tuple[int, int], options: Options) -> LayoutCheck:
    def cost(offset: Tuple[int, int], flip: Tuple[bool, bool]) -> float:
        return misfit(means, options.sensor.as_read_out(offset, flip, shape).colors)

    (x, y), flip = options.roi_offset, options.flip
    start_x, start_y = 4 * (x // 4), 4 * (y // 4)  # colors repeat after four pixels
    offsets = {(start_x + dx, start_y + dy): 0.0 for dx, dy in product(range(4), repeat=2)}
    offsets.update({offset: cost(offset, flip) for offset in offsets})
    own, best, worst = offsets[x, y], min(offsets.values()), max(offsets.values())
    if worst < max(_MISFIT, _TIMES * best):
        return LayoutCheck(None, "too little color in view")
    if own < max(_MISFIT, _TIMES * best):
        return LayoutCheck(True, "the colors fit")
    limit = min(own / _TIMES, _TIMES * best)
    fitting = [f"raw.roi_offset {list(offset)}" for offset, value in offsets.items() if value < limit]
    flips = ((not flip[0], flip[1]), (flip[0], not flip[1]))
    fitting += [f"raw.flip {list(other)}".lower() for other in flips if cost((x, y), other) < limit]
    return LayoutCheck(False, f"the colors do not fit raw.roi_offset and raw.flip as set; {' or '.join(fitting)} would")


@dataclass(frozen=True)
class PolarizerReading:
    """The angle of a sheet polarizer measured under an offset, in degrees, 0 to 180, and whether it is right."""

    offset: Tuple[int, int]
    angle: float
    fits: bool


def offsets_of_polarizer(frame: Frame, options: Options, degrees: float) -> List[PolarizerReading]:
    """Find the parities of the offset that fit a frame mostly filled by a sheet polarizer of known direction.

    Args:
        frame: The raw frame.
        options: Sensor, offset and flips as assumed.
        degrees: Direction of the light that the sheet lets through, counter-clockwise from the camera's x axis.

    Returns:
        Readings for the offset of the options, and for that offset plus one along x, along y, and along both.

    Raises:
        ValueError: There is too little in view, or it is hardly polarized.
    """
    means = tile_means(frame)
    if len(means) < _MIN_REGIONS:
        raise ValueError("too little in view that is neither dark nor saturated")
    readings = []
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        offset = (options.roi_offset[0] + dx, options.roi_offset[1] + dy)
        sensor = options.sensor.as_read_out(offset, options.flip, frame.shape)
        quad = means.mean(0).reshape(2, 2, 2, 2).mean((0, 2))
        i0, i45, i90, i135 = (float(quad[sensor.position(angle)]) for angle in ANGLES)
        degree = np.hypot(i0 - i90, i45 - i135) / (2 * quad.mean())
        if degree < _MIN_DEGREE:
            raise ValueError(f"no polarizer in view: the degree of polarization is {degree:.2f}, below {_MIN_DEGREE}")
        angle = float(np.rad2deg(np.arctan2(i45 - i135, i0 - i90)) / 2 % 180)
        error = abs((angle - degrees + 90) % 180 - 90)
        readings.append(PolarizerReading(offset, angle, error <= _MAX_ERROR_DEG))
    return readings
