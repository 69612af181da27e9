"""The worker of the live node: received images in, computed products out. Imports no ROS."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Callable, Deque, Dict, FrozenSet, List, Optional, Tuple, TypeVar

import numpy as np

from polar_pipeline._util.text import quoted
from polar_pipeline.backends.backend import DeviceError
from polar_pipeline.backends.compared_image import check_reference
from polar_pipeline.camera.facts import CameraFacts
from polar_pipeline.exposures import merge
from polar_pipeline.geometry import LensCalibration
from polar_pipeline.live.diagnostics import Diagnostics
from polar_pipeline.live.frame import LiveFrame, ReceivedImage
from polar_pipeline.live.parameters import Settings
from polar_pipeline.live.pipelines import Fallback, PipelineSwitch, message_allocator
from polar_pipeline.live.publisher import FramePublisher
from polar_pipeline.options import FROM_FRAMES
from polar_pipeline.options.products import PRODUCTS, SSIM_PRODUCTS, full_level
from polar_pipeline.options.topics import NUMBER_TOPICS, PRODUCT_OF_TOPIC
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import CameraInfo
from polar_pipeline.sensor.frames import Frame, FrameError, RawFrame

T = TypeVar("T")

#: Seconds between two looks at the subscribers while no frame has come in.
IDLE_PERIOD = 0.2
#: Change of an automatic gain in dB that the settings follow.
GAIN_STEP = 0.1
#: Number of frames whose products are in memory at once: computed, being published, and kept until the next one.
FRAMES_AT_ONCE = 3
#: Message buffers for each of these frames: messages in queues, and the newest one, which is kept for snapshots.
MESSAGES_A_FRAME = 2
#: Products that quality is judged by.
JUDGED_PRODUCTS = ("dolp", "ssim")
#: The product computed for `quality/saturated` if no other is: the fastest one; every product counts saturated pixels.
COUNTING_PRODUCT = "intensity"
#: Offset of the first byte after the stamp of a lens calibration; the stamp differs from message to message.
_STAMP_END = 12
#: Lens calibrations that are kept for frames which are still in a queue: of the node, or of the middleware.
MAX_INFOS = 32
#: Seconds that the first frame waits for a lens calibration that is published, as it may state the region.
INFO_TIMEOUT = 1.0


class FrameProcessor:
    """Worker thread that computes the products of each frame that have subscribers.

    The executor's thread calls `put`, `put_camera_info` and `message_memory`, and sets `reference` and
    `expects_camera_info`. The main thread calls `warm_up` before `start`, and `close` at the end. The worker runs
    `_work`, alone uses the pipelines, and writes `device` and `failure`, which any thread may read.

    Args:
        settings: Returns the requested settings; read once per frame, so that a frame has one set of settings.
        fallback: Chooses the settings after a failure of the GPU.
        diagnostics: Counts frames, and messages that could not be used.
        publisher: Takes finished frames; closed by `close`.
        background: Executor with one thread, which compiles pipelines ahead (see `PipelineSwitch`).

    Attributes:
        reference: Newest message of topic `reference`; None before the first.
        camera_info: Newest message of topic `camera_info`; None before the first.
        expects_camera_info: Whether the topic `camera_info` has a publisher, before the first frame.
        device: Device that computed the last frame; "" if unknown.
        failure: Why the node has to end; "" while it works.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        fallback: Fallback,
        diagnostics: Diagnostics,
        publisher: FramePublisher,
        background: Executor,
    ) -> None:
        self.reference: Optional[bytes] = None
        self.camera_info: Optional[bytes] = None
        self.expects_camera_info = False
        self.device = ""
        self.failure = ""
        self._settings = settings
        self._fallback = fallback
        self._diagnostics = diagnostics
        self._publisher = publisher
        self._pipelines = PipelineSwitch(background)
        self._waiting: Deque[ReceivedImage] = deque(maxlen=settings().queue_size)
        self._is_closed = False
        self._change = threading.Condition()  # of `_waiting` and `_is_closed`
        self._thread = threading.Thread(target=self._work, name="polar_pipeline_worker")
        self._in_progress: Deque[LiveFrame] = deque()
        self._decoded_reference: Optional[Tuple[bytes, np.ndarray]] = None
        self._camera_infos: Dict[int, bytes] = {}  # the last `MAX_INFOS` messages by their stamps
        # the lens calibration in use without its stamp, and whether it was read as a lens too
        self._info_content: Tuple[bytes, bool] = (b"", False)
        self._info: Optional[CameraInfo] = None  # the last lens calibration in use that could be decoded
        self._lens: Optional[LensCalibration] = None
        # frames of one camera, or of one region, have the same settings
        self._of_camera = lru_cache(maxsize=1)(Settings.of_camera)
        self._of_region = lru_cache(maxsize=1)(Settings.of_region)
        self._gain_db: Optional[float] = None  # of the settings in use
        self._last: Tuple[Optional[int], Optional[bytes]] = None, None  # stamp and lens calibration of the last frame
        self._memory: Callable[[], Optional[np.ndarray]] = lambda: None

    # ---------------------------------------------------------------------------------------------- the main thread

    def warm_up(self) -> None:
        """Load and compile every product but SSIM's; DeviceError if the GPU fails, and `on_device_error` is `stop`."""
        settings = self._settings()
        height, width = settings.options.largest_frame()
        small, large = np.zeros((min(64, height), min(64, width)), np.uint8), np.full((height, width), 99, np.uint8)
        products = settings.computable(name for name in PRODUCTS if name not in SSIM_PRODUCTS)
        first = small if settings.options.geometry is None else large  # a geometry fits frames of one size
        messages.decode_image(messages.encode_image(0, "", "mono8", small))
        try:
            with suppress(FrameError):  # of the geometry, which may fit the camera's frames
                pipeline, _ = self._pipelines.get(settings, products, first)
                self.device = pipeline.device
                for name, array in pipeline(first).items():
                    messages.product_message(name, array, 0, "")
                pipeline.prepare(large)
        except DeviceError as err:
            if settings.on_device_error == "stop":
                raise
            self._on_device_error(str(err))

    def start(self) -> None:
        """Start the worker."""
        self._thread.start()

    def close(self) -> None:
        """Publish the frames in progress, drop those that wait, end the threads and release all memory.

        Safe to call twice, and before `start`.
        """
        with self._change:
            self._is_closed = True
            self._waiting.clear()
            self._change.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._publisher.close()
        self._pipelines.clear()
        self.reference = self._decoded_reference = None
        self._memory = lambda: None
        self._of_camera.cache_clear()
        self._of_region.cache_clear()

    # ----------------------------------------------------------------------------------------- the executor's thread

    def message_memory(self) -> Optional[np.ndarray]:
        """Return memory for the next message, from which its frame need not be copied; None if any memory does."""
        return self._memory()

    def put_camera_info(self, cdr: bytes) -> None:
        """Take a lens calibration: that of the frame with its stamp, and of frames that come with none."""
        self.camera_info = self._camera_infos[messages.peek_stamp(cdr) or 0] = cdr
        if len(self._camera_infos) > MAX_INFOS:
            del self._camera_infos[next(iter(self._camera_infos))]

    def camera_info_of(self, image: messages.Cdr) -> Optional[bytes]:
        """Return the lens calibration with the stamp of a serialized image, or else the newest; for any thread."""
        return self._camera_infos.get(messages.peek_stamp(image) or 0, self.camera_info)

    def put(self, image: ReceivedImage) -> None:
        """Queue an image; if the queue is full, drop the oldest and count that."""
        with self._change:
            if self._is_closed:
                return
            is_full = len(self._waiting) == self._waiting.maxlen
            self._waiting.append(image)
            self._change.notify()
        if is_full:
            self._diagnostics.dropped("overload")

    # --------------------------------------------------------------------------------------------------- the worker

    def _work(self) -> None:
        """Submit frames as they come, and hand over their results in order; while one is published, compute the next.

        On a GPU the next frame, if there is one, is submitted before the result of the one before is taken.
        """
        self._prepare_for_subscribers()
        frames = self._in_progress
        while True:
            self._pipelines.release_replaced({frame.pipeline for frame in frames if frame.pipeline})
            self._has_input(0 if frames else None)
            with self._change:
                image = self._waiting.popleft() if self._waiting else None
            if image is None and not frames:
                return
            if image is not None and self._attempt(self._submit, image):
                continue
            if frames:
                self._attempt(self._finish, frames.popleft())

    def _has_input(self, timeout: Optional[float]) -> bool:
        """Wait for an image or the end, up to `timeout` seconds if that is not None; return whether one came."""
        with self._change:
            return self._change.wait_for(lambda: self._is_closed or bool(self._waiting), timeout)

    def _prepare_for_subscribers(self) -> None:
        """Warm up for every new set of subscribers until the first frame comes in."""
        prepared: Tuple[str, ...] = ()
        while not self._has_input(IDLE_PERIOD):
            try:
                settings = self._settings_in_use(None, "mono8", self.camera_info)
            except FrameError:  # frames that come in will report it
                continue
            needed = needed_products(self._publisher.demand(), settings)
            products = settings.without_reference(settings.computable(needed))
            if not products or products == prepared:
                continue
            try:
                if not self._compute_blank_frames(settings, products):
                    continue
            except DeviceError as err:
                self._on_device_error(str(err))
            except Exception:  # noqa: BLE001, S110 - frames that come in will report it
                pass
            prepared = products

    def _compute_blank_frames(self, settings: Settings, products: Tuple[str, ...]) -> bool:
        """Compute blank frames, so that the first frames need not wait for memory; return False while compiling."""
        cdr = messages.encode_image(0, "camera", "mono8", np.full(settings.options.largest_frame(), 99, np.uint8))
        image = messages.decode_image(cdr)
        pipeline, _ = self._pipelines.get(settings, products, messages.to_raw(image))
        if pipeline.options.products != products:
            return False
        memory = message_allocator(pipeline, cdr, image.data)
        frames: List[object] = []  # memory of all frames at once
        for _ in range(FRAMES_AT_ONCE):
            if not self._has_input(0):
                frames += [memory() for _ in range(MESSAGES_A_FRAME)]
                frames.append(pipeline(messages.to_raw(image)))
        pipeline.reset()
        self._pipelines.release_replaced()
        self._memory = memory
        return True

    def _attempt(self, step: Callable[[T], bool], item: T) -> bool:
        """Run a step of a frame; an error costs this frame, an error of the GPU also the frames in progress."""
        try:
            return step(item)
        except FrameError as err:
            self._diagnostics.refuse(err.cause, str(err))
        except DeviceError as err:
            self._on_device_error(str(err))
        except Exception as err:  # noqa: BLE001
            self._diagnostics.refuse_error(err)
        return False

    def _on_device_error(self, reason: str) -> None:
        """Give up the pipelines and the frames in progress; the next frame starts with a new backend."""
        self._pipelines.clear()
        self._fallback.failed(reason)
        for _ in range(1 + len(self._in_progress)):
            self._diagnostics.refuse("device", reason)
        self._in_progress.clear()
        if self._settings().on_device_error == "stop":
            self._diagnostics.logger.fatal(f"ends: {reason}")
            self.failure = reason

    def _settings_in_use(self, camera: Optional[CameraFacts], encoding: str, info: Optional[bytes] = None) -> Settings:
        """Return the settings for a frame: with the state of the camera, fallback to the CPU and lens calibration."""
        settings = self._settings()
        rectifies = settings.options.rectify == FROM_FRAMES
        self._read_camera_info(info, rectifies)
        try:
            if camera is None:
                settings = self._of_region(settings, self._info, encoding)
            else:
                settings = self._of_camera(settings, self._steady(camera))
        except ValueError as err:
            raise FrameError("camera" if camera else "region", str(err)) from err
        settings = self._fallback.settings(settings)
        return settings.rectified_by(self._lens) if rectifies and self._lens is not None else settings

    def _read_camera_info(self, cdr: Optional[bytes], needs_lens: bool) -> None:
        """Decode a lens calibration, unless only its stamp is new."""
        if cdr is None:
            return
        content = bytes(cdr[_STAMP_END:]), needs_lens
        if content == self._info_content:
            return
        self._info_content, self._lens = content, None
        try:
            self._info = messages.decode_camera_info(cdr)
            self._lens = messages.lens_of(self._info) if needs_lens else None
        except FrameError as err:
            self._diagnostics.refuse("camera_info", str(err))

    def _await_camera_info(self) -> None:
        """Wait for the lens calibration of the first frame, if there is a publisher."""
        end = time.monotonic() + INFO_TIMEOUT
        while self.expects_camera_info and self.camera_info is None and not self._is_closed:
            if time.monotonic() > end:
                self._diagnostics.refuse("camera_info", "no message came from the publisher: no region is known")
                break
            time.sleep(0.005)
        self.expects_camera_info = False

    def _steady(self, camera: CameraFacts) -> CameraFacts:
        """Return the state of a camera without exposure and temperature; the gain follows in steps of `GAIN_STEP`."""
        gain = camera.gain_db
        if gain is None or self._gain_db is None or abs(gain - self._gain_db) >= GAIN_STEP:
            self._gain_db = gain
        return replace(camera, exposure_us=0.0, temperature=None, gain_db=self._gain_db)

    def _submit(self, received: ReceivedImage) -> bool:
        """Decode a frame, and start on its products if any of its outputs has a subscriber.

        Returns:
            Whether another frame can be submitted before this one is finished.
        """
        self._await_camera_info()
        started = time.perf_counter()
        image = messages.decode_image(received.cdr)
        camera_info = self.camera_info_of(received.cdr)
        settings = self._settings_in_use(received.camera, image.encoding, camera_info)
        before = None if received.before is None else messages.decode_image(received.before.cdr)
        if before is not None:
            image = replace(image, stamp_ns=(before.stamp_ns + image.stamp_ns) // 2)
        is_restart = self._check_stamp(image, camera_info)
        age = self._diagnostics.record_age((received.time_ns - image.stamp_ns) / 1e9) if received.time_ns else None
        demand = self._publisher.demand()
        needed = needed_products(demand, settings)
        products = settings.computable(needed)
        if products != needed:
            left_out = ", ".join(name for name in needed if name not in products)
            self._diagnostics.refuse("product", f"no {left_out} with output.scale, rotate, roi or rectify")
        if not products and demand <= PRODUCT_OF_TOPIC.keys():
            self._diagnostics.count_unwanted()
            return False
        raw = messages.to_raw(image, settings.options, None if received.camera else self._info)
        if before is not None:
            raw = _merged(received, before, raw, settings)
        products, reference = self._with_reference(products, settings, raw.shape)
        pipeline = None
        if products:  # the former settings are in use while a change is being compiled
            pipeline, settings = self._pipelines.get(settings, products, raw)
        timings = {"queue": started - received.received, "decode": time.perf_counter() - started}
        frame = LiveFrame(received, image, raw, settings, demand, timings, age, is_restart, camera_info, pipeline)
        if pipeline is not None:
            frame.pending = pipeline.submit(raw, reference=reference)
            self._memory = message_allocator(pipeline, received.cdr, image.data)
        self._in_progress.append(frame)
        return pipeline is not None and len(self._in_progress) < pipeline.depth

    def _check_stamp(self, image: messages.ImageMessage, camera_info: Optional[bytes]) -> bool:
        """Return whether a frame's stamp is below that of the last, whose lens calibration may have come too late."""
        (last, info), self._last = self._last, (image.stamp_ns, camera_info)
        own = None if last is None or last == image.stamp_ns else self._camera_infos.get(last)
        if info is not None and own is not None and own[_STAMP_END:] != info[_STAMP_END:]:
            self._diagnostics.refuse("camera_info", "it came after the frame of its stamp, and differs from the last")
        if last is None:
            self._diagnostics.logger.info(f"first frame: {image.width}x{image.height} {quoted(image.encoding)}")
        is_restart = last is not None and image.stamp_ns < last  # a bag that loops, a camera that starts again
        if is_restart:
            self._pipelines.reset()
            self._diagnostics.restarted()
        return is_restart

    def _finish(self, frame: LiveFrame) -> bool:
        """Take the products of a frame and hand them over."""
        if frame.pipeline is not None and frame.pending is not None:
            frame.result = frame.pipeline.result(frame.pending)
            frame.pending = None  # it keeps the memory of a GPU in use
            if frame.pipeline.options.backend != "cpu":
                self._fallback.worked()
            self.device = frame.pipeline.device
            frame.timings.update(frame.result.timings)
        self._publisher.submit(frame)
        return True

    def _with_reference(
        self, products: Tuple[str, ...], settings: Settings, shape: Tuple[int, int]
    ) -> Tuple[Tuple[str, ...], Optional[np.ndarray]]:
        """Return the products that can be computed, and the reference image, (h, w) float32, if SSIM needs one.

        If it is missing or does not fit, that is reported, and the products of SSIM are left out.
        """
        others = settings.without_reference(products)
        if products == others:
            return products, None
        cdr, size, decoded = self.reference, settings.options.output_size(shape), self._decoded_reference
        try:
            if cdr is None:
                needed = f"ssim_mode 'reference' needs an image of {size[1]}x{size[0]} on 'reference'"
                raise FrameError("reference", needed)
            if decoded is None or decoded[0] is not cdr or decoded[1].shape != size:
                decoded = self._decoded_reference = (cdr, decode_reference(cdr, size))
        except FrameError as err:
            self._diagnostics.refuse(err.cause, str(err))
            return others, None
        return products, decoded[1]


def _merged(received: ReceivedImage, before: messages.ImageMessage, raw: Frame, settings: Settings) -> RawFrame:
    """Merge the two exposures of a received pair."""
    states = [row.camera for row in (received.before, received) if row is not None and row.camera is not None]
    frames = [messages.to_raw(before, settings.options).unpack(), raw.unpack()]
    times, gains = [row.exposure_us for row in states], [row.gain_db or 0.0 for row in states]
    return merge(frames, times, gains, 0.0, settings.options)


def needed_products(demand: FrozenSet[str], settings: Settings) -> Tuple[str, ...]:
    """List the products to compute for the topics in `demand`, in the order of `PRODUCTS`."""
    needed = {PRODUCT_OF_TOPIC[topic] for topic in demand if topic in PRODUCT_OF_TOPIC}
    needed.update(JUDGED_PRODUCTS if settings.always else ())
    if NUMBER_TOPICS["saturated"] in demand and not settings.without_reference(tuple(needed)):
        needed.add(COUNTING_PRODUCT)
    return tuple(name for name in PRODUCTS if name in needed)


def decode_reference(cdr: bytes, size: Tuple[int, int]) -> np.ndarray:
    """Decode a serialized mono8, 16UC1 or 32FC1 image of `size` = (height, width) to float32, full scale 1."""
    try:
        image = messages.decode_image(cdr)
        if image.encoding not in ("mono8", "16UC1", "32FC1"):
            raise FrameError("encoding", f"it must be mono8, 16UC1 or 32FC1, got {quoted(image.encoding)}")
        if (image.height, image.width) != size:  # pixels of another size may take long, or too much memory
            raise FrameError("size", f"it must be {size[1]}x{size[0]}, got {image.width}x{image.height}")
        pixels = messages.to_array(image)
    except FrameError as err:
        raise FrameError("reference", f"the reference cannot be used: {err}") from err
    reference = pixels.astype(np.float32) / np.float32(full_level(str(pixels.dtype)))
    check_reference(reference)
    return reference
