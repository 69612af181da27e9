"""SSIM on this machine's GPU: the product's kernel, the steps of a published study rebuilt, and other packages.

    python benchmarks/ssim.py [--output FILE]

Map and mean of 64 different pairs of 1224x1024 images per run, CUDA events, medians, everything in turns. The maps of
two frames are compared with the float64 reference before anything is timed; without the border where a package takes
the pixels outside the image as black. Packages that are not installed are reported as absent. Writes
`benchmarks/results/ssim_<device>.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import common
import numpy as np
from polar_pipeline.cuda.model.launch_model import SsimModel
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_search import piece_count
from polar_pipeline.cuda.model.ssim_work import SSIM_ARGUMENT, SsimWork, as_compared
from ssim_packages import OTHERS, WANG, Images, Implementation, installed
from timing import FRAMES, cupy, driver, frames, medians

from polar_pipeline._util.share import share_path
from polar_pipeline.coefficients import SSIM_SIGMA, SSIM_WINDOW, ssim_literals
from polar_pipeline.cuda.compile import OPTIONS, compile_kernel, find_library
from polar_pipeline.cuda.resource_usage import KernelResources, kernel_resources
from polar_pipeline.reference import ssim_map

HEIGHT, WIDTH = SHAPE = (1024, 1224)
SOURCE = Path(__file__).resolve().parent / "ssim_variants.cu"
PACKAGES = ("cucim-cu12", "cucim-cu13", "cupy-cuda12x", "cupy-cuda13x", "fused-ssim", "fussim", "scikit-image", "torch")
#: Frames whose maps are compared with the reference.
CHECKED = (0, FRAMES - 1)
#: What is at most wrong with a map for its time to count.
TOLERANCE = 1e-3

#: The steps of the study (`VARIANT` in ssim_variants.cu), and how each is compiled: registers for three quarters of the
#: threads or more where a block has many.
STEPS = {"naive": 0, "V1": 1, "V2": 2, "V3": 3, "V4": 4}
CAPPED = {"naive": {"BLOCKS": 2}, "V1": {"BLOCKS": 2}, "V2": {"BLOCKS": 6}, "V3": {}, "V4": {}}
#: Definitions that are varied. The first five are the study as published, with five moments.
VARIANTS: Tuple[Tuple[str, Dict[str, int]], ...] = (
    *((step, {}) for step in STEPS),
    *((step, {"MOMENTS": 4}) for step in STEPS),
    *((step, {"BLOCKS": 1}) for step in ("V1", "V2")),
    *(("V2", {"COLUMNS": c, "ROWS": r, "BLOCKS": b}) for c, r, b in ((1, 8, 6), (2, 16, 3), (4, 8, 5), (4, 16, 3))),
    *((step, {"ROWS": rows}) for step in ("V3", "V4") for rows in (16, 32, 128, 256)),
    *((step, {"COLUMNS": 4}) for step in ("V3", "V4")),
    *(("V3", {"LAPS": laps}) for laps in (2, 4)),
    *(("V4", {"MOMENTS": 4, **more}) for more in ({"AHEAD": 2}, {"AHEAD": 4}, {"BLOCKS": 20}, {"COLUMNS": 4})),
    *((step, {"MOMENTS": 4, "ROWS": 128}) for step in ("V3", "V4")),
)


def make_images() -> Images:
    """The two images of each frame whose likeness the consistency mode measures, the second with noise."""
    raw = frames("IMX250MZR").astype(np.uint16)
    noise = np.random.default_rng(0).normal(0, 0.02, SHAPE).astype(np.float32)
    x = (raw[:, ::2, ::2] + raw[:, 1::2, 1::2]) / np.float32(510)
    y = np.clip((raw[:, ::2, 1::2] + raw[:, 1::2, ::2]) / np.float32(510) + noise, 0, 1)
    x, y = x.astype(np.float16), y.astype(np.float16)
    return Images(x, y, cupy.asarray(x), cupy.asarray(y))


def capture(one: Callable[[int], Any]) -> Callable[[], Any]:
    """A graph of a launch a frame."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for frame in range(FRAMES):
            one(frame)
        graph = stream.end_capture()
    return lambda: graph.launch(cupy.cuda.get_current_stream())


# ---------------------------------------------------------------------------------------------------------- the product

WORK = SsimWork(HEIGHT, WIDTH, 1, SSIM_WINDOW, SSIM_SIGMA, "uint16", "float32")


@lru_cache(maxsize=1)
def model() -> SsimModel:
    """The launch on this GPU."""
    return SsimModel(WORK, driver().device)


def product_cubin(schedule: Schedule) -> bytes:
    """The kernel by a schedule."""
    return compile_kernel("ssim", model().defines(schedule), driver().device.arch)


class PackageKernel:
    """`kernels/ssim.cu` by one of its schedules; `x`, `y`: (FRAMES, H, W) uint16 on the GPU."""

    def __init__(self, x: Any, y: Any, out: Any, schedule: Schedule) -> None:
        self._x, self._y, self._out, self.schedule = x, y, out, schedule
        cubin = product_cubin(schedule)
        self._shared = model().shared_bytes(schedule)
        self._kernel = driver().load(cubin, "ssim", self._shared)
        self.facts = {**_usage(kernel_resources(cubin), self._shared), "schedule": asdict(schedule)}
        blocks = WORK.block_size
        self._scratch = {
            "pieces": cupy.empty((FRAMES, piece_count(WORK, schedule)), np.float32),
            "done": cupy.zeros(FRAMES, np.uint32),
            "blocks": cupy.empty((FRAMES, *blocks), np.float32),
            "mean": cupy.empty(FRAMES, np.float32),
        }

    def __call__(self, first: int = 0, count: int = FRAMES) -> None:
        task = np.zeros((), SSIM_ARGUMENT)
        arrays = {"first": self._x, "second": self._y, "map": self._out, **self._scratch}
        for name, array in arrays.items():
            task[name] = array.data.ptr + first * array[0].nbytes
        task["first_stride"] = task["second_stride"] = self._x[0].nbytes
        grid, stream = model().grid(self.schedule, count), cupy.cuda.get_current_stream().ptr
        driver().launch(self._kernel, grid, self.schedule.threads, self._shared, stream, task)

    def map_of(self, frame: int) -> np.ndarray:
        """A map of the batch, computed again."""
        self._out.fill(np.nan)
        self()
        return _checked_map(self._out[frame], self._scratch["mean"][frame])


def _checked_map(image: Any, mean: Any) -> np.ndarray:
    """A map whose mean must be the mean that was computed with it."""
    found, wanted = float(mean), float(image.mean(dtype=np.float64))
    if not abs(found - wanted) <= 1e-6:
        raise ValueError(f"the mean is {found}, that of the map {wanted}")
    return image.get()


def product(images: Images, out: Any) -> Dict[str, Implementation]:
    """On CUDA cores and on tensor cores, by the schedules that are fastest here and by those predicted to be."""
    found = {}
    x, y = (cupy.asarray(as_compared(image.astype(np.float32), WORK.source)) for image in (images.x, images.y))
    for name, window in (("CUDA cores", "registers"), ("tensor cores", "tensor")):
        able = [each for each in model().candidates() if each.window == window]
        with ThreadPoolExecutor() as pool:  # compiled ahead, on every core
            list(pool.map(product_cubin, able))
        every = [PackageKernel(x, y, out, schedule) for schedule in able]
        batch = _times(every)
        single = _times([capture(partial(run, count=1)) for run in every])
        for row, many, one in (
            (name, batch, single),
            (f"{name}, as predicted", _predictions(able, FRAMES), _predictions(able, 1)),
        ):
            run, run_one = every[many.index(min(many))], every[one.index(min(one))]
            facts = {**run.facts, "schedule_of_one": asdict(run_one.schedule)}
            found[row] = Implementation(run, partial(run_one, count=1), run.map_of, recorded=True, facts=facts)
    return found


def _times(runs: Sequence[Callable[[], Any]]) -> List[float]:
    return list(medians({str(k): run for k, run in enumerate(runs)}, 5).values())


def _predictions(schedules: Sequence[Schedule], frames: int) -> List[float]:
    return [model().predict(schedule, frames).us for schedule in schedules]


# ------------------------------------------------------------------------------------------------------------ the study


@dataclass(frozen=True)
class Shape:
    """How a variant is launched.

    Attributes:
        grid: Blocks along x and y.
        threads: Of a block.
        shared: Bytes of shared memory of a block, as `struct Shared` in ssim_variants.cu.
    """

    grid: Tuple[int, int]
    threads: int
    shared: int


def shape_of(step: int, more: Dict[str, int]) -> Shape:
    """As ssim_variants.cu has it."""
    columns = more.get("COLUMNS", 1 if step < 2 else 2)
    rows = more.get("ROWS", 32 if step < 2 else 8 if step == 2 else 64)
    reach, halo = 32 * columns, SSIM_WINDOW - 1
    grid = (-(-WIDTH // reach), -(-HEIGHT // rows))
    if step >= STEPS["V3"]:
        return Shape(grid, 32, 4 * 4 * (reach + halo + 2))
    lines = rows + halo
    naive = step == STEPS["naive"]
    floats = (2 + naive) * lines * (reach + halo) + (2 - naive) * lines * reach + (not naive) * (reach + halo) + rows
    return Shape(grid, 32 * rows, 4 * floats)


def compile_variant(defines: Dict[str, Any]) -> bytes:
    """A cubin of ssim_variants.cu."""
    definitions = {**ssim_literals(), "WIDTH": WIDTH, "HEIGHT": HEIGHT, **defines}
    arch = driver().device.arch
    options = [f"-D{name}={value}" for name, value in sorted(definitions.items())]
    options.append(f"--include-path={share_path('kernels')}")
    return find_library(arch).compile(SOURCE.read_text(encoding="utf-8"), SOURCE.name, arch, (*OPTIONS, *options))


def load(cubin: bytes, shared: int = 0) -> Any:
    """The entry of ssim_variants.cu."""
    module = cupy.cuda.function.Module()
    module.load(cubin)
    function = module.get_function("ssim_variants")
    if shared > 48 * 1024:
        attribute = cupy.cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        cupy.cuda.driver.funcSetAttribute(function.ptr, attribute, shared)
    return function


class Variant:
    """A step of the study."""

    def __init__(self, images: Images, out: Any, shape: Shape, kernel: bytes, mean: bytes) -> None:
        self._images, self._out, self._shape = images, out, shape
        self._kernel, self._mean = load(kernel, shape.shared), load(mean)
        self._blocks = shape.grid[0] * shape.grid[1]
        self._parts = cupy.empty((FRAMES, self._blocks), np.float32)
        self.means = cupy.empty(FRAMES, np.float32)

    def __call__(self, first: int = 0, count: int = FRAMES) -> None:
        seen = slice(first, first + count)
        images = (self._images.gpu_x[seen], self._images.gpu_y[seen], self._out[seen], self._parts[seen])
        self._kernel((*self._shape.grid, count), (self._shape.threads,), images, shared_mem=self._shape.shared)
        self._mean((count,), (32,), (self._parts[seen], self.means[seen], np.int32(self._blocks)))

    def map_of(self, frame: int) -> np.ndarray:
        """A map of the batch, computed again."""
        self._out.fill(np.nan)
        self()
        return _checked_map(self._out[frame], self.means[frame])


def study(images: Images, out: Any) -> Dict[str, Implementation]:
    """The steps of the study, and their variations."""

    def build(row: Tuple[str, Dict[str, int]]) -> Tuple[Shape, bytes]:
        step, more = row
        shape = shape_of(STEPS[step], more)
        definitions = {"VARIANT": STEPS[step], "SHARED_BYTES": shape.shared, **CAPPED[step], **more}
        return shape, compile_variant(definitions)

    with ThreadPoolExecutor() as pool:
        built = list(pool.map(build, VARIANTS))
    mean = compile_variant({"VARIANT": 0, "MEAN": 1, "SHARED_BYTES": 1 << 20})
    found = {}
    for (step, more), (shape, cubin) in zip(VARIANTS, built):
        run, usage = Variant(images, out, shape, cubin, mean), kernel_resources(cubin)
        facts = {**_usage(usage, shape.shared), "threads": shape.threads}
        name = " ".join([step, *(f"{key.lower()}={value}" for key, value in more.items())])
        found[name] = Implementation(run, partial(run, count=1), run.map_of, recorded=True, facts=facts)
    return found


def _usage(usage: KernelResources, shared: int) -> Dict[str, int]:
    return {"registers": usage.registers, "spill_bytes": usage.spill_bytes, "shared_bytes": shared}


def scikit_image(images: Images, wanted: Dict[int, np.ndarray]) -> Optional[Dict[str, Any]]:
    """Wall time of a frame on the CPU."""
    try:
        function = import_module("skimage.metrics").structural_similarity
    except ImportError:
        return None
    times = []

    def map_of(frame: int) -> np.ndarray:
        x, y = images.x[frame].astype(np.float32), images.y[frame].astype(np.float32)
        start = time.perf_counter()
        found = function(x, y, **WANG)[1]
        times.append(time.perf_counter() - start)
        return found

    facts = _check(map_of, wanted, True)
    for frame in range(3):
        map_of(frame)
    return {**facts, "us_per_frame": round(1e6 * statistics.median(times))}


# --------------------------------------------------------------------------------------------------------------- report


def _check(map_of: Callable[[int], np.ndarray], wanted: Dict[int, np.ndarray], mirrored: bool) -> Dict[str, Any]:
    """How far maps are from the reference at most; without the border, if that is not mirrored."""
    rim = 0 if mirrored else SSIM_WINDOW // 2
    inside = np.s_[rim : HEIGHT - rim, rim : WIDTH - rim]
    worst = max(float(np.abs(map_of(frame) - image)[inside].max()) for frame, image in wanted.items())
    return {"max_error": float(f"{worst:.3g}"), "correct": worst <= TOLERANCE}


def measure(implementations: Dict[str, Implementation], wanted: Dict[int, np.ndarray]) -> Dict[str, Dict[str, Any]]:
    """Check all, then time all."""
    report = {
        name: {
            **_check(each.map_of, wanted, each.mirrored),
            "border": "mirrored" if each.mirrored else "black",
            **each.facts,
        }
        for name, each in implementations.items()
    }
    runs: Dict[str, Dict[str, Callable[[], Any]]] = {
        "us_per_frame": {name: each.batch for name, each in implementations.items()},
        "us_in_graph_of_64": {name: capture(each.one) for name, each in implementations.items() if each.recorded},
        "us_alone": {name: partial(each.one, 0) for name, each in implementations.items()},
    }
    for what, calls in runs.items():
        for name, milliseconds in medians(calls).items():
            report[name][what] = round(1000 * milliseconds / (1 if what == "us_alone" else FRAMES), 3)
    return report


def add_ratios(results: Dict[str, Dict[str, Any]]) -> None:
    """How many times as fast as the naive step and as fused-ssim; only of what is correct."""
    for base in ("naive", "fused-ssim"):
        for row in results.values():
            if base in results and row["correct"]:
                ratio = results[base]["us_per_frame"] / row["us_per_frame"]
                row[f"times_as_fast_as_{common.slug(base)}"] = float(f"{ratio:.3g}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="result file; in results/ by default")
    values = parser.parse_args()
    images = make_images()
    wanted = {frame: ssim_map(images.x[frame].astype(float), images.y[frame].astype(float)) for frame in CHECKED}
    packages = {name: installed(make, images) for name, make in OTHERS.items()}
    out = cupy.empty((FRAMES, *SHAPE), np.float32)
    implementations = {
        **product(images, out),
        **study(images, out),
        **{name: found for name, found in packages.items() if found is not None},
    }
    results = measure(implementations, wanted)
    absent = [name for name, found in packages.items() if found is None]
    on_cpu = scikit_image(images, wanted)
    if on_cpu is None:
        absent.append("scikit-image")
    else:
        results["scikit-image"] = on_cpu
    add_ratios(results)
    device = driver().name
    report = {"device": device, "frames": FRAMES, "size": [WIDTH, HEIGHT], "absent": absent, "results": results}
    report["machine"] = common.machine(PACKAGES)
    columns = ("us_per_frame", "us_in_graph_of_64", "us_alone", "max_error", "registers")
    rows = [(name, *(str(row.get(column, "")) for column in columns)) for name, row in results.items()]
    print(common.table(("", *columns), rows))
    print(json.dumps(report["machine"]), "absent:", ", ".join(absent) or "none")
    common.write(values.output or common.RESULTS / f"ssim_{common.slug(device)}.json", report)


if __name__ == "__main__":
    main()
