"""Issue slots of `mono_half` and `mono_half_calibrated`, counted in their code."""

from __future__ import annotations

from typing import Dict

from polar_pipeline.cuda.model.device import WARP
from polar_pipeline.cuda.model.geometry import unit_count
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import ANGLE_IMAGES, COMPONENTS
from polar_pipeline.cuda.model.work import PolarizationWork

#: Share of the counts below that an H200's times need.
_COUNTED_SHARE = 0.85
#: Issue slots of a lane on sm_90: of a thread; of each of its rows, and of those whose pixels go through shared memory.
_THREAD, _ROW, _STAGED_ROW = 60.0, 40.0, 45.0
#: The same per superpixel: loading, unpacking and finding what is saturated, with halo; from numbers above 12 bits.
_LOAD = {"u8": 3.0, "u16": 8.0, "12p": 16.0, "12packed": 22.0}
_WIDE = 7.0
#: Moving the angles to the centre; their sum; their differences; length; tangent of the angle.
_CO_SITE, _SUM, _DIFFERENCES, _LENGTH, _TANGENT = 10.0, 4.0, 2.0, 8.0, 4.0
#: An output, by element type.
_OUTPUTS: Dict[str, Dict[str, float]] = {
    "uint8": {
        "intensity": 2.0,
        "dolp": 1.0,
        "aolp": 3.6,
        "preview": 11.0,
        **dict.fromkeys(ANGLE_IMAGES, 4.0),
        **dict.fromkeys(COMPONENTS, 6.0),
    },
    "float32": {
        "intensity": 1.0,
        "stokes": 3.0,
        "dolp": 0.0,
        "aolp": 12.0,
        "sums": 6.0,
        "s0": 2.0,
        "differences": 5.0,
        "means": 1.0,
        "excesses": 6.0,
        **dict.fromkeys(ANGLE_IMAGES, 2.0),
        **dict.fromkeys(COMPONENTS, 4.0),
    },
    # of products estimated: as floats, and two instructions to limit and round each, and one to pack two
    "uint16": {
        "intensity": 3.5,
        "dolp": 2.5,
        "aolp": 10.5,
        "sums": 7.0,
        "s0": 3.0,
        **dict.fromkeys(ANGLE_IMAGES, 4.5),
        **dict.fromkeys(COMPONENTS, 6.5),
    },
    "float16": {"differences": 7.0, "means": 1.5, "excesses": 6.5},
}
#: `mono_half_calibrated`, per lane: loading, correcting and looking for saturation in a row of four superpixels; how
#: many times as much it takes in float; co-siting them; and what a lane does before and after its rows.
_CORRECT = {"u8": 199.0, "u16": 202.0, "12p": 228.0, "12packed": 255.0}
_IN_FLOAT, _CO_SITE_ROW, _LANE = 1.7, 32.0, 120.0


def half_slots(work: PolarizationWork, schedule: Schedule) -> float:
    """Issue slots of an H200 for one frame; in either precision."""
    names = set(work.dtypes)
    polar = names & {"dolp", "aolp", "preview"}
    per_pixel = _LOAD[work.raw_format] + _SUM + sum(_OUTPUTS[dtype][name] for name, dtype in work.outputs)
    per_pixel += _WIDE * (work.full_scale > 4095) + _CO_SITE * work.co_sited
    per_pixel += _DIFFERENCES * bool(polar or names.intersection(("stokes", "differences", *COMPONENTS)))
    per_pixel += _LENGTH * bool(polar or names.intersection(COMPONENTS))
    per_pixel += _TANGENT * bool(polar & {"aolp", "preview"})
    per_row = _ROW + _STAGED_ROW * len(names & {"preview", "stokes"})
    threads = WARP * unit_count(work, schedule)
    return _COUNTED_SHARE * threads * (_THREAD + schedule.rows * (per_row + schedule.tile_x * per_pixel))


def calibrated_half_slots(work: PolarizationWork, schedule: Schedule) -> float:
    """Issue slots of an H200 for one frame up to the products, in pairs of half; counted, not fitted to its times."""
    correct = _CORRECT[work.raw_format]
    if work.half_precision and work.raw_format != "u8":
        correct *= _IN_FLOAT
    slots = (schedule.rows + 2 * work.co_sited) * correct + schedule.rows * _CO_SITE_ROW * work.co_sited + _LANE
    return _COUNTED_SHARE * WARP * unit_count(work, schedule) * slots
