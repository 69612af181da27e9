"""The launch of SSIM, the last one of a frame: two images in, their similarity out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.backends.cuda.device import WARP, Device
from polar_pipeline.backends.cuda.launch import (
    AnyKernel,
    ArrayType,
    Defines,
    Kernel,
    Launch,
    Schedule,
    register_bound,
    round_up,
)
from polar_pipeline.backends.cuda.pixels import TYPE_NUMBERS
from polar_pipeline.geometry import Geometry, make_map
from polar_pipeline.options import Options
from polar_pipeline.polarimetry.coefficients import (
    SSIM_BLOCK,
    SSIM_C2,
    SSIM_DITHER,
    SSIM_FULL,
    gaussian,
    ssim_literals,
)

#: Largest tap of a window that averages the rounding of 16-bit images. With 3 taps, or a deviation of 0.5, it moves
#: the similarity by up to 0.0015.
_NARROW_TAP = 0.34
#: `struct Comparison` of `kernels/ssim.cu`.
SSIM_ARGUMENT = np.dtype(
    [
        *((name, np.uint64) for name in ("first", "second", "first_stride", "second_stride")),
        *((name, np.uint64) for name in ("map", "pieces", "done", "blocks", "mean", "mask", "inside")),
    ],
    align=True,
)
_SOURCES = {"uint16": 0, "float32": 1}


def compared_type(options: Options) -> str:
    """Return the element type of the images that SSIM compares: `uint16`, or `float32`."""
    is_narrow = max(gaussian(options.ssim_window, options.ssim_sigma)) > _NARROW_TAP
    is_float = options.precision == "fp32" or (options.precision == "auto" and is_narrow)
    return "float32" if is_float else "uint16"


@dataclass(frozen=True)
class SsimLaunch(Launch):
    """The SSIM launch.

    Attributes:
        height: Pixels of an image along y.
        width: And along x.
        stride: Pixels in each direction over which images are averaged first.
        window: Taps of the Gaussian, odd.
        sigma: Its standard deviation in averaged pixels.
        source: Element type of the images: `uint16` or `float32`.
        map_dtype: Element type of the map, empty if it is not wanted.
        mode: What is compared (`ssim_mode`).
        geometry: That of the images, if it leaves pixels without values: the map has none there, and means take none.
        full_size: (height, width) of the Stokes image before the geometry.
    """

    stage = "ssim"
    argument_type = SSIM_ARGUMENT
    height: int
    width: int
    stride: int
    window: int
    sigma: float
    source: str
    map_dtype: str
    mode: str = "consistency"
    geometry: Optional[Geometry] = None
    full_size: Tuple[int, int] = (0, 0)

    @property
    def map_size(self) -> Tuple[int, int]:
        """(height, width) of the map."""
        return self.height // self.stride, self.width // self.stride

    @property
    def block_size(self) -> Tuple[int, int]:
        """(rows, columns) of the blocks whose means are taken."""
        height, width = self.map_size
        return -(-height // SSIM_BLOCK), -(-width // SSIM_BLOCK)

    @property
    def read_bytes(self) -> int:
        """Bytes of both images."""
        return 2 * self.height * self.width * np.dtype(self.source).itemsize

    @property
    def written_bytes(self) -> int:
        """Bytes of the map."""
        height, width = self.map_size
        return height * width * np.dtype(self.map_dtype).itemsize if self.map_dtype else 0

    @property
    def key(self) -> str:
        """The launch as short text without its size: the key of measured schedules."""
        text = f"ssim {self.source} to {self.map_dtype or 'means only'}, {self.window} taps"
        return text + (f", stride {self.stride}" if self.stride > 1 else "") + ", masked" * (self.geometry is not None)

    @property
    def image_bytes(self) -> int:
        """Bytes of one of the images."""
        return self.height * self.width * np.dtype(self.source).itemsize

    @property
    def outputs(self) -> Dict[str, ArrayType]:
        arrays: Dict[str, ArrayType] = {"ssim": ((), "float32"), "blocks": (self.block_size, "float32")}
        if self.map_dtype:
            arrays["ssim_map"] = (self.map_size, self.map_dtype)
        return arrays

    def scratch(self, schedule: Schedule) -> Dict[str, int]:
        return {"pieces": 4 * piece_count(self, schedule), "done": 4}

    @property
    def kernels(self) -> Tuple[AnyKernel, ...]:
        return (SsimTensorKernel("ssim_tensor"), SsimRegisterKernel("ssim_registers"))

    def set_up(self, argument: np.ndarray, options: Options, schedule: Schedule) -> Dict[str, np.ndarray]:
        return {} if self.geometry is None else _masks(self, self.geometry)

    @property
    def needs(self) -> str:  # type: ignore[override]
        """Name of the image of the previous frame in mode `temporal`."""
        return "previous" if self.mode == "temporal" else ""

    def fill(self, argument: np.ndarray, addresses: Mapping[str, int]) -> None:
        if self.mode == "consistency":
            argument["first"], argument["second"] = addresses["sums"], addresses["sums"] + self.image_bytes
            argument["first_stride"] = argument["second_stride"] = 2 * self.image_bytes
        else:
            other = "previous" if self.mode == "temporal" else "reference"
            argument["first"], argument["second"] = addresses["s0"], addresses[other]
        argument["mean"], argument["map"] = addresses["ssim"], addresses.get("ssim_map", 0)
        for name in ("blocks", "pieces", "done"):
            argument[name] = addresses[name]

    def defines(self) -> Defines:
        numbers = ssim_literals(self.window, self.sigma)
        halves = np.array(half_taps(self.window, self.sigma).taps, np.float16).view(np.uint16)
        return {
            **numbers,
            "SSIM_TAPS": ",".join(numbers[f"SSIM_TAP_{k}"] for k in range(len(halves))),
            "SSIM_HALF_TAPS": ",".join(f"{bits:#x}u" for bits in halves),
            "WIDTH": self.width,
            "HEIGHT": self.height,
            "STRIDE": self.stride,
            "INPUT": _SOURCES[self.source],
            "OUT_MAP": TYPE_NUMBERS[self.map_dtype],
            "MASKED": int(self.geometry is not None),
        }


def _masks(launch: SsimLaunch, geometry: Geometry) -> Dict[str, np.ndarray]:
    """Return the mask of the map, and the numbers of pixels with a value in its blocks and in all."""
    (height, width), stride = launch.map_size, launch.stride
    outside = make_map(geometry, launch.full_size).outside  # (height, width), not 0 where images have no values
    mask = np.zeros((height, width), np.uint8)
    if outside is not None:
        cut = outside[: height * stride, : width * stride].reshape(height, stride, width, stride)
        mask[...] = cut.max((1, 3)) > 0
    rows, columns = np.arange(0, height, SSIM_BLOCK), np.arange(0, width, SSIM_BLOCK)
    inside = np.add.reduceat(np.add.reduceat(1 - mask.astype(np.float64), rows, 0), columns, 1).reshape(-1)
    return {"mask": mask, "inside": np.append(inside, inside.sum()).astype(np.float32)}


def as_compared(image: np.ndarray, dtype: str) -> np.ndarray:
    """Convert (..., h, w) images in [0, 1] for the SSIM launch, as kernels store theirs.

    They are `uint16` of full scale `SSIM_FULL`, limited and dithered; or `float32`.
    """
    if dtype == "uint16":
        rows, columns = (np.arange(size) for size in image.shape[-2:])
        dither = np.array(SSIM_DITHER, np.float32)[rows[:, None] % 4, columns % 2] / 16
        return np.floor(np.clip(image, 0, 1) * np.float32(SSIM_FULL) + dither).astype(np.uint16)
    return image.astype(dtype)


class HalfTaps(NamedTuple):
    """A window as halves.

    Attributes:
        error: How far the similarity of black and white is off at most, where a line or an edge lies within the window.
        taps: From the center outwards; the window sums to exactly 1.
    """

    error: float
    taps: Tuple[float, ...]


@lru_cache(maxsize=None)
def half_taps(window: int, sigma: float) -> HalfTaps:
    """Return the window for tensor cores.

    The sum of the taps from k outwards is rounded, up or down, to what the next inner tap is a multiple of: then each
    tap is a half, and so is the center, which takes the rest. Of all ways to round, the one with the smallest error is
    chosen: the largest error of the similarity for a line or an edge at any distance k from the center. There the
    variance is about as large as tap k or the sum from k + 1 outwards, and the similarity to an image without the line
    or the edge is C2 / (variance + C2).
    """
    exact = np.array(gaussian(window, sigma)[window // 2 :])
    tails = np.append(np.cumsum(exact[::-1])[::-1][1:], 0.0)  # from k + 1 outwards
    grids = [float(np.spacing(np.float16(tap))) for tap in exact]
    grids[0] /= 2  # both sides of the window are in the center's rest
    windows = []
    for ups in product((np.floor, np.ceil), repeat=window // 2):
        rounded = np.array([up(tail / grid) * grid for up, tail, grid in zip(ups, tails, grids)] + [0.0])
        taps = np.append(1 - 2 * rounded[0], rounded[:-1] - rounded[1:])
        if np.array_equal(taps, taps.astype(np.float16)) and (taps >= 0).all():
            line, edge = np.abs(taps - exact) / (exact + SSIM_C2) ** 2, np.abs(rounded - tails) / (tails + SSIM_C2) ** 2
            windows.append(HalfTaps(SSIM_C2 * float(max(line.max(), edge.max())), tuple(taps.tolist())))
    return min(windows)


# ------------------------------------------------------------------------------------------------------------- kernels

#: Error of the window in half up to which tensor cores are used; the bound of all is 1e-3.
_HALF_ERROR = 5e-4
#: Rows of a strip: a part of a block of the map, or several.
_ROWS = (16, 32, 64, 128, 256, 512)
#: Threads of a block in registers at most: more do not fit twice on a multiprocessor.
_MAX_THREADS = 352
#: In registers: rows between two barriers, which is also the pixels of a thread along x.
_BATCH = 4
#: On tensor cores: columns of a warp -> registers of a thread at most, and warps of a multiprocessor at least.
_TENSOR_COLUMNS = {32: (168, 12), 16: (128, 16)}


def piece_count(launch: SsimLaunch, schedule: Schedule) -> int:
    """Count the pieces of the map that are summed before the last block adds up."""
    (height, width), y = launch.map_size, min(schedule.rows, SSIM_BLOCK)
    return -(-height // y) * -(-width // (_BATCH if schedule.kernel == "ssim_registers" else schedule.tile_x))


@dataclass(frozen=True)
class _SsimKernel(Kernel[SsimLaunch]):
    """One of two implementations in `ssim.cu`: strips of columns, down which threads slide."""

    halo_cost = 2.5  # rows of a halo are summed, too

    @property
    def file(self) -> str:
        return "ssim"

    def defines(self, launch: SsimLaunch, schedule: Schedule) -> Defines:
        return {**super().defines(launch, schedule), "WINDOW": int(self.name == "ssim_tensor")}


class SsimTensorKernel(_SsimKernel):
    """Sums on tensor cores, of images of 16 bits, by a Gaussian that halves can hold."""

    def schedules(self, launch: SsimLaunch, device: Device) -> Iterator[Schedule]:
        is_plain = launch.source == "uint16" and launch.stride == 1 and launch.width % 8 == 0
        if device.capability >= 80 and is_plain and half_taps(launch.window, launch.sigma).error <= _HALF_ERROR:
            for columns, threads, rows in product(_TENSOR_COLUMNS, (32, 64, 128), _ROWS):
                yield Schedule(self.name, threads, columns, rows=rows)

    def shared_bytes(self, launch: SsimLaunch, schedule: Schedule) -> int:
        row = 4 * (schedule.tile_x + 16) + 32  # of both images, with what lies between
        return schedule.threads // WARP * 3 * 8 * row

    def registers(self, launch: SsimLaunch, schedule: Schedule, device: Device) -> int:
        most, resident = _TENSOR_COLUMNS[schedule.tile_x]
        return min(most, register_bound(schedule.threads, WARP * resident // schedule.threads * schedule.threads))

    def grid(self, launch: SsimLaunch, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        height, width = launch.map_size
        return -(-width // (schedule.tile_x * schedule.threads // WARP)) * -(-height // schedule.rows), 1, frames

    def loads(self, launch: SsimLaunch, schedule: Schedule) -> float:
        return (1 + 16 / schedule.tile_x) * (1 + (launch.window - 1) / schedule.rows)


class SsimRegisterKernel(_SsimKernel):
    """Sums along y in registers, and along x from shared memory."""

    def schedules(self, launch: SsimLaunch, device: Device) -> Iterator[Schedule]:
        width, halo = launch.map_size[1], launch.window - 1
        fewest = -(-width // ((_MAX_THREADS - halo) // _BATCH * _BATCH))  # with fewer strips, threads do not suffice
        widths = {round_up(-(-width // strips), _BATCH) for strips in range(fewest, max(32, 2 * fewest) + 1)}
        for tile_x, rows in product(sorted(widths), _ROWS):
            yield Schedule(self.name, round_up(tile_x + halo, WARP), tile_x, rows=rows)

    def shared_bytes(self, launch: SsimLaunch, schedule: Schedule) -> int:
        return 4 * (2 * 4 * _BATCH * (schedule.threads + 8) + schedule.tile_x)

    def registers(self, launch: SsimLaunch, schedule: Schedule, device: Device) -> int:
        most, resident = 96 if launch.window <= 7 else 144, 16 if launch.window > 11 else 20
        return min(most, register_bound(schedule.threads, WARP * resident // schedule.threads * schedule.threads))

    def grid(self, launch: SsimLaunch, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        height, width = launch.map_size
        return -(-width // schedule.tile_x) * -(-height // schedule.rows), 1, frames

    def loads(self, launch: SsimLaunch, schedule: Schedule) -> float:
        halo = launch.window - 1
        return (1 + halo / schedule.tile_x) * (1 + halo / schedule.rows)
