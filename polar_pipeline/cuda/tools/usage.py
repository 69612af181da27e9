"""What every kernel takes of a device, found by compiling it: no GPU needed. Behind `polar-pipeline kernels`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Dict, Iterator, List, Mapping, Tuple, Union

from polar_pipeline._util.cpus import available_cores
from polar_pipeline._util.text import quoted
from polar_pipeline.coefficients import SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.cuda.compile import compile_kernel, find_library
from polar_pipeline.cuda.model.device import DEVICES, Device, occupancy
from polar_pipeline.cuda.model.launch_model import (
    LaunchModel,
    PolarizationModel,
    SsimModel,
    TransformModel,
)
from polar_pipeline.cuda.model.requested_work import make_work
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_search import WINDOWS
from polar_pipeline.cuda.model.ssim_work import INPUTS, SsimWork, ssim_key
from polar_pipeline.cuda.model.transform_work import TransformWork, make_transform_work
from polar_pipeline.cuda.model.tuned import choose
from polar_pipeline.cuda.model.work import RAW_FORMATS, PolarizationWork
from polar_pipeline.cuda.resource_usage import kernel_resources
from polar_pipeline.options import make_options
from polar_pipeline.plan import make_plan
from polar_pipeline.sensor.mosaic import ANGLES, FULL_FRAME
from polar_pipeline.topics import PRODUCT_TOPICS

_VIEWED = ("intensity", "dolp", "aolp", "preview")
_ANGLE_IMAGES = tuple(f"angle_{angle}" for angle in ANGLES)
#: Products that are requested together, and their `output_depth`. The first is what a live node publishes.
REQUESTS = (
    ((*_VIEWED, "ssim_map", "ssim"), "float32"),
    ((*_VIEWED, "ssim_map", "ssim"), "uint8"),
    (_VIEWED, "uint8"),
    (_VIEWED[:3], "uint8"),
    (_VIEWED[:3], "uint16"),
    (_ANGLE_IMAGES, "uint8"),
    (("stokes",), "float32"),
)
#: Changes of the defaults, each by itself: options, and fields of the work.
_CHANGES: Tuple[Tuple[Mapping[str, Any], Mapping[str, Any]], ...] = (
    *(({"co_sited": False}, {}), ({"demosaic": "gradient"}, {}), ({"precision": "fp32"}, {})),
    *(({"resolution": "full", "demosaic": method}, {}) for method in ("auto", "bilinear", "gradient")),
    *(({}, {"raw_format": name, "calibrated": corrected}) for name in RAW_FORMATS for corrected in (False, True)),
)
#: One sensor with each kind of mosaic.
_SENSORS = ("IMX250MZR", "IMX250MYR")
_FULL_SCALE = {"u8": 255, "u16": 4095, "12p": 4095, "12packed": 4095}


@dataclass(frozen=True)
class KernelUsage:
    """What one kernel takes.

    Attributes:
        name: The kernel and its work.
        registers: Per thread.
        shared_bytes: Per block.
        spill_bytes: Local memory per thread.
        occupancy: Share of a multiprocessor's warps that are resident, 0 to 1.
    """

    name: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    occupancy: float


@dataclass(frozen=True)
class _Build:
    """One kernel to compile: its name with its work's, threads and dynamic shared memory of a block, definitions."""

    kernel: str
    text: str
    threads: int
    shared_bytes: int
    defines: Mapping[str, Union[int, str]]


def device_of_arch(arch: str) -> Device:
    """The first device of an architecture.

    Raises:
        ValueError: None is known.
    """
    known = {device.arch: device for device in reversed(list(DEVICES.values()))}
    if arch not in known:
        raise ValueError(f"arch must be one of {', '.join(sorted(known))}, got {quoted(arch)}")
    return known[arch]


def _work(
    sensor: str, request: Tuple[Tuple[str, ...], str], raw_format: str = "u8", **options: Any
) -> PolarizationWork:
    names, depth = request
    types = {name: PRODUCT_TOPICS[name].dtype(depth) for name in names}
    chosen = make_options(sensor, names, types, **options)
    return make_work(make_plan(names), chosen, raw_format, _FULL_SCALE[raw_format], FULL_FRAME)


def works() -> Iterator[PolarizationWork]:
    """What the node asks of the kernels by default, every request, and each change of the defaults by itself."""
    for sensor in _SENSORS:
        for request in REQUESTS:
            yield _work(sensor, request)
            yield _work(sensor, request, co_sited=False)
        for request, (options, fields) in product(REQUESTS[1:3], _CHANGES):
            more = dict(fields)
            yield replace(_work(sensor, request, more.pop("raw_format", "u8"), **options), **more)


def ssim_works() -> Iterator[SsimWork]:
    """What can be asked of the SSIM launch, on full frames at half resolution; the shortest to the longest window."""
    size = (FULL_FRAME[0] // 2, FULL_FRAME[1] // 2)
    yield from (SsimWork(*size, 1, window, SSIM_SIGMA, "uint16", "float32") for window in (3, SSIM_WINDOW, 15))
    yield from (SsimWork(*size, 1, SSIM_WINDOW, SSIM_SIGMA, source, "uint8") for source in INPUTS)
    yield SsimWork(*size, 2, SSIM_WINDOW, SSIM_SIGMA, "uint16", "float32")


def transform_works() -> Iterator[TransformWork]:
    """What can be asked of the launch of a geometry, on full frames at half resolution."""
    changes: Tuple[Mapping[str, Any], ...] = ({"rotate": 90}, {"scale": 2}, {"rotate": 90, "precision": "fp32"})
    for sensor, request, options in product(_SENSORS, REQUESTS[:4], changes):
        names, depth = request
        types = {name: PRODUCT_TOPICS[name].dtype(depth) for name in names}
        plan, chosen = make_plan(names), make_options(sensor, names, types, **options)
        work = make_work(plan, chosen, "u8", _FULL_SCALE["u8"], FULL_FRAME)
        yield replace(make_transform_work(work, plan, chosen), positions="scale" in options)


def _build(model: LaunchModel, schedule: Schedule, text: str) -> _Build:
    shared_bytes = model.shared_bytes(schedule)
    return _Build(schedule.kernel, text, schedule.threads, shared_bytes, model.defines(schedule))


def _builds(device: Device) -> Iterator[_Build]:
    for work in dict.fromkeys(works()):
        polarization = PolarizationModel(work, device)
        yield _build(polarization, choose(polarization), polarization.key)
    for transform_work in dict.fromkeys(transform_works()):
        transform = TransformModel(transform_work, device)
        yield _build(transform, choose(transform), transform.key)
    for ssim_work in ssim_works():
        ssim = SsimModel(ssim_work, device)
        for window in WINDOWS:
            able = [schedule for schedule in ssim.candidates() if schedule.window == window]
            if able:
                best = min(able, key=lambda schedule: ssim.predict(schedule).us)
                yield _build(ssim, best, f"{window}, {ssim_key(ssim_work)}")


def usages(device: Device) -> List[KernelUsage]:
    """What every kernel takes on a device, with the schedule that it gets there.

    Raises:
        CompileError: A kernel does not compile, or there is no compiler for the device.
        ScheduleError: No schedule of some work fits the device.
    """
    builds: Dict[Tuple[object, ...], _Build] = {}
    for build in _builds(device):
        builds.setdefault((build.kernel, *sorted(build.defines.items())), build)

    def measure(build: _Build) -> KernelUsage:
        found = kernel_resources(compile_kernel(build.kernel, build.defines, device.arch))
        shared_bytes = found.shared_bytes + build.shared_bytes
        share = occupancy(device, build.threads, found.registers, shared_bytes)
        return KernelUsage(f"{build.kernel}: {build.text}", found.registers, shared_bytes, found.spill_bytes, share)

    find_library(device.arch)  # once, before all threads look for it
    with ThreadPoolExecutor(available_cores()) as pool:
        return list(pool.map(measure, builds.values()))
