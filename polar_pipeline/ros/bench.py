"""Measures nodes as a robot runs them: a camera here, nodes and viewer in processes of their own, the real middleware.

Linux only, for the processes' times.
Each node has a namespace; the camera publishes into that of the node whose turn it is, so that several can be compared
in turns while all of them are ready.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image
from std_msgs.msg import Float32

from polar_pipeline import messages
from polar_pipeline.bench import Block, Usage, summarize
from polar_pipeline.doctor import transport_environment
from polar_pipeline.heap import keep_freed_memory
from polar_pipeline.products import PRODUCTS
from polar_pipeline.scene import SCENES, synthetic
from polar_pipeline.sensor import expose, get_sensor

#: Different frames, sent in turn, so that caches do not help.
FRAMES = 8
#: Frames before a block that are not counted: caches, clocks and the allocator wake up.
WARM_UP = 2
#: Seconds without an answer after which a frame is missed.
GIVE_UP = 3.0
#: Seconds that a node may take to start and to compile.
START = 120.0
#: Seconds after a block in which what belongs to it still arrives: messages without a stamp, the node's own times.
SETTLE = 0.2
#: Seconds between two looks at the clock while nothing arrives.
POLL = 0.05
#: Bytes of a message that hold its header's stamp.
HEADER = 12
#: Seconds between two of the node's reports in `/diagnostics`, and a bit.
REPORT = 1.5
#: Frames on their way at once when the camera goes as fast as the node: one at work, and the next.
IN_FLIGHT = 2
_KINDS = {messages.IMAGE: Image, messages.FLOAT32: Float32, messages.DIAGNOSTICS: DiagnosticArray}


class Contender(NamedTuple):
    """A node to measure: its namespace, and the command that starts it, ending in ROS arguments."""

    name: str
    command: Tuple[str, ...]


class Load(NamedTuple):
    """How frames come: `rate` a second, or, with 0, whenever fewer than `in_flight` are on their way."""

    rate: float = 0.0
    in_flight: int = 1


class Arrival(NamedTuple):
    """What the viewer got: topic, nanoseconds of `time.time_ns`, and the bytes (of an image the first only)."""

    topic: str
    time_ns: int
    cdr: bytes


def own_node(name: str, backend: str, sensor: str = "IMX250MZR") -> Contender:
    """This package's node."""
    parameters = ("-p", f"backend:={backend}", "-p", f"sensor:={sensor}")
    return Contender(name, (sys.executable, "-m", "polar_pipeline.node", "--ros-args", *parameters))


def isolate() -> None:
    """Have this process and its children meet nobody else, and carry large frames; call it before `rclpy.init`."""
    taken = os.environ.get("ROS_DOMAIN_ID", "0")
    free = [domain for domain in range(1, 102) if str(domain) != taken]  # 101: the last that Linux's ports allow
    os.environ["ROS_DOMAIN_ID"] = str(free[os.getpid() % len(free)])
    old = os.environ.get("ROS_DISTRO") in ("foxy", "galactic", "humble")
    os.environ.update({"ROS_LOCALHOST_ONLY": "1"} if old else {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"})
    os.environ.update(transport_environment())


def raw_frames(sensor: str, size: Tuple[int, int]) -> List[bytes]:
    """Serialized 8-bit frames of one scene with noise; size is (width, height)."""
    row = get_sensor(sensor)
    rng = np.random.default_rng(0)
    stokes = synthetic(SCENES[0], size[::-1], is_color=row.is_color)
    raws = [expose(stokes, row, 8, 10_000, 2.0, rng) for _ in range(FRAMES)]
    return [bytes(messages.encode_image(0, "camera", "mono8", raw)) for raw in raws]


class Rig:
    """Camera, nodes and viewer; a context manager that ends what it started.

    Args:
        contenders: The nodes to start.
        products: What the viewer asks of each.
        frames: Serialized raw images that the camera sends in turn.
    """

    def __init__(self, contenders: Sequence[Contender], products: Sequence[str], frames: Sequence[bytes]) -> None:
        self._products = tuple(products)
        self._topics = {PRODUCTS[product].topic: product for product in products}
        self._frames = frames
        self._next = 0
        keep_freed_memory()  # the camera's cost is not the node's
        self._context = Context()
        self._context.init()
        self._node = Node("camera", context=self._context)
        self._cameras = {
            row.name: self._node.create_publisher(Image, f"/{row.name}/image_raw", qos_profile_sensor_data)
            for row in contenders
        }
        kinds = {"latency": messages.DIAGNOSTICS, **{topic: _kind(name) for topic, name in self._topics.items()}}
        topics = {f"/{row.name}/{topic}": kind for row in contenders for topic, kind in kinds.items()}
        topics["/diagnostics"] = messages.DIAGNOSTICS
        spawn = multiprocessing.get_context("spawn")
        self._pipe, end = spawn.Pipe()
        self._viewer = spawn.Process(target=view, args=(end, topics), daemon=True)
        self._viewer.start()
        end.close()
        self._processes = {
            row.name: subprocess.Popen(
                [*row.command, "--ros-args", "-r", f"__ns:=/{row.name}"],
                stdout=2,  # ours may be for a program
            )
            for row in contenders
        }
        self._drops: Dict[str, Dict[str, int]] = {row.name: {} for row in contenders}

    def __enter__(self) -> Rig:
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

    def wait_ready(self, name: str) -> None:
        """Send frames until one is answered with every product.

        Raises:
            RuntimeError: The node ended, or does not answer.
        """
        end = time.monotonic() + START
        while time.monotonic() < end:
            code = self._processes[name].poll()
            if code is not None:
                raise RuntimeError(f"the node {name!r} ended with exit code {code}")
            if self._run(name, Load(), 0.0, 1.0).complete():
                return
        raise RuntimeError(
            f"the node {name!r} answered no frame within {START:g} s; `polar-pipeline doctor` says whether Fast DDS "
            "carries frames of this size"
        )

    def block(self, name: str, load: Load, seconds: float) -> Block:
        """Send frames to a node for some seconds, and wait for the answers."""
        for _ in range(WARM_UP):
            self._run(name, Load(), 0.0)
        return self._run(name, load, seconds)

    def drops(self, name: str) -> Dict[str, int]:
        """Cause -> frames that a node of this package has dropped since it started, by a report from now on."""
        self._receive_all(name, REPORT, _Run(self._products))
        return dict(self._drops[name])

    def _run(self, name: str, load: Load, seconds: float, patience: float = GIVE_UP) -> Block:
        """Send for some seconds, but at least one frame; frames that nothing comes of within `patience` are lost."""
        run = _Run(self._products)
        before = _usage(self._processes[name].pid)
        start = quiet_since = time.monotonic()
        while True:
            now = time.monotonic()
            sending = now < start + seconds or not run.sent
            due = start + len(run.sent) / load.rate if load.rate else now
            if sending and now >= due and (load.rate or len(run.lacking) < load.in_flight):
                stamp = time.time_ns()
                cdr = messages.restamp(self._frames[self._next % len(self._frames)], stamp)
                self._next += 1
                run.send(stamp)
                self._cameras[name].publish(cdr)
                quiet_since = now
            elif not sending and not run.lacking:
                break
            elif now > quiet_since + patience:
                run.lacking.clear()
            pause = due - now if sending and now < due else POLL
            if self._receive(name, pause, run):
                quiet_since = time.monotonic()
        self._receive_all(name, SETTLE, run)
        return run.block(_usage(self._processes[name].pid).since(before), load)

    def _receive_all(self, name: str, seconds: float, run: _Run) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._receive(name, end - time.monotonic(), run)

    def _receive(self, name: str, seconds: float, run: _Run) -> bool:
        """Wait for news and take it; whether it was an answer to this run."""
        if not self._pipe.poll(max(seconds, 0.0)):
            return False
        arrival: Arrival = self._pipe.recv()
        if arrival.topic == "/diagnostics":
            self._note_drops(arrival.cdr)
            return False
        _, source, topic = arrival.topic.split("/", 2)
        if source != name:
            return False
        if topic == "latency":
            values = messages.decode(arrival.cdr, messages.DIAGNOSTICS).status[0].values
            run.stages.append({pair.key: float(pair.value) for pair in values if pair.value != "n/a"})
            return False
        return run.take(self._topics[topic], arrival)

    def _note_drops(self, cdr: bytes) -> None:
        """Keep what a node of this package reports; its first status is about frames."""
        status = messages.decode(cdr, messages.DIAGNOSTICS).status[0]
        name = status.name.split("/", 1)[0]
        prefix = "dropped: "
        self._drops[name] = {
            pair.key[len(prefix) :]: int(pair.value) for pair in status.values if pair.key.startswith(prefix)
        }


class _Run:
    """Frames under way, as their answers come in."""

    def __init__(self, products: Sequence[str]) -> None:
        stamped = [product for product in products if _kind(product) == messages.IMAGE]
        self.sent: Dict[int, int] = {}
        self.arrived: Dict[str, Dict[int, int]] = {product: {} for product in stamped}
        self.unstamped = {product: 0 for product in products if product not in stamped}
        self.stages: List[Dict[str, float]] = []
        #: Stamp of a frame that may still be answered -> products to come.
        self.lacking: Dict[int, int] = {}

    def send(self, stamp: int) -> None:
        """A frame is about to be published."""
        self.lacking[stamp] = len(self.arrived)
        self.sent[stamp] = time.time_ns()

    def take(self, product: str, arrival: Arrival) -> bool:
        """A product arrived; whether it is of a frame of this run."""
        if product in self.unstamped:
            self.unstamped[product] += 1
            return True
        stamp = messages.peek_stamp(arrival.cdr)
        if stamp is None or stamp not in self.sent:
            return False
        self.arrived[product][stamp] = arrival.time_ns
        if stamp in self.lacking:
            self.lacking[stamp] -= 1
            if not self.lacking[stamp]:
                del self.lacking[stamp]
        return True

    def block(self, usage: Usage, load: Load) -> Block:
        """What came of it all."""
        period_ms = 1000 / load.rate if load.rate else math.inf
        return Block(self.sent, self.arrived, self.unstamped, self.stages, usage, period_ms)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process that was told to end has done so."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _kind(product: str) -> str:
    """Message type of a product."""
    return messages.FLOAT32 if PRODUCTS[product].channels == (0, 0) else messages.IMAGE


def _usage(pid: int) -> Usage:
    """What a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return Usage(1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[7]))


def view(pipe: Connection, topics: Dict[str, str]) -> None:
    """The viewer process: take every message as bytes and pass on when it came, until the pipe is closed.

    Args:
        pipe: Takes an `Arrival` per message.
        topics: Topic -> message type.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    keep_freed_memory()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = Node("viewer")

    def subscribe(topic: str, kind: str) -> None:
        size = HEADER if kind == messages.IMAGE else None

        def arrived(cdr: bytes) -> None:
            pipe.send(Arrival(topic, time.time_ns(), cdr[:size]))

        node.create_subscription(_KINDS[kind], topic, arrived, qos_profile_sensor_data, raw=True)

    for topic, kind in topics.items():
        subscribe(topic, kind)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        while not pipe.poll():
            executor.spin_once(timeout_sec=0.1)
    except OSError:  # closed while sending
        pass
    executor.shutdown()
    node.destroy_node()
    rclpy.shutdown()


def measure(
    backend: str, sensor: str, size: Tuple[int, int], products: Sequence[str], rate: float, seconds: float
) -> Dict[str, Any]:
    """This package's node on this machine: at a camera's rate, and as fast as it goes.

    Args:
        backend: As the node's parameter.
        sensor: As the node's parameter.
        size: (width, height) of the raw frames, 8 bit.
        products: What is subscribed to.
        rate: Frames per second.
        seconds: Of each of the two.

    Returns:
        Load -> figures as `bench.summarize` gives them, and `dropped`: cause -> frames.

    Raises:
        RuntimeError: The node does not start, or no product has a stamp by which its frame is known.
    """
    if not any(_kind(product) == messages.IMAGE for product in products):
        raise RuntimeError(
            f"at least one product must be an image, whose stamp tells its frame; got {', '.join(products)}"
        )
    isolate()
    name = "bench"
    found: Dict[str, Any] = {}
    with Rig([own_node(name, backend, sensor)], products, raw_frames(sensor, size)) as rig:
        rig.wait_ready(name)
        before = rig.drops(name)
        for load, how in (("camera", Load(rate)), ("fastest", Load(in_flight=IN_FLIGHT))):
            figures = summarize([rig.block(name, how, seconds)])
            after = rig.drops(name)
            dropped = {cause: count - before.get(cause, 0) for cause, count in after.items()}
            found[load] = {**figures, "dropped": {cause: count for cause, count in dropped.items() if count}}
            before = after
    return found
