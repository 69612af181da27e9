"""A benchmark's camera, node and viewer: the camera in this process, the others in processes of their own.

The node has a namespace, so that several can be compared in turns while all of them are ready. Linux only, for the
processes' times.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image

from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline.options.topics import IMAGE_INPUT, LATENCY, PRODUCT_TOPICS, REPORT
from polar_pipeline.recordings import messages
from polar_pipeline.ros.client import open_node
from polar_pipeline.ros.endpoints import MESSAGE_CLASSES
from polar_pipeline.ros.fast_dds import transport_checks
from polar_pipeline.tools.bench.figures import FrameBlock

#: Frames before a block that are not counted, for caches, clocks and the allocator.
_WARM_UP_FRAMES = 2
#: Seconds without an answer after which a frame is missed.
ANSWER_TIMEOUT_S = 3.0
#: Seconds that a node may take to start and to compile.
START_TIMEOUT_S = 120.0
#: Seconds that a node may take to answer once it has reported.
REPORTED_TIMEOUT_S = 30.0
#: Seconds between two lines about the same wait.
_SAY_PERIOD_S = 10.0
#: Seconds after a block in which what belongs to it still arrives: messages without a stamp, the node's own times.
_SETTLE_S = 0.2
#: Seconds between two looks at the clock while nothing arrives.
_POLL_S = 0.05
#: Seconds in which a node reports in `/diagnostics` for certain.
_REPORT_S = 1.5
#: Bytes of an image message that hold the stamp of its header.
_STAMP_BYTES = 12
_DROPPED = "dropped: "
#: `prctl`'s number for the signal that a process gets when the one that started it ends.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class CameraLoad:
    """Load by the camera: `rate` frames per second, or with 0 at most `in_flight` unanswered frames."""

    rate: float = 0.0
    in_flight: int = 1


@dataclass(frozen=True)
class Contender:
    """A node to measure: its namespace, and the command that starts it, ending in ROS arguments."""

    name: str
    command: Tuple[str, ...]


class BenchRig:
    """Camera, node and viewer; a context manager that ends what it started.

    Args:
        contender: The node, which starts at once. Make all rigs before the first one is entered, which starts threads
            of ROS: `preexec_fn` is not safe beside them.
        products: Products that the viewer subscribes to.
        frames: Serialized raw images that the camera sends in turn.
    """

    def __init__(self, contender: Contender, products: Sequence[str], frames: Sequence[bytes]) -> None:
        self._name = contender.name
        self._products = tuple(products)
        self._topics = {f"/{self._name}/{PRODUCT_TOPICS[product].name}": product for product in products}
        self._latency = f"/{self._name}/{LATENCY}"
        self._frames = frames
        self._next = 0
        #: What a node of this package says of its frames in `/diagnostics`; empty before its first report.
        self._report: Dict[str, str] = {}
        keep_freed_memory()  # the camera's cost is not the node's
        self._process = subprocess.Popen(
            [*contender.command, "--ros-args", "-r", f"__ns:=/{self._name}"],
            stdout=2,  # the stdout of this process may be for a program
            # Linux sends SIGTERM to the process when its parent ends, even by SIGKILL
            preexec_fn=partial(_LIBC.prctl, _PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509
        )

    def __enter__(self) -> BenchRig:
        self._context = Context()
        self._context.init()
        self._node = Node("camera", namespace=self._name, context=self._context)
        self._camera = self._node.create_publisher(Image, IMAGE_INPUT, qos_profile_sensor_data)
        topics = {topic: PRODUCT_TOPICS[product].message_type for topic, product in self._topics.items()}
        topics.update({self._latency: messages.DIAGNOSTICS, REPORT: messages.DIAGNOSTICS})
        spawn = multiprocessing.get_context("spawn")
        self._pipe, end = spawn.Pipe()
        self._viewer = spawn.Process(target=view, args=(end, topics), daemon=True)
        self._viewer.start()
        end.close()
        return self

    def __exit__(self, *_: Any) -> None:
        self._pipe.close()  # which ends the viewer
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._viewer.join(10)
        self._node.destroy_node()
        self._context.shutdown()

    def wait_ready(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Send frames until one is answered with every product.

        Args:
            say: Takes a line about what is waited for, now and then.

        Raises:
            RuntimeError: A process ended, or the node does not answer; the message says as far as is known why.
        """
        start = said = time.monotonic()
        deadline, frames, text = start + START_TIMEOUT_S, 0, ""
        while True:
            codes = {f"the node {self._name!r}": self._process.poll(), "the viewer": self._viewer.exitcode}
            for what, code in codes.items():
                if code is not None:
                    raise RuntimeError(f"{what} ended with exit code {code}")
            is_matched, report, now = self._camera.get_subscription_count() > 0, self._report, time.monotonic()
            if now > deadline:
                waited = f"{now - start:.0f} s: {text}{_advice(report)}"
                raise RuntimeError(f"the node {self._name!r} does not answer after {waited}")
            if report:
                deadline = min(deadline, now + REPORTED_TIMEOUT_S)
            former, text = text, _progress(is_matched, frames, report)
            if not former or now > said + _SAY_PERIOD_S:
                said = now
                say(f"waits for an answer, {now - start:.0f} s: {text}")
            if not is_matched:
                self._receive_all(_SETTLE_S, FrameBlock.of(self._products))
            elif self._send(CameraLoad(), 0.0).complete():
                return
            else:
                frames += 1

    def block(self, load: CameraLoad, seconds: float) -> FrameBlock:
        """Send frames for some seconds, and wait for the answers."""
        for _ in range(_WARM_UP_FRAMES):
            self._send(CameraLoad(), 0.0)
        return self._send(load, seconds)

    def drops(self) -> Dict[str, int]:
        """Count the frames that a node of this package has dropped since its start, by cause, from its next report."""
        self._receive_all(_REPORT_S, FrameBlock.of(self._products))
        return drops_of(self._report)

    def _send(self, load: CameraLoad, seconds: float) -> FrameBlock:
        """Send for some seconds, but at least one frame; frames not answered in time are missed."""
        block = FrameBlock.of(self._products, load.rate)
        cpu_ms, page_faults = _process_usage(self._process.pid)
        start = quiet_since = time.monotonic()
        while True:
            now = time.monotonic()
            sending = now < start + seconds or not block.sent
            due = start + len(block.sent) / load.rate if load.rate else now
            if sending and now >= due and (load.rate or len(block.unanswered) < load.in_flight):
                stamp = time.time_ns()
                cdr = messages.restamp(self._frames[self._next % len(self._frames)], stamp)
                self._next += 1
                block.send(stamp)
                self._camera.publish(cdr)
                quiet_since = now
            elif not sending and not block.unanswered:
                break
            elif now > quiet_since + ANSWER_TIMEOUT_S:
                block.unanswered.clear()
            pause = due - now if sending and now < due else _POLL_S
            if self._receive(pause, block):
                quiet_since = time.monotonic()
        self._receive_all(_SETTLE_S, block)
        after = _process_usage(self._process.pid)
        block.cpu_ms, block.page_faults = after[0] - cpu_ms, after[1] - page_faults
        return block

    def _receive_all(self, seconds: float, block: FrameBlock) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._receive(end - time.monotonic(), block)

    def _receive(self, seconds: float, block: FrameBlock) -> bool:
        """Wait for a message and take it; whether it was an answer to a frame of this block."""
        if not self._pipe.poll(max(seconds, 0.0)):
            return False
        topic, time_ns, cdr = self._pipe.recv()
        if topic in self._topics:
            return block.take(self._topics[topic], time_ns, cdr)
        status = deserialize_message(cdr, DiagnosticArray).status[0]  # the first status of a report is about frames
        values = {pair.key: pair.value for pair in status.values}
        if topic == self._latency:
            block.stages.append({key: float(value) for key, value in values.items() if value != "n/a"})
        elif status.name.split("/", 1)[0] == self._name:
            self._report = values
        return False


def view(pipe: Connection, topics: Dict[str, str]) -> None:
    """Pass on when messages arrive, until the pipe is closed; runs in a process of its own.

    Args:
        pipe: Takes of each message its topic, when it arrived by `time.time_ns`, and its bytes; of an image the first.
        topics: Topic -> message type.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    keep_freed_memory()

    def subscribe(node: Node, topic: str, kind: str) -> None:
        size = _STAMP_BYTES if kind == messages.IMAGE else None

        def arrived(cdr: bytes) -> None:
            pipe.send((topic, time.time_ns(), cdr[:size]))

        node.create_subscription(MESSAGE_CLASSES[kind], topic, arrived, qos_profile_sensor_data, raw=True)

    with open_node("viewer") as (node, executor), suppress(OSError):  # closed while sending
        for topic, kind in topics.items():
            subscribe(node, topic, kind)
        while not pipe.poll():
            executor.spin_once(timeout_sec=0.1)


def drops_of(report: Mapping[str, str]) -> Dict[str, int]:
    """Count the frames that a node has dropped, by cause, from the values of its status `frames`."""
    return {key[len(_DROPPED) :]: int(value) for key, value in report.items() if key.startswith(_DROPPED)}


def _progress(is_matched: bool, frames: int, report: Mapping[str, str]) -> str:
    """Describe the progress of frames while none is answered.

    Args:
        is_matched: Whether camera and node have found each other.
        frames: Frames sent since then.
        report: Values of the node's status `frames`; empty before its first report.
    """
    if not is_matched:
        return "the node is starting, and may have to compile"
    if not report:
        return "the node has not reported in /diagnostics yet"
    received, published = (int(report.get(key, 0)) for key in ("received", "published"))
    text = f"{received} of {frames} frames have reached the node, which published products of {published}"
    return f"{text}; {report['last error']}" if report.get("last error") else text


def _advice(report: Mapping[str, str]) -> str:
    """Describe settings of this machine that may lose frames; "" if the node refuses the frames."""
    if not report or drops_of(report):
        return ""
    problems = [check.text for check in transport_checks() if check.state == "problem"]
    return "; " + ("; ".join(problems) or "the middleware may not be set up for large messages (docs/robot.md)")


def _process_usage(pid: int) -> Tuple[float, int]:
    """Return milliseconds of CPU time, and page faults, of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[7])
