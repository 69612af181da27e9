"""What `polar-pipeline plan` says; it needs neither a GPU nor CuPy."""

from __future__ import annotations

import json
from math import ceil
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from polar_pipeline.cuda.model import ssim
from polar_pipeline.cuda.model.device import Device
from polar_pipeline.cuda.model.partition import Partition, not_from_mosaic, partitions, times
from polar_pipeline.cuda.model.schedule import (
    COPY_SHARE,
    ISSUE_SLOTS,
    REREAD_SHARE,
    Cost,
    Prediction,
    Schedule,
    cost,
    expected_occupancy,
    grid,
    limits,
    predict,
    registers,
    roofline,
    shared_bytes,
)
from polar_pipeline.cuda.model.ssim import Similarity
from polar_pipeline.cuda.model.tuned import tuned, work_key
from polar_pipeline.cuda.model.work import Work, work_of
from polar_pipeline.options import Options
from polar_pipeline.plan import OPERATORS, Plan, make_plan, shared_values


class Second(NamedTuple):
    """The second launch, which compares images.

    Attributes:
        work: What it does.
        schedule: How.
        is_measured: Whether that was measured, not predicted, to be the best.
        taken: What it moves and computes.
        predicted: How long that takes.
        choice: Why it reads what it reads.
    """

    work: Similarity
    schedule: Schedule
    is_measured: bool
    taken: Cost
    predicted: Prediction
    choice: str

    @property
    def facts(self) -> Dict[str, Any]:
        """What the schedule takes of the device."""
        return {
            "blocks": ssim.grid(self.work, self.schedule),
            "shared_bytes": ssim.shared_bytes(self.schedule),
            "registers": ssim.registers(self.work, self.schedule),
        }


class Report(NamedTuple):
    """A plan on a device.

    Attributes:
        device: The GPU.
        work: What its launch does.
        plan: What is computed.
        schedule: How the GPU's launch is done.
        is_measured: Whether that was measured, not predicted, to be the best.
        taken: What the launch moves and computes.
        predicted: How long that takes.
        second: The second launch, if there is one.
    """

    device: Device
    work: Work
    plan: Plan
    schedule: Schedule
    is_measured: bool
    taken: Cost
    predicted: Prediction
    second: Optional[Second]

    @property
    def facts(self) -> Dict[str, Any]:
        """What the schedule takes of the device."""
        work, schedule = self.work, self.schedule
        return {
            "blocks": grid(work, schedule),
            "shared_bytes": shared_bytes(work, schedule),
            "registers": registers(work, schedule, self.device),
            "occupancy": round(expected_occupancy(work, schedule, self.device), 3),
        }


def plan_report(options: Options, device: Device, raw_format: str, size: Tuple[int, int]) -> Report:
    """What a plan takes on a device.

    Args:
        options: What to compute and how.
        device: Where.
        raw_format: A key of `RAW_FORMATS`.
        size: (width, height) of the frame.

    Raises:
        LimitError: The device is too small for the plan.
        ScheduleError: No schedule fits the device.
    """
    asked = work_of(options, raw_format, size)
    allowed = limits(asked, device)
    plan = make_plan(options.products, allowed)
    chosen, *others = partitions(asked, plan, options, device)
    if chosen.is_fused:
        plan = make_plan(options.products, allowed._replace(recomputes=True))
    work, schedule = chosen.work, chosen.schedule
    taken, predicted = cost(work, schedule, device), predict(work, schedule, device)
    second = None
    if chosen.similarity is not None and chosen.comparison is not None:
        choice = not_from_mosaic(asked, options) or _choice([chosen, *others], device)
        compared = (chosen.similarity, chosen.comparison)
        is_measured = tuned(chosen.similarity, device) is not None
        second = Second(*compared, is_measured, ssim.cost(*compared, device), ssim.predict(*compared, device), choice)
    return Report(device, work, plan, schedule, tuned(work, device) is not None, taken, predicted, second)


def _choice(ways: List[Partition], device: Device) -> str:
    """Times of every way to get what is compared, for people."""
    how, found = times(ways)
    names = ("from the mosaic, stored nowhere" if way.is_fused else "stored and read" for way in ways)
    shown = (f"{name}: {us:.1f} us" for name, us in zip(names, found))
    text = f"{how} for both launches with what is compared {', '.join(shown)}"
    if found[0] > min(found):
        text += f"; {device.name} does not cache host memory, so it takes the mosaic only where that was measured"
    return text


def plan_json(report: Report) -> str:
    """The report for programs."""
    shown = {
        "device": report.device._asdict(),
        "work": work_key(report.work),
        "size": [report.work.width, report.work.height],
        "operators": list(report.plan.pixel + report.plan.window),
        "shared": {name: list(users) for name, users in shared_values(report.plan.products).items()},
        "launches": [launch._asdict() for launch in report.plan.launches],
        "schedule": {**report.schedule._asdict(), **report.facts, "is_measured": report.is_measured},
        "bytes": {
            "read": ceil(report.taken.read),
            "reread": ceil(report.taken.reread),
            "written": report.taken.written,
        },
        "operations": round(report.taken.operations),
        "predicted": {**report.predicted._asdict(), "us": report.predicted.us},
    }
    if report.second:
        second = report.second
        shown["ssim"] = {
            "schedule": {**second.schedule._asdict(), **second.facts, "is_measured": second.is_measured},
            "predicted": {**second.predicted._asdict(), "us": second.predicted.us},
            "source": second.work.source,
            "choice": second.choice,
        }
    return json.dumps(shown, indent=2)


def plan_text(report: Report) -> str:
    """The report for people."""
    return "\n".join(_plan_lines(report))


def _plan_lines(report: Report) -> Iterator[str]:
    device, work, plan = report.device, report.work, report.plan
    yield work_key(work)
    yield f"{work.width}x{work.height} on {device.name} ({device.arch}, {device.multiprocessors} multiprocessors)"
    yield "\noperators"
    users = shared_values(plan.products)
    for name in plan.pixel + plan.window:
        yield f"  {name:<14} {OPERATORS[name].text}"
        if name in users:
            yield f"  {'':<14} computed once for {', '.join(users[name])}"
    for index, (name, operators, reads, writes, reason) in enumerate(plan.launches):
        yield f"\nlaunch {name}"
        yield f"  computes   {', '.join(operators)}"
        yield f"  together   {reason}"
        yield f"  from, to   {', '.join(reads)} -> {', '.join(writes) or 'counts only'}"
        if not index:
            yield from _launch_lines(report)
        elif report.second:
            yield from _second_lines(report.second)


def _schedule_lines(schedule: Schedule, is_measured: bool) -> Iterator[str]:
    sizes = (f"{name} {value}" for name, value in schedule._asdict().items() if isinstance(value, int) and value)
    yield f"  schedule   {schedule.kernel}, window in {schedule.window}: {', '.join(sizes)}"
    yield f"             best as {'measured' if is_measured else 'predicted'}"


def _launch_lines(report: Report) -> Iterator[str]:
    device, schedule, taken, predicted, facts = (
        report.device,
        report.schedule,
        report.taken,
        report.predicted,
        report.facts,
    )
    ideal = roofline(taken, device)
    yield from _schedule_lines(schedule, report.is_measured)
    yield f"  blocks     {' x '.join(map(str, facts['blocks']))}"
    yield f"  shared     {facts['shared_bytes']} of {device.shared_per_block} bytes a block"
    yield f"  occupancy  {facts['occupancy']:.0%} with {facts['registers']} registers a thread"
    again = ceil(max(0, taken.reread - taken.read))
    yield f"  reads      {ceil(taken.read)} bytes, and {again} again for halos at {REREAD_SHARE:g} of the cost"
    yield f"  writes     {taken.written} bytes"
    yield f"  memory     {predicted.memory_us:.1f} us at {COPY_SHARE:.0%} of {device.bandwidth_gbs} GB/s"
    slots = device.multiprocessors * ISSUE_SLOTS
    yield (
        f"  arithmetic {predicted.arithmetic_us:.1f} us: {taken.operations:.0f} operations at {slots} a clock and "
        f"{device.clock_mhz} MHz take {ideal.arithmetic_us:.1f} us, with every scheduler busy"
    )
    yield (
        f"  time       {predicted.us:.1f} us predicted: the longer one, {predicted.waiting_us:.1f} us that it does not "
        f"hide, {predicted.launch_us:.0f} us to launch"
    )


def _second_lines(second: Second) -> Iterator[str]:
    schedule, taken, predicted, facts = second.schedule, second.taken, second.predicted, second.facts
    yield f"  source     {second.work.source}; {second.choice}"
    yield from _schedule_lines(schedule, second.is_measured)
    yield f"  blocks     {facts['blocks'][0]}, {facts['shared_bytes']} bytes of shared memory each"
    yield f"  reads      {taken.read} bytes, and {max(0, taken.reread - taken.read)} again for halos"
    yield f"  writes     {taken.written} bytes"
    yield f"  memory     {predicted.memory_us:.1f} us"
    yield f"  arithmetic {predicted.arithmetic_us:.1f} us"
    yield f"  time       {predicted.us:.1f} us predicted"
