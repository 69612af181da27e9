"""Launches of the package on this GPU, on many frames at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import numpy as np
from timing import FRAMES, capture, cupy, driver

from polar_pipeline.backends.cuda.driver import Argument, LoadedKernel
from polar_pipeline.backends.cuda.launch import Launch, Schedule, compile_launch, round_up
from polar_pipeline.backends.cuda.memory import COUNTERS, Constants
from polar_pipeline.backends.cuda.schedules import candidates, choose
from polar_pipeline.options import Options

#: Alignment of an array of a frame, bytes: as a GPU's allocator gives it.
_ALIGNMENT = 256


class _Batch:
    """The memory of some frames, as `CompiledLaunch.start` takes it in place of a slot, in the current stream."""

    has_moved = False  # nothing moves after the first start

    def __init__(self, addresses: Dict[str, int]) -> None:
        self.addresses = addresses
        self.arguments: Dict[object, Argument] = {}

    @property
    def stream(self) -> int:
        return int(cupy.cuda.get_current_stream().ptr)


class TimedLaunches:
    """The launches of `FRAMES` different frames in device memory; calling it starts those of one batch.

    Args:
        launches: What is computed, in order.
        options: Options of the frames.
        arrays: (FRAMES, ...) arrays on the GPU, by name: what the first launch reads (`raw`, or `sums` of SSIM alone);
            those of outputs are filled again, others are made.
        count: Frames of a batch, which each launch computes.
        schedules: Schedules by the keys of launches, in place of those that the backend chooses.

    Attributes:
        arrays: The same with all outputs, `counts` and scratch.
        schedules: The schedule of each launch.
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        options: Options,
        arrays: Mapping[str, Any],
        count: int = FRAMES,
        schedules: Optional[Mapping[str, Schedule]] = None,
    ) -> None:
        self.arrays: Dict[str, Any] = {"counts": cupy.zeros((FRAMES, COUNTERS), np.uint32), **arrays}
        self._compiled, constants = [], Constants(driver())
        for launch in launches:
            offered = choose(launch, driver().device, count)
            if schedules is not None:
                offered = iter([("measured", schedules[launch.key])])
            compiled = compile_launch(driver(), launch, offered, count)
            compiled.set_up(options, constants)
            self._compiled.append(compiled)
            for name, (shape, dtype) in compiled.outputs.items():
                if name not in self.arrays:
                    self.arrays[name] = cupy.zeros((FRAMES, *shape), dtype)
            for name, size in compiled.scratch.items():
                self.arrays[name] = cupy.zeros((FRAMES, round_up(size, _ALIGNMENT)), np.uint8)
        self.schedules = [compiled.schedule for compiled in self._compiled]
        self._batches: List[Any] = []
        for first in range(0, FRAMES, count):
            addresses = {n: array.data.ptr + first * (array.nbytes // FRAMES) for n, array in self.arrays.items()}
            self._batches.append(_Batch(addresses))

    def __call__(self, batch: int = 0) -> None:
        """Start the launches of a batch."""
        for compiled in self._compiled:
            compiled.start(self._batches[batch])

    def graph(self) -> Callable[[], Any]:
        """Record the launches of all batches, one after the other, and return what starts them."""

        def start_all() -> None:
            for batch in range(len(self._batches)):
                self(batch)

        return capture(start_all)


def every_schedule(
    launch: Launch, options: Options, arrays: Mapping[str, Any], count: int = FRAMES
) -> Iterator[TimedLaunches]:
    """Yield a launch by each schedule that fits the GPU; all of them fill the same outputs."""
    schedules = candidates(launch, driver().device, count)
    with ThreadPoolExecutor() as pool:  # compiled ahead, on every core
        list(pool.map(partial(_load, launch), schedules))
    for schedule in schedules:
        timed = TimedLaunches((launch,), options, arrays, count, {launch.key: schedule})
        arrays = timed.arrays
        yield timed


def _load(launch: Launch, schedule: Schedule) -> LoadedKernel:
    kernel = launch.kernel(schedule)
    return driver().load(kernel.file, kernel.defines(launch, schedule), kernel.shared_bytes(launch, schedule))


def resources(launch: Launch, schedule: Schedule) -> Dict[str, Any]:
    """Return a schedule, the registers and spilled bytes of a thread, and the shared memory of a block."""
    owner = _load(launch, schedule).owner
    return {
        "schedule": asdict(schedule),
        "registers": owner.num_regs,
        "spill_bytes": owner.local_size_bytes,
        "shared_bytes": owner.shared_size_bytes + launch.kernel(schedule).shared_bytes(launch, schedule),
    }
