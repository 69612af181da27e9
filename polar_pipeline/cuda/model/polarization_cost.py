"""What the polarization launch moves and computes, and how long that takes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable, Collection, Dict

from polar_pipeline.cuda.model.calibrated_cost import calibrated_half_slots
from polar_pipeline.cuda.model.cost import (
    BUSY_WARPS,
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
    VALUES_PER_PIXEL,
    WINDOW_LINES,
    grid,
    halos,
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
from polar_pipeline.cuda.model.registers import registers
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import ANGLE_IMAGES, KERNELS
from polar_pipeline.cuda.model.work import PolarizationWork

#: Issue slots of an H200 per pixel and stage in `tile`, in pairs of half: fitted to its times over sensors, methods,
#: formats, tiles and numbers of resident warps (`benchmarks/model.py`). Demosaicking counts per raw pixel (and channel,
#: where so said). `SHARES` says which pipes take them, and how many more a device needs.
OPERATIONS = {
    "load u8": 11.1,  # load, unpack, scale, look for saturation, store to shared memory
    "load u16": 22.3,
    "load 12p": 19.6,
    "load 12packed": 20.2,
    # counted in the code for sm_90, times what was fitted of the counts above; not measured
    "load u8 calibrated": 33,
    "load u16 calibrated": 34,
    "load 12p calibrated": 35,
    "load 12packed calibrated": 36,
    "mono bilinear": 4.66,  # per channel
    "mono gradient": 10.8,  # per channel
    "adaptive gradients": 37.9,  # of one channel: gradients for the switch
    "adaptive edges": 11.1,  # of one channel: the switch
    "adaptive slide": 66.5,  # per channel: first stage
    "mono adaptive": 61,  # per channel: second stage
    "color bilinear": 28.5,
    "color mhc": 16,
    "color weighted": 39,
    "co-site": 4.03,  # per output pixel and channel
    "stokes": 26.2,  # per output pixel: S0, S1, S2, length and direction
    "intensity": 2.3,  # per output pixel and channel
    "preview": 10.7,  # per output pixel
    # counted in the code for sm_87, not measured: standard deviations, and the gains that they need for each channel
    "noise": 70,
    "noise gains": 50,
    "store": 3.69,  # per output pixel and channel stored
    "thread": 228,  # per thread of a block, for what it does before and after its pixels
}
#: What a run of rows of ADR costs before its first result, in rows, by stage: it fills its window.
_ADAPTIVE_START = {"adaptive gradients": 0.7, "adaptive edges": 1.8, "adaptive slide": 1.1}
#: Issue slots of an H200 in passes of `mono_adaptive`, for a row of two columns of both halves of a tile, and for those
#: that a run of rows begins with; counted in the code for sm_90. Loading: of four columns of both halves.
_MONO_ADAPTIVE = {"gradients": (123, 90), "edges": (49, 99), "slide": (261, 181), "angles": (210, 83)}
_MONO_ADAPTIVE_LOAD = 32
#: What an idle thread costs of a busy one: a block waits for its slowest thread, and other blocks fill the gap.
IDLE_SHARE = 0.274
#: The same in the passes of ADR, whose threads each go down a run of rows.
_RUN_IDLE_SHARE = 0.408
#: Resident warps with which waiting takes as long as issuing, by kernel, if not `cost.BUSY_WARPS`. In `tile`, ADR of a
#: mono sensor in float has more independent instructions than all else.
_BUSY_WARPS_OF = {"color_strip": 7.1, "mono_full": 14.4, "tile, mono ADR in float": 15.1}
#: Share of what threads load again that is not in their multiprocessor's own cache: neighbours in a line have it there.
_UNCACHED_SHARE = {"mono_half": 0.193}
#: Microseconds that the slowest warp of a launch of `mono_half` takes for invalid superpixels when all others are done,
#: by row of a thread; measured on pictures with highlights.
_INVALID_ROW_US = 0.807
#: What a sector of memory costs that is stored in two pieces, against reading it again: 1 to 2 % of a launch.
_PARTED_SHARE = 0.06


def _stages(work: PolarizationWork, schedule: Schedule) -> Dict[str, float]:
    """Issue slots of an H200 by stage of `tile`, in pairs of half."""
    mono, _ = halos(work)
    step, channels = output_step(work), 3 if work.sensor.is_color else 1
    x, y = unit_size(schedule)
    units = unit_count(work, schedule)

    def waited(pixels: int, grain: int, idle_share: float = IDLE_SHARE) -> float:
        """Pixels of a stage by whole warps, `grain` to a thread, and part of what idle warps could have made."""
        busy = round_up(pixels, grain * WARP)
        return units * (busy + idle_share * (round_up(pixels, grain * schedule.threads) - busy))

    mosaic = (step * x + 2 * round_up(mono, 4)) * (step * y + 2 * mono)
    made = waited(x * y, 4)
    load = f"load {work.raw_format}" + (" calibrated" if work.calibrated else "")
    found = {load: OPERATIONS[load] * waited(loaded_pixels(work, schedule), 8 if work.calibrated else 4)}
    if work.sensor.is_color:
        name = f"color {work.debayer}"
        found[name] = OPERATIONS[name] * waited(mosaic, 16 if work.debayer == "mhc" else 4)
    if is_adaptive(work):  # in runs of rows, as many in every stage
        width, height, runs = step * x, step * y, -(-(step * y + 2) // schedule.rows)
        passes = {
            "adaptive gradients": (width + 4, height + 4, 1),
            "adaptive edges": (width, height, 1),
            "adaptive slide": (width + 4, height + 2, channels),
        }
        for name, (across, down, images) in passes.items():
            rows = -(-down // runs) + _ADAPTIVE_START[name]
            found[name] = OPERATIONS[name] * 2 * rows * waited(images * runs * across // 2, 1, _RUN_IDLE_SHARE)
    # adaptive at half resolution takes two pixels of one channel to a thread, all else four of all channels
    values = waited(channels * x * y, 2) if is_adaptive(work) and work.half else channels * made
    if not work.half or (work.co_sited and work.demosaic != "bilinear"):  # else moving to the centre is all
        found[f"mono {work.demosaic}"] = OPERATIONS[f"mono {work.demosaic}"] * step**2 * values
    if work.half and work.co_sited:
        found["co-site"] = OPERATIONS["co-site"] * values
    products = _product_slots(work) * made
    return {**found, "products": products, "thread": OPERATIONS["thread"] * units * schedule.threads}


def product_slots(names: Collection[str], is_color: bool) -> float:
    """Issue slots of an H200 per output pixel for some outputs in `store_products`, in pairs of half."""
    channels = 3 if is_color else 1
    per_pixel = OPERATIONS["store"] * sum(VALUES_PER_PIXEL[name][is_color] for name in names)
    per_pixel += OPERATIONS["stokes"] * any(name not in ("intensity", *ANGLE_IMAGES) for name in names)
    per_pixel += OPERATIONS["intensity"] * channels * ("intensity" in names)
    return per_pixel + OPERATIONS["preview"] * ("preview" in names)


def _product_slots(work: PolarizationWork) -> float:
    """Likewise for all outputs of a work."""
    channels = 3 if work.sensor.is_color else 1
    noise = OPERATIONS["noise"] + OPERATIONS["noise gains"] * channels
    return product_slots(work.dtypes, work.sensor.is_color) + noise * work.uses_noise


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
    slots["load"] = _MONO_ADAPTIVE_LOAD * (x + 8) * (y + 8) / 4
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
    "tile": _stages,
}


#: Kernels that are one stage of `executed.py`.
COUNTED = tuple(kernel for kernel in KERNELS if kernel not in _STAGES)


def cost(work: PolarizationWork, schedule: Schedule, device: Device) -> Cost:
    """What a schedule moves and computes for one frame."""
    return Cost(
        read_bytes(work, work.width * work.height),
        _reread_bytes(work, schedule, unit_count(work, schedule)) + _parted_bytes(work, schedule),
        output_bytes(work),
        weigh(
            _STAGES.get(schedule.kernel, _executed_stages)(work, schedule),
            computes_in_halves(work, schedule),
            device,
        ),
        len(work.outputs),
    )


def _reread_bytes(work: PolarizationWork, schedule: Schedule, units: int) -> float:
    """Bytes that so many units load, halo included, but not those of the halo that a multiprocessor's cache has."""
    own = units * read_bytes(work, output_step(work) ** 2 * math.prod(unit_size(schedule)))
    loaded = read_bytes(work, units * loaded_pixels(work, schedule))
    return own + _UNCACHED_SHARE.get(schedule.kernel, 1.0) * (loaded - own)


def _parted_bytes(work: PolarizationWork, schedule: Schedule) -> float:
    """Bytes that count as moved again since threads of `mono_half` store 32 bytes of a float image as two pieces."""
    floats = tuple(row for row in work.outputs if row[1] == "float32" and row[0] != "stokes")
    is_parted = schedule.kernel == "mono_half" and schedule.tile_x == 8
    return _PARTED_SHARE * output_bytes(replace(work, outputs=floats)) if is_parted else 0.0


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
    )
    found = predict_launch(cost(work, schedule, device), footprint, device, frames)
    if schedule.kernel != "mono_half":
        return found
    return replace(found, waiting_us=found.waiting_us + _INVALID_ROW_US * schedule.rows)


def _busy_warps(work: PolarizationWork, schedule: Schedule) -> float:
    """Resident warps with which waiting takes as long as issuing."""
    is_mono_float = not work.sensor.is_color and not work.half_precision
    part = ", mono ADR in float" if schedule.kernel == "tile" and is_adaptive(work) and is_mono_float else ""
    return _BUSY_WARPS_OF.get(schedule.kernel + part, BUSY_WARPS)


def _whole_tile_bytes(work: PolarizationWork, schedule: Schedule) -> float:
    """Bytes of whole tiles or strips, as the roofline counts them."""
    (x, y), (height, width) = unit_size(schedule), work.output_size
    read, written = read_bytes(work, output_step(work) ** 2 * x * y), output_bytes(work) / (height * width) * x * y
    reread = max(read, _reread_bytes(work, schedule, 1))
    return unit_count(work, schedule) * (read + REREAD_SHARE * (reread - read) + written)
