"""A node whose callbacks raise nothing, and whose services may answer later."""

from __future__ import annotations

import functools
from concurrent.futures import Future
from typing import Any, Callable, Iterator

from rclpy.node import Node


class GuardedNode(Node):  # type: ignore[misc]
    """A node that passes what its callbacks raise to `refuse_error`; a service answers all the same.

    rclpy would pass an exception on to the main loop, and leave undone what else was ready. rclpy's own subscriptions,
    services and timers are created through these methods too.

    Attributes:
        hidden_subscription: The one whose messages a `DirectInput` takes in place of the executor; None for no such.
    """

    hidden_subscription: Any = None  # rclpy looks at `subscriptions` early

    @property
    def subscriptions(self) -> Iterator[Any]:
        """Those whose messages the executor takes."""
        return (row for row in super().subscriptions if row is not self.hidden_subscription)

    def refuse_error(self, err: Exception) -> None:
        """Count and log an exception of a callback."""
        raise NotImplementedError

    def create_subscription(self, msg_type: Any, topic: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """As rclpy's, for rclpy's own subscriptions too (simulated time), with a callback that raises nothing."""
        return super().create_subscription(msg_type, topic, self.guarded(callback), *arguments, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *arguments: Any, **options: Any) -> Any:
        """As rclpy's, for rclpy's own services too (parameters), with a callback that raises nothing.

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
        """As rclpy's, with a callback that raises nothing."""
        return super().create_timer(timer_period_sec, self.guarded(callback), *arguments, **options)

    def guarded(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """A function that passes what `callback` raises to `refuse_error`, and then returns its last argument."""

        @functools.wraps(callback)  # rclpy looks at the signature
        def guarded(*arguments: Any) -> Any:
            try:
                return callback(*arguments)
            except Exception as err:  # noqa: BLE001
                self.refuse_error(err)
                return arguments[-1] if arguments else None  # a service's response as it is

        return guarded
