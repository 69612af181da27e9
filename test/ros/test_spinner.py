"""Nodes that spin beside tests. Needs ROS."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import sys
from typing import Iterator, List

import pytest

rclpy = pytest.importorskip("rclpy")

from spinner import Spinner, destroy
from std_msgs.msg import Float32
from support import wait_for

pytestmark = pytest.mark.ros


@pytest.fixture
def _many_switches() -> Iterator[None]:
    """Python changes threads often, so that what may come in between does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_many_switches")
def test_a_node_hears_after_endpoints_were_destroyed() -> None:
    """Each is destroyed while messages come for it."""
    context = rclpy.Context()
    context.init()
    node = rclpy.create_node("peer", context=context)
    spinner = Spinner(context, node)
    heard: List[Float32] = []
    node.create_subscription(Float32, "kept", heard.append, 10)
    flood, kept = (node.create_publisher(Float32, topic, 10) for topic in ("flood", "kept"))
    for _ in range(200):
        came: List[Float32] = []
        visitor = node.create_subscription(Float32, "flood", came.append, 10)
        wait_for(lambda c=came: flood.publish(Float32()) or c, "a message")
        for _ in range(10):
            flood.publish(Float32())
        destroy(node, visitor)
    heard.clear()
    wait_for(lambda: kept.publish(Float32()) or heard, "a message on the other topic")
    spinner.close()
    node.destroy_node()
    context.shutdown()


def test_what_ends_the_thread_is_raised() -> None:
    context = rclpy.Context()
    context.init()
    node = rclpy.create_node("peer", context=context)
    spinner = Spinner(context, node)

    def fail() -> None:
        raise ValueError("from a callback")

    node.create_timer(0.01, fail)
    wait_for(lambda: not spinner.is_alive, "the end of the thread")
    with pytest.raises(RuntimeError, match="ended before the test") as raised:
        spinner.close()
    assert str(raised.value.__cause__) == "from a callback"
    node.destroy_node()
    context.shutdown()
