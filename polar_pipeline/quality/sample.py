"""Sample of a frame's pixels that all its checks share, so that packed pixels are unpacked once."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import cv2
import numpy as np

from polar_pipeline.sensor.frames import Frame, PackedFrame

#: Side in pixels of regions and of squares. In both, each place of the tile is averaged, so that detail cancels.
REGION, SQUARE = 64, 32
#: Adjacent pixels of a line that are looked at: two tiles of color sensors; and the places along the line.
_SIDE, _PLACES = 8, 32
#: Smallest number of bands, and pixels of all bands.
_MIN_BANDS, _BAND_PIXELS = 4, 640_000


class Sample(NamedTuple):
    """Pixels of a frame, of which numbers above full scale are full scale.

    Attributes:
        full_scale: The value of a saturated pixel.
        starts: (N,) first rows of bands.
        bands: (N, `REGION` or less, W) adjacent rows.
        rows: (H, places, 8) adjacent pixels at some places of every row.
        columns: (W, places, 8) adjacent pixels at some places of every column.
        tiles: (2N, columns, 4, 4) means of each place of a 4x4 tile over squares, as shares of full scale.
        highest: (2N, columns) highest numbers of the squares.
    """

    full_scale: int
    starts: np.ndarray
    bands: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    tiles: np.ndarray
    highest: np.ndarray


def take_sample(frame: Frame) -> Sample:
    """Cut a sample out of a frame."""
    height, width = frame.shape
    side, count = min(REGION, height // _SIDE * _SIDE), width // _SIDE
    number = min(height // side, max(_MIN_BANDS, _BAND_PIXELS // (side * width)))
    starts = np.arange(number) * (height // side) // number * side
    some, step = (starts[:, np.newaxis] + np.arange(side)).ravel(), max(1, count // _PLACES)
    if isinstance(frame, PackedFrame):
        size = frame.fmt.row_bytes(_SIDE)
        strips = frame.rows[:, : count * size].reshape(height, count, size)[:, ::step].reshape(1, -1)
        bands = replace(frame, rows=frame.rows[some]).unpack().mosaic
        rows = replace(frame, rows=strips, width=strips.size // size * _SIDE).unpack().mosaic
    else:
        bands = frame.mosaic[some]
        rows = np.ascontiguousarray(frame.mosaic[:, : count * _SIDE].reshape(height, count, _SIDE)[:, ::step])
        if frame.full_scale < np.iinfo(rows.dtype).max:
            bands, rows = (np.minimum(part, part.dtype.type(frame.full_scale)) for part in (bands, rows))
    groups = bands.reshape(-1, _SIDE, width)
    columns = cv2.transpose(groups[:: max(1, len(groups) // _PLACES)].reshape(-1, width))
    squares = bands.reshape(-1, SQUARE if side == REGION else side, width)[:, :, : width // SQUARE * SQUARE]
    squares = np.ascontiguousarray(squares if side == REGION else squares[:, :, :0])
    return Sample(
        frame.full_scale,
        starts,
        bands.reshape(number, side, width),
        rows.reshape(height, -1, _SIDE),
        columns.reshape(width, -1, _SIDE),
        _tile_means(squares) / np.float32(frame.full_scale),
        squares.max(1).reshape(len(squares), -1, SQUARE).max(2, initial=0),
    )


def _tile_means(squares: np.ndarray) -> np.ndarray:
    """Average each place of a 4x4 tile over squares side by side: (N, `SQUARE`, W) to (N, W / `SQUARE`, 4, 4)."""
    (count, _, width), tiles = squares.shape, SQUARE // 4
    rows: np.ndarray = squares.reshape(count, tiles, 4 * width).mean(1, dtype=np.float32)
    return rows.reshape(count, 4, width // SQUARE, tiles, 4).mean(3).transpose(0, 2, 1, 3)
