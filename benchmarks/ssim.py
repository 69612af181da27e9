"""SSIM on this machine's GPU: the kernel of this package and other packages.

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
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence

import common
import numpy as np
from ssim_packages import OTHERS, WANG, Images, Implementation, installed
from timed_launch import TimedLaunches, every_schedule, resources
from timing import FRAMES, capture, cupy, driver, frames, medians

from polar_pipeline.backends.cuda.ssim import SsimLaunch, as_compared
from polar_pipeline.backends.reference import ssim_map
from polar_pipeline.options import make_options
from polar_pipeline.polarimetry.coefficients import SSIM_SIGMA, SSIM_WINDOW

HEIGHT, WIDTH = SHAPE = (1024, 1224)
PACKAGES = ("cucim-cu12", "cucim-cu13", "cupy-cuda12x", "cupy-cuda13x", "fused-ssim", "fussim", "scikit-image", "torch")
#: Frames whose maps are compared with the reference.
CHECKED = (0, FRAMES - 1)
#: What is at most wrong with a map for its time to count.
TOLERANCE = 1e-3


def make_images() -> Images:
    """The two images of each frame whose likeness the consistency mode measures, the second with noise."""
    raw = frames("IMX250MZR").astype(np.uint16)
    noise = np.random.default_rng(0).normal(0, 0.02, SHAPE).astype(np.float32)
    x = (raw[:, ::2, ::2] + raw[:, 1::2, 1::2]) / np.float32(510)
    y = np.clip((raw[:, ::2, 1::2] + raw[:, 1::2, ::2]) / np.float32(510) + noise, 0, 1)
    x, y = x.astype(np.float16), y.astype(np.float16)
    return Images(x, y, cupy.asarray(x), cupy.asarray(y))


def _each(one: Callable[[int], Any]) -> None:
    """Start the launches of every frame, one frame after the other."""
    for frame in range(FRAMES):
        one(frame)


# ---------------------------------------------------------------------------------------------------------- the product

LAUNCH = SsimLaunch(HEIGHT, WIDTH, 1, SSIM_WINDOW, SSIM_SIGMA, "uint16", "float32")
OPTIONS = make_options(products=("ssim_map", "ssim"))


def _implementation(batch: TimedLaunches, one: TimedLaunches) -> Implementation:
    """`kernels/ssim.cu` by a schedule for all frames in a launch, and by one for a frame in a launch."""

    def map_of(frame: int) -> np.ndarray:
        batch.arrays["ssim_map"].fill(np.nan)
        batch()
        image, mean = batch.arrays["ssim_map"][frame], float(batch.arrays["ssim"][frame])
        expected = float(image.mean(dtype=np.float64))
        if not abs(mean - expected) <= 1e-6:
            raise ValueError(f"the mean is {mean}, that of the map {expected}")
        return image.get()

    facts = {**resources(LAUNCH, batch.schedules[0]), "schedule_of_one": asdict(one.schedules[0])}
    return Implementation(batch, one, map_of, recorded=True, facts=facts)


def product(images: Images) -> Dict[str, Implementation]:
    """By the schedules that the backend chooses, and by those that are the fastest here."""
    both = (as_compared(image.astype(np.float32), LAUNCH.source) for image in (images.x, images.y))
    batch = TimedLaunches((LAUNCH,), OPTIONS, {"sums": cupy.asarray(np.stack([*both], 1))})
    every = list(every_schedule(LAUNCH, OPTIONS, batch.arrays))
    every_of_one = list(every_schedule(LAUNCH, OPTIONS, batch.arrays, 1))
    return {
        "product": _implementation(batch, TimedLaunches((LAUNCH,), OPTIONS, batch.arrays, 1)),
        "product, fastest schedules": _implementation(
            _fastest(every, every), _fastest(every_of_one, [capture(partial(_each, run)) for run in every_of_one])
        ),
    }


def _fastest(every: Sequence[TimedLaunches], runs: Sequence[Callable[[], Any]]) -> TimedLaunches:
    """Return the launches whose run takes the least time."""
    times = medians({str(k): run for k, run in enumerate(runs)}, 5)
    return every[int(min(times, key=times.__getitem__))]


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
        "us_in_graph_of_64": {
            name: capture(partial(_each, each.one)) for name, each in implementations.items() if each.recorded
        },
        "us_alone": {name: partial(each.one, 0) for name, each in implementations.items()},
    }
    for what, calls in runs.items():
        for name, milliseconds in medians(calls).items():
            report[name][what] = round(1000 * milliseconds / (1 if what == "us_alone" else FRAMES), 3)
    return report


def add_ratios(results: Dict[str, Dict[str, Any]]) -> None:
    """How many times as fast as fused-ssim; only of what is correct."""
    for row in results.values():
        if "fused-ssim" in results and row["correct"]:
            ratio = results["fused-ssim"]["us_per_frame"] / row["us_per_frame"]
            row["times_as_fast_as_fused_ssim"] = float(f"{ratio:.3g}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="result file; in results/ by default")
    values = parser.parse_args()
    images = make_images()
    wanted = {frame: ssim_map(images.x[frame].astype(float), images.y[frame].astype(float)) for frame in CHECKED}
    packages = {name: installed(make, images) for name, make in OTHERS.items()}
    implementations = {**product(images), **{name: found for name, found in packages.items() if found is not None}}
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
