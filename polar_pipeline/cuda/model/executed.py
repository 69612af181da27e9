"""Instructions that the kernels with lines in registers, rings and strips execute, by what a work asks of them."""

from __future__ import annotations

import math
from typing import Dict, Sequence, Tuple

from polar_pipeline.cuda.model.device import WARP
from polar_pipeline.cuda.model.executed_counts import COUNTS
from polar_pipeline.cuda.model.geometry import VALUES_PER_PIXEL, halos, needs_all_angles, unit_count
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import ANGLE_IMAGES, COMPONENTS, sums_in_integers
from polar_pipeline.cuda.model.work import PolarizationWork

#: Instructions of a value of an output by element type, where `COUNTS` has none of the kernel: counted in the code of
#: `mono_half`; of uint16 estimated, as floats and two instructions to limit and round each, like standard deviations.
_VALUE: Dict[str, Dict[str, float]] = {
    "uint8": {"intensity": 2.0, "dolp": 1.0, "aolp": 3.6, "preview": 3.7, "angle": 4.0, "component": 6.0, "sigma": 4.0},
    "float32": {
        "intensity": 1.0,
        "stokes": 1.0,
        "dolp": 0.5,
        "aolp": 12.0,
        "angle": 2.0,
        "component": 4.0,
        "sigma": 3.7,
        "sums": 3.0,
        "s0": 2.0,
        "differences": 2.5,
        "means": 1.0,
        "excesses": 6.0,
    },
    "uint16": {
        "intensity": 3.5,
        "dolp": 2.5,
        "aolp": 10.5,
        "angle": 4.5,
        "component": 6.5,
        "sigma": 5.5,
        "sums": 3.5,
        "s0": 3.0,
    },
    "float16": {"differences": 3.5, "means": 1.5, "excesses": 6.5},
}
#: Outputs that need the direction of polarization.
_OF_DIRECTION = ("aolp", "aolp_color", "aolp_sigma", "preview")
#: Likewise of a pixel: numbers above what half holds exactly take floats.
_PIXEL = {"more than 12 bits": 7.0}


def executed_stage(work: PolarizationWork, schedule: Schedule) -> str:
    """The stage of `SHARES` that a kernel is."""
    is_for_angles = work.sensor.is_color and not needs_all_angles(work)
    return schedule.kernel + " angles" * is_for_angles


def computes_in_halves(work: PolarizationWork, schedule: Schedule) -> bool:
    """Whether the instructions are those of pairs of half: `mono_half` has one code for both precisions."""
    return work.half_precision or schedule.kernel == "mono_half"


def quantities(work: PolarizationWork, schedule: Schedule) -> Dict[str, float]:
    """How often one frame needs what `COUNTS` has: lanes of instructions for each, idle ones included."""
    names = set(work.dtypes)
    threads = WARP * unit_count(work, schedule)
    rows = threads * schedule.rows
    pixels = rows * schedule.tile_x
    found: Dict[str, float] = {"thread": threads, "row": rows, f"load {work.raw_format}": pixels}
    if schedule.kernel == "color_strip":  # fills its ring of lines before its first row
        found = {"thread": threads * schedule.tile_x, "row": rows}
        found[f"load {work.raw_format}"] = pixels + threads * schedule.tile_x * sum(halos(work))
    conditions = {
        "more than 12 bits": work.full_scale > 4095,
        "co-site": work.half and work.co_sited,
        "gradient": not work.half and work.demosaic == "gradient",
    }
    found.update({name: pixels for name, holds in conditions.items() if holds})
    if schedule.kernel == "mono_half":
        found["staged row"] = rows * len(names & {"preview", "stokes"})
    found.update(
        {name: pixels * number for name, number in output_quantities(work.outputs, work.sensor.is_color).items()}
    )
    if schedule.kernel == "color_strip":
        found["row of two pixels"] = rows * (schedule.tile_x == 2)
        if "s0 uint16" in found and sums_in_integers(schedule.kernel, work):  # both sums are made for it
            found["sums uint16"] = 2 * found.pop("s0 uint16")
    return found


def output_quantities(outputs: Sequence[Tuple[str, str]], is_color: bool) -> Dict[str, float]:
    """How often a pixel needs what `COUNTS` has of its outputs, given as (name, element type)."""
    found: Dict[str, float] = {}
    names = {name for name, _ in outputs}
    if names.intersection(("stokes", "differences", "dolp", "dolp_color", "dolp_sigma", *_OF_DIRECTION, *COMPONENTS)):
        found["stokes"] = 1.0
    if names.intersection(_OF_DIRECTION):
        found["direction"] = 1.0
    for name, dtype in outputs:
        key = f"{_kind(name)} {dtype}"
        found[key] = found.get(key, 0.0) + VALUES_PER_PIXEL[name][is_color]
    return found


def _kind(output: str) -> str:
    """The name by which an output is counted: those of one kind together."""
    if output in ANGLE_IMAGES:
        return "angle"
    if output.endswith("_sigma"):
        return "sigma"
    if output.endswith("_color"):
        return "preview"
    return "component" if output in COMPONENTS else output


def executed_slots(work: PolarizationWork, schedule: Schedule) -> float:
    """Issue slots of an H200 for one frame, as if in pairs of half."""
    counts = {**_PIXEL, **COUNTS[schedule.kernel]}
    total = 0.0
    for name, number in quantities(work, schedule).items():
        total += number * (counts[name] if name in counts else in_the_code(name))
    return total


def in_the_code(name: str) -> float:
    """Instructions of a value of an output, such as `dolp uint8`, as counted in the code; of anything else NaN.

    A product that was never counted is taken for one of `COMPONENTS`.
    """
    kind, _, dtype = name.partition(" ")
    counts = _VALUE.get(dtype, {})
    return counts.get(kind, counts.get("component", math.nan))
