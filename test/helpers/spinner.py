"""Nodes that spin beside a test. Needs ROS."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

from rclpy.executors import SingleThreadedExecutor
from rclpy.publisher import Publisher
from rclpy.subscription import Subscription
from support import wait_for


def between_callbacks(node: Any, action: Callable[[], None]) -> None:
    """Call a function in the thread in which a node spins, and wait until it has returned.

    What a node that spins has must be destroyed there. rclpy gives an endpoint its callback group before it takes what
    came: if another thread destroys the endpoint in between, the group is never given back, and nothing that comes to
    the node is heard any more.

    Args:
        node: Of a `Spinner`.
        action: What to call.
    """
    wait_for(node.executor.create_task(action).done, "the thread in which the node spins")


def destroy(node: Any, *endpoints: Any) -> None:
    """Destroy publishers, subscriptions and clients of a node that spins."""

    def destroy_all() -> None:
        for endpoint in endpoints:
            if isinstance(endpoint, Publisher):
                node.destroy_publisher(endpoint)
            elif isinstance(endpoint, Subscription):
                node.destroy_subscription(endpoint)
            else:
                node.destroy_client(endpoint)

    between_callbacks(node, destroy_all)


class Spinner:
    """Spins nodes in a thread, until it is closed.

    Args:
        context: Of rclpy.
        nodes: Of that context.
    """

    def __init__(self, context: Any, *nodes: Any) -> None:
        self._executor = SingleThreadedExecutor(context=context)
        for node in nodes:
            self.add(node)
        self._stop = threading.Event()
        self._failure: Optional[Exception] = None
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def add(self, node: Any) -> None:
        """Spin another one too."""
        self._executor.add_node(node)

    def end(self, node: Any) -> None:
        """Close and destroy one that has a `close`."""

        def destroy_node() -> None:
            node.close()
            node.destroy_node()
            self._executor.remove_node(node)

        between_callbacks(node, destroy_node)

    def _spin(self) -> None:
        try:
            while not self._stop.is_set():
                self._executor.spin_once(timeout_sec=0.05)
        except Exception as err:  # noqa: BLE001 - raised by `close`
            self._failure = err

    def close(self) -> None:
        """End the thread; the nodes stay. Raises what ended it before."""
        self._stop.set()
        self._thread.join()
        self._executor.shutdown()
        if self._failure is not None:
            raise RuntimeError("the thread in which nodes of the test spin ended before the test") from self._failure
