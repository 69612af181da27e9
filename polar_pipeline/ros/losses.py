"""Counts the messages that the middleware lost before they reached a subscription."""

from __future__ import annotations

from typing import Any

from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy


class LossCounter:
    """Asks the middleware how many messages a subscription has lost.

    rclpy would call back instead (`message_lost`), and with its events executor that is a deadlock: its thread takes
    the event and waits for the reader's lock, which the middleware's thread holds while it reports the next loss
    (ros2/rmw_fastrtps #890). Without a callback the middleware reports nothing, so the second half of it never happens.
    For the same reason the node's topics have no other callbacks for QoS events.

    Not counted: what was sent before publisher and subscription found each other, and what a newer message replaced in
    the subscription's own queue.

    Args:
        subscription: Of rclpy.
    """

    def __init__(self, subscription: Any) -> None:
        make: Any = getattr(_rclpy, "EventHandle", None) or getattr(_rclpy, "QoSEvent")  # noqa: B009 - on Humble
        try:
            self._event = make(subscription.handle, _rclpy.rcl_subscription_event_type_t.RCL_SUBSCRIPTION_MESSAGE_LOST)
        except _rclpy.UnsupportedEventTypeError:
            self._event = None
        self._reported = 0

    def poll(self) -> int:
        """Messages lost since the last call; 0 where the middleware does not count them."""
        if self._event is None:
            return 0
        with self._event:
            lost = int(self._event.take_event().total_count)
        found, self._reported = lost - self._reported, lost
        return max(0, found)

    def close(self) -> None:
        """Release the middleware's handle, before that of the subscription."""
        if self._event is not None:
            self._event.destroy_when_not_in_use()
            self._event = None
