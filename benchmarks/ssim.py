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
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import common
import numpy as np
from ssim_packages import OTHERS, WANG, Images, Implementation, installed
from timed_launch import TimedSsim, loaded
from timing import FRAMES, cupy, driver, frames, medians

from polar_pipeline._util.share import share_path
from polar_pipeline.coefficients import SSIM_SIGMA, SSIM_WINDOW, ssim_literals
from polar_pipeline.cuda.arguments import as_compared
from polar_pipeline.cuda.kernels import KERNELS
from polar_pipeline.cuda.solver import Launch, candidates, solve
from polar_pipeline.cuda.source import OPTIONS
from polar_pipeline.cuda.work import SsimWork
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


class PackageKernel(TimedSsim):
    """`kernels/ssim.cu` by one of its schedules; `x`, `y`: (FRAMES, H, W) uint16 on the GPU."""

    def __init__(self, x: Any, y: Any, launch: Launch) -> None:
        super().__init__(launch, x.data.ptr, y.data.ptr, x[0].nbytes)
        facts = {"registers": self.registers, "spill_bytes": self.spill_bytes, "shared_bytes": self.shared_bytes}
        self.facts = {**facts, "schedule": asdict(launch.schedule)}

    def map_of(self, frame: int) -> np.ndarray:
        """A map of the batch, computed again."""
        self.arrays["map"].fill(np.nan)
        self.compare()
        return _checked_map(self.arrays["map"][frame], self.arrays["mean"][frame])


def _checked_map(image: Any, mean: Any) -> np.ndarray:
    """A map whose mean must be the mean that was computed with it."""
    found, wanted = float(mean), float(image.mean(dtype=np.float64))
    if not abs(found - wanted) <= 1e-6:
        raise ValueError(f"the mean is {found}, that of the map {wanted}")
    return image.get()


def product(images: Images) -> Dict[str, Implementation]:
    """By the schedules that are fastest here, and by the one that the solver takes."""
    x, y = (cupy.asarray(as_compared(image.astype(np.float32), WORK.source)) for image in (images.x, images.y))
    device = driver().device
    able = [Launch(WORK, schedule, device) for schedule in candidates(KERNELS["ssim"], WORK, device)]
    with ThreadPoolExecutor() as pool:  # compiled ahead, on every core
        list(pool.map(loaded, able))
    every = [PackageKernel(x, y, launch) for launch in able]
    batch = _times([run.compare for run in every])
    single = _times([capture(partial(run.compare, count=1)) for run in every])
    run, run_one = every[batch.index(min(batch))], every[single.index(min(single))]
    facts = {**run.facts, "schedule_of_one": asdict(run_one.schedule)}
    solved = PackageKernel(x, y, next(solve(WORK, device)))
    return {
        "product": Implementation(
            run.compare, partial(run_one.compare, count=1), run.map_of, recorded=True, facts=facts
        ),
        "product, as solved": Implementation(
            solved.compare, partial(solved.compare, count=1), solved.map_of, recorded=True, facts=solved.facts
        ),
    }


def _times(runs: Sequence[Callable[[], Any]]) -> List[float]:
    return list(medians({str(k): run for k, run in enumerate(runs)}, 5).values())


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


def shape_of(step: int) -> Shape:
    """As ssim_variants.cu has it."""
    columns = 1 if step < 2 else 2
    rows = 32 if step < 2 else 8 if step == 2 else 64
    reach, halo = 32 * columns, SSIM_WINDOW - 1
    grid = (-(-WIDTH // reach), -(-HEIGHT // rows))
    if step >= STEPS["V3"]:
        return Shape(grid, 32, 4 * 4 * (reach + halo + 2))
    lines = rows + halo
    naive = step == STEPS["naive"]
    floats = (2 + naive) * lines * (reach + halo) + (2 - naive) * lines * reach + (not naive) * (reach + halo) + rows
    return Shape(grid, 32 * rows, 4 * floats)


def load_variant(defines: Dict[str, Any], shared: int = 0) -> Any:
    """The entry of ssim_variants.cu, for blocks of so many bytes of shared memory."""
    definitions = {**ssim_literals(), "WIDTH": WIDTH, "HEIGHT": HEIGHT, **defines}
    options = [f"-D{name}={value}" for name, value in sorted(definitions.items())]
    options.append(f"--include-path={share_path('kernels')}")
    module = cupy.RawModule(code=SOURCE.read_text(encoding="utf-8"), options=(*OPTIONS, *options))
    function = module.get_function("ssim_variants")
    function.max_dynamic_shared_size_bytes = max(shared, function.max_dynamic_shared_size_bytes)
    return function


class Variant:
    """A step of the study."""

    def __init__(self, images: Images, out: Any, shape: Shape, kernel: Any, mean: Any) -> None:
        self._images, self._out, self._shape = images, out, shape
        self._kernel, self._mean = kernel, mean
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
    """The steps of the study, as published."""

    def build(step: str) -> Tuple[Shape, Any]:
        shape = shape_of(STEPS[step])
        defines = {"VARIANT": STEPS[step], "SHARED_BYTES": shape.shared, **CAPPED[step]}
        return shape, load_variant(defines, shape.shared)

    with ThreadPoolExecutor() as pool:
        built = list(pool.map(build, STEPS))
    mean = load_variant({"VARIANT": 0, "MEAN": 1, "SHARED_BYTES": 1 << 20})
    found = {}
    for name, (shape, kernel) in zip(STEPS, built):
        run = Variant(images, out, shape, kernel, mean)
        facts = {
            "registers": kernel.num_regs,
            "spill_bytes": kernel.local_size_bytes,
            "shared_bytes": kernel.shared_size_bytes + shape.shared,
            "threads": shape.threads,
        }
        found[name] = Implementation(run, partial(run, count=1), run.map_of, recorded=True, facts=facts)
    return found


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
        **product(images),
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
