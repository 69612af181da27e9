"""The map of an output as `transform.cu` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

import numpy as np

from polar_pipeline.backends.cuda.kernels import Schedule
from polar_pipeline.backends.cuda.work import MAX_FRACTION, TransformWork
from polar_pipeline.geometry import SamplingMap

#: The largest part of a position; where both have all bits set, a sample is outside.
_MOST = 0xFFFE
_OUTSIDE = 0xFFFFFFFF


@dataclass(frozen=True)
class PackedMap:
    """Positions and rotations, tile by tile.

    Attributes:
        positions: (tiles, 4, samples, threads) uint32: column and row in 16 bits each, from the tile's origin on;
            `0xFFFFFFFF` outside. Sample k of a thread's four pixels.
        origins: (tiles,) uint32: index of a pixel of the Stokes image.
        turns: (tiles, pixels / 4, 2) float16 or float32: mean cosine and sine of four pixels along x.
        fraction: Bits of a position below a pixel: as many as the widest tile leaves, at most 10.
    """

    positions: np.ndarray
    origins: np.ndarray
    turns: np.ndarray
    fraction: int


def pack_map(sampling: SamplingMap, work: TransformWork, schedule: Schedule) -> PackedMap:
    """Pack a map with positions in the order in which the threads of a schedule read it.

    Args:
        sampling: The map.
        work: Work of the launch.
        schedule: Schedule of the work.
    """
    assert sampling.positions is not None
    assert sampling.turns is not None
    scale, (x, y), threads = work.scale, (schedule.tile_x, schedule.tile_y), schedule.threads
    down, across = -(-work.height // y), -(-work.width // x)
    tiles = down * across
    rest = ((0, scale * (down * y - work.height)), (0, scale * (across * x - work.width)), (0, 0))
    placed = np.pad(sampling.positions, rest, constant_values=-1).reshape(down, y, scale, across, x, scale, 2)
    order = (0, 3, 4, 1, 2, 5, 6) if work.by_columns else (0, 3, 1, 4, 2, 5, 6)
    placed = placed.transpose(order).reshape(tiles, -1, 2)
    is_outside = placed[..., 0] < 0
    lowest = np.where(is_outside[..., np.newaxis], np.float32(np.inf), placed).min(1)
    corners = np.floor(np.where(np.isinf(lowest), 0, lowest)).astype(np.uint32)
    placed = np.where(is_outside[..., np.newaxis], 0, placed - corners[:, np.newaxis])
    widest = float(placed.max(initial=0))
    fraction = next(bits for bits in range(MAX_FRACTION, -1, -1) if np.rint(widest * (1 << bits)) <= _MOST)
    parts = np.rint(placed * (1 << fraction)).astype(np.uint32)
    packed = np.where(is_outside, np.uint32(_OUTSIDE), parts[..., 0] | parts[..., 1] << np.uint32(16))
    positions = packed.reshape(tiles, 4, threads, scale**2).transpose(0, 1, 3, 2)
    origins = corners[:, 0] + corners[:, 1] * np.uint32(work.source[1])
    turns = _packed_turns(sampling.turns, (x, y), work.planes)
    return PackedMap(np.ascontiguousarray(positions), origins, turns, fraction)


def _packed_turns(turns: np.ndarray, tile: Tuple[int, int], dtype: str) -> np.ndarray:
    """Return (tiles, pixels / 4, 2): the mean direction of every four pixels along x."""
    (x, y), (height, width) = tile, turns.shape[:2]
    down, across = -(-height // y), -(-width // x)
    rest = ((0, down * y - height), (0, across * x - width), (0, 0))
    of_tiles = np.pad(np.nan_to_num(turns), rest).reshape(down, y, across, x // 4, 4, 2).sum(4).transpose(0, 2, 1, 3, 4)
    length = np.hypot(of_tiles[..., :1], of_tiles[..., 1:])
    directions = np.where(length > 0, of_tiles / np.maximum(length, 1e-9), (1.0, 0.0))
    return np.ascontiguousarray(directions.reshape(down * across, x * y // 4, 2).astype(dtype))
