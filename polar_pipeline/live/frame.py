"""Records of a frame in the live node, from its receipt to its publication. Imports no ROS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, Optional

from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.live.parameters import Settings
from polar_pipeline.pipeline import Pending, Pipeline, Result
from polar_pipeline.recordings.messages import Cdr, ImageMessage
from polar_pipeline.sensor.frames import Frame


@dataclass(frozen=True)
class ReceivedImage:
    """A serialized `sensor_msgs/Image` as it was received.

    Attributes:
        received: Time of receipt in seconds of `time.perf_counter`.
        time_ns: Time of receipt on the node's clock; 0 while a simulated clock has not started.
        camera: State of the camera, if the node reads it itself.
        before: The frame before, of another exposure, with which it is merged; None for frames of one exposure.
    """

    cdr: Cdr
    received: float
    time_ns: int
    camera: Optional[CameraFacts] = None
    before: Optional[ReceivedImage] = None


@dataclass
class LiveFrame:
    """A decoded frame whose products are being computed or published.

    Attributes:
        demand: Topics that had subscribers when the frame was submitted.
        timings: Stage -> seconds; later stages are added as they end.
        age: Seconds from the frame's stamp to its receipt; None if the stamp is of another clock.
        is_restart: Whether the stamp is below that of the previous frame.
        camera_info: Serialized lens calibration of the frame; None without one.
        pipeline: Pipeline of the frame; None if only lens calibrations or times are published.
        pending: The frame in the pipeline, until its result is taken.
        result: Products of the frame, once they are computed.
    """

    received: ReceivedImage
    image: ImageMessage
    raw: Frame
    settings: Settings
    demand: FrozenSet[str]
    timings: Dict[str, float]
    age: Optional[float]
    is_restart: bool
    camera_info: Optional[bytes] = None
    pipeline: Optional[Pipeline] = None
    pending: Optional[Pending] = None
    result: Optional[Result] = None
