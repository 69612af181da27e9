"""Publication of recorded raw images and their lens calibration, for machines without `ros2 bag`."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

import rclpy
from rclpy.duration import Duration
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CameraInfo, Image

from polar_pipeline import messages
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.replay.limits import MAX_BYTES
from polar_pipeline.replay.source import DEFAULT_RATE, Recorded, is_recording, open_camera_infos, open_source
from polar_pipeline.sensor.frames import FrameError
from polar_pipeline.topics import camera_info_beside

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
    """A frame ready to publish.

    Attributes:
        time_ns: When it was recorded.
        cdr: Serialized `sensor_msgs/Image`.
        camera_info: Serialized `sensor_msgs/CameraInfo` that held then; None without one.
    """

    time_ns: int
    cdr: bytes
    camera_info: Optional[bytes]


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
        topic: Where to publish; lens calibrations are published on `camera_info` beside it, before their frames and
            with the same stamps.
        source_topic: Topic in the recording; "" for the only one.
        rate: Frames per second; 0 keeps the recording's own timing (`DEFAULT_RATE` for a folder of pictures).
        loop: Start again at the end.
        restamp: Stamp every frame with the time at which it is published. Pictures, which have no stamp, always are.
        wait: Seconds to wait for a subscriber before the first frame; 0 does not wait.
        on_skip: Called with what is wrong with a frame that cannot be published.
        max_bytes: Largest size of one frame, and of an uncompressed chunk; see `open_source`.

    Returns:
        The number of frames published.

    Raises:
        SourceError: The recording cannot be read.
        RuntimeError: There is no subscriber within `wait`, or `topic` is not a valid name.
    """
    # signals stay with the caller, whose exceptions end the loop wherever it is
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    with ExitStack() as stack:
        stack.callback(rclpy.shutdown)
        node = Node("polar_pipeline_play")
        stack.callback(node.destroy_node)
        publisher = _publisher(node, Image, topic)
        frames = _frames(_Recording(path, source_topic, rate or DEFAULT_RATE, max_bytes, on_skip), loop)
        first = list(itertools.islice(frames, 1))  # reads ahead
        has_info = any(frame.camera_info for frame in first)
        infos = _publisher(node, CameraInfo, camera_info_beside(topic)) if has_info else None
        _wait_for_subscriber(publisher, wait)
        frames = itertools.chain(first, frames)
        count = _publish(node, publisher, infos, frames, rate, restamp or not is_recording(path))
        publisher.wait_for_all_acked(Duration(seconds=_LINGER))
        return count


def _publisher(node: Node, kind: Any, topic: str) -> Publisher:
    """Create a reliable publisher, which both reliable and best-effort subscribers match."""
    try:
        return node.create_publisher(kind, topic, QoSProfile(depth=5, reliability=ReliabilityPolicy.RELIABLE))
    except NameValidationException as err:
        raise RuntimeError(f"{quoted(topic)} is not a topic's name: {printable(str(err).splitlines()[0])}") from err


@dataclass(frozen=True)
class _Recording:
    """The recording to play; the attributes are arguments of `play`."""

    path: Path
    topic: str
    rate: float
    max_bytes: int
    on_skip: Callable[[FrameError], None]

    @contextmanager
    def open(self, start: int = 0) -> Iterator[Tuple[int, Iterator[Optional[PlayableFrame]]]]:
        """Return the number of images, and the images from `start` on; None for one that cannot be published."""
        with ExitStack() as stack:
            source = stack.enter_context(open_source(self.path, self.topic, self.rate, self.max_bytes))
            infos = stack.enter_context(open_camera_infos(self.path, source.topic, self.max_bytes))
            yield source.total, self._frames(itertools.islice(source.records, start, None), self._readable(infos))

    def _frames(
        self, images: Iterable[Recorded], infos: Iterator[Tuple[int, bytes]]
    ) -> Iterator[Optional[PlayableFrame]]:
        """Yield images with the newest lens calibration before each, or its own; before the first, that one."""
        coming = next(infos, None)
        newest = coming and coming[1]
        for image in images:
            try:
                cdr = image.cdr()
            except FrameError as err:
                self.on_skip(err)
                yield None
                continue
            stamp = messages.peek_stamp(cdr)
            while coming and (coming[0] <= image.time_ns or messages.peek_stamp(coming[1]) == stamp):
                newest, coming = coming[1], next(infos, None)
            yield PlayableFrame(image.time_ns, cdr, newest)

    def _readable(self, infos: Iterator[Recorded]) -> Iterator[Tuple[int, bytes]]:
        """Yield the time of recording and the bytes of each lens calibration that can be published."""
        for record in infos:
            try:
                yield record.time_ns, record.cdr()
            except FrameError as err:  # noqa: PERF203 - the next one may be good
                self.on_skip(err)


def _frames(recording: _Recording, loop: bool) -> Iterator[PlayableFrame]:
    """Yield every frame of every round; the beginning of the recording is read ahead and kept for the next round."""
    ahead: List[PlayableFrame] = []
    taken = 0
    with recording.open() as (count, frames):
        size = 0
        for frame in frames:
            taken += 1
            if frame is not None:
                ahead.append(frame)
                size += len(frame.cdr)
            if size >= AHEAD_BYTES:
                break
        yield from ahead
        yield from filter(None, frames)
    while loop and ahead:
        yield from ahead
        if taken < count:
            with recording.open(taken) as (_, frames):
                yield from filter(None, frames)


def _wait_for_subscriber(publisher: Publisher, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while seconds and not publisher.get_subscription_count():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no subscriber to {publisher.topic_name} within {seconds:g} s")
        time.sleep(_POLL)


def _wait_until(due: float) -> float:
    """Sleep until a time of the monotonic clock; return the seconds by which it had passed already, else 0."""
    late = time.monotonic() - due
    while late < 0:
        time.sleep(min(-late, _LONGEST_SLEEP))
        late = min(0.0, time.monotonic() - due)
    return late


def _publish(
    node: Node,
    publisher: Publisher,
    infos: Optional[Publisher],
    frames: Iterable[PlayableFrame],
    rate: float,
    restamp: bool,
) -> int:
    """Publish frames when they are due, each after its lens calibration."""
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
        stamp_ns = node.get_clock().now().nanoseconds if restamp else messages.peek_stamp(frame.cdr) or 0
        if infos is not None and frame.camera_info is not None:
            infos.publish(messages.restamp(frame.camera_info, stamp_ns))
        publisher.publish(messages.restamp(frame.cdr, stamp_ns) if restamp else frame.cdr)
        count += 1
    return count
