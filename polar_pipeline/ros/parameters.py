"""A node that declares, converts and checks the parameters of this package."""

from __future__ import annotations

import functools
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Tuple

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rcl_interfaces.srv import SetParameters, SetParametersAtomically
from rclpy.exceptions import ParameterException
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from polar_pipeline._util.text import printable, quoted
from polar_pipeline.calibration.file import load_calibration_once
from polar_pipeline.live.diagnostics import MAX_REASON, Diagnostics
from polar_pipeline.live.parameters import PARAMETERS, Parameter
from polar_pipeline.live.preset import is_known, judge_unknown, params_files

#: The parameter that names a file of megabytes.
_FILE = "calibration"


def make_descriptor(row: Parameter) -> ParameterDescriptor:
    """Build the descriptor of a parameter, which `ros2 param describe` shows."""
    descriptor = ParameterDescriptor(description=row.text, read_only=row.read_only, dynamic_typing=row.dynamic)
    if row.choices or row.numbers:
        descriptor.additional_constraints = f"one of: {', '.join(map(str, row.choices or row.numbers))}"
    if row.numbers:
        steps = {after - before for before, after in zip(row.numbers, row.numbers[1:])}
        step = steps.pop() if len(steps) == 1 else 1
        descriptor.integer_range = [IntegerRange(from_value=row.numbers[0], to_value=row.numbers[-1], step=step)]
    if row.limits is not None:
        low, high = row.limits
        if isinstance(row.default, float):
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
        else:
            descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high), step=1)]
    return descriptor


class GuardedNode(Node):  # type: ignore[misc]
    """A node that passes exceptions of its callbacks to `refuse_error`; a service still answers.

    rclpy would pass an exception on to the main loop, and leave undone what else was ready. rclpy's own subscriptions,
    services and timers are created through these methods too.
    """

    def refuse_error(self, err: Exception) -> None:
        """Count and log an exception of a callback."""
        raise NotImplementedError

    def create_subscription(self, msg_type: Any, topic: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """Create a subscription, also rclpy's own (simulated time), with a callback that raises nothing."""
        return super().create_subscription(msg_type, topic, self.guarded(callback), *arguments, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """Create a service, also rclpy's own (parameters), with a callback that raises nothing.

        The callback may return a future of the response in place of it; that future must not fail. rclpy provides
        coroutines as callbacks for this, but the events executor of Jazzy does not await them, and that of Kilted
        crashes on what they raise. Every executor passes what the callback returns to the service's `send_response`.
        """
        service = super().create_service(srv_type, srv_name, self.guarded(callback), *arguments, **options)
        send = service.send_response

        def send_when_done(answer: Any, header: Any) -> None:
            if isinstance(answer, Future):
                answer.add_done_callback(lambda done: send(done.result(), header))
            else:
                send(answer, header)

        service.send_response = send_when_done
        return service

    def create_timer(self, timer_period_sec: float, callback: Any, *arguments: Any, **options: Any) -> Any:
        """Create a timer with a callback that raises nothing."""
        return super().create_timer(timer_period_sec, self.guarded(callback), *arguments, **options)

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


class ParameterNode(GuardedNode):
    """A node that declares every parameter of `PARAMETERS`, and checks each value by itself.

    A calibration is read in a thread before the request that names it is answered, while the executor goes on.
    Requests to set parameters are answered in their order.

    Args:
        argv: The command line of this process, `sys.argv` by default: it names the files that parameters come from.
        arguments: Passed to `rclpy.node.Node`.
    """

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        self._files = ThreadPoolExecutor(1, "polar_pipeline_files")  # rclpy creates its services early
        self._last_request: Optional[Any] = None  # a future
        # of requests whose files were read: path -> reason if it is unreadable, answers, calibrations
        self._requests: Deque[Tuple[Dict[str, str], Callable[[], None], List[Any]]] = deque()
        self._unreadable: Dict[str, str] = {}  # of the request that is being answered
        super().__init__("polar_pipeline", **arguments)
        self._argv = [*(sys.argv if argv is None else argv), *(arguments.get("cli_args") or ())]
        self._name = self.get_fully_qualified_name().lstrip("/")
        self._diagnostics = Diagnostics(self._name, self.get_logger())
        self._wrong_values: Dict[str, str] = {}
        for row in PARAMETERS.values():
            self._declare(row)

    def close(self) -> None:
        """Finish the file that is being read, and end the thread; safe to call twice."""
        self._files.shutdown()

    def refuse_error(self, err: Exception) -> None:
        """Count and log an unexpected error; for any thread."""
        self._diagnostics.refuse_error(err)

    def _declare(self, row: Parameter) -> None:
        """Declare a parameter, with its default where the value given is refused; `configure` then says why."""
        value: Any = row.default
        try:  # of any type at first: a whole number does for a float
            value = row.checked(self.declare_parameter(row.name, value, ParameterDescriptor(dynamic_typing=True)).value)
        except (ValueError, TypeError, OverflowError, ParameterException) as err:
            self._wrong_values[row.name] = str(err)
        if self.has_parameter(row.name):
            self.undeclare_parameter(row.name)
        self.declare_parameter(row.name, value, make_descriptor(row), ignore_override=True)

    def check_start_parameters(self) -> None:
        """Refuse wrong values given at the start and unknown parameters; those of other nodes are only logged.

        Raises:
            ValueError: With the parameters' names.
        """
        # rclpy has no public call for what is given but not declared, other than to declare all of it
        given = [name for name in getattr(self, "_parameter_overrides", {}) if not is_known(name)]
        wrong, foreign = judge_unknown(
            given, self.get_fully_qualified_name(), params_files(self._argv) if given else ()
        )
        if wrong:
            raise ValueError(f"no parameter of this package is called {'; '.join(wrong)}")
        if foreign:
            names = printable(", ".join(foreign), MAX_REASON)
            self.get_logger().warning(f"parameters of every node (/**) that this one has not: {names}")
        if self._wrong_values:
            raise ValueError("; ".join(self._wrong_values.values()))

    def set_parameters(self, parameter_list: List[Any]) -> List[SetParametersResult]:
        """Set parameters one by one; see `set_parameters_atomically`."""
        return [self.set_parameters_atomically([change]) for change in parameter_list]

    def set_parameters_atomically(self, parameter_list: List[Any]) -> SetParametersResult:
        """Set all parameters or none; whole numbers do for floats, and a fixed parameter can be set to its own value.

        Refused changes show in the diagnostics.
        """
        try:
            changes = [self._converted(change) for change in parameter_list]
            result = super().set_parameters_atomically([change for change in changes if change is not None])
        except ValueError as err:
            result = SetParametersResult(successful=False, reason=printable(str(err), MAX_REASON))
        if not result.successful:
            self._diagnostics.refuse("parameter", result.reason)
        return result

    def _converted(self, change: Any) -> Any:
        """Convert a change to the type of its parameter; None if the parameter is fixed and keeps its value.

        Raises:
            ValueError: The value is not allowed.
        """
        name, row = change.name, PARAMETERS.get(change.name)
        if not self.has_parameter(name):
            raise ValueError(f"{printable(name)} is not a parameter of this node")
        value = change.value if row is None else row.checked(change.value)
        if isinstance(value, float):
            change = RosParameter(name, value=value)
        if not self.describe_parameter(name).read_only:
            return change
        now = self.get_parameter(name).value
        if now != change.value:
            raise ValueError(f"{printable(name)} is fixed at start, to {quoted(now)}; got {quoted(change.value)}")
        return None

    # ----------------------------------------------------------------------------------------------------------- files

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """Create a service, see `GuardedNode`; requests to set parameters wait for their files."""
        if srv_type in (SetParameters, SetParametersAtomically):
            callback = self._after_files(self.guarded(callback))
        return super().create_service(srv_type, srv_name, callback, *arguments, **options)

    def check_files(self, values: Mapping[str, object]) -> None:
        """Refuse values of parameters that name an unreadable file.

        Raises:
            ValueError: With the reason.
        """
        reason = self._unreadable.get(str(values.get(_FILE)))
        if reason is not None:
            raise ValueError(reason)

    def _after_files(self, callback: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Wrap a service's callback: return a future if files have to be read before `callback` can answer."""

        def answer(request: Any, response: Any) -> Any:
            paths = [row.value.string_value for row in request.parameters if row.name == _FILE]
            if not any(paths) and (self._last_request is None or self._last_request.done()):
                return callback(request, response)
            answered: Any = Future()
            self._last_request = answered
            self._files.submit(self._read, paths, lambda: answered.set_result(callback(request, response)))
            return answered

        return answer

    def _read(self, paths: List[str], set_parameters: Callable[[], None]) -> None:
        """Read the calibrations of a request, in the thread for files."""
        calibrations, unreadable = [], {}
        for path in filter(None, paths):
            try:
                calibrations.append(load_calibration_once(Path(path)))
            except Exception as err:  # noqa: BLE001, PERF203 - the request must be answered
                unreadable[path] = f"{_FILE}: {err}"
        self._requests.append((unreadable, set_parameters, calibrations))
        self.executor.create_task(self._answer_oldest)  # tasks may run in any order

    def _answer_oldest(self) -> None:
        """Answer the oldest request, whose calibrations are held until then, so that they are read once."""
        self._unreadable, set_parameters, _ = self._requests.popleft()
        set_parameters()
        self._unreadable = {}
