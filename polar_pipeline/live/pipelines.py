"""The pipeline in use, the next one, which replaces it as soon as it is compiled, and their warm-up. Imports no ROS."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable, Collection, Hashable, List, Optional, Tuple

import numpy as np

from polar_pipeline import messages
from polar_pipeline._util.malloc import release_freed_memory
from polar_pipeline.live.parameters import Settings
from polar_pipeline.pipeline import Pipeline, Raw, Result

#: Frames whose products exist at once: computed, being published, and kept until the next one.
FRAMES_AT_ONCE = 3
#: Messages that exist at once for each of them: in queues, and the newest, which a snapshot may want.
MESSAGES_A_FRAME = 2
#: Alignment in bytes of the pixels in memory that a message is taken into: a cache line.
ALIGNMENT = 64
#: Bytes that the size of such memory is a multiple of, so that names of any length in a header find the same.
SIZE_STEP = 1 << 16


@dataclass(frozen=True)
class ActivePipeline:
    """The pipeline that processes a frame, and the settings by which its outputs are made."""

    pipeline: Pipeline
    settings: Settings


class PipelineSwitch:
    """The pipeline for the current settings and products.

    A new one may first have to be compiled. That happens in a thread beside the worker, and meanwhile the one in use
    stays in use, with all of its own settings: a change comes late, but never in parts. A change of how frames are read
    cannot wait (see `_can_replace`); there the worker waits. A replaced pipeline is closed by `release_replaced`.

    The worker calls every method but `close`. Before it starts and after it has ended, the main thread may call any
    method. The compiler's thread runs `Pipeline.prepare`, and closes pipelines that are no longer wanted then.
    """

    def __init__(self) -> None:
        self._active: Optional[ActivePipeline] = None
        self._next: Optional[Pipeline] = None
        self._preparation: Any = None  # a future of the next pipeline's, once it was needed
        self._replaced: List[Pipeline] = []
        self._compiler = ThreadPoolExecutor(1, "polar_pipeline_compiler")
        self._active_key: Hashable = None
        self._next_key: Hashable = None

    def get(self, settings: Settings, products: Tuple[str, ...], raw: Raw) -> ActivePipeline:
        """Return the pipeline for these settings and products, or the one in use until the new one is ready for `raw`.

        Raises:
            FrameError: The geometry of the outputs does not fit `raw`.
            RuntimeError: The pipeline cannot be made ready.
        """
        if settings.options.geometry is not None:  # before anything is made for settings that do not fit
            settings.options.with_held(products=products).output_size(raw.shape)
        key = (settings.options, settings.output_depth, products)
        if self._active is not None and key == self._active_key:
            self._abandon_next()
            self._active = ActivePipeline(self._active.pipeline, settings)
            return self._active
        if self._next is None or key != self._next_key:
            self._abandon_next()
            self._next, self._next_key = Pipeline(**settings.arguments(products)), key
        active = self._active
        if active is not None and _can_replace(self._next, active.pipeline, raw) and not self._is_next_ready(raw):
            return active
        self._await_preparation()
        if active is not None:
            self._replaced.append(active.pipeline)
        self._active, self._active_key = ActivePipeline(self._next, settings), key
        self._next = self._next_key = None
        return self._active

    def _is_next_ready(self, raw: Raw) -> bool:
        """Return whether the next pipeline can process a frame like `raw`; start its preparation if it cannot.

        Raises:
            RuntimeError: The preparation has failed.
        """
        assert self._next is not None
        if self._preparation is not None:
            if not self._preparation.done():
                return False
            self._await_preparation()
        if self._next.is_ready(raw):
            return True
        self._preparation = self._compiler.submit(self._next.prepare, raw)
        return False

    def _await_preparation(self) -> None:
        """Wait until nothing is being prepared.

        Raises:
            RuntimeError: The preparation has failed; the next pipeline is given up.
        """
        if self._preparation is None:
            return
        try:
            self._preparation.result()
        except BaseException:
            self._abandon_next()
            raise
        self._preparation = None

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
            self._active.pipeline.reset()

    def clear(self) -> None:
        """Release all pipelines."""
        self._abandon_next()
        if self._active is not None:
            self._replaced.append(self._active.pipeline)
        self._active = self._active_key = None
        self.release_replaced()

    def close(self) -> None:
        """Release all pipelines and end the compiler's thread."""
        self.clear()
        self._compiler.shutdown()


#: Options by which a frame is read: with former ones, outputs would show something else.
_READING = ("sensor", "bit_depth", "alignment", "roi_offset", "flip")


def _can_replace(wanted: Pipeline, active: Pipeline, raw: Raw) -> bool:
    """Return whether `active` is ready, and reads and compares frames in the same way as `wanted`."""
    alike = (getattr(active.options, name) == getattr(wanted.options, name) for name in (*_READING, "ssim_mode"))
    if not all(alike) or not active.is_ready(raw):
        return False
    # the reference image has the size of the wanted outputs
    return wanted.options.ssim_mode != "reference" or active.output_size(raw.shape) == wanted.output_size(raw.shape)


@dataclass(frozen=True)
class ExpectedMessage:
    """Size and layout of the next message, as far as can be known, and the pipeline that will take its frame.

    Attributes:
        pipeline: Gives the memory.
        size: Bytes of the message.
        header: Bytes in front of the pixels.
    """

    pipeline: Pipeline
    size: int
    header: int

    @classmethod
    def like(cls, pipeline: Pipeline, cdr: messages.Cdr, pixels: np.ndarray) -> ExpectedMessage:
        """Expect messages like `cdr`, of which `pixels` are a view."""
        return cls(pipeline, len(cdr), pixels.ctypes.data - np.frombuffer(cdr, np.uint8).ctypes.data)

    def memory(self) -> Optional[np.ndarray]:
        """Return memory for the message in which its pixels are aligned; None if any memory does."""
        memory = self.pipeline.frame_memory(-(-(self.size + ALIGNMENT) // SIZE_STEP) * SIZE_STEP)
        return None if memory is None else memory[(-self.header - memory.ctypes.data) % ALIGNMENT :]


def warm_up(
    pipelines: PipelineSwitch, settings: Settings, products: Tuple[str, ...], is_interrupted: Callable[[], bool]
) -> Optional[ExpectedMessage]:
    """Compute the products of a camera's frame `FRAMES_AT_ONCE` times, unless interrupted.

    Otherwise the first frames would wait for memory: on a CPU for fresh pages, on a GPU for pinned ones. Frames of 8
    bit are taken for granted; the memory of other messages is allocated as they come.

    Returns:
        The message that was decoded; None if the pipeline is not ready, but compiled in another thread.
    """
    shape = settings.options.largest_frame()
    cdr = messages.encode_image(0, "camera", "mono8", np.full(shape, 99, np.uint8))
    image = messages.decode_image(cdr)
    pipeline = pipelines.get(settings, products, messages.to_raw(image)).pipeline
    if pipeline.options.products != products:
        return None
    expected = ExpectedMessage.like(pipeline, cdr, image.data)
    results: List[Result] = []
    received: List[Optional[np.ndarray]] = []
    while len(results) < FRAMES_AT_ONCE and not is_interrupted():
        received += [expected.memory() for _ in range(MESSAGES_A_FRAME)]
        results.append(pipeline(messages.to_raw(image)))
    pipeline.reset()
    pipelines.release_replaced()
    return expected
