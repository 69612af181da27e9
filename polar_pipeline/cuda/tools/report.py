"""What `polar-pipeline plan` shows; needs neither a GPU nor CuPy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Dict, Iterator, List, Tuple

from polar_pipeline.cuda.model.cost import COPY_SHARE, ISSUE_SLOTS, REREAD_SHARE, roofline
from polar_pipeline.cuda.model.device import Device
from polar_pipeline.cuda.model.geometry import CORRECTION_BYTES, correction_bytes
from polar_pipeline.cuda.model.launch_model import PolarizationModel, SsimModel, TransformModel
from polar_pipeline.cuda.model.partition import (
    AnyLaunch,
    Partition,
    PlannedLaunch,
    ProductLaunch,
    not_from_mosaic,
    partitions,
    times,
)
from polar_pipeline.cuda.model.requested_work import work_of
from polar_pipeline.cuda.model.transform_cost import map_bytes
from polar_pipeline.options import Options
from polar_pipeline.plan import GEOMETRY, OPERATORS, Plan, make_plan, shared_values


@dataclass(frozen=True)
class PlanReport:
    """A plan on a device.

    Attributes:
        device: The GPU.
        plan: What is computed.
        partition: In which launches: those that the backend would run.
        choice: Why the SSIM launch reads what it reads; empty without SSIM.
        geometry: What the outputs differ in from the Stokes image, in words; empty without a geometry.
    """

    device: Device
    plan: Plan
    partition: Partition
    choice: str
    geometry: str = ""


def plan_report(options: Options, device: Device, raw_format: str, size: Tuple[int, int]) -> PlanReport:
    """What a plan takes on a device.

    Args:
        options: What to compute and how.
        device: Where.
        raw_format: A key of `RAW_FORMATS`.
        size: (width, height) of the frame.

    Raises:
        FrameError: The frame has pixels that the calibration lacks, or the geometry does not fit it.
        ScheduleError: No schedule fits the device.
    """
    work, plan = work_of(options, raw_format, size), make_plan(options.products)
    found = partitions(work, plan, options, device)
    choice = ""
    if found[0].ssim is not None:
        choice = not_from_mosaic(work, options) or _choice(found, device)
    return PlanReport(device, plan, found[0], choice, "" if options.geometry is None else options.geometry.describe())


def _choice(found: List[Partition], device: Device) -> str:
    """The times of every partition, as text."""
    basis, us = times(found)
    names = ("from the mosaic, stored nowhere" if row.ssim_from_mosaic else "stored and read" for row in found)
    shown = (f"{name}: {time:.1f} us" for name, time in zip(names, us))
    text = f"{basis} for both launches with what is compared {', '.join(shown)}"
    if us[0] > min(us):
        text += f"; {device.name} does not cache host memory, so it takes the mosaic only where that was measured"
    return text


# ---------------------------------------------------------------------------------------------------------------- JSON


def plan_json(report: PlanReport) -> str:
    """The report as JSON."""
    first, second = report.partition.polarization, report.partition.ssim
    taken = first.model.cost(first.schedule)
    shown = {
        "device": asdict(report.device),
        "work": first.model.key,
        "size": list(first.model.size),
        "operators": [name for name, _ in _operators(report)],
        "shared": {name: list(users) for name, users in shared_values(report.plan.products).items()},
        "launches": [vars(launch.stage) for launch in report.partition.launches],
        "schedule": {**_schedule(first), "occupancy": round(first.model.occupancy(first.schedule), 3)},
        "bytes": {
            "read": ceil(taken.read),
            "reread": ceil(taken.reread),
            "written": taken.written,
            "correction": correction_bytes(report.partition.frames),
            "map": _map_bytes(first),
        },
        "operations": round(taken.operations),
        "predicted": _predicted(first),
    }
    transform = report.partition.transform
    if transform is not None:
        taken = transform.model.cost(transform.schedule)
        shown["geometry"] = {
            "work": transform.model.key,
            "size": list(transform.model.size),
            "schedule": {**_schedule(transform), "occupancy": round(transform.model.occupancy(transform.schedule), 3)},
            "bytes": {
                "read": ceil(taken.read),
                "reread": ceil(taken.reread),
                "written": taken.written,
                "map": _map_bytes(transform),
            },
            "operations": round(taken.operations),
            "predicted": _predicted(transform),
        }
    if second is not None:
        shown["ssim"] = {
            "schedule": _schedule(second),
            "predicted": _predicted(second),
            "source": second.model.work.source,
            "choice": report.choice,
        }
    return json.dumps(shown, indent=2)


def _correction(report: PlanReport) -> List[Tuple[str, str]]:
    """(name, text) of the operator before all others, with a calibration."""
    work = report.partition.frames
    if not work.calibrated:
        return []
    size = f"{CORRECTION_BYTES} bytes a pixel, {correction_bytes(work)} in all"
    return [("correction", f"every raw pixel as an ideal one would have measured it: {size}")]


def _operators(report: PlanReport) -> Iterator[Tuple[str, str]]:
    """(name, text) of every operator, in order."""
    yield from _correction(report)
    plan, transform = report.plan, report.partition.transform
    names = plan.pixel + plan.window
    if report.geometry:
        names = report.partition.polarization.stage.operators
        if transform is not None:
            names += transform.stage.operators
        names += tuple(name for name in plan.window if name not in names)
    yield from ((name, report.geometry if name == GEOMETRY else OPERATORS[name].text) for name in names)


def _map_bytes(launch: ProductLaunch) -> int:
    """Bytes of the map of a geometry that a launch reads."""
    if isinstance(launch.model, TransformModel):
        return map_bytes(launch.model.work, launch.schedule)
    return 0


def _schedule(launch: AnyLaunch) -> Dict[str, Any]:
    model, schedule = launch.model, launch.schedule
    return {
        **asdict(schedule),
        "blocks": model.grid(schedule),
        "shared_bytes": model.shared_bytes(schedule),
        "registers": model.registers(schedule),
        "is_measured": launch.is_measured,
    }


def _predicted(launch: AnyLaunch) -> Dict[str, float]:
    return {**asdict(launch.predicted), "us": launch.predicted.us}


# ---------------------------------------------------------------------------------------------------------------- text


def plan_text(report: PlanReport) -> str:
    """The report as text."""
    return "\n".join(_plan_lines(report))


def _plan_lines(report: PlanReport) -> Iterator[str]:
    device, plan, (first, *_) = report.device, report.plan, report.partition.launches
    width, height = first.model.size
    yield first.model.key
    yield f"{width}x{height} on {device.name} ({device.arch}, {device.multiprocessors} multiprocessors)"
    yield "\noperators"
    users = shared_values(plan.products)
    for name, text in _operators(report):
        yield f"  {name:<14} {text}"
        if name in users:
            yield f"  {'':<14} computed once for {', '.join(users[name])}"
    yield from _stage_lines(report.partition.polarization)
    yield from _image_lines(report.partition.polarization)
    if report.partition.transform is not None:
        yield from _stage_lines(report.partition.transform)
        yield from _image_lines(report.partition.transform)
    if report.partition.ssim is not None:
        yield from _stage_lines(report.partition.ssim)
        yield f"  source     {report.partition.ssim.model.work.source}; {report.choice}"
        yield from _ssim_lines(report.partition.ssim)


def _stage_lines(launch: AnyLaunch) -> Iterator[str]:
    stage = launch.stage
    yield f"\nlaunch {stage.name}"
    yield f"  computes   {', '.join(stage.operators)}"
    yield f"  together   {stage.reason}"
    yield f"  from, to   {', '.join(stage.reads)} -> {', '.join(stage.writes) or 'counts only'}"


def _schedule_lines(launch: AnyLaunch) -> Iterator[str]:
    schedule = launch.schedule
    sizes = (f"{name} {value}" for name, value in asdict(schedule).items() if isinstance(value, int) and value)
    yield f"  schedule   {schedule.kernel}, window in {schedule.window}: {', '.join(sizes)}"
    yield f"             best as {'measured' if launch.is_measured else 'predicted'}"


def _image_lines(launch: ProductLaunch) -> Iterator[str]:
    """The lines of a launch that makes products, or the planes that they are made of."""
    model, schedule, predicted = launch.model, launch.schedule, launch.predicted
    device, taken = model.device, model.cost(schedule)
    yield from _schedule_lines(launch)
    yield f"  blocks     {' x '.join(map(str, model.grid(schedule)))}"
    yield f"  shared     {model.shared_bytes(schedule)} of {device.shared_per_block} bytes a block"
    yield f"  occupancy  {model.occupancy(schedule):.0%} with {model.registers(schedule)} registers a thread"
    again = ceil(max(0, taken.reread - taken.read))
    yield f"  reads      {ceil(taken.read)} bytes, and {again} again for halos at {REREAD_SHARE:g} of the cost"
    if _map_bytes(launch):
        yield f"  map        {_map_bytes(launch)} of the bytes read; all frames share it"
    if isinstance(model, PolarizationModel) and model.work.calibrated:
        yield f"  correction {correction_bytes(model.work)} of the bytes read: {CORRECTION_BYTES} a pixel"
    images = f", in {taken.images} images at {taken.write_cost:.3g} of the cost" if taken.images > 1 else ""
    yield f"  writes     {taken.written} bytes{images}"
    if taken.longer != 1:
        yield f"  measured   such launches take {taken.longer:.3g} of what follows from these numbers, on an H200"
    ideal = roofline(taken, device)
    cached = ", in part from the cache" if predicted.memory_us < 0.999 * ideal.memory_us else ""
    yield f"  memory     {predicted.memory_us:.1f} us at {COPY_SHARE:.0%} of {device.bandwidth_gbs} GB/s{cached}"
    slots = device.multiprocessors * ISSUE_SLOTS
    yield (
        f"  arithmetic {predicted.arithmetic_us:.1f} us: {taken.operations:.0f} operations at {slots} a clock and "
        f"{device.clock_mhz} MHz take {ideal.arithmetic_us:.1f} us, with every scheduler busy"
    )
    yield (
        f"  time       {predicted.us:.1f} us predicted: the longer one, {predicted.waiting_us:.1f} us that it does not "
        f"hide, {predicted.launch_us:.0f} us to launch"
    )


def _ssim_lines(launch: PlannedLaunch[SsimModel]) -> Iterator[str]:
    model, schedule, predicted = launch.model, launch.schedule, launch.predicted
    taken = model.cost(schedule)
    yield from _schedule_lines(launch)
    yield f"  blocks     {model.grid(schedule)[0]}, {model.shared_bytes(schedule)} bytes of shared memory each"
    yield f"  reads      {taken.read} bytes, and {max(0, taken.reread - taken.read)} again for halos"
    yield f"  writes     {taken.written} bytes"
    yield f"  memory     {predicted.memory_us:.1f} us"
    yield f"  arithmetic {predicted.arithmetic_us:.1f} us"
    yield f"  time       {predicted.us:.1f} us predicted"
