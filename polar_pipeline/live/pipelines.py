"""The pipeline in use, the next one as soon as it is compiled, and memory for incoming messages. Imports no ROS."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Callable, Collection, Hashable, List, Optional, Tuple

import numpy as np

from polar_pipeline._util.malloc import release_freed_memory
from polar_pipeline.backends.backend import ALIGNMENT, skip_to_alignment
from polar_pipeline.live.parameters import Settings
from polar_pipeline.pipeline import Pipeline, Raw
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.frames import FrameError

#: Bytes that the size of memory for messages is a multiple of, so that names of any length in a header find the same.
SIZE_STEP = 1 << 16
#: Options by which a frame is read: with former ones, outputs would show something else.
_READING = ("sensor", "bit_depth", "alignment", "roi_offset", "flip")


class PipelineSwitch:
    """The pipeline for the current settings and products.

    A new one may first have to be compiled. That happens in a thread beside the worker, and meanwhile the one in use
    stays in use, with all of its own settings: a change comes late, but never in parts. A change of how frames are read
    cannot wait (see `_can_replace`); there the worker waits. A replaced pipeline is closed by `release_replaced`.

    The worker calls every method but `close`. Before it starts and after it has ended, the main thread may call any
    method. The compiler's thread runs `Pipeline.prepare`, and closes pipelines that are no longer wanted then.
    """

    def __init__(self) -> None:
        self._active: Optional[Tuple[Pipeline, Settings]] = None
        self._active_key: Hashable = None
        self._next: Optional[Pipeline] = None
        self._next_key: Hashable = None
        self._preparation: Any = None  # a future of the next pipeline's, once it was needed
        self._replaced: List[Pipeline] = []
        self._compiler = ThreadPoolExecutor(1, "polar_pipeline_compiler")

    def get(self, settings: Settings, products: Tuple[str, ...], raw: Raw) -> Tuple[Pipeline, Settings]:
        """Return the pipeline for these settings and products, or the one in use until the new one is ready for `raw`.

        Returns:
            The pipeline, and the settings by which its outputs are made.

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
            active = self._active[0]
            if _can_replace(self._next, active, raw) and not self._is_ready(self._next, raw):
                return self._active
            self._await_preparation()
            self._replaced.append(active)
        self._active, self._active_key = (self._next, settings), key
        self._next = self._next_key = None
        return self._active

    def _is_ready(self, wanted: Pipeline, raw: Raw) -> bool:
        """Return whether the next pipeline can process a frame like `raw`; start its preparation if it cannot.

        Raises:
            RuntimeError: The preparation has failed.
        """
        if self._preparation is not None and not self._preparation.done():
            return False
        self._await_preparation()
        if wanted.is_ready(raw):
            return True
        self._preparation = self._compiler.submit(wanted.prepare, raw)
        return False

    def _await_preparation(self) -> None:
        """Wait until nothing is being prepared.

        Raises:
            RuntimeError: The preparation has failed; the next pipeline is given up.
        """
        preparation, self._preparation = self._preparation, None
        try:
            if preparation is not None:
                preparation.result()
        except BaseException:
            self._abandon_next()
            raise

    def _abandon_next(self) -> None:
        """Close the next pipeline, if there is one; while it is being prepared, when that ends."""
        pipeline, preparation = self._next, self._preparation
        self._next = self._next_key = self._preparation = None
        if pipeline is not None and preparation is None:
            pipeline.close()
        elif pipeline is not None:
            preparation.cancel()
            preparation.add_done_callback(lambda _: pipeline.close())

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
        """Release all pipelines."""
        self._abandon_next()
        if self._active is not None:
            self._replaced.append(self._active[0])
        self._active = self._active_key = None
        self.release_replaced()

    def close(self) -> None:
        """Release all pipelines and end the compiler's thread."""
        self.clear()
        self._compiler.shutdown()


def _can_replace(wanted: Pipeline, active: Pipeline, raw: Raw) -> bool:
    """Return whether `active` is ready for a frame, and reads and compares frames in the same way as `wanted`."""
    alike = (getattr(active.options, name) == getattr(wanted.options, name) for name in (*_READING, "ssim_mode"))
    try:
        if not all(alike) or not active.is_ready(raw):
            return False
    except FrameError:  # the frame does not fit the former options
        return False
    # the reference image has the size of the wanted outputs
    return wanted.options.ssim_mode != "reference" or active.output_size(raw.shape) == wanted.output_size(raw.shape)


def memory_like(pipeline: Pipeline, cdr: messages.Cdr, pixels: np.ndarray) -> Callable[[], Optional[np.ndarray]]:
    """Return a function that gives memory for messages like `cdr`, of which `pixels` are a view.

    The pipeline takes their frames without a copy, and their pixels are aligned. Where any memory does, the function
    gives None.
    """
    size = -(-(len(cdr) + ALIGNMENT) // SIZE_STEP) * SIZE_STEP
    header = pixels.ctypes.data - np.frombuffer(cdr, np.uint8).ctypes.data

    def memory() -> Optional[np.ndarray]:
        found = pipeline.frame_memory(size)
        return None if found is None else skip_to_alignment(found, header)

    return memory
