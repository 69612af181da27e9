"""Results that stay on the GPU: from a frame in device memory to tensors of PyTorch, against the kernels alone.

    python benchmarks/device_results.py [--output FILE.json]

Times are between events of one stream, for all that is queued in between; the host has queued it before the first
event is due, so that its own time does not count. The bound is the time of the frame's launches alone plus that of as
many launches of an empty kernel. A profile of 20 frames must show no copy from the device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import numpy as np
from batches import raw_frames
from common import RESULTS, machine, slug, table, write
from timed_launch import TimedLaunches
from timing import FRAMES, ROUNDS, SHAPE, cupy, driver, frames, milliseconds

from polar_pipeline import Pipeline
from polar_pipeline.backends.cuda.program import make_launches
from polar_pipeline.options import make_options

try:
    import torch
except ImportError as err:
    sys.exit(f"needs PyTorch to share memory with: {err}")

#: Products of the rows; the first are those of a pipeline by default.
CASES: Dict[str, Tuple[str, ...]] = {
    "default": ("intensity", "dolp", "aolp"),
    "DoLP and AoLP": ("dolp", "aolp"),
}


#: Clocks that the device is kept busy before a run: some 2 ms, more than the host takes for a frame.
_HEAD_START = 4_000_000


def microseconds(run: Callable[[], Any], launches: int = 1) -> float:
    """Median time of a run on the device, for each of its frames."""
    for _ in range(3):
        run()
    return 1000 * statistics.median(milliseconds(run, _HEAD_START) for _ in range(ROUNDS)) / launches


def empty_launch() -> float:
    """Time of a launch that does nothing, with the counters cleared before it, in microseconds."""
    kernel, counts = cupy.RawKernel('extern "C" __global__ void empty() {}', "empty"), cupy.zeros(2, cupy.uint32)

    def run() -> None:
        stream = cupy.cuda.get_current_stream().ptr
        for _ in range(20):
            driver().fill(counts.data.ptr, 0, 8, stream)
            kernel((1,), (32,), ())

    return microseconds(run, 20)


def kernels_alone(products: Tuple[str, ...], count: int) -> float:
    """Time of the launch of `count` frames, in microseconds."""
    options = make_options(products=products)
    launches = make_launches(options, "u8", 255, SHAPE)
    return microseconds(TimedLaunches(launches, options, {"raw": raw_frames(launches[0])}, count))


def to_tensors(pipeline: Pipeline, raw: Any, products: Tuple[str, ...]) -> Dict[str, Any]:
    """Products of a frame or batch as tensors, for which the current stream waits."""
    result: Any = pipeline(raw)
    result.wait()
    return {name: torch.from_dlpack(result[name]) for name in products}


def copies_from_the_device(run: Callable[[], Any]) -> int:
    """Number of copies from the device in a profile."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(20):
            run()
        torch.cuda.synchronize()
    return sum(row.count for row in profile.key_averages() if "DtoH" in row.key)


def main() -> None:
    """Measure every case, print the table and write it."""
    parser = argparse.ArgumentParser(description="Measures results that stay on the GPU.")
    parser.add_argument("--output", type=Path, help="result file (default: results/device_results_<GPU>.json)")
    output = parser.parse_args().output or RESULTS / f"device_results_{slug(driver().name)}.json"
    stack = cupy.asarray(frames("IMX250MZR"))
    empty = empty_launch()
    rows = []
    for name, products in CASES.items():
        with Pipeline(backend="cuda", products=products, output="device") as pipeline:
            for count in (1, 16, FRAMES):
                raw = stack[0] if count == 1 else stack[:count]
                took = microseconds(lambda raw=raw, p=pipeline, n=products: to_tensors(p, raw, n))
                alone = kernels_alone(products, count)
                copies = copies_from_the_device(lambda raw=raw, p=pipeline, n=products: to_tensors(p, raw, n))
                rows.append([name, count, took, alone, empty, took / (alone + empty), copies])
    head = ["products", "frames", "to tensors [us]", "kernels [us]", "empty launch [us]", "ratio", "copies to host"]
    print(table(head, rows))
    facts = {"gpu": driver().name, **machine(["cupy-cuda12x", "cupy-cuda13x", "torch", "numpy"])}
    write(
        output,
        {
            **facts,
            "rows": [dict(zip(head, [float(c) if isinstance(c, np.floating) else c for c in row])) for row in rows],
        },
    )


if __name__ == "__main__":
    main()
