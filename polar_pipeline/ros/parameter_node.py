"""A node with the parameters of this package: how they are declared, converted and refused."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional, Sequence

from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rcl_interfaces.srv import SetParameters, SetParametersAtomically
from rclpy.exceptions import ParameterException
from rclpy.parameter import Parameter as RosParameter

from polar_pipeline._util.text import printable, quoted
from polar_pipeline.live.diagnostics import MAX_REASON, Diagnostics
from polar_pipeline.live.parameters import PARAMETERS, Parameter
from polar_pipeline.live.preset import is_known, judge_unknown, params_files
from polar_pipeline.live.problems import ProblemLog
from polar_pipeline.ros.descriptor import make_descriptor
from polar_pipeline.ros.guarded_node import GuardedNode
from polar_pipeline.ros.parameter_files import ParameterFiles


class ParameterNode(GuardedNode):
    """Declares every parameter of `PARAMETERS`, and checks each value by itself.

    Args:
        argv: The command line of this process, `sys.argv` by default: it names the files that parameters come from.
        arguments: Passed to `rclpy.node.Node`.

    Attributes:
        files: Reads the files that parameters name.
    """

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        self.files = ParameterFiles()  # rclpy creates its services early
        super().__init__("polar_pipeline", **arguments)
        self._argv = [*(sys.argv if argv is None else argv), *(arguments.get("cli_args") or ())]
        self._name = self.get_fully_qualified_name().lstrip("/")
        self._diagnostics = Diagnostics(self._name)
        self._problems = ProblemLog(self._diagnostics, self.get_logger())
        self._wrong_values: Dict[str, str] = {}
        for row in PARAMETERS.values():
            self._declare(row)

    def refuse_error(self, err: Exception) -> None:
        """Count and log an unexpected error; for any thread."""
        self._problems.refuse_error(err)

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
        """As rclpy's; see `set_parameters_atomically`."""
        return [self.set_parameters_atomically([change]) for change in parameter_list]

    def set_parameters_atomically(self, parameter_list: List[Any]) -> SetParametersResult:
        """As rclpy's, but whole numbers do for floats, and a parameter that is fixed can be set to the value it has.

        Refused changes show in the diagnostics.
        """
        try:
            changes = [self._converted(change) for change in parameter_list]
            result = super().set_parameters_atomically([change for change in changes if change is not None])
        except ValueError as err:
            result = SetParametersResult(successful=False, reason=printable(str(err), MAX_REASON))
        if not result.successful:
            self._problems.refuse("parameter", result.reason)
        return result

    def _converted(self, change: Any) -> Any:
        """A change with the value as its parameter has it; None if the parameter is fixed and keeps its value.

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

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """See `GuardedNode`; requests to set parameters wait for their files."""
        if srv_type in (SetParameters, SetParametersAtomically):
            callback = self.files.first(self, self.guarded(callback))
        return super().create_service(srv_type, srv_name, callback, *arguments, **options)

    def accept(self, changes: List[Any]) -> None:
        """Forget that the values of parameters given at the start were wrong: they have others now."""
        for change in changes:
            self._wrong_values.pop(change.name, None)
