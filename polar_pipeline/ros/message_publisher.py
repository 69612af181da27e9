"""Publishes serialized messages, two at once, through rcl where possible, else through rclpy. Imports no ROS."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Deque, Optional, Sequence

from polar_pipeline._util.cpus import available_cores
from polar_pipeline.live.publisher import OutgoingMessage
from polar_pipeline.ros._rcl import load_rcl


class MessagePublisher:
    """Publishes the messages of a frame, two at once.

    Fast DDS copies a message into the writer's history, and then, under a lock of the participant, into shared memory.
    Two threads take turns at that; a third would only delay what is sent first.

    One thread at a time calls `send`; a second thread, which belongs to this object, publishes beside it.
    """

    def __init__(self) -> None:
        self._rcl = load_rcl()
        self._helper = ThreadPoolExecutor(1, "polar_pipeline_sender") if available_cores() > 1 else None

    @property
    def is_direct(self) -> bool:
        """Whether the middleware reads messages where they lie, without a copy in Python."""
        return self._rcl is not None

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish messages of different topics, and wait until the middleware has them.

        Raises:
            RuntimeError: The middleware refuses one; the others are published all the same.
        """
        waiting = deque(messages)
        other = self._helper.submit(self._publish_waiting, waiting) if self._helper and len(messages) > 1 else None
        failures = [self._publish_waiting(waiting), other.result() if other else None]
        for failure in failures:
            if failure is not None:
                raise failure

    def _publish_waiting(self, waiting: Deque[OutgoingMessage]) -> Optional[RuntimeError]:
        """Publish messages that neither thread has taken yet, until there are no more; returns the last failure."""
        failure = None
        while True:
            try:
                message = waiting.popleft()
            except IndexError:
                return failure
            try:
                self._publish(message)
            except RuntimeError as err:
                failure = err

    def _publish(self, message: OutgoingMessage) -> None:
        if self._rcl is None:
            message.topic.publish(bytes(message.cdr))
        else:
            self._rcl.publish(message.topic, message.cdr)

    def close(self) -> None:
        """End the second thread."""
        if self._helper is not None:
            self._helper.shutdown()
