"""Serialized messages to the middleware, from where they lie."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from support import TIMEOUT, wait_for

rclpy = pytest.importorskip("rclpy")

from sensor_msgs.msg import Image
from spinner import Spinner, destroy

from polar_pipeline import messages
from polar_pipeline.backend import Buffers
from polar_pipeline.ros import transport
from polar_pipeline.ros.transport import MessagePublisher

pytestmark = pytest.mark.ros
TOPICS = ("one", "two", "three", "four", "five", "six")


class Post:
    """Publishers, and what arrives of each."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        self.context.init()
        self.node = rclpy.create_node("post", context=self.context)
        self.publishers = {topic: self.node.create_publisher(Image, topic, 10) for topic in TOPICS}
        self.heard: Dict[str, List[bytes]] = {topic: [] for topic in TOPICS}
        for topic in TOPICS:
            self.node.create_subscription(Image, topic, self.heard[topic].append, 10, raw=True)
        self.spinner = Spinner(self.context, self.node)
        wait_for(lambda: all(p.get_subscription_count() for p in self.publishers.values()), "the subscriptions")

    def close(self) -> None:
        self.spinner.close()
        self.node.destroy_node()
        self.context.try_shutdown()


@pytest.fixture
def post() -> Iterator[Post]:
    made = Post()
    yield made
    made.close()


@pytest.fixture(params=["direct", "rclpy"])
def box(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagePublisher]:
    """By the middleware's own function, and as where that is not found."""
    if request.param == "rclpy":
        monkeypatch.setattr(transport.ctypes, "CDLL", lambda _: object())  # a library without the function
    made = MessagePublisher()
    assert (made._rcl is None) == (request.param == "rclpy")
    monkeypatch.undo()
    yield made
    made.close()


def image(number: int) -> messages.Cdr:
    """A message in an array's own memory."""
    array = Buffers().get((20, 30 + number), "uint8")
    array[...] = number
    return messages.encode_image(number, "camera", "mono8", array)


def test_every_topic_gets_its_bytes(post: Post, box: MessagePublisher) -> None:
    outgoing = {topic: (post.publishers[topic], image(k)) for k, topic in enumerate(TOPICS)}
    box.send(list(outgoing.values()))
    box.send([outgoing["three"]])
    box.send([])
    wait_for(lambda: sum(map(len, post.heard.values())) == 7, "every message")
    for topic, heard in post.heard.items():
        assert heard == [bytes(outgoing[topic][1])] * (2 if topic == "three" else 1)


def test_the_memory_is_free_when_the_message_is_sent(post: Post, box: MessagePublisher) -> None:
    array = Buffers().get((40, 40), "uint8")
    for number in range(5):
        array[...] = number
        box.send([(post.publishers["one"], messages.encode_image(number, "camera", "mono8", array))])
    wait_for(lambda: len(post.heard["one"]) == 5, "every message")
    for number, cdr in enumerate(post.heard["one"]):
        assert (messages.decode_image(cdr).data == number).all()


@pytest.mark.parametrize("bad", range(3))
def test_one_that_cannot_be_sent_holds_up_no_other(post: Post, box: MessagePublisher, bad: int) -> None:
    outgoing = [(post.publishers[topic], image(k)) for k, topic in enumerate(TOPICS[:3])]
    destroy(post.node, outgoing[bad][0])
    with pytest.raises(Exception, match=r"(?i)destroy"):
        box.send(outgoing)
    others = [topic for k, topic in enumerate(TOPICS[:3]) if k != bad]
    wait_for(lambda: all(post.heard[topic] for topic in others), "the other messages")


@pytest.mark.parametrize("names", [("large", "small", "last"), ("small", "large", "last")])
def test_while_one_is_sent_the_others_go(monkeypatch: pytest.MonkeyPatch, names: Tuple[str, ...]) -> None:
    monkeypatch.setattr(transport, "available_cores", lambda: 2)
    box, done, last = MessagePublisher(), [], threading.Event()

    def send(message: Any) -> None:
        topic, _ = message
        assert topic != "large" or last.wait(TIMEOUT)
        done.append(topic)
        if topic == "last":
            last.set()

    monkeypatch.setattr(box, "_publish", send)
    box.send([(name, b"") for name in names])
    assert done == ["small", "last", "large"]
    box.close()


class Handle(contextlib.nullcontext):  # type: ignore[type-arg]
    """Of a publisher that the middleware does not know."""

    pointer = 0


def test_a_refusal_says_why(post: Post) -> None:
    box = MessagePublisher()
    unknown = SimpleNamespace(handle=Handle(), topic_name="/nowhere")
    for _ in range(2):  # the middleware's error is taken, and the next one is one of its own
        with pytest.raises(RuntimeError, match=r"/nowhere cannot be published: publisher pointer is invalid.*300"):
            box.send([(unknown, image(0))])
    box.send([(post.publishers["one"], image(0))])
    wait_for(lambda: post.heard["one"], "the next message")
    box.close()
