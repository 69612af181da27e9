"""Which launches a frame takes on a device: whether SSIM reads stored images, or makes them from the mosaic again."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

from polar_pipeline.cuda.model import schedule as polarization
from polar_pipeline.cuda.model import ssim
from polar_pipeline.cuda.model.device import Device
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim import Similarity
from polar_pipeline.cuda.model.tuned import AnyWork, choose, predict, tuned
from polar_pipeline.cuda.model.work import PAIRS, Work
from polar_pipeline.options import Options
from polar_pipeline.plan import MOSAIC, Plan

#: Rows of the map from which on one reflection at a border is enough, whatever the window.
_LEAST_ROWS = 16


class Partition(NamedTuple):
    """The launches of a frame.

    Attributes:
        work: What the first one does.
        schedule: How.
        similarity: What the second one does, if there is one.
        comparison: How.
        us: Predicted time of both, microseconds.
        measured_us: The same as measured; None unless each was.
    """

    work: Work
    schedule: Schedule
    similarity: Optional[Similarity]
    comparison: Optional[Schedule]
    us: float
    measured_us: Optional[float]

    @property
    def is_fused(self) -> bool:
        """Whether the second launch starts from the mosaic, so that the first one stores nothing for it."""
        return self.similarity is not None and self.similarity.source == MOSAIC


def not_from_mosaic(work: Work, options: Options) -> Optional[str]:
    """Why the second launch cannot start from the mosaic, None if it can."""
    needs = (
        ("ssim_mode consistency", options.ssim_mode == "consistency"),
        ("ssim_stride 1", options.ssim_stride == 1),
        ("an even height", work.height % 2 == 0),
        (f"{_LEAST_ROWS} rows of the map", work.output_size[0] >= _LEAST_ROWS),
    )
    # a mosaic is read as mono_half reads it
    as_mono = polarization.supports("mono_half", work._replace(outputs=()))
    return as_mono or next((f"ssim from the mosaic needs {text}" for text, met in needs if not met), None)


def partitions(work: Work, plan: Plan, options: Options, device: Device) -> List[Partition]:
    """Every way to cut a plan into launches, the fastest first: as measured where all were, else as predicted.

    A device that maps host memory reads the mosaic again only where that was measured to be faster: it does not cache
    that memory, and predictions take every byte to be read once.

    Args:
        work: The first launch, with what SSIM compares among its outputs.
        plan: What to compute.
        options: How.
        device: Where.

    Raises:
        ScheduleError: No schedule fits the device.
    """
    works = [work]
    if plan.window and not_from_mosaic(work, options) is None:
        works.append(work._replace(outputs=tuple(output for output in work.outputs if output[0] not in PAIRS)))
    found = [_partition(each, plan, options, device) for each in works]
    how, us = times(found)
    is_last = [way.is_fused and device.maps_host and how == "predicted" for way in found]
    return [way for *_, way in sorted(zip(is_last, us, found), key=lambda row: row[:2])]


def times(ways: Sequence[Partition]) -> Tuple[str, List[float]]:
    """By what ways are compared: `measured` where each was, else `predicted`; and microseconds of each."""
    measured = [way.measured_us for way in ways if way.measured_us is not None]
    if len(measured) == len(ways):
        return "measured", measured
    return "predicted", [way.us for way in ways]


def _partition(work: Work, plan: Plan, options: Options, device: Device) -> Partition:
    similarity = ssim.similarity_of(work, plan, options) if plan.window else None
    launches: Tuple[AnyWork, ...] = (work,) if similarity is None else (work, similarity)
    schedules = [choose(launch, device) for launch in launches]
    us = sum(predict(launch, schedule, device).us for launch, schedule in zip(launches, schedules))
    measured = [found.us for found in (tuned(launch, device) for launch in launches) if found is not None]
    return Partition(
        work,
        schedules[0],
        similarity,
        schedules[1] if similarity else None,
        us,
        sum(measured) if len(measured) == len(launches) else None,
    )
