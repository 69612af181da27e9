"""Frames from the caller's memory to arrays of the host, against the copies that they need; part of `gpu.py`.

Each case is measured in turns with two limits: its copies one after the other, from and to pinned memory, and the same
in four strips: the next strip is uploaded while one is downloaded. Wall-clock medians, in microseconds, of different
frames.
"""

from __future__ import annotations

import itertools
import statistics
import time
from contextlib import closing
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
from gpu_cases import COLOR, FLOAT, MONO, POLAR, WITH_SSIM
from timing import SHAPE, cupy, frames

from polar_pipeline import Pipeline

#: Name -> sensor, products, type of elements.
WHOLE_FRAMES: Dict[str, Tuple[str, Tuple[str, ...], Any]] = {
    "mono float32": (MONO, POLAR, "float32"),
    "mono uint8": (MONO, POLAR, "uint8"),
    "color float32": (COLOR, POLAR, "float32"),
    "color uint8": (COLOR, POLAR, "uint8"),
    "the node's, with SSIM": (MONO, WITH_SSIM, {**FLOAT, "ssim_map": "uint8"}),
}
_ROUNDS, _IN_A_ROW, _STRIPS, _STREAMED = 9, 10, 4, 48


class _Copies:
    """The copies of a frame, by two streams."""

    def __init__(self, raw: int, out: int) -> None:
        self._sizes = (raw, out)
        self._pinned = [cupy.cuda.alloc_pinned_memory(size) for size in self._sizes]
        self._device = [cupy.zeros(size, cupy.uint8) for size in self._sizes]
        self._up, self._down = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        self._copy = cupy.cuda.runtime.memcpyAsync

    def serial(self) -> None:
        """Up, then down."""
        (raw, out), stream = self._sizes, self._up
        self._copy(self._device[0].data.ptr, self._pinned[0].ptr, raw, 1, stream.ptr)
        self._copy(self._pinned[1].ptr, self._device[1].data.ptr, out, 2, stream.ptr)
        stream.synchronize()

    def strips(self) -> None:
        """Up in strips, each of which is followed by its part of the way down."""
        (raw, out), event = (size // _STRIPS for size in self._sizes), cupy.cuda.Event
        for k in range(_STRIPS):
            self._copy(self._device[0].data.ptr + k * raw, self._pinned[0].ptr + k * raw, raw, 1, self._up.ptr)
            self._down.wait_event(self._up.record(event(disable_timing=True)))
            self._copy(self._pinned[1].ptr + k * out, self._device[1].data.ptr + k * out, out, 2, self._down.ptr)
        self._down.synchronize()


def _pinned(pipeline: Pipeline, raw: np.ndarray) -> np.ndarray:
    memory = pipeline.frame_memory(raw.nbytes)
    assert memory is not None
    copy = memory.view(raw.dtype).reshape(raw.shape)
    copy[...] = raw
    return copy


def _stream(pipeline: Pipeline, sources: Iterator[np.ndarray]) -> float:
    """Microseconds of a frame in a stream of frames in `frame_memory`."""
    rows = [next(sources) for _ in range(_STREAMED)]
    start = time.perf_counter()
    for _ in pipeline.stream(rows):
        pass
    return 1e6 * (time.perf_counter() - start) / _STREAMED


def _submitted(pipeline: Pipeline, raw: Any) -> float:
    """Microseconds of the host for a frame that is on the device, and its results that stay there."""
    start = time.perf_counter()
    for _ in range(20):
        pipeline(raw)
    seconds = time.perf_counter() - start
    cupy.cuda.runtime.deviceSynchronize()
    return 1e6 * seconds / 20


def whole_frames(name: str) -> Dict[str, Any]:
    """Measure a case."""
    sensor, products, dtype = WHOLE_FRAMES[name]
    raw = frames(sensor, SHAPE)[:8]
    with closing(Pipeline(sensor, products, "cuda", dtype=dtype)) as pipeline, closing(
        Pipeline(sensor, products, "cpu", dtype=dtype)
    ) as cpu, closing(Pipeline(sensor, products, "cuda", dtype=dtype, output="device")) as on_device:
        pinned = [_pinned(pipeline, row) for row in raw]
        sources = [itertools.cycle(rows) for rows in (raw, pinned, raw)]
        result = pipeline(raw[0])
        copies = _Copies(raw[0].nbytes, sum(array.nbytes for array in result.values()))
        device = cupy.asarray(raw[0])
        runs: Dict[str, Callable[[], Any]] = {
            "pageable": lambda: pipeline(next(sources[0])),
            "frame_memory": lambda: pipeline(next(sources[1])),
            "copies": copies.serial,
            "copies in strips": copies.strips,
            "cpu": lambda: cpu(next(sources[2])),
        }
        times: Dict[str, List[float]] = {key: [] for key in (*runs, "stream", "submitted on the device")}
        for _ in range(_ROUNDS):
            for key, run in runs.items():
                for turn in range(_IN_A_ROW):
                    start = time.perf_counter()
                    run()
                    if turn > 1:  # the first ones find the caches of the processor filled by another run
                        times[key].append(1e6 * (time.perf_counter() - start))
            times["stream"].append(_stream(pipeline, sources[1]))
            times["submitted on the device"].append(_submitted(on_device, device))
    return {key: round(statistics.median(values), 1) for key, values in times.items()}
