"""The first launch: mosaic in, products out; with a geometry, planes of the Stokes image instead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Callable, ClassVar, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from polar_pipeline.backends.cuda.device import WARP, Device
from polar_pipeline.backends.cuda.launch import (
    AnyKernel,
    Defines,
    Kernel,
    Launch,
    Schedule,
    Strip,
    register_bound,
    resident_threads,
    round_up,
)
from polar_pipeline.backends.cuda.memory import COUNTERS
from polar_pipeline.backends.cuda.pixels import (
    ANGLE_IMAGES,
    FRAME_ARGUMENT,
    PLANES,
    SSIM_INPUTS,
    PixelLaunch,
    fill_options,
    output_defines,
)
from polar_pipeline.backends.noise.gains import stokes_gains
from polar_pipeline.backends.noise.model import SHOWS_AOLP, SHOWS_DOLP, method_constants
from polar_pipeline.calibration import Correction, superpixel_phase
from polar_pipeline.options import Options
from polar_pipeline.options.methods import LATTICE_METHODS, METHODS
from polar_pipeline.options.products import COMPONENT_PRODUCTS, NOISE_PRODUCTS
from polar_pipeline.polarimetry.coefficients import c_float, literals
from polar_pipeline.sensor.frames import FORMATS
from polar_pipeline.sensor.mosaic import Sensor

#: Raw formats as kernels read them -> as cameras call them.
CAMERA_FORMATS = {"u8": FORMATS["8"], "u16": FORMATS["16"], "12p": FORMATS["12p"], "12packed": FORMATS["12Packed"]}
#: Bytes of a calibration for a raw pixel.
CODE_BYTES = 4
#: Numbers by which kernels know raw formats and element types; methods have those of their rows.
_RAW_FORMATS = {"u8": 0, "u16": 1, "12p": 2, "12packed": 3}
#: What a raw byte of 1 becomes, as `kernels/mono_half_correct.cuh` multiplies it.
_BYTE = 65504 / 2**24
#: Bits of a float's mantissa.
_MANTISSA = 23
#: Bit of the mantissa that a kernel moves the first bit of a field to: `..._bits` of `kernels/correction.cuh`, and
#: `number_of` of `kernels/mono_half_correct.cuh`.
_PLACES, _HALF_PLACES = (8, 8, 16, 16), (0, 0, 2, 2)
#: Bits of a half's mantissa.
_HALF_MANTISSA = 10
#: Rows of the mosaic below those of an output that a kernel may read, halos included.
_ROWS_BELOW = 16


def fill_correction(argument: np.ndarray, correction: Correction) -> None:
    """Fill in the correction of a kernel's argument, but for the address of its codes.

    Args:
        argument: A `FRAME_ARGUMENT` that has its full scale.
        correction: Correction of the frame.
    """
    argument["one"] = 1
    argument["phase_y"], argument["phase_x"] = correction.phase
    full_scale = float(argument["full_scale"])
    units = (-full_scale, 1 / full_scale, 1, 1)  # minus the black level in raw numbers, gain to shares of full scale
    for k, (scale, place, unit) in enumerate(zip(correction.scales, _PLACES, units)):
        slope = scale.step * (1 << _MANTISSA - place)
        argument["slope"][k], argument["base"][k] = unit * slope, unit * (scale.lowest - slope)
    half_units = (-255 * _BYTE, 1 / (255 * _BYTE), 1, 1)
    for k, (scale, place, unit) in enumerate(zip(correction.scales, _HALF_PLACES, half_units)):
        slope = scale.step * (1 << _HALF_MANTISSA - place)
        base = unit * (scale.lowest - slope) - (k == 1)  # the gain, less 1
        argument["half_slope"][k], argument["half_base"][k] = _in_both_lanes(unit * slope), _in_both_lanes(base)


def _in_both_lanes(value: float) -> int:
    """Return the bits of the nearest half, twice in a word; infinite outside the range of halves."""
    with np.errstate(over="ignore"):
        return int(np.array(value).astype(np.float16).view(np.uint16)) * 0x10001


def red_sites(sensor: Sensor) -> Dict[Tuple[int, int], Tuple[int, int]]:
    """Map tile positions to (row, column) of red on their Bayer lattice; empty for a mono sensor."""
    if sensor.colors is None:
        return {}
    return {
        (i, j): next((r, c) for r in range(2) for c in range(2) if sensor.color_index(2 * r + i, 2 * c + j) == 0)
        for i in range(2)
        for j in range(2)
    }


@dataclass(frozen=True)
class PolarizationLaunch(PixelLaunch):
    """The first launch of a frame.

    Attributes:
        sensor: The mosaic as the frame shows it (`Sensor.as_read_out`).
        half: Whether one output pixel stands for a superpixel.
        co_sited: At half resolution, angles interpolated to the superpixel's center.
        demosaic: Method on the polarizer mosaic.
        debayer: Method on the color lattice.
        raw_format: A key of `CAMERA_FORMATS`.
        full_scale: Raw number of a saturated pixel.
        half_precision: Whether the kernel computes in pairs of half.
        stored: (name in `OUTPUTS`, `uint8` or `float32`) of what is stored; what SSIM reads can be `uint16`, what a
            geometry interpolates `float16`.
        width: Raw pixels along x.
        height: Raw pixels along y.
        calibrated: Whether pixels are corrected by a calibration as they are loaded.
        debias: Whether DoLP is bias-corrected.
        limits_aolp: Whether AoLP is invalid beyond a standard deviation.
        phase: Where the calibration's superpixels lie (`Correction.phase`).
        in_strips: Whether one launch can make a strip of a frame.
    """

    stage = "polarization"
    argument_type = FRAME_ARGUMENT
    sensor: Sensor
    half: bool
    co_sited: bool
    demosaic: str
    debayer: str
    raw_format: str
    full_scale: int
    half_precision: bool
    stored: Tuple[Tuple[str, str], ...]
    width: int
    height: int
    calibrated: bool = False
    debias: bool = False
    limits_aolp: bool = False
    phase: Tuple[int, int] = (0, 0)
    in_strips: bool = False

    @property
    def output_size(self) -> Tuple[int, int]:
        """(height, width) of the outputs."""
        return (self.height // 2, self.width // 2) if self.half else (self.height, self.width)

    @property
    def step(self) -> int:
        """Raw pixels from one output pixel to the next."""
        return 2 if self.half else 1

    @property
    def is_color(self) -> bool:
        return self.sensor.is_color

    @property
    def uses_noise(self) -> bool:
        """Whether an output depends on the noise."""
        return self.debias or self.limits_aolp or any(name in NOISE_PRODUCTS for name in self.dtypes)

    @property
    def halos(self) -> Tuple[int, int]:
        """Reach of (polarizer interpolation, debayering) in raw pixels."""
        mono = 0 if self.half and not self.co_sited else METHODS[self.demosaic].reach
        return mono, LATTICE_METHODS[self.debayer].reach if self.is_color else 0

    @property
    def is_adaptive(self) -> bool:
        """Whether the launch runs the adaptive demosaic; angles at their own sites need no interpolation."""
        return self.demosaic == "adaptive" and self.halos[0] > 0

    @property
    def read_bytes(self) -> int:
        """Bytes of one frame and of its correction."""
        return self.raw_bytes + self.correction_bytes

    @property
    def correction_bytes(self) -> int:
        """Bytes of the calibration for one frame; 0 without one."""
        return CODE_BYTES * self.width * self.height if self.calibrated else 0

    @property
    def key(self) -> str:
        """The launch as short text without its size: the key of measured schedules."""
        parts = ["color" if self.is_color else "mono", "half" if self.half else "full"]
        parts.append(self.demosaic if self.co_sited or not self.half else "own-site")
        parts += [self.debayer] if self.is_color else []
        parts += [self.raw_format, "fp16" if self.half_precision else "fp32"]
        if self.calibrated:
            parts.append("calibrated" + "-odd" * any(self.phase))
        return " ".join((*parts, *self.limits_text, self.stored_text))

    @property
    def limits_text(self) -> Tuple[str, ...]:
        """What is done about noise, as parts of `key`."""
        return ("debias",) * self.debias + ("limits-aolp",) * self.limits_aolp

    def scratch(self, schedule: Schedule) -> Dict[str, int]:
        """Return the bytes of each array that stays; with planes, pixels are counted that others count again."""
        counts = {"unused_counts": 4 * COUNTERS} if self.has_planes else {}
        return {**super().scratch(schedule), **counts}

    @property
    def has_planes(self) -> bool:
        """Whether another launch makes the products."""
        return PLANES[0] in self.dtypes

    @property
    def raw_bytes(self) -> int:
        """Bytes of one frame."""
        return self.height * CAMERA_FORMATS[self.raw_format].row_bytes(self.width)

    @property
    def method(self) -> Tuple[Sensor, bool, bool, str, str]:
        """The mosaic and the methods that angles come from, as arguments of `stokes_gains`."""
        return self.sensor, self.half, self.co_sited, self.demosaic, self.debayer

    def with_planes(
        self, names: Iterable[str], dtype: str, ssim_inputs: Tuple[Tuple[str, str], ...] = ()
    ) -> PolarizationLaunch:
        """Return the launch that stores planes of the Stokes image in place of products, and what SSIM compares."""
        planes = tuple((name, dtype) for name in names)
        return replace(self, stored=(*planes, *ssim_inputs), debias=False, limits_aolp=False)

    @property
    def kernels(self) -> Tuple[AnyKernel, ...]:
        return tuple(kernel for kernel in KERNELS if not isinstance(kernel, ColumnKernel) or kernel.can_do(self))

    @property
    def sums_in_integers(self) -> bool:
        """Whether the kernel sums in integers what SSIM compares."""
        kernel = self.kernels[0].name
        if kernel == "color_strip":
            return self.half_precision and self.raw_format == "u8"
        return kernel == "mono_half" and not self.dtypes.keys().isdisjoint(SSIM_INPUTS)

    def strips(self, schedule: Schedule, ends: Sequence[int], frames: int = 1) -> Tuple[Strip, ...]:
        """Divide a frame into strips; a strip without a block becomes part of the next one.

        Args:
            schedule: How the launch divides its work.
            ends: Row of the mosaic behind each strip, the last one its height.
            frames: In one launch.
        """
        kernel = self.kernel(schedule)
        assert isinstance(kernel, (ColumnKernel, TileKernel))
        across, down, deep = grid = kernel.grid(self, schedule, frames)
        strips: List[Strip] = []
        raw = block = row = 0
        for raw_end in ends:
            block_end, row_end = grid[kernel.axis], self.output_size[0]
            if raw_end < self.height:
                block_end, row_end = kernel.blocks_above(self, schedule, (raw_end - _ROWS_BELOW) // self.step)
            if block_end > block:
                number = block_end - block
                part = (number, down, deep) if kernel.axis == 0 else (across, number, deep)
                strips.append(Strip(slice(raw, raw_end), part, block, slice(row, row_end)))
                raw, block, row = raw_end, block_end, row_end
        return tuple(strips)

    def set_up(self, argument: np.ndarray, options: Options, schedule: Schedule) -> Dict[str, np.ndarray]:
        argument["width"], argument["height"] = self.width, self.height
        argument["step"], argument["raw_stride"] = self.raw_bytes // self.height, self.raw_bytes
        fill_options(argument, options, self.full_scale)
        correction = options.correction((self.height, self.width))
        if correction is None:
            return {}
        fill_correction(argument, correction)
        return {"codes": correction.codes}

    def fill(self, argument: np.ndarray, addresses: Mapping[str, int]) -> None:
        argument["raw"] = addresses["raw"]
        self.fill_outputs(argument, addresses, "unused_counts" if self.has_planes else "counts")

    def defines(self) -> Defines:
        mosaic_reach, lattice_reach = self.halos
        defines: Defines = {
            **literals(),
            **output_defines(self.dtypes),
            "COLOR": int(self.is_color),
            "HALF_RESOLUTION": int(self.half),
            "CO_SITED": int(self.co_sited),
            **{f"METHOD_{name.upper()}": number for number, name in enumerate(METHODS)},
            **{f"LATTICE_{name.upper()}": number for number, name in enumerate(LATTICE_METHODS)},
            "DEMOSAIC": list(METHODS).index(self.demosaic),
            "DEBAYER": list(LATTICE_METHODS).index(self.debayer),
            "REACH": mosaic_reach,
            "LATTICE_REACH": lattice_reach,
            "RAW_FORMAT": _RAW_FORMATS[self.raw_format],
            "EXCEEDS": int(self.full_scale < CAMERA_FORMATS[self.raw_format].full_scale),
            "HALF_PRECISION": int(self.half_precision),
            "CALIBRATED": int(self.calibrated),
            "IN_STRIPS": int(self.in_strips),
        }
        if self.uses_noise:
            defines.update(self.noise_defines())
        for i, j in product(range(2), range(2)):
            defines[f"ANGLE_AT_{i}{j}"] = self.sensor.angle_index(i, j)
        for (i, j), (row, column) in red_sites(self.sensor).items():
            defines[f"RED_ROW_{i}{j}"], defines[f"RED_COLUMN_{i}{j}"] = row, column
        return defines

    def noise_defines(self, constants: Optional[Tuple[float, float, float, float]] = None) -> Defines:
        """Return the definitions that depend on the noise; `constants` in place of those of the method, if given."""
        gains = stokes_gains(*self.method)
        names = ("MOST", "LESS", "SHARE", "STEEP")
        return {
            "NOISE": 1,
            "NOISE_PERIOD": len(gains),
            "NOISE_GAINS": "{" + ",".join(c_float(float(gain)) for gain in gains.reshape(-1)) + "}",
            **{f"NOISE_{name}": c_float(x) for name, x in zip(names, constants or method_constants(*self.method))},
            "DEBIAS": int(self.debias),
            "LIMITS_AOLP": int(self.limits_aolp),
        }


def polarization_launch(
    options: Options, raw_format: str, full_scale: int, shape: Tuple[int, int], stored: Tuple[Tuple[str, str], ...]
) -> PolarizationLaunch:
    """Return the launch that stores some arrays of a frame.

    With precision `auto` it computes in pairs of half where pixels have 8 bits: half holds 11 bits, so that samples and
    their small sums are exact. With SSIM among the products, it computes in half only without a geometry, and if the
    images that SSIM compares are summed in integers (`sums_in_integers`): rounding to half changes the similarity by up
    to 0.0055.

    Args:
        options: Options of the pipeline.
        raw_format: A key of `CAMERA_FORMATS`.
        full_scale: Raw number of a saturated pixel.
        shape: (height, width) of the mosaic.
        stored: (name in `OUTPUTS`, element type) of what is stored.
    """
    is_calibrated = options.calibration is not None
    launch = PolarizationLaunch(
        options.read_out(shape),
        options.resolution == "half",
        options.co_sited,
        options.interpolation,
        options.debayer,
        raw_format,
        full_scale,
        options.precision == "fp16" or (options.precision == "auto" and full_scale <= 255),
        stored,
        shape[1],
        shape[0],
        is_calibrated,
        options.debias and not SHOWS_DOLP.isdisjoint(options.products),
        options.max_aolp_sigma > 0 and not SHOWS_AOLP.isdisjoint(options.products),
        superpixel_phase(options.roi_offset, options.flip, shape) if is_calibrated else (0, 0),
    )
    are_integers = launch.sums_in_integers and not any(dict(stored).get(name) == "float32" for name in SSIM_INPUTS)
    is_exact = are_integers and options.geometry is None
    if options.precision == "auto" and options.has_ssim and not is_exact:
        launch = replace(launch, half_precision=False)
    return launch


def noise_frames(launch: Launch, frames: int, seed: int = 0) -> np.ndarray:
    """Create (frames, height, bytes of a row) uint8: raw frames of noise to measure with.

    16-bit pixels have 5 to 80 % of full scale, bytes 5 to 80 % of 255: saturated pixels are rare, and slower.
    """
    assert isinstance(launch, PolarizationLaunch)
    noise, step = np.random.default_rng(seed), launch.raw_bytes // launch.height
    if launch.raw_format == "u16":
        low, high = launch.full_scale // 20, launch.full_scale * 4 // 5
        return noise.integers(low, high, (frames, launch.height, launch.width), np.uint16).view(np.uint8)
    return noise.integers(13, 204, (frames, launch.height, step), np.uint8)


# ------------------------------------------------------------------------------------------------------------- kernels


def _loads(launch: PolarizationLaunch, unit: Tuple[int, int], units: int) -> float:
    """Return loaded raw pixels per pixel of the frame; halos are whole quads along x, or superpixels along y.

    Args:
        launch: What is computed.
        unit: Output pixels along x and y of what shares its loads.
        units: Number of units.
    """
    (x, y), reach, step = unit, launch.halos, launch.step
    halo_y = round_up(sum(reach), 2) if launch.calibrated else sum(reach)
    loaded = (step * x + 2 * sum(round_up(halo, 4) for halo in reach)) * (step * y + 2 * halo_y)
    return max(1.0, loaded * units / (launch.width * launch.height))


@dataclass(frozen=True)
class ColumnKernel(Kernel[PolarizationLaunch]):
    """A kernel whose threads make a few columns each and move down rows, with their lines in registers or in a ring.

    Attributes:
        condition: Whether it can do a launch.
        pixels: Output pixels that a thread can make along x.
        threads: Threads of a block.
        rows: Rows that a thread can move down.
        lanes: Lanes of a warp that store what they make, by pixels; the others are neighbors.
        staging: Bytes of shared memory of a block.
        resident: Threads that the launch bound keeps resident, by device; None: those of `resident_threads`.
    """

    condition: Callable[[PolarizationLaunch], bool]
    pixels: Tuple[int, ...]
    threads: Tuple[int, ...]
    rows: Tuple[int, ...]
    staging: Callable[[PolarizationLaunch, Schedule], int]
    lanes: Callable[[int], int] = lambda _: WARP
    resident: Callable[[PolarizationLaunch, Device], int] = lambda _, device: resident_threads(device)
    #: Dimension of the grid along which blocks move down the frame.
    axis: ClassVar[int] = 0

    def can_do(self, launch: PolarizationLaunch) -> bool:
        """Return whether it can do a launch; noise, and another full scale of bytes, are left to `TileKernel`."""
        is_plain = not launch.uses_noise and (launch.raw_format != "u8" or launch.full_scale == 255)
        return is_plain and self.condition(launch)

    def schedules(self, launch: PolarizationLaunch, device: Device) -> Iterator[Schedule]:
        for threads, pixels, rows in product(self.threads, self.pixels, self.rows):
            yield Schedule(self.name, threads, pixels, rows=rows)

    def shared_bytes(self, launch: PolarizationLaunch, schedule: Schedule) -> int:
        return self.staging(launch, schedule)

    def registers(self, launch: PolarizationLaunch, schedule: Schedule, device: Device) -> int:
        return register_bound(schedule.threads, self.resident(launch, device))

    def _warps(self, launch: PolarizationLaunch, schedule: Schedule) -> int:
        """Return the warps of complete blocks: threads follow each other from row to row."""
        height, width = launch.output_size
        threads = -(-width // schedule.tile_x) * -(-height // schedule.rows)
        return round_up(-(-threads // self.lanes(schedule.tile_x)), schedule.threads // WARP)

    def grid(self, launch: PolarizationLaunch, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        return self._warps(launch, schedule) // (schedule.threads // WARP), 1, frames

    def blocks_above(self, launch: PolarizationLaunch, schedule: Schedule, height: int) -> Tuple[int, int]:
        """Return the number of blocks that make no row from `height` on, and the rows that they complete."""
        across = -(-launch.output_size[1] // schedule.tile_x)
        threads = self.lanes(schedule.tile_x) * schedule.threads // WARP
        blocks = height // schedule.rows * across // threads
        return blocks, blocks * threads // across * schedule.rows

    def loads(self, launch: PolarizationLaunch, schedule: Schedule) -> float:
        unit = schedule.tile_x * self.lanes(schedule.tile_x), schedule.rows
        return _loads(launch, unit, self._warps(launch, schedule))

    def defines(self, launch: PolarizationLaunch, schedule: Schedule) -> Defines:
        # compiled for one size: lines become immediate offsets
        size = {"WIDTH": launch.width, "HEIGHT": launch.height, "FULL_SCALE": launch.full_scale}
        return {**super().defines(launch, schedule), **size}


#: Raw pixels of further tiles, which are no powers of two: they suit frames of 2448x2048, and the halo and rows of ADR.
_MORE_TILES = ((80, 32), (72, 32), (64, 60), (64, 40), (64, 28), (56, 32), (56, 28))
#: Raw rows of a tile of ADR at least: with fewer, works in float spill on sm_72.
_ADAPTIVE_ROWS = 8
#: Registers that a thread needs in float, and where outputs depend on noise.
_MANY_REGISTERS = 96


@dataclass(frozen=True)
class TileKernel(Kernel[PolarizationLaunch]):
    """The kernel that can do any launch: a block makes a tile in shared memory, stage by stage."""

    #: Dimension of the grid along which blocks move down the frame.
    axis: ClassVar[int] = 1

    def schedules(self, launch: PolarizationLaunch, device: Device) -> Iterator[Schedule]:
        slides = (5, 6, 7, 9, 12) if launch.is_adaptive else (0,)
        blocks: Tuple[int, ...] = (
            (128, 160, 192, 224, 256, 288, 320) if launch.is_adaptive else (128, 160, 192, 256, 320)
        )
        step = launch.step
        tiles = [*product((16, 32, 64, 128), (4, 8, 16, 32)), *((x // step, y // step) for x, y in _MORE_TILES)]
        if device.capability < 90 and (launch.uses_noise or not launch.half_precision):  # others would spill
            blocks = tuple(n for n in blocks if register_bound(n, resident_threads(device)) >= _MANY_REGISTERS)
        for (x, y), threads, rows in product(tiles, blocks, slides):
            if launch.is_adaptive and step * y < _ADAPTIVE_ROWS:
                continue
            schedule = Schedule(self.name, threads, x, y, rows)
            if (
                self.loads(launch, schedule) * launch.width * launch.height
                >= 4 * threads * self.grid(launch, schedule)[0]
            ):
                yield schedule

    def shared_bytes(self, launch: PolarizationLaunch, schedule: Schedule) -> int:
        (mono, color), step = launch.halos, launch.step
        channels, pixel = 3 if launch.is_color else 1, 2 if launch.half_precision else 4
        x, y = step * schedule.tile_x, step * schedule.tile_y
        edge = round_up(mono, 4) + round_up(color, 4)
        mosaic = channels * (y + 2 * mono) * (x + 2 * round_up(mono, 4))
        raw = (y + 2 * (mono + color)) * (x + 2 * edge) * (0 if not color else 2 if launch.debayer == "weighted" else 1)
        stage = channels * (2 * (y + 4) * (x + 8) + 4 * y * x) + y * x if launch.is_adaptive else 0
        saturated = round_up((y + 2) * (x // 4 + 2), 4)
        return round_up(pixel * mosaic + max(4, pixel * max(raw, stage)) + saturated + 8, 16)

    def registers(self, launch: PolarizationLaunch, schedule: Schedule, device: Device) -> int:
        usual = 112 if launch.uses_noise else (96 if launch.is_adaptive else 72) + 24 * (not launch.half_precision)
        return min(usual, register_bound(schedule.threads, resident_threads(device) if device.capability < 90 else 1))

    def grid(self, launch: PolarizationLaunch, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
        height, width = launch.output_size
        return -(-width // schedule.tile_x), -(-height // schedule.tile_y), frames

    def blocks_above(self, _: PolarizationLaunch, schedule: Schedule, height: int) -> Tuple[int, int]:
        """Return the number of rows of blocks that make no row from `height` on, and the rows that they make."""
        blocks = height // schedule.tile_y
        return blocks, blocks * schedule.tile_y

    def loads(self, launch: PolarizationLaunch, schedule: Schedule) -> float:
        across, down, _ = self.grid(launch, schedule)
        return _loads(launch, (schedule.tile_x, schedule.tile_y), across * down)

    def defines(self, launch: PolarizationLaunch, schedule: Schedule) -> Defines:
        sizes = {"TILE_X": launch.step * schedule.tile_x, "TILE_Y": launch.step * schedule.tile_y}
        return {**super().defines(launch, schedule), **sizes}


#: What the kernels but `tile` and `transform` can make.
_PIXELS = {"intensity", "dolp", "aolp", "preview"}
_VECTORS = {*_PIXELS, *ANGLE_IMAGES, "stokes", *SSIM_INPUTS}
_MONO_HALF = {*_VECTORS, *COMPONENT_PRODUCTS, *PLANES}


def _is_plain_half(launch: PolarizationLaunch) -> bool:
    """Return whether a launch is of half resolution, bilinear or with every angle at its own site."""
    return launch.half and (not launch.co_sited or launch.demosaic == "bilinear")


def _is_mono_half(launch: PolarizationLaunch) -> bool:
    is_kind = not launch.is_color and not launch.calibrated and _is_plain_half(launch)
    return is_kind and _MONO_HALF.issuperset(launch.dtypes) and launch.width >= 16 and launch.height >= 2


def _is_mono_half_calibrated(launch: PolarizationLaunch) -> bool:
    """Return whether superpixels of the calibration begin at even rows and columns."""
    is_kind = not launch.is_color and launch.calibrated and launch.phase == (0, 0) and _is_plain_half(launch)
    return is_kind and _MONO_HALF.issuperset(launch.dtypes) and launch.width % 8 == 0 and launch.height % 2 == 0


def _is_mono_full(launch: PolarizationLaunch) -> bool:
    """Return whether a launch makes images of bytes in half precision from 8-bit pixels."""
    is_kind = not launch.is_color and not launch.calibrated and not launch.half
    is_bytes = launch.raw_format == "u8" and launch.half_precision and {*launch.dtypes.values()} == {"uint8"}
    is_simple = launch.demosaic in ("bilinear", "gradient") and _PIXELS.issuperset(launch.dtypes)
    return is_kind and is_bytes and is_simple and launch.width % 16 == 0


def _is_color_strip(launch: PolarizationLaunch) -> bool:
    """Return whether a launch uses Malvar-He-Cutler, with red at the same place of all four lattices."""
    is_kind = launch.is_color and not launch.calibrated and _is_plain_half(launch) and launch.debayer == "mhc"
    is_stored = _VECTORS.issuperset(launch.dtypes)
    return is_kind and is_stored and launch.width % 8 == 0 and len(set(red_sites(launch.sensor).values())) == 1


def _interleaved(launch: PolarizationLaunch, schedule: Schedule) -> int:
    """Return the bytes of a row of interleaved pixels of each thread of `mono_half`."""
    sizes = (3 * np.dtype(launch.dtypes[name]).itemsize for name in ("preview", "stokes") if name in launch.dtypes)
    return schedule.threads * schedule.tile_x * max(sizes, default=0)


def _row_of_preview(launch: PolarizationLaunch, schedule: Schedule) -> int:
    """Return the bytes of a row of 512 pixels of each warp of `mono_full`."""
    return schedule.threads // WARP * 512 * 3 * ("preview" in launch.dtypes)


#: Raw lines of a color ring.
_RING_LINES = 12
#: Lanes of a warp of a strip that store what they make, by pixels of a lane along x.
_STRIP_LANES = {4: 30, 2: 28}


def _ring(launch: PolarizationLaunch, schedule: Schedule) -> int:
    """Return the bytes of `struct Shared` of `color_strip`: rings of lines, and images of bytes of two rows."""
    pair = 4 if launch.half_precision else 8
    ring = round_up(16 + _RING_LINES * WARP * schedule.tile_x * pair + 2 * pair, 16)
    angles = 4 * any(name in ANGLE_IMAGES for name in launch.dtypes)
    staged = max(1, angles + (launch.dtypes.get("intensity") == "uint8") + ("preview" in launch.dtypes))
    return schedule.threads // WARP * round_up(ring + staged * 2 * {4: 392, 2: 192}[schedule.tile_x], 16)


def _mono_full_resident(launch: PolarizationLaunch, device: Device) -> int:
    """Return the launch bound of `mono_full`."""
    if device.capability < 90:
        return resident_threads(device)
    is_plain = launch.demosaic == "bilinear" and "preview" not in launch.dtypes
    return 1024 if is_plain else 768


class _ColorStrip(ColumnKernel):
    """`color_strip`, whose threads take four pixels in half from sm_90 on, else two; floats need sm_80."""

    def schedules(self, launch: PolarizationLaunch, device: Device) -> Iterator[Schedule]:
        if not launch.half_precision and device.capability < 80:
            return iter(())
        pixels = 4 if launch.half_precision and device.capability >= 90 else 2
        return (row for row in super().schedules(launch, device) if row.tile_x == pixels)


#: The kernels, of which the first one that can do a launch and has a schedule that fits the device does it.
KERNELS: Tuple[Kernel[PolarizationLaunch], ...] = (
    ColumnKernel(
        "mono_half",
        _is_mono_half,
        (4, 8),
        (64, 128, 160),
        (2, 4),
        _interleaved,
        resident=lambda *_: 640,
    ),
    ColumnKernel(
        "mono_half_calibrated",
        _is_mono_half_calibrated,
        (4,),
        (32, 64, 128),
        (4, 8, 16, 32),
        lambda *_: 0,
        _STRIP_LANES.__getitem__,
    ),
    ColumnKernel(
        "mono_full",
        _is_mono_full,
        (16,),
        (32, 64, 128),
        (2,),
        _row_of_preview,
        resident=_mono_full_resident,
    ),
    _ColorStrip(
        "color_strip",
        _is_color_strip,
        (4, 2),
        (32, 64, 128),
        (4, 8, 16),
        _ring,
        _STRIP_LANES.__getitem__,
        lambda _, device: 512 if device.capability >= 80 else 640,
    ),
    TileKernel("tile"),
)
