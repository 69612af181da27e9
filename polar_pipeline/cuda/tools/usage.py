"""What every kernel takes of a device, found by compiling it: no GPU needed. Behind `polar-pipeline kernels`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import Dict, Iterator, List, Mapping, Tuple, Union

from polar_pipeline._util.cpus import available_cores
from polar_pipeline._util.text import quoted
from polar_pipeline.coefficients import SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.cuda.compile import compile_kernel, find_library
from polar_pipeline.cuda.model.device import DEVICES, Device, occupancy
from polar_pipeline.cuda.model.launch_model import (
    LaunchModel,
    PolarizationModel,
    RectifiedModel,
    SsimModel,
    TransformModel,
)
from polar_pipeline.cuda.model.rectified_work import RectifiedWork, make_rectified_work, not_in_one_launch
from polar_pipeline.cuda.model.requested_work import make_work
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.specs import COLOR_MAPS, COMPONENTS
from polar_pipeline.cuda.model.ssim_search import WINDOWS
from polar_pipeline.cuda.model.ssim_work import INPUTS, MAPS, SsimWork, ssim_key
from polar_pipeline.cuda.model.transform_work import TransformWork, make_transform_work
from polar_pipeline.cuda.model.tuned import choose
from polar_pipeline.cuda.model.work import RAW_FORMATS, PolarizationWork
from polar_pipeline.cuda.resource_usage import kernel_resources
from polar_pipeline.geometry import make_lens
from polar_pipeline.options import CHOICES, make_options
from polar_pipeline.plan import make_plan
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.mosaic import ANGLES, FULL_FRAME, SENSORS
from polar_pipeline.topics import PRODUCT_TOPICS

#: Standard deviations are left out: `tile` makes them, and in colour it spills up to 56 bytes for them. So are
#: components of the light, which in colour `tile` alone makes: in float, adaptive at full resolution, it spills 8 bytes
#: on sm_72 for all three. And so are products by colour maps, which only `tile` makes.
_COMMON = tuple(name for name in PRODUCTS if not name.endswith("_sigma") and name not in (*COMPONENTS, *COLOR_MAPS))
_VIEWED = ("intensity", "dolp", "aolp", "preview")
#: Products that are requested together, and their `output_depth`: everything, what viewers show, what other algorithms
#: start from.
REQUESTS = (
    (_COMMON, "float32"),
    (_COMMON, "uint8"),
    (_VIEWED, "uint8"),
    (_VIEWED[:3], "uint8"),
    (tuple(f"angle_{angle}" for angle in ANGLES), "uint8"),
    (_COMMON, "uint16"),
    (_VIEWED[:3], "uint16"),
)
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


def works() -> Iterator[PolarizationWork]:
    """What the node and the tool can ask of the kernels, with every choice of every parameter.

    How pixels are loaded and what is stored hardly meet: formats beside 8 bit are combined with the first request only,
    a calibration with two of those formats, and in half with what viewers show of 8 bit. (In float, colour by the
    adaptive method at full resolution spills 8 bytes on sm_72.)
    """
    sites = {"half": (True, False), "full": (True,)}  # where the angles are interpolated to matters at half resolution
    for sensor, resolution, demosaic, precision in product(
        SENSORS, CHOICES["resolution"], CHOICES["demosaic"], ("fp16", "fp32")
    ):
        for co_sited, (names, depth), raw_format in product(sites[resolution], REQUESTS, RAW_FORMATS):
            if raw_format != "u8" and (names, depth) != REQUESTS[0]:
                continue
            types = {name: PRODUCT_TOPICS[name].dtype(depth) for name in names}
            chosen = {"resolution": resolution, "demosaic": demosaic, "precision": precision, "co_sited": co_sited}
            options = make_options(sensor, names, types, **chosen)
            work = make_work(make_plan(names), options, raw_format, _FULL_SCALE[raw_format], FULL_FRAME)
            # own sites take no interpolation, whatever the method
            work = work if co_sited else replace(work, demosaic="bilinear")
            yield work
            is_shown = raw_format == "u8" and (names, depth) == REQUESTS[2] and precision == "fp16"
            if is_shown or raw_format in ("u16", "12p"):
                yield replace(work, calibrated=True)


def ssim_works() -> Iterator[SsimWork]:
    """What can be asked of the SSIM launch, on full frames at half resolution; the shortest to the longest window."""
    size = (FULL_FRAME[0] // 2, FULL_FRAME[1] // 2)
    for window, stride, source, map_dtype in product((3, SSIM_WINDOW, 15), (1, 2, 8), INPUTS, MAPS):
        yield SsimWork(*size, stride, window, SSIM_SIGMA, source, map_dtype)


def transform_works() -> Iterator[TransformWork]:
    """What can be asked of the launch of a geometry, on full frames at half resolution and in each precision."""
    for sensor, (names, depth), precision in product(SENSORS, REQUESTS, ("fp16", "fp32")):
        types = {name: PRODUCT_TOPICS[name].dtype(depth) for name in names}
        for raw_format, scale, rotate in product(("u8", "u16"), (1, 8), (0, 90)):
            if raw_format != "u8" and precision != "fp16":
                continue  # pairs of half and float planes; floats and planes of half
            precise = "auto" if raw_format == "u16" else precision
            options = make_options(
                sensor, names, types, precision=precise, scale=scale, rotate=rotate, roi=(0, 0, 16, 16)
            )
            plan = make_plan(names)
            work = make_work(plan, options, raw_format, _FULL_SCALE[raw_format], FULL_FRAME)
            for positions in (True, False):
                yield replace(make_transform_work(work, plan, options), positions=positions)


def rectified_works() -> Iterator[RectifiedWork]:
    """What can be asked of the launch that also rectifies, on full frames behind a lens that changes nothing."""
    height, width = FULL_FRAME
    matrix = (width, 0, width / 2, 0, width, height / 2, 0, 0, 1)
    lens = make_lens(FULL_FRAME, "plumb_bob", (0,) * 5, matrix, (0,) * 9, (0,) * 12)
    for names, depth in REQUESTS:
        types = {name: PRODUCT_TOPICS[name].dtype(depth) for name in names}
        options = make_options("IMX250MZR", names, types, rectify=lens)
        plan = make_plan(names)
        work = make_work(plan, options, "u8", _FULL_SCALE["u8"], FULL_FRAME)
        if not_in_one_launch(work, plan, options) is None:
            yield make_rectified_work(work, plan, options)


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
    for rectified_work in dict.fromkeys(rectified_works()):
        rectified = RectifiedModel(rectified_work, device)
        yield _build(rectified, choose(rectified), rectified.key)
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
