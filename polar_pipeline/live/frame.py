"""The state of a frame in the live node: received, submitted, finished. Imports no ROS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, Optional, Tuple

from polar_pipeline.live.parameters import Settings
from polar_pipeline.messages import Cdr, ImageMessage
from polar_pipeline.pipeline import Pending, Pipeline, Result
from polar_pipeline.sensor.frames import Frame


@dataclass(frozen=True)
class ReceivedImage:
    """A raw image as it came in.

    Attributes:
        cdr: Serialized `sensor_msgs/Image`.
        received: Time of receipt in seconds of `time.perf_counter`.
        time_ns: Time of receipt on the node's clock; 0 while a simulated clock has not started.
    """

    cdr: Cdr
    received: float
    time_ns: int


@dataclass(frozen=True)
class Demand:
    """Outputs that have subscribers.

    Attributes:
        products: Products to publish as they are.
        compressed: Products to publish as JPEG.
        camera_infos: Topics on which to publish the lens calibration.
        numbers: Keys of `NUMBER_TOPICS`.
    """

    products: FrozenSet[str]
    compressed: FrozenSet[str]
    camera_infos: Tuple[str, ...]
    numbers: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class Computation:
    """The pipeline that computes a frame's products, and the frame's ticket there."""

    pipeline: Pipeline
    pending: Pending


@dataclass(frozen=True)
class SubmittedFrame:
    """A decoded frame on which a pipeline has started.

    Attributes:
        received: The frame as it came in.
        image: The decoded message.
        raw: Its pixels.
        settings: Settings by which its outputs are made.
        demand: Outputs that had subscribers when it was submitted.
        computation: How its products are computed; None if only lens calibrations or times are to be published.
        timings: Stage -> seconds; later stages are added as they end.
        age: Seconds from its stamp to its receipt; None if the stamp is of another clock.
        is_restart: Whether its stamp is below that of the frame before.
    """

    received: ReceivedImage
    image: ImageMessage
    raw: Frame
    settings: Settings
    demand: Demand
    computation: Optional[Computation]
    timings: Dict[str, float]
    age: Optional[float]
    is_restart: bool

    @property
    def depth(self) -> int:
        """Frames that may be in progress at once where this one is."""
        return self.computation.pipeline.depth if self.computation else 1


@dataclass(frozen=True)
class FinishedFrame:
    """A frame whose products are computed; `result` is None if there was no computation."""

    submitted: SubmittedFrame
    result: Optional[Result]
