"""Report of `polar-pipeline plan`: operators, launches, schedules, bytes; needs neither a GPU nor CuPy."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Dict, Iterator, Tuple

from polar_pipeline.backends.cuda.device import Device, occupancy
from polar_pipeline.backends.cuda.geometry import GeometryLaunch
from polar_pipeline.backends.cuda.launch import Launch
from polar_pipeline.backends.cuda.learned import LearnedLaunch
from polar_pipeline.backends.cuda.pixels import DENOISED, SSIM_INPUTS, STAGE_PLANES
from polar_pipeline.backends.cuda.planes import PlaneLaunch
from polar_pipeline.backends.cuda.polarization import CODE_BYTES, PolarizationLaunch
from polar_pipeline.backends.cuda.program import requested_launches
from polar_pipeline.backends.cuda.schedules import choose
from polar_pipeline.options import Options
from polar_pipeline.options.plan import DENOISE, GEOMETRY, LEARNED, OPERATORS, PlanePass, make_stages, shared_values

#: Why a schedule is the first choice.
_REASONS = {
    "measured": "measured on this device",
    "shipped": "measured on a device of this architecture",
    "solved": "of least cost: bytes with halos, resident warps, waves of blocks",
}


def make_plan(options: Options, device: Device, raw_format: str, size: Tuple[int, int]) -> Dict[str, Any]:
    """Describe the launches of some options on a device, as JSON has it.

    A backend takes the next schedule where a compiled kernel spills.

    Args:
        options: Options of the pipeline.
        device: Device that computes.
        raw_format: A key of `CAMERA_FORMATS`.
        size: (width, height) of the frame.

    Raises:
        FrameError: The frame has pixels that the calibration lacks, or the geometry does not fit it.
        ScheduleError: No schedule fits the device.
    """
    launches = requested_launches(options, raw_format, size)
    stages = make_stages(
        options.products, [_plane_pass(launch) for launch in launches if isinstance(launch, PlaneLaunch)]
    )
    texts = {name: operator.text for name, operator in OPERATORS.items()}
    if options.geometry is not None:
        texts[GEOMETRY] = options.geometry.describe()
    texts[DENOISE] = f"S0, S1 and S2 without the noise that the noise model expects, times {options.denoise_strength:g}"
    texts[LEARNED] = "S0, S1 and S2 corrected by a network, by less than the noise"
    operators = {name: texts[name] for stage in stages for name in stage.operators}
    first = launches[0]
    if isinstance(first, PolarizationLaunch) and first.calibrated:
        size_of_codes = f"{CODE_BYTES} bytes a pixel, {first.correction_bytes} in all"
        correction = f"every raw pixel as an ideal one would have measured it: {size_of_codes}"
        operators = {"correction": correction, **operators}
    return {
        "device": asdict(device),
        "operators": operators,
        "shared": {name: list(users) for name, users in shared_values(options.products).items()},
        "launches": [{**vars(stage), **_describe(launch, device)} for stage, launch in zip(stages, launches)],
    }


def _plane_pass(launch: PlaneLaunch) -> PlanePass:
    """Return what a launch reads and writes by the names of the plan."""
    if isinstance(launch, LearnedLaunch):
        return PlanePass(launch.stage, launch.reads, launch.writes)
    of_stage = STAGE_PLANES[launch.planes_of if isinstance(launch, GeometryLaunch) else "polarization"]
    reads = tuple(of_stage[name] for name in launch.plane_names)
    names = {**DENOISED, **dict.fromkeys(SSIM_INPUTS, "ssim_pair")}
    return PlanePass(launch.stage, reads, tuple(names.get(name, name) for name in launch.dtypes))


def _describe(launch: Launch, device: Device) -> Dict[str, Any]:
    """Describe a launch with its first choice of a schedule."""
    basis, schedule = next(choose(launch, device))
    kernel = launch.kernel(schedule)
    shared, registers = kernel.shared_bytes(launch, schedule), kernel.registers(launch, schedule, device)
    read, written = launch.read_bytes, launch.written_bytes
    return {
        "work": launch.key,
        "size": list(launch.size),
        "schedule": {
            **asdict(schedule),
            "blocks": kernel.grid(launch, schedule),
            "shared_bytes": shared,
            "registers": registers,
            "occupancy": round(occupancy(device, schedule.threads, registers, shared), 3),
            "basis": basis,
        },
        "bytes": {"read": read, "reread": round(read * (kernel.loads(launch, schedule) - 1)), "written": written},
        "memory_us": round((read + written) / device.bandwidth_gbs / 1e3, 2),
    }


def plan_text(plan: Dict[str, Any]) -> str:
    """Format a plan as text."""
    return "\n".join(_lines(plan))


def _lines(plan: Dict[str, Any]) -> Iterator[str]:
    device, launches = plan["device"], plan["launches"]
    yield launches[0]["work"]
    width, height = launches[0]["size"]
    yield f"{width}x{height} on {device['name']} ({device['arch']}, {device['multiprocessors']} multiprocessors)"
    yield "\noperators"
    for name, text in plan["operators"].items():
        yield f"  {name:<14} {text}"
        if name in plan["shared"]:
            yield f"  {'':<14} computed once for {', '.join(plan['shared'][name])}"
    for launch in launches:
        schedule, moved = launch["schedule"], launch["bytes"]
        sizes = [f"{name} {schedule[name]}" for name in ("threads", "tile_x", "tile_y", "rows") if schedule[name]]
        yield f"\nlaunch {launch['name']}"
        yield f"  computes   {', '.join(launch['operators'])}"
        yield f"  together   {launch['reason']}"
        yield f"  from, to   {', '.join(launch['reads'])} -> {', '.join(launch['writes'])}"
        yield f"  schedule   {schedule['kernel']}: {', '.join(sizes)}"
        yield f"             {_REASONS[schedule['basis']]}"
        yield f"  blocks     {' x '.join(map(str, schedule['blocks']))}"
        yield f"  shared     {schedule['shared_bytes']} of {device['shared_per_block']} bytes a block"
        registers = schedule["registers"]
        yield f"  occupancy  {schedule['occupancy']:.0%} with at most {registers} registers a thread"
        yield f"  reads      {moved['read']} bytes, and {moved['reread']} again for halos"
        yield f"  writes     {moved['written']} bytes"
        microseconds, speed = launch["memory_us"], device["bandwidth_gbs"]
        yield f"  memory     {microseconds:.1f} us at {speed:g} GB/s: no launch is shorter"
