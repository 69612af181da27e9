"""Registers, shared memory, spills and occupancy of the kernels of the shipped defaults; compiles, and needs no GPU.

    python benchmarks/kernels.py [--arch sm_87] [--json]

The launches are those that the CUDA backend takes for full frames on the first device of the architecture.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Dict, List, Tuple

import numpy as np
from nvrtc import compile_kernel, find_library
from resource_usage import KernelResources, kernel_resources

from polar_pipeline._util.cpus import available_cores
from polar_pipeline.backends.cuda.device import DEVICES, occupancy
from polar_pipeline.backends.cuda.launch import Launch, Schedule, schedules_to_compile
from polar_pipeline.backends.cuda.program import requested_launches
from polar_pipeline.backends.cuda.schedules import choose
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.geometry import make_lens
from polar_pipeline.options import Options, make_options
from polar_pipeline.options.products import DEFAULT_PRODUCTS, NOISE_PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.sensor.mosaic import ANGLES, FULL_FRAME, SENSORS

#: Architecture -> the device whose schedules are compiled.
ARCHS = {"sm_72": "xavier", "sm_87": "orin", "sm_90": "h200"}
#: One sensor with each kind of mosaic.
_SENSORS = {"mono": "IMX250MZR", "color": "IMX250MYR"}
_VIEWED = ("intensity", "dolp", "aolp")
_LEARNED = {"demosaic": "learned", "resolution": "full"}
_ANGLE_IMAGES = tuple(f"angle_{angle}" for angle in ANGLES)
#: Name of a case -> products, `output_depth`, format of frames, and changes of the default options.
_CASES: Dict[str, Tuple[Tuple[str, ...], str, str, Dict[str, Any]]] = {
    "default": (DEFAULT_PRODUCTS, "float32", "u8", {}),
    "default, 12p": (DEFAULT_PRODUCTS, "float32", "12p", {}),
    "default, 16 bit": (DEFAULT_PRODUCTS, "float32", "u16", {}),
    "default, uint8": (DEFAULT_PRODUCTS, "uint8", "u8", {}),
    "viewed, uint8": (_VIEWED, "uint8", "u8", {}),
    "viewed, 12p, uint8": (_VIEWED, "uint8", "12p", {}),
    "viewed, not co-sited, uint8": (_VIEWED, "uint8", "u8", {"co_sited": False}),
    "viewed, full bilinear, uint8": (_VIEWED, "uint8", "u8", {"resolution": "full", "demosaic": "bilinear"}),
    "viewed, full gradient, uint8": (_VIEWED, "uint8", "u8", {"resolution": "full", "demosaic": "gradient"}),
    "viewed, full ADR, uint8": (_VIEWED, "uint8", "u8", {"resolution": "full"}),
    "angles, uint8": (_ANGLE_IMAGES, "uint8", "u8", {}),
    "default, calibrated": (DEFAULT_PRODUCTS, "float32", "u8", {"calibration": True}),
    "viewed, calibrated, uint8": (_VIEWED, "uint8", "u8", {"calibration": True}),
    "default, scale 2": (DEFAULT_PRODUCTS, "float32", "u8", {"scale": 2}),
    "viewed, denoised, uint8": (_VIEWED, "uint8", "u8", {"denoise": "on"}),
    "default, denoised, 12p": (DEFAULT_PRODUCTS, "float32", "12p", {"denoise": "auto"}),
    "viewed, learned, uint8": (_VIEWED, "uint8", "u8", _LEARNED),
    "default and noise, learned, 12p": ((*DEFAULT_PRODUCTS, *NOISE_PRODUCTS), "float32", "12p", _LEARNED),
    "viewed, rectified, uint8": (_VIEWED, "uint8", "u8", {"rectify": True}),
}


@dataclass(frozen=True)
class KernelUsage:
    """Resources of one kernel.

    Attributes:
        name: The kernel and the case.
        threads: Per block.
        registers: Per thread.
        shared_bytes: Per block.
        spill_bytes: Local memory per thread.
        occupancy: Share of a multiprocessor's warps that are resident, 0 to 1.
    """

    name: str
    threads: int
    registers: int
    shared_bytes: int
    spill_bytes: int
    occupancy: float


@lru_cache(maxsize=None)
def _calibration(sensor: str) -> Calibration:
    """The calibration of a sensor without deviations."""
    zero = np.zeros(FULL_FRAME, np.float32)
    return Calibration.from_parameters(PixelParameters(zero, zero + 1, zero, zero), SENSORS[sensor])


def _options(sensor: str, products: Tuple[str, ...], depth: str, changes: Dict[str, Any]) -> Options:
    height, width = FULL_FRAME
    given = dict(changes)
    if "calibration" in given:
        given["calibration"] = _calibration(sensor)
    if "rectify" in given:  # a lens that changes nothing
        matrix = (width, 0, width / 2, 0, width, height / 2, 0, 0, 1)
        given["rectify"] = make_lens(FULL_FRAME, "plumb_bob", (0,) * 5, matrix, (0,) * 9, (0,) * 12)
    dtypes = {name: PRODUCT_TOPICS[name].dtype(depth) for name in products}
    return make_options(sensor, products, dtype=dtypes, **given)


def _launches(step: int) -> Dict[Launch, str]:
    """The launches of every `step`th case, each with the first case that has it."""
    cases = [(kind, name) for kind in _SENSORS for name in _CASES if kind == "mono" or "learned" not in name]
    launches: Dict[Launch, str] = {}
    for kind, name in cases[::step]:
        products, depth, raw_format, changes = _CASES[name]
        options = _options(_SENSORS[kind], products, depth, changes)
        for launch in requested_launches(options, raw_format, FULL_FRAME[::-1]):
            launches.setdefault(launch, f"{kind}: {name}")
    return launches


def _compiled(launch: Launch, schedule: Schedule, arch: str) -> KernelResources:
    kernel = launch.kernel(schedule)
    return kernel_resources(compile_kernel(kernel.file, kernel.defines(launch, schedule), arch))


def usages(arch: str, step: int = 1) -> List[KernelUsage]:
    """Resources of the kernels by the schedules that the backend takes for single frames: those that spill least.

    Args:
        arch: A key of `ARCHS`.
        step: Take every `step`th case only.

    Raises:
        CompileError: A kernel does not compile, or there is no compiler for the architecture.
    """
    device = DEVICES[ARCHS[arch]]

    def measure(row: Tuple[Launch, str]) -> KernelUsage:
        launch, case = row
        tried: List[Tuple[Schedule, KernelResources]] = []
        for _, schedule in schedules_to_compile(launch, device, choose(launch, device)):
            tried.append((schedule, _compiled(launch, schedule, arch)))
            if not tried[-1][1].spill_bytes:
                break
        schedule, resources = min(tried, key=lambda pair: pair[1].spill_bytes)
        shared_bytes = resources.shared_bytes + launch.kernel(schedule).shared_bytes(launch, schedule)
        return KernelUsage(
            f"{schedule.kernel}, {case}",
            schedule.threads,
            resources.registers,
            shared_bytes,
            resources.spill_bytes,
            occupancy(device, schedule.threads, resources.registers, shared_bytes),
        )

    find_library(arch)  # once, before all threads look for it
    with ThreadPoolExecutor(available_cores()) as pool:
        return list(pool.map(measure, _launches(step).items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=tuple(ARCHS), default="sm_72", help="sm_72 Xavier, sm_87 Orin, sm_90 H200")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    rows = usages(arguments.arch)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    print("threads  registers  shared [B]  spills [B]  occupancy  kernel")
    for row in rows:
        print(
            f"{row.threads:7}  {row.registers:9}  {row.shared_bytes:10}  {row.spill_bytes:10}  {row.occupancy:8.0%}   "
            f"{row.name}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
