"""What the fault drill works with: frames that say what they are, the node as a process, and a peer beside it.

A raw frame is a function of its stamp alone: its pixels are random numbers seeded by it, and its last digits say size
and encoding. Whoever holds a product can so compute from its stamp what it has to be, bit by bit: nothing half written,
no product of another frame or of other parameters passes.

As a program it is one of the processes that something happens to:

python drill.py camera FIRST_STAMP         publishes frames until it is killed
python drill.py deaf QUEUE TOPIC...        subscribes reliably, says so, and never takes anything
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple, Union

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import SetParametersAtomically
from rclpy.parameter import Parameter
from rclpy.qos import QoSPresetProfiles, QoSProfile, QoSReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image
from services import client_of
from spinner import Spinner, destroy
from std_msgs.msg import Float32
from support import ROOT, TIMEOUT, wait_for

from polar_pipeline import Pipeline
from polar_pipeline.options.topics import PRODUCT_TOPICS, image_encoding
from polar_pipeline.recordings import messages

#: Encoding and shape of a frame, by the last digits of its stamp.
VARIANTS = (
    ("mono8", (48, 64)),
    ("mono16", (48, 64)),
    ("bayer_rggb8", (98, 130)),
    ("mono8", (20, 600)),
    ("mono16", (256, 320)),
    ("mono8", (480, 640)),
)
BIG = len(VARIANTS) - 1
#: Nanoseconds between two stamps.
STEP = 1_000_000


# -------------------------------------------------------------------------------------------------------------- frames


def picture(stamp_ns: int) -> np.ndarray:
    """The raw frame of a stamp."""
    encoding, shape = VARIANTS[stamp_ns % 1000]
    dtype = np.uint16 if encoding.endswith("16") else np.uint8
    top = np.iinfo(dtype).max * 3 // 4
    return np.random.default_rng(stamp_ns).integers(top // 20, top, shape).astype(dtype)


def image(stamp_ns: int) -> bytes:
    """The serialized message of a stamp."""
    return bytes(messages.encode_image(stamp_ns, "camera", VARIANTS[stamp_ns % 1000][0], picture(stamp_ns)))


@lru_cache(maxsize=64)
def _pipeline(product: str, settings: Tuple[Tuple[str, Any], ...]) -> Pipeline:
    options = dict(settings)
    depth = options.pop("output_depth", "float32")
    dtype = PRODUCT_TOPICS[product].dtype(depth)
    return Pipeline(products=product, backend="cpu", threads=1, dtype=dtype, **options)


def product_of(stamp_ns: int, product: str, **settings: Any) -> np.ndarray:
    """What the node has to publish for a frame, by the CPU pipeline."""
    return _pipeline(product, tuple(sorted(settings.items())))(picture(stamp_ns))[product]


def stamp_of(message: Any) -> int:
    return message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec


def check(heard: Mapping[str, Deque[bytes]], levels: int = 0, **settings: Any) -> List[int]:
    """Every image that came is, bit by bit, the product that topic, stamp and frame_id say it is.

    Args:
        heard: Serialized messages by product.
        levels: How far 8-bit pixels may be off: 1 where a GPU computes in halves.
        settings: frame_id -> parameters of the node; "camera" has the defaults.

    Returns:
        Their stamps, in order, of the product that came most often.
    """
    stamps: Dict[str, List[int]] = {}
    for name, found in heard.items():
        for cdr in list(found):
            if name == "ssim":
                deserialize_message(cdr, Float32)
                continue
            message = deserialize_message(cdr, Image)
            stamp = stamp_of(message)
            wanted = product_of(stamp, name, **{"camera": {}, **settings}[message.header.frame_id])
            where = f"{name} of {stamp} as {message.header.frame_id!r}"
            channels = wanted.shape[2:]
            assert message.encoding == image_encoding(name, str(wanted.dtype), bool(channels)), where
            assert (message.height, message.width) == wanted.shape[:2], where
            array = np.frombuffer(message.data, wanted.dtype).reshape(wanted.shape)
            if levels:
                assert np.abs(array.astype(int) - wanted).max() <= levels, where
            else:
                np.testing.assert_array_equal(array, wanted, err_msg=where)
            stamps.setdefault(name, []).append(stamp)
    return max(stamps.values(), key=len, default=[])


# ----------------------------------------------------------------------------------------------------------- processes


class Process:
    """A process of the drill, with what it writes in a file: a pipe that nobody reads would stop it.

    Args:
        log: The file.
        command: Arguments of Python.
    """

    def __init__(self, log: Path, *command: str) -> None:
        self.log = log
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with log.open("w") as stream:
            self._process = subprocess.Popen(
                [sys.executable, *command], stdout=stream, stderr=subprocess.STDOUT, env=environment
            )
        self.pid = self._process.pid

    @property
    def text(self) -> str:
        return self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code."""
        return self._process.wait(TIMEOUT)

    def assert_end(self, code: int, number: Optional[signal.Signals] = None) -> None:
        """Send a signal if one is given; then the process has to end with this exit code, without a traceback."""
        if number is not None:
            self.send(number)
        assert self.wait() == code, self.text
        assert "Traceback" not in self.text

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End it; gently, because who is killed leaves shared memory behind."""
        for number in (signal.SIGCONT, signal.SIGTERM):
            self._process.send_signal(number)
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        print(f"{self.log.name}, ended with {self._process.returncode}:", self.text, sep="\n")  # for tests that fail


_STARTS = """
import json, sys
from polar_pipeline._util.stop_flag import StopFlag
from polar_pipeline.ros import main
for words in json.loads(sys.argv[1]):
    code = main.main(["node", "--ros-args", "-p", "backend:=cpu", *words], StopFlag(), False)
    print(f"exit code {code}", flush=True)
"""


def failed_starts(start: Any, *lists: List[str]) -> List[Tuple[str, int]]:
    """Texts and exit codes of nodes that cannot start, one after the other in one process, by lists of arguments."""
    process = start("-c", _STARTS, json.dumps(lists))
    process.assert_end(0)
    *parts, _ = re.split(r"^exit code (\d)\n", process.text, flags=re.MULTILINE)
    assert len(parts) == 2 * len(lists), process.text
    return list(zip(parts[::2], map(int, parts[1::2])))


class Peer:
    """Camera, viewers and operator in one: a ROS node of the test's; it and others of its context spin in a thread."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        self.context.init()
        self.node = rclpy.create_node("peer", context=self.context)
        self.heard: Dict[str, Deque[bytes]] = {}
        self.reports: Deque[Any] = deque(maxlen=20)
        self.stamp = 10**9
        self._camera: Any = None
        self.node.create_subscription(DiagnosticArray, "/diagnostics", lambda m: self.reports.append(m), 10)  # noqa: PLW0108 - rclpy looks at the signature
        self._change: Any = None
        self.spinner = Spinner(self.context, self.node)

    def close(self) -> None:
        self.spinner.close()
        self.node.destroy_node()
        self.context.shutdown()

    def subscribe(self, product: str) -> Any:
        """Keep everything that comes of a product; gives the subscription."""
        found = self.heard.setdefault(product, deque())

        def keep(cdr: bytes) -> None:  # rclpy looks at the signature
            found.append(cdr)

        kind = Float32 if product == "ssim" else Image
        return self.node.create_subscription(kind, PRODUCT_TOPICS[product].name, keep, QoSProfile(depth=100), raw=True)

    def destroy(self, *endpoints: Any) -> None:
        """Destroy publishers, subscriptions and clients of the peer's."""
        destroy(self.node, *endpoints)

    def listen(self, *products: str) -> None:
        """Keep everything that comes of some products; returns when the node's publishers are there."""
        for product in products:
            subscription = self.subscribe(product)
            wait_for(subscription.get_publisher_count, product)

    def send(self, stamp_ns: Optional[int] = None, variant: int = 0, cdr: Optional[bytes] = None) -> int:
        """Publish a frame, by default the next one; gives its stamp."""
        if stamp_ns is None:
            self.stamp += STEP
            stamp_ns = self.stamp + variant
        if self._camera is None:
            self._camera = self.node.create_publisher(Image, "image_raw", 10)
            wait_for(self._camera.get_subscription_count, "the node's subscription")
        self._camera.publish(cdr or image(stamp_ns))
        return stamp_ns

    def advance(self, *products: str, variant: int = 0) -> None:
        """Publish frames until each of the products comes of one of them; best effort may lose some."""
        first = self.send(variant=variant)

        def came() -> bool:
            time.sleep(0.005)
            if all(self.newest(name) >= first for name in products):
                return True
            self.send(variant=variant)
            return False

        wait_for(came, f"{', '.join(products)} of the frames sent")

    def hear_camera(self) -> None:
        """Wait for a frame that another process publishes from now on; after a process was killed, before `close`.

        A killed process may have held the lock of this process's port in shared memory. Fast DDS replaces such a port
        within two seconds, and crashes (2.14.5 and 3.2) if the participant is closed meanwhile: the port's memory is
        unmapped below the thread that closes it.
        """
        frames: Deque[bytes] = deque(maxlen=1)

        def keep(cdr: bytes) -> None:  # rclpy looks at the signature
            frames.append(cdr)

        self.node.create_subscription(Image, "image_raw", keep, QoSPresetProfiles.SENSOR_DATA.value, raw=True)
        wait_for(lambda: frames, "a frame of the camera")

    def newest(self, product: str) -> int:
        """The stamp of the newest message of a product; -1 before the first."""
        found = self.heard[product]
        return stamp_of(deserialize_message(found[-1], Image)) if found else -1

    def change(self, **values: Any) -> Any:
        """Ask the node for a change of parameters; gives the future of its answer."""
        if self._change is None:
            service = "/polar_pipeline/set_parameters_atomically"
            self._change = client_of(self.node, SetParametersAtomically, service)
        rows = [Parameter(name.replace("__", "."), value=value).to_parameter_msg() for name, value in values.items()]
        return self._change.call_async(SetParametersAtomically.Request(parameters=rows))

    def says(self, part: str, text: Union[str, Callable[[str], bool]]) -> Any:
        """Wait for a status of the node whose message or values have a text, or meet a condition."""
        lines: List[str] = []

        def find() -> Any:
            for report in list(self.reports):
                for row in report.status:
                    if row.name == f"polar_pipeline: {part}":
                        lines.append("; ".join([row.message, *(f"{pair.key}={pair.value}" for pair in row.values)]))
                        if text in lines[-1] if isinstance(text, str) else text(lines[-1]):
                            return row
            return None

        try:
            return wait_for(find, f"{part}: {text}")
        except AssertionError as err:
            raise AssertionError(f"{err}; last was: {lines[-1:]}") from err


# -------------------------------------------------------------------------------------------------- as another process


def _camera(first: int) -> None:
    rclpy.init()
    node = rclpy.create_node("camera")
    publisher = node.create_publisher(Image, "image_raw", QoSPresetProfiles.SENSOR_DATA.value)
    while not publisher.get_subscription_count():
        time.sleep(0.01)
    print("streaming", flush=True)
    stamp = first
    while rclpy.ok():  # until SIGTERM
        stamp += STEP
        publisher.publish(image(stamp + BIG))
        time.sleep(0.02)


def _deaf(queue: int, topics: List[str]) -> None:
    rclpy.init()
    node = rclpy.create_node("deaf")
    qos = QoSProfile(depth=queue, reliability=QoSReliabilityPolicy.RELIABLE)
    subscriptions = [node.create_subscription(Image, topic, lambda _: None, qos) for topic in topics]
    while not all(subscription.get_publisher_count() for subscription in subscriptions):
        time.sleep(0.01)
    print("subscribed", flush=True)
    while rclpy.ok():  # until SIGTERM
        time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "camera":
        _camera(int(sys.argv[2]))
    else:
        _deaf(int(sys.argv[2]), sys.argv[3:])
