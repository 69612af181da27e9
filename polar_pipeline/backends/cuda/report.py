"""Report of `polar-pipeline plan`: operators, launches, schedules, bytes; needs neither a GPU nor CuPy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterator, Tuple

from polar_pipeline.backends.cuda.device import Device
from polar_pipeline.backends.cuda.solver import Launch, launches, requested_works
from polar_pipeline.backends.cuda.work import CORRECTION_BYTES, PolarizationWork, TransformWork
from polar_pipeline.options import Options
from polar_pipeline.options.plan import GEOMETRY, OPERATORS, Stage, make_stages, shared_values


@dataclass(frozen=True)
class PlanReport:
    """Launches of some options on a device.

    Attributes:
        device: The GPU.
        operators: (name, text) of every operator, in order.
        shared: Operators whose value serves several products -> those products.
        launches: (what it computes as a stage of the plan, how), in order; a backend takes the next schedule where a
            compiled kernel spills.
    """

    device: Device
    operators: Tuple[Tuple[str, str], ...]
    shared: Dict[str, Tuple[str, ...]]
    launches: Tuple[Tuple[Stage, Launch], ...]


def plan_report(options: Options, device: Device, raw_format: str, size: Tuple[int, int]) -> PlanReport:
    """Describe the launches of some options on a device.

    Args:
        options: Options of the pipeline.
        device: Device that computes.
        raw_format: A key of `CAMERA_FORMATS`.
        size: (width, height) of the frame.

    Raises:
        FrameError: The frame has pixels that the calibration lacks, or the geometry does not fit it.
        ScheduleError: No schedule fits the device.
    """
    works = requested_works(options, raw_format, size)
    planes = [name for work in works if isinstance(work, TransformWork) for name in work.plane_names]
    stages = make_stages(options.products, planes)
    texts = {name: operator.text for name, operator in OPERATORS.items()}
    if options.geometry is not None:
        texts[GEOMETRY] = options.geometry.describe()
    names = dict.fromkeys(name for stage in stages for name in stage.operators)
    operators = tuple((name, texts[name]) for name in names)
    mosaic = works[0]
    if isinstance(mosaic, PolarizationWork) and mosaic.calibrated:
        taken = f"{CORRECTION_BYTES} bytes a pixel, {mosaic.correction_bytes} in all"
        text = f"every raw pixel as an ideal one would have measured it: {taken}"
        operators = (("correction", text), *operators)
    return PlanReport(device, operators, shared_values(options.products), tuple(zip(stages, launches(works, device))))


def _choice(launch: Launch) -> str:
    """Explain the choice of a launch's schedule."""
    took = "" if launch.measured_us is None else f", {launch.measured_us:.2f} us a frame"
    return {
        "measured": f"measured on this device{took}",
        "shipped": f"shipped for {launch.device.arch}{took}",
        "solved": "fewest bytes with halos, in waves of blocks that fill the device",
    }[launch.basis]


def plan_json(report: PlanReport) -> str:
    """Format the report as JSON."""
    shown = {
        "device": asdict(report.device),
        "operators": [name for name, _ in report.operators],
        "shared": {name: list(users) for name, users in report.shared.items()},
        "launches": [_launch_json(stage, launch) for stage, launch in report.launches],
    }
    return json.dumps(shown, indent=2)


def _launch_json(stage: Stage, launch: Launch) -> Dict[str, Any]:
    return {
        **vars(stage),
        "work": launch.work.key,
        "size": list(launch.work.size),
        "schedule": {
            **asdict(launch.schedule),
            "blocks": launch.grid,
            "shared_bytes": launch.shared_bytes,
            "registers": launch.registers,
            "occupancy": round(launch.occupancy, 3),
            "basis": launch.basis,
            "measured_us": launch.measured_us,
        },
        "bytes": {
            "read": launch.work.read_bytes,
            "reread": launch.reread_bytes,
            "written": launch.work.written_bytes,
        },
        "memory_us": round(launch.memory_us, 2),
    }


def plan_text(report: PlanReport) -> str:
    """Format the report as text."""
    return "\n".join(_plan_lines(report))


def _plan_lines(report: PlanReport) -> Iterator[str]:
    device, (_, first) = report.device, report.launches[0]
    width, height = first.work.size
    yield first.work.key
    yield f"{width}x{height} on {device.name} ({device.arch}, {device.multiprocessors} multiprocessors)"
    yield "\noperators"
    for name, text in report.operators:
        yield f"  {name:<14} {text}"
        if name in report.shared:
            yield f"  {'':<14} computed once for {', '.join(report.shared[name])}"
    for stage, launch in report.launches:
        yield from _launch_lines(stage, launch)


def _launch_lines(stage: Stage, launch: Launch) -> Iterator[str]:
    schedule, device, grid = launch.schedule, launch.device, " x ".join(map(str, launch.grid))
    sizes = {name: getattr(schedule, name) for name in ("threads", "tile_x", "tile_y", "rows")}
    yield f"\nlaunch {stage.name}"
    yield f"  computes   {', '.join(stage.operators)}"
    yield f"  together   {stage.reason}"
    yield f"  from, to   {', '.join(stage.reads)} -> {', '.join(stage.writes)}"
    yield f"  schedule   {schedule.kernel}, {schedule.window}: {', '.join(f'{k} {n}' for k, n in sizes.items() if n)}"
    yield f"             {_choice(launch)}"
    yield f"  blocks     {grid}"
    yield f"  shared     {launch.shared_bytes} of {device.shared_per_block} bytes a block"
    yield f"  occupancy  {launch.occupancy:.0%} with at most {launch.registers} registers a thread"
    yield f"  reads      {launch.work.read_bytes} bytes, and {launch.reread_bytes} again for halos"
    yield f"  writes     {launch.work.written_bytes} bytes"
    yield f"  memory     {launch.memory_us:.1f} us at {device.bandwidth_gbs:g} GB/s: no launch is shorter"
