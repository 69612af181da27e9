"""A node that declares, converts and checks the parameters of this package."""

from __future__ import annotations

import functools
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rcl_interfaces.srv import SetParameters, SetParametersAtomically
from rclpy.exceptions import ParameterException
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.text import SHOWN_REASON, printable, quoted
from polar_pipeline.camera.settings import CAMERA_OPTIONS, JUDGING, CameraSettings
from polar_pipeline.live.diagnostics import Diagnostics
from polar_pipeline.live.parameters import PARAMETERS, Settings, check_parameter, make_settings
from polar_pipeline.live.pipelines import Fallback
from polar_pipeline.live.preset import QOS, find_stray, is_known, judge_unknown, params_files
from polar_pipeline.options import ContradictionError, Option
from polar_pipeline.pipeline import Pipeline

#: Parameters of a camera that the node reads itself, and those that nothing else needs.
_OF_CAMERA = tuple(row.parameter for row in CAMERA_OPTIONS.values())
_NEEDS_CAMERA = tuple(row.parameter for name, row in CAMERA_OPTIONS.items() if name not in JUDGING)
#: Parameters whose change takes time: a file of megabytes is read, or a camera is asked.
_SLOW = ("calibration", "output.rectify", "frame_id", *_OF_CAMERA)
#: Types of values in messages.
_TYPES = tuple(row.value for row in RosParameter.Type)


def make_descriptor(row: Option) -> ParameterDescriptor:
    """Build the descriptor of a parameter, which `ros2 param describe` shows."""
    descriptor = ParameterDescriptor(description=row.text, read_only=row.read_only, dynamic_typing=row.dynamic)
    if row.choices:
        descriptor.additional_constraints = f"one of: {', '.join(map(str, row.choices))}"
    numbers = [number for number in row.choices if isinstance(number, int)]
    if numbers:
        steps = {after - before for before, after in zip(numbers, numbers[1:])}
        step = steps.pop() if len(steps) == 1 else 1
        descriptor.integer_range = [IntegerRange(from_value=numbers[0], to_value=numbers[-1], step=step)]
    if row.limits is not None:
        low, high = row.limits
        if isinstance(row.default, float):
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
        else:
            descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high), step=1)]
    return descriptor


class ParameterNode(Node):  # type: ignore[misc]
    """A node that declares every parameter of `PARAMETERS`, and makes `Settings` of them while it is configured.

    Exceptions of its callbacks go to `refuse_error`; a service still answers. rclpy would pass an exception on to the
    main loop, and leave undone what else was ready. rclpy's own subscriptions, services and timers are created through
    the methods of this class too.

    A request that names a file of a calibration or of a lens, or a parameter of the camera, is answered by the
    background thread. Later requests queue behind it, so that all are answered in their order.

    Args:
        argv: The command line of this process, `sys.argv` by default: it names the files that parameters come from.
        arguments: Passed to `rclpy.node.Node`, such as `parameter_overrides` or `context`.

    Attributes:
        settings: Values of all parameters, checked against each other; None while the node is not configured. Replaced
            by one assignment, which other threads see between two frames.
        fallback: Settings that hold after a failure of the GPU.
        contradiction: Changes that were accepted and do not fit the other values yet, and why; "" if there are none.
    """

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        # One thread for slow requests, files and compilation ahead; it also helps to publish. No frame waits for it.
        # Requests and compilation may wait for each other for seconds.
        self._background = ThreadPoolExecutor(1, "polar_pipeline_background")  # rclpy creates its services early
        self._answer: Optional[Any] = None  # future of the newest answer of that thread
        self._changing = threading.RLock()
        self._is_closed = False
        self.settings: Optional[Settings] = None
        self._held_back: Dict[str, Any] = {}  # values by name that contradict other parameters
        self.contradiction = ""
        self.fallback = Fallback()
        super().__init__("polar_pipeline", **arguments)
        self._argv = [*(sys.argv if argv is None else argv), *(arguments.get("cli_args") or ())]
        self._name = self.get_fully_qualified_name().lstrip("/")
        self._diagnostics = Diagnostics(self._name, self.get_logger())
        self._wrong_values: Dict[str, str] = {}
        for name, row in PARAMETERS.items():
            self._declare(name, row)

    def end_background(self) -> None:
        """Finish what waits for the background thread, and end the thread until it is needed again."""
        self._background.shutdown()
        self._background = ThreadPoolExecutor(1, "polar_pipeline_background")

    def close(self) -> None:
        """Finish the change at work, refuse those that wait, and end the background thread; safe to call twice."""
        self._is_closed = True
        self._background.shutdown()

    def refuse_error(self, err: Exception) -> None:
        """Count and log an unexpected error, such as one of a callback; for any thread."""
        self._diagnostics.refuse_error(err)

    def _declare(self, name: str, row: Option) -> None:
        """Declare a parameter, with its default where the value given is refused; `configure` then says why."""
        value: Any = row.default
        try:  # of any type at first: a whole number does for a float
            parameter = self.declare_parameter(name, value, ParameterDescriptor(dynamic_typing=True))
            value = check_parameter(name, parameter.value)
        except (ValueError, TypeError, OverflowError, ParameterException) as err:
            self._wrong_values[name] = str(err)
        if self.has_parameter(name):
            self.undeclare_parameter(name)
        self.declare_parameter(name, value, make_descriptor(row), ignore_override=True)

    def read_settings(self) -> None:
        """Make `settings` of the parameters; raises ValueError for unknown ones, and the errors of `_validated`."""
        for path in params_files(self._argv):
            with suppress(ValueError):  # ROS has read it
                stray = find_stray(path, self.get_fully_qualified_name(), self.overrides)
                if stray:
                    self.get_logger().warning(f"ignored: {stray}")
        self._refuse_unknown([name for name in self.overrides if not is_known(name)], PARAMETERS)
        with self._changing:
            if self._wrong_values:
                raise ValueError("; ".join(self._wrong_values.values()))
            self.settings = self._validated({})

    @property
    def overrides(self) -> Mapping[str, RosParameter]:
        """The parameters given at the start; rclpy has no public call for those that are not declared."""
        return getattr(self, "_parameter_overrides", {})

    def check_qos_overrides(self) -> None:
        """Raise ValueError for QoS parameters that no topic has, once all topics exist."""
        own_names = [name for name in self._parameters if name.startswith(QOS)]
        others = [name for name in self.overrides if name.startswith(QOS) and name not in own_names]
        # the topic `/clock` exists while `use_sim_time` is set
        self._refuse_unknown([name for name in others if not name.startswith(f"{QOS}/clock.")], own_names)

    def _refuse_unknown(self, names: Iterable[str], own_names: Iterable[str]) -> None:
        """Raise ValueError for parameters that this node does not have; warn of those that other nodes may have."""
        files = params_files(self._argv)
        wrong, foreign = judge_unknown(names, self.get_fully_qualified_name(), files, own_names)
        if wrong:
            raise ValueError(f"no parameter of this package is called {'; '.join(wrong)}")
        if foreign:
            text = printable(", ".join(foreign), SHOWN_REASON)
            self.get_logger().warning(f"parameters of every node (/**) that this one has not: {text}")

    def forget_settings(self) -> None:
        """Release what the parameters stand for, such as a calibration."""
        with self._changing:
            self.settings = None
            self._hold_back({})

    def _validated(self, changes: Mapping[str, Any]) -> Settings:
        """Build settings with some parameters changed, and check that their pipeline can be built.

        Raises:
            ContradictionError: Values do not fit each other.
            ValueError: A value is not allowed.
            RuntimeError: The backend cannot work on this machine.
        """
        values = {name: changes.get(name, self.get_parameter(name).value) for name in PARAMETERS}
        settings = make_settings(values)
        with errors_as(ContradictionError):
            Pipeline(**self.fallback.settings(settings).arguments(settings.options.products)).close()
        return settings

    def set_parameters(self, parameter_list: List[Any]) -> List[SetParametersResult]:
        """Set parameters one by one; see `set_parameters_atomically`."""
        return [self.set_parameters_atomically([change]) for change in parameter_list]

    def set_parameters_atomically(self, parameter_list: List[Any]) -> SetParametersResult:
        """Set all parameters or none; 2 does for 2.0, and a fixed parameter can be set to its own value.

        Values that do not fit those of other parameters are accepted with the reason and held back: parameters and
        settings stay as they are until a later change makes all of them fit, in whatever order they come.

        An unconfigured node checks each value by itself. Refused changes show in the diagnostics.
        """
        with self._changing:
            try:
                if self._is_closed:  # each could take seconds
                    raise ValueError("the node ends")
                result = self._change(dict(filter(None, map(self._converted, parameter_list))))
            except (ValueError, RuntimeError, ParameterException) as err:
                result = SetParametersResult(successful=False, reason=printable(str(err), SHOWN_REASON))
            except Exception as err:  # noqa: BLE001 - the request must be answered
                self.refuse_error(err)
                result = SetParametersResult(successful=False, reason=printable(f"{type(err).__name__}: {err}"))
        if not result.successful:
            self._diagnostics.refuse("parameter", result.reason)
        return result

    def _change(self, changes: Dict[str, Any]) -> SetParametersResult:
        """Set parameters, with those that were held back before if all fit now, or hold the changes back."""
        before = self.settings
        if before is None or not changes:
            return self._set(changes)
        pending, failures = {**self._held_back, **changes}, []
        for fitting in [pending, changes] if self._held_back else [changes]:
            try:
                settings = self._validated(fitting)
                break
            except (ValueError, RuntimeError) as err:
                failures.append(err)
        else:
            if not isinstance(failures[-1], ContradictionError):
                raise failures[-1]
            self._hold_back(pending, failures[0])
            return SetParametersResult(successful=True, reason=self.contradiction)
        later = {name: value for name, value in self._held_back.items() if name not in fitting}
        is_of_camera = (settings.camera, settings.frame_id) != (before.camera, before.frame_id)
        if is_of_camera:
            settings = replace(settings, camera=self.apply_camera(settings))
            fitting = self._with_camera(fitting, settings.camera)
        result = self._set(fitting)
        if result.successful:
            self.settings = settings
            self._hold_back(later, *failures)
        elif is_of_camera:
            self.apply_camera(before)
        return result

    def _set(self, changes: Mapping[str, Any]) -> SetParametersResult:
        """Set parameters of rclpy to values that have been checked."""
        result = super().set_parameters_atomically([RosParameter(name, value=value) for name, value in changes.items()])
        if result.successful:
            for name in changes:
                self._wrong_values.pop(name, None)  # those given at the start
        return result

    def _hold_back(self, changes: Dict[str, Any], reason: object = "") -> None:
        """Keep changes for later, in the place of those that were held back before."""
        self._held_back = changes
        values = ", ".join(f"{name}={quoted(value)}" for name, value in changes.items())
        self.contradiction = printable(f"held back until they fit: {values}; {reason}", SHOWN_REASON) if changes else ""

    def apply_camera(self, settings: Settings) -> CameraSettings:
        """Write the settings of the camera to it, and return them as it has them; `ParameterNode` has no camera."""
        return settings.camera

    def _with_camera(self, changes: Mapping[str, Any], actual: CameraSettings) -> Dict[str, Any]:
        """Return changes of parameters, and those that set all parameters of the camera to the camera's values."""
        all_changes = dict(changes)
        for field, row in CAMERA_OPTIONS.items():
            name, value = row.parameter, getattr(actual, field)
            if name in all_changes or check_parameter(name, self.get_parameter(name).value) != value:
                all_changes[name] = value
        return all_changes

    def show_camera(self, actual: CameraSettings, ranges: Mapping[str, Tuple[float, float]]) -> None:
        """Set the parameters of the camera, and the ranges of some by the name of the field, to what it has."""
        for field, limits in ranges.items():
            name = CAMERA_OPTIONS[field].parameter
            descriptor = make_descriptor(replace(PARAMETERS[name], limits=limits))
            descriptor.type = self.describe_parameter(name).type
            value = RosParameter(name, value=getattr(actual, field)).get_parameter_value()
            self.set_descriptor(name, descriptor, value)
        self._set(self._with_camera({}, actual))
        if self.settings is not None:
            self.settings = replace(self.settings, camera=actual)

    def _converted(self, change: Any) -> Optional[Tuple[str, Any]]:
        """Return the parameter and the value that it stores; None if the parameter is fixed and keeps its value."""
        name, value = change.name, change.value
        if not self.has_parameter(name):
            raise ValueError(f"{printable(name)} is not a parameter of this node")
        if name in PARAMETERS:
            value = check_parameter(name, value)
        lacks_camera = name in _NEEDS_CAMERA and not self.get_parameter("camera.source").value
        is_fixed = self.describe_parameter(name).read_only
        if not (is_fixed or lacks_camera):
            return name, value
        now = self.get_parameter(name).value
        if now != value:
            when = "at start" if is_fixed else "without a camera of the node's own (camera.source)"
            raise ValueError(f"{printable(name)} is fixed {when}, to {quoted(now)}; got {quoted(value)}")
        return None

    def create_subscription(self, msg_type: Any, topic: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """Create a subscription, also rclpy's own (simulated time), with a callback that raises nothing."""
        return super().create_subscription(msg_type, topic, self.guarded(callback), *arguments, **options)

    def create_timer(self, timer_period_sec: float, callback: Any, *arguments: Any, **options: Any) -> Any:
        """Create a timer with a callback that raises nothing."""
        return super().create_timer(timer_period_sec, self.guarded(callback), *arguments, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """Create a service, also rclpy's own (parameters), with a callback that raises nothing.

        A callback that sets parameters may return a future of the response, which must not fail. rclpy provides
        coroutines as callbacks for this, but the events executor of Jazzy does not await them, and that of Kilted
        crashes on what they raise. Every executor passes what the callback returns to the service's `send_response`.
        """
        respond = self.guarded(callback)

        def set_parameters(request: Any, response: Any) -> Any:
            for row in request.parameters:
                if row.value.type not in _TYPES:  # rclpy would raise; a value that is not set is refused
                    row.value.type = RosParameter.Type.NOT_SET.value
            is_slow = any(row.name in _SLOW for row in request.parameters)
            if not is_slow and (self._answer is None or self._answer.done()):
                return respond(request, response)
            self._answer = self._background.submit(respond, request, response)
            return self._answer

        sets_parameters = srv_type in (SetParameters, SetParametersAtomically)
        callback = self.guarded(set_parameters) if sets_parameters else respond
        service = super().create_service(srv_type, srv_name, callback, *arguments, **options)
        send_now = service.send_response

        def send(answer: Any, header: Any) -> None:
            with suppress(_rclpy.InvalidHandle):  # the service is gone, since the node ends or was deactivated
                send_now(answer, header)

        def send_when_done(answer: Any, header: Any) -> None:
            if isinstance(answer, Future):
                answer.add_done_callback(lambda done: send(done.result(), header))
            else:
                send(answer, header)

        service.send_response = send_when_done
        return service

    def guarded(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a callback: pass its exceptions to `refuse_error`, and then return its last argument."""

        @functools.wraps(callback)  # rclpy looks at the signature
        def guarded(*arguments: Any) -> Any:
            try:
                return callback(*arguments)
            except Exception as err:  # noqa: BLE001
                self.refuse_error(err)
                return arguments[-1] if arguments else None  # a service's response as it is

        return guarded
