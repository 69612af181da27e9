"""The launch of a geometry: planes of the Stokes image in, products of another geometry out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, Mapping, Tuple

import numpy as np

from polar_pipeline.backends.cuda.device import Device
from polar_pipeline.backends.cuda.launch import (
    AnyKernel,
    Defines,
    Kernel,
    Schedule,
    register_bound,
    resident_threads,
    round_up,
)
from polar_pipeline.backends.cuda.pixels import FRAME_ARGUMENT, PLANES, STAGE_PLANES
from polar_pipeline.backends.cuda.planes import PlaneLaunch
from polar_pipeline.geometry import Geometry, SamplingMap, make_map
from polar_pipeline.options import Options

#: Most bits of a sample's position below a pixel: those of `geometry.sampling.STEP`.
MAX_FRACTION = 10
#: The largest part of a position; where both have all bits set, a sample is outside.
_MAX_PART = 0xFFFE
_OUTSIDE = 0xFFFFFFFF
#: `struct TransformArguments` of `kernels/transform.cuh`.
TRANSFORM_ARGUMENT = np.dtype(
    [
        ("frame", FRAME_ARGUMENT),
        *((name, np.uint64) for name in PLANES),
        *((name, np.uint64) for name in ("positions", "origins", "turns")),
        *((name, np.int32) for name in ("origin", "right", "down", "fraction")),
        ("turn", np.float32),
    ],
    align=True,
)


@dataclass(frozen=True)
class GeometryLaunch(PlaneLaunch):
    """The launch of a geometry, before that of SSIM.

    Attributes:
        geometry: What is scaled, rotated, cut and rectified.
        source: (height, width) of the planes.
        planes_of: Stage that stores the planes: a key of `STAGE_PLANES`.
        counts_invalid: Whether it counts saturated and dark pixels of the frame.
    """

    stage = "geometry"
    argument_type = TRANSFORM_ARGUMENT
    geometry: Geometry
    source: Tuple[int, int]
    planes_of: str = "polarization"
    counts_invalid: bool = True

    @property
    def source_size(self) -> Tuple[int, int]:
        return self.source

    @property
    def scale(self) -> int:
        """Samples along each side of an output pixel."""
        return self.geometry.scale

    @property
    def has_positions(self) -> bool:
        """Whether a map gives positions of samples between pixels; else samples are pixels."""
        return self.geometry.lens is not None

    @property
    def by_columns(self) -> bool:
        """Whether neighboring columns of the output lie in neighboring rows of the planes."""
        return self.geometry.rotate % 180 != 0

    @property
    def half_precision(self) -> bool:
        """Whether the kernel computes in pairs of half."""
        return self.mosaic.half_precision

    @property
    def plane_names(self) -> Tuple[str, ...]:
        """The planes of `PLANES` that the launch reads."""
        return PLANES if self.needs_excess else PLANES[:2]

    @property
    def map_bytes(self) -> int:
        """Bytes of the map: a position for each sample, and a rotation for four pixels; 0 where samples are pixels."""
        turns = 2 * np.dtype(self.planes).itemsize
        return self.height * self.width * (4 * self.scale**2 + turns // 4) if self.has_positions else 0

    @property
    def read_bytes(self) -> int:
        """Bytes of the planes of one frame, and of the map."""
        return super().read_bytes + self.map_bytes

    @property
    def key(self) -> str:
        """The launch as short text without its size: the key of measured schedules."""
        precision = "fp16" if self.half_precision else "fp32"
        parts = ["transform", "color" if self.is_color else "mono", precision, self.planes]
        parts += ["rectified"] * self.has_positions + [f"scale-{self.scale}"] * (self.scale > 1)
        parts += ["by-columns"] * self.by_columns
        return " ".join((*parts, self.stored_text))

    @property
    def kernels(self) -> Tuple[AnyKernel, ...]:
        return (TransformKernel("transform"),)

    def set_up(self, argument: np.ndarray, options: Options, schedule: Schedule) -> Dict[str, np.ndarray]:
        super().set_up(argument, options, schedule)
        sampling = make_map(self.geometry, self.source)
        steps = (int(column + self.source[1] * row) for column, row in sampling.corner.T)
        argument["right"], argument["down"], argument["origin"] = steps
        argument["turn"] = sampling.turn
        if sampling.positions is None:
            return {}
        packed = pack_map(sampling, self, schedule)
        argument["fraction"] = packed.fraction
        return {"positions": packed.positions, "origins": packed.origins, "turns": packed.turns}

    def fill(self, argument: np.ndarray, addresses: Mapping[str, int]) -> None:
        self.fill_outputs(argument["frame"], addresses, "counts" if self.counts_invalid else "unused_counts")
        for name in self.plane_names:
            argument[name] = addresses[STAGE_PLANES[self.planes_of][name]]

    def defines(self) -> Defines:
        return {
            **super().defines(),
            "HALF_PRECISION": int(self.half_precision),
            "SCALE": self.scale,
            "POSITIONS": int(self.has_positions),
            "BY_COLUMNS": int(self.by_columns),
        }


#: Tiles of the output, and of one whose columns are rows of the planes: a warp takes 32 pixels that are neighbors
#: there.
_TRANSFORM_TILES = {False: ((32, 8), (32, 16), (32, 32), (64, 8), (64, 16)), True: ((8, 32), (16, 32), (32, 32))}
#: Threads of a block at most on a color sensor: with more, a thread has too few registers.
_COLOR_THREADS = 128


@dataclass(frozen=True)
class TransformKernel(Kernel[GeometryLaunch]):
    """The kernel that samples planes: a block makes a tile of the output, four pixels a thread."""

    def schedules(self, launch: GeometryLaunch, device: Device) -> Iterator[Schedule]:
        for x, y in _TRANSFORM_TILES[launch.by_columns]:
            if not launch.is_color or x * y // 4 <= _COLOR_THREADS:
                yield Schedule(self.name, x * y // 4, x, y)

    def shared_bytes(self, launch: GeometryLaunch, schedule: Schedule) -> int:
        number, channels = 2 if launch.half_precision else 4, 3 if launch.is_color else 1
        pitch = schedule.tile_x + 1
        short = pitch + 1 if launch.half_precision else pitch
        planes = channels * schedule.tile_y * (2 * pitch + short * (1 + launch.needs_excess)) * number
        return round_up(planes + (0 if launch.needs_excess else number * short), 16)

    def registers(self, launch: GeometryLaunch, schedule: Schedule, device: Device) -> int:
        return register_bound(schedule.threads, resident_threads(device))

    def grid(self, launch: GeometryLaunch, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        return -(-launch.width // schedule.tile_x) * -(-launch.height // schedule.tile_y), 1, frames

    def loads(self, launch: GeometryLaunch, schedule: Schedule) -> float:
        x, y = launch.scale * schedule.tile_x, launch.scale * schedule.tile_y
        return (1 + 1 / x) * (1 + 1 / y) if launch.has_positions else 1.0


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


def pack_map(sampling: SamplingMap, launch: GeometryLaunch, schedule: Schedule) -> PackedMap:
    """Pack a map with positions in the order in which the threads of a schedule read it.

    Args:
        sampling: The map.
        launch: What is computed.
        schedule: How.
    """
    assert sampling.positions is not None
    assert sampling.turns is not None
    scale, (x, y), threads = launch.scale, (schedule.tile_x, schedule.tile_y), schedule.threads
    down, across = -(-launch.height // y), -(-launch.width // x)
    tiles = down * across
    rest = ((0, scale * (down * y - launch.height)), (0, scale * (across * x - launch.width)), (0, 0))
    placed = np.pad(sampling.positions, rest, constant_values=-1).reshape(down, y, scale, across, x, scale, 2)
    order = (0, 3, 4, 1, 2, 5, 6) if launch.by_columns else (0, 3, 1, 4, 2, 5, 6)
    placed = placed.transpose(order).reshape(tiles, -1, 2)
    is_outside = placed[..., 0] < 0
    lowest = np.where(is_outside[..., np.newaxis], np.float32(np.inf), placed).min(1)
    corners = np.floor(np.where(np.isinf(lowest), 0, lowest)).astype(np.uint32)
    placed = np.where(is_outside[..., np.newaxis], 0, placed - corners[:, np.newaxis])
    widest = float(placed.max(initial=0))
    fraction = next(bits for bits in range(MAX_FRACTION, -1, -1) if np.rint(widest * (1 << bits)) <= _MAX_PART)
    parts = np.rint(placed * (1 << fraction)).astype(np.uint32)
    packed = np.where(is_outside, np.uint32(_OUTSIDE), parts[..., 0] | parts[..., 1] << np.uint32(16))
    positions = packed.reshape(tiles, 4, threads, scale**2).transpose(0, 1, 3, 2)
    origins = corners[:, 0] + corners[:, 1] * np.uint32(launch.source[1])
    turns = _packed_turns(sampling.turns, (x, y), launch.planes)
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
