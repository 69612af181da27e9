"""Asks a running node for its parameters."""

from __future__ import annotations

from typing import Any, Dict, List

import rclpy
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import GetParameters
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from polar_pipeline.ros.parameters import PARAMETERS


def read_parameters(name: str, wait: float) -> Dict[str, Any]:
    """The parameters of a running node of this package.

    Args:
        name: The node's name with its namespace, such as `/front/polar_pipeline`.
        wait: Seconds to wait for it.

    Returns:
        Name -> value, in the table's order; those that a node of another version lacks are left out.

    Raises:
        RuntimeError: No such node answers, or none can be called so.
    """
    full = f"/{name.strip('/')}"
    # signals stay with the caller, whose exceptions end the wait wherever it is
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = Node("polar_pipeline_params")
        try:
            client = node.create_client(GetParameters, f"{full}/get_parameters")
            if not client.wait_for_service(wait):
                others = ", ".join(_running(node)) or "none"
                raise RuntimeError(f"no node {full} within {wait:g} s; running nodes of this package: {others}")
            future = client.call_async(GetParameters.Request(names=list(PARAMETERS)))
            rclpy.spin_until_future_complete(node, future, timeout_sec=wait)
            if not future.done():
                raise RuntimeError(f"{full} does not answer within {wait:g} s")
            pairs = zip(PARAMETERS, future.result().values)
            messages = [ParameterMessage(name=key, value=value) for key, value in pairs if value.type]
            if not messages:
                raise RuntimeError(f"{full} has no parameter of this package")
            return {row.name: row.value for row in map(Parameter.from_parameter_msg, messages)}
        except NameValidationException as err:
            raise RuntimeError(f"{name!r} is no node's name: {str(err).splitlines()[0]}") from err
        finally:
            node.destroy_node()
    finally:
        rclpy.shutdown()


def _running(node: Node) -> List[str]:
    """Nodes that offer a snapshot, as those of this package do."""
    services = node.get_service_names_and_types()
    return sorted(name[: -len("/snapshot")] for name, _ in services if name.endswith("/snapshot"))
