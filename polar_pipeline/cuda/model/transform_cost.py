"""How the launch of a geometry can be executed, what it moves and computes, and how long that takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, NoReturn, Tuple

import numpy as np

from polar_pipeline.cuda.model.cost import Cost, LaunchFootprint, Prediction, predict_launch, weigh
from polar_pipeline.cuda.model.device import Device, occupancy
from polar_pipeline.cuda.model.geometry import VALUES_PER_PIXEL, image_bytes, round_up, tile_grid
from polar_pipeline.cuda.model.registers import register_bound, resident_threads
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError
from polar_pipeline.cuda.model.search import with_enough_warps
from polar_pipeline.cuda.model.tile_cost import product_slots
from polar_pipeline.cuda.model.transform_work import TransformWork

#: Tiles of the output, and of one whose columns are rows of the planes: a warp takes 32 pixels that are neighbours
#: there.
_TILES = {False: ((32, 8), (32, 16), (32, 32), (64, 8), (64, 16)), True: ((8, 32), (16, 32), (32, 32))}
#: Stages of the instruction counts by whether samples lie between pixels, with issue slots of an H200 for a sample of
#: one colour; and what an output pixel takes before and after, but for its products. Counted, not fitted to its times.
_SAMPLES = {True: ("transform between", 43.0), False: ("transform pixels", 19.0)}
_PIXEL = 5.0
#: Threads of a block at most on a colour sensor: with more, a thread has too few registers.
_COLOR_THREADS = 128
#: Registers of a mono sensor's thread for no other products than these, as compiled.
_FEW, _FEW_REGISTERS = frozenset(("intensity", "dolp", "aolp")), 56
#: Bytes of a sample's position, and of the rotation of four pixels.
_POSITION_BYTES = 4


def _plane_values(work: TransformWork) -> int:
    """Numbers of a pixel of the planes."""
    return sum(VALUES_PER_PIXEL[name][work.color] for name in work.plane_names)


def source_bytes(work: TransformWork) -> int:
    """Bytes of the planes of one frame."""
    return work.source[0] * work.source[1] * _plane_values(work) * np.dtype(work.planes).itemsize


def plane_bytes(work: TransformWork, frames: int = 1) -> Dict[str, int]:
    """Bytes of memory for each of the planes, with space behind the last one: a row and a pixel without weight."""
    (height, width), number = work.source, np.dtype(work.planes).itemsize
    pixels = frames * height * width * (3 if work.color else 1) + width + 1
    return {name: pixels * number * VALUES_PER_PIXEL[name][False] for name in work.plane_names}


def map_bytes(work: TransformWork, schedule: Schedule) -> int:
    """Bytes of the map that all frames share; 0 where samples are pixels."""
    if not work.positions:
        return 0
    turns = 2 * np.dtype(work.planes).itemsize * schedule.threads
    positions = _POSITION_BYTES * schedule.tile_x * schedule.tile_y * work.scale**2
    return grid(work, schedule)[0] * (positions + turns + 4)


def written_bytes(work: TransformWork) -> int:
    """Bytes that the launch stores for one frame."""
    return image_bytes(work.output_size, work.outputs, work.color)


def grid(work: TransformWork, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
    """Blocks along x, y and z."""
    return tile_grid(work.output_size, schedule, frames)


def shared_bytes(work: TransformWork, schedule: Schedule) -> int:
    """`struct Samples` of `kernels/transform_products.cuh`; `transform.cu` asserts that it fits."""
    number, channels = 2 if work.half_precision else 4, 3 if work.color else 1
    pitch = schedule.tile_x + 1
    short = pitch + 1 if work.half_precision else pitch
    planes = channels * schedule.tile_y * (2 * pitch + short * (1 + work.has_excess)) * number
    return round_up(planes + (0 if work.has_excess else number * short), 16)


def schedule_defines(work: TransformWork, schedule: Schedule) -> Dict[str, int]:
    """The preprocessor definitions that compile a schedule into the kernel."""
    sizes = {"THREADS": schedule.threads, "TILE_X": schedule.tile_x, "TILE_Y": schedule.tile_y}
    return {**sizes, "SHARED_BYTES": shared_bytes(work, schedule)}


def registers(work: TransformWork, schedule: Schedule, device: Device) -> int:
    """Registers of a thread, at most: what the kernel's launch bound leaves, or what it takes where that is less."""
    blocks = -(-resident_threads(device) // schedule.threads)
    if device.capability < 80:
        blocks = min(blocks, (96 << 10) // shared_bytes(work, schedule))
    bound = register_bound(schedule.threads, blocks)
    return bound if work.color or not _FEW.issuperset(work.dtypes) else min(bound, _FEW_REGISTERS)


def candidates(work: TransformWork, device: Device) -> List[Schedule]:
    """Every schedule that fits, and has enough resident warps if any has."""
    able = {}
    for x, y in _TILES[work.by_columns]:
        if work.color and x * y // 4 > _COLOR_THREADS:
            continue
        schedule = Schedule("transform", "tile", x * y // 4, x, y)
        if shared_bytes(work, schedule) <= device.shared_per_block:
            able[schedule] = expected_occupancy(work, schedule, device)
    return with_enough_warps(able)


def expected_occupancy(work: TransformWork, schedule: Schedule, device: Device) -> float:
    """Expected share of a multiprocessor's warps that are resident, 0 to 1."""
    return occupancy(device, schedule.threads, registers(work, schedule, device), shared_bytes(work, schedule))


def refuse(work: TransformWork, device: Device) -> NoReturn:
    """Say why no schedule fits a device.

    Raises:
        ScheduleError: In any case; need and limit of the smallest.
    """
    need = min(shared_bytes(work, Schedule("transform", "tile", 64, x, y)) for x, y in _TILES[work.by_columns])
    raise ScheduleError(
        f"transform on {device.name}: needs {need} bytes of shared memory, a block has {device.shared_per_block}"
    )


def cost(work: TransformWork, schedule: Schedule, device: Device) -> Cost:
    """What a schedule moves and computes for one frame, its map included."""
    blocks, samples, channels = grid(work, schedule)[0], work.scale**2, 3 if work.color else 1
    pixels = blocks * schedule.tile_x * schedule.tile_y
    # of a map, samples of a block reach one pixel further than its tile
    halo = (1 + 1 / (work.scale * schedule.tile_x)) * (1 + 1 / (work.scale * schedule.tile_y)) if work.positions else 1
    planes, of_map = source_bytes(work), map_bytes(work, schedule)
    stage, sample = _SAMPLES[work.positions]
    slots = {
        stage: pixels * (_PIXEL + sample * samples * channels),
        "products": pixels * product_slots(work.outputs, work.color),
    }
    weighed = weigh(slots, work.half_precision, device)
    return Cost(planes + of_map, planes * halo + of_map, written_bytes(work), weighed)


def predict(work: TransformWork, schedule: Schedule, device: Device, frames: int = 1) -> Prediction:
    """Predicted time of a launch; the second of several frames finds the map in the cache."""
    taken = cost(work, schedule, device)
    cached = map_bytes(work, schedule) * (1 - 1 / frames)
    footprint = LaunchFootprint(
        grid(work, schedule)[0],
        schedule.threads,
        registers(work, schedule, device),
        shared_bytes(work, schedule),
        schedule.threads * _plane_values(work) * 4 * np.dtype(work.planes).itemsize,
        1.0,
        overlaps_previous=device.overlaps,
    )
    return predict_launch(replace(taken, read=taken.read - cached), footprint, device, frames)
