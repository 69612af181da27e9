"""What the SSIM launch moves and computes, and how long that takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polar_pipeline.cuda.model.cost import Cost, LaunchFootprint, Prediction, predict_launch, weigh
from polar_pipeline.cuda.model.device import WARP, Device
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_search import (
    _BATCH,
    _COLUMNS,
    _STEP,
    _STEP_BYTES,
    _STEPS_IN_FLIGHT,
    grid,
    registers,
    shared_bytes,
)
from polar_pipeline.cuda.model.ssim_work import SsimWork
from polar_pipeline.plan import MOSAIC

#: Bytes of both images' pixel, or of the superpixel that they are made of.
_PIXEL_BYTES = {"float16": 4, "float32": 8, MOSAIC: 4}
#: Issue slots of a lane, as compiled: a row of a column along y beside four moments of every tap, a pixel along x
#: likewise, a load, both samples from the mosaic with four loads (as an H200 took longer), and a step of a warp on
#: tensor cores (230 as compiled, as an H200 took longer), of which beginning and end take some more.
_ALONG_Y, _ALONG_X, _LOAD, _ENTER_MOSAIC, _TENSOR_STEP, _TENSOR_ENDS = 16, 26, 2.8, 37, 395, 3
#: Resident warps with which waiting takes as long as issuing. The sums of `registers` wait for nothing but themselves.
_BUSY_WARPS = {"registers": 14, "tensor": 8}
#: Microseconds from one block to the next where the blocks of a frame count themselves.
_COUNT_US = 0.001


def cost(work: SsimWork, schedule: Schedule, device: Device) -> Cost:
    """What a schedule moves and computes for one frame."""
    blocks, halo, warps = grid(work, schedule)[0], work.window - 1, schedule.threads // WARP
    operations: float
    if schedule.window == "tensor":
        loaded = blocks * warps * 2 * _COLUMNS * (schedule.rows + 2 * _STEP)
        operations = blocks * schedule.threads * (schedule.rows // _STEP + _TENSOR_ENDS) * _TENSOR_STEP
    else:
        loaded = blocks * (schedule.tile_x + halo) * (schedule.rows + halo) * work.stride**2
        moments = 4 * work.window
        load = _LOAD if work.stride == 1 else 2 * _LOAD  # conversion and sum
        entering = _ENTER_MOSAIC if work.source == MOSAIC else 2 * load * work.stride**2
        down = (schedule.rows + halo) * (moments + _ALONG_Y + entering)
        operations = blocks * schedule.threads * (down + schedule.rows * (moments + _ALONG_X))
    pixel = _PIXEL_BYTES[work.source]
    height, width = work.map_size
    stored = np.dtype(work.map_dtype).itemsize if work.map_dtype else 0
    weighed = weigh({f"ssim {schedule.window} {work.source}": operations}, True, device)
    return Cost(pixel * work.height * work.width, pixel * loaded, stored * height * width, weighed)


def predict(work: SsimWork, schedule: Schedule, device: Device, frames: int = 1) -> Prediction:
    """Predicted time of a launch."""
    in_flight: float
    if schedule.window == "tensor":
        in_flight = schedule.threads // WARP * (_STEPS_IN_FLIGHT - 1) * _STEP_BYTES
    else:
        # from a stride of 3 on, the kernel loads a row of one image's pixel at a time
        at_a_time = work.stride**2 * _BATCH if work.stride <= 2 else work.stride / 2
        in_flight = schedule.threads * at_a_time * _PIXEL_BYTES[work.source]
    blocks = grid(work, schedule)[0]
    footprint = LaunchFootprint(
        blocks,
        schedule.threads,
        registers(work, schedule),
        shared_bytes(schedule),
        in_flight,
        False,
        _BUSY_WARPS[schedule.window],
        overlaps_previous=device.overlaps,
    )
    found = predict_launch(cost(work, schedule, device), footprint, device, frames)
    return replace(found, waiting_us=found.waiting_us + blocks * _COUNT_US)  # counters of frames are apart
