"""The geometry of the polarization launch: tiles, halos, blocks, bytes, and the definitions that compile them in."""

from __future__ import annotations

from typing import Dict, Iterable, Tuple

import numpy as np

from polar_pipeline.cuda.model.device import WARP
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import ANGLE_IMAGES
from polar_pipeline.cuda.model.work import OUTPUTS, PolarizationWork
from polar_pipeline.products import PRODUCTS

#: WINDOW as the kernels read it.
WINDOWS = {"registers": 0, "ring": 1, "tile": 2, "strip": 3}
#: Reach of a method beyond a pixel, in raw pixels.
_MONO_HALO = {"bilinear": 1, "gradient": 2, "adaptive": 4}
_COLOR_HALO = {"bilinear": 2, "mhc": 4, "weighted": 6}
#: Values per pixel of outputs that are no products: (mono, colour).
VALUES_PER_PIXEL = {
    "sums": (2, 2),
    "s0": (1, 1),
    "differences": (2, 6),
    "means": (1, 3),
    "excesses": (1, 3),
    **{name: PRODUCTS[name].channels for name in OUTPUTS if name in PRODUCTS},
}
#: Bytes of a calibration for a raw pixel.
CORRECTION_BYTES = 4
#: Raw lines in use in the ring: six of each row parity, for Malvar-He-Cutler on two rows; it moves on by four.
WINDOW_LINES = 12
RING_STEP = 4
#: Lanes of a warp of `color_strip` that store what they make, by pixels of a lane along x; the others are neighbours.
STRIP_LANES = {4: 30, 2: 28}


def round_up(number: int, step: int) -> int:
    """The smallest multiple of `step` that is not below a number."""
    return -(-number // step) * step


def halos(work: PolarizationWork) -> Tuple[int, int]:
    """Reach of (polarizer interpolation, debayering) in raw pixels."""
    mono = 0 if work.half and not work.co_sited else _MONO_HALO[work.demosaic]
    return mono, _COLOR_HALO[work.debayer] if work.sensor.is_color else 0


def is_adaptive(work: PolarizationWork) -> bool:
    """Whether the launch runs the adaptive demosaic; angles at their own sites need no interpolation."""
    return work.demosaic == "adaptive" and halos(work)[0] > 0


def output_step(work: PolarizationWork) -> int:
    """Raw pixels from one output pixel to the next."""
    return 2 if work.half else 1


def needs_all_angles(work: PolarizationWork) -> bool:
    """Whether other products than images of angles are wanted."""
    return any(name not in ANGLE_IMAGES for name in work.dtypes)


def unit_size(schedule: Schedule) -> Tuple[int, int]:
    """Output pixels along x and along y of what shares its loads: a block, or a warp with a register window."""
    if schedule.window == "tile":
        return schedule.tile_x, schedule.tile_y
    return schedule.tile_x * _lanes(schedule), schedule.rows


def _lanes(schedule: Schedule) -> int:
    """Threads that share their loads and store what they make; 1 where a block counts as one."""
    return {"registers": WARP, "strip": STRIP_LANES.get(schedule.tile_x, WARP)}.get(schedule.window, 1)


def _is_numbered_on(work: PolarizationWork, schedule: Schedule) -> bool:
    """Whether threads follow each other from row to row, so that warps begin anywhere in one."""
    return schedule.window == "strip" or (schedule.window == "registers" and not work.sensor.is_color)


def unit_count(work: PolarizationWork, schedule: Schedule) -> int:
    """How many of those an output has; where warps begin anywhere in a row, those of complete blocks."""
    height, width = work.output_size
    x, y = unit_size(schedule)
    if _is_numbered_on(work, schedule):
        warps = -(-(-(-width // schedule.tile_x) * -(-height // y)) // _lanes(schedule))
        return round_up(warps, schedule.threads // WARP)
    return -(-width // x) * -(-height // y)


def grid(work: PolarizationWork, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
    """Blocks along x, y and z; z is the frame. Where not a tile, they are numbered along x, row by row.

    Threads of a mono kernel and of `color_strip` follow each other from row to row.
    """
    height, width = work.output_size
    x, y = unit_size(schedule)
    across, down = -(-width // x), -(-height // y)
    if schedule.window == "tile":
        return across, down, frames
    warps = schedule.threads // WARP
    if not _is_numbered_on(work, schedule):
        return -(-across // warps) * down * (1 if needs_all_angles(work) else 2), 1, frames
    return unit_count(work, schedule) // warps, 1, frames


def loaded_pixels(work: PolarizationWork, schedule: Schedule) -> int:
    """Raw pixels that a unit loads; halos are whole quads along x, and with a correction superpixels along y."""
    (x, y), reach, step = unit_size(schedule), halos(work), output_step(work)
    halo_y = round_up(sum(reach), 2) if work.calibrated else sum(reach)
    return (step * x + 2 * sum(round_up(halo, 4) for halo in reach)) * (step * y + 2 * halo_y)


def _shared_tile(work: PolarizationWork, schedule: Schedule) -> int:
    """`struct Shared` of `kernels/tile.cu`, which asserts that it fits."""
    mono, color = halos(work)
    step, channels, pixel = output_step(work), 3 if work.sensor.is_color else 1, 2 if work.half_precision else 4
    x, y = step * schedule.tile_x, step * schedule.tile_y
    edge = round_up(mono, 4) + round_up(color, 4)
    mosaic = channels * (y + 2 * mono) * (x + 2 * round_up(mono, 4))
    raw = (y + 2 * (mono + color)) * (x + 2 * edge) * (0 if not color else 2 if work.debayer == "weighted" else 1)
    stage = channels * (2 * (y + 4) * (x + 8) + 4 * y * x) + y * x if is_adaptive(work) else 0
    saturated = round_up((y + 2) * (x // 4 + 2), 4)
    return round_up(pixel * mosaic + max(4, pixel * max(raw, stage)) + saturated + 8, 16)


def _shared_staging(work: PolarizationWork, schedule: Schedule) -> int:
    """Staging memory of each warp.

    `kernels/mono_full.cu`: a row of 512 pixels of
    every output of more than a byte a pixel. `kernels/mono_half.cu`: a row of interleaved pixels.
    """
    if schedule.kernel == "mono_full":
        kinds = (
            np.dtype(dtype).itemsize if dtype != "uint8" else 3 * (name == "preview") for name, dtype in work.outputs
        )
        return schedule.threads // WARP * 512 * sum(kinds)
    interleaved = {"preview", "stokes"}.intersection(work.dtypes)
    sizes = (3 * np.dtype(work.dtypes[name]).itemsize for name in interleaved)
    return schedule.threads * schedule.tile_x * max(sizes, default=0)


def _shared_strip(work: PolarizationWork, schedule: Schedule) -> int:
    """`struct Shared` of `kernels/color_strip.cu`: a ring of lines for each warp, and images of bytes of two rows."""
    pair = 4 if work.half_precision else 8
    ring = round_up(16 + WINDOW_LINES * WARP * schedule.tile_x * pair + 2 * pair, 16)
    angles = 4 * any(name in ANGLE_IMAGES for name in work.dtypes)
    staged = max(1, angles + (work.dtypes.get("intensity") == "uint8") + ("preview" in work.dtypes))
    return schedule.threads // WARP * round_up(ring + staged * 2 * {4: 392, 2: 192}[schedule.tile_x], 16)


#: Kernels without shared memory.
_WITHOUT_SHARED = ("mono_half_calibrated",)
_SHARED = {"tile": _shared_tile, "registers": _shared_staging, "strip": _shared_strip}


def shared_bytes(work: PolarizationWork, schedule: Schedule) -> int:
    """Dynamic shared memory of a block, in bytes."""
    if schedule.kernel in _WITHOUT_SHARED:
        return 0
    return _SHARED[schedule.window](work, schedule)


def raw_bytes(work: PolarizationWork, pixels: int) -> float:
    """Bytes of raw pixels; not rounded, so that predicted times grow with size."""
    return pixels * {"u8": 1, "u16": 2}.get(work.raw_format, 1.5)


def read_bytes(work: PolarizationWork, pixels: int) -> float:
    """Bytes of raw pixels and of what they are corrected by; likewise."""
    return raw_bytes(work, pixels) + (CORRECTION_BYTES * pixels if work.calibrated else 0)


def correction_bytes(work: PolarizationWork) -> int:
    """Bytes of the calibration for one frame; 0 without one."""
    return CORRECTION_BYTES * work.width * work.height if work.calibrated else 0


def image_bytes(size: Tuple[int, int], outputs: Iterable[Tuple[str, str]], is_color: bool) -> int:
    """Bytes of some outputs, as (name, element type), of (height, width)."""
    values = sum(VALUES_PER_PIXEL[name][is_color] * np.dtype(dtype).itemsize for name, dtype in outputs)
    return size[0] * size[1] * values


def output_bytes(work: PolarizationWork) -> int:
    """Bytes that a launch stores for one frame."""
    return image_bytes(work.output_size, work.outputs, work.sensor.is_color)


def tile_grid(size: Tuple[int, int], schedule: Schedule, frames: int) -> Tuple[int, int, int]:
    """Blocks along x, y, z for an output of (height, width): tiles are numbered along x, row by row; z is the frame."""
    return -(-size[1] // schedule.tile_x) * -(-size[0] // schedule.tile_y), 1, frames


def schedule_defines(work: PolarizationWork, schedule: Schedule) -> Dict[str, int]:
    """The preprocessor definitions that compile a schedule into its kernel; tiles count raw pixels there.

    What a schedule leaves at 0 has no meaning with its window, and is left out.
    """
    step = output_step(work) if schedule.window == "tile" else 1
    sizes = {
        "THREADS": schedule.threads,
        "TILE_X": step * schedule.tile_x,
        "TILE_Y": step * schedule.tile_y,
        "ROWS": schedule.rows,
        "LINES": schedule.lines,
    }
    window = {"WINDOW": WINDOWS[schedule.window], "SHARED_BYTES": shared_bytes(work, schedule)}
    if schedule.kernel != "tile":  # compiled for one size: lines become immediate offsets
        window.update(WIDTH=work.width, HEIGHT=work.height, FULL_SCALE=work.full_scale)
    return {**window, **{name: size for name, size in sizes.items() if size}}
