"""Serialized messages between node and middleware, without rclpy's copies of them."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Iterator, List, Optional, Tuple

import numpy as np
import pytest
from support import IS_FAST_DDS, TIMEOUT, wait_for

rclpy = pytest.importorskip("rclpy")

from rclpy.executors import SingleThreadedExecutor
from sensor_msgs.msg import Image

from polar_pipeline.backends.backend import Buffers
from polar_pipeline.live.processor import FrameProcessor
from polar_pipeline.recordings import messages
from polar_pipeline.ros import transport
from polar_pipeline.ros.main import EventsExecutor
from polar_pipeline.ros.node import PolarNode
from polar_pipeline.ros.transport import MessagePublisher, Rcl, load_rcl

pytestmark = pytest.mark.ros
TOPICS = ("one", "two", "three", "four", "five", "six")


def image(number: int, shape: Any = (48, 64)) -> bytes:
    array = np.random.default_rng(number).integers(10, 200, shape).astype(np.uint8)
    return bytes(messages.encode_image(number, "camera", "mono8", array))


class Line:
    """Publishers and subscriptions of six topics, which no executor looks at."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        self.context.init()
        self.node = rclpy.create_node("line", context=self.context)
        self.publishers = [self.node.create_publisher(Image, topic, 10) for topic in TOPICS]
        self.subscriptions = [
            self.node.create_subscription(Image, topic, lambda _: None, 10, raw=True) for topic in TOPICS
        ]
        self.publisher, self.subscription = self.publishers[0], self.subscriptions[0]
        self.freed: List[Any] = []  # messages whose memory was freed
        self.rcl = Rcl()
        free = self.rcl._free
        self.rcl._free = lambda message: self.freed.append(message) or free(message)
        wait_for(lambda: all(row.get_subscription_count() for row in self.publishers), "the subscriptions")

    def taken(self, memory: Optional[np.ndarray] = None, number: int = 0) -> memoryview:
        """The next message of a topic."""
        found: memoryview = wait_for(lambda: self.rcl.take(self.subscriptions[number], memory), "a message")
        return found

    def close(self) -> None:
        self.node.destroy_node()
        self.context.try_shutdown()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


# ---------------------------------------------------------------------------------------------------------- taking


def test_messages_are_taken_as_they_were_sent(line: Line) -> None:
    assert line.rcl.take(line.subscription) is None
    sent = [image(0), image(1, (16, 16)), image(2, (400, 500))]
    for cdr in sent:
        line.publisher.publish(cdr)
    assert [bytes(line.taken()) for _ in sent] == sent
    assert line.rcl.take(line.subscription) is None


def test_a_message_outlives_the_next_ones_and_the_subscription(line: Line) -> None:
    kept = []
    for number in range(5):
        line.publisher.publish(image(number))
        kept.append(messages.decode_image(line.taken()).data)  # views of the message's memory
    line.node.destroy_subscription(line.subscription)
    del line.rcl
    gc.collect()
    for number, data in enumerate(kept):
        np.testing.assert_array_equal(data, messages.decode_image(image(number)).data)


def test_memory_of_messages_is_freed(line: Line) -> None:
    for number in range(5):
        line.publisher.publish(image(number))
        found = line.taken()
        view = np.frombuffer(found, np.uint8)[100:200]
        calls = len(line.freed)
        del found
        assert len(line.freed) == calls, "an array of it is in use"
        del view
        assert len(line.freed) == calls + 1


@pytest.mark.parametrize("spare", [-1, 0, 1, 1000, 1 - len(image(1))])
def test_a_message_comes_into_the_memory_given_if_it_fits(line: Line, spare: int) -> None:
    cdr = image(1)
    memory = np.full(len(cdr) + spare, 0xEE, np.uint8)
    assert line.rcl.take(line.subscription, memory) is None
    line.publisher.publish(cdr)
    found = line.taken(memory)
    assert bytes(found) == cdr
    address = np.frombuffer(found, np.uint8).ctypes.data
    assert (address == memory.ctypes.data) == (spare >= 0)
    assert (memory[len(cdr) if spare >= 0 else 0 :] == 0xEE).all(), "written to"
    calls = len(line.freed)
    del found
    assert len(line.freed) - calls == (spare < 0), "memory that was given is not freed"


@pytest.mark.parametrize("size", [1, 99, 100, 101])
def test_memory_that_is_resized_to_a_message_is_used_if_it_fits(line: Line, size: int) -> None:
    """CycloneDDS resizes it, also where Fast DDS only writes into it."""
    resize = ctypes.CDLL("librcutils.so").rcutils_uint8_array_resize
    resize.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

    def take(_: Any, message: Any, *__: Any) -> int:
        failed: int = resize(message, size)
        ctypes.memset(message._obj.buffer, 7, size)
        message._obj.length = size
        return failed

    line.rcl._take = take
    memory = np.zeros(100, np.uint8)
    found = line.rcl.take(line.subscription, memory)
    assert found == bytes([7] * size)
    assert np.count_nonzero(memory) == (size if size <= 100 else 0)
    del found
    assert len(line.freed) == (size > 100)


def test_a_subscription_that_is_gone(line: Line) -> None:
    line.node.destroy_subscription(line.subscription)
    with pytest.raises(Exception, match=r"(?i)destroy"):
        line.rcl.take(line.subscription)


@pytest.mark.parametrize(("code", "error"), [(10, MemoryError), (1, RuntimeError)])
def test_what_the_middleware_refuses_is_said(line: Line, code: int, error: Any) -> None:
    line.rcl._take = lambda *_: code
    with pytest.raises(error, match=rf"/one cannot be taken from: .* \({code}\)"):
        line.rcl.take(line.subscription)


# ------------------------------------------------------------------------------------------------------ publishing


@pytest.fixture(params=["direct", "rclpy"])
def box(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagePublisher]:
    """By the middleware's own function, and as where that is not found."""
    if request.param == "rclpy":
        monkeypatch.setattr(transport.ctypes, "CDLL", lambda _: object())  # a library without the function
    background = ThreadPoolExecutor(1)
    made = MessagePublisher(background)
    assert (made._rcl is None) == (request.param == "rclpy")
    monkeypatch.undo()
    yield made
    background.shutdown()


def test_every_topic_gets_its_bytes(line: Line, box: MessagePublisher) -> None:
    """And the memory is free when a message is sent."""
    array = Buffers().get((40, 40), "uint8")
    for round_ in range(3):
        array[...] = round_
        cdr = messages.encode_image(round_, "camera", "mono8", array)
        box.send([(row, cdr if number else image(round_)) for number, row in enumerate(line.publishers)])
        box.send([])
    for number in range(len(TOPICS)):
        for round_ in range(3):
            cdr = bytes(line.taken(number=number))
            assert (messages.decode_image(cdr).data == round_).all() if number else cdr == image(round_)


@pytest.mark.parametrize("bad", range(3))
def test_one_that_cannot_be_sent_holds_up_no_other(line: Line, box: MessagePublisher, bad: int) -> None:
    line.node.destroy_publisher(line.publishers[bad])
    with pytest.raises(Exception, match=r"(?i)destroy"):
        box.send([(row, image(0)) for row in line.publishers[:3]])
    for number in {0, 1, 2} - {bad}:
        assert line.taken(number=number)


@pytest.mark.parametrize("names", [("large", "small", "last"), ("small", "large", "last")])
def test_while_one_is_sent_the_others_go(monkeypatch: pytest.MonkeyPatch, names: Tuple[str, ...]) -> None:
    background, done, last = ThreadPoolExecutor(1), [], threading.Event()
    box = MessagePublisher(background)

    def send(topic: Any, _: Any) -> None:
        assert topic != "large" or last.wait(TIMEOUT)
        done.append(topic)
        if topic == "last":
            last.set()

    monkeypatch.setattr(box, "_rcl", SimpleNamespace(publish=send))
    box.send([(name, b"") for name in names])
    assert done == ["small", "last", "large"]
    background.shutdown()


class Handle(contextlib.nullcontext):  # type: ignore[type-arg]
    """Of a publisher that the middleware does not know."""

    pointer = 0


def test_a_refusal_says_why(line: Line) -> None:
    box = MessagePublisher()
    unknown = SimpleNamespace(handle=Handle(), topic_name="/nowhere")
    for _ in range(2):  # the middleware's error is taken, and the next one is one of its own
        with pytest.raises(RuntimeError, match=r"/nowhere cannot be published: publisher pointer is invalid.*300"):
            box.send([(unknown, image(0))])
    box.send([(line.publisher, image(0))])
    assert line.taken()


# ------------------------------------------------------------------------------------------------------ in the node


@pytest.mark.parametrize("executor", [EventsExecutor, SingleThreadedExecutor])
@pytest.mark.parametrize("way", ["direct", "rclpy"])
def test_the_node_takes_every_frame(executor: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both executors, which outlive the subscription; and through rclpy, where rcl's functions are not found."""
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
        header = b"\0\1\0\0"
        sent = [b"" if IS_FAST_DDS else header, image(1), header, image(2)]  # rclpy cannot take b"" with CycloneDDS
        for count, cdr in enumerate(sent, 1):
            camera.publish(cdr)
            wait_for(lambda count=count: spinning.spin_once(timeout_sec=0.1) or len(heard) == count, "the message")
        assert [bytes(cdr) for cdr in heard[1::2]] == sent[1::2]
        assert {type(cdr) for cdr in heard} == {memoryview if way == "direct" else bytes}
        assert (len(given) >= len(sent)) == (way == "direct"), "asked for memory"
        assert (polar.input in polar.subscriptions) == (way == "rclpy")
        values = polar._diagnostics.statuses("", "")[0].values
        assert values["received"] == "4"
        polar.destroy_subscription(polar.input)
        for _ in range(3):
            spinning.spin_once(timeout_sec=0.1)
    finally:
        spinning.shutdown()
        polar.close()
        polar.destroy_node()
        peer.destroy_node()
        context.try_shutdown()
