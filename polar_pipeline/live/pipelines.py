"""The pipeline in use and the next one, settings after a failure of the GPU, memory for messages. Imports no ROS."""

from __future__ import annotations

import time
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, Callable, Collection, Hashable, List, Optional, Tuple, Union

import numpy as np

from polar_pipeline._util.malloc import release_freed_memory
from polar_pipeline.backends.backend import ALIGNMENT, skip_to_alignment
from polar_pipeline.live.parameters import Settings
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.frames import Frame, FrameError

#: Granularity in bytes of memory for messages, so that headers with names of any length get memory of one size.
SIZE_STEP = 1 << 16
#: Options that change how raw pixels are interpreted: a pipeline with other values of these must not stand in.
_READING = ("sensor", "bit_depth", "alignment", "roi_offset", "flip")
#: Seconds that the CPU works in place of the GPU before the GPU is tried again; each try may cost a frame.
RETRY_PERIOD = 10.0


class Fallback:
    """Choice of the settings in use: the requested ones, or their CPU variant for a while after the GPU failed.

    The worker calls `failed` and `worked`; any thread calls `settings` and `problem`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason = ""  # why the GPU failed; "" while it works
        self._clock = clock
        self._until = clock()

    def failed(self, reason: str) -> None:
        """Note a failure of the GPU."""
        self._until = self._clock() + RETRY_PERIOD
        self.reason = reason

    def worked(self) -> None:
        """Note that the GPU works."""
        self.reason = ""

    def settings(self, requested: Settings) -> Settings:
        """Return the settings in use instead of the requested ones."""
        if self.reason and requested.on_device_error == "cpu" and self._clock() < self._until:
            return requested.on_cpu()
        return requested

    def problem(self, requested: Settings) -> str:
        """Describe the consequence and the reason of the failure; "" while the GPU works."""
        if not self.reason or requested.options.backend == "cpu":
            return ""
        consequences = {"cpu": "the CPU took over", "retry": "the next frame tries again", "stop": "the node ends"}
        return f"{consequences[requested.on_device_error]}: {self.reason}"


class PipelineSwitch:
    """The pipeline for the current settings and products.

    A new pipeline may first have to be compiled. The background thread compiles it, and meanwhile the active one stays
    in use, with all of its own settings: a change comes late, but never in parts. A change of how frames are read
    cannot wait (see `_can_stand_in`); then the worker compiles. `release_replaced` closes replaced pipelines.

    The worker calls the methods. Before it starts and after it has ended, the main thread may call them.

    Args:
        background: Executor with one thread, which prepares pipelines and closes those that are abandoned meanwhile.
    """

    def __init__(self, background: Executor) -> None:
        self._background = background
        self._active: Optional[Tuple[Pipeline, Settings]] = None
        self._active_key: Hashable = None
        self._next: Optional[Pipeline] = None
        self._next_key: Hashable = None
        self._preparation: Any = None  # future of the next pipeline's preparation, once it was needed
        self._replaced: List[Pipeline] = []

    def get(
        self, settings: Settings, products: Tuple[str, ...], raw: Union[np.ndarray, Frame]
    ) -> Tuple[Pipeline, Settings]:
        """Return the pipeline for these settings and products, or the one in use until the new one is ready for `raw`.

        Also return the settings by which its outputs are made.

        Raises:
            FrameError: The geometry of the outputs does not fit `raw`.
            RuntimeError: The pipeline cannot be made ready.
        """
        if settings.options.geometry is not None:  # before anything is made for settings that do not fit
            replace(settings.options, products=products).output_size(raw.shape)
        key = (settings.options, settings.output_depth, products)
        if self._active is not None and key == self._active_key:
            self._abandon_next()
            self._active = self._active[0], settings
            return self._active
        if self._next is None or key != self._next_key:
            self._abandon_next()
            self._next, self._next_key = Pipeline(**settings.arguments(products)), key
        if self._active is not None:
            active, former = self._active
            has_lens = former.lens == settings.lens  # that of another frame must not stand in
            if has_lens and _can_stand_in(active, self._next, raw) and not self._is_ready(self._next, raw):
                return self._active
            self._await_preparation()
            self._replaced.append(active)
        self._active, self._active_key = (self._next, settings), key
        self._next = self._next_key = None
        return self._active

    def _is_ready(self, pipeline: Pipeline, raw: Union[np.ndarray, Frame]) -> bool:
        """Return whether the next pipeline can process a frame like `raw`; start its preparation if it cannot."""
        if self._preparation is not None and not self._preparation.done():
            return False
        self._await_preparation()
        if pipeline.is_ready(raw):
            return True
        self._preparation = self._background.submit(pipeline.prepare, raw)
        return False

    def _await_preparation(self) -> None:
        """Wait for the preparation, or cancel it if it has not begun; RuntimeError if it has failed."""
        preparation, self._preparation = self._preparation, None
        try:
            if preparation is not None and not preparation.cancel():
                preparation.result()
        except BaseException:
            self._abandon_next()
            raise

    def _abandon_next(self) -> None:
        """Close the next pipeline, if there is one; while it is being prepared, after that."""
        pipeline, preparation = self._next, self._preparation
        self._next = self._next_key = self._preparation = None
        if pipeline is None:
            return
        if preparation is None or preparation.cancel():
            pipeline.close()
        else:
            self._background.submit(pipeline.close)  # its one thread prepares first

    def release_replaced(self, in_use: Collection[Pipeline] = ()) -> None:
        """Close the replaced pipelines, except those `in_use` by frames in progress, and return their memory."""
        unused = [pipeline for pipeline in self._replaced if pipeline not in in_use]
        if not unused:
            return
        self._replaced = [pipeline for pipeline in self._replaced if pipeline in in_use]
        for pipeline in unused:
            pipeline.close()
        release_freed_memory()

    def reset(self) -> None:
        """Forget the previous frame, for example after a jump of the stamps."""
        if self._active is not None:
            self._active[0].reset()

    def clear(self) -> None:
        """Release all pipelines; the background thread closes one that is being prepared."""
        self._abandon_next()
        if self._active is not None:
            self._replaced.append(self._active[0])
        self._active = self._active_key = None
        self.release_replaced()


def _can_stand_in(active: Pipeline, pipeline: Pipeline, raw: Union[np.ndarray, Frame]) -> bool:
    """Return whether `active` is ready for a frame, and reads and compares frames in the same way as `pipeline`."""
    alike = (getattr(active.options, name) == getattr(pipeline.options, name) for name in (*_READING, "ssim_mode"))
    try:
        if not all(alike) or not active.is_ready(raw):
            return False
    except FrameError:  # the frame does not fit the former options
        return False
    # the reference image has the size of the next pipeline's outputs
    return pipeline.options.ssim_mode != "reference" or active.output_size(raw.shape) == pipeline.output_size(raw.shape)


def message_allocator(pipeline: Pipeline, cdr: messages.Cdr, pixels: np.ndarray) -> Callable[[], Optional[np.ndarray]]:
    """Return a function that gives memory for messages like `cdr`, of which `pixels` are a view.

    The pipeline takes their frames without a copy, and their pixels are aligned. The function returns None if any
    memory will do.
    """
    size = -(-(len(cdr) + ALIGNMENT) // SIZE_STEP) * SIZE_STEP
    header = pixels.ctypes.data - np.frombuffer(cdr, np.uint8).ctypes.data

    def memory() -> Optional[np.ndarray]:
        block = pipeline.frame_memory(size)
        return None if block is None else skip_to_alignment(block, header)

    return memory
