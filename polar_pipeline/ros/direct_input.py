"""An input whose messages come from rcl, without rclpy's copy of them."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, Optional, Type

import numpy as np
from rclpy.waitable import NumberOfEntities, Waitable

from polar_pipeline.ros._rcl import Rcl


class DirectInput(Waitable):  # type: ignore[misc]
    """Takes a subscription's messages through rcl, and calls its callback.

    To the executor it stands for the subscription, which the node has to hide from it: an executor would take the
    messages of a subscription itself, copy them, and hold the interpreter's lock meanwhile.

    Args:
        node: Of the subscription.
        subscription: Of rclpy, with `raw=True` and a callback that raises nothing.
        rcl: The functions of rcl.
        memory: Gives memory to take the next message into, or None.
    """

    def __init__(self, node: Any, subscription: Any, rcl: Rcl, memory: Callable[[], Optional[np.ndarray]]) -> None:
        super().__init__(node.default_callback_group)
        self._subscription = subscription
        self._rcl = rcl
        self._memory = memory
        self._index: Optional[int] = None
        self._uses = 0
        self._is_closed = False
        self._guarded_take = node.guarded(self._take)

    def __enter__(self) -> None:
        self._subscription.handle.__enter__()
        self._uses += 1

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._uses -= 1
        self._subscription.handle.__exit__(kind, value, trace)

    def get_num_entities(self) -> NumberOfEntities:
        """What it adds to a wait set."""
        return NumberOfEntities(1, 0, 0, 0, 0, 0)

    def add_to_wait_set(self, wait_set: Any) -> None:
        """Wait for messages; of a subscription that is gone there are none, and executors call this all the same."""
        self._index = wait_set.add_subscription(self._subscription.handle) if self._uses else None

    def is_ready(self, wait_set: Any) -> bool:
        """Whether there is a message."""
        return self._index is not None and bool(wait_set.is_ready("subscription", self._index))

    def take_data(self) -> None:
        """Take a message and call back: `execute` would come a round of the executor later."""
        self._guarded_take()

    async def execute(self, _: Any) -> None:
        """Nothing: `take_data` has done it."""

    def close(self) -> None:
        """Take no more: before the subscription is destroyed, an executor may have seen a message already."""
        self._is_closed = True

    def _take(self) -> None:
        if self._is_closed:
            return
        message = self._rcl.take(self._subscription, self._memory())
        if message is not None:
            self._subscription.callback(message)
