"""The live node: raw frames in, polarization topics out, as serialized messages.

The executor's thread only takes messages and answers services. One worker thread computes: it takes the next frame and
asks who listens. Another one makes every message of the frame and then publishes them in one go, while the worker is at
the next frame.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
import threading
import time
import traceback
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Deque, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

import cv2
import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import ParameterException
from rclpy.logging import get_logger
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from rclpy.publisher import Publisher
from rclpy.qos import QoSCompatibility, QoSPolicyKind, QoSPresetProfiles, qos_check_compatible
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Float32
from std_srvs.srv import Trigger

from polar_pipeline import messages
from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline._util.text import printable, printable_lines, quoted
from polar_pipeline.cuda.driver import DeviceError
from polar_pipeline.display import Viewer
from polar_pipeline.pipeline import Pending, Pipeline, Raw, Result, check_reference
from polar_pipeline.products import PRODUCTS
from polar_pipeline.quality.layout import LayoutCheck, check_layout
from polar_pipeline.quality.statistics import Level, Quality, measure
from polar_pipeline.ros.deferred import create_deferred_service
from polar_pipeline.ros.diagnostics import MAX_REASON, Diagnostics
from polar_pipeline.ros.exits import FAILED, WRONG_USAGE
from polar_pipeline.ros.fallback import Fallback
from polar_pipeline.ros.losses import LossCounter
from polar_pipeline.ros.mailbox import Frame, Mailbox
from polar_pipeline.ros.outbox import Letter, Outbox
from polar_pipeline.ros.parameters import PARAMETERS, SSIM_PRODUCTS, Parameter, Settings, make_settings
from polar_pipeline.ros.pipelines import PipelineCache, Served
from polar_pipeline.ros.preset import is_known, judge_unknown, params_files
from polar_pipeline.ros.rig import Camera, read_rig
from polar_pipeline.ros.snapshot import Snapshot, write_snapshot
from polar_pipeline.sensor.frames import FULL_FRAME, FrameError, RawFrame
from polar_pipeline.sensor.frames import Frame as RawMosaic

try:
    from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import PublisherEventCallbacks, SubscriptionEventCallbacks

try:
    from rclpy.experimental import EventsExecutor  # is told what is ready, does not look: half a millisecond a frame
except ImportError:  # before Jazzy
    from rclpy.executors import SingleThreadedExecutor as EventsExecutor

T = TypeVar("T")

#: Seconds between two looks at the stop flag: Python runs a signal's handler only between two waits.
STOP_PERIOD = 0.1
#: Topics of `CameraInfo`: beside `intensity`, where `camera_info` is the input's, and in each folder of images, where
#: viewers look for it.
INFO_TOPICS = (
    "camera_info_out",
    *sorted({f"{row.topic.rsplit('/', 1)[0]}/camera_info" for row in PRODUCTS.values() if "/" in row.topic}),
)
#: Products published as JPEG too.
COMPRESSED = ("intensity", "preview")
#: Products that quality is judged by.
WATCHED = ("dolp", "ssim")
#: Seconds between two looks at whether the layout fits: parameters seldom change, and a look takes 3 ms.
LAYOUT_PERIOD = 1.0
_QOS_OVERRIDES = QoSOverridingOptions(
    (QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY, QoSPolicyKind.DURABILITY)
)


#: Characters of a path in an answer.
MAX_PATH = 4096
#: What rclpy raises for ROS arguments that no node takes: classes, which are not public, and texts of `RuntimeError`.
_ARGUMENT_ERRORS = ("RCLInvalidROSArgsError", "UnknownROSArgsError")
_ARGUMENT_TEXTS = ("failed to initialize rcl:", "Unexpected QoS override")
#: Seconds between two snapshots, at least.
SNAPSHOT_PERIOD = 1.0


class _Job(NamedTuple):
    """A frame under way.

    Attributes:
        frame: As it came in.
        image: Decoded.
        raw: Its pixels.
        served: What processes it; None if only calibrations are asked for.
        settings: What its messages go by.
        pending: What the pipeline knows it by.
        timings: Seconds per stage so far.
        age: Seconds since its stamp when it came in, None if the clocks differ.
        is_restart: Whether time jumped back since the frame before.
        wanted: Products that somebody listens to.
        compress: Products that somebody wants as JPEG.
        infos: Topics of calibrations that somebody listens to.
    """

    frame: Frame
    image: messages.ImageMessage
    raw: RawMosaic
    served: Optional[Served]
    settings: Settings
    pending: Optional[Pending]
    timings: Dict[str, float]
    age: Optional[float]
    is_restart: bool
    wanted: FrozenSet[str]
    compress: FrozenSet[str]
    infos: Tuple[str, ...]

    @property
    def depth(self) -> int:
        """Frames that can be under way where this one is."""
        return self.served.pipeline.depth if self.served else 1


class PolarNode(Node):  # type: ignore[misc]
    """The node `polar_pipeline`: topics, parameters and diagnostics as in `docs/ros.md`.

    Args:
        argv: The command line of this process, `sys.argv` by default: it names the files that parameters come from.
        arguments: Passed to `rclpy.node.Node`, such as `parameter_overrides` or `context`.

    Attributes:
        failure: Why the node has to end; "" while it works.

    Raises:
        ValueError: The parameters do not fit each other, or one is unknown.
        RuntimeError: The backend cannot work on this machine.
    """

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        super().__init__("polar_pipeline", **arguments)
        self._check_names([*(sys.argv if argv is None else argv), *(arguments.get("cli_args") or ())])
        for row in PARAMETERS.values():
            self.declare_parameter(row.name, row.default, _descriptor(row))
        self.failure = ""
        self._fallback = Fallback()
        self._settings = self._validate({})
        self._candidate = self._settings
        self._name = self.get_fully_qualified_name().lstrip("/")
        self._diagnostics = Diagnostics(self._name)
        self._pipelines = PipelineCache()
        self._device = ""
        self._warm_up()
        self._frames: Mailbox[Frame] = Mailbox(self._settings.queue_size)
        self._quality = Quality(self._settings.limits)
        self._viewer = Viewer()
        self._layout = LayoutCheck(None, "no frame was looked at")
        self._layout_due = 0.0
        self._is_first = True
        self._last_frame: Dict[str, str] = {}
        self._newest: Optional[Frame] = None
        self._statuses: List[messages.Status] = []
        self._camera_info: Optional[bytes] = None
        self._reference: Optional[bytes] = None
        self._decoded_reference: Optional[Tuple[bytes, np.ndarray]] = None
        self._last_stamp = 0

        self._products = {
            name: self._publisher(Float32 if row.channels == (0, 0) else Image, row.topic)
            for name, row in PRODUCTS.items()
        }
        self._compressed = {
            name: self._publisher(CompressedImage, f"{PRODUCTS[name].topic}/compressed") for name in COMPRESSED
        }
        self._infos = {topic: self._publisher(CameraInfo, topic) for topic in INFO_TOPICS}
        self._latency = self._publisher(DiagnosticArray, "latency")
        self._report = self._publisher(DiagnosticArray, "/diagnostics")

        self._snapshots = ThreadPoolExecutor(1, "polar_pipeline_snapshot")
        self._snapshot: Optional[Any] = None  # a future
        self._snapshot_due = 0.0
        self._outbox = Outbox()
        self._deliveries = ThreadPoolExecutor(1, "polar_pipeline_publisher")
        self._delivery = self._deliveries.submit(lambda: None)  # of the frame before
        self._worker = threading.Thread(target=self._work, name="polar_pipeline_worker")
        self._input = self._subscription(Image, "image_raw", self._on_frame)
        self._losses = LossCounter(self._input)
        self._subscription(CameraInfo, "camera_info", self._on_camera_info)
        self._subscription(Image, "reference", self._on_reference)
        create_deferred_service(self, Trigger, "~/snapshot", self._on_snapshot)
        # a steady clock: a simulated one may stand still or jump
        self.create_timer(1.0, self._on_report, clock=Clock(clock_type=ClockType.STEADY_TIME))
        self.add_on_set_parameters_callback(self._on_set_parameters)
        if hasattr(self, "add_post_set_parameters_callback"):  # Iron and later
            self.add_post_set_parameters_callback(self._apply_parameters)
        options = self._fallback.settings(self._settings).options
        self.get_logger().info(
            f"waits for frames on {self._input.topic_name}; sensor {printable(options.sensor.name)}, "
            f"backend {options.backend}, device {printable(self._device or 'unknown')}"
        )
        self._worker.start()  # last, so that a node that cannot start leaves no thread

    def _check_names(self, argv: Sequence[str]) -> None:
        """Refuse parameters given to this node that it has not; those meant for other nodes are only logged.

        Raises:
            ValueError: With their names.
        """
        # rclpy has no public way to see what is given but not declared, other than to declare all of it
        given = [name for name in getattr(self, "_parameter_overrides", {}) if not is_known(name)]
        if not given:
            return
        wrong, foreign = judge_unknown(given, self.get_fully_qualified_name(), params_files(argv))
        if wrong:
            raise ValueError(f"no parameter of this package is called {'; '.join(wrong)}")
        names = printable(", ".join(foreign), MAX_REASON)
        self.get_logger().warning(f"parameters of every node (/**) that this one has not: {names}")

    def close(self) -> None:
        """Finish the frame and the snapshot at work, end the worker and release the pipelines; safe to call twice."""
        self._frames.close()
        self._worker.join()
        self._deliveries.shutdown()
        self._outbox.close()
        self._snapshots.shutdown()
        self._pipelines.close()
        self._losses.close()

    # ------------------------------------------------------------------------------------- the executor's thread

    def create_subscription(self, msg_type: Any, topic: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """As rclpy's, for rclpy's own subscriptions too (simulated time), with a callback that raises nothing."""
        return super().create_subscription(msg_type, topic, self._guarded(callback), *arguments, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """As rclpy's, for rclpy's own services too (parameters), with a callback that raises nothing."""
        return super().create_service(srv_type, srv_name, self._guarded(callback), *arguments, **options)

    def create_timer(self, timer_period_sec: float, callback: Any, *arguments: Any, **options: Any) -> Any:
        """As rclpy's, with a callback that raises nothing."""
        return super().create_timer(timer_period_sec, self._guarded(callback), *arguments, **options)

    def _guarded(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """A callback for the executor: what it raises is counted and logged, and a service answers all the same.

        rclpy would pass an exception on to the main loop, and leave undone what else was ready.
        """

        @functools.wraps(callback)  # rclpy looks at the signature
        def guarded(*arguments: Any) -> Any:
            try:
                return callback(*arguments)
            except Exception as err:  # noqa: BLE001
                self.refuse_error(err)
                return arguments[-1] if arguments else None  # a service's response as it is

        return guarded

    def _publisher(self, kind: Any, topic: str) -> Publisher:
        qos = copy.copy(QoSPresetProfiles.SYSTEM_DEFAULT.value)  # an override is written into it
        events = PublisherEventCallbacks(use_default_callbacks=False)  # see `LossCounter`
        return self.create_publisher(kind, topic, qos, event_callbacks=events, qos_overriding_options=_QOS_OVERRIDES)

    def _subscription(self, kind: Any, topic: str, callback: Any) -> Any:
        qos = copy.copy(QoSPresetProfiles.SENSOR_DATA.value)
        events = SubscriptionEventCallbacks(use_default_callbacks=False)  # see `LossCounter`
        return self.create_subscription(
            kind, topic, callback, qos, raw=True, event_callbacks=events, qos_overriding_options=_QOS_OVERRIDES
        )

    def _on_frame(self, cdr: bytes) -> None:
        self._diagnostics.received(messages.peek_stamp(cdr))
        self._newest = Frame(cdr, time.perf_counter(), self.get_clock().now().nanoseconds)
        if self._frames.put(self._newest):
            self._diagnostics.dropped("overload")

    def _on_camera_info(self, cdr: bytes) -> None:
        self._camera_info = cdr

    def _on_reference(self, cdr: bytes) -> None:
        self._reference = cdr

    def _on_snapshot(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        """Have the newest frame written for a bug report, in a thread beside the others; a response, or its future."""
        frame, now = self._newest, time.monotonic()
        if frame is None:
            response.message = f"no frame came in on {self._input.topic_name} yet"
        elif self._snapshot is not None and not self._snapshot.done():
            response.message = "another snapshot is being written"
        elif now < self._snapshot_due:
            response.message = f"the last snapshot was less than {SNAPSHOT_PERIOD:g} s ago"
        else:
            self._snapshot_due = now + SNAPSHOT_PERIOD
            values = {name: self.get_parameter(name).value for name in PARAMETERS}
            snapshot = Snapshot(
                self._name, frame.cdr, frame.time_ns, values, self._camera_info, self._reference, self._statuses
            )
            self._snapshot = self._snapshots.submit(self._write_snapshot, self._settings, snapshot)
            return self._snapshot
        return response

    def _write_snapshot(self, settings: Settings, snapshot: Snapshot) -> Trigger.Response:
        """In the thread of snapshots: whatever becomes of one, the caller gets an answer, and frames go on."""
        try:
            folder = write_snapshot(settings.snapshot_folder, settings.snapshot_quota_mb * 1_000_000, snapshot)
        except Exception as err:  # noqa: BLE001
            reason = printable(f"{type(err).__name__}: {err}")
            self.get_logger().error(f"no snapshot: {reason}")
            return Trigger.Response(success=False, message=reason)
        return Trigger.Response(success=True, message=printable(str(folder), MAX_PATH))

    def set_parameters(self, parameter_list: List[Any]) -> List[SetParametersResult]:
        """As rclpy's; refused changes, also those that rclpy refuses by type or range, show in the diagnostics."""
        results: List[SetParametersResult] = super().set_parameters(parameter_list)
        for result in results:
            self._count_refusal(result)
        return results

    def set_parameters_atomically(self, parameter_list: List[Any]) -> SetParametersResult:
        """As rclpy's; see `set_parameters`."""
        result = super().set_parameters_atomically(parameter_list)
        self._count_refusal(result)
        return result

    def _count_refusal(self, result: SetParametersResult) -> None:
        if not result.successful:
            self._refuse("parameter", result.reason)

    def _on_set_parameters(self, changes: List[Any]) -> SetParametersResult:
        """Accept or refuse a change as a whole."""
        try:
            self._candidate = self._validate({change.name: change.value for change in changes})
        except (ValueError, RuntimeError) as err:
            return SetParametersResult(successful=False, reason=printable(str(err), MAX_REASON))
        except Exception as err:  # noqa: BLE001 - no exception leaves a callback
            self.refuse_error(err)
            return SetParametersResult(successful=False, reason=printable(f"{type(err).__name__}: {err}"))
        if not hasattr(self, "add_post_set_parameters_callback"):
            self._apply_parameters(changes)
        return SetParametersResult(successful=True)

    def _apply_parameters(self, _: List[Any]) -> None:
        """The worker sees one reference change, between two frames."""
        self._settings = self._candidate

    def _validate(self, changes: Dict[str, Any]) -> Settings:
        """Settings with some parameters changed, proven by building their pipeline."""
        values = {name: changes.get(name, self.get_parameter(name).value) for name in PARAMETERS}
        settings = make_settings(values)
        Pipeline(**self._fallback.settings(settings).arguments(tuple(PRODUCTS))).close()
        return settings

    def _warm_up(self) -> None:
        """Do once what frames will ask for: what is loaded or generated on first use would cost the first ones 150 ms.

        And get ready for a camera's: what was compiled here serves until the products that somebody wants are ready.
        """
        small, large = np.zeros((64, 64), np.uint8), np.full(FULL_FRAME, 99, np.uint8)
        products = tuple(name for name in PRODUCTS if name not in SSIM_PRODUCTS)
        messages.decode_image(messages.encode_image(0, "", "mono8", small))
        messages.encode_diagnostics(0, [messages.Status(Level.OK, "", "", "", {})])
        check_layout(RawFrame(large, 255), self._settings.options)
        try:
            pipeline = self._pipelines.get(self._settings, products, small).pipeline
            self._device = pipeline.device
            for name, array in pipeline(small).items():
                messages.product_message(name, array, 0, "")
            pipeline.prepare(large)
        except DeviceError as err:
            if self._settings.on_device_error == "stop":
                raise
            self._on_device_error(str(err))

    def _on_report(self) -> None:
        lost = self._losses.poll()
        if lost:
            self._diagnostics.dropped("transport", lost)
        publishers = (*self._products.values(), *self._compressed.values(), *self._infos.values(), self._latency)
        line = self._diagnostics.listened(any(publisher.get_subscription_count() for publisher in publishers))
        if line is not None:
            topic = self._input.topic_name
            self.get_logger().warning(f"{line}; {topic} has {self.count_publishers(topic)} publishers")
        options = self._fallback.settings(self._settings).options
        statuses = self._diagnostics.statuses(options.sensor.name, self._input.topic_name)
        values = {
            "backend": options.backend,
            "device": self._device,
            "resolution": options.resolution,
            "demosaic": options.interpolation,
            "ssim_mode": options.ssim_mode,
            **self._last_frame,
        }
        level, text = self._judge_pipeline()
        statuses.append(messages.Status(level, f"{self._name}: pipeline", text, options.sensor.name, values))
        found, figures = self._quality.report()
        layout = self._layout
        wrong = Level.WARN if layout.fits is False else Level.OK
        statuses += [
            messages.Status(found.level, f"{self._name}: quality", found.text, options.sensor.name, figures),
            messages.Status(wrong, f"{self._name}: layout", layout.text, options.sensor.name, {}),
        ]
        self._statuses = statuses
        now = messages.stamp_within_range(self.get_clock().now().nanoseconds)  # a simulated clock says anything
        self._report.publish(bytes(messages.encode_diagnostics(now, statuses)))

    def _judge_pipeline(self) -> Tuple[Level, str]:
        """Level and message of what the node runs on, and whether it is alone."""
        nodes = self.get_node_names_and_namespaces().count((self.get_name(), self.get_namespace()))
        if nodes > 1:
            return (
                Level.WARN,
                f"{nodes} nodes are called /{self._name}: all of them publish, and all take its parameters",
            )
        mismatch = self._find_mismatch()
        if mismatch:
            return Level.WARN, mismatch
        if self._fallback.reason and self._settings.options.backend != "cpu":
            what = {"cpu": "the CPU took over", "retry": "the next frame tries again", "stop": "the node ends"}
            return Level.WARN, f"{what[self._settings.on_device_error]}: {self._fallback.reason}"
        return Level.OK, self._device

    def _find_mismatch(self) -> str:
        """What keeps a publisher of raw frames from being heard; "" where nothing does, or frames come in."""
        if self._diagnostics.is_receiving:
            return ""
        for publisher in self.get_publishers_info_by_topic(self._input.topic_name):
            found, reason = qos_check_compatible(publisher.qos_profile, self._input.qos_profile)
            if found == QoSCompatibility.ERROR:
                return f"a publisher on {self._input.topic_name} is not heard: {reason}"
        return ""

    # --------------------------------------------------------------------------------------- the worker's thread

    def _work(self) -> None:
        """Start on frames as they come, and take results; while one is published, the next is computed."""
        under_way: Deque[_Job] = deque()
        while True:
            frame = self._frames.take(wait=not under_way)
            if frame is None and not under_way:
                return
            job = None if frame is None else self._guard(self._begin, frame, under_way)
            if job is not None:
                under_way.append(job)
                if len(under_way) < job.depth:
                    continue  # perhaps the next one is there as well
            if under_way:
                job = under_way.popleft()
                self._guard(self._finish, job, under_way)

    def _guard(self, step: Callable[[T], Optional[_Job]], item: T, under_way: Deque[_Job]) -> Optional[_Job]:
        """One step of one frame; whatever becomes of it, the next frame gets its chance."""
        try:
            return step(item)
        except FrameError as err:
            self._refuse(err.cause, str(err))
        except DeviceError as err:
            self._on_device_error(str(err), len(under_way))
            under_way.clear()
        except Exception as err:  # noqa: BLE001
            self.refuse_error(err)
        return None

    def _on_device_error(self, reason: str, others: int = 0) -> None:
        """What was made on the GPU is given up, other frames under way too; the next starts with a new backend."""
        self._pipelines.clear()
        self._fallback.failed(reason)
        for _ in range(1 + others):
            self._refuse("device", reason)
        if self._settings.on_device_error == "stop":
            self.get_logger().fatal(f"ends: {reason}")
            self.failure = reason

    def _refuse(self, cause: str, reason: str, detail: str = "") -> None:
        """Count a message, or a change of parameters, that could not be used, and say so now and then."""
        line = self._diagnostics.refused(cause, reason)
        if line is not None:
            self.get_logger().warning(f"{line}\n{printable_lines(detail)}".rstrip())

    def refuse_error(self, err: Exception) -> None:
        """Count a message that an unexpected error made unusable, and say so now and then; for any thread."""
        if is_out_of_memory(err):
            self._refuse("memory", f"{type(err).__name__}: {err}")
        else:
            self._refuse("internal", f"{type(err).__name__}: {err}", traceback.format_exc())

    def _begin(self, frame: Frame) -> Optional[_Job]:
        """Start on a frame; None if nobody wants anything of it.

        Where only `latency` has a subscriber, the frame is decoded and nothing is computed.
        """
        started = time.perf_counter()
        timings = {"queue": started - frame.received}
        settings = self._fallback.settings(self._settings)
        image = messages.decode_image(frame.cdr)
        if self._is_first:
            self._is_first = False
            self.get_logger().info(f"first frame: {image.width}x{image.height} {quoted(image.encoding)}")
        is_restart = image.stamp_ns < self._last_stamp  # a bag that loops, a camera that starts again
        if is_restart:
            self._pipelines.reset()
            self._diagnostics.restarted()
        self._last_stamp = image.stamp_ns
        age = self._diagnostics.aged((frame.time_ns - image.stamp_ns) / 1e9) if frame.time_ns else None

        wanted = {name for name, publisher in self._products.items() if publisher.get_subscription_count()}
        compress = {name for name, publisher in self._compressed.items() if publisher.get_subscription_count()}
        needed = {*wanted, *compress, *(WATCHED if settings.always else ())}
        products = tuple(name for name in PRODUCTS if name in needed)
        infos = tuple(topic for topic, publisher in self._infos.items() if publisher.get_subscription_count())
        if not products and not infos and not self._latency.get_subscription_count():
            self._diagnostics.idled()
            return None
        raw = messages.to_raw(image, settings.options.bit_depth, settings.options.alignment)
        served, reference = self._choose(settings, products, raw)
        timings["decode"] = time.perf_counter() - started
        pending = served.pipeline.submit(raw, reference=reference) if served else None
        # of a change that is still compiled, the former settings
        return _Job(
            frame,
            image,
            raw,
            served,
            served.settings if served else settings,
            pending,
            timings,
            age,
            is_restart,
            frozenset(wanted),
            frozenset(compress),
            infos,
        )

    def _finish(self, job: _Job) -> None:
        """Take the products of a frame and have them published, when the frame before is."""
        result = None
        if job.served is not None and job.pending is not None:
            pipeline = job.served.pipeline
            result = pipeline.result(job.pending)
            if pipeline.options.backend != "cpu":
                self._fallback.worked()
            self._device = pipeline.device
            job.timings.update(result.timings)
        started = time.perf_counter()
        self._delivery.result()
        self._delivery = self._deliveries.submit(self._deliver_or_refuse, job, result, started)

    def _choose(
        self, settings: Settings, products: Tuple[str, ...], raw: Raw
    ) -> Tuple[Optional[Served], Optional[np.ndarray]]:
        """What processes a frame, None for nothing, and the image that SSIM compares it with, if it needs one."""
        if not products:
            return None, None
        served = self._pipelines.get(settings, products, raw)
        if served.pipeline.options.ssim_mode != "reference":
            return served, None
        try:
            return served, self._get_reference(served.pipeline.output_size(raw.shape))
        except FrameError as err:  # the other products need none
            self._refuse(err.cause, str(err))
            return self._choose(settings, tuple(name for name in products if name not in SSIM_PRODUCTS), raw)

    def _get_reference(self, size: Tuple[int, int]) -> np.ndarray:
        """The newest image of topic `reference` as (h, w) float32.

        Raises:
            FrameError: There is none, or it does not fit (cause `reference`).
        """
        cdr = self._reference
        if cdr is None:
            raise FrameError("reference", f"ssim_mode 'reference' needs an image of {size[1]}x{size[0]} on 'reference'")
        if self._decoded_reference is None or self._decoded_reference[0] is not cdr:
            self._decoded_reference = (cdr, _decode_reference(cdr))
        reference = self._decoded_reference[1]
        if reference.shape != size:
            raise FrameError(
                "reference", f"the reference must be {size[1]}x{size[0]}, got {reference.shape[1]}x{reference.shape[0]}"
            )
        return reference

    # ------------------------------------------------------------------------------------ the publisher's thread

    def _deliver_or_refuse(self, job: _Job, result: Optional[Result], ready: float) -> None:
        job.timings["handover"] = time.perf_counter() - ready
        try:
            self._deliver(job, result)
        except Exception as err:  # noqa: BLE001
            self.refuse_error(err)

    def _deliver(self, job: _Job, result: Optional[Result]) -> None:
        """Make every message of a frame, then publish them in one go."""
        frame, image, timings, settings, options = job.frame, job.image, job.timings, job.settings, job.settings.options
        if job.is_restart:
            self._quality.restart()
            self._viewer.reset()
        stamp_ns, frame_id = image.stamp_ns, settings.frame_id or image.frame_id
        letters: List[Letter] = []
        sample = None
        if job.served is not None and result is not None:
            started = time.perf_counter()
            for name, array in result.items():
                if name not in job.wanted | job.compress:
                    continue
                shown = self._viewer.show(name, array, settings.display) if name in COMPRESSED else array
                if name in job.wanted:
                    sent = shown if name == "preview" else array  # only the preview is made for eyes
                    _, cdr = messages.product_message(name, sent, stamp_ns, frame_id)
                    letters.append(Letter(self._products[name], cdr))
                if name in job.compress:
                    jpeg = _jpeg(shown, settings.jpeg_quality)
                    cdr = messages.encode_compressed(stamp_ns, frame_id, "jpeg", jpeg)
                    letters.append(Letter(self._compressed[name], cdr))
            timings["encode"] = time.perf_counter() - started
            self._last_frame = _describe(image, result)
        letters += self._info_letters(job, frame_id)

        started = time.perf_counter()
        self._outbox.send(letters)
        now = time.perf_counter()
        timings["publish"] = now - started
        timings["total"] = now - frame.received
        if job.served is not None and result is not None:
            sample = measure(job.served.pipeline, job.raw, result)
            self._quality.limits = settings.limits
            self._quality.add(sample, options.ssim_mode)
            timings["quality"] = time.perf_counter() - now
        late = self._diagnostics.published(timings)
        if self._latency.get_subscription_count():
            values = {stage: f"{1000 * seconds:.3f}" for stage, seconds in timings.items()}
            values["age"] = "n/a" if job.age is None else f"{1000 * job.age:.3f}"
            level, text = (Level.WARN, "ms; late: the next frame was due before") if late else (Level.OK, "ms")
            statuses = [messages.Status(level, f"{self._name}: latency", text, options.sensor.name, values)]
            if sample is not None:
                where = sample.lowest.place if sample.lowest else ""
                name = f"{self._name}: quality"
                statuses.append(messages.Status(Level.OK, name, where, options.sensor.name, sample.values()))
            self._latency.publish(bytes(messages.encode_diagnostics(stamp_ns, statuses)))
        if now >= self._layout_due:
            self._layout_due = now + LAYOUT_PERIOD
            self._layout = check_layout(job.raw, options)

    def _info_letters(self, job: _Job, frame_id: str) -> List[Letter]:
        """The camera's calibration, scaled to the outputs and stamped as the frame; none if there is none that fits."""
        if self._camera_info is None or not job.infos:
            return []
        image = job.image
        try:
            info = messages.decode_camera_info(self._camera_info)
            if (info.height, info.width) not in ((0, 0), (image.height, image.width)):
                raise FrameError(
                    "camera_info", f"{info.width}x{info.height} of a frame of {image.width}x{image.height} pixels"
                )
        except FrameError as err:
            self._refuse("camera_info", str(err))
            return []
        options = job.settings.options
        height, width = options.output_size(job.raw.shape)
        strides = {topic: options.ssim_stride if topic.startswith("quality/") else 1 for topic in job.infos}
        encoded = {}
        for stride in set(strides.values()):
            scale = (0.5 if height < image.height else 1.0) / stride
            scaled = messages.scale_camera_info(info, scale, (height // stride, width // stride))
            encoded[stride] = messages.encode_camera_info(scaled, image.stamp_ns, frame_id)
        return [Letter(self._infos[topic], encoded[stride]) for topic, stride in strides.items()]


def _decode_reference(cdr: bytes) -> np.ndarray:
    """A serialized mono8 or 32FC1 image as (h, w) float32, full scale 1.

    Raises:
        FrameError: It is none (cause `reference`).
    """
    try:
        image = messages.decode_image(cdr)
        if image.encoding not in ("mono8", "32FC1"):
            raise FrameError("encoding", f"it must be mono8 or 32FC1, got {image.encoding!r}")
        pixels = messages.to_array(image)
    except FrameError as err:
        raise FrameError("reference", f"the reference cannot be used: {err}") from err
    reference = pixels.astype(np.float32) / np.float32(255 if image.encoding == "mono8" else 1)
    check_reference(reference)
    return reference


def is_out_of_memory(err: BaseException) -> bool:
    """Whether Python, NumPy or OpenCV found no memory."""
    return isinstance(err, MemoryError) or getattr(err, "code", None) == cv2.Error.StsNoMem


def _jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    """(h, w) grey or (h, w, 3) RGB uint8 -> the bytes of a JPEG file."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.ndim == 3 else image
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise RuntimeError(f"OpenCV cannot write a JPEG of shape {image.shape}")
    return data


def _describe(image: messages.ImageMessage, result: Result) -> Dict[str, str]:
    """What the diagnostics say about the newest frame."""
    return {"input": f"{image.width}x{image.height} {image.encoding}", "products": ", ".join(result)}


def _descriptor(row: Parameter) -> ParameterDescriptor:
    """What `ros2 param describe` shows."""
    descriptor = ParameterDescriptor(description=row.text, read_only=row.read_only, dynamic_typing=row.dynamic)
    if row.choices:
        descriptor.additional_constraints = f"one of: {', '.join(row.choices)}"
    if row.limits is not None:
        low, high = row.limits
        if isinstance(row.default, float):
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
        else:
            descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high), step=1)]
    return descriptor


def run(args: Optional[List[str]], stop: threading.Event, cameras: Sequence[Camera] = ()) -> int:
    """Run nodes in one executor until `stop` is set.

    Args:
        args: Command line, `sys.argv` by default.
        stop: Set by the handlers of SIGINT and SIGTERM.
        cameras: One node for each; by default a single node as the command line says.

    Returns:
        Exit code: 0, `FAILED` if a node could not start or had to end, `WRONG_USAGE` if it never can start so.
    """
    keep_freed_memory()  # of messages that come in
    try:
        # rclpy's own handlers would raise wherever the main thread happens to be
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as err:  # wrong ROS arguments, or no place for logs
        print(printable_lines(f"polar_pipeline cannot start: {err}"), file=sys.stderr)
        return _exit_code(err)
    executor = EventsExecutor()
    nodes: List[PolarNode] = []
    try:
        for camera in cameras or (None,):
            if stop.is_set():
                break
            try:
                nodes.append(PolarNode(args, **_node_arguments(camera)))
            except (ValueError, RuntimeError, TypeError, OverflowError, MemoryError, ParameterException) as err:
                who = f"{camera.full_name} " if camera else ""
                get_logger("polar_pipeline").fatal(printable(f"{who}cannot start: {err}", MAX_REASON))
                return _exit_code(err)
            executor.add_node(nodes[-1])
        while not stop.is_set() and not any(node.failure for node in nodes):
            _spin_once(executor, nodes)
    finally:
        for node in nodes:
            node.close()
        executor.shutdown()
        for node in nodes:
            node.destroy_node()
        rclpy.shutdown()
    return FAILED if any(node.failure for node in nodes) else 0


def _exit_code(err: Exception) -> int:
    """Exit code of a node that could not start: for wrong parameters and arguments, or for a machine that is not ready.

    A backend that does not work here is the machine's: a GPU's driver may be loaded later.
    """
    if not isinstance(err, (RuntimeError, MemoryError)):
        return WRONG_USAGE
    is_of_arguments = type(err).__name__ in _ARGUMENT_ERRORS or any(text in str(err) for text in _ARGUMENT_TEXTS)
    return WRONG_USAGE if is_of_arguments else FAILED


def _spin_once(executor: Any, nodes: Sequence[PolarNode]) -> None:
    """Run the callbacks that are ready, or wait a moment.

    Callbacks raise nothing; taking a message does when there is no memory for it.
    """
    try:
        executor.spin_once(timeout_sec=STOP_PERIOD)
    except Exception as err:  # noqa: BLE001
        for node in nodes:
            node.refuse_error(err)
        time.sleep(STOP_PERIOD)  # what it fails on may be there still


def _node_arguments(camera: Optional[Camera]) -> Dict[str, Any]:
    """What makes a camera's node of a `PolarNode`; its own names win over those of the command line."""
    if camera is None:
        return {}
    names = [("__ns", camera.namespace), ("__node", camera.name), *camera.remappings]
    arguments = ["--ros-args", *(word for name, value in names for word in ("-r", f"{name}:={value}"))]
    if camera.params_file is not None:
        arguments += ["--params-file", str(camera.params_file)]
    overrides = [RosParameter(name, value=value) for name, value in camera.parameters.items()]
    return {"cli_args": arguments, "parameter_overrides": overrides}


def run_rig(args: Optional[List[str]], stop: threading.Event) -> int:
    """Run a node for every camera of a rig until `stop` is set.

    Args:
        args: Command line, `sys.argv` by default.
        stop: Set by the handlers of SIGINT and SIGTERM.

    Returns:
        Exit code: as for `run`; `WRONG_USAGE` too if the rig cannot be read.
    """
    parser = argparse.ArgumentParser(
        prog="polar_pipeline_rig", description="A node for every camera of a rig, in one process."
    )
    parser.add_argument("rig", type=Path, metavar="RIG.yaml", help="the cameras; config/rig.yaml shows how")
    parser.add_argument("--namespace", default="", help="in front of the cameras' own")
    values = parser.parse_args(remove_ros_args(args)[1:])
    try:
        rig = read_rig(values.rig, values.namespace)
    except ValueError as err:
        parser.error(str(err))
    return run(args, stop, rig.cameras)
