"""What the polarization launch moves and computes, and how long that takes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable, Dict

from polar_pipeline.cuda.model.calibrated_cost import calibrated_half_slots
from polar_pipeline.cuda.model.cost import (
    BUSY_WARPS,
    ISSUE_SLOTS,
    REREAD_SHARE,
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
    round_up,
    run_units,
    shared_bytes,
    unit_count,
    unit_size,
)
from polar_pipeline.cuda.model.registers import registers, spills_to_keep_warps
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import KERNELS
from polar_pipeline.cuda.model.tile_cost import conflict_clocks, noise_slots, product_slots, tile_stages
from polar_pipeline.cuda.model.work import PolarizationWork

#: Issue slots of an H200 in passes of `mono_adaptive`, for a row of two columns of both halves of a tile, and for those
#: that a run of rows begins with, counted in the code for sm_90; and of a thread for loading and all else, by an H200's
#: counters.
_MONO_ADAPTIVE = {"gradients": (123, 90), "edges": (49, 99), "slide": (261, 181), "angles": (210, 83)}
_MONO_ADAPTIVE_THREAD = 360
#: Resident warps with which waiting takes as long as issuing, by kernel, if not `cost.BUSY_WARPS`.
_BUSY_WARPS_OF = {"color_strip": 6.64, "mono_full": 10.3, "mono_adaptive": 12.7, "mono_half_bytes": 6.16}
#: Likewise in `tile`, by method: the more instructions of a thread are independent, the fewer.
_BUSY_WARPS_OF_TILE = {
    "at half resolution": 6.95,
    "bilinear": 0.613,
    "gradient": 2.49,
    "adaptive": 12.7,
    "adaptive in float": 9.15,
    "colour gradient in float": 11.8,
}
#: Microseconds of a block of `tile` in which it issues nothing, waiting for what it loads and at barriers.
_BLOCK_LATENCY_US = 0.988
#: Clocks by which a launch of `tile` takes longer for one that it loses in shared memory: others go on meanwhile.
_CONFLICT_SHARE = {"half": 0.176, "float": 0.193}
#: Share of what threads load again that is not in their multiprocessor's own cache: neighbours in a line have it there.
_UNCACHED_SHARE = {"mono_half": 0.0768, "mono_half_bytes": 0.0996, "mono_full": 0.205, "color_half": 0.511}
#: Microseconds that the slowest warp of a launch of `mono_half` takes for invalid superpixels when all others are done,
#: by row of a thread; measured on pictures with highlights.
_INVALID_ROW_US = 0.687
#: Issue slots of a thread that keeps values in local memory, against one that does not: it waits for them.
_SPILL_SHARE = 1.28
#: What a sector of memory costs that is stored in two pieces, against reading it again: 1 to 2 % of a launch.
_PARTED_SHARE = 0.06
#: What a sector of memory, of so many bytes, costs that two blocks with tiles store parts of: as much as so many bytes,
#: with tiles of 32 rows; the longer a block takes, the likelier the first part has left the cache before the second.
_SECTOR_BYTES, _PARTED_SECTOR_BYTES = 32, 109.0


def _product_slots(work: PolarizationWork) -> float:
    """Issue slots of an H200 per output pixel for all outputs, in pairs of half."""
    noise = noise_slots(work.sensor.is_color) if work.uses_noise else 0.0
    return product_slots(work.outputs, work.sensor.is_color) + noise


def _calibrated_half_stages(work: PolarizationWork, schedule: Schedule) -> Dict[str, float]:
    """Issue slots of an H200 by stage of `mono_half_calibrated`, with the lanes that store nothing."""
    made = WARP * unit_count(work, schedule) * schedule.tile_x * schedule.rows
    return {"mono_half_calibrated": calibrated_half_slots(work, schedule), "products": _product_slots(work) * made}


def _mono_adaptive_stages(work: PolarizationWork, schedule: Schedule) -> Dict[str, float]:
    """Issue slots of an H200 by stage of `mono_adaptive`."""
    x, y, units = schedule.tile_x, schedule.tile_y // 2, unit_count(work, schedule)
    runs = -(-(y + 2) // schedule.rows)
    rows = {"gradients": y + 4, "edges": y, "slide": y + 2, "angles": y}
    threads = round_up(run_units(schedule), WARP)  # with those that have no pair of columns
    slots = {name: threads * (row * rows[name] / runs + start) for name, (row, start) in _MONO_ADAPTIVE.items()}
    slots["load"] = _MONO_ADAPTIVE_THREAD * schedule.threads
    slots["products"] = _product_slots(work) * 2 * x * y
    (effort,) = KERNELS["mono_adaptive"].effort
    return {f"mono_adaptive {name}": effort * units * number for name, number in slots.items()}


def _executed_stages(work: PolarizationWork, schedule: Schedule) -> Dict[str, float]:
    """Issue slots of an H200 of a kernel that marches down lines, which is one stage."""
    kernel = KERNELS[schedule.kernel]
    effort = kernel.effort[kernel.windows.index(schedule.window)]
    return {executed_stage(work, schedule): effort * executed_slots(work, schedule)}


#: Kernel -> its own stages, where it is not one stage of `executed.py`.
_STAGES: Dict[str, Callable[[PolarizationWork, Schedule], Dict[str, float]]] = {
    "mono_half_calibrated": _calibrated_half_stages,
    "mono_adaptive": _mono_adaptive_stages,
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
    if spills_to_keep_warps(work, schedule, device):
        slots *= _SPILL_SHARE
    return Cost(
        read_bytes(work, work.width * work.height),
        _reread_bytes(work, schedule, unit_count(work, schedule)) + _parted_bytes(work, schedule),
        output_bytes(work),
        slots,
        len(work.outputs),
    )


def _reread_bytes(work: PolarizationWork, schedule: Schedule, units: int) -> float:
    """Bytes that so many units load, halo included, but not those of the halo that a multiprocessor's cache has."""
    own = units * read_bytes(work, output_step(work) ** 2 * math.prod(unit_size(schedule)))
    loaded = read_bytes(work, units * loaded_pixels(work, schedule))
    return own + _UNCACHED_SHARE.get(schedule.kernel, 1.0) * (loaded - own)


def _parted_bytes(work: PolarizationWork, schedule: Schedule) -> float:
    """Bytes that count as moved again since sectors of memory are stored in two parts.

    Threads of `mono_half` store 32 bytes of a float image as two pieces. Blocks of `tile` and `mono_adaptive` share the
    sectors in which a line of one ends and that of the next begins.
    """
    if schedule.kernel in ("tile", "mono_adaptive"):
        sector = _PARTED_SECTOR_BYTES * math.sqrt(schedule.tile_y / 32)
        return sector / REREAD_SHARE * _shared_sectors(work, schedule)
    floats = tuple(row for row in work.outputs if row[1] == "float32" and row[0] != "stokes")
    is_parted = schedule.kernel == "mono_half" and schedule.tile_x == 8
    return _PARTED_SHARE * output_bytes(replace(work, outputs=floats)) if is_parted else 0.0


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
    )
    found = predict_launch(cost(work, schedule, device), footprint, device, frames)
    if schedule.kernel != "mono_half":
        return found
    return replace(found, waiting_us=found.waiting_us + _INVALID_ROW_US * schedule.rows)


def _busy_warps(work: PolarizationWork, schedule: Schedule) -> float:
    """Resident warps with which waiting takes as long as issuing."""
    if schedule.kernel != "tile":
        return _BUSY_WARPS_OF.get(schedule.kernel, BUSY_WARPS)
    if is_adaptive(work):
        return _BUSY_WARPS_OF_TILE["adaptive" + " in float" * (not work.half_precision)]
    if work.sensor.is_color and not work.half_precision and work.demosaic == "gradient":
        return _BUSY_WARPS_OF_TILE["colour gradient in float"]
    return _BUSY_WARPS_OF_TILE["at half resolution" if work.half else work.demosaic]


def _whole_tile_bytes(work: PolarizationWork, schedule: Schedule) -> float:
    """Bytes of whole tiles or strips, as the roofline counts them."""
    (x, y), (height, width) = unit_size(schedule), work.output_size
    read, written = read_bytes(work, output_step(work) ** 2 * x * y), output_bytes(work) / (height * width) * x * y
    reread = max(read, _reread_bytes(work, schedule, 1))
    return unit_count(work, schedule) * (read + REREAD_SHARE * (reread - read) + written)
