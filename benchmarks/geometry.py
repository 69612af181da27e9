"""Outputs with a geometry against those without one, on the CPU: intensity, DoLP and AoLP, uint8, half resolution.

    python benchmarks/geometry.py [--threads N] [--repeats N]

A frame of 2448x2048 pixels, mono, 8 bit. All run in turns; sizes of the results are checked first. Prints the median
and the lowest time of a frame, the lowest CPU time of all threads, and its ratio to that of a frame without geometry.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Dict, List, Tuple

import numpy as np

from polar_pipeline import Pipeline
from polar_pipeline.geometry import make_lens

HEIGHT, WIDTH = 2048, 2448
LENS = make_lens(
    (HEIGHT, WIDTH),
    *("plumb_bob", (-0.2, 0.05, 0.001, -0.002, 0.0)),
    *((2000.0, 0, 1230, 0, 2000, 1020, 0, 0, 1), np.zeros(9), np.zeros(12)),
)
CASES: Dict[str, Dict[str, Any]] = {
    "none": {},
    "rectify": {"rectify": LENS},
    "rectify, scale 2": {"rectify": LENS, "scale": 2},
    "rotate 180": {"rotate": 180},
    "rotate 90": {"rotate": 90},
    "scale 2": {"scale": 2},
    "roi of a quarter": {"roi": (306, 256, 612, 512)},
}
SIZES = {
    "rectify, scale 2": (512, 612),
    "rotate 90": (1224, 1024),
    "scale 2": (512, 612),
    "roi of a quarter": (512, 612),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=30)
    values = parser.parse_args()
    raw = np.random.default_rng(0).integers(20, 200, (HEIGHT, WIDTH)).astype(np.uint8)
    pipelines = {
        name: Pipeline(backend="cpu", dtype="uint8", threads=values.threads, **options)
        for name, options in CASES.items()
    }
    for name, pipeline in pipelines.items():
        shape = pipeline(raw)["dolp"].shape
        assert shape == SIZES.get(name, (1024, 1224)), (name, shape)
    found: Dict[str, List[Tuple[float, float]]] = {name: [] for name in CASES}
    for _ in range(values.repeats):
        for name, pipeline in pipelines.items():
            start, cpu = time.perf_counter(), time.process_time()
            pipeline(raw)
            found[name].append((time.perf_counter() - start, time.process_time() - cpu))
    print(f"{pipelines['none'].device}\n")
    print("| geometry | median [ms] | lowest [ms] | CPU time [ms] | ratio |\n| --- | --- | --- | --- | --- |")
    base = min(cpu for _, cpu in found["none"])
    for name, rows in found.items():
        wall, cpu = [row[0] for row in rows], min(row[1] for row in rows)
        times = " | ".join(f"{1000 * seconds:.2f}" for seconds in (statistics.median(wall), min(wall), cpu))
        print(f"| {name} | {times} | {cpu / base:.2f} |")


if __name__ == "__main__":
    main()
