"""Warm-up of a pipeline, and memory for the expected messages, before a frame comes. Imports no ROS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Optional, Tuple

import numpy as np

from polar_pipeline import messages
from polar_pipeline.live.parameters import Settings
from polar_pipeline.live.pipelines import PipelineSwitch
from polar_pipeline.pipeline import Pipeline, Result

#: Frames whose products exist at once: computed, being published, and kept until the next one.
FRAMES_AT_ONCE = 3
#: Messages that exist at once for each of them: in queues, and the newest, which a snapshot may want.
MESSAGES_A_FRAME = 2
#: Alignment in bytes of the pixels in memory that a message is taken into: a cache line.
ALIGNMENT = 64
#: Bytes that the size of such memory is a multiple of, so that names of any length in a header find the same.
SIZE_STEP = 1 << 16


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
    if pipeline.plan.products != products:
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
