"""Plateaus of a recording: runs of frames in which neither the light nor the polarizer changes."""

from __future__ import annotations

import itertools
from typing import List, NamedTuple, Tuple

import numpy as np

from polar_pipeline.tools.calibrate.sums import DARK, FLAT

#: Minimum length of a plateau in frames, and relative to the upper quartile: shorter ones are pauses in which a hand
#: takes a new grip.
_MIN_FRAMES, _MIN_LENGTH = 4, 0.25
#: Maximum number of plateaus. Their sums are in memory; a polarizer that turns slowly without a stop has more.
_MAX_PLATEAUS = 100
#: Frames are dark below this share of the brightest one, and below this share of full scale.
_DARK_SHARE, _DARK_LEVEL = 0.05, 0.02
#: Light of a lower DoLP has passed no polarizer.
_POLARIZED = 0.5
#: Lowest and highest limits of the range within a plateau: of half the normalized Stokes vector (the angle in rad, if
#: DoLP is 1) and of the logarithm of the brightness; of dark frames the brightness relative to the brightest frame.
_LIGHT_LIMITS = np.array([[1e-3, 1e-3, 0.01], [5e-3, 5e-3, 0.3]])
_DARK_LIMITS = np.array([[5e-4], [5e-3]])
#: Range of the noise of a plateau in standard deviations.
_RANGE = 8.0
#: Tiles of 4x4 pixels along a side of the subsample.
_TILES = 64


class Plateau(NamedTuple):
    """Numbers of the first and the last frame; the kind is `DARK`, `FLAT`, or "" if the light passed a polarizer."""

    first: int
    last: int
    kind: str


def sample_light(mosaic: np.ndarray, full_scale: int) -> np.ndarray:
    """Return (2, 2): the means of the four polarizers over a subsample of a mosaic, as shares of full scale."""
    height, width = (side // 4 for side in mosaic.shape)
    tiles = mosaic[: 4 * height, : 4 * width].reshape(height, 4, width, 4)
    tile = tiles[:: max(1, height // _TILES), :, :: max(1, width // _TILES)].mean((0, 2))
    means: np.ndarray = tile.reshape(2, 2, 2, 2).mean((0, 2)) / full_scale
    return means


def find_plateaus(light: np.ndarray) -> List[Plateau]:
    """Find the plateaus of a recording, in order, from `sample_light` of each frame, (N, 2, 2).

    Polarizers on a diagonal of `light` are orthogonal.

    Raises:
        ValueError: There are none, or too many.
    """
    total = light.mean((1, 2))
    top = float(total.max(initial=_DARK_LEVEL))
    is_dark = total < max(_DARK_SHARE * top, _DARK_LEVEL)
    bright = np.maximum(total, 1e-9)
    vector = (
        0.5 * np.stack([light[:, 0, 0] - light[:, 1, 1], light[:, 0, 1] - light[:, 1, 0]], 1) / bright[:, np.newaxis]
    )
    courses = np.column_stack([vector / 2, np.log(bright)])
    plateaus = []
    for first, last in _runs(courses, ~is_dark, _LIGHT_LIMITS):
        degree = np.hypot(*vector[first : last + 1].mean(0))
        plateaus.append(Plateau(first, last, FLAT if degree < _POLARIZED else ""))
    if not (plateaus or is_dark.all()):
        raise ValueError(
            f"the light is never constant for {_MIN_FRAMES} frames: turn the polarizer in steps, and wait at each"
        )
    lengths = [plateau.last - plateau.first + 1 for plateau in plateaus]
    is_long = [length >= _MIN_LENGTH * np.quantile(lengths, 0.75) for length in lengths]
    plateaus = list(itertools.compress(plateaus, is_long))
    dark = _runs(total[:, np.newaxis] / top, is_dark, _DARK_LIMITS)
    levels = [total[first : last + 1].mean() / top for first, last in dark]
    limit = min(levels, default=0) + _DARK_LIMITS[1, 0]  # a hand before the lens is not a cap
    plateaus += [Plateau(first, last, DARK) for (first, last), level in zip(dark, levels) if level <= limit]
    if len(plateaus) > _MAX_PLATEAUS:
        raise ValueError(
            f"the light has {len(plateaus)} constant values, at most {_MAX_PLATEAUS} are allowed: turn the polarizer "
            "in steps"
        )
    return sorted(plateaus)


def _runs(courses: np.ndarray, used: np.ndarray, limits: np.ndarray) -> List[Tuple[int, int]]:
    """Return the first and the last frame of runs, longest first, within which each of C courses stays in a range.

    The range grows with the noise between two `limits`, (2, C). Of the courses, (N, C), frames of `used`, (N,), count.
    """
    if np.count_nonzero(used) < _MIN_FRAMES:
        return []
    # The quarter of the steps that are smallest is noise, also if the polarizer turns most of the time. Of a normal
    # distribution, a quarter is below 0.319 standard deviations; a step has twice the variance of a frame.
    steps = np.quantile(np.abs(np.diff(courses[used], axis=0)), 0.25, axis=0)
    ranges = np.clip(_RANGE * steps / 0.319 / np.sqrt(2), *limits)
    values = np.where(used[:, np.newaxis], courses, np.nan)  # NaN is in no range
    ends, end = np.zeros(len(values), int), 0
    for start in range(len(values)):
        end = max(end, start + 1)
        while end < len(values) and (np.ptp(values[start : end + 1], 0) <= ranges).all():
            end += 1
        ends[start] = end
    runs, parts = [], [(0, len(values))]
    while parts:
        low, high = parts.pop()
        lengths = np.minimum(ends[low:high], high) - np.arange(low, high)
        if lengths.size and lengths.max() >= _MIN_FRAMES:
            start = low + int(lengths.argmax())
            end = start + int(lengths.max())
            runs.append((start, end - 1))
            parts += [(low, start), (end, high)]
    return runs
