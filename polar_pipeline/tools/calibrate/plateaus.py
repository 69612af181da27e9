"""Plateaus of a recording: runs of frames in which neither the light nor the polarizer changes."""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

import numpy as np

from polar_pipeline.tools.calibrate.sums import DARK, FLAT

#: Fewest frames of a plateau, and its shortest length relative to the upper quartile: shorter ones are pauses in which
#: a hand takes a new grip.
_FEWEST, _SHORTEST = 4, 0.25
#: Most plateaus. Their sums are in memory; a polarizer that turns slowly without a stop has more.
_MOST = 100
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
    """A run of frames.

    Attributes:
        first: Number of the first frame.
        last: Number of the last frame.
        kind: `DARK`, `FLAT`, or "" if the light has passed a polarizer.
    """

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
    """Find the plateaus of a recording, in order.

    Args:
        light: (N, 2, 2), `sample_light` of each frame. Polarizers on a diagonal are orthogonal.

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
    found = []
    for first, last in _runs(courses, ~is_dark, _LIGHT_LIMITS):
        degree = np.hypot(*vector[first : last + 1].mean(0))
        found.append(Plateau(first, last, FLAT if degree < _POLARIZED else ""))
    if not (found or is_dark.all()):
        raise ValueError(
            f"the light is never constant for {_FEWEST} frames: turn the polarizer in steps, and wait at each"
        )
    lengths = [one.last - one.first + 1 for one in found]
    found = [one for one, length in zip(found, lengths) if length >= _SHORTEST * np.quantile(lengths, 0.75)]
    dark = _runs(total[:, np.newaxis] / top, is_dark, _DARK_LIMITS)
    levels = [total[first : last + 1].mean() / top for first, last in dark]
    limit = min(levels, default=0) + _DARK_LIMITS[1, 0]  # a hand before the lens is not a cap
    found += [Plateau(first, last, DARK) for (first, last), level in zip(dark, levels) if level <= limit]
    if len(found) > _MOST:
        raise ValueError(
            f"the light has {len(found)} constant values, at most {_MOST} are allowed: turn the polarizer in steps"
        )
    return sorted(found)


def _runs(courses: np.ndarray, used: np.ndarray, limits: np.ndarray) -> List[Tuple[int, int]]:
    """Find runs of frames, longest first, within which each course stays in a range; it grows with the noise.

    Args:
        courses: (N, C).
        used: (N,) bool: frames that can be part of a run.
        limits: (2, C): lowest and highest limit of the ranges.

    Returns:
        The first and the last frame of each run.
    """
    if np.count_nonzero(used) < _FEWEST:
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
    found, parts = [], [(0, len(values))]
    while parts:
        low, high = parts.pop()
        lengths = np.minimum(ends[low:high], high) - np.arange(low, high)
        if lengths.size and lengths.max() >= _FEWEST:
            start = low + int(lengths.argmax())
            end = start + int(lengths.max())
            found.append((start, end - 1))
            parts += [(low, start), (end, high)]
    return found
