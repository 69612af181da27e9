"""Serialized messages from the middleware, without rclpy's copy of them."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import gc
from typing import Any, Iterator, List, Optional

import numpy as np
import pytest
from support import wait_for

rclpy = pytest.importorskip("rclpy")

from rclpy.executors import SingleThreadedExecutor
from sensor_msgs.msg import Image

from polar_pipeline import messages
from polar_pipeline.live.processor import FrameProcessor
from polar_pipeline.ros import transport
from polar_pipeline.ros.main import EventsExecutor
from polar_pipeline.ros.node import PolarNode
from polar_pipeline.ros.transport import Rcl, load_rcl

pytestmark = pytest.mark.ros
SHAPE = (48, 64)


def image(number: int, shape: Any = SHAPE) -> bytes:
    array = np.random.default_rng(number).integers(10, 200, shape).astype(np.uint8)
    return bytes(messages.encode_image(number, "camera", "mono8", array))


class Line:
    """A publisher and a subscription that no executor looks at."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        self.context.init()
        self.node = rclpy.create_node("line", context=self.context)
        self.publisher = self.node.create_publisher(Image, "line", 10)
        self.subscription = self.node.create_subscription(Image, "line", lambda _: None, 10, raw=True)
        wait_for(self.publisher.get_subscription_count, "the subscription")

    def close(self) -> None:
        self.node.destroy_node()
        self.context.try_shutdown()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


def taken(rcl: Rcl, line: Line, memory: Optional[np.ndarray] = None) -> memoryview:
    found: memoryview = wait_for(lambda: rcl.take(line.subscription, memory), "a message")
    return found


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_messages_are_taken_as_they_were_sent(line: Line) -> None:
    rcl = Rcl()
    assert rcl.take(line.subscription) is None
    sent = [image(0), image(1, (16, 16)), image(2, (400, 500))]
    for cdr in sent:
        line.publisher.publish(cdr)
    assert [bytes(taken(rcl, line)) for _ in sent] == sent
    assert rcl.take(line.subscription) is None


def test_a_message_outlives_the_next_ones_and_the_subscription(line: Line) -> None:
    rcl, kept = Rcl(), []
    for number in range(5):
        line.publisher.publish(image(number))
        kept.append(messages.decode_image(taken(rcl, line)).data)  # views of the message's memory
    line.node.destroy_subscription(line.subscription)
    del rcl
    gc.collect()
    for number, data in enumerate(kept):
        np.testing.assert_array_equal(data, messages.decode_image(image(number)).data)


def test_memory_of_messages_is_freed(line: Line) -> None:
    rcl, freed = Rcl(), []
    free = rcl._free
    rcl._free = lambda message: freed.append(message) or free(message)
    for number in range(5):
        line.publisher.publish(image(number))
        found = taken(rcl, line)
        view = np.frombuffer(found, np.uint8)[100:200]
        calls = len(freed)
        del found
        assert len(freed) == calls, "an array of it is in use"
        del view
        assert len(freed) == calls + 1


def test_a_message_comes_into_the_memory_given(line: Line) -> None:
    rcl, cdr = Rcl(), image(1)
    for spare in (0, 1, 1000):
        memory = np.full(len(cdr) + spare, 0xEE, np.uint8)
        assert rcl.take(line.subscription, memory) is None
        line.publisher.publish(cdr)
        found = taken(rcl, line, memory)
        assert bytes(found) == cdr
        assert address(found) == memory.ctypes.data
        assert (memory[len(cdr) :] == 0xEE).all()


def test_a_message_that_does_not_fit_comes_into_memory_of_its_own(line: Line) -> None:
    rcl, freed = Rcl(), []
    free = rcl._free
    rcl._free = lambda message: freed.append(message) or free(message)
    cdr = image(1)
    for size in (1, 64, len(cdr) - 1):
        memory = np.full(size, 0xEE, np.uint8)
        line.publisher.publish(cdr)
        found = taken(rcl, line, memory)
        assert bytes(found) == cdr
        assert (memory == 0xEE).all(), "not freed, not written to"
        calls = len(freed)
        del found
        assert len(freed) == calls + 1
    assert rcl.take(line.subscription, memory) is None
    assert len(freed) == 3, "memory that was given is not freed"


def test_a_subscription_that_is_gone(line: Line) -> None:
    line.node.destroy_subscription(line.subscription)
    with pytest.raises(Exception, match=r"(?i)destroy"):
        Rcl().take(line.subscription)


@pytest.mark.parametrize(("code", "error"), [(10, MemoryError), (1, RuntimeError)])
def test_what_the_middleware_refuses_is_said(line: Line, code: int, error: Any) -> None:
    rcl = Rcl()
    rcl._take = lambda *_: code
    with pytest.raises(error, match=rf"/line cannot be taken from: .* \({code}\)"):
        rcl.take(line.subscription)


@pytest.mark.parametrize("executor", [EventsExecutor, SingleThreadedExecutor])
@pytest.mark.parametrize("way", ["direct", "rclpy"])
def test_the_node_takes_every_frame(executor: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both executors; and through rclpy, where rcl's functions are not found."""
    if way == "rclpy":
        monkeypatch.setattr(transport.ctypes, "CDLL", lambda _: object())  # a library without the functions
        assert load_rcl() is None
    context = rclpy.Context()
    context.init()
    heard: List[Any] = []
    received = PolarNode._on_image
    monkeypatch.setattr(PolarNode, "_on_image", lambda self, cdr: heard.append(cdr) or received(self, cdr))
    given: List[np.ndarray] = []
    monkeypatch.setattr(FrameProcessor, "message_memory", lambda _: given.append(np.empty(100, np.uint8)))
    polar = PolarNode(context=context, parameter_overrides=[rclpy.Parameter("backend", value="cpu")])
    monkeypatch.undo()
    peer = rclpy.create_node("peer", context=context)
    spinning = executor(context=context)
    spinning.add_node(polar)
    try:
        camera = peer.create_publisher(Image, "image_raw", 10)
        wait_for(camera.get_subscription_count, "the node's subscription")
        sent = [b"", image(1), b"\0\1\0\0", image(2)]
        for count, cdr in enumerate(sent, 1):
            camera.publish(cdr)
            wait_for(lambda count=count: spinning.spin_once(timeout_sec=0.1) or len(heard) == count, "the message")
        assert [bytes(cdr) for cdr in heard[1::2]] == sent[1::2]
        assert {type(cdr) for cdr in heard} == {memoryview if way == "direct" else bytes}
        assert (len(given) >= len(sent)) == (way == "direct"), "asked for memory"
        assert (polar.input in polar.subscriptions) == (way == "rclpy")
        values = polar._diagnostics.statuses("", "")[0].values
        assert values["received"] == "4"
    finally:
        spinning.shutdown()
        polar.close()
        polar.destroy_node()
        peer.destroy_node()
        context.try_shutdown()


@pytest.mark.parametrize("executor", [EventsExecutor, SingleThreadedExecutor])
def test_an_executor_outlives_the_subscription(executor: Any) -> None:
    """A node may be destroyed while its executor still waits."""
    context = rclpy.Context()
    context.init()
    polar = PolarNode(context=context, parameter_overrides=[rclpy.Parameter("backend", value="cpu")])
    spinning = executor(context=context)
    spinning.add_node(polar)
    spinning.spin_once(timeout_sec=0.1)
    polar.destroy_subscription(polar.input)
    for _ in range(3):
        spinning.spin_once(timeout_sec=0.1)
    spinning.shutdown()
    polar.close()
    polar.destroy_node()
    context.try_shutdown()
