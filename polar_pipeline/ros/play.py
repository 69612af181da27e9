"""Plays recorded raw images into ROS, for machines without `ros2 bag`."""

from __future__ import annotations

import functools
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, ContextManager, Iterable, Iterator, List

import rclpy
from rclpy.duration import Duration
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image

from polar_pipeline import messages
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.replay.limits import MAX_BYTES
from polar_pipeline.replay.source import DEFAULT_RATE, Recorded, Source, is_recording, open_source
from polar_pipeline.sensor.frames import FrameError

#: Bytes of frames that are read before the first is published: reading a PNG takes longer than a frame period.
AHEAD_BYTES = 1 << 30
#: Seconds between two looks for a subscriber.
_POLL = 0.05
#: Seconds that one call of the system may sleep: a recording may state times that are centuries apart.
_LONGEST_SLEEP = 3600.0
#: Seconds that the last frames get to reach their subscribers.
_LINGER = 2.0


@dataclass(frozen=True)
class PlayableFrame:
    """A frame ready to publish: when it was recorded, and a serialized `sensor_msgs/Image`."""

    time_ns: int
    cdr: bytes


def play(
    path: Path,
    topic: str,
    source_topic: str = "",
    rate: float = 0.0,
    loop: bool = False,
    restamp: bool = False,
    wait: float = 0.0,
    on_skip: Callable[[FrameError], None] = lambda _: None,
    max_bytes: int = MAX_BYTES,
) -> int:
    """Publish a recording until its end, or in a loop.

    Args:
        path: A recording or a folder of pictures; see `open_source`.
        topic: Where to publish.
        source_topic: Topic in the recording; "" for the only one.
        rate: Frames per second; 0 keeps the recording's own timing (`DEFAULT_RATE` for a folder of pictures).
        loop: Start again at the end.
        restamp: Stamp every frame with the time at which it is published. Pictures, which have no stamp, always are.
        wait: Seconds to wait for a subscriber before the first frame; 0 does not wait.
        on_skip: Called with what is wrong with a frame that cannot be published.
        max_bytes: What one frame, and the chunks of the recording held at once, may have; see `open_source`.

    Returns:
        The number of frames published.

    Raises:
        SourceError: The recording cannot be read.
        RuntimeError: There is no subscriber within `wait`, or `topic` is no valid name.
    """
    # signals stay with the caller, whose exceptions end the loop wherever it is
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = Node("polar_pipeline_play")
        try:
            publisher = _publisher(node, topic)
            opened = functools.partial(open_source, path, source_topic, rate or DEFAULT_RATE, max_bytes)
            frames = _frames(opened, loop, on_skip)
            first = list(itertools.islice(frames, 1))  # reads ahead
            _wait_for_subscriber(publisher, wait)
            count = _publish(node, publisher, itertools.chain(first, frames), rate, restamp or not is_recording(path))
            publisher.wait_for_all_acked(Duration(seconds=_LINGER))
            return count
        finally:
            node.destroy_node()
    finally:
        rclpy.shutdown()


def _publisher(node: Node, topic: str) -> Publisher:
    """A reliable publisher, which both reliable and best-effort subscribers match."""
    try:
        return node.create_publisher(Image, topic, QoSProfile(depth=5, reliability=ReliabilityPolicy.RELIABLE))
    except NameValidationException as err:
        raise RuntimeError(f"{quoted(topic)} is no topic's name: {printable(str(err).splitlines()[0])}") from err


def _frames(
    opened: Callable[[], ContextManager[Source]], loop: bool, on_skip: Callable[[FrameError], None]
) -> Iterator[PlayableFrame]:
    """Every frame of every round; the beginning of the recording is read ahead and kept for the next round."""

    def usable(records: Iterable[Recorded]) -> Iterator[PlayableFrame]:
        for record in records:
            try:
                yield PlayableFrame(record.time_ns, record.cdr())
            except FrameError as err:  # noqa: PERF203 - the next one may be good
                on_skip(err)

    ahead: List[PlayableFrame] = []
    taken = 0
    with opened() as source:
        size = 0
        while size < AHEAD_BYTES:
            record = next(source.records, None)
            if record is None:
                break
            taken += 1
            for frame in usable([record]):
                ahead.append(frame)
                size += len(frame.cdr)
        yield from ahead
        yield from usable(source.records)
        count = source.total
    while loop and ahead:
        yield from ahead
        if taken < count:
            with opened() as source:
                yield from usable(itertools.islice(source.records, taken, None))


def _wait_for_subscriber(publisher: Publisher, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while seconds and not publisher.get_subscription_count():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no subscriber to {publisher.topic_name} within {seconds:g} s")
        time.sleep(_POLL)


def _wait_until(due: float) -> float:
    """Sleep until a time of the monotonic clock; returns the seconds by which it was over already, else 0."""
    late = time.monotonic() - due
    while late < 0:
        time.sleep(min(-late, _LONGEST_SLEEP))
        late = min(0.0, time.monotonic() - due)
    return late


def _publish(node: Node, publisher: Publisher, frames: Iterable[PlayableFrame], rate: float, restamp: bool) -> int:
    """Publish frames when they are due."""
    count = 0
    gap = 0.0  # seconds to the frame before
    before = None
    due = time.monotonic()
    for frame in frames:
        if rate:
            gap = 1 / rate if count else 0.0
        elif before is not None and frame.time_ns >= before:  # else a new round: keep the last gap
            gap = (frame.time_ns - before) / 1e9
        before = frame.time_ns
        due += gap
        late = _wait_until(due)
        if late > gap:
            due += late  # no burst to catch up
        cdr = messages.restamp(frame.cdr, node.get_clock().now().nanoseconds) if restamp else frame.cdr
        publisher.publish(cdr)
        count += 1
    return count
