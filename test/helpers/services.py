"""Clients of ROS services whose requests and responses are not lost. Needs ROS.

A client may see a service before the service's node sees the client. A response that is sent in between is dropped, and
the client waits forever: a known race in the discovery of Fast DDS (ros2/rmw_fastrtps, issue 842).
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Union

import pytest
from rcl_interfaces.srv import GetParameters, ListParameters
from rclpy.parameter import parameter_value_to_python
from spinner import destroy
from support import TIMEOUT, wait_for

#: Seconds after which a request is repeated.
AGAIN = 0.5


def client_of(node: Any, kind: Any, service: str) -> Any:
    """A client that its service's node has discovered. The client's node spins in another thread.

    A participant's endpoints are discovered in the order in which they were made. A request that changes nothing is
    repeated, through a client that is younger, until it is answered: then both ends of the client are known too.

    Args:
        node: Of rclpy, which gets the client.
        kind: Type of the service.
        service: Its name, `/node/service`.
    """
    client = node.create_client(kind, service)
    assert client.wait_for_service(TIMEOUT), service
    server = service.rsplit("/", 1)[0]
    probe = node.create_client(ListParameters, f"{server}/list_parameters")
    assert probe.wait_for_service(TIMEOUT), server
    repeat(lambda: probe.call_async(ListParameters.Request()), f"any answer of {server}")
    destroy(node, probe)
    return client


def ask(node: Any, kind: Any, service: str, request: Any = None) -> Any:
    """The answer of a service; by default to a request with nothing in it."""
    client = client_of(node, kind, service)
    future = client.call_async(kind.Request() if request is None else request)
    wait_for(future.done, f"the answer of {service}")
    destroy(node, client)
    return future.result()


def get_parameters(node: Any, name: str, *names: str) -> List[Any]:
    """Values of the parameters of another node."""
    answer = ask(node, GetParameters, f"{name}/get_parameters", GetParameters.Request(names=names))
    return [parameter_value_to_python(value) for value in answer.values]


def change_state(node: Any, name: str, transition: Union[str, int]) -> bool:
    """Whether a managed node made a transition, which is its label or its number."""
    srv = pytest.importorskip("lifecycle_msgs.srv")
    request = srv.ChangeState.Request()
    setattr(request.transition, "label" if isinstance(transition, str) else "id", transition)
    return bool(ask(node, srv.ChangeState, f"{name}/change_state", request).success)


def repeat(send: Callable[[], Any], what: str) -> Any:
    """The first answer to a request that may be sent many times."""
    sent: Dict[float, Any] = {}

    def answered() -> Any:
        now = time.monotonic()
        if not sent or now > max(sent) + AGAIN:
            sent[now] = send()
        return next((future for future in sent.values() if future.done()), None)

    return wait_for(answered, what).result()
