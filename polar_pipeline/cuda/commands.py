"""What `polar-pipeline plan` and `polar-pipeline tune` do; the first needs neither a GPU nor CuPy."""

from __future__ import annotations

import importlib
import json
from itertools import groupby
from math import ceil
from operator import attrgetter
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.cuda import ssim
from polar_pipeline.cuda.compile import OPTIONS, source
from polar_pipeline.cuda.device import Device, from_properties
from polar_pipeline.cuda.partition import Partition, not_from_mosaic, partitions
from polar_pipeline.cuda.schedule import (
    COPY_SHARE,
    ISSUE_SLOTS,
    REREAD_SHARE,
    Cost,
    Prediction,
    Schedule,
    candidates,
    cost,
    expected_occupancy,
    grid,
    limits,
    output_bytes,
    predict,
    registers,
    roofline,
    schedule_defines,
    shared_bytes,
    tuned,
    tuned_path,
    work_key,
)
from polar_pipeline.cuda.ssim import Similarity
from polar_pipeline.cuda.work import FRAME, OUTPUTS, Work, defines, make_work
from polar_pipeline.options import Options
from polar_pipeline.plan import OPERATORS, Plan, make_plan, shared_values
from polar_pipeline.sensor import FORMATS

#: Raw formats as the kernels call them -> as cameras do.
_FORMATS = {"u8": FORMATS["8"], "u16": FORMATS["16"], "12p": FORMATS["12p"], "12packed": FORMATS["12Packed"]}


class Second(NamedTuple):
    """The second launch, which compares images.

    Attributes:
        work: What it does.
        schedule: How.
        taken: What it moves and computes.
        predicted: How long that takes.
        choice: Why it reads what it reads.
    """

    work: Similarity
    schedule: Schedule
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
            "registers": registers(work, schedule),
            "occupancy": round(expected_occupancy(work, schedule, self.device), 3),
        }


def work_of(options: Options, raw_format: str, size: Tuple[int, int]) -> Work:
    """The fused launch of some options.

    Args:
        options: What to compute and how.
        raw_format: A key of `RAW_FORMATS`.
        size: (width, height) of the frame.
    """
    full_scale = options.full_scale if raw_format == "u16" else _FORMATS[raw_format].full_scale
    return make_work(make_plan(options.products), options, raw_format, full_scale, (size[1], size[0]))


# ---------------------------------------------------------------------------------------------------------------- plan


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
    is_measured = tuned(work, device) == schedule
    taken, predicted = cost(work, schedule), predict(work, schedule, device)
    second = None
    if chosen.similarity is not None and chosen.comparison is not None:
        choice = not_from_mosaic(asked, options) or _choice(chosen, others)
        compared = (chosen.similarity, chosen.comparison)
        second = Second(*compared, ssim.cost(*compared), ssim.predict(*compared, device), choice)
    return Report(device, work, plan, schedule, is_measured, taken, predicted, second)


def _choice(chosen: Partition, others: Iterable[Partition]) -> str:
    """Predicted times of every way to get what is compared, for people."""
    ways = ("from the mosaic, stored nowhere" if way.is_fused else "stored and read" for way in (chosen, *others))
    shown = (f"{way}: {each.us:.1f} us" for way, each in zip(ways, (chosen, *others)))
    return f"predicted for both launches with what is compared {', '.join(shown)}"


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
            "schedule": {**second.schedule._asdict(), **second.facts},
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


def _shown(schedule: Schedule) -> str:
    sizes = (f"{name} {value}" for name, value in schedule._asdict().items() if isinstance(value, int) and value)
    return f"{schedule.kernel}, window in {schedule.window}: {', '.join(sizes)}"


def _launch_lines(report: Report) -> Iterator[str]:
    device, schedule, taken, predicted, facts = (
        report.device,
        report.schedule,
        report.taken,
        report.predicted,
        report.facts,
    )
    ideal = roofline(taken, device)
    yield f"  schedule   {_shown(schedule)}"
    yield f"             best as {'measured' if report.is_measured else 'predicted'}"
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
        f"  time       {predicted.us:.1f} us predicted: the longer one, {predicted.waiting_us:.1f} us of the other not "
        f"hidden, {predicted.launch_us:.0f} us to launch"
    )


def _second_lines(second: Second) -> Iterator[str]:
    schedule, taken, predicted, facts = second.schedule, second.taken, second.predicted, second.facts
    yield f"  source     {second.work.source}; {second.choice}"
    yield f"  schedule   {_shown(schedule)}"
    yield f"  blocks     {facts['blocks'][0]}, {facts['shared_bytes']} bytes of shared memory each"
    yield f"  reads      {taken.read} bytes, and {max(0, taken.reread - taken.read)} again for halos"
    yield f"  writes     {taken.written} bytes"
    yield f"  memory     {predicted.memory_us:.1f} us"
    yield f"  arithmetic {predicted.arithmetic_us:.1f} us"
    yield f"  time       {predicted.us:.1f} us predicted"


# ---------------------------------------------------------------------------------------------------------------- tune

#: Frames per measurement: more bytes than any cache holds.
_FRAMES = 32
_SEED = 20240229


def tune(options: Options, device_name: str, raw_format: str, size: Tuple[int, int]) -> Tuple[Schedule, float]:
    """Measure every candidate with Kernel Tuner and write the fastest into `config/tuned/<device>.json`.

    Every configuration's outputs must be those of its kernel's first one before it is timed.

    Args:
        options: What to compute and how.
        device_name: The device that the file is for: the one of this machine.
        raw_format: A key of `RAW_FORMATS`.
        size: (width, height) of the frame.

    Returns:
        The fastest schedule, and its time in microseconds.

    Raises:
        RuntimeError: Kernel Tuner, CuPy or the device is missing, or two schedules give different results.
    """
    try:
        cupy: Any = importlib.import_module("cupy")
        tuner: Any = importlib.import_module("kernel_tuner")
    except ImportError as err:
        raise RuntimeError(f"tune needs CuPy and Kernel Tuner (pip install kernel-tuner): {err}") from err
    try:
        device = from_properties(cupy.cuda.runtime.getDeviceProperties(0))
    except cupy.cuda.runtime.CUDARuntimeError as err:
        raise RuntimeError(f"tune needs a GPU: {err}") from err
    if device.name != device_name:
        raise RuntimeError(f"the GPU of this machine is {device.name}, not {device_name}")
    work = work_of(options, raw_format, size)
    buffers = _Buffers(cupy, work, options.min_intensity)
    timed: List[Tuple[float, Schedule]] = []
    launched_alike = attrgetter("kernel", "threads")
    for _, group in groupby(sorted(candidates(work, device), key=launched_alike), launched_alike):
        timed += _measure(tuner, work, list(group), buffers)
    if not timed:
        raise RuntimeError("no schedule could be measured; Kernel Tuner's messages say why")
    us, best = min(timed)
    _write_tuned(device, {"work": work_key(work), "size": list(size), "schedule": best._asdict(), "us": round(us, 3)})
    return best, us


def _measure(tuner: Any, work: Work, schedules: List[Schedule], buffers: _Buffers) -> List[Tuple[float, Schedule]]:
    """Microseconds a frame of schedules of one kernel and number of threads."""
    kernel = schedules[0].kernel

    class Prepare(tuner.observers.BenchmarkObserver):  # type: ignore[misc]
        """Before a configuration is verified: clears its outputs, and allows it more than 48 KiB of shared memory."""

        def register_device(self, dev: Any) -> None:
            keep = dev.copy_shared_memory_args

            def copy_shared_memory_args(smem_args: Mapping[str, int]) -> None:
                keep(smem_args)
                dev.func.max_dynamic_shared_size_bytes = smem_args["size"]
                buffers.clear()

            dev.copy_shared_memory_args = copy_shared_memory_args

        def get_results(self) -> Dict[str, Any]:
            return {}

    def text(values: Mapping[str, int]) -> str:
        found = {**defines(work), **schedule_defines(work, schedules[values["choice"]])}
        return "".join(f"#define {key} {value}\n" for key, value in found.items()) + source(kernel)

    rows, _ = tuner.tune_kernel(
        kernel,
        text,
        lambda values: grid(work, schedules[values["choice"]], _FRAMES),
        [buffers.frame],
        {"block_size_x": [schedules[0].threads], "choice": list(range(len(schedules)))},
        grid_div_x=[],
        grid_div_y=[],
        grid_div_z=[],
        defines={},
        smem_args={"size": lambda values: shared_bytes(work, schedules[values["choice"]])},
        observers=[Prepare()],
        answer=[None],
        verify=lambda *_: buffers.as_first(kernel),
        compiler_options=list(OPTIONS),
        lang="CUPY",
    )
    # what could not be compiled or launched has the name of its error for a time
    measured = [row for row in rows if isinstance(row["time"], float)]
    return [(1000 * row["time"] / _FRAMES, schedules[row["choice"]]) for row in measured]


class _Buffers:
    """Frames of noise on the GPU, their outputs, and what the first configuration of each kernel made of them."""

    def __init__(self, cupy: Any, work: Work, min_intensity: float) -> None:
        step = _FORMATS[work.raw_format].row_bytes(work.width)
        noise = np.random.default_rng(_SEED)
        shape = (_FRAMES, work.height, step)
        if work.raw_format == "u16":  # 5 to 80 % of full scale: saturated pixels are rare in practice, and slower
            low, high = work.full_scale // 20, work.full_scale * 4 // 5
            raw = noise.integers(low, high, (*shape[:2], work.width), np.uint16).view(np.uint8)
        else:
            raw = noise.integers(13, 204, shape, np.uint8)
        self._raw = cupy.asarray(raw)
        self._counts = cupy.zeros((_FRAMES, 2), cupy.uint32)
        sizes = {name: output_bytes(work._replace(outputs=((name, dtype),))) for name, dtype in work.outputs}
        self._out = {name: cupy.zeros(_FRAMES * size, cupy.uint8) for name, size in sizes.items()}
        self._first: Dict[str, List[Any]] = {}
        frame = np.zeros((), FRAME)
        frame["raw"], frame["counts"] = self._raw.data.ptr, self._counts.data.ptr
        for name, array in self._out.items():
            frame["out"][OUTPUTS.index(name)] = array.data.ptr
        frame["raw_stride"], frame["step"] = work.height * step, step
        frame["width"], frame["height"] = work.width, work.height
        frame["full_scale"], frame["min_intensity"] = work.full_scale, min_intensity
        self.frame = frame[()]

    def clear(self) -> None:
        """Forget what the last launches stored and counted."""
        for array in (self._counts, *self._out.values()):
            array.fill(0)

    def as_first(self, kernel: str) -> bool:
        """Whether the outputs are those of the kernel's first configuration."""
        found = [array.copy() for array in (self._counts, *self._out.values())]
        first = self._first.setdefault(kernel, found)
        return all(bool((a == b).all()) for a, b in zip(found, first))


def _write_tuned(device: Device, entry: Dict[str, Any]) -> None:
    """Put an entry into the device's file, in place of what it holds for that work and size."""
    path = tuned_path(device)
    rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    same = (entry["work"], entry["size"])
    rows = [row for row in rows if (row["work"], row["size"]) != same] + [entry]
    rows.sort(key=lambda row: (row["work"], row["size"]))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
