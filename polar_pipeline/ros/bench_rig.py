"""A benchmark's camera, nodes and viewer: the camera in this process, the others in processes of their own.

Each node has a namespace; the camera publishes into that of the node whose turn it is, so that several can be compared
in turns while all of them are ready. Linux only, for the processes' times.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Sequence, Tuple

from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image

from polar_pipeline import messages
from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline._util.watchdog import tied
from polar_pipeline.ros.bench_block import Arrival, BlockRecorder, CameraLoad
from polar_pipeline.ros.bench_figures import FrameBlock, ProcessUsage
from polar_pipeline.ros.bench_progress import drops_of, waits_for
from polar_pipeline.ros.bench_viewer import view
from polar_pipeline.topics import IMAGE_INPUT, LATENCY, PRODUCT_TOPICS, REPORT

#: Frames before a block that are not counted, for caches, clocks and the allocator.
_WARM_UP_FRAMES = 2
#: Seconds without an answer after which a frame is missed.
ANSWER_TIMEOUT_S = 3.0
#: Seconds that a node may take to start and to compile.
START_TIMEOUT_S = 120.0
#: Seconds between two lines about the same wait.
_SAY_PERIOD_S = 10.0
#: Seconds after a block in which what belongs to it still arrives: messages without a stamp, the node's own times.
_SETTLE_S = 0.2
#: Seconds between two looks at the clock while nothing arrives.
_POLL_S = 0.05
#: Seconds in which a node reports in `/diagnostics` for certain.
_REPORT_S = 1.5


@dataclass(frozen=True)
class Contender:
    """A node to measure: its namespace, and the command that starts it, ending in ROS arguments."""

    name: str
    command: Tuple[str, ...]


class BenchRig:
    """Camera, nodes and viewer; a context manager that ends what it started.

    Args:
        contenders: The nodes to start.
        products: Products that the viewer subscribes to, of each node.
        frames: Serialized raw images that the camera sends in turn.
    """

    def __init__(self, contenders: Sequence[Contender], products: Sequence[str], frames: Sequence[bytes]) -> None:
        self._products = tuple(products)
        self._topics = {PRODUCT_TOPICS[product].name: product for product in products}
        self._frames = frames
        self._next = 0
        keep_freed_memory()  # the camera's cost is not the node's
        self._context = Context()
        self._context.init()
        self._node = Node("camera", context=self._context)
        self._cameras = {
            row.name: self._node.create_publisher(Image, f"/{row.name}/{IMAGE_INPUT}", qos_profile_sensor_data)
            for row in contenders
        }
        kinds = {PRODUCT_TOPICS[product].name: PRODUCT_TOPICS[product].message_type for product in products}
        kinds[LATENCY] = messages.DIAGNOSTICS
        topics = {f"/{row.name}/{topic}": kind for row in contenders for topic, kind in kinds.items()}
        topics[REPORT] = messages.DIAGNOSTICS
        spawn = multiprocessing.get_context("spawn")
        self._pipe, end = spawn.Pipe()
        self._viewer = spawn.Process(target=view, args=(end, topics), daemon=True)
        self._viewer.start()
        end.close()
        self._processes = {
            row.name: subprocess.Popen(
                tied([*row.command, "--ros-args", "-r", f"__ns:=/{row.name}"]),
                stdout=2,  # ours may be for a program
            )
            for row in contenders
        }
        #: Name -> what a node of this package says of its frames in `/diagnostics`; empty before its first report.
        self._reports: Dict[str, Dict[str, str]] = {row.name: {} for row in contenders}

    def __enter__(self) -> BenchRig:
        return self

    def __exit__(self, *_: Any) -> None:
        self._pipe.close()  # which ends the viewer
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            _end(process)
        self._viewer.join(10)
        self._node.destroy_node()
        self._context.shutdown()

    def wait_ready(self, name: str, say: Callable[[str], None] = lambda _: None) -> None:
        """Send frames until one is answered with every product.

        Args:
            name: The node's.
            say: Takes a line about what is waited for, when that changes and now and then.

        Raises:
            RuntimeError: A process ended, or the node does not answer; the message says as far as is known why.
        """
        start = time.monotonic()
        frames, state, due = 0, "", 0.0
        while True:
            for what, code in (
                (f"the node {name!r}", self._processes[name].poll()),
                ("the viewer", self._viewer.exitcode),
            ):
                if code is not None:
                    raise RuntimeError(f"{what} ended with exit code {code}")
            is_matched = self._cameras[name].get_subscription_count() > 0
            wait = waits_for(is_matched, frames, self._reports[name])
            now = time.monotonic()
            if wait.is_in_vain or now > start + START_TIMEOUT_S:
                raise RuntimeError(f"the node {name!r} does not answer after {now - start:.0f} s: {wait.text}")
            if wait.state != state or now > due:
                state, due = wait.state, now + _SAY_PERIOD_S
                say(f"waits for an answer, {now - start:.0f} s: {wait.text}")
            is_at_work = wait.state in ("compute", "product")
            if self._send(name, CameraLoad(), 0.0, ANSWER_TIMEOUT_S if is_at_work else 1.0).complete():
                return
            frames += is_matched

    def block(self, name: str, load: CameraLoad, seconds: float) -> FrameBlock:
        """Send frames to a node for some seconds, and wait for the answers."""
        for _ in range(_WARM_UP_FRAMES):
            self._send(name, CameraLoad(), 0.0)
        return self._send(name, load, seconds)

    def drops(self, name: str) -> Dict[str, int]:
        """Cause -> frames that a node of this package has dropped since it started, by a report from now on."""
        self._receive_all(name, _REPORT_S, BlockRecorder(self._products))
        return drops_of(self._reports[name])

    def _send(self, name: str, load: CameraLoad, seconds: float, timeout_s: float = ANSWER_TIMEOUT_S) -> FrameBlock:
        """Send for some seconds, but at least one frame; frames not answered within `timeout_s` are missed."""
        recorder = BlockRecorder(self._products)
        before = _process_usage(self._processes[name].pid)
        start = quiet_since = time.monotonic()
        while True:
            now = time.monotonic()
            sending = now < start + seconds or not recorder.sent
            due = start + len(recorder.sent) / load.rate if load.rate else now
            if sending and now >= due and (load.rate or len(recorder.unanswered) < load.in_flight):
                stamp = time.time_ns()
                cdr = messages.restamp(self._frames[self._next % len(self._frames)], stamp)
                self._next += 1
                recorder.send(stamp)
                self._cameras[name].publish(cdr)
                quiet_since = now
            elif not sending and not recorder.unanswered:
                break
            elif now > quiet_since + timeout_s:
                recorder.unanswered.clear()
            pause = due - now if sending and now < due else _POLL_S
            if self._receive(name, pause, recorder):
                quiet_since = time.monotonic()
        self._receive_all(name, _SETTLE_S, recorder)
        return recorder.block(_process_usage(self._processes[name].pid).since(before), load)

    def _receive_all(self, name: str, seconds: float, recorder: BlockRecorder) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._receive(name, end - time.monotonic(), recorder)

    def _receive(self, name: str, seconds: float, recorder: BlockRecorder) -> bool:
        """Wait for news and take it; whether it was an answer to a frame of this block."""
        if not self._pipe.poll(max(seconds, 0.0)):
            return False
        arrival: Arrival = self._pipe.recv()
        if arrival.topic == REPORT:
            self._note_report(arrival.cdr)
            return False
        _, source, topic = arrival.topic.split("/", 2)
        if source != name:
            return False
        if topic == LATENCY:
            values = messages.decode(arrival.cdr, messages.DIAGNOSTICS).status[0].values
            recorder.stages.append({pair.key: float(pair.value) for pair in values if pair.value != "n/a"})
            return False
        return recorder.take(self._topics[topic], arrival)

    def _note_report(self, cdr: bytes) -> None:
        """Keep the first status of a node's report, which is about frames."""
        status = messages.decode(cdr, messages.DIAGNOSTICS).status[0]
        self._reports[status.name.split("/", 1)[0]] = {pair.key: pair.value for pair in status.values}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process that was sent a signal to end; kill it if it does not."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _process_usage(pid: int) -> ProcessUsage:
    """CPU time and page faults of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return ProcessUsage(1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[7]))
