"""The registry of kernels, one row each: supported works, schedules, and their resources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import product
from typing import Any, Callable, ClassVar, Dict, Generic, Iterator, Tuple, TypeVar

import numpy as np

from polar_pipeline.backends.cuda.arguments import Defines, half_taps, work_defines
from polar_pipeline.backends.cuda.device import WARP, Device
from polar_pipeline.backends.cuda.work import (
    ANGLE_IMAGES,
    PAIRS,
    PLANES,
    PolarizationWork,
    SsimWork,
    TransformWork,
    Work,
    red_sites,
)
from polar_pipeline.options.products import COMPONENT_PRODUCTS
from polar_pipeline.polarimetry.coefficients import SSIM_BLOCK

_WorkT = TypeVar("_WorkT", PolarizationWork, TransformWork, SsimWork)


@dataclass(frozen=True, order=True)
class Schedule:
    """Schedule of one launch: kernel, threads, tile, rows.

    Attributes:
        kernel: Stem of the file in `kernels/`.
        window: Where the lines live: `registers`, `strip`, `tile`; of SSIM `registers` or `tensor`.
        threads: Per block.
        tile_x: Output pixels along x of a block (`tile`, SSIM's `registers`), of a warp (`tensor`), or of a thread.
        tile_y: Output pixels along y of a block (`tile`), else 0.
        rows: Rows that a thread marches down: of the output, or in ADR's first stage (`tile`).
    """

    kernel: str
    window: str
    threads: int
    tile_x: int
    tile_y: int = 0
    rows: int = 0


def round_up(number: int, step: int) -> int:
    """Round a number up to a multiple of `step`."""
    return -(-number // step) * step


def register_bound(threads: int, resident: int) -> int:
    """Return the registers per thread under a launch bound that keeps a number of threads resident."""
    blocks = max(1, -(-resident // threads))
    warps = -(-blocks * (threads // WARP) // 4)
    return min(255, 16384 // (warps * WARP) // 8 * 8)


def resident_threads(device: Device) -> int:
    """Return `RESIDENT` of `kernels/frame.cuh`."""
    return 512 if 80 <= device.capability < 90 else 640


@dataclass(frozen=True)
class Kernel(ABC, Generic[_WorkT]):
    """One kernel.

    Attributes:
        name: Stem of its file.
        works: Class of the works that it does.
    """

    name: str
    works: ClassVar[type] = PolarizationWork
    #: What a byte that is loaded again as a halo costs, compared with one from memory: it comes from a cache.
    halo_cost: ClassVar[float] = 0.5

    def can(self, work: Work) -> bool:
        """Return whether the kernel can do a work."""
        return isinstance(work, self.works)

    @abstractmethod
    def schedules(self, work: _WorkT, device: Device) -> Iterator[Schedule]:
        """Return the schedules for a work, whether they fit the device or not."""

    @abstractmethod
    def shared_bytes(self, work: _WorkT, schedule: Schedule) -> int:
        """Return the dynamic shared memory of a block; each kernel asserts that its own structure fits."""

    @abstractmethod
    def registers(self, work: _WorkT, schedule: Schedule, device: Device) -> int:
        """Return the largest number of registers per thread; the compiled kernel has the actual number."""

    @abstractmethod
    def grid(self, work: _WorkT, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        """Return the number of blocks along x, y and z; z is the frame."""

    @abstractmethod
    def loads(self, work: _WorkT, schedule: Schedule) -> float:
        """Return how often each input pixel is loaded, halos included; at least 1."""

    def defines(self, work: _WorkT, schedule: Schedule) -> Dict[str, int]:
        """Return the preprocessor definitions of a schedule; tiles count raw pixels there."""
        sizes = {"TILE_X": schedule.tile_x, "TILE_Y": schedule.tile_y, "ROWS": schedule.rows}
        return {
            "THREADS": schedule.threads,
            "SHARED_BYTES": self.shared_bytes(work, schedule),
            **{name: size for name, size in sizes.items() if size},
        }


AnyKernel = Kernel[Any]


# -------------------------------------------------------------------------------------------------------- polarization


def _loads(work: PolarizationWork, unit: Tuple[int, int], units: int) -> float:
    """Return loaded raw pixels per pixel of the frame; halos are whole quads along x, or superpixels along y.

    Args:
        work: Work of the launch.
        unit: Output pixels along x and y of what shares its loads.
        units: Number of units.
    """
    (x, y), reach, step = unit, work.halos, work.step
    halo_y = round_up(sum(reach), 2) if work.calibrated else sum(reach)
    loaded = (step * x + 2 * sum(round_up(halo, 4) for halo in reach)) * (step * y + 2 * halo_y)
    return max(1.0, loaded * units / (work.width * work.height))


@dataclass(frozen=True)
class Marching(Kernel[PolarizationWork]):
    """A kernel whose threads make a few columns each and march down rows, with their lines in registers or in a ring.

    Attributes:
        needs: Whether it can do a work.
        window: Window of a `Schedule`.
        pixels: Output pixels that a thread can make along x.
        threads: Threads of a block.
        rows: Rows that a thread can march down.
        lanes: Lanes of a warp that store what they make, by pixels; the others are neighbors.
        staging: Bytes of shared memory of a block.
        resident: Threads that the launch bound keeps resident, by device; None: those of `resident_threads`.
    """

    needs: Callable[[PolarizationWork], bool]
    window: str
    pixels: Tuple[int, ...]
    threads: Tuple[int, ...]
    rows: Tuple[int, ...]
    staging: Callable[[PolarizationWork, Schedule], int]
    lanes: Callable[[int], int] = lambda _: WARP
    resident: Callable[[PolarizationWork, Device], int] = lambda _, device: resident_threads(device)

    def can(self, work: Work) -> bool:
        return isinstance(work, PolarizationWork) and _is_plain(work) and self.needs(work)

    def schedules(self, work: PolarizationWork, device: Device) -> Iterator[Schedule]:
        for threads, pixels, rows in product(self.threads, self.pixels, self.rows):
            yield Schedule(self.name, self.window, threads, pixels, rows=rows)

    def shared_bytes(self, work: PolarizationWork, schedule: Schedule) -> int:
        return self.staging(work, schedule)

    def registers(self, work: PolarizationWork, schedule: Schedule, device: Device) -> int:
        return register_bound(schedule.threads, self.resident(work, device))

    def _warps(self, work: PolarizationWork, schedule: Schedule) -> int:
        """Return the warps of complete blocks: threads follow each other from row to row."""
        height, width = work.output_size
        threads = -(-width // schedule.tile_x) * -(-height // schedule.rows)
        return round_up(-(-threads // self.lanes(schedule.tile_x)), schedule.threads // WARP)

    def grid(self, work: PolarizationWork, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        return self._warps(work, schedule) // (schedule.threads // WARP), 1, frames

    def loads(self, work: PolarizationWork, schedule: Schedule) -> float:
        unit = schedule.tile_x * self.lanes(schedule.tile_x), schedule.rows
        return _loads(work, unit, self._warps(work, schedule))

    def defines(self, work: PolarizationWork, schedule: Schedule) -> Dict[str, int]:
        # compiled for one size: lines become immediate offsets
        size = {"WIDTH": work.width, "HEIGHT": work.height, "FULL_SCALE": work.full_scale}
        return {**super().defines(work, schedule), **size}


#: Raw pixels of tiles that are no powers of two: one that divides 2448x2048, and those that suit ADR's halo and rows.
_MORE_TILES = ((80, 32), (72, 32), (64, 60), (64, 40), (64, 28), (56, 32), (56, 28))
#: Raw rows of a tile of ADR at least: with fewer, works in float spill on sm_72.
_ADAPTIVE_ROWS = 8
#: Registers that a thread needs in float, and where outputs depend on noise.
_MANY_REGISTERS = 96


@dataclass(frozen=True)
class Tile(Kernel[PolarizationWork]):
    """The kernel that does any work: a block makes a tile in shared memory, stage by stage."""

    def schedules(self, work: PolarizationWork, device: Device) -> Iterator[Schedule]:
        slides = (5, 6, 7, 9, 12) if work.is_adaptive else (0,)
        blocks: Tuple[int, ...] = (128, 160, 192, 224, 256, 288, 320) if work.is_adaptive else (128, 160, 192, 256, 320)
        step = work.step
        tiles = [*product((16, 32, 64, 128), (4, 8, 16, 32)), *((x // step, y // step) for x, y in _MORE_TILES)]
        if device.capability < 90 and (work.uses_noise or not work.half_precision):  # others would spill
            blocks = tuple(n for n in blocks if register_bound(n, resident_threads(device)) >= _MANY_REGISTERS)
        for (x, y), threads, rows in product(tiles, blocks, slides):
            if work.is_adaptive and step * y < _ADAPTIVE_ROWS:
                continue
            schedule = Schedule("tile", "tile", threads, x, y, rows)
            if self.loads(work, schedule) * work.width * work.height >= 4 * threads * self.grid(work, schedule)[0]:
                yield schedule

    def shared_bytes(self, work: PolarizationWork, schedule: Schedule) -> int:
        (mono, color), step = work.halos, work.step
        channels, pixel = 3 if work.sensor.is_color else 1, 2 if work.half_precision else 4
        x, y = step * schedule.tile_x, step * schedule.tile_y
        edge = round_up(mono, 4) + round_up(color, 4)
        mosaic = channels * (y + 2 * mono) * (x + 2 * round_up(mono, 4))
        raw = (y + 2 * (mono + color)) * (x + 2 * edge) * (0 if not color else 2 if work.debayer == "weighted" else 1)
        stage = channels * (2 * (y + 4) * (x + 8) + 4 * y * x) + y * x if work.is_adaptive else 0
        saturated = round_up((y + 2) * (x // 4 + 2), 4)
        return round_up(pixel * mosaic + max(4, pixel * max(raw, stage)) + saturated + 8, 16)

    def registers(self, work: PolarizationWork, schedule: Schedule, device: Device) -> int:
        usual = 112 if work.uses_noise else (96 if work.is_adaptive else 72) + 24 * (not work.half_precision)
        return min(usual, register_bound(schedule.threads, resident_threads(device) if device.capability < 90 else 1))

    def grid(self, work: PolarizationWork, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        height, width = work.output_size
        return -(-width // schedule.tile_x), -(-height // schedule.tile_y), frames

    def loads(self, work: PolarizationWork, schedule: Schedule) -> float:
        across, down, _ = self.grid(work, schedule)
        return _loads(work, (schedule.tile_x, schedule.tile_y), across * down)

    def defines(self, work: PolarizationWork, schedule: Schedule) -> Dict[str, int]:
        sizes = {"TILE_X": work.step * schedule.tile_x, "TILE_Y": work.step * schedule.tile_y}
        return {**super().defines(work, schedule), **sizes}


#: What the kernels but `tile` and `transform` can make.
_PIXELS = {"intensity", "dolp", "aolp", "preview"}
_VECTORS = {*_PIXELS, *ANGLE_IMAGES, "stokes", *PAIRS}
_MONO_HALF = {*_VECTORS, *COMPONENT_PRODUCTS, *PLANES}


def _is_plain(work: PolarizationWork) -> bool:
    """Return whether a work needs neither noise nor another full scale of bytes, which `tile` alone computes."""
    return not work.uses_noise and (work.raw_format != "u8" or work.full_scale == 255)


def _is_plain_half(work: PolarizationWork) -> bool:
    """Return whether a work is of half resolution, bilinear or with every angle at its own site."""
    return work.half and (not work.co_sited or work.demosaic == "bilinear")


def _is_mono_half(work: PolarizationWork) -> bool:
    is_kind = not work.sensor.is_color and not work.calibrated and _is_plain_half(work)
    return is_kind and _MONO_HALF.issuperset(work.dtypes) and work.width >= 16 and work.height >= 2


def _is_mono_half_calibrated(work: PolarizationWork) -> bool:
    """Return whether superpixels of the calibration begin at even rows and columns."""
    is_kind = not work.sensor.is_color and work.calibrated and work.phase == (0, 0) and _is_plain_half(work)
    return is_kind and _MONO_HALF.issuperset(work.dtypes) and work.width % 8 == 0 and work.height % 2 == 0


def _is_mono_full(work: PolarizationWork) -> bool:
    """Return whether a work makes images of bytes in half precision from 8-bit pixels."""
    is_kind = not work.sensor.is_color and not work.calibrated and not work.half
    is_bytes = work.raw_format == "u8" and work.half_precision and {*work.dtypes.values()} == {"uint8"}
    is_simple = work.demosaic in ("bilinear", "gradient") and _PIXELS.issuperset(work.dtypes)
    return is_kind and is_bytes and is_simple and work.width % 16 == 0


def _is_color_strip(work: PolarizationWork) -> bool:
    """Return whether a work uses Malvar-He-Cutler, with red at the same place of all four lattices."""
    is_kind = work.sensor.is_color and not work.calibrated and _is_plain_half(work) and work.debayer == "mhc"
    is_stored = _VECTORS.issuperset(work.dtypes)
    return is_kind and is_stored and work.width % 8 == 0 and len(set(red_sites(work.sensor).values())) == 1


def _interleaved(work: PolarizationWork, schedule: Schedule) -> int:
    """Return the bytes of a row of interleaved pixels of each thread of `mono_half`."""
    sizes = (3 * np.dtype(work.dtypes[name]).itemsize for name in ("preview", "stokes") if name in work.dtypes)
    return schedule.threads * schedule.tile_x * max(sizes, default=0)


def _row_of_preview(work: PolarizationWork, schedule: Schedule) -> int:
    """Return the bytes of a row of 512 pixels of each warp of `mono_full`."""
    return schedule.threads // WARP * 512 * 3 * ("preview" in work.dtypes)


#: Raw lines of a color ring.
_RING_LINES = 12
#: Lanes of a warp of a strip that store what they make, by pixels of a lane along x.
_STRIP_LANES = {4: 30, 2: 28}


def _ring(work: PolarizationWork, schedule: Schedule) -> int:
    """Return the bytes of `struct Shared` of `color_strip`: rings of lines, and images of bytes of two rows."""
    pair = 4 if work.half_precision else 8
    ring = round_up(16 + _RING_LINES * WARP * schedule.tile_x * pair + 2 * pair, 16)
    angles = 4 * any(name in ANGLE_IMAGES for name in work.dtypes)
    staged = max(1, angles + (work.dtypes.get("intensity") == "uint8") + ("preview" in work.dtypes))
    return schedule.threads // WARP * round_up(ring + staged * 2 * {4: 392, 2: 192}[schedule.tile_x], 16)


def _mono_full_resident(work: PolarizationWork, device: Device) -> int:
    """Return the launch bound of `mono_full`."""
    if device.capability < 90:
        return resident_threads(device)
    is_plain = work.demosaic == "bilinear" and "preview" not in work.dtypes
    return 1024 if is_plain else 768


class _ColorStrip(Marching):
    """`color_strip`: threads have registers for four pixels in half from sm_90 on, and for floats from sm_80 on."""

    def schedules(self, work: PolarizationWork, device: Device) -> Iterator[Schedule]:
        if not work.half_precision and device.capability < 80:
            return iter(())
        is_wide = work.half_precision and device.capability >= 90
        return (row for row in super().schedules(work, device) if row.tile_x == 2 or is_wide)


# ------------------------------------------------------------------------------------------------------------ geometry

#: Tiles of the output, and of one whose columns are rows of the planes: a warp takes 32 pixels that are neighbors
#: there.
_TRANSFORM_TILES = {False: ((32, 8), (32, 16), (32, 32), (64, 8), (64, 16)), True: ((8, 32), (16, 32), (32, 32))}
#: Threads of a block at most on a color sensor: with more, a thread has too few registers.
_COLOR_THREADS = 128


@dataclass(frozen=True)
class Transform(Kernel[TransformWork]):
    """The kernel that samples planes: a block makes a tile of the output, four pixels a thread."""

    works = TransformWork

    def schedules(self, work: TransformWork, device: Device) -> Iterator[Schedule]:
        for x, y in _TRANSFORM_TILES[work.by_columns]:
            if not work.color or x * y // 4 <= _COLOR_THREADS:
                yield Schedule("transform", "tile", x * y // 4, x, y)

    def shared_bytes(self, work: TransformWork, schedule: Schedule) -> int:
        number, channels = 2 if work.half_precision else 4, 3 if work.color else 1
        pitch = schedule.tile_x + 1
        short = pitch + 1 if work.half_precision else pitch
        planes = channels * schedule.tile_y * (2 * pitch + short * (1 + work.has_excess)) * number
        return round_up(planes + (0 if work.has_excess else number * short), 16)

    def registers(self, work: TransformWork, schedule: Schedule, device: Device) -> int:
        return register_bound(schedule.threads, resident_threads(device))

    def grid(self, work: TransformWork, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        return -(-work.width // schedule.tile_x) * -(-work.height // schedule.tile_y), 1, frames

    def loads(self, work: TransformWork, schedule: Schedule) -> float:
        x, y = work.scale * schedule.tile_x, work.scale * schedule.tile_y
        return (1 + 1 / x) * (1 + 1 / y) if work.positions else 1.0


# ---------------------------------------------------------------------------------------------------------------- SSIM

#: Error of the window in half up to which tensor cores are used; the bound of all is 1e-3.
_HALF_ERROR = 5e-4
#: Threads of a block with `registers`: more do not fit twice on a multiprocessor.
_SSIM_THREADS = 352
#: Threads of a block with `tensor`; and of a block that has a multiprocessor to itself, where a few small blocks would
#: share one.
_TENSOR_THREADS, _ALONE = (32, 64, 128), 352
#: Rows of a strip: a part of a block of the map, or several.
_SSIM_ROWS = (16, 32, 64, 128, 256, 512)
#: With `registers`: rows between two barriers, which is also the pixels of a thread along x.
_BATCH = 4
#: With `tensor`: columns of a warp -> registers of a thread at most, and warps of a multiprocessor at least.
_TENSOR_COLUMNS = {32: (168, 12), 16: (128, 16)}


def piece_count(work: SsimWork, schedule: Schedule) -> int:
    """Count the pieces of the map that are summed before the last block adds up."""
    (height, width), y = work.map_size, min(schedule.rows, SSIM_BLOCK)
    return -(-height // y) * -(-width // (_BATCH if schedule.window == "registers" else schedule.tile_x))


@dataclass(frozen=True)
class Ssim(Kernel[SsimWork]):
    """The kernel of the similarity map: strips of columns by sums in registers, or on tensor cores."""

    works = SsimWork
    halo_cost = 2.5  # rows of a halo are summed, too

    def schedules(self, work: SsimWork, device: Device) -> Iterator[Schedule]:
        if self._has_tensor(work, device):
            blocks = (*_TENSOR_THREADS, _ALONE) if device.overlaps else _TENSOR_THREADS
            for columns, threads, rows in product(_TENSOR_COLUMNS, blocks, _SSIM_ROWS):
                yield Schedule("ssim", "tensor", threads, columns, rows=rows)
            return
        width, halo = work.map_size[1], work.window - 1
        fewest = -(-width // ((_SSIM_THREADS - halo) // _BATCH * _BATCH))  # with fewer strips, threads do not suffice
        widths = {round_up(-(-width // strips), _BATCH) for strips in range(fewest, max(32, 2 * fewest) + 1)}
        for tile_x, rows in product(sorted(widths), _SSIM_ROWS):
            yield Schedule("ssim", "registers", round_up(tile_x + halo, WARP), tile_x, rows=rows)

    def _has_tensor(self, work: SsimWork, device: Device) -> bool:
        """Return whether tensor cores can do a work: images of 16 bit, and a Gaussian that halves can hold."""
        is_plain = work.source == "uint16" and work.stride == 1 and work.width % 8 == 0
        return device.capability >= 80 and is_plain and half_taps(work.window, work.sigma).error <= _HALF_ERROR

    def shared_bytes(self, work: SsimWork, schedule: Schedule) -> int:
        if schedule.window == "tensor":
            row = 4 * (schedule.tile_x + 16) + 32  # of both images, with what lies between
            return schedule.threads // WARP * 3 * 8 * row
        return 4 * (2 * 4 * _BATCH * (schedule.threads + 8) + schedule.tile_x)

    def registers(self, work: SsimWork, schedule: Schedule, device: Device) -> int:
        if schedule.window == "tensor":
            usual, resident = _TENSOR_COLUMNS[schedule.tile_x]
        else:
            usual, resident = 96 if work.window <= 7 else 144, 16 if work.window > 11 else 20
        return min(usual, register_bound(schedule.threads, WARP * resident // schedule.threads * schedule.threads))

    def grid(self, work: SsimWork, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        height, width = work.map_size
        across = schedule.tile_x * (schedule.threads // WARP if schedule.window == "tensor" else 1)
        return -(-width // across) * -(-height // schedule.rows), 1, frames

    def loads(self, work: SsimWork, schedule: Schedule) -> float:
        halo = 16 if schedule.window == "tensor" else work.window - 1
        return (1 + halo / schedule.tile_x) * (1 + (work.window - 1) / schedule.rows)

    def defines(self, work: SsimWork, schedule: Schedule) -> Dict[str, int]:
        return {**super().defines(work, schedule), "WINDOW": int(schedule.window == "tensor")}


# ------------------------------------------------------------------------------------------------------------ registry

#: Every kernel. Of those that can do a work, the first one with a schedule that fits the device does it.
KERNELS: Dict[str, AnyKernel] = {
    row.name: row
    for row in (
        Marching(
            "mono_half",
            _is_mono_half,
            "registers",
            (4, 8),
            (64, 128, 160),
            (2, 4),
            _interleaved,
            resident=lambda work, device: 640,
        ),
        Marching(
            "mono_half_calibrated",
            _is_mono_half_calibrated,
            "strip",
            (4,),
            (32, 64, 128),
            (4, 8, 16, 32),
            lambda work, schedule: 0,
            _STRIP_LANES.__getitem__,
        ),
        Marching(
            "mono_full",
            _is_mono_full,
            "registers",
            (16,),
            (32, 64, 128),
            (2,),
            _row_of_preview,
            resident=_mono_full_resident,
        ),
        _ColorStrip(
            "color_strip",
            _is_color_strip,
            "strip",
            (4, 2),
            (32, 64, 128),
            (4, 8, 16),
            _ring,
            _STRIP_LANES.__getitem__,
            lambda work, device: 512 if device.capability >= 80 else 640,
        ),
        Tile("tile"),
        Transform("transform"),
        Ssim("ssim"),
    )
}


def kernels_of(work: Work) -> Iterator[AnyKernel]:
    """Yield every kernel that can do a work, the preferred one first."""
    return (row for row in KERNELS.values() if row.can(work))


def launch_defines(work: Work, schedule: Schedule) -> Defines:
    """Return the preprocessor definitions that make a schedule's kernel do a work."""
    return {**work_defines(work), **KERNELS[schedule.kernel].defines(work, schedule)}


def sums_in_integers(work: PolarizationWork) -> bool:
    """Return whether a kernel sums in integers what SSIM compares."""
    kernel = next(kernels_of(work)).name
    if kernel == "color_strip":
        spills_on_xavier = "stokes" in work.dtypes and any(name in ANGLE_IMAGES for name in work.dtypes)
        return work.half_precision and work.raw_format == "u8" and not spills_on_xavier
    return kernel == "mono_half" and not work.dtypes.keys().isdisjoint(PAIRS)
