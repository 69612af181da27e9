"""Frames as they wait for the worker. Imports no ROS."""

from __future__ import annotations

import threading
from collections import deque
from typing import Deque, Generic, NamedTuple, Optional, TypeVar

T = TypeVar("T")


class Frame(NamedTuple):
    """A raw image as it came in.

    Attributes:
        cdr: Serialized `sensor_msgs/Image`.
        received: When, on `time.perf_counter`.
        time_ns: When, on the node's clock; 0 while a simulated clock has not started.
    """

    cdr: bytes
    received: float
    time_ns: int


class Mailbox(Generic[T]):
    """A few slots between two threads: when they are full, the newest item takes the place of the oldest.

    Args:
        size: Items that may wait.
    """

    def __init__(self, size: int) -> None:
        self._condition = threading.Condition()
        self._items: Deque[T] = deque(maxlen=size)
        self._closed = False

    def put(self, item: T) -> bool:
        """Leave an item; True if that pushed out one that nobody had taken."""
        with self._condition:
            full = len(self._items) == self._items.maxlen
            self._items.append(item)
            self._condition.notify()
            return full

    def take(self, wait: bool = True) -> Optional[T]:
        """The oldest item; None once closed, or where there is none and nobody is to wait for one."""
        with self._condition:
            if wait:
                self._condition.wait_for(lambda: self._closed or self._items)
            return self._items.popleft() if self._items and not self._closed else None

    def close(self) -> None:
        """Wake the taker for good."""
        with self._condition:
            self._closed = True
            self._condition.notify()
