"""How the launch that also rectifies can be executed, what it moves and computes, and how long that takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, NoReturn, Tuple

from polar_pipeline.cuda.model.cost import Cost, LaunchFootprint, Prediction, predict_launch, weigh
from polar_pipeline.cuda.model.device import WARP, Device, occupancy
from polar_pipeline.cuda.model.geometry import image_bytes, round_up, tile_grid
from polar_pipeline.cuda.model.rectified_work import POSITION_BITS, TILES, UNIT, RectifiedWork, column_bits
from polar_pipeline.cuda.model.registers import register_bound
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError
from polar_pipeline.cuda.model.search import with_enough_warps
from polar_pipeline.cuda.model.tile_cost import product_slots

#: Output pixels of a thread.
_PIXELS = 8
#: Threads of a multiprocessor for which registers must suffice, with so many outputs at most, and with more of them.
_RESIDENT, _FEW_OUTPUTS, _RESIDENT_OF_MANY = 1280, 6, 1024
#: Issue slots of an H200 for a unit of the window, for a sample, and for what a thread does before and after; resident
#: warps of a multiprocessor with which waiting takes as long as issuing. Fitted to the times of one work.
_UNIT_SLOTS, _SAMPLE_SLOTS, _THREAD_SLOTS, _WAITING_WARPS = 220.0, 29.0, 60.0, 10.0
#: Bytes of a superpixel in the window, of a sample's position, and of the rotation of four pixels.
_CELL_BYTES, _POSITION_BYTES, _TURN_BYTES = 8, 4, 4
#: Bytes that a thread loads for a unit at a time.
_UNIT_LOADED_BYTES = 64


def _pitch(window_width: int) -> int:
    """`WINDOW_PITCH` of the kernel: superpixels from one row of the window to the next."""
    return (window_width + 13) // 16 * 16 + 2


def _fits(work: RectifiedWork, schedule: Schedule, device: Device) -> bool:
    """Whether positions have bits enough for a tile's window, a warp lanes, and a block shared memory."""
    window = work.window((schedule.tile_x, schedule.tile_y))
    rows = 1 << max(0, POSITION_BITS - column_bits(window))
    return window[1] <= rows and window[0] <= WARP * UNIT and shared_bytes(work, schedule) <= device.shared_per_block


def _schedules() -> List[Schedule]:
    return [Schedule("mono_rectified", "tile", x * y // _PIXELS, x, y) for x, y in TILES]


def candidates(work: RectifiedWork, device: Device) -> List[Schedule]:
    """Every schedule that fits, and has enough resident warps if any has."""
    able = {row: expected_occupancy(work, row, device) for row in _schedules() if _fits(work, row, device)}
    return with_enough_warps(able)


def refuse(work: RectifiedWork, device: Device) -> NoReturn:
    """Say why no schedule fits a device.

    Raises:
        ScheduleError: In any case; the windows, and what the smallest needs.
    """
    shown = ", ".join(f"{x}x{y}" for x, y in work.windows)
    need = min(shared_bytes(work, schedule) for schedule in _schedules())
    raise ScheduleError(
        f"mono_rectified on {device.name}: the samples of a tile lie too far apart, in windows of {shown} superpixels; "
        f"the smallest takes {need} bytes of shared memory"
    )


def grid(work: RectifiedWork, schedule: Schedule, frames: int = 1) -> Tuple[int, int, int]:
    """Blocks along x, y and z."""
    return tile_grid(work.size, schedule, frames)


def shared_bytes(work: RectifiedWork, schedule: Schedule) -> int:
    """`struct Shared` of the kernel, which asserts that it fits."""
    width, height = work.window((schedule.tile_x, schedule.tile_y))
    window = _CELL_BYTES * height * _pitch(width)
    row = schedule.tile_x + 1
    samples = 2 * (schedule.tile_y * (2 * row + row + 1) + row + 1)
    return window + round_up(samples, 16)


def _resident_threads(work: RectifiedWork) -> int:
    return _RESIDENT if len(work.outputs) <= _FEW_OUTPUTS else _RESIDENT_OF_MANY


def schedule_defines(work: RectifiedWork, schedule: Schedule) -> Dict[str, int]:
    """The preprocessor definitions that compile a schedule into the kernel."""
    window = work.window((schedule.tile_x, schedule.tile_y))
    return {
        "THREADS": schedule.threads,
        "TILE_X": schedule.tile_x,
        "TILE_Y": schedule.tile_y,
        "BLOCKS": _resident_threads(work) // schedule.threads,
        "WINDOW_X": window[0],
        "WINDOW_Y": window[1],
        "COLUMN_BITS": column_bits(window),
        "SHARED_BYTES": shared_bytes(work, schedule),
    }


def registers(work: RectifiedWork, schedule: Schedule) -> int:
    """Registers of a thread: what the kernel's launch bound leaves."""
    return register_bound(schedule.threads, _resident_threads(work) // schedule.threads)


def expected_occupancy(work: RectifiedWork, schedule: Schedule, device: Device) -> float:
    """Expected share of a multiprocessor's warps that are resident, 0 to 1."""
    return occupancy(device, schedule.threads, registers(work, schedule), shared_bytes(work, schedule))


def map_bytes(work: RectifiedWork, schedule: Schedule) -> int:
    """Bytes of the map that all frames share."""
    pixels = schedule.tile_x * schedule.tile_y
    return grid(work, schedule)[0] * (pixels * _POSITION_BYTES + pixels // 4 * _TURN_BYTES + 4)


def _lanes(work: RectifiedWork, schedule: Schedule) -> int:
    """Lanes that compute the window of a block, with those that have no part of it."""
    width, height = work.window((schedule.tile_x, schedule.tile_y))
    return WARP * -(-height // (WARP // (width // UNIT)))


def cost(work: RectifiedWork, schedule: Schedule, device: Device) -> Cost:
    """What a schedule moves and computes for one frame, its map included."""
    blocks = grid(work, schedule)[0]
    pixels, mosaic = blocks * schedule.tile_x * schedule.tile_y, work.mosaic.width * work.mosaic.height
    window = work.window((schedule.tile_x, schedule.tile_y))
    loaded = blocks * 2 * window[0] * 2 * (window[1] + 1)
    slots = {
        "rectified window": blocks * _lanes(work, schedule) * _UNIT_SLOTS,
        "rectified samples": pixels * _SAMPLE_SLOTS,
        "products": pixels * product_slots(work.outputs, False),
        "thread": blocks * schedule.threads * _THREAD_SLOTS,
    }
    of_map = map_bytes(work, schedule)
    written = image_bytes(work.size, work.outputs, False)
    read = min(mosaic, loaded)
    return Cost(read + of_map, loaded + of_map, written, weigh(slots, True, device))


def predict(work: RectifiedWork, schedule: Schedule, device: Device, frames: int = 1) -> Prediction:
    """Predicted time of a launch; the second of several frames finds the map in the cache."""
    taken = cost(work, schedule, device)
    cached = map_bytes(work, schedule) * (1 - 1 / frames)
    footprint = LaunchFootprint(
        grid(work, schedule)[0],
        schedule.threads,
        registers(work, schedule),
        shared_bytes(work, schedule),
        _lanes(work, schedule) * _UNIT_LOADED_BYTES,
        0.5,
        _WAITING_WARPS,
        overlaps_previous=device.overlaps,
    )
    return predict_launch(replace(taken, read=taken.read - cached), footprint, device, frames)
