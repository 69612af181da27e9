"""Reads the parameters of a running node."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Sequence

import rclpy
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import GetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from polar_pipeline._util.text import printable, quoted
from polar_pipeline.ros.names import RULE, is_name
from polar_pipeline.ros.parameters import PARAMETERS
from polar_pipeline.ros.preset import plain

#: Seconds after which a request is repeated.
_AGAIN = 2.0


def read_parameters(name: str, wait: float) -> Dict[str, Any]:
    """The parameters of a running node of this package.

    Args:
        name: The node's name with its namespace, such as `/front/polar_pipeline`.
        wait: Seconds to wait for it.

    Returns:
        Name -> value, in the table's order; those that a node of another version lacks are left out.

    Raises:
        RuntimeError: No such node answers, the name is not valid, or a value of the answer cannot be kept in a file.
    """
    full = f"/{name.strip('/')}"
    if not is_name(full):
        raise RuntimeError(f"{quoted(name)} is no node's name, which needs {RULE}")
    # signals stay with the caller, whose exceptions end the wait wherever it is
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = Node("polar_pipeline_params")
        try:
            client = node.create_client(GetParameters, f"{full}/get_parameters")
            if not client.wait_for_service(wait):
                others = printable(", ".join(_running(node))) or "none"
                raise RuntimeError(f"no node {full} within {wait:g} s; running nodes of this package: {others}")
            answer = _ask(node, client, wait)
            if answer is None:
                raise RuntimeError(f"{full} does not answer within {wait:g} s")
            return _values(full, answer.values)
        finally:
            node.destroy_node()
    finally:
        rclpy.shutdown()


def _ask(node: Node, client: Any, wait: float) -> Any:
    """The answer to a request for all parameters; None if none comes within so many seconds.

    The request is repeated, since a node drops the response to a client that it has not discovered yet. Any answer will
    do: a slow node may give the first one after the second request.
    """
    end = time.monotonic() + wait
    requests: List[Any] = []
    while True:
        requests.append(client.call_async(GetParameters.Request(names=list(PARAMETERS))))
        left = end - time.monotonic()
        rclpy.spin_until_future_complete(node, requests[-1], timeout_sec=max(min(left, _AGAIN), 0.0))
        for future in requests:
            if future.done():
                return future.result()
        if left <= _AGAIN:
            return None


def _values(node: str, answers: Sequence[Any]) -> Dict[str, Any]:
    """The values in a node's answer, which another program under its name may have given."""
    if answers and len(answers) != len(PARAMETERS):
        raise RuntimeError(f"{node} answers with {len(answers)} values when asked for {len(PARAMETERS)}")
    found = {name: _value(node, name, answer) for name, answer in zip(PARAMETERS, answers) if answer.type}
    if not found:
        raise RuntimeError(f"{node} has no parameter of this package")
    return found


def _value(node: str, name: str, answer: Any) -> Any:
    try:
        value = Parameter.from_parameter_msg(ParameterMessage(name=name, value=answer)).value
        plain(value)  # which refuses what a file cannot hold
    except ValueError as err:  # also of a type that ROS does not have
        raise RuntimeError(f"{node}: {name} cannot be saved: {printable(str(err))}") from err
    return value


def _running(node: Node) -> List[str]:
    """Nodes that offer a snapshot, as those of this package do."""
    services = node.get_service_names_and_types()
    return sorted(name[: -len("/snapshot")] for name, _ in services if name.endswith("/snapshot"))
