"""What the benchmarks on a GPU share: the driver, frames to work on, and times between CUDA events."""

from __future__ import annotations

import statistics
import sys
from functools import lru_cache
from typing import Any, Callable, Dict, List, Mapping, Tuple

import numpy as np
from scenes import synthetic

from polar_pipeline.backends.cuda.driver import Driver, import_cupy
from polar_pipeline.options import make_options
from polar_pipeline.sensor.forward import expose

try:
    cupy = import_cupy()
except RuntimeError as err:
    sys.exit(f"needs a GPU to measure on: {err}")

#: (height, width) of raw frames.
SHAPE = (2048, 2448)
#: Different frames, so that caches do not help.
FRAMES = 64
ROUNDS = 25


@lru_cache(maxsize=1)
def driver() -> Driver:
    """The GPU."""
    return Driver()


@lru_cache(maxsize=16)
def scene(sensor: str, shape: Tuple[int, int] = SHAPE) -> np.ndarray:
    """(H, W) uint8: a raw frame with some saturated and dark pixels."""
    seen = make_options(sensor).sensor
    raw = expose(synthetic("window", shape, is_color=seen.is_color), seen)
    raw[40:60, 100:140], raw[90:130, 200:220] = 255, 0
    raw[64:128:6, 16:256:10] = 255
    return raw


def moved(raw: Any, frame: int, elements: int) -> Any:
    """A raw frame, moved by 8 rows and 16 pixels, which are whole tiles, for each frame number.

    Args:
        raw: (H, elements of a row), in host or device memory.
        frame: Number of the frame; 0 is the frame itself.
        elements: Elements of 16 pixels.
    """
    library = np if isinstance(raw, np.ndarray) else cupy
    return library.roll(raw, (8 * frame, elements * frame), (0, 1))


@lru_cache(maxsize=2)
def frames(sensor: str, shape: Tuple[int, int] = SHAPE) -> np.ndarray:
    """(FRAMES, H, W) uint8: a scene, moved from frame to frame."""
    raw = scene(sensor, shape)
    return np.stack([moved(raw, k, 16) for k in range(FRAMES)])


#: Clocks that the device is kept busy while the host queues what is measured: some 200 us, longer than that takes.
_HEAD_START = 400_000


@lru_cache(maxsize=1)
def _spin() -> Callable[..., None]:
    code = 'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n); }'
    return cupy.RawKernel(code, "spin")


def milliseconds(run: Callable[[], Any], head_start: int = _HEAD_START) -> float:
    """Between two events around a run, which the host has queued before the first one is due, `head_start` clocks."""
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    _spin()((1,), (1,), (np.int64(head_start),))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end))


def capture(run: Callable[[], Any]) -> Callable[[], Any]:
    """Record what a run launches in the current stream as a graph, and return what launches that graph."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        run()
        graph = stream.end_capture()
    return lambda: graph.launch(cupy.cuda.get_current_stream())


def medians(runs: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> Dict[str, float]:
    """Median milliseconds of several things, measured in turns."""
    for run in runs.values():
        run()
    times: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(milliseconds(run))
    return {name: statistics.median(values) for name, values in times.items()}
