"""What the polarization launch moves and computes, and how long that takes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable, Dict, Iterator

from polar_pipeline.cuda.model.calibrated_cost import calibrated_half_slots
from polar_pipeline.cuda.model.cost import (
    BUSY_WARPS,
    ISSUE_SLOTS,
    REREAD_SHARE,
    TAIL_SHARE,
    Cost,
    LaunchFootprint,
    Prediction,
    predict_launch,
    weigh,
)
from polar_pipeline.cuda.model.device import WARP, Device
from polar_pipeline.cuda.model.executed import computes_in_halves, executed_slots, executed_stage
from polar_pipeline.cuda.model.geometry import (
    RING_STEP,
    WINDOW_LINES,
    grid,
    image_bytes,
    is_adaptive,
    loaded_pixels,
    output_bytes,
    output_step,
    raw_bytes,
    read_bytes,
    shared_bytes,
    unit_count,
    unit_size,
)
from polar_pipeline.cuda.model.registers import registers, spills_to_keep_warps
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import ANGLE_IMAGES, KERNELS
from polar_pipeline.cuda.model.tile_cost import conflict_clocks, noise_slots, product_slots, tile_stages
from polar_pipeline.cuda.model.work import PAIRS, PolarizationWork

#: Resident warps with which waiting takes as long as issuing, by kernel, if not `cost.BUSY_WARPS`.
_BUSY_WARPS_OF = {
    "color_strip": 5.31,
    "mono_full": 9.9,
}
#: Likewise in `tile`, by method: the more instructions of a thread are independent, the fewer.
_BUSY_WARPS_OF_TILE = {
    "at half resolution": 11.4,
    "bilinear": 9.14,
    "gradient": 10.2,
    "adaptive": 12.8,
    "adaptive in float": 9.89,
    "colour gradient in float": 16.3,
}
#: Microseconds that a frame takes longer than its bytes and instructions, however large it is, by how a kernel goes
#: through it.
_FRAME_US = {"tiles": 0.223, "lines": 0.0702}
#: Share of the time of a round of blocks that passes while a launch begins and ends, by kernel, if not
#: `cost.TAIL_SHARE`; and in `tile`, by method.
_TAIL_OF = {
    "color_strip": 0.32,
    "mono_full": 0.244,
    "mono_half": 0.616,
}
_TAIL_OF_TILE = {"adaptive": 0.153, "bilinear": 0.538, "gradient": 0.473, "at half resolution": 0.743}
#: Microseconds of a block of `tile` in which it issues nothing, waiting for what it loads and at barriers.
_BLOCK_LATENCY_US = 0.591
#: Clocks by which a launch of `tile` takes longer for one that it loses in shared memory: others go on meanwhile.
_CONFLICT_SHARE = {"half": 0.224, "float": 0.247}
#: Share of what threads load again that is not in their multiprocessor's own cache: neighbours in a line have it there.
_UNCACHED_SHARE = {"mono_half": 0.136, "mono_full": 0.815}
#: Microseconds that the slowest warp of a launch of `mono_half` takes for invalid superpixels when all others are done,
#: by row of a thread; measured on pictures with highlights.
_INVALID_ROW_US = 0.0597
#: How many times as long as by their bytes and instructions launches of some kinds take: so measured, alike in all of
#: a kind, and not explained. Runs of rows of ADR are unrolled; long ones may not fit the instruction cache.
_MEASURED_SHARE = {
    "two sites of bytes": 0.926,
    "two sites of bytes, angles and others": 1.09,
    "two sites of more bits, angles only": 1.07,
    "own sites, one image": 1.07,
    "own sites, what SSIM compares": 0.946,
    "own sites, float images of angles and others": 1.23,
    "own sites, sixteen rows": 1.11,
    "own sites, four a thread, eight rows": 1.07,
    "eight columns of bytes": 1.01,
    "eight columns of more bits": 0.947,
    "mono, bilinear, in float": 0.961,
    "tiles, bilinear": 0.92,
    "tiles, gradient": 0.915,
    "tiles, at half resolution": 0.934,
    "mono, ADR at half resolution": 1.05,
    "ADR, runs of nine rows": 0.996,
    "ADR in float, runs of nine rows": 0.987,
    "ADR, runs of twelve rows": 1.04,
    "colour, ADR in tiles 72 wide": 0.935,
    "colour, ADR in float, runs of five rows": 0.913,
}
#: Likewise where threads keep values in local memory: they wait for them, and move them.
_SPILL_SHARE = 1.29
#: What a sector of memory costs that is stored in two pieces, against reading it again: 1 to 2 % of a launch.
_PARTED_SHARE = 0.06
#: What a byte of a colour image of an angle in float costs more in tiles, against one from memory; why is not known.
_ANGLES_SHARE = 1.23
#: What a sector of memory, of so many bytes, costs that two blocks with tiles store parts of: as much as so many bytes,
#: with tiles of 32 rows; the longer a block takes, the likelier the first part has left the cache before the second.
_SECTOR_BYTES, _PARTED_SECTOR_BYTES = 32, 106.0


def _product_slots(work: PolarizationWork) -> float:
    """Issue slots of an H200 per output pixel for all outputs, in pairs of half."""
    noise = noise_slots(work.sensor.is_color) if work.uses_noise else 0.0
    return product_slots(work.outputs, work.sensor.is_color) + noise


def _calibrated_half_stages(work: PolarizationWork, schedule: Schedule) -> Dict[str, float]:
    """Issue slots of an H200 by stage of `mono_half_calibrated`, with the lanes that store nothing."""
    made = WARP * unit_count(work, schedule) * schedule.tile_x * schedule.rows
    return {"mono_half_calibrated": calibrated_half_slots(work, schedule), "products": _product_slots(work) * made}


def _executed_stages(work: PolarizationWork, schedule: Schedule) -> Dict[str, float]:
    """Issue slots of an H200 of a kernel that marches down lines, which is one stage."""
    kernel = KERNELS[schedule.kernel]
    effort = kernel.effort[kernel.windows.index(schedule.window)]
    return {executed_stage(work, schedule): effort * executed_slots(work, schedule)}


#: Kernel -> its own stages, where it is not one stage of `executed.py`.
_STAGES: Dict[str, Callable[[PolarizationWork, Schedule], Dict[str, float]]] = {
    "mono_half_calibrated": _calibrated_half_stages,
    "tile": tile_stages,
}


#: Kernels that are one stage of `executed.py`.
COUNTED = tuple(kernel for kernel in KERNELS if kernel not in _STAGES)


def cost(work: PolarizationWork, schedule: Schedule, device: Device) -> Cost:
    """What a schedule moves and computes for one frame."""
    stages = _STAGES.get(schedule.kernel, _executed_stages)(work, schedule)
    slots = weigh(stages, computes_in_halves(work, schedule), device)
    if schedule.kernel == "tile":
        share = _CONFLICT_SHARE["half" if work.half_precision else "float"]
        slots += share * ISSUE_SLOTS * conflict_clocks(work, schedule)
    longer = math.prod(_MEASURED_SHARE[kind] for kind in _kinds(work, schedule))
    if spills_to_keep_warps(work, schedule, device):
        longer *= _SPILL_SHARE
    return Cost(
        read_bytes(work, work.width * work.height),
        _reread_bytes(work, schedule, unit_count(work, schedule)) + _parted_bytes(work, schedule),
        output_bytes(work),
        slots,
        len(work.outputs),
        longer,
    )


def _own_site_kinds(work: PolarizationWork, schedule: Schedule) -> Iterator[str]:
    """Those of `color_strip` at the angles' own sites."""
    angles = [row for row in work.outputs if row[0] in ANGLE_IMAGES]
    if len(work.dtypes) == 1 and "preview" not in work.dtypes and not angles:
        yield "own sites, one image"
    if not work.dtypes.keys().isdisjoint(PAIRS):
        yield "own sites, what SSIM compares"
    if any(dtype == "float32" for _, dtype in angles) and len(angles) < len(work.dtypes):
        yield "own sites, float images of angles and others"
    if schedule.rows == 16:
        yield "own sites, sixteen rows"
    if schedule.tile_x == 4 and schedule.rows == 8:
        yield "own sites, four a thread, eight rows"


def _kinds(work: PolarizationWork, schedule: Schedule) -> Iterator[str]:
    """Kinds of `_MEASURED_SHARE` that a launch is of."""
    is_bytes, is_color, in_float = work.raw_format == "u8", work.sensor.is_color, not work.half_precision
    if schedule.kernel == "color_strip" and not work.co_sited:
        yield from _own_site_kinds(work, schedule)
    if schedule.kernel == "color_strip" and schedule.tile_x == 2:
        angles = [name for name in work.dtypes if name in ANGLE_IMAGES]
        only = len(angles) == len(work.dtypes)
        if is_bytes and not angles:
            yield "two sites of bytes"
        elif is_bytes and not (only or in_float) and work.co_sited:
            yield "two sites of bytes, angles and others"
        elif only and not is_bytes:
            yield "two sites of more bits, angles only"
    elif schedule.kernel == "mono_half" and schedule.tile_x == 8:
        yield f"eight columns of {'bytes' if is_bytes else 'more bits'}"
    elif schedule.kernel == "tile" and is_adaptive(work):
        if schedule.rows >= 9:
            rows = "twelve" if schedule.rows >= 12 else "nine"
            yield f"ADR{' in float' * (in_float and rows == 'nine')}, runs of {rows} rows"
        if not is_color and work.half:
            yield "mono, ADR at half resolution"
        if is_color and in_float and schedule.rows == 5:
            yield "colour, ADR in float, runs of five rows"
        if is_color and not in_float and output_step(work) * schedule.tile_x == 72:
            yield "colour, ADR in tiles 72 wide"
    elif schedule.kernel == "tile":
        yield f"tiles, {_method(work)}"
        if not is_color and in_float and _method(work) == "bilinear":
            yield "mono, bilinear, in float"


def _reread_bytes(work: PolarizationWork, schedule: Schedule, units: int) -> float:
    """Bytes that so many units load, halo included, but not those of the halo that a multiprocessor's cache has."""
    own = units * read_bytes(work, output_step(work) ** 2 * math.prod(unit_size(schedule)))
    loaded = read_bytes(work, units * loaded_pixels(work, schedule))
    return own + _UNCACHED_SHARE.get(schedule.kernel, 1.0) * (loaded - own)


def _parted_bytes(work: PolarizationWork, schedule: Schedule) -> float:
    """Bytes that count as moved again since sectors of memory are stored in two parts.

    Threads of `mono_half` store 32 bytes of a float image as two pieces. Blocks of `tile` share the
    sectors in which a line of one ends and that of the next begins. Float images of angles in colour cost more there.
    """
    if schedule.kernel == "tile":
        sector = _PARTED_SECTOR_BYTES * math.sqrt(schedule.tile_y / 32)
        parted = sector * _shared_sectors(work, schedule)
        return (parted + _ANGLES_SHARE * _float_angle_bytes(work)) / REREAD_SHARE
    floats = tuple(row for row in work.outputs if row[1] == "float32" and row[0] != "stokes")
    is_parted = schedule.kernel == "mono_half" and schedule.tile_x == 8
    return _PARTED_SHARE * output_bytes(replace(work, outputs=floats)) if is_parted else 0.0


def _float_angle_bytes(work: PolarizationWork) -> int:
    """Bytes of colour images of angles in float."""
    angles = tuple(row for row in work.outputs if row[0] in ANGLE_IMAGES and row[1] == "float32")
    return output_bytes(replace(work, outputs=angles)) if work.sensor.is_color else 0


def _shared_sectors(work: PolarizationWork, schedule: Schedule) -> float:
    """Sectors of memory that two tiles which are neighbours along x store parts of."""
    (height, width), found = work.output_size, 0.0
    for output in work.outputs:
        pixel = image_bytes((1, 1), (output,), work.sensor.is_color)
        step = math.gcd(math.gcd(schedule.tile_x * pixel, width * pixel), _SECTOR_BYTES)
        found += height * (-(-width // schedule.tile_x) - 1) * (1 - step / _SECTOR_BYTES)
    return found


def _in_flight(work: PolarizationWork, schedule: Schedule) -> float:
    """Bytes that a block has on their way at a time."""
    if schedule.window == "ring":  # the lines that the window does not use
        return (schedule.lines - WINDOW_LINES) * raw_bytes(work, 2 * schedule.tile_x)
    if schedule.kernel == "mono_half_calibrated":  # the next row of superpixels
        return schedule.threads * read_bytes(work, 4 * schedule.tile_x)
    if schedule.window == "strip":  # the lines of the next step, and the two rows that this one stores
        height, width = work.output_size
        stored = 2 * output_bytes(work) / (height * width)
        return schedule.threads * schedule.tile_x * (raw_bytes(work, 2 * RING_STEP) + stored)
    if schedule.window == "registers":  # the rows of the next step, 16 bytes a load
        return schedule.threads * 16 * min(4, 2 * schedule.rows)
    return schedule.threads * 32


def predict(work: PolarizationWork, schedule: Schedule, device: Device, frames: int = 1) -> Prediction:
    """Predicted time of a launch."""
    blocks_x, blocks_y, _ = grid(work, schedule)
    footprint = LaunchFootprint(
        blocks_x * blocks_y,
        schedule.threads,
        registers(work, schedule, device),
        shared_bytes(work, schedule),
        _in_flight(work, schedule),
        float(schedule.window not in ("registers", "strip")),
        busy_warps=_busy_warps(work, schedule),
        whole_tile_bytes=_whole_tile_bytes(work, schedule),
        latency_us=_BLOCK_LATENCY_US if schedule.kernel == "tile" else 0.0,
        tail_share=_tail_share(work, schedule),
        frame_us=_FRAME_US["tiles" if schedule.window == "tile" else "lines"],
    )
    found = predict_launch(cost(work, schedule, device), footprint, device, frames)
    if schedule.kernel != "mono_half":
        return found
    return replace(found, waiting_us=found.waiting_us + _INVALID_ROW_US * schedule.rows)


def _method(work: PolarizationWork) -> str:
    """What tells the methods of `tile` apart in its constants."""
    if is_adaptive(work):
        return "adaptive"
    return "at half resolution" if work.half else work.demosaic


def _busy_warps(work: PolarizationWork, schedule: Schedule) -> float:
    """Resident warps with which waiting takes as long as issuing."""
    if schedule.kernel != "tile":
        return _BUSY_WARPS_OF.get(schedule.kernel, BUSY_WARPS)
    if is_adaptive(work):
        return _BUSY_WARPS_OF_TILE["adaptive" + " in float" * (not work.half_precision)]
    if work.sensor.is_color and not work.half_precision and work.demosaic == "gradient":
        return _BUSY_WARPS_OF_TILE["colour gradient in float"]
    return _BUSY_WARPS_OF_TILE[_method(work)]


def _tail_share(work: PolarizationWork, schedule: Schedule) -> float:
    """Share of the time of a round of blocks that passes while a launch begins and ends."""
    if schedule.kernel == "tile":
        return _TAIL_OF_TILE[_method(work)]
    return _TAIL_OF.get(schedule.kernel, TAIL_SHARE)


def _whole_tile_bytes(work: PolarizationWork, schedule: Schedule) -> float:
    """Bytes of whole tiles or strips, as the roofline counts them."""
    (x, y), (height, width) = unit_size(schedule), work.output_size
    read, written = read_bytes(work, output_step(work) ** 2 * x * y), output_bytes(work) / (height * width) * x * y
    reread = max(read, _reread_bytes(work, schedule, 1))
    return unit_count(work, schedule) * (read + REREAD_SHARE * (reread - read) + written)
