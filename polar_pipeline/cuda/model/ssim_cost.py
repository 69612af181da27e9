"""What the SSIM launch moves and computes, and how long that takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polar_pipeline.coefficients import SSIM_BLOCK
from polar_pipeline.cuda.model.cost import REREAD_SHARE, Cost, LaunchFootprint, Prediction, predict_launch, weigh
from polar_pipeline.cuda.model.device import WARP, Device
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_search import (
    _BATCH,
    _COLUMNS,
    _HALO,
    _STEP,
    _STEPS,
    grid,
    piece_count,
    piece_size,
    registers,
    shared_bytes,
)
from polar_pipeline.cuda.model.ssim_work import SsimWork
from polar_pipeline.plan import MOSAIC

#: Bytes of both images' pixel, or of the superpixel that they are made of.
_PIXEL_BYTES = {"uint16": 4, "float32": 8, MOSAIC: 4}
#: Issue slots of a thread of `registers`, counted in the code that sm_90 gets (`benchmarks/instructions.py --ssim`):
#: beginning and end of a strip; a row above its first row of the map, and a row of the map, both without taps and
#: loads; a tap of a row of the map, along y and x, for four moments; loading both samples of a row from the mosaic.
_ENDS, _ROW_ABOVE, _ROW, _TAP, _LOAD_MOSAIC = 130, 15, 34, 8.2, 23
#: Issue slots of a step of a warp on tensor cores: 430 as compiled, 620 so that 64 frames take an H200 the 4.5 us that
#: were measured. Beginning and end take some more.
_TENSOR_STEP, _TENSOR_ENDS = 620.0, 2.16
#: Issue slots that pass while one of several numbers of a row is converted from an integer, by another pipe.
_CONVERSION = 2.1
#: Resident warps with which waiting takes as long as issuing, on tensor cores; and microseconds of a block in which it
#: issues nothing, by window.
_BUSY_WARPS, _LATENCY_US = 8.0, {"tensor": 1.43, "registers": 1.36}
#: Share of the time of a round of blocks that passes while a launch begins and ends, by window.
_TAIL = {"tensor": 0.284, "registers": 0.236}
#: Resident warps times issue slots of a row of the map, but for its loads, with which waiting takes as long as issuing,
#: with `registers`: a row waits as long with any window, and with a longer one there is more to issue meanwhile. Fitted
#: to an H200's times.
_WAITING = 846
#: Share of a row of both images' pixel that a thread has on its way at a time, with strides of 3 and more.
_LARGE_STRIDE_SHARE = {"uint16": 0.513, "float32": 0.481}
#: How much sooner these loads return in a launch of one frame, in which few others are on their way.
_ALONE_SHARE = 1.39
#: Microseconds from one block to the next where the blocks of a frame count themselves.
_COUNT_US = 0.0022


def cost(work: SsimWork, schedule: Schedule, device: Device) -> Cost:
    """What a schedule moves and computes for one frame."""
    blocks, halo, warps = grid(work, schedule)[0], work.window - 1, schedule.threads // WARP
    operations: float
    if schedule.window == "tensor":
        loaded = blocks * warps * (_COLUMNS + _HALO) * (schedule.rows + 2 * _STEP)
        operations = blocks * schedule.threads * (schedule.rows // _STEP + _TENSOR_ENDS) * _TENSOR_STEP
    else:
        loaded = blocks * (schedule.tile_x + halo) * (schedule.rows + halo) * work.stride**2
        converted = 2 * work.stride**2 * (schedule.rows + halo) if work.source == "uint16" and work.stride == 2 else 0
        operations = blocks * schedule.threads * (_strip_slots(work, schedule.rows) + _CONVERSION * converted)
    pixel = _PIXEL_BYTES[work.source]
    height, width = work.map_size
    stored = np.dtype(work.map_dtype).itemsize if work.map_dtype else 0
    weighed = weigh({f"ssim {schedule.window} {work.source}": operations}, True, device)
    return Cost(pixel * work.height * work.width, pixel * loaded, stored * height * width, weighed)


def _load_slots(work: SsimWork) -> int:
    """Issue slots in which a thread of `registers` loads, converts and averages both samples of a row."""
    if work.source == MOSAIC:
        return _LOAD_MOSAIC
    if work.stride == 1:
        return 8 if work.source == "uint16" else 2  # with their conversion
    loop = 16 if work.stride > 2 else 0  # of a row of the pixel: addresses, comparison and jump
    return 2 * work.stride * (2 * work.stride + loop) + 2


def _row_slots(work: SsimWork) -> float:
    """Issue slots of a thread of `registers` for a row of the map."""
    return _TAP * work.window + _ROW + _load_slots(work)


def _strip_slots(work: SsimWork, rows: int) -> float:
    """Issue slots of a thread of `registers` for a strip of some rows of the map.

    Rows above the strip enter only those sums that get a result: half of the taps, on average.
    """
    load = _load_slots(work)
    above = (work.window - 1) * (2 * work.window + _ROW_ABOVE + load)
    return _ENDS + 4 * load + above + rows * _row_slots(work)


def predict(work: SsimWork, schedule: Schedule, device: Device, frames: int = 1, is_alone: bool = False) -> Prediction:
    """Predicted time of a launch.

    Args:
        work: What it does.
        schedule: How.
        device: The GPU.
        frames: Of the launch.
        is_alone: Whether no other launch is before it, whose last blocks its own would run beside.
    """
    in_flight: float
    loaded: float
    if schedule.window == "tensor":
        in_flight = schedule.threads // WARP * (_STEPS - 1) * _STEP * (_COLUMNS + _HALO) * _PIXEL_BYTES[work.source]
        exposed = 0.0
    else:
        if work.stride <= 2:
            loaded = schedule.threads * work.stride**2 * _BATCH
        else:  # a row of one image's pixel at a time, and of the other's; not all threads have a column
            loaded = (schedule.tile_x + work.window - 1) * work.stride * _LARGE_STRIDE_SHARE[work.source]
            loaded *= _ALONE_SHARE if frames == 1 else 1.0
        in_flight = loaded * _PIXEL_BYTES[work.source]
        # rows above the strip and its first ones; all others are loaded while earlier ones are computed
        exposed = (work.window - 1 + _BATCH) / (work.window - 1 + schedule.rows)
    blocks, taken = grid(work, schedule)[0], cost(work, schedule, device)
    footprint = LaunchFootprint(
        blocks,
        schedule.threads,
        registers(work, schedule),
        shared_bytes(schedule),
        in_flight,
        exposed,
        _BUSY_WARPS if schedule.window == "tensor" else _WAITING / (_row_slots(work) - _load_slots(work)),
        latency_us=_LATENCY_US[schedule.window],
        tail_share=_TAIL[schedule.window],
        whole_tile_bytes=taken.read + REREAD_SHARE * max(0, taken.reread - taken.read),  # stores wait for nothing
        overlaps_previous=device.overlaps and not is_alone,
    )
    found = predict_launch(taken, footprint, device, frames)
    # counters of frames are apart, and sums of one frame hide behind the next frame's blocks
    return replace(found, waiting_us=found.waiting_us + blocks * _COUNT_US + _sum_us(work, schedule, device))


def _sum_us(work: SsimWork, schedule: Schedule, device: Device) -> float:
    """Microseconds in which the last block loads all pieces of a frame, one line of 128 bytes a clock.

    Neighbouring threads load from neighbouring blocks of the map, so that a load of a warp touches as many lines as a
    block of the map has pieces along x.
    """
    along = SSIM_BLOCK // piece_size(schedule)[1]
    return piece_count(work, schedule) * along / WARP / device.clock_mhz
