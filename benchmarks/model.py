"""The cost model against measurements: predicted and measured times of what it was fitted to, and of what it was not.

    python benchmarks/model.py [--output FILE] [--predict FILE] [name ...]

Times are of single launches between CUDA events, medians, as in `gpu.py`: 64 different frames a launch, or one frame
alone. A configuration is in one of two lists, `FITTED` or `HELD_OUT`; the numbers of the model are chosen by the first
list only. `--predict` reads a result file and writes it again with what the model says today of the same schedules; it
needs no GPU. With `--pipes` the throughput of the pipes of a multiprocessor is measured too.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import common
import numpy as np

from polar_pipeline.cuda.model import geometry, ssim_search
from polar_pipeline.cuda.model.device import DEVICES, Device
from polar_pipeline.cuda.model.launch_model import KernelWork, launch_model
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_search import piece_count
from polar_pipeline.cuda.model.ssim_work import SSIM_ARGUMENT, SsimWork, ssim_defines
from polar_pipeline.cuda.model.tuned import choose
from polar_pipeline.cuda.model.work import (
    CAMERA_FORMATS,
    OUTPUTS,
    POLARIZATION_ARGUMENT,
    PolarizationWork,
    make_work,
    polarization_defines,
)
from polar_pipeline.options import make_options
from polar_pipeline.plan import MOSAIC, make_plan
from polar_pipeline.products import PRODUCTS
from polar_pipeline.sensor.frames import FULL_FRAME, pack

FRAMES = 64
ROUNDS = 15
MONO, COLOR = "IMX250MZR", "IMX250MYR"
POLAR = "intensity,dolp,aolp"
LIVE = f"{POLAR},preview"
ANGLES = "angle_0,angle_45,angle_90,angle_135"
ALL = ",".join(PRODUCTS)
SMALL, LARGE = (1024, 1232), (3000, 4096)
_FULL_SCALE = {"u8": 255, "u16": 4095, "12p": 4095, "12packed": 4095}


class Configuration(NamedTuple):
    """One launch that is measured.

    Attributes:
        name: In results.
        work: What it does.
        schedules: How; empty: as the solver chooses.
        frames: Per launch.
    """

    name: str
    work: KernelWork
    schedules: Tuple[Schedule, ...] = ()
    frames: int = FRAMES


def first(
    name: str,
    sensor: str,
    products: str,
    raw_format: str = "u8",
    shape: Tuple[int, int] = FULL_FRAME,
    dtype: str = "uint8",
    schedules: Tuple[Schedule, ...] = (),
    frames: int = FRAMES,
    **options: Any,
) -> Configuration:
    """A first launch; options are the pipeline's."""
    made = make_options(sensor, tuple(products.split(",")), dtype, **options)
    work = make_work(make_plan(made.products), made, raw_format, _FULL_SCALE[raw_format], shape)
    return Configuration(name, work, schedules, frames)


def second(
    name: str,
    source: str = "float16",
    window: int = 11,
    stride: int = 1,
    map_dtype: str = "float32",
    shape: Tuple[int, int] = (1024, 1224),
    schedules: Tuple[Schedule, ...] = (),
    frames: int = FRAMES,
) -> Configuration:
    """A second launch."""
    return Configuration(name, SsimWork(*shape, stride, window, 1.5, source, map_dtype), schedules, frames)


def _tiles(*sizes: Tuple[int, int, int, int]) -> Tuple[Schedule, ...]:
    return tuple(Schedule("tile", "tile", *size) for size in sizes)


_FULL: Dict[str, Any] = {"resolution": "full"}
_OWN: Dict[str, Any] = {"co_sited": False}
_BY_REGISTERS = (Schedule("ssim", "registers", 320, 308, rows=256), Schedule("ssim", "registers", 224, 204, rows=128))
_WARPS = (Schedule("color_half", "registers", 32, 4, rows=2),)
#: What the model's numbers are fitted to.
FITTED = (
    first("mono half", MONO, POLAR),
    first("mono half, one frame", MONO, POLAR, frames=1),
    first("mono full bilinear", MONO, POLAR, demosaic="bilinear", **_FULL),
    first("colour own site, angles", COLOR, ANGLES, **_OWN),
    first("colour own site, angles, blocks of a warp", COLOR, ANGLES, schedules=_WARPS, **_OWN),
    first("colour own site, angles and polar", COLOR, f"{ANGLES},{POLAR}", **_OWN),
    first("colour half", COLOR, LIVE, schedules=_tiles((128, 32, 16, 0), (128, 16, 16, 0), (256, 32, 32, 0))),
    first("mono full gradient", MONO, POLAR, demosaic="gradient", **_FULL),
    first("mono full ADR", MONO, POLAR, schedules=_tiles((128, 64, 60, 9), (192, 64, 28, 6)), **_FULL),
    first(
        "colour full ADR",
        COLOR,
        POLAR,
        schedules=_tiles(
            (256, 64, 40, 6),
        ),
        **_FULL,
    ),
    first("mono half, 12 bit in 16, float", MONO, POLAR, "u16", dtype="float32"),
    first("mono half, 12p, float", MONO, POLAR, "12p"),
    first("mono half, everything", MONO, ALL),
    first("colour half, 12 bit in 16", COLOR, LIVE, "u16"),
    first("mono full ADR, 12 bit in 16", MONO, POLAR, "u16", **_FULL),
    first("colour half ADR", COLOR, POLAR, demosaic="adaptive"),
    second("SSIM on tensor cores"),
    second("SSIM on tensor cores, one frame", frames=1),
    second("SSIM in registers", schedules=_BY_REGISTERS),
    second("SSIM in registers, float", "float32"),
    second("SSIM from the mosaic", MOSAIC),
    first("mono half, small", MONO, POLAR, shape=SMALL),
    first("mono half, large", MONO, POLAR, shape=LARGE),
    first("mono half, small, one frame", MONO, POLAR, shape=SMALL, frames=1),
    first("mono half, live", MONO, LIVE),
    first("mono half, live, one frame", MONO, LIVE, frames=1),
    first("mono half, Stokes", MONO, "stokes", dtype="float32"),
    first("mono half, what SSIM compares too", MONO, f"{POLAR},ssim"),
    first("mono half gradient", MONO, POLAR, demosaic="gradient"),
    first("mono half ADR", MONO, POLAR, demosaic="adaptive"),
    first("mono half ADR, float", MONO, POLAR, demosaic="adaptive", precision="fp32"),
    first("mono half, 12 bit in 16, live", MONO, LIVE, "u16"),
    first("mono half, 12Packed", MONO, LIVE, "12packed"),
    first("mono full bilinear, 12 bit in 16", MONO, POLAR, "u16", demosaic="bilinear", **_FULL),
    first("mono full gradient, everything as float", MONO, ALL, dtype="float32", demosaic="gradient", **_FULL),
    first("mono full gradient, 12Packed", MONO, POLAR, "12packed", demosaic="gradient", **_FULL),
    first("mono full ADR, live, small", MONO, LIVE, shape=SMALL, **_FULL),
    first("mono full ADR, one frame", MONO, POLAR, frames=1, **_FULL),
    first("mono full ADR, float, intensity", MONO, "intensity", precision="fp32", **_FULL),
    first("colour own site, angles, small", COLOR, ANGLES, shape=SMALL, **_OWN),
    first("colour own site, polar", COLOR, POLAR, **_OWN),
    first("colour own site, live, large", COLOR, LIVE, shape=LARGE, **_OWN),
    first("colour half, angles", COLOR, ANGLES),
    first("colour half, live, one frame", COLOR, LIVE, frames=1),
    first("colour half, live, large", COLOR, LIVE, shape=LARGE),
    first("colour half, everything as float", COLOR, ALL, dtype="float32"),
    first("colour half, 12p", COLOR, POLAR, "12p"),
    first("colour full gradient", COLOR, POLAR, demosaic="gradient", **_FULL),
    first("colour full bilinear, live", COLOR, LIVE, demosaic="bilinear", **_FULL),
    first("colour full ADR, intensity, small", COLOR, "intensity", shape=SMALL, **_FULL),
    first("colour full ADR, 12 bit in 16", COLOR, POLAR, "u16", **_FULL),
    first("colour half ADR, 12 bit in 16", COLOR, LIVE, "u16", demosaic="adaptive"),
    second("SSIM, 7 taps", window=7),
    second("SSIM, means only", map_dtype=""),
    second("SSIM, full resolution", shape=FULL_FRAME, map_dtype="uint8"),
    second("SSIM, full resolution, one frame", shape=FULL_FRAME, map_dtype="uint8", frames=1),
    second("SSIM, float, 7 taps", "float32", 7),
    second("SSIM, float, 15 taps", "float32", 15, map_dtype="uint8"),
    second("SSIM, stride 2", stride=2),
    second("SSIM, stride 4, float", "float32", stride=4),
    second("SSIM, float, full resolution", "float32", shape=FULL_FRAME),
    second("SSIM from the mosaic, 7 taps", MOSAIC, 7, map_dtype="uint8"),
)
#: What they are not fitted to: other sizes, formats, products, methods, resolutions, windows and strides.
HELD_OUT = (
    first("mono half, preview", MONO, "preview"),
    first("mono half, angles, small", MONO, ANGLES, shape=SMALL),
    first("mono half, float, DoLP", MONO, "dolp", dtype="float32", precision="fp32"),
    first("mono half, 12p, live, large", MONO, LIVE, "12p", shape=LARGE),
    first("mono half gradient, 12 bit in 16", MONO, POLAR, "u16", demosaic="gradient"),
    first("mono full bilinear, large", MONO, POLAR, shape=LARGE, demosaic="bilinear", **_FULL),
    first("mono full bilinear, live", MONO, LIVE, demosaic="bilinear", **_FULL),
    first("mono full gradient, live, one frame", MONO, LIVE, demosaic="gradient", frames=1, **_FULL),
    first("mono full ADR, DoLP and AoLP, large", MONO, "dolp,aolp", shape=LARGE, **_FULL),
    first("mono full ADR, 12p", MONO, POLAR, "12p", **_FULL),
    first("colour own site, angles, 4 rows, one frame", COLOR, ANGLES, frames=1, **_OWN),
    first("colour half, small", COLOR, LIVE, shape=SMALL),
    first("colour half gradient", COLOR, POLAR, demosaic="gradient"),
    first("colour full gradient, 12Packed", COLOR, POLAR, "12packed", demosaic="gradient", **_FULL),
    first("colour full ADR, live", COLOR, LIVE, **_FULL),
    second("SSIM, 9 taps, small", window=9, shape=(512, 616)),
    second("SSIM, float, 5 taps, large", "float32", 5, shape=(1500, 2048)),
    second("SSIM, float, stride 2", "float32", stride=2),
    second("SSIM, means only, one frame", map_dtype="", frames=1),
    second("SSIM from the mosaic, large", MOSAIC, shape=(1500, 2048)),
    first("mono half, live as float", MONO, LIVE, dtype="float32"),
    first("mono half, what SSIM compares too, small", MONO, f"{POLAR},ssim", shape=SMALL),
    first("mono half ADR, live", MONO, LIVE, demosaic="adaptive"),
    first("mono full gradient, intensity, 12 bit in 16", MONO, "intensity", "u16", demosaic="gradient", **_FULL),
    first("colour own site, angles, large", COLOR, ANGLES, shape=LARGE, **_OWN),
    first("colour half, float, intensity", COLOR, "intensity", precision="fp32"),
    first("colour half, Stokes", COLOR, "stokes", dtype="float32"),
    first("colour full bilinear, AoLP, small", COLOR, "aolp", shape=SMALL, demosaic="bilinear", **_FULL),
    first("colour full ADR, one frame", COLOR, POLAR, frames=1, **_FULL),
    second("SSIM, large", shape=(1500, 2048)),
    second("SSIM, float, 13 taps", "float32", 13),
)
LISTS = {"fitted": FITTED, "held out": HELD_OUT}


def predicted_us(work: KernelWork, schedule: Schedule, device: Device, frames: int) -> float:
    """Microseconds a frame, without what a launch takes by itself where it has many frames."""
    return launch_model(work, device).predict(schedule, frames).us / frames


# ----------------------------------------------------------------------------------------------------------- measuring


class Launch:
    """A compiled schedule with frames and outputs on the GPU."""

    def __init__(self, work: KernelWork, schedule: Schedule, frames: int, arch: str) -> None:
        import cupy
        import gpu

        self._arrays: Dict[str, Any] = {}
        rng = np.random.default_rng(1)
        if isinstance(work, SsimWork):
            flags = {**ssim_defines(work), **ssim_search.schedule_defines(schedule)}
            self.shared, self.grid = ssim_search.shared_bytes(schedule), ssim_search.grid(work, schedule, frames)
            if work.source == MOSAIC:
                one = rng.integers(13, 204, (2 * work.height, 2 * work.width), np.uint8)
            else:
                base = rng.random((work.height, work.width)) * 0.8
                one = np.stack([base, base + 0.02 * rng.random(base.shape)]).astype(work.source)
            images = self._keep("images", cupy.stack([cupy.asarray(np.roll(one, 8 * k, -1)) for k in range(frames)]))
            argument = np.zeros((), SSIM_ARGUMENT)
            argument["first"] = images.data.ptr
            argument["second"] = images.data.ptr + (0 if work.source == MOSAIC else images[0, 0].nbytes)
            argument["first_stride"] = argument["second_stride"] = images[0].nbytes
            sizes = {
                "map": (work.map_size, work.map_dtype or "uint8"),
                "pieces": ((piece_count(work, schedule),), "float32"),
                "done": ((), "uint32"),
                "blocks": (work.block_size, "float32"),
                "mean": ((), "float32"),
            }
            for name, (shape, dtype) in sizes.items():
                argument[name] = self._keep(name, cupy.zeros((frames, *shape), dtype)).data.ptr
        else:
            flags = {**polarization_defines(work), **geometry.schedule_defines(work, schedule)}
            self.shared = geometry.shared_bytes(work, schedule)
            self.grid = geometry.grid(work, schedule, frames)
            raw = self._keep("raw", _frames(work, frames))
            argument = np.zeros((), POLARIZATION_ARGUMENT)
            argument["raw"] = raw.data.ptr
            argument["counts"] = self._keep("counts", cupy.zeros((frames, 2), cupy.uint32)).data.ptr
            for name, dtype in work.outputs:
                size = geometry.output_bytes(replace(work, outputs=((name, dtype),)))
                argument["out"][OUTPUTS.index(name)] = self._keep(name, cupy.zeros(frames * size, cupy.uint8)).data.ptr
            argument["raw_stride"] = raw[0].nbytes
            argument["step"] = CAMERA_FORMATS[work.raw_format].row_bytes(work.width)
            argument["width"], argument["height"] = work.width, work.height
            argument["full_scale"], argument["min_intensity"] = work.full_scale, 0.01
        self._argument, self._threads, self._driver = argument, schedule.threads, gpu._driver()
        self._kernel = self._driver.load(gpu.compile_kernel(schedule.kernel, flags, arch), schedule.kernel, self.shared)

    def _keep(self, name: str, array: Any) -> Any:
        self._arrays[name] = array
        return array

    def __call__(self) -> None:
        import cupy

        stream = cupy.cuda.get_current_stream().ptr
        self._driver.launch(self._kernel, self.grid, self._threads, self.shared, stream, self._argument)


def _frames(work: PolarizationWork, frames: int) -> Any:
    """(frames, bytes) on the GPU: a scene, moved by whole tiles from frame to frame."""
    import cupy
    import gpu

    raw = gpu.frames("IMX250MYR" if work.sensor.is_color else "IMX250MZR", (work.height, work.width))
    if work.raw_format != "u8":
        fine = raw[0].astype(np.uint16) * 16
        packed = np.frombuffer(pack(fine, CAMERA_FORMATS[work.raw_format]), np.uint8)
        if work.raw_format == "u16":
            packed = np.frombuffer(fine.tobytes(), np.uint8)
        step = CAMERA_FORMATS[work.raw_format].row_bytes(work.width)
        one = cupy.asarray(packed).reshape(work.height, step)
        return cupy.stack([cupy.roll(one, 8 * k, 0) for k in range(frames)])
    return cupy.asarray(raw[:frames])


def measure(configuration: Configuration, schedule: Schedule, arch: str) -> float:
    """Microseconds a frame."""
    import cupy
    import gpu

    launch = Launch(configuration.work, schedule, configuration.frames, arch)
    launch()
    found = statistics.median(gpu.milliseconds(launch) for _ in range(ROUNDS))
    del launch
    cupy.get_default_memory_pool().free_all_blocks()
    return 1000 * found / configuration.frames


#: Instructions by the pipe that takes them, for inline assembly: eight independent chains, each of one instruction.
_PIPES = {
    "half2": "fma.rn.f16x2 %0,%0,%1,%1;",
    "float": "fma.rn.f32 %0,%0,%1,%1;",
    "integer": "lop3.b32 %0,%0,%1,%1,0x96;",
    "special": "ex2.approx.ftz.f32 %0,%0;",
}


def pipes() -> Dict[str, float]:
    """Results a clock and multiprocessor, of 32-bit words, by pipe."""
    import cupy

    found = {}
    for name, text in _PIPES.items():
        kind, letter = ("float", "f") if ".f32" in text else ("unsigned", "r")
        chains = "".join(f'asm volatile("{text}" : "+{letter}"(v[{k}]) : "{letter}"(w));' for k in range(8))
        code = (
            f'extern "C" __global__ void probe(long long* clocks, {kind}* out) {{ {kind} v[8], w = ({kind})threadIdx.x;'
            "for (int k = 0; k < 8; k++) v[k] = w + k; __syncthreads(); long long t = clock64();"
            f"for (int i = 0; i < 1024; i++) {{ {chains} }} __syncthreads();"
            "if (threadIdx.x == 0) clocks[blockIdx.x] = clock64() - t;"
            "for (int k = 0; k < 8; k++) if (v[k] == 12345) *out = v[k]; }"
        )
        kernel = cupy.RawKernel(code, "probe")
        clocks, out = cupy.zeros(1, cupy.int64), cupy.zeros(1, cupy.uint32)
        for _ in range(3):
            kernel((1,), (1024,), (clocks, out))
        found[name] = round(1024 * 8 * 1024 / float(clocks.get()[0]), 1)
    return found


# ------------------------------------------------------------------------------------------------------------- results


def rows(names: List[str], device: Device, arch: str) -> Iterator[Dict[str, Any]]:
    """Measured times of every configuration, or of those named."""
    for group, configurations in LISTS.items():
        for configuration in configurations:
            if names and configuration.name not in names:
                continue
            for schedule in configuration.schedules or (choose(launch_model(configuration.work, device)),):
                us = measure(configuration, schedule, arch)
                row = {
                    "list": group,
                    "name": configuration.name,
                    "work": launch_model(configuration.work, device).key,
                    "size": [configuration.work.width, configuration.work.height],
                    "frames": configuration.frames,
                    "schedule": asdict(schedule),
                    "measured_us": round(us, 3),
                }
                print(group, configuration.name, round(us, 2), flush=True)
                yield row


def with_predictions(found: List[Dict[str, Any]], device: Device) -> List[Dict[str, Any]]:
    """Rows with what the model says, and how far it is off."""
    known = {configuration.name: configuration for group in LISTS.values() for configuration in group}
    made = []
    for row in found:
        configuration = known[row["name"]]
        us = predicted_us(configuration.work, Schedule(**row["schedule"]), device, configuration.frames)
        ratio = us / row["measured_us"]
        made.append({**row, "predicted_us": round(us, 3), "predicted_to_measured": round(ratio, 3)})
    return made


def summary(found: List[Dict[str, Any]]) -> Dict[str, Any]:
    """By list: how many, how far off at most, the root mean square, and how many are within 15 %."""
    made = {}
    for group in LISTS:
        ratios = [row["predicted_to_measured"] for row in found if row["list"] == group]
        if ratios:
            off = [abs(ratio - 1) for ratio in ratios]
            made[group] = {
                "configurations": len(off),
                "within_15_percent": sum(error <= 0.15 for error in off),
                "largest_error": round(max(off), 3),
                "root_mean_square": round(math.sqrt(statistics.fmean(error**2 for error in off)), 3),
            }
    return made


def main() -> None:
    """Measure or read, predict, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="configurations; all by default")
    parser.add_argument("--output", type=Path, help="result file; a run of all writes one in results/")
    parser.add_argument("--predict", type=Path, metavar="FILE", help="a result file, for new predictions")
    parser.add_argument("--pipes", action="store_true", help="measure the throughput of the pipes, too")
    values = parser.parse_args()
    if values.predict:
        report = json.loads(values.predict.read_text(encoding="utf-8"))
        device = DEVICES[report["model"]]
        found = report["rows"]
    else:
        import gpu

        bench = gpu.Bench()
        device = bench.device
        report = {"device": bench.name, "model": device.name}
        if values.pipes:
            report["results_a_clock"] = pipes()
            print(report["results_a_clock"], flush=True)
        found = list(rows(values.names, device, bench.arch))
        report["machine"] = common.machine(["cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "numpy"])
    found = with_predictions(found, device)
    report["summary"], report["rows"] = summary(found), found
    columns = ("list", "name", "measured_us", "predicted_us", "predicted_to_measured")
    print(common.table(columns, [[row[column] for column in columns] for row in found]))
    print(json.dumps(report["summary"], indent=1))
    if values.predict or values.output or not values.names:
        common.write(
            values.output or values.predict or common.RESULTS / f"model_{common.slug(report['device'])}.json", report
        )


if __name__ == "__main__":
    main()
