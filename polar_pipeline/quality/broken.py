"""Damage of frames by sensor, driver or network: lines and blocks of the picture that do not belong together.

All tests compare lines of a sample with each other, so that they need no limits for scenes, exposure and noise.
"""

from __future__ import annotations

from itertools import product
from typing import Iterator, Mapping, Optional

import cv2
import numpy as np

from polar_pipeline.quality.sample import Sample
from polar_pipeline.sensor.frames import FrameWarning

#: Lines of a block of one value, of which a dead line has fewer; places that show its border; smallest ratio of the
#: light beside a block and four pixels further, as no lens shows the edge of a dark object so sharply; smallest light
#: beside it, as a share of full scale.
_BLOCK, _BORDER, _SHARP, _MIN_LIGHT = 16, 3, 0.7, 0.01
#: Minimum number of pixels that show that a line is dead, and share of lines of one value above which the picture is
#: drawn, not of a camera.
_MIN_PIXELS, _DRAWN = 64, 0.45
#: Tiles on each side of a tear, and the largest difference of their patterns with a shift, relative to that without
#: one. Of intact frames, real and synthetic, it is above 0.9; of torn ones 0.1 to 0.75.
_TILES, _TORN = 8, 0.65
#: A change of a pattern below this multiple of what edges of the scene leave in it may be an edge, and not a tear.
_EDGES = 1.5
#: Largest change of the pattern beside a tear, relative to the change across it. Where the pattern changes more, the
#: scene changes: AoLP that turns by 45 degrees looks like a shift by a pixel, over many tiles.
_CONFINED = 0.6
#: Smallest number of pixels of a line that show a pattern: of fewer, noise alone may resemble a shift.
_MIN_PATTERN_PIXELS = 192
#: Differences between patterns, as a share of full scale, that noise and detail of the scene make.
_MIN_PATTERN = 0.002
#: Smallest number of tiles along a column whose order shows.
_MIN_TILES = 64
#: Differences between tiles, in numbers, that rounding makes in pictures without noise.
_ROUNDING = 1.0
_CAUSE = "the network or the driver loses data, or the sensor is damaged"


def broken_warnings(sample: Sample, period: int) -> Iterator[FrameWarning]:
    """Yield what is broken in a frame whose mosaic repeats after `period` pixels."""
    samples = {"row": sample.rows, "column": sample.columns}
    disorder, has_block = "", False
    for name, lines in samples.items():
        values = _single_values(lines)
        dead, copies = _dead_lines(lines, values), _copies(lines, period)
        if len(dead):
            yield FrameWarning("dead", f"{_listed(name, dead)} of one value; {_CAUSE}")
            samples[name] = lines.copy()
            for place in dead:
                samples[name][place] = samples[name][place - period]  # so that the tests of the order can go on
        if len(copies):
            disorder = f"{_listed(name, copies)} equal to another one"
        has_block = has_block or _has_block(lines, values, sample.full_scale)
    if has_block:
        yield FrameWarning("dead", f"a part of the frame has one value; {_CAUSE}")
    elif not disorder:
        disorder = _disorder(samples, sample.full_scale, period)
    if disorder:
        yield FrameWarning("lines", f"{disorder}; {_CAUSE}")


def _disorder(samples: Mapping[str, np.ndarray], full_scale: int, period: int) -> str:
    """Return how rows or columns are in another order than on the sensor, or shifted; "" if they are not."""
    if _is_interlaced(samples["row"], period) and not _is_interlaced(samples["column"], period):  # both: color filters
        return "rows are in another order than on the sensor"
    for name, lines in samples.items():
        first = _tear(lines, full_scale, period)
        if first is not None:
            return f"the mosaic is shifted from about {name} {first} on"
    return ""


def _listed(name: str, places: np.ndarray) -> str:
    """Return lines as text: `2 rows (17, 18)`."""
    listed = ", ".join(map(str, places[:4])) + (", ..." if len(places) > 4 else "")
    return f"{len(places)} {name}{'s' if len(places) > 1 else ''} ({listed})"


def _runs(is_true: np.ndarray) -> np.ndarray:
    """Return (N, 2): first place, and the one after the last, of each run of true values."""
    return np.flatnonzero(np.diff(is_true.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)


def _single_values(lines: np.ndarray) -> np.ndarray:
    """Return (N, places) the value that the adjacent pixels of a place share, or -1 if they differ."""
    pixels = cv2.transpose(lines.reshape(-1, lines.shape[2]))
    return np.where((pixels[1:] == pixels[0]).all(0), pixels[0].astype(np.int32), -1).reshape(lines.shape[:2])


def _dead_lines(lines: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Find lines of one value that most pixels beside them do not have. A black or white sky ends less sharply."""
    is_dead = (values == values[:, :1]).all(1) & (values[:, 0] >= 0)
    if is_dead.mean() > _DRAWN or lines[0].size < _MIN_PIXELS:
        return np.empty(0, int)
    for first, end in _runs(is_dead):
        beside = [place for place in (first - 1, end) if 0 <= place < len(lines)]
        is_dead[first:end] = end - first < _BLOCK and np.all(np.mean(lines[beside] == values[first, 0], (1, 2)) < 0.5)
    return np.flatnonzero(is_dead)


def _copies(lines: np.ndarray, period: int) -> np.ndarray:
    """Find lines that are copies of one before them, where noise makes most pixels of other lines differ."""
    flat = lines.reshape(len(lines), -1)
    is_copy = np.zeros(len(flat), bool)
    for distance in (1, 2, 4):  # of the next polarizer, of the same one, and of the same color too
        differs = flat[distance:] != flat[:-distance]
        if np.count_nonzero(differs) > differs.size / 2:
            is_copy[distance:] |= ~differs.any(1)
    is_copy[is_copy] = (flat[is_copy, period:] != flat[is_copy, :-period]).mean(1) > 0.5
    return np.flatnonzero(is_copy)


def _has_block(lines: np.ndarray, values: np.ndarray, full_scale: int) -> bool:
    """Return whether a block of one value, not white, has a sharp straight border."""
    count = len(lines)
    is_same = np.zeros(values.T.shape, bool)  # whether a line is as the next one; the last line of a place is not
    is_same[:, :-1] = ((values[1:] == values[:-1]) & (values[1:] >= 0) & (values[1:] < full_scale)).T
    runs = _runs(is_same.ravel())
    starts, ends = runs[runs[:, 1] - runs[:, 0] >= _BLOCK].T
    place, value = starts // count, values.T.ravel()[starts]
    for beside, step in ((starts % count - 1, -4), (ends % count + 1, 4)):
        light, further = (np.abs(lines[line % count, place].mean(1) - value) for line in (beside, beside + step))
        is_sharp = (beside + step >= 0) & (beside + step < count)
        is_sharp &= light > np.maximum(_MIN_LIGHT * full_scale, _SHARP * further)
        if np.bincount(beside[is_sharp], minlength=1).max() >= _BORDER:
            return True
    return False


def _is_interlaced(lines: np.ndarray, period: int) -> bool:
    """Return whether tiles follow each other in another order than on the sensor, by how much adjacent ones differ."""
    count = len(lines) // period
    if count < _MIN_TILES:
        return False
    tiles = lines[: count * period].reshape(count, -1)

    def differences(distance: int) -> np.ndarray:
        return cv2.reduce(cv2.absdiff(tiles[distance:], tiles[:-distance]), 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F)

    near = differences(1)
    even, odd, usual = np.median(near[::2]), np.median(near[1::2]), np.median(near)
    if usual < _ROUNDING:
        return False
    is_alternating = np.median(differences(2)) < 0.6 * usual
    is_exchanged = min(even, odd) < 0.7 * max(even, odd)
    half = np.median(differences(-(-count // 2)))
    is_split = half < usual and all(  # a scene that repeats itself does so at a shorter distance too
        half < 0.6 * np.median(differences(distance)) for distance in range(3, count // 4 + 1)
    )
    return bool(is_alternating or is_exchanged or is_split)


def _tear(lines: np.ndarray, full_scale: int, period: int) -> Optional[int]:
    """Return the line from which on the pattern of the tiles is shifted; None if it is the same everywhere."""
    step = _TILES // 2 * period
    count, side = len(lines) // step, lines.shape[2]
    if count < 5 or lines[0].size < _MIN_PATTERN_PIXELS:
        return None
    tiles = lines[: count * step].reshape(count, _TILES // 2, -1).astype(np.float32).sum(1)
    sums = (tiles[1:] + tiles[:-1]) / np.float32(full_scale * _TILES * side // period)
    parts = sums.reshape(count - 1, period, -1, side // period, period).transpose(3, 1, 4, 0, 2)
    cells = np.ascontiguousarray(parts).sum(0)  # (period, period, sums, places)
    light = cells.mean((0, 1))
    along = np.gradient(light, axis=0) / step
    offset = (np.arange(period, dtype=np.float32) - (period - 1) / 2).reshape(-1, 1, 1, 1)
    cells -= light + along * offset  # a gradient of the light looks like a pattern
    own = np.abs(cells[:, :, 2:] - cells[:, :, :-2]).mean((0, 1, 3))
    places = np.argsort(own)[len(own) * 3 // 4 :]  # a tear is where the pattern changes most
    before, after = cells[:, :, places], cells[:, :, places + 2]
    shifts = [shift for shift in product(range(period), repeat=2) if any(shift)]
    shifted = np.min([np.abs(after - np.roll(before, shift, (0, 1))).mean((0, 1, 3)) for shift in shifts], 0)
    steep = np.abs(along).mean(1)  # an edge leaves that much of itself in a pattern
    edges, changes = steep[places] + steep[places + 2], own[places]
    ratio = (shifted + edges + _MIN_PATTERN) / (changes + edges + _MIN_PATTERN)
    ratio[changes < _EDGES * edges] = 1
    nearby = np.pad(own, 3, constant_values=np.inf)[[places, places + 6]].min(0)  # of tiles that a tear does not touch
    ratio[nearby > _CONFINED * changes] = 1
    best = int(ratio.argmin())
    return (int(places[best]) + 2) * step if ratio[best] < _TORN else None
