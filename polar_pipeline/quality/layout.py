"""Check by a frame whether sensor, offset and flips in the parameters are right. Imports no ROS.

A mono frame fits every ROI offset and flip: read with the tile shifted by one column or row, it is the frame of a scene
whose polarization is mirrored, and shifted by both, turned by 90 degrees. Only knowledge of the scene tells them
apart (`offsets_of_polarizer`). A color frame shows more: neighbors behind one color filter, so that a shift by one
mixes colors, and a shift by two exchanges green with red and blue. With a calibration, a frame shows every wrong offset
and flip, and the file of another camera, by the gains of its pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import List, Optional, Tuple

import numpy as np

from polar_pipeline.backends.noise.model import level_of
from polar_pipeline.calibration import Correction
from polar_pipeline.calibration.quantization import dequantize
from polar_pipeline.options import Options
from polar_pipeline.quality.sample import REGION, Sample, take_sample
from polar_pipeline.sensor.frames import Frame, FrameError
from polar_pipeline.sensor.mosaic import ANGLES, Tile

#: Minimum number of usable regions.
_MIN_REGIONS = 8
#: Means of a region, as a ratio of full scale, between which nothing is dark or saturated.
_USABLE = (0.03, 0.95)
#: A layout does not fit if its misfit (relative) is this large and that many times the best one's. Scenes without
#: color stay below the first; of synthetic ones in color, the least colorful reaches 1.35 times the best.
_MISFIT, _TIMES = 0.012, 1.3
#: Without colors every misfit grows, as there is less to fit: a color filter shows by more than this.
_TIMES_MONO = 2.0
#: The same for the pairs of a mono tile, whose gains differ by about 0.01.
_PAIRS, _TIMES_PAIRS = 0.03, 2.0
#: Regions that are compared with a calibration, blocks along the side of a region, and minimum of usable blocks.
_PATTERN_REGIONS, _BLOCKS, _MIN_BLOCKS = 32, 4, 32
#: A calibration does not fit if its slope (`_gain_slope`) is below the limit by this many standard errors. Below 1/2,
#: the correction adds more differences between pixels than it removes. Of 2,900 simulated frames (gains of 0.4 and 1 %,
#: 2 to 1,000 thousand electrons, 5 to 80 % of full scale, 8 and 12 bit) none rejected the right file. With gains of
#: 1 %, all but 18 saturated frames revealed wrong offsets and files.
_SIGMAS, _MIN_SLOPE = 4.0, 0.5
#: Smallest standard deviation of the predicted pattern.
_MIN_PATTERN = 0.002
#: Smallest mean square of the difference between neighbors of one polarizer and color, in levels, from noise of a third
#: of a level. Below, rounding to levels hides gains.
_DITHERED = 0.25
#: Smallest degree of polarization behind a sheet polarizer, and the largest error of its angle in degrees.
_MIN_DEGREE, _MAX_ERROR_DEG = 0.2, 15.0


@dataclass(frozen=True)
class LayoutCheck:
    """Result of a layout check: whether it fits, None if the frame does not show it, and the reason."""

    fits: Optional[bool]
    text: str


def usable_regions(sample: Sample) -> Tuple[np.ndarray, np.ndarray]:
    """Find the regions of a sample that are neither dark nor saturated.

    Returns:
        (N, 2) band and column of the regions, and (N, 4, 4) means of each place of a 4x4 tile, as shares of full scale.
    """
    rows, columns = len(sample.tiles) // 2, sample.tiles.shape[1] // 2
    squares = sample.tiles[: 2 * rows, : 2 * columns].reshape(rows, 2, columns, 2, 4, 4)
    means = squares.mean((1, 3))
    usable = (means.mean((2, 3)) > _USABLE[0]) & (means.max((2, 3)) < _USABLE[1])
    return np.argwhere(usable), means[usable]


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


def check_layout(frame: Frame, options: Options, sample: Optional[Sample] = None) -> LayoutCheck:
    """Check whether a frame can come from the sensor, offset and flips of the options, and suits their calibration."""
    sample = sample or take_sample(frame)
    places, means = usable_regions(sample)
    means = means[means.min((1, 2)) > _USABLE[0]]
    if len(means) < _MIN_REGIONS:
        return LayoutCheck(None, _too_little(sample))
    check = _check_color(means, frame, options) if options.sensor.is_color else _check_mono(means, options)
    return _check_calibration(sample, places, frame.shape, options, check) if check.fits is not False else check


def _too_little(sample: Sample) -> str:
    """Return why a frame has too few usable regions."""
    if len(sample.tiles) // 2 * (sample.tiles.shape[1] // 2) < _MIN_REGIONS:
        return f"the frame is smaller than {_MIN_REGIONS} regions of {REGION}x{REGION} pixels"
    return "too little in view that is neither dark nor saturated"


def _check_calibration(
    sample: Sample, places: np.ndarray, shape: Tuple[int, int], options: Options, check: LayoutCheck
) -> LayoutCheck:
    """Return that the calibration does not fit the frame if the frame shows it, and else `check`."""
    try:
        correction = options.correction(shape)
    except FrameError as err:
        return LayoutCheck(False, str(err))
    if correction is None:
        return check
    slope, error = _gain_slope(sample, places, correction, options.sensor.period)
    if not slope + _SIGMAS * error < _MIN_SLOPE:  # NaN too
        return check
    return LayoutCheck(
        False,
        f"the frame shows {max(slope, 0):.0%} of the differences between pixels that the calibration corrects: "
        "raw.roi_offset or raw.flip is wrong, the file is of another camera, or frames were smoothed or compressed",
    )


def _gain_slope(sample: Sample, places: np.ndarray, correction: Correction, period: int) -> Tuple[float, float]:
    """Regress the pattern of a frame's pixels on the pattern that the gains of a calibration predict.

    The pattern is the deviation of each pixel from the mean of its four neighbors of the same polarizer and color.
    Blocks of pixels count by the inverse of their variance, so that detail of the scene counts little. Blocks with a
    saturated pixel, or with too little noise beside the rounding to levels, do not count. `places` has band and column
    of regions, (N, 2).

    Returns:
        Slope and its standard error; NaN if too few blocks are usable, or the gains hardly differ.
    """
    places, full_scale = places[:: -(-len(places) // _PATTERN_REGIONS)], sample.full_scale
    columns = [(band, slice(column * REGION, (column + 1) * REGION)) for band, column in places]
    raw = np.stack([sample.bands[band, :, x] for band, x in columns]).astype(np.float32)
    codes = np.stack([correction.codes[sample.starts[band] :, x][:REGION] for band, x in columns])
    black, gain, _, _ = dequantize(codes, correction.scales, "float32")
    own, near, far = slice(period, -period), slice(None, -2 * period), slice(2 * period, None)
    side = (REGION - 2 * period) // _BLOCKS

    def blocks(values: np.ndarray) -> np.ndarray:
        return values.reshape(len(raw), _BLOCKS, side, _BLOCKS, side).transpose(0, 1, 3, 2, 4).reshape(-1, side**2)

    def pattern(values: np.ndarray) -> np.ndarray:
        around = (values[:, near, own] + values[:, far, own] + values[:, own, near] + values[:, own, far]) / 4
        return blocks(values[:, own, own] / np.maximum(around, _USABLE[0] / 2) - 1)  # dark blocks deviate much

    seen, expected = pattern(raw / full_scale - black), pattern(1 / gain)
    variance, square, product = (values.mean(1) for values in (seen**2, expected**2, seen * expected))
    numbers = raw[:, own, own]
    steps = blocks(numbers - raw[:, near, own]) / (level_of(full_scale) * full_scale)
    is_dithered = np.square(steps).mean(1) > _DITHERED
    usable = is_dithered & (blocks(numbers).max(1) < full_scale)
    if np.count_nonzero(usable) < _MIN_BLOCKS or square[usable].mean() < _MIN_PATTERN**2:
        return np.nan, np.nan
    weight = usable / np.maximum(variance, 1e-9)
    total = (weight * square).sum()
    slope = (weight * product).sum() / total
    return float(slope), float(np.sqrt(np.square(weight * (product - slope * square)).sum()) / total)


def _check_mono(means: np.ndarray, options: Options) -> LayoutCheck:
    rggb = ((0, 0, 1, 1), (0, 0, 1, 1), (1, 1, 2, 2), (1, 1, 2, 2))
    shifts = (np.roll(rggb, shift, (0, 1)) for shift in product(range(4), repeat=2))
    shifted = (tuple(map(tuple, colors)) for colors in shifts)
    plain = misfit(means, None)
    if plain > _MISFIT and plain > _TIMES_MONO * min(misfit(means, colors) for colors in shifted):
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


def _check_color(means: np.ndarray, frame: Frame, options: Options) -> LayoutCheck:
    def cost(offset: Tuple[int, int], flip: Tuple[bool, bool]) -> float:
        return misfit(means, options.sensor.as_read_out(offset, flip, frame.shape).colors)

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
    if frame.is_split:  # an odd offset would exchange polarizers, whose images are named
        even = [offset for offset, value in offsets.items() if value < limit and not (offset[0] % 2 or offset[1] % 2)]
        tiles = [f"--sensor '{options.sensor.as_read_out(offset).tile()}'" for offset in even]
        fit = f"{' or '.join(tiles)} (sensor) would" if tiles else "no other order of the Bayer lattice would"
        return LayoutCheck(False, f"the colors do not fit sensor {options.sensor.name}; {fit}")
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

    The direction in degrees is that of the light that passes, counter-clockwise from the camera's x axis.

    Returns:
        Readings for the offset of the options, and for that offset plus one along x, along y, and along both.

    Raises:
        ValueError: There is too little in view, or it is hardly polarized.
    """
    sample = take_sample(frame)
    _, means = usable_regions(sample)
    if len(means) < _MIN_REGIONS:
        raise ValueError(_too_little(sample))
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
