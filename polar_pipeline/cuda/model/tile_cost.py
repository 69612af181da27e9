"""What `tile` and the products of other kernels compute, and what `tile` loses in shared memory."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

from polar_pipeline.cuda.model.bank_conflicts import conflict_quantities
from polar_pipeline.cuda.model.device import WARP
from polar_pipeline.cuda.model.executed import in_the_code, output_quantities
from polar_pipeline.cuda.model.executed_counts import CONFLICTS, COUNTS
from polar_pipeline.cuda.model.geometry import (
    halos,
    is_adaptive,
    loaded_pixels,
    output_step,
    round_up,
    unit_count,
    unit_size,
)
from polar_pipeline.cuda.model.instructions import SHARES
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.work import PolarizationWork

#: What an idle thread costs of a busy one: a block waits for its slowest thread, and other blocks fill the gap.
IDLE_SHARE = 0.111
#: The same in the passes of ADR, whose threads each go down a run of rows.
RUN_IDLE_SHARE = 0.85
#: What a unit at the border of the picture costs more, as it reflects what lies beyond, and stores less.
_BORDER_SHARE = 0.354
#: What a run of rows of ADR costs before its first result, in rows, by stage: it fills its window.
_ADAPTIVE_START = {"adaptive gradients": 0.7, "adaptive edges": 1.8, "adaptive slide": 1.1}
#: Issue slots of an H200 per raw pixel, or output pixel, that no measured launch had; counted in the code for sm_87 and
#: sm_90: loading with a calibration; standard deviations, and the gains that they need for each channel.
_NOT_MEASURED = {
    "load u8 calibrated": 42.0,
    "load u16 calibrated": 43.0,
    "load 12p calibrated": 45.0,
    "load 12packed calibrated": 46.0,
    "noise": 70.0,
    "noise gains": 50.0,
}


def tile_quantities(
    work: PolarizationWork, schedule: Schedule, idle_share: float = 0.0, run_idle_share: float = 0.0
) -> Dict[str, float]:
    """How often one frame needs what `COUNTS` has of `tile`.

    Loading and completing colours count by raw pixel, interpolation by raw pixel and channel, co-siting and products by
    output pixel and its values.

    Args:
        work: What to do.
        schedule: How.
        idle_share: What an idle thread counts; 0: only instructions that are executed.
        run_idle_share: The same in the passes of ADR.
    """
    mono, _ = halos(work)
    step, channels = output_step(work), 3 if work.sensor.is_color else 1
    x, y = unit_size(schedule)
    units = unit_count(work, schedule)

    def waited(pixels: int, grain: int, share: float = idle_share) -> float:
        """Pixels of a stage by whole warps, `grain` to a thread, and part of what idle warps could have made."""
        busy = round_up(pixels, grain * WARP)
        return units * (busy + share * (round_up(pixels, grain * schedule.threads) - busy))

    made = waited(x * y, 4)
    load = f"load {work.raw_format}" + (" calibrated" if work.calibrated else "")
    found = {load: waited(loaded_pixels(work, schedule), 8 if work.calibrated else 4)}
    if work.sensor.is_color:
        mosaic = (step * x + 2 * round_up(mono, 4)) * (step * y + 2 * mono)
        found[f"color {work.debayer}"] = waited(mosaic, 16 if work.debayer == "mhc" else 4)
    if is_adaptive(work):  # in runs of rows, as many in every stage
        width, height, runs = step * x, step * y, -(-(step * y + 2) // schedule.rows)
        passes = {
            "adaptive gradients": (width + 4, height + 4, 1),
            "adaptive edges": (width, height, 1),
            "adaptive slide": (width + 4, height + 2, channels),
        }
        for name, (across, down, images) in passes.items():
            rows = -(-down // runs) + _ADAPTIVE_START[name]
            found[name] = 2 * rows * waited(images * runs * across // 2, 1, run_idle_share)
    # adaptive at half resolution takes two pixels of one channel to a thread, all else four of all channels
    values = waited(channels * x * y, 2) if is_adaptive(work) and work.half else channels * made
    if not work.half or (work.co_sited and work.demosaic != "bilinear"):  # else moving to the centre is all
        found[f"mono {work.demosaic}"] = step**2 * values
    if work.half and work.co_sited:
        found["co-site"] = values
    products = {"pixel": 1.0, **output_quantities(work.outputs, work.sensor.is_color)}
    if work.uses_noise:
        products.update({"noise": 1.0, "noise gains": channels})
    found.update({name: made * number for name, number in products.items()})
    return {**found, "thread": units * schedule.threads}


def tile_stage(name: str) -> str:
    """The stage of `SHARES` that something in `COUNTS` belongs to: its own, or that of all products."""
    return name if (name, True, 90) in SHARES else "products"


def _count(name: str) -> float:
    counts = COUNTS["tile"]
    if name in counts:
        return counts[name]
    return _NOT_MEASURED[name] if name in _NOT_MEASURED else in_the_code(name)


def tile_stages(work: PolarizationWork, schedule: Schedule) -> Dict[str, float]:
    """Issue slots of an H200 by stage of `tile`, in pairs of half."""
    (across, down), (height, width) = unit_size(schedule), work.output_size
    columns, rows = -(-width // across), -(-height // down)
    border = 1 - max(columns - 2, 0) * max(rows - 2, 0) / (columns * rows)
    found: Dict[str, float] = {}
    for name, number in tile_quantities(work, schedule, IDLE_SHARE, RUN_IDLE_SHARE).items():
        stage = tile_stage(name)
        found[stage] = found.get(stage, 0.0) + _count(name) * number * (1 + _BORDER_SHARE * border)
    return found


def product_slots(outputs: Sequence[Tuple[str, str]], is_color: bool) -> float:
    """Issue slots of an H200 per output pixel for outputs, as (name, element type), in pairs of half."""
    products = {"pixel": 1.0, **output_quantities(outputs, is_color)}
    return sum(_count(name) * number for name, number in products.items())


def noise_slots(is_color: bool) -> float:
    """Likewise for the standard deviations of an output pixel."""
    return _NOT_MEASURED["noise"] + _NOT_MEASURED["noise gains"] * (3 if is_color else 1)


def conflict_clocks(work: PolarizationWork, schedule: Schedule) -> float:
    """Clocks of a multiprocessor in which `tile` waits for banks of shared memory, for one frame."""
    clocks = CONFLICTS["half" if work.half_precision else "float"]
    found = conflict_quantities(work, schedule, tile_quantities(work, schedule))
    return sum(clocks.get(name, 0.0) * number for name, number in found.items())
