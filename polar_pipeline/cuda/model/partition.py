"""The launches of a frame: which stages of the plan they compute, what each kernel does, and by which schedule.

A plan has at most two launches: polarization, and SSIM, which reads what the first one stored or recomputes it from the
mosaic. With a geometry there is one more between them, which makes the products.
Backend, report and tuner all work from the `Partition` made here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, List, Optional, Sequence, Tuple, TypeVar, Union

from polar_pipeline.cuda.model.cost import Prediction
from polar_pipeline.cuda.model.device import Device
from polar_pipeline.cuda.model.launch_model import PolarizationModel, SsimModel, TransformModel
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import SSIM_FROM_MOSAIC
from polar_pipeline.cuda.model.ssim_work import make_ssim_work
from polar_pipeline.cuda.model.transform_work import TransformWork, make_transform_work
from polar_pipeline.cuda.model.tuned import predicted_fastest, tuned
from polar_pipeline.cuda.model.work import PAIRS, PolarizationWork
from polar_pipeline.options import Options
from polar_pipeline.plan import MOSAIC, Plan, Stage, geometry_stages

_ModelT = TypeVar("_ModelT", PolarizationModel, TransformModel, SsimModel)

#: Rows of the map from which on one reflection at a border is enough, for every window.
_MIN_ROWS = 16


@dataclass(frozen=True)
class PlannedLaunch(Generic[_ModelT]):
    """One launch of a frame.

    Attributes:
        stage: What it computes, as operators of the plan.
        model: What its kernel does on the device.
        schedule: How.
        predicted: How long that should take.
        measured_us: How long it took when it was measured (`polar-pipeline tune`), microseconds; None if it was not.
    """

    stage: Stage
    model: _ModelT
    schedule: Schedule
    predicted: Prediction
    measured_us: Optional[float]

    @property
    def is_measured(self) -> bool:
        """Whether the schedule was measured, not predicted, to be the fastest."""
        return self.measured_us is not None


#: The launch that makes the products.
ProductLaunch = Union[PlannedLaunch[PolarizationModel], PlannedLaunch[TransformModel]]
AnyLaunch = Union[ProductLaunch, PlannedLaunch[SsimModel]]


@dataclass(frozen=True)
class Partition:
    """The launches of a frame.

    Attributes:
        polarization: The first launch.
        ssim: The last one; None without SSIM.
        transform: The one between them; None without a geometry.
    """

    polarization: PlannedLaunch[PolarizationModel]
    ssim: Optional[PlannedLaunch[SsimModel]]
    transform: Optional[PlannedLaunch[TransformModel]] = None

    @property
    def launches(self) -> Tuple[AnyLaunch, ...]:
        """The launches in order."""
        later = (self.transform, self.ssim)
        return (self.polarization, *(launch for launch in later if launch is not None))

    @property
    def frames(self) -> PolarizationWork:
        """The format of frames, and what the first launch stores."""
        return self.polarization.model.work

    @property
    def products(self) -> ProductLaunch:
        """The launch that makes the products."""
        return self.transform or self.polarization

    @property
    def ssim_from_mosaic(self) -> bool:
        """Whether the SSIM launch starts from the mosaic, so that the first one stores nothing for it."""
        return self.ssim is not None and self.ssim.model.work.source == MOSAIC

    @property
    def predicted_us(self) -> float:
        """Predicted time of all launches, microseconds."""
        return sum(launch.predicted.us for launch in self.launches)

    @property
    def measured_us(self) -> Optional[float]:
        """Measured time of all launches, microseconds; None unless each was measured."""
        found = [launch.measured_us for launch in self.launches if launch.measured_us is not None]
        return sum(found) if len(found) == len(self.launches) else None


def not_from_mosaic(work: PolarizationWork, options: Options) -> Optional[str]:
    """Why the SSIM launch cannot start from the mosaic, None if it can."""
    needs = (
        *((text, met(work)) for text, met in SSIM_FROM_MOSAIC),
        ("ssim_mode consistency", options.ssim_mode == "consistency"),
        ("no scale, rotate, roi and rectify", options.geometry is None),
        ("ssim_stride 1", options.ssim_stride == 1),
        ("an even height", work.height % 2 == 0),
        (f"{_MIN_ROWS} rows of the map", work.output_size[0] >= _MIN_ROWS),
    )
    return next((f"ssim from the mosaic needs {text}" for text, met in needs if not met), None)


def partitions(work: PolarizationWork, plan: Plan, options: Options, device: Device) -> List[Partition]:
    """Every set of launches that computes a plan, the fastest first: as measured where all were, else as predicted.

    On a device that maps host memory, SSIM reads the mosaic again only where that was measured to be faster: the device
    does not cache that memory, and predictions count every byte as read once.

    Args:
        work: The polarization launch, with what SSIM compares among its outputs.
        plan: What to compute.
        options: How.
        device: Where.

    Raises:
        FrameError: The geometry of the options does not fit the frame.
        ScheduleError: No schedule fits the device.
    """
    found = [_partition(work, plan, options, device)]
    if plan.window and not_from_mosaic(work, options) is None:
        stored = tuple(output for output in work.outputs if output[0] not in PAIRS)
        found.append(_partition(replace(work, outputs=stored), plan.from_mosaic(), options, device))
    basis, us = times(found)
    is_last = [row.ssim_from_mosaic and device.maps_host and basis == "predicted" for row in found]
    return [row for *_, row in sorted(zip(is_last, us, found), key=lambda row: row[:2])]


def times(found: Sequence[Partition]) -> Tuple[str, List[float]]:
    """How partitions are compared, `measured` where each was, else `predicted`; and microseconds of each."""
    measured = [row.measured_us for row in found if row.measured_us is not None]
    if len(measured) == len(found):
        return "measured", measured
    return "predicted", [row.predicted_us for row in found]


def _partition(work: PolarizationWork, plan: Plan, options: Options, device: Device) -> Partition:
    first, transform = plan.stages[0], None
    last: Union[PolarizationWork, TransformWork] = work
    if options.geometry is not None:
        first, second = geometry_stages(first, work.dtypes)
        last = make_transform_work(work, plan, options)
        transform = _planned(second, TransformModel(last, device))
    polarization = _planned(first, PolarizationModel(work, device))
    if not plan.window:
        return Partition(polarization, None, transform)
    ssim = _planned(plan.stages[1], SsimModel(make_ssim_work(last, plan, options), device))
    return Partition(polarization, ssim, transform)


def _planned(stage: Stage, model: _ModelT) -> PlannedLaunch[_ModelT]:
    measured = tuned(model)
    schedule = predicted_fastest(model) if measured is None else measured.schedule
    return PlannedLaunch(stage, model, schedule, model.predict(schedule), None if measured is None else measured.us)
