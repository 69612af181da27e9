"""Publication of recorded raw images and their lens calibration, for machines without `ros2 bag`."""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, ContextManager, Iterable, Iterator, List, Optional

from rclpy.duration import Duration
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, Image

from polar_pipeline._util.text import printable, quoted
from polar_pipeline.options.topics import camera_info_beside
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.contents import NOTHING_STATED, Stated
from polar_pipeline.recordings.limits import MAX_BYTES
from polar_pipeline.recordings.source import DEFAULT_RATE, Recorded, Source, is_recording, open_source
from polar_pipeline.ros.client import open_node
from polar_pipeline.sensor.frames import FrameError

_LOG = logging.getLogger(__name__)
#: Bytes of frames that are read before the first is published: reading a PNG takes longer than a frame period.
AHEAD_BYTES = 1 << 30
#: Maximum gap in seconds between two frames. Time that runs backwards or jumps shows that the recorder's clock was set,
#: or that nothing was recorded for a while: the gap before takes its place.
MAX_GAP = 10.0
#: Seconds between two looks for a subscriber.
_POLL = 0.05
#: Seconds that the last frames get to reach their subscribers.
_LINGER = 2.0


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
    stated: Stated = NOTHING_STATED,
) -> int:
    """Publish a recording until its end, or in a loop.

    Args:
        path: A recording or a folder of pictures; see `open_source`.
        topic: Where to publish; lens calibrations are published on `camera_info` beside it, before their frames and
            with the same stamps.
        source_topic: Topic in the recording; "" for the only one.
        rate: Frames per second; 0 keeps the recording's own timing (`DEFAULT_RATE` for a folder of pictures), in which
            gaps above `MAX_GAP` are shortened.
        loop: Start again at the end.
        restamp: Stamp every frame with the time at which it is published. Pictures, which have no stamp, always are.
        wait: Seconds to wait for a subscriber before the first frame; 0 does not wait.
        on_skip: Called with what is wrong with a frame that cannot be published.
        max_bytes: Largest size of one frame, and of an uncompressed chunk; see `open_source`.
        stated: How to read files that do not state it themselves.

    Returns:
        The number of frames published.

    Raises:
        SourceError: The recording cannot be read.
        RuntimeError: There is no subscriber within `wait`, or `topic` is not a valid name.
    """
    with open_node("polar_pipeline_play") as (node, _):
        publisher = _publisher(node, Image, topic)
        frames = _frames(
            partial(open_source, path, source_topic, rate or DEFAULT_RATE, max_bytes, stated=stated), loop, on_skip
        )
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


def _frames(
    opened: Callable[[], ContextManager[Source]], loop: bool, on_skip: Callable[[FrameError], None]
) -> Iterator[Recorded]:
    """Yield every frame of every round; the beginning of the recording is read ahead and kept for the next round."""
    ahead: List[Recorded] = []
    images_read = size = 0
    with opened() as source:
        for image in source.records:
            images_read += 1
            for frame in _playable([image], on_skip):
                ahead.append(frame)
                size += len(frame.message())
            if size >= AHEAD_BYTES:
                break
        yield from ahead
        yield from _playable(source.records, on_skip)
    while loop and ahead:
        yield from ahead
        if images_read < source.total:
            with opened() as source:
                yield from _playable(itertools.islice(source.records, images_read, None), on_skip)


def _playable(images: Iterable[Recorded], on_skip: Callable[[FrameError], None]) -> Iterator[Recorded]:
    """Yield images as uncompressed messages, ready to publish; those that cannot be read are skipped."""
    for image in images:
        try:
            cdr = image.cdr()
            yield replace(image, message_type=messages.IMAGE, data=cdr, max_bytes=len(cdr))
        except FrameError as err:  # noqa: PERF203 - the next one may be good
            on_skip(err)


def _wait_for_subscriber(publisher: Publisher, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while seconds and not publisher.get_subscription_count():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no subscriber to {publisher.topic_name} within {seconds:g} s")
        time.sleep(_POLL)


def _publish(
    node: Node, publisher: Publisher, infos: Optional[Publisher], frames: Iterable[Recorded], rate: float, restamp: bool
) -> int:
    """Publish frames when they are due, each after its lens calibration."""
    count = jumps = 0
    gap = 0.0  # seconds to the frame before
    first: Optional[Recorded] = None
    before: Optional[Recorded] = None
    due = time.monotonic()
    for frame in frames:
        if rate:
            gap = 1 / rate if count else 0.0
        elif before is not None and first is not frame:  # else a new round: keep the last gap
            step = frame.time_ns - before.time_ns
            is_jump = not 0 <= step <= MAX_GAP * 1e9
            gap = (gap or MAX_GAP) if is_jump else step / 1e9
            jumps += is_jump
            if is_jump and jumps == 1:
                text = "a frame was recorded %.6g s after the one before: the gap is shortened, as all such gaps are"
                _LOG.warning(text, step / 1e9)
        first, before = first or frame, frame
        due += gap
        late = time.monotonic() - due
        time.sleep(max(0.0, -late))
        if late > gap:
            due += late  # no burst to catch up
        cdr = frame.message()
        stamp_ns = node.get_clock().now().nanoseconds if restamp else messages.peek_stamp(cdr) or 0
        if infos is not None and frame.camera_info is not None:
            infos.publish(bytes(messages.encode_camera_info(frame.camera_info, stamp_ns, frame.camera_info.frame_id)))
        publisher.publish(messages.restamp(cdr, stamp_ns) if restamp else cdr)
        count += 1
    return count
