"""What every kernel takes of a device, found by compiling it: no GPU needed. Behind `polar-pipeline kernels`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Dict, Iterator, List, Mapping, NamedTuple, Tuple, Union

from polar_pipeline._util.text import quoted
from polar_pipeline.coefficients import SSIM_SIGMA, SSIM_WINDOW
from polar_pipeline.cpu.strips import cores
from polar_pipeline.cuda.compile import compile_kernel, find_library, resources
from polar_pipeline.cuda.model import ssim
from polar_pipeline.cuda.model.device import DEVICES, Device, occupancy
from polar_pipeline.cuda.model.schedule import schedule_defines, shared_bytes
from polar_pipeline.cuda.model.ssim import Similarity
from polar_pipeline.cuda.model.tuned import choose, work_key
from polar_pipeline.cuda.model.work import RAW_FORMATS, Work, defines, make_work
from polar_pipeline.options import CHOICES, make_options
from polar_pipeline.plan import make_plan
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.frames import FULL_FRAME
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS
from polar_pipeline.topics import PRODUCT_TOPICS

_VIEWED = ("intensity", "dolp", "aolp", "preview")
#: Products that are asked for together, and their `output_depth`: everything, what viewers show, what other algorithms
#: start from.
REQUESTS = (
    (tuple(PRODUCTS), "float32"),
    (tuple(PRODUCTS), "uint8"),
    (_VIEWED, "uint8"),
    (_VIEWED[:3], "uint8"),
    (tuple(f"angle_{angle}" for angle in ANGLES), "uint8"),
)
_FULL_SCALE = {"u8": 255, "u16": 4095, "12p": 4095, "12packed": 4095}


class Usage(NamedTuple):
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


class _Job(NamedTuple):
    """One kernel to compile: its name and its work's, threads and dynamic shared bytes of a block, definitions."""

    kernel: str
    text: str
    threads: int
    shared: int
    flags: Mapping[str, Union[int, str]]


def get_device(arch: str) -> Device:
    """The first device of an architecture.

    Raises:
        ValueError: None is known.
    """
    known = {device.arch: device for device in reversed(list(DEVICES.values()))}
    if arch not in known:
        raise ValueError(f"arch must be one of {', '.join(sorted(known))}, got {quoted(arch)}")
    return known[arch]


def works() -> Iterator[Work]:
    """What the node and the tool can ask of the kernels, with every choice of every parameter.

    How pixels are loaded and what is stored hardly meet: formats beside 8 bit are combined with the first request only.
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
            yield work if co_sited else work._replace(demosaic="bilinear")


def similarities() -> Iterator[Similarity]:
    """What can be asked of the second launch, on full frames at half resolution; the shortest to the longest window."""
    size = (FULL_FRAME[0] // 2, FULL_FRAME[1] // 2)
    for window, stride, dtype, map_dtype in product((3, SSIM_WINDOW, 15), (1, 2, 8), ssim.INPUTS, ssim.MAPS):
        yield Similarity(*size, stride, window, SSIM_SIGMA, dtype, map_dtype)


def _jobs(device: Device) -> Iterator[_Job]:
    for work in dict.fromkeys(works()):
        plan = choose(work, device)
        flags = {**defines(work), **schedule_defines(work, plan)}
        yield _Job(plan.kernel, work_key(work), plan.threads, shared_bytes(work, plan), flags)
    for similarity in similarities():
        for window in ssim.WINDOWS:
            able = [plan for plan in ssim.candidates(similarity, device) if plan.window == window]
            if able:
                plan = min(able, key=lambda plan: ssim.predict(similarity, plan, device).us)
                flags = {**ssim.defines(similarity), **ssim.schedule_defines(plan)}
                name = f"{window}, {ssim.work_key(similarity)}"
                yield _Job("ssim", name, plan.threads, ssim.shared_bytes(plan), flags)


def usages(device: Device) -> List[Usage]:
    """What every kernel takes on a device, with the schedule that it gets there.

    Raises:
        CompileError: A kernel does not compile, or there is no compiler for the device.
        ScheduleError: No schedule of some work fits the device.
    """
    jobs: Dict[Tuple[object, ...], _Job] = {}
    for job in _jobs(device):
        jobs.setdefault((job.kernel, *sorted(job.flags.items())), job)

    def measure(job: _Job) -> Usage:
        found = resources(compile_kernel(job.kernel, job.flags, device.arch))
        shared = found.shared_bytes + job.shared
        share = occupancy(device, job.threads, found.registers, shared)
        return Usage(f"{job.kernel}: {job.text}", found.registers, shared, found.spill_bytes, share)

    find_library(device.arch)  # once, before all threads look for it
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(measure, jobs.values()))
