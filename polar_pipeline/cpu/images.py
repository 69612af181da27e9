"""Views of images that carry a halo, and masks of the sites of a tile."""

from __future__ import annotations

from functools import lru_cache
from typing import List, Sequence, Tuple

import cv2
import numpy as np

from polar_pipeline.sensor.mosaic import Sensor

Image = np.ndarray
#: Raw pixels that a method on the polarizer mosaic reads beyond its own, rounded up to a multiple of two.
MONO_HALO = {"bilinear": 2, "gradient": 2, "adaptive": 4}
#: Raw pixels that a method on the colour lattice reads beyond its own, rounded up to a multiple of two.
COLOR_HALO = {"bilinear": 2, "mhc": 4, "weighted": 6}


def at(image: Image, dy: int, dx: int, halo: int) -> Image:
    """`image` without `halo` pixels on each side, seen at an offset; a view."""
    height, width = image.shape[0] - 2 * halo, image.shape[1] - 2 * halo
    return image[halo + dy : halo + dy + height, halo + dx : halo + dx + width]


def inner(image: Image, halo: int) -> Image:
    """`image` without `halo` pixels on each side; a view."""
    return at(image, 0, 0, halo)


@lru_cache(maxsize=8)
def reflected(size: int, halo: int, stride: int) -> np.ndarray:
    """Index of the pixel shown at -halo .. size + halo - 1: reflect-101 on each lattice of `stride`."""
    index = np.arange(-halo, size + halo)
    phase = index % stride
    count = (size - phase + stride - 1) // stride
    period = 2 * (count - 1)
    step = (index // stride) % period
    return np.minimum(step, period - step) * stride + phase


@lru_cache(maxsize=64)
def site_mask(sites: Tuple[Tuple[bool, ...], ...], shape: Tuple[int, int], dtype: str) -> Image:
    """(H, W) of `dtype`, read-only: all bits set at the chosen sites of a tile, none elsewhere."""
    period = len(sites)
    mask = np.zeros(shape, f"u{np.dtype(dtype).itemsize}")
    for row in range(period):
        for column in range(period):
            if sites[row][column]:
                mask[row::period, column::period] = np.iinfo(mask.dtype).max
    mask.flags.writeable = False
    return mask.view(dtype)


def angle_mask(sensor: Sensor, angle: int, shape: Tuple[int, int], dtype: str) -> Image:
    """The mask of the pixels behind one polarizer, in degrees."""
    return site_mask(tuple(tuple(cell == angle for cell in row) for row in sensor.angles), shape, dtype)


def select(sources: Sequence[Sequence[Image]]) -> Image:
    """One (H, W) float32 image whose pixel (y, x) comes from `sources[y % n][x % n]`, each (H, W)."""
    distinct = list({id(source): source for row in sources for source in row}.values())
    out: Image = distinct[0].copy()
    for source in distinct[1:]:
        sites = tuple(tuple(cell is source for cell in row) for row in sources)
        cv2.copyTo(source, site_mask(sites, out.shape, "u1"), out)
    return out


#: Where a channel of a pixel comes from: its own sample, green at red or blue, at green the colour of its row and that
#: of its column, red at blue and blue at red. The order is that of `enum Source` in `kernels/cpu/debayer.cpp`.
OWN, GREEN, ROW, COLUMN, ACROSS = range(5)


def color_sources(sensor: Sensor, start: int) -> List[List[List[int]]]:
    """Where red, green and blue of a pixel come from, by channel, row and column modulo 4 from `start` on."""
    sources: List[List[List[int]]] = [[], [], []]
    for row in range(start, start + 4):
        for channel in sources:
            channel.append([])
        for column in range(start, start + 4):
            own = sensor.color_index(row, column)
            of_row = own if own != 1 else sensor.color_index(row, column + 2)
            sources[1][-1].append(OWN if own == 1 else GREEN)
            for color in (0, 2):
                missing = ACROSS if own != 1 else ROW if of_row == color else COLUMN
                sources[color][-1].append(OWN if own == color else missing)
    return sources
