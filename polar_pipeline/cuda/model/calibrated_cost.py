"""Issue slots of `mono_half_calibrated`, counted in its code."""

from __future__ import annotations

from polar_pipeline.cuda.model.device import WARP
from polar_pipeline.cuda.model.geometry import unit_count
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.work import PolarizationWork

#: Share of the counts below that an H200's times need.
_COUNTED_SHARE = 0.85
#: Per lane on sm_90: loading, correcting and looking for saturation in a row of four superpixels; how many times as
#: much it takes in float; co-siting them; and what a lane does before and after its rows.
_CORRECT = {"u8": 199.0, "u16": 202.0, "12p": 228.0, "12packed": 255.0}
_IN_FLOAT, _CO_SITE_ROW, _LANE = 1.7, 32.0, 120.0


def calibrated_half_slots(work: PolarizationWork, schedule: Schedule) -> float:
    """Issue slots of an H200 for one frame up to the products, in pairs of half; counted, not fitted to its times."""
    correct = _CORRECT[work.raw_format]
    if work.half_precision and work.raw_format != "u8":
        correct *= _IN_FLOAT
    slots = (schedule.rows + 2 * work.co_sited) * correct + schedule.rows * _CO_SITE_ROW * work.co_sited + _LANE
    return _COUNTED_SHARE * WARP * unit_count(work, schedule) * slots
