"""Raw images of a live topic, as records of a recording that goes on until it is stopped."""

from __future__ import annotations

from collections import deque
from contextlib import closing, contextmanager, suppress
from typing import Deque, Generator, Iterator

from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, Image

from polar_pipeline._util.stop_flag import StopFlag
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.options.topics import camera_info_beside
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import IMAGE
from polar_pipeline.recordings.source import Recorded
from polar_pipeline.ros.client import open_node
from polar_pipeline.sensor.frames import FrameError

#: Images that wait while one is processed; older ones are dropped.
_WAITING = 2
#: Seconds between two looks whether to stop.
_POLL = 0.1


@contextmanager
def open_topic(topic: str, max_bytes: int, stopped: StopFlag) -> Iterator[Iterator[Recorded]]:
    """Subscribe to a topic of `sensor_msgs/Image`, and its `camera_info`; the records end when `stopped` is set.

    If images come faster than they are processed, the oldest are dropped. `max_bytes` is the largest size of an image.

    Raises:
        RuntimeError: `topic` is not a valid name.
    """
    with open_node("polar_pipeline_view") as (node, executor), closing(
        _records(node, executor, topic, max_bytes, stopped)
    ) as records:
        yield records


def _records(
    node: Node, executor: SingleThreadedExecutor, topic: str, max_bytes: int, stopped: StopFlag
) -> Generator[Recorded, None, None]:
    waiting: Deque[bytes] = deque(maxlen=_WAITING)

    def keep(cdr: bytes) -> None:  # rclpy looks at the signature
        waiting.append(cdr)

    infos: Deque[messages.CameraInfo] = deque(maxlen=1)

    def keep_info(cdr: bytes) -> None:
        with suppress(FrameError):  # the calibration before it may still be valid
            infos.append(messages.decode_camera_info(cdr))

    try:
        qos = QoSProfile(depth=_WAITING, reliability=ReliabilityPolicy.BEST_EFFORT)
        node.create_subscription(Image, topic, keep, qos, raw=True)
        node.create_subscription(CameraInfo, camera_info_beside(topic), keep_info, qos, raw=True)
    except NameValidationException as err:
        raise RuntimeError(f"{quoted(topic)} is not a topic's name: {printable(str(err).splitlines()[0])}") from err
    while not stopped.is_set():
        executor.spin_once(timeout_sec=0 if waiting else _POLL)
        if waiting:
            now = node.get_clock().now().nanoseconds
            yield Recorded(now, IMAGE, waiting.popleft(), max_bytes, infos[0] if infos else None)
