"""Nodes that spin beside a test. Needs ROS."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from rclpy.exceptions import InvalidHandle
from rclpy.executors import SingleThreadedExecutor


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
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def add(self, node: Any) -> None:
        """Spin another one too."""
        self._executor.add_node(node)

    def _spin(self) -> None:
        while not self._stop.is_set():
            with suppress(InvalidHandle):  # of what the test destroyed meanwhile
                self._executor.spin_once(timeout_sec=0.05)

    def close(self) -> None:
        """End the thread; the nodes stay."""
        self._stop.set()
        self._thread.join()
        self._executor.shutdown()
