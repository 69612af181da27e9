"""Services that are answered later, from another thread, while the executor goes on."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Callable


def create_deferred_service(node: Any, kind: Any, name: str, callback: Callable[[Any, Any], Any]) -> Any:
    """A service whose callback may return a future of the response in its place.

    rclpy provides coroutines as callbacks for this, but the events executor of Jazzy does not await them, and that of
    Kilted crashes on what they raise. Every executor hands what the callback returns to the service's `send_response`,
    with the header of the request; there the response is sent when the future is done.

    Args:
        node: The node that offers it.
        kind: Type of the service.
        name: Its name.
        callback: Called by the executor with request and response; a future that it returns must not fail.
    """
    service = node.create_service(kind, name, callback)
    send = service.send_response

    def send_when_done(answer: Any, header: Any) -> None:
        if isinstance(answer, Future):
            answer.add_done_callback(lambda done: send(done.result(), header))
        else:
            send(answer, header)

    service.send_response = send_when_done
    return service
