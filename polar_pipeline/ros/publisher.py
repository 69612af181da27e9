"""Makes the messages of finished frames and publishes them. Imports no ROS."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

import cv2
import numpy as np

from polar_pipeline import messages
from polar_pipeline.display import Viewer
from polar_pipeline.pipeline import Result
from polar_pipeline.quality.layout import LayoutCheck, check_layout
from polar_pipeline.quality.statistics import FrameQuality, Level, Quality, QualityLimits, measure
from polar_pipeline.ros.diagnostics import Diagnostics
from polar_pipeline.ros.frame import Demand, FinishedFrame, SubmittedFrame
from polar_pipeline.ros.message_publisher import OutgoingMessage, OutputTopic
from polar_pipeline.ros.problems import ProblemLog
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.topics import COMPRESSED_TOPICS

#: Seconds between two checks whether the layout fits: parameters seldom change, and a check takes 3 ms.
LAYOUT_PERIOD = 1.0


@dataclass(frozen=True)
class OutputTopics:
    """The topics of a node's outputs.

    Attributes:
        products: By product.
        compressed: JPEG, by product.
        camera_infos: Lens calibrations, by topic.
        latency: Times and quality of every frame.
    """

    products: Mapping[str, OutputTopic]
    compressed: Mapping[str, OutputTopic]
    camera_infos: Mapping[str, OutputTopic]
    latency: OutputTopic

    def demand(self) -> Demand:
        """Outputs that have subscribers now."""
        products, compressed = _subscribed(self.products), _subscribed(self.compressed)
        return Demand(frozenset(products), frozenset(compressed), tuple(_subscribed(self.camera_infos)))

    def have_subscribers(self) -> bool:
        """Whether any output has a subscriber now."""
        topics = (*self.products.values(), *self.compressed.values(), *self.camera_infos.values(), self.latency)
        return any(topic.get_subscription_count() for topic in topics)


def _subscribed(topics: Mapping[str, OutputTopic]) -> List[str]:
    return [name for name, topic in topics.items() if topic.get_subscription_count()]


class MessageSender(Protocol):
    """What `FramePublisher` sends messages with: `MessagePublisher`."""

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish messages of different topics, and wait until the middleware has them."""

    def close(self) -> None:
        """End its threads."""


class FramePublisher:
    """Makes every message of a frame and then publishes them together, in a thread of its own if frames come fast.

    A frame that came in after the one before was out is published by the worker itself: there is nothing that the
    worker could do meanwhile, and a thread that wakes up takes a tenth of a millisecond, and works with cold caches.

    Which thread does what:
        - The worker calls `demand`, `is_latency_wanted` and `submit`, frame after frame.
        - The worker or the publisher's thread runs `_publish_or_refuse` and what it calls, one frame at a time.
        - The executor's thread sets `camera_info`, and reads `quality.report()`, `layout` and `last_frame`.
        - The main thread calls `close`, when the worker has ended.

    Args:
        name: The node's, which starts the name of every status.
        topics: Where to publish.
        sender: Publishes the messages of a frame.
        diagnostics: Counts frames and their times.
        problems: Counts and logs what could not be published.
        limits: Limits of quality until the first frame brings its own.

    Attributes:
        camera_info: Newest message of topic `camera_info`; None before the first.
        quality: Judges frame after frame.
        layout: Whether the parameters fit the mosaic, by the last check.
        last_frame: Format and products of the last frame, for the diagnostics.
    """

    def __init__(
        self,
        name: str,
        topics: OutputTopics,
        sender: MessageSender,
        diagnostics: Diagnostics,
        problems: ProblemLog,
        limits: QualityLimits,
    ) -> None:
        self.camera_info: Optional[bytes] = None
        self.quality = Quality(limits)
        self.layout = LayoutCheck(None, "no frame was looked at")
        self.last_frame: Dict[str, str] = {}
        self._name = name
        self._topics = topics
        self._sender = sender
        self._diagnostics = diagnostics
        self._problems = problems
        self._viewer = Viewer()
        self._layout_due = 0.0
        self._thread = ThreadPoolExecutor(1, "polar_pipeline_publisher")
        self._previous: Optional[Any] = None  # a future
        self._ended = -math.inf  # when the last frame was out, by `time.perf_counter`

    def close(self) -> None:
        """Publish the frame that was submitted last, and end the thread; safe to call twice."""
        self._thread.shutdown()
        self._sender.close()

    # --------------------------------------------------------------------------------------------------- the worker

    def demand(self) -> Demand:
        """Outputs that have subscribers now."""
        return self._topics.demand()

    def is_latency_wanted(self) -> bool:
        """Whether topic `latency` has a subscriber now."""
        return bool(self._topics.latency.get_subscription_count())

    def submit(self, frame: FinishedFrame) -> None:
        """Have a frame published; waits until the one before is out, so that messages of a topic stay in order."""
        finished = time.perf_counter()
        if self._previous is not None:
            self._previous.result()
            self._previous = None
        if frame.submitted.received.received > self._ended:
            self._publish_or_refuse(frame, finished)
        else:
            self._previous = self._thread.submit(self._publish_or_refuse, frame, finished)

    # ------------------------------------------------------------------------- the worker, or the publisher's thread

    def _publish_or_refuse(self, frame: FinishedFrame, finished: float) -> None:
        """Publish a frame that was finished at this time of `time.perf_counter`; an error costs this frame only."""
        frame.submitted.timings["handover"] = time.perf_counter() - finished
        try:
            self._publish(frame)
        except Exception as err:  # noqa: BLE001
            self._problems.refuse_error(err)
        self._ended = time.perf_counter()

    def _publish(self, finished: FinishedFrame) -> None:
        frame, result = finished.submitted, finished.result
        timings, settings = frame.timings, frame.settings
        if frame.is_restart:
            self.quality.restart()
            self._viewer.reset()
        outgoing: List[OutgoingMessage] = []
        if result is not None:
            started = time.perf_counter()
            outgoing += self._product_messages(frame, result)
            timings["encode"] = time.perf_counter() - started
            size = f"{frame.image.width}x{frame.image.height} {frame.image.encoding}"
            self.last_frame = {"input": size, "products": ", ".join(result)}
        outgoing += self._camera_info_messages(frame)

        started = time.perf_counter()
        self._sender.send(outgoing)
        now = time.perf_counter()
        timings["publish"] = now - started
        timings["total"] = now - frame.received.received
        quality = None
        if result is not None and frame.computation is not None:
            quality = measure(frame.computation.pipeline, frame.raw, result)
            self.quality.limits = settings.limits
            self.quality.add(quality, settings.options.ssim_mode)
            timings["quality"] = time.perf_counter() - now
        is_late = self._diagnostics.published(timings)
        if self.is_latency_wanted():
            self._publish_latency(frame, quality, is_late)
        if now >= self._layout_due:
            self._layout_due = now + LAYOUT_PERIOD
            self.layout = check_layout(frame.raw, settings.options)

    def _product_messages(self, frame: SubmittedFrame, result: Result) -> List[OutgoingMessage]:
        """Images, numbers and JPEGs that had subscribers."""
        demand, settings = frame.demand, frame.settings
        stamp_ns, frame_id = _header(frame)
        outgoing: List[OutgoingMessage] = []
        for name, array in result.items():
            if name not in demand.products and name not in demand.compressed:
                continue
            shown = self._viewer.show(name, array, settings.display) if name in COMPRESSED_TOPICS else array
            if name in demand.products:
                sent = shown if name == "preview" else array  # intensity stays as measured
                _, cdr = messages.product_message(name, sent, stamp_ns, frame_id)
                outgoing.append(OutgoingMessage(self._topics.products[name], cdr))
            if name in demand.compressed:
                jpeg = encode_jpeg(shown, settings.jpeg_quality)
                cdr = messages.encode_compressed(stamp_ns, frame_id, "jpeg", jpeg)
                outgoing.append(OutgoingMessage(self._topics.compressed[name], cdr))
        return outgoing

    def _camera_info_messages(self, frame: SubmittedFrame) -> List[OutgoingMessage]:
        """The lens calibration, scaled to the outputs and stamped as the frame; none if it does not fit."""
        if self.camera_info is None or not frame.demand.camera_infos:
            return []
        image = frame.image
        try:
            info = messages.decode_camera_info(self.camera_info)
            if (info.height, info.width) not in ((0, 0), (image.height, image.width)):
                raise FrameError(
                    "camera_info", f"{info.width}x{info.height} of a frame of {image.width}x{image.height} pixels"
                )
        except FrameError as err:
            self._problems.refuse("camera_info", str(err))
            return []
        options = frame.settings.options
        height, width = options.output_size(frame.raw.shape)
        strides = {
            name: options.ssim_stride if name.startswith("quality/") else 1 for name in frame.demand.camera_infos
        }
        encoded = {}
        for stride in set(strides.values()):
            scale = (0.5 if height < image.height else 1.0) / stride
            scaled = messages.scale_camera_info(info, scale, (height // stride, width // stride))
            encoded[stride] = messages.encode_camera_info(scaled, *_header(frame))
        topics = self._topics.camera_infos
        return [OutgoingMessage(topics[name], encoded[stride]) for name, stride in strides.items()]

    def _publish_latency(self, frame: SubmittedFrame, quality: Optional[FrameQuality], is_late: bool) -> None:
        """Publish the times of a frame, and its quality where it was measured."""
        sensor = frame.settings.options.sensor.name
        values = {stage: f"{1000 * seconds:.3f}" for stage, seconds in frame.timings.items()}
        values["age"] = "n/a" if frame.age is None else f"{1000 * frame.age:.3f}"
        level, text = (Level.WARN, "ms; late: the next frame was due before") if is_late else (Level.OK, "ms")
        statuses = [messages.Status(level, f"{self._name}: latency", text, sensor, values)]
        if quality is not None:
            place = quality.lowest.place if quality.lowest else ""
            statuses.append(messages.Status(Level.OK, f"{self._name}: quality", place, sensor, quality.values()))
        self._topics.latency.publish(bytes(messages.encode_diagnostics(frame.image.stamp_ns, statuses)))


def _header(frame: SubmittedFrame) -> Tuple[int, str]:
    """Stamp in nanoseconds and frame_id of a frame's messages."""
    return frame.image.stamp_ns, frame.settings.frame_id or frame.image.frame_id


def encode_jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    """(h, w) grey or (h, w, 3) RGB uint8 -> the bytes of a JPEG file.

    Raises:
        RuntimeError: OpenCV cannot encode it.
    """
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.ndim == 3 else image
    is_done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not is_done:
        raise RuntimeError(f"OpenCV cannot write a JPEG of shape {image.shape}")
    return data
