"""A bounded queue between two threads that drops the oldest item when it is full. Imports no ROS."""

from __future__ import annotations

import threading
from collections import deque
from typing import Deque, Generic, Optional, TypeVar

T = TypeVar("T")


class DropOldestQueue(Generic[T]):
    """A queue of a few items; when it is full, the newest item replaces the oldest.

    Args:
        size: Items that may wait.
    """

    def __init__(self, size: int) -> None:
        self._condition = threading.Condition()
        self._items: Deque[T] = deque(maxlen=size)
        self._closed = False

    def put(self, item: T) -> bool:
        """Append an item, unless the queue is closed; True if that dropped the oldest one."""
        with self._condition:
            if self._closed:
                return False
            is_full = len(self._items) == self._items.maxlen
            self._items.append(item)
            self._condition.notify()
            return is_full

    def take(self, wait: bool = True) -> Optional[T]:
        """Remove and return the oldest item; None if the queue is closed, or is empty and `wait` is False."""
        with self._condition:
            if wait:
                self._condition.wait_for(lambda: self._closed or self._items)
            return self._items.popleft() if self._items and not self._closed else None

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; return whether there is an item, or the queue is closed."""
        with self._condition:
            return self._condition.wait_for(lambda: self._closed or bool(self._items), timeout)

    def close(self) -> None:
        """Drop all items, and wake the threads that wait; `take` returns None from now on."""
        with self._condition:
            self._closed = True
            self._items.clear()
            self._condition.notify_all()
