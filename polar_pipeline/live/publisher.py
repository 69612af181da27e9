"""Messages of finished frames, and their publication. Imports no ROS."""

from __future__ import annotations

import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Protocol, Sequence, Set, Tuple

import cv2
import numpy as np

from polar_pipeline._util.jpeg import Encode, encode_with_opencv, make_gpu_encoder
from polar_pipeline._util.text import printable
from polar_pipeline.camera.exposure import stops_to_add
from polar_pipeline.live.diagnostics import Diagnostics, Logger
from polar_pipeline.live.frame import LiveFrame
from polar_pipeline.options.display import Viewer
from polar_pipeline.options.products import PRODUCTS, level_scale
from polar_pipeline.options.topics import (
    CAMERA_INFO_TOPICS,
    LATENCY,
    NUMBER_TOPICS,
    PRODUCT_TOPICS,
    jpeg_format,
    jpeg_topics,
)
from polar_pipeline.pipeline import Result
from polar_pipeline.quality.brightest import measure_brightest
from polar_pipeline.quality.frame_checks import CHECK_PERIOD, NO_FRAME, check_frame
from polar_pipeline.quality.statistics import FrameQuality, Level, Quality, QualityLimits, measure
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.frames import FrameError, RawFrame


class OutputTopic(Protocol):
    """A topic that the node publishes; `rclpy.publisher.Publisher` is one."""

    def publish(self, cdr: bytes) -> None:
        """Publish a serialized message."""

    def get_subscription_count(self) -> int:
        """Count the matching subscriptions."""


#: A serialized message and the topic to publish it on.
OutgoingMessage = Tuple[OutputTopic, messages.Cdr]


class JpegEncoder:
    """JPEG encoder for images of both backends: on the GPU if it computed them and nvImageCodec works, else on the CPU.

    After the first failure of nvImageCodec, which is logged, OpenCV encodes all images. One thread at a time calls it.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._gpu: Optional[Encode] = None
        self._failed = False

    def encode(self, image: np.ndarray, quality: int, on_gpu: bool) -> np.ndarray:
        """Encode a uint8 image, (h, w) gray or (h, w, 3) RGB, as JPEG; `on_gpu`: a GPU computed the image."""
        if on_gpu and not self._failed:
            try:
                if self._gpu is None:
                    self._gpu = make_gpu_encoder()
                    self._logger.info("JPEG is encoded by nvImageCodec on the GPU")
                return self._gpu(image, quality)
            except Exception as err:  # noqa: BLE001 - whatever fails in there, OpenCV works
                self._gpu, self._failed = None, True
                log = self._logger.info if isinstance(err, ModuleNotFoundError) else self._logger.warning
                log(f"JPEG is encoded by OpenCV on the CPU: {type(err).__name__}: {printable(str(err))}")
        return encode_with_opencv(image, quality)


class FramePublisher:
    """Publisher of all messages of a frame at once, in a thread of its own if frames come fast.

    The worker itself publishes a frame that came in after the previous one was out: it could do nothing else meanwhile,
    and a thread takes a tenth of a millisecond to wake up, and works with cold caches.

    The worker calls `demand` and `submit`; the executor's thread calls `statuses`; the main thread calls `close` when
    the worker has ended.

    Args:
        topics: Every topic of `OUTPUT_TOPICS` by name.
        send: Publishes messages of different topics, and waits until the middleware has them.
        diagnostics: Counts frames and their times, and what could not be published.

    Attributes:
        last_frame: Format and products of the last frame, for the diagnostics.
    """

    def __init__(
        self,
        topics: Mapping[str, OutputTopic],
        send: Callable[[Sequence[OutgoingMessage]], None],
        diagnostics: Diagnostics,
    ) -> None:
        self.last_frame: Dict[str, str] = {}
        self._topics = topics
        self._send = send
        self._diagnostics = diagnostics
        self._viewer = Viewer()
        self._jpeg = JpegEncoder(diagnostics.logger)
        self._quality = Quality(QualityLimits())  # each frame brings its own limits
        self._check = NO_FRAME
        self._check_due = 0.0
        self._exposure_ev = math.nan  # stops to add to the exposure of the last frame that was judged
        self._logged: Set[str] = set()  # causes of warnings
        self._thread = ThreadPoolExecutor(1, "polar_pipeline_publisher")
        self._previous: Optional[Any] = None  # future of the frame that the publisher's thread publishes
        self._ended = -math.inf  # when the last frame was out, by `time.perf_counter`

    def close(self) -> None:
        """Publish the frame that was submitted last, and end the thread; safe to call twice."""
        self._thread.shutdown()

    def statuses(self, hardware: str) -> List[messages.Status]:
        """Report the quality since the last call, whether the parameters fit the mosaic, and what else looks wrong."""
        name, check = self._diagnostics.name, self._check
        verdict, figures = self._quality.report()
        bad = Level.ERROR if self._quality.limits.strict else Level.WARN
        figures["exposure to add [EV]"] = "n/a" if math.isnan(self._exposure_ev) else f"{self._exposure_ev:.2f}"
        others = [row for row in check.warnings if row.cause != "layout"]
        text = "; ".join(row.text for row in others) or "nothing looks wrong"
        layout_level = bad if check.layout.fits is False else Level.OK
        return [
            messages.Status(verdict.level, f"{name}: quality", verdict.text, hardware, figures),
            messages.Status(layout_level, f"{name}: layout", check.layout.text, hardware, {}),
            messages.Status(bad if others else Level.OK, f"{name}: input", text, hardware, {}),
        ]

    # --------------------------------------------------------------------------------------------------- the worker

    def demand(self) -> FrozenSet[str]:
        """Return the topics that have subscribers now."""
        return frozenset(name for name, topic in self._topics.items() if topic.get_subscription_count())

    def submit(self, frame: LiveFrame) -> None:
        """Publish a frame after the previous one, so that the messages of a topic stay in order."""
        finished = time.perf_counter()
        if self._previous is not None:
            self._previous.result()
            self._previous = None
        if frame.received.received > self._ended:
            self._publish_or_refuse(frame, finished)
        else:
            self._previous = self._thread.submit(self._publish_or_refuse, frame, finished)

    # ------------------------------------------------------------------------- the worker, or the publisher's thread

    def _publish_or_refuse(self, frame: LiveFrame, finished: float) -> None:
        """Publish a frame that was finished at this time of `time.perf_counter`; an error costs this frame only."""
        frame.timings["handover"] = time.perf_counter() - finished
        try:
            self._publish(frame)
        except Exception as err:  # noqa: BLE001
            self._diagnostics.refuse_error(err)
        self._ended = time.perf_counter()

    def _publish(self, frame: LiveFrame) -> None:
        timings, settings, result = frame.timings, frame.settings, frame.result
        if frame.is_restart:
            self._quality.restart()
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
        self._send(outgoing)
        now = time.perf_counter()
        timings["publish"] = now - started
        timings["total"] = now - frame.received.received
        quality = None
        if result is not None and frame.pipeline is not None:
            quality = measure(frame.pipeline, frame.raw, result)
            self._quality.limits = settings.limits
            self._quality.add(quality, settings.options.ssim_mode)
            timings["quality"] = time.perf_counter() - now
        is_late = self._diagnostics.published(timings)
        if NUMBER_TOPICS["exposure_ev"] in frame.demand or now >= self._check_due:
            self._exposure_ev = self._judge_exposure(frame)
        self._publish_numbers(frame, quality)
        if LATENCY in frame.demand:
            self._publish_latency(frame, quality, is_late)
        if now >= self._check_due:
            self._check_due = now + CHECK_PERIOD
            self._check = check_frame(frame.raw, settings.options, frame.image.warnings)
            for row in self._check.warnings:
                if row.cause not in self._logged:
                    self._diagnostics.logger.warning(f"{row.cause}: {row.text}")
                self._logged.add(row.cause)

    def _product_messages(self, frame: LiveFrame, result: Result) -> List[OutgoingMessage]:
        """Encode the images, numbers and JPEGs that had subscribers."""
        demand, settings = frame.demand, frame.settings
        stamp_ns, frame_id = _header(frame)
        outgoing: List[OutgoingMessage] = []
        for name, array in result.items():
            image, row = array, PRODUCTS[name]
            as_is, as_jpeg = (
                [topic for topic in names if topic in demand]
                for names in (PRODUCT_TOPICS[name].names, jpeg_topics(name))
            )
            has_gain = row.colors == "hsv"
            if has_gain or as_jpeg:
                image = _as_bytes(name, array)
                if has_gain or row.is_light:
                    image = self._viewer.show(name, image, settings.display)
            if as_is:
                sent = image if has_gain else array  # light stays as measured
                _, cdr = messages.product_message(name, sent, stamp_ns, frame_id)
                outgoing += [(self._topics[topic], cdr) for topic in as_is]
            if as_jpeg:
                on_gpu = frame.pipeline is not None and frame.pipeline.device.startswith("cuda")
                jpeg = self._jpeg.encode(image, settings.jpeg_quality, on_gpu)
                cdr = messages.encode_compressed(stamp_ns, frame_id, jpeg_format(name, image.ndim == 3), jpeg)
                outgoing += [(self._topics[topic], cdr) for topic in as_jpeg]
        return outgoing

    def _camera_info_messages(self, frame: LiveFrame) -> List[OutgoingMessage]:
        """Encode the lens calibration, scaled to the outputs and stamped as the frame; nothing if it does not fit."""
        names = tuple(topic for topic in CAMERA_INFO_TOPICS if topic in frame.demand)
        if not names:
            return []
        options, raw = frame.settings.options, frame.raw
        try:
            encoded = messages.encode_camera_infos(frame.camera_info, options, raw, names, *_header(frame))
        except FrameError as err:
            self._diagnostics.refuse("camera_info", str(err))
            return []
        return [(self._topics[name], cdr) for name, cdr in encoded.items()]

    def _judge_exposure(self, frame: LiveFrame) -> float:
        """Return by how many stops a frame should have been exposed more; NaN if it has no raw mosaic."""
        camera = frame.settings.camera
        if isinstance(frame.raw, RawFrame) and frame.raw.light is not None:
            return math.nan
        try:
            brightest = measure_brightest(frame.raw, camera.exposure_percentile, camera.exposure_roi)
        except FrameError as err:
            self._diagnostics.refuse(err.cause, str(err))
            return math.nan
        return stops_to_add(brightest, camera)

    def _publish_numbers(self, frame: LiveFrame, quality: Optional[FrameQuality]) -> None:
        """Publish those numbers of a frame that had subscribers; saturation only if a product was computed."""
        values = {"total_ms": 1000 * frame.timings["total"], "exposure_ev": self._exposure_ev}
        values.update({"saturated": quality.saturated} if quality else {})
        for name, value in values.items():
            if NUMBER_TOPICS[name] in frame.demand:
                self._topics[NUMBER_TOPICS[name]].publish(bytes(messages.encode_float32(value)))

    def _publish_latency(self, frame: LiveFrame, quality: Optional[FrameQuality], is_late: bool) -> None:
        """Publish the times of a frame, and its quality if it was measured."""
        sensor = frame.settings.options.sensor.name
        values = {stage: f"{1000 * seconds:.3f}" for stage, seconds in frame.timings.items()}
        values["age"] = "n/a" if frame.age is None else f"{1000 * frame.age:.3f}"
        level, text = (Level.WARN, "ms; late: the next frame was due before") if is_late else (Level.OK, "ms")
        statuses = [messages.Status(level, f"{self._diagnostics.name}: latency", text, sensor, values)]
        if quality is not None:
            place = quality.lowest.place if quality.lowest else ""
            figures = {**quality.values(), **(frame.received.camera.exposure_values() if frame.received.camera else {})}
            exposures = frame.raw.exposures
            if exposures is not None:
                figures["moved [%]"] = f"{100 * float(exposures.moved.mean()):.3f}"
                figures["long exposure [%]"] = f"{100 * float((exposures.index == 0).mean()):.3f}"
            statuses.append(messages.Status(Level.OK, f"{self._diagnostics.name}: quality", place, sensor, figures))
        self._topics[LATENCY].publish(bytes(messages.encode_diagnostics(frame.image.stamp_ns, statuses)))


def _header(frame: LiveFrame) -> Tuple[int, str]:
    """Return the stamp in nanoseconds and the frame_id, without control characters, of a frame's messages."""
    return frame.image.stamp_ns, frame.settings.frame_id or printable(frame.image.frame_id, messages.MAX_NAME)


def _as_bytes(name: str, image: np.ndarray) -> np.ndarray:
    """Convert a product to the display encoding: AoLP wraps at pi, all others span [0, 1]; NaN becomes 0.

    The image is float32 as computed, or of levels.
    """
    if image.dtype == np.uint8:
        return image
    if image.dtype == np.uint16:
        image = image / np.float32(level_scale(name, "uint16"))
    scale = level_scale(name, "uint8")
    if PRODUCTS[name].wraps:
        # Added to 2^23, a float32 holds the rounded number in its lowest bits: they are the value modulo 256.
        bits = cv2.addWeighted(image, scale, image, 0, 2.0**23).view(np.uint8).reshape(*image.shape, 4)
        return cv2.extractChannel(bits, 0 if sys.byteorder == "little" else 3)
    return cv2.convertScaleAbs(np.fmax(image, np.float32(0)), alpha=scale)
