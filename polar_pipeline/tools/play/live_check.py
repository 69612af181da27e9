"""`replay.launch.py` as a test: `ros2 bag play` into the live node, whose images are counted and compared.

The exit code is 0 if every raw image of the recording came out of the node, and equals the golden recording if there is
one; 1 if not; 2 if the recording or the golden one cannot be used.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Callable, Counter, Dict, List, Optional, Sequence, Tuple

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import ListParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image

from polar_pipeline._util.errors import errors_as
from polar_pipeline._util.paths import as_path
from polar_pipeline._util.text import SHOWN_REASON, failure, printable
from polar_pipeline.options.products import DEFAULT_PRODUCTS, PRODUCTS
from polar_pipeline.options.topics import IMAGE, PRODUCT_TOPICS, REPORT
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.sink import Sink, open_sink
from polar_pipeline.recordings.source import open_source
from polar_pipeline.replay.compare import Comparison, format_rows, golden_products, open_golden, verdict
from polar_pipeline.ros.client import open_node
from polar_pipeline.sensor.frames import FrameError

#: Seconds that the player waits before the first message, in which nodes discover it and the test's subscriptions.
DELAY = "2.0"
#: Seconds after the start of the player at which the test subscribes.
SUBSCRIBED = 1.0
#: Seconds without an image at the end until missing frames are given up; less than those until the node warns.
QUIET = 3.0
#: Messages that wait to be written, per product.
_WAITING = 100
_POLL = 0.1


class ReceivedImages:
    """Images of some products that a node published, for the stamps of the expected images, and the node's report.

    Images are written to the sink, if any.
    """

    def __init__(self, products: Sequence[str], stamps: Sequence[int], sink: Optional[Sink]) -> None:
        self.missing = {name: Counter(stamps) for name in products}  # by product and stamp
        self.report: Dict[str, str] = {}  # name -> value of the node's last report about its frames
        self.newest = 0.0  # time of the newest image in seconds
        self._sink = sink

    def subscribe(self, node: Node, namespace: str) -> None:
        """Subscribe to the products and to the node's report."""
        qos = QoSProfile(depth=_WAITING)
        for name in self.missing:
            topic = f"{namespace}/{PRODUCT_TOPICS[name].name}"
            node.create_subscription(Image, topic, partial(self._take, name), qos, raw=True)
        node.create_subscription(DiagnosticArray, REPORT, self._take_report, qos)

    def _take(self, name: str, cdr: bytes) -> None:
        stamp_ns = messages.peek_stamp(cdr) or 0
        self.newest = time.monotonic()
        self.missing[name] -= Counter([stamp_ns])
        if self._sink is not None:
            self._sink.write(f"/{PRODUCT_TOPICS[name].name}", IMAGE, stamp_ns, cdr)

    def _take_report(self, array: Any) -> None:
        for status in array.status:
            if status.name.endswith("polar_pipeline: frames"):
                self.report = {pair.key: pair.value for pair in status.values}

    def causes(self) -> str:
        """Describe in the node's words what became of the frames."""
        names = ["received", "published", "unwanted", *(name for name in self.report if ": " in name), "last error"]
        values = [f"{name} {self.report[name]}" for name in names if self.report.get(name, "0") not in ("0", "")]
        return f"the node reports: {', '.join(values) or 'nothing'}"


def recorded_stamps(bag: Path, topic: str) -> List[int]:
    """Return the stamps of the raw images on a topic of a recording.

    Raises:
        SourceError: The recording cannot be read, or has no raw images there that `ros2 bag play` can publish.
    """
    stamps = []
    with open_source(bag, topic) as source:
        for record in source.records:
            if record.message_type != IMAGE:
                raise SourceError(
                    f"{bag} holds compressed images on {topic}: decompress it, or use polar-pipeline play"
                )
            with errors_as(lambda text: SourceError(f"an image of {bag} cannot be read: {text}"), FrameError):
                stamps.append(messages.peek_stamp(record.message()) or 0)
    return stamps


def _spin_until(executor: SingleThreadedExecutor, is_reached: Callable[[], Any]) -> None:
    while not is_reached():
        executor.spin_once(timeout_sec=_POLL)


def play(values: argparse.Namespace, received: ReceivedImages) -> None:
    """Play the recording once the node is there, and record until all frames have come or no more come.

    Raises:
        RuntimeError: The player failed.
    """
    command = ["ros2", "bag", "play", str(values.bag), "--clock", "100", "--rate", values.rate, "--delay", DELAY]
    live = f"{values.namespace}/polar_pipeline"
    with open_node("polar_pipeline_replay") as (node, executor), ExitStack() as stack:
        # the last that a node makes, after its subscriptions
        _spin_until(executor, lambda: f"{live}/snapshot" in dict(node.get_service_names_and_types()))
        client = node.create_client(ListParameters, f"{live}/list_parameters")
        answer = rclpy.Future()
        while not answer.done():  # then the node knows this process, and will soon know its subscriptions
            answer = client.call_async(ListParameters.Request())
            executor.spin_until_future_complete(answer, timeout_sec=0.5)
        player = subprocess.Popen([*command, *(["--loop"] if values.loop else [])])
        stack.callback(player.wait)
        stack.callback(player.send_signal, signal.SIGINT)  # does nothing to a process that has ended
        # late enough that the node does not warn of subscribers that get nothing, early enough to be discovered
        due = time.monotonic() + SUBSCRIBED
        _spin_until(executor, lambda: time.monotonic() > due or player.poll() is not None)
        received.subscribe(node, values.namespace)
        _spin_until(executor, lambda: player.poll() is not None)
        if player.returncode:
            raise RuntimeError(f"{' '.join(command[:3])} ended with exit code {player.returncode}")
        ended = time.monotonic()
        _spin_until(
            executor,
            lambda: not any(received.missing.values()) or time.monotonic() > max(ended, received.newest) + QUIET,
        )


def check(values: argparse.Namespace) -> bool:
    """Play, count and compare; returns whether all is well."""
    stamps = recorded_stamps(values.bag, values.image_topic)
    products = golden_products(values.compare) if values.compare else DEFAULT_PRODUCTS
    products = tuple(name for name in products if not PRODUCTS[name].is_number)  # numbers have no stamp
    with tempfile.TemporaryDirectory() as folder:
        live = Path(folder) / "live.mcap"
        with open_sink(live, {}) if values.compare else nullcontext() as sink:
            received = ReceivedImages(products, stamps, sink)
            play(values, received)
        missing = max(sum(counts.values()) for counts in received.missing.values())
        is_equal = not values.compare or not received.newest or compare(values.compare, live, stamps, products)
    causes = f"; {received.causes()}" if missing else ""
    print(f"{len(stamps) - missing} of {len(stamps)} frames came out of the node{causes}")
    return is_equal and not missing


def compare(path: Path, recording: Path, stamps: Sequence[int], products: Tuple[str, ...]) -> bool:
    """Compare the node's images with the golden recording, and print the result."""
    with open_golden(path) as golden, open_golden(recording) as live:
        comparison = Comparison(golden, products)
        compared: Counter[int] = Counter()
        for stamp_ns in stamps:
            images = {name: live.load(name, stamp_ns, compared[stamp_ns]) for name in products}
            comparison.add(stamp_ns, {name: image for name, image in images.items() if image is not None})
            compared[stamp_ns] += 1
    rows = comparison.rows()
    print(verdict(rows, path), format_rows(rows), sep="\n")
    return all(row.passed for row in rows)


def main(args: Optional[Sequence[str]] = None) -> int:
    """Run the test; returns the exit code."""
    parser = argparse.ArgumentParser(description="Play a recording into the live node and check what comes out.")
    parser.add_argument("bag", type=as_path)
    parser.add_argument("--image-topic", required=True)
    parser.add_argument("--namespace", default="")
    parser.add_argument("--rate", default="1.0")
    parser.add_argument("--compare", type=as_path)
    parser.add_argument("--loop", action="store_true")
    try:
        return 0 if check(parser.parse_args(args)) else 1
    except KeyboardInterrupt:
        return 130
    except (SourceError, OSError, RuntimeError) as err:
        text = failure(err) if isinstance(err, OSError) else printable(str(err), SHOWN_REASON)
        print(f"replay: {text}", file=sys.stderr)
        return 2 if isinstance(err, SourceError) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
