"""The ROS side of the live node: its settings and outputs, and the start and end of what takes frames.

The executor's thread takes messages, answers services and reports. `FrameProcessor` computes and `FramePublisher`
publishes, each in a thread of its own.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import ParameterException

from polar_pipeline import messages, topics
from polar_pipeline._util.malloc import release_freed_memory
from polar_pipeline._util.text import printable
from polar_pipeline.live.diagnostics import MAX_REASON
from polar_pipeline.live.fallback import Fallback
from polar_pipeline.live.parameters import PARAMETERS, Settings, make_settings
from polar_pipeline.live.publisher import OutputTopics
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.quality.statistics import Level
from polar_pipeline.ros.endpoints import create_output, create_outputs, destroy_outputs, find_mismatch, find_namesake
from polar_pipeline.ros.operation import Operation
from polar_pipeline.ros.parameter_node import ParameterNode

#: Seconds between two reports in `/diagnostics`.
REPORT_PERIOD = 1.0
#: What `configure` and `activate` raise where the node cannot work with its parameters, or on this machine.
START_ERRORS = (ValueError, RuntimeError, TypeError, OverflowError, MemoryError, ParameterException)


class LiveNode(ParameterNode):
    """The node `polar_pipeline`: topics, parameters and diagnostics as in `docs/ros.md`.

    `configure` checks the parameters and creates the outputs, `activate` starts to take frames; `deactivate` and
    `cleanup` undo them. Parameters can be set at any time, and `/diagnostics` reports always.

    Callbacks run in the executor's thread, and the attributes of this class are used there only. What it shares with
    the other threads is in `Operation`, `Diagnostics` and `Fallback`; the processor reads `settings` once per frame.

    Args:
        argv: The command line of this process, `sys.argv` by default: it names the files that parameters come from.
        arguments: Passed to `rclpy.node.Node`, such as `parameter_overrides` or `context`.

    Attributes:
        state: `unconfigured`, `inactive` or `active`.
        operation: What takes frames while the node is active; None otherwise.
        problem: Why the last step failed; "" if it did not.
    """

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        super().__init__(argv, **arguments)
        self.state = "unconfigured"
        self.operation: Optional[Operation] = None
        self.problem = ""
        self._failure = ""  # of the last operation
        self._settings: Optional[Settings] = None
        self._candidate: Optional[Settings] = None
        self._outputs: Optional[OutputTopics] = None
        self._fallback = Fallback()
        self._report = create_output(self, topics.DIAGNOSTICS, topics.REPORT)
        # a steady clock: a simulated one may stand still or jump
        self.create_timer(REPORT_PERIOD, self._on_report, clock=Clock(clock_type=ClockType.STEADY_TIME))
        self.add_on_set_parameters_callback(self._on_set_parameters)
        if hasattr(self, "add_post_set_parameters_callback"):  # Iron and later
            self.add_post_set_parameters_callback(self._apply_parameters)

    @property
    def failure(self) -> str:
        """Why the node has to end; "" while it works."""
        return self.operation.processor.failure if self.operation else self._failure

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
        self.operation = Operation(
            self, self._outputs, self._current_settings, self._fallback, self._diagnostics, self._problems
        )
        self.state = "active"
        options = self._fallback.settings(self._current_settings()).options
        self.get_logger().info(
            f"waits for frames on {self.operation.input.topic_name}; sensor {printable(options.sensor.name)}, "
            f"backend {options.backend}, device {printable(self.operation.processor.device or 'unknown')}"
        )

    def deactivate(self) -> None:
        """Finish the frame at work and take no more; releases threads, subscriptions, and memory of frames."""
        if self.operation is None:
            return
        self.operation.close()
        self._failure = self.operation.processor.failure
        self.operation = None
        self.state = "inactive"
        release_freed_memory()

    def cleanup(self) -> None:
        """Release the outputs, and what the parameters stand for, such as a calibration."""
        self.deactivate()
        if self._outputs is not None:
            destroy_outputs(self, self._outputs)
        self._outputs = self._settings = self._candidate = None
        self.state = "unconfigured"
        release_freed_memory()

    def close(self) -> None:
        """Finish the frame and the snapshot at work, end all threads and release the pipelines; safe to call twice."""
        self.deactivate()
        self.files.close()

    def _current_settings(self) -> Settings:
        """The settings asked for, of a node that is configured."""
        if self._settings is None:
            raise RuntimeError("the node is not configured")
        return self._settings

    # ------------------------------------------------------------------------------------------------------ parameters

    def _on_set_parameters(self, changes: List[Any]) -> SetParametersResult:
        """Accept or refuse all of a change; of a node that is not configured, without regard to other parameters."""
        values = {change.name: change.value for change in changes if change.name in PARAMETERS}
        try:
            if self._settings is not None and values:
                self.files.check(values)
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
        self.accept(changes)
        if self._candidate is not None:
            self._settings, self._candidate = self._candidate, None

    def _validate(self, changes: Dict[str, Any]) -> Settings:
        """Settings with some parameters changed, proven by building their pipeline."""
        values = {name: changes.get(name, self.get_parameter(name).value) for name in PARAMETERS}
        settings = make_settings(values)
        Pipeline(**self._fallback.settings(settings).arguments(settings.options.products)).close()
        return settings

    # ---------------------------------------------------------------------------------------------------- diagnostics

    def _on_report(self) -> None:
        operation = self.operation
        if operation is not None and self._outputs is not None:
            self._look(operation, self._outputs)
        else:
            self._diagnostics.listened(False)
        now = messages.stamp_within_range(self.get_clock().now().nanoseconds)  # a simulated clock may show any time
        statuses = self._make_statuses(operation)
        if operation is not None:
            operation.statuses = statuses
        self._report.publish(bytes(messages.encode_diagnostics(now, statuses)))

    def _look(self, operation: Operation, outputs: OutputTopics) -> None:
        """Count lost frames, and log when frames stay away."""
        lost = operation.lost()
        if lost:
            self._diagnostics.dropped("transport", lost)
        line = self._diagnostics.listened(outputs.have_subscribers())
        if line is not None:
            topic = operation.input.topic_name
            self.get_logger().warning(f"{line}; {topic} has {self.count_publishers(topic)} publishers")

    def _make_statuses(self, operation: Optional[Operation]) -> List[messages.Status]:
        """The state of frames, latency and pipeline; of quality and layout too while frames are taken."""
        if self._settings is None or operation is None:
            reason = self.problem or find_namesake(self)
            level = Level.ERROR if self.problem else Level.WARN if reason else Level.OK
            text = f"{self.state}: {reason}" if reason else self.state
            return [
                *self._diagnostics.statuses("", f"the node is {self.state}"),
                messages.Status(level, f"{self._name}: pipeline", text, "", {}),
            ]
        options = self._fallback.settings(self._settings).options
        sensor, topic = options.sensor.name, operation.input.topic_name
        values = {
            "backend": options.backend,
            "device": operation.processor.device,
            "resolution": options.resolution,
            "demosaic": options.interpolation,
            "ssim_mode": options.ssim_mode,
            "calibration": options.calibration.describe() if options.calibration else "none",
            **operation.publisher.last_frame,
        }
        mismatch = "" if self._diagnostics.is_receiving else find_mismatch(self, operation.input)
        problems = "; ".join(filter(None, [find_namesake(self), mismatch, self._fallback.problem(self._settings)]))
        level, text = (Level.WARN, problems) if problems else (Level.OK, operation.processor.device)
        found, figures = operation.publisher.quality.report()
        layout = operation.publisher.layout
        layout_level = Level.WARN if layout.fits is False else Level.OK
        return [
            *self._diagnostics.statuses(sensor, f"nothing arrives on {topic}"),
            messages.Status(level, f"{self._name}: pipeline", text, sensor, values),
            messages.Status(found.level, f"{self._name}: quality", found.text, sensor, figures),
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
