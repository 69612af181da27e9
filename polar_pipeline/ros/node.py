"""The ROS side of the live node: declares parameters, topics and services, and connects them.

The executor's thread takes messages, answers services and reports. `FrameProcessor` computes and `FramePublisher`
publishes, each in a thread of its own.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.qos import QoSCompatibility, qos_check_compatible
from std_srvs.srv import Trigger

from polar_pipeline import messages, topics
from polar_pipeline._util.text import printable
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.products import PRODUCTS
from polar_pipeline.quality.statistics import Level
from polar_pipeline.ros._rcl import load_rcl
from polar_pipeline.ros.deferred import create_deferred_service
from polar_pipeline.ros.descriptor import make_descriptor
from polar_pipeline.ros.diagnostics import MAX_REASON, Diagnostics
from polar_pipeline.ros.direct_input import DirectInput
from polar_pipeline.ros.endpoints import create_input, create_output, create_outputs
from polar_pipeline.ros.fallback import Fallback
from polar_pipeline.ros.frame import ReceivedImage
from polar_pipeline.ros.guarded_node import GuardedNode
from polar_pipeline.ros.losses import LossCounter
from polar_pipeline.ros.message_publisher import MessagePublisher
from polar_pipeline.ros.parameters import PARAMETERS, Settings, make_settings
from polar_pipeline.ros.pipelines import PipelineCache
from polar_pipeline.ros.preset import is_known, judge_unknown, params_files
from polar_pipeline.ros.problems import ProblemLog
from polar_pipeline.ros.processor import FrameProcessor
from polar_pipeline.ros.publisher import FramePublisher
from polar_pipeline.ros.snapshot import Snapshot
from polar_pipeline.ros.snapshot_service import SnapshotService

#: Seconds between two reports in `/diagnostics`.
REPORT_PERIOD = 1.0


class PolarNode(GuardedNode):
    """The node `polar_pipeline`: topics, parameters and diagnostics as in `docs/ros.md`.

    Callbacks run in the executor's thread, and the attributes of this class are used there only. What it shares with
    the other threads is in `FrameProcessor`, `FramePublisher`, `Diagnostics` and `Fallback`; the processor reads
    `_settings` once per frame.

    Args:
        argv: The command line of this process, `sys.argv` by default: it names the files that parameters come from.
        arguments: Passed to `rclpy.node.Node`, such as `parameter_overrides` or `context`.

    Raises:
        ValueError: The parameters do not fit each other, or one is unknown.
        RuntimeError: The backend cannot work on this machine.
    """

    _direct_input: Optional[DirectInput] = None  # rclpy looks at `subscriptions` early

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        super().__init__("polar_pipeline", **arguments)
        self._check_names([*(sys.argv if argv is None else argv), *(arguments.get("cli_args") or ())])
        for row in PARAMETERS.values():
            self.declare_parameter(row.name, row.default, make_descriptor(row))
        self._fallback = Fallback()
        self._settings = self._validate({})
        self._candidate = self._settings
        self._name = self.get_fully_qualified_name().lstrip("/")
        self._newest: Optional[ReceivedImage] = None
        self._statuses: List[messages.Status] = []
        self._diagnostics = Diagnostics(self._name)
        self._problems = ProblemLog(self._diagnostics, self.get_logger())
        self._pipelines = PipelineCache()
        self._processor = FrameProcessor(
            lambda: self._settings,
            self._pipelines,
            self._fallback,
            self._diagnostics,
            self._problems,
            self.get_logger(),
        )
        self._processor.warm_up()
        self._outputs = create_outputs(self)
        self._report = create_output(self, topics.DIAGNOSTICS, topics.REPORT)
        self._publisher = FramePublisher(
            self._name, self._outputs, MessagePublisher(), self._diagnostics, self._problems, self._settings.limits
        )
        self._snapshots = SnapshotService(self.get_logger())
        self._connect_inputs()
        options = self._fallback.settings(self._settings).options
        self.get_logger().info(
            f"waits for frames on {self._input.topic_name}; sensor {printable(options.sensor.name)}, "
            f"backend {options.backend}, device {printable(self._processor.device or 'unknown')}"
        )
        self._processor.start(self._publisher)  # last, so that a node that cannot start leaves no thread

    def _connect_inputs(self) -> None:
        """Subscribe, offer the service, and start the timer; from here on callbacks run."""
        self._input = create_input(self, topics.IMAGE, topics.IMAGE_INPUT, self._on_image)
        rcl = load_rcl()
        if rcl is not None:
            self._direct_input = DirectInput(self, self._input, rcl, self._processor.message_memory)
            self.add_waitable(self._direct_input)
        self._losses = LossCounter(self._input)
        create_input(self, topics.CAMERA_INFO, topics.CAMERA_INFO_INPUT, self._on_camera_info)
        create_input(self, topics.IMAGE, topics.REFERENCE_INPUT, self._on_reference)
        create_deferred_service(self, Trigger, "~/snapshot", self._on_snapshot)
        # a steady clock: a simulated one may stand still or jump
        self.create_timer(REPORT_PERIOD, self._on_report, clock=Clock(clock_type=ClockType.STEADY_TIME))
        self.add_on_set_parameters_callback(self._on_set_parameters)
        if hasattr(self, "add_post_set_parameters_callback"):  # Iron and later
            self.add_post_set_parameters_callback(self._apply_parameters)

    @property
    def subscriptions(self) -> Iterator[Any]:
        """Those whose messages the executor takes."""
        return (row for row in super().subscriptions if self._direct_input is None or row is not self._input)

    def _check_names(self, argv: Sequence[str]) -> None:
        """Refuse parameters given to this node that it does not have; those meant for other nodes are only logged.

        Raises:
            ValueError: With their names.
        """
        # rclpy has no public call for what is given but not declared, other than to declare all of it
        given = [name for name in getattr(self, "_parameter_overrides", {}) if not is_known(name)]
        if not given:
            return
        wrong, foreign = judge_unknown(given, self.get_fully_qualified_name(), params_files(argv))
        if wrong:
            raise ValueError(f"no parameter of this package is called {'; '.join(wrong)}")
        names = printable(", ".join(foreign), MAX_REASON)
        self.get_logger().warning(f"parameters of every node (/**) that this one has not: {names}")

    @property
    def failure(self) -> str:
        """Why the node has to end; "" while it works."""
        return self._processor.failure

    def refuse_error(self, err: Exception) -> None:
        """Count and log an unexpected error; for any thread."""
        self._problems.refuse_error(err)

    def close(self) -> None:
        """Finish the frame and the snapshot at work, end all threads and release the pipelines; safe to call twice."""
        self._processor.close()
        self._publisher.close()
        self._snapshots.close()
        self._pipelines.close()
        self._losses.close()

    # ------------------------------------------------------------------------------------------- messages and services

    def _on_image(self, cdr: messages.Cdr) -> None:
        self._diagnostics.received(messages.peek_stamp(cdr))
        self._newest = ReceivedImage(cdr, time.perf_counter(), self.get_clock().now().nanoseconds)
        self._processor.put(self._newest)

    def _on_camera_info(self, cdr: bytes) -> None:
        self._publisher.camera_info = cdr

    def _on_reference(self, cdr: bytes) -> None:
        self._processor.reference = cdr

    def _on_snapshot(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        """Have the newest frame written for a bug report; gives a response, or a future of it."""
        newest = self._newest
        if newest is None:
            response.message = f"no frame came in on {self._input.topic_name} yet"
            return response
        response.message = self._snapshots.refusal()
        if response.message:
            return response
        values = {name: self.get_parameter(name).value for name in PARAMETERS}
        camera_info, reference = self._publisher.camera_info, self._processor.reference
        calibration = self._settings.options.calibration
        digest = calibration.digest if calibration else ""
        snapshot = Snapshot(
            self._name, newest.cdr, newest.time_ns, values, camera_info, reference, self._statuses, digest
        )
        return self._snapshots.take(self._settings, snapshot)

    # ------------------------------------------------------------------------------------------------------ parameters

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
            self._problems.refuse("parameter", result.reason)

    def _on_set_parameters(self, changes: List[Any]) -> SetParametersResult:
        """Accept or refuse all of a change."""
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
        """Replace the settings by one assignment, which the worker sees between two frames."""
        self._settings = self._candidate

    def _validate(self, changes: Dict[str, Any]) -> Settings:
        """Settings with some parameters changed, proven by building their pipeline."""
        values = {name: changes.get(name, self.get_parameter(name).value) for name in PARAMETERS}
        settings = make_settings(values)
        Pipeline(**self._fallback.settings(settings).arguments(tuple(PRODUCTS))).close()
        return settings

    # ---------------------------------------------------------------------------------------------------- diagnostics

    def _on_report(self) -> None:
        lost = self._losses.poll()
        if lost:
            self._diagnostics.dropped("transport", lost)
        line = self._diagnostics.listened(self._outputs.have_subscribers())
        if line is not None:
            topic = self._input.topic_name
            self.get_logger().warning(f"{line}; {topic} has {self.count_publishers(topic)} publishers")
        self._statuses = self._make_statuses()
        now = messages.stamp_within_range(self.get_clock().now().nanoseconds)  # a simulated clock may show any time
        self._report.publish(bytes(messages.encode_diagnostics(now, self._statuses)))

    def _make_statuses(self) -> List[messages.Status]:
        """The state of frames, latency, pipeline, quality and layout."""
        options = self._fallback.settings(self._settings).options
        sensor = options.sensor.name
        statuses = self._diagnostics.statuses(sensor, self._input.topic_name)
        values = {
            "backend": options.backend,
            "device": self._processor.device,
            "resolution": options.resolution,
            "demosaic": options.interpolation,
            "ssim_mode": options.ssim_mode,
            "calibration": options.calibration.describe() if options.calibration else "none",
            **self._publisher.last_frame,
        }
        level, text = self._judge_pipeline()
        statuses.append(messages.Status(level, f"{self._name}: pipeline", text, sensor, values))
        found, figures = self._publisher.quality.report()
        layout = self._publisher.layout
        layout_level = Level.WARN if layout.fits is False else Level.OK
        return [
            *statuses,
            messages.Status(found.level, f"{self._name}: quality", found.text, sensor, figures),
            messages.Status(layout_level, f"{self._name}: layout", layout.text, sensor, {}),
        ]

    def _judge_pipeline(self) -> Tuple[Level, str]:
        """A warning and its reasons, or OK and the device."""
        found = [self._find_namesake(), self._find_mismatch(), self._fallback.problem(self._settings)]
        problems = "; ".join(filter(None, found))
        return (Level.WARN, problems) if problems else (Level.OK, self._processor.device)

    def _find_namesake(self) -> str:
        """That other nodes have this one's name; "" where none has."""
        nodes = self.get_node_names_and_namespaces().count((self.get_name(), self.get_namespace()))
        if nodes < 2:
            return ""
        return f"{nodes} nodes are called /{self._name}: all of them publish, and all take its parameters"

    def _find_mismatch(self) -> str:
        """A publisher of raw frames whose QoS does not fit; "" where there is none, or frames come in."""
        if self._diagnostics.is_receiving:
            return ""
        for publisher in self.get_publishers_info_by_topic(self._input.topic_name):
            found, reason = qos_check_compatible(publisher.qos_profile, self._input.qos_profile)
            if found == QoSCompatibility.ERROR:
                return f"a publisher on {self._input.topic_name} is not heard: {reason}"
        return ""
