"""The live node: a ROS 2 node around the engine of `live/`.

The executor's thread takes messages, answers services and reports. `FrameProcessor` computes and `FramePublisher`
publishes, each in a thread of its own.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, Optional, Sequence

from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import ParameterException
from rclpy.publisher import Publisher
from std_srvs.srv import Trigger

from polar_pipeline import messages, topics
from polar_pipeline._util.malloc import release_freed_memory
from polar_pipeline._util.text import printable
from polar_pipeline.live.diagnostics import MAX_REASON
from polar_pipeline.live.fallback import Fallback
from polar_pipeline.live.frame import ReceivedImage
from polar_pipeline.live.jpeg import JpegEncoder
from polar_pipeline.live.parameters import PARAMETERS, Settings, make_settings
from polar_pipeline.live.pipelines import PipelineSwitch
from polar_pipeline.live.processor import FrameProcessor
from polar_pipeline.live.publisher import FramePublisher
from polar_pipeline.live.snapshot import Snapshot, write_snapshot
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.quality.statistics import Level
from polar_pipeline.ros.endpoints import (
    LossCounter,
    create_input,
    create_output,
    create_outputs,
    find_mismatch,
    find_namesake,
)
from polar_pipeline.ros.parameters import ParameterNode
from polar_pipeline.ros.transport import DirectInput, MessagePublisher, load_rcl

#: Seconds between two reports in `/diagnostics`.
REPORT_PERIOD = 1.0
#: Minimum seconds between two snapshots.
SNAPSHOT_PERIOD = 1.0
#: Characters of a path in the answer of `~/snapshot`.
MAX_PATH = 4096
#: What `configure` and `activate` raise where the node cannot work with its parameters, or on this machine.
START_ERRORS = (ValueError, RuntimeError, TypeError, OverflowError, MemoryError, ParameterException)


class LiveNode(ParameterNode):
    """The node `polar_pipeline`: topics, parameters and diagnostics as in `docs/ros.md`.

    `configure` checks the parameters and creates the outputs, `activate` starts to take frames; `deactivate` and
    `cleanup` undo them. Parameters can be set at any time, and `/diagnostics` reports always.

    Callbacks run in the executor's thread, and the attributes of this class are used there only, but by
    `_write_snapshot`. The processor reads the settings once per frame.

    Args:
        argv: The command line of this process, `sys.argv` by default: it names the files that parameters come from.
        arguments: Passed to `rclpy.node.Node`, such as `parameter_overrides` or `context`.

    Attributes:
        state: `unconfigured`, `inactive` or `active`.
        problem: Why the last step failed; "" if it did not.
        input: The subscription of raw frames while the node is active; None otherwise.
        processor: Computes frames while the node is active; None otherwise.
        publisher: Publishes frames while the node is active; None otherwise.
    """

    input: Any = None  # rclpy looks at `subscriptions` early
    _direct_input: Optional[DirectInput] = None

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        super().__init__(argv, **arguments)
        self.state = "unconfigured"
        self.problem = ""
        self.processor: Optional[FrameProcessor] = None
        self.publisher: Optional[FramePublisher] = None
        self._sender: Optional[MessagePublisher] = None
        self._failure = ""  # of the last processor
        self._settings: Optional[Settings] = None
        self._candidate: Optional[Settings] = None
        self._outputs: Optional[Dict[str, Publisher]] = None
        self._fallback = Fallback()
        self._others: List[Any] = []  # subscriptions beside `input`
        self._losses: Optional[LossCounter] = None
        self._service: Any = None
        self._newest: Optional[ReceivedImage] = None
        self._statuses: List[messages.Status] = []  # the newest report, for snapshots
        self._snapshots: Optional[ThreadPoolExecutor] = None
        self._snapshot: Optional[Any] = None  # a future
        self._snapshot_due = 0.0
        self._report = create_output(self, topics.DIAGNOSTICS, topics.REPORT)
        # a steady clock: a simulated one may stand still or jump
        self.create_timer(REPORT_PERIOD, self._on_report, clock=Clock(clock_type=ClockType.STEADY_TIME))
        self.add_on_set_parameters_callback(self._on_set_parameters)
        if hasattr(self, "add_post_set_parameters_callback"):  # Iron and later
            self.add_post_set_parameters_callback(self._apply_parameters)

    @property
    def failure(self) -> str:
        """Why the node has to end; "" while it works."""
        return self.processor.failure if self.processor else self._failure

    @property
    def subscriptions(self) -> Iterator[Any]:
        """Subscriptions whose messages the executor takes: not those that `DirectInput` takes."""
        return (row for row in super().subscriptions if self._direct_input is None or row is not self.input)

    # ---------------------------------------------------------------------------------------------------------- states

    def configure(self) -> None:
        """Check the parameters against each other and the machine, and create the outputs.

        Raises:
            ValueError: The parameters do not fit each other, or one is unknown.
            RuntimeError: The backend cannot work on this machine.
        """
        self.check_start_parameters()
        settings = self._validate({})
        self._outputs = create_outputs(self)
        self._settings = settings
        self.state = "inactive"

    def activate(self) -> None:
        """Take frames from now on.

        Raises:
            RuntimeError: The backend cannot work on this machine.
        """
        if self._outputs is None:
            raise RuntimeError("the node is not configured")
        logger, settings = self.get_logger(), self._current_settings
        self._sender = MessagePublisher()
        self.publisher = FramePublisher(
            self._name, self._outputs, self._sender.send, self._diagnostics, settings().limits, JpegEncoder(logger)
        )
        self.processor = FrameProcessor(
            settings, self._fallback, self._diagnostics, logger, self.publisher, PipelineSwitch()
        )
        try:
            self.processor.warm_up()
            self._connect(self.processor)
        except BaseException:
            self.deactivate()
            raise
        self.processor.start()  # last, so that a node that cannot start leaves no thread
        self.state = "active"
        options = self._fallback.settings(settings()).options
        logger.info(
            f"waits for frames on {self.input.topic_name}; sensor {printable(options.sensor.name)}, "
            f"backend {options.backend}, device {printable(self.processor.device or 'unknown')}"
        )

    def _connect(self, processor: FrameProcessor) -> None:
        """Subscribe, and offer the service; from here on callbacks run."""
        self.input = create_input(self, topics.IMAGE, topics.IMAGE_INPUT, self._on_image)
        rcl = load_rcl()
        if rcl is not None:
            self._direct_input = DirectInput(self, self.input, rcl, processor.message_memory)
            self.add_waitable(self._direct_input)
        self._losses = LossCounter(self.input)
        self._others = [
            create_input(self, topics.CAMERA_INFO, topics.CAMERA_INFO_INPUT, self._on_camera_info),
            create_input(self, topics.IMAGE, topics.REFERENCE_INPUT, self._on_reference),
        ]
        self._snapshots = ThreadPoolExecutor(1, "polar_pipeline_snapshot")
        self._service = self.create_service(Trigger, "~/snapshot", self._on_snapshot)

    def deactivate(self) -> None:
        """Finish the frame and the snapshot at work, and take no more; releases threads and memory of frames."""
        if self.processor is None:
            return
        self.processor.close()
        if self._sender is not None:
            self._sender.close()
        self._failure = self.processor.failure
        if self._snapshots is not None:
            self._snapshots.shutdown()
        if self._losses is not None:
            self._losses.close()
        if self._direct_input is not None:
            self._direct_input.close()
            self.remove_waitable(self._direct_input)
        for subscription in filter(None, (self.input, *self._others)):
            self.destroy_subscription(subscription)
        if self._service is not None:
            self.destroy_service(self._service)
        self.processor = self.publisher = self._sender = self.input = self._losses = self._direct_input = None
        self._service = self._newest = self._snapshots = self._snapshot = None
        self._others, self._statuses = [], []
        self.state = "inactive"
        release_freed_memory()

    def cleanup(self) -> None:
        """Release the outputs, and what the parameters stand for, such as a calibration."""
        self.deactivate()
        for publisher in (self._outputs or {}).values():
            self.destroy_publisher(publisher)
        self._outputs = self._settings = self._candidate = None
        self.state = "unconfigured"
        release_freed_memory()

    def close(self) -> None:
        """Finish the frame and the snapshot at work, end all threads and release the pipelines; safe to call twice."""
        self.deactivate()
        super().close()

    def _current_settings(self) -> Settings:
        """Return the requested settings; the node must be configured."""
        if self._settings is None:
            raise RuntimeError("the node is not configured")
        return self._settings

    # ---------------------------------------------------------------------------------------------------------- inputs

    # After a subscription was destroyed, an executor may still call back for a message that it has seen before.

    def _on_image(self, cdr: messages.Cdr) -> None:
        if self.processor is not None:
            self._diagnostics.received(messages.peek_stamp(cdr))
            self._newest = ReceivedImage(cdr, time.perf_counter(), self.get_clock().now().nanoseconds)
            self.processor.put(self._newest)

    def _on_camera_info(self, cdr: bytes) -> None:
        if self.processor is not None and self.publisher is not None:
            self.publisher.camera_info = self.processor.camera_info = cdr

    def _on_reference(self, cdr: bytes) -> None:
        if self.processor is not None:
            self.processor.reference = cdr

    # ------------------------------------------------------------------------------------------------------- snapshots

    def _on_snapshot(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        """Write the newest frame for a bug report; return the response, or a future of it."""
        if self.processor is None or self._snapshots is None:
            response.message = f"the node is {self.state}"
        elif self._newest is None:
            response.message = f"no frame came in on {self.input.topic_name} yet"
        elif self._snapshot is not None and not self._snapshot.done():
            response.message = "another snapshot is being written"
        elif time.monotonic() < self._snapshot_due:
            response.message = f"the last snapshot was less than {SNAPSHOT_PERIOD:g} s ago"
        else:
            self._snapshot_due = time.monotonic() + SNAPSHOT_PERIOD
            snapshot = self._make_snapshot(self._newest, self.processor)
            self._snapshot = self._snapshots.submit(self._write_snapshot, self._current_settings(), snapshot)
            return self._snapshot
        return response

    def _make_snapshot(self, newest: ReceivedImage, processor: FrameProcessor) -> Snapshot:
        """Collect the newest frame and the state of the node."""
        calibration = self._current_settings().options.calibration
        return Snapshot(
            self._name,
            newest.cdr,
            newest.time_ns,
            {name: self.get_parameter(name).value for name in PARAMETERS},
            processor.camera_info,
            processor.reference,
            self._statuses,
            calibration.digest if calibration else "",
        )

    def _write_snapshot(self, settings: Settings, snapshot: Snapshot) -> Trigger.Response:
        """Write a snapshot in the thread for snapshots; return the service's response, also after a failure."""
        try:
            folder = write_snapshot(settings.snapshot_folder, settings.snapshot_quota_mb * 1_000_000, snapshot)
        except Exception as err:  # noqa: BLE001
            reason = printable(f"{type(err).__name__}: {err}")
            self.get_logger().error(f"no snapshot: {reason}")
            return Trigger.Response(success=False, message=reason)
        return Trigger.Response(success=True, message=printable(str(folder), MAX_PATH))

    # ------------------------------------------------------------------------------------------------------ parameters

    def _on_set_parameters(self, changes: List[Any]) -> SetParametersResult:
        """Accept or refuse a change as a whole; before `configure`, each parameter is checked alone."""
        values = {change.name: change.value for change in changes if change.name in PARAMETERS}
        try:
            if self._settings is not None and values:
                self.check_files(values)
                self._candidate = self._validate(values)
        except (ValueError, RuntimeError) as err:
            return SetParametersResult(successful=False, reason=printable(str(err), MAX_REASON))
        except Exception as err:  # noqa: BLE001 - no exception leaves a callback
            self.refuse_error(err)
            return SetParametersResult(successful=False, reason=printable(f"{type(err).__name__}: {err}"))
        if not hasattr(self, "add_post_set_parameters_callback"):
            self._apply_parameters(changes)
        return SetParametersResult(successful=True)

    def _apply_parameters(self, changes: List[Any]) -> None:
        """Replace the settings by one assignment, which the worker sees between two frames."""
        for change in changes:
            self._wrong_values.pop(change.name, None)  # those given at the start
        if self._candidate is not None:
            self._settings, self._candidate = self._candidate, None

    def _validate(self, changes: Dict[str, Any]) -> Settings:
        """Build settings with some parameters changed, and check that their pipeline can be built."""
        values = {name: changes.get(name, self.get_parameter(name).value) for name in PARAMETERS}
        settings = make_settings(values)
        Pipeline(**self._fallback.settings(settings).arguments(settings.options.products)).close()
        return settings

    # ---------------------------------------------------------------------------------------------------- diagnostics

    def _on_report(self) -> None:
        """Publish the node's report; count lost frames, and log when frames stay away."""
        is_wanted = False
        if self.publisher is not None and self._losses is not None:
            is_wanted = bool(self.publisher.demand())
            lost = self._losses.poll()
            if lost:
                self._diagnostics.dropped("transport", lost)
        line = self._diagnostics.listened(is_wanted)
        if line is not None:
            topic = self.input.topic_name
            self.get_logger().warning(f"{line}; {topic} has {self.count_publishers(topic)} publishers")
        now = messages.stamp_within_range(self.get_clock().now().nanoseconds)  # a simulated clock may show any time
        self._statuses = self._make_statuses()
        self._report.publish(bytes(messages.encode_diagnostics(now, self._statuses)))

    def _make_statuses(self) -> List[messages.Status]:
        """Report frames, latency and pipeline; while the node is active also quality and layout."""
        processor, publisher = self.processor, self.publisher
        if self._settings is None or processor is None or publisher is None:
            reason = self.problem or find_namesake(self)
            level = Level.ERROR if self.problem else Level.WARN if reason else Level.OK
            text = f"{self.state}: {reason}" if reason else self.state
            return [
                *self._diagnostics.statuses("", f"the node is {self.state}"),
                messages.Status(level, f"{self._name}: pipeline", text, "", {}),
            ]
        options = self._fallback.settings(self._settings).options
        sensor = options.sensor.name
        values = {
            "backend": options.backend,
            "device": processor.device,
            "resolution": options.resolution,
            "demosaic": options.interpolation,
            "ssim_mode": options.ssim_mode,
            "calibration": options.calibration.describe() if options.calibration else "none",
            **publisher.last_frame,
        }
        mismatch = "" if self._diagnostics.is_receiving else find_mismatch(self, self.input)
        problems = "; ".join(filter(None, [find_namesake(self), mismatch, self._fallback.problem(self._settings)]))
        level, text = (Level.WARN, problems) if problems else (Level.OK, processor.device)
        verdict, figures = publisher.quality.report()
        layout = publisher.layout
        layout_level = Level.WARN if layout.fits is False else Level.OK
        return [
            *self._diagnostics.statuses(sensor, f"nothing arrives on {self.input.topic_name}"),
            messages.Status(level, f"{self._name}: pipeline", text, sensor, values),
            messages.Status(verdict.level, f"{self._name}: quality", verdict.text, sensor, figures),
            messages.Status(layout_level, f"{self._name}: layout", layout.text, sensor, {}),
        ]


class PolarNode(LiveNode):
    """A live node that takes frames from its construction on; see `LiveNode`.

    Raises:
        ValueError: The parameters do not fit each other, or one is unknown.
        RuntimeError: The backend cannot work on this machine.
    """

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        super().__init__(argv, **arguments)
        self.configure()
        self.activate()
