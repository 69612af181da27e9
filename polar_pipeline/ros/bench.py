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
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

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
from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline._util.watchdog import tied
from polar_pipeline.doctor.checks import named_profiles, transport_checks, transport_environment
from polar_pipeline.products import PRODUCTS
from polar_pipeline.ros.bench_figures import Block, Usage, summarize
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import get_sensor
from polar_pipeline.sensor.scene import SCENES, synthetic
from polar_pipeline.topics import PRODUCT_TOPICS

#: Different frames, sent in turn, so that caches do not help.
FRAMES = 8
#: Frames before a block that are not counted: caches, clocks and the allocator wake up.
WARM_UP = 2
#: Seconds without an answer after which a frame is missed.
GIVE_UP = 3.0
#: Seconds that a node may take to start and to compile.
START = 120.0
#: Frames without an answer after which their cause is one that does not go away.
ENOUGH = 10
#: Seconds between two lines about the same wait.
SAY_PERIOD = 10.0
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
    """Have this process and its children meet no other nodes, and carry large frames; call it before `rclpy.init`."""
    taken = os.environ.get("ROS_DOMAIN_ID", "0")
    free = [domain for domain in range(1, 102) if str(domain) != taken]  # 101: the last that Linux's ports allow
    os.environ["ROS_DOMAIN_ID"] = str(free[os.getpid() % len(free)])
    # by what is installed: wheels set no ROS_DISTRO. Iron's rclpy has both, the method and the range.
    knows_range = hasattr(Node, "add_post_set_parameters_callback")
    os.environ.update({"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"} if knows_range else {"ROS_LOCALHOST_ONLY": "1"})
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
        self._topics = {PRODUCT_TOPICS[product].name: product for product in products}
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
                tied([*row.command, "--ros-args", "-r", f"__ns:=/{row.name}"]),
                stdout=2,  # ours may be for a program
            )
            for row in contenders
        }
        #: Name -> what a node of this package says of its frames in `/diagnostics`; empty before its first report.
        self._reports: Dict[str, Dict[str, str]] = {row.name: {} for row in contenders}

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
            if wait.is_in_vain or now > start + START:
                raise RuntimeError(f"the node {name!r} does not answer after {now - start:.0f} s: {wait.text}")
            if wait.state != state or now > due:
                state, due = wait.state, now + SAY_PERIOD
                say(f"waits for an answer, {now - start:.0f} s: {wait.text}")
            is_at_work = wait.state in ("compute", "product")
            if self._run(name, Load(), 0.0, GIVE_UP if is_at_work else 1.0).complete():
                return
            frames += is_matched

    def block(self, name: str, load: Load, seconds: float) -> Block:
        """Send frames to a node for some seconds, and wait for the answers."""
        for _ in range(WARM_UP):
            self._run(name, Load(), 0.0)
        return self._run(name, load, seconds)

    def drops(self, name: str) -> Dict[str, int]:
        """Cause -> frames that a node of this package has dropped since it started, by a report from now on."""
        self._receive_all(name, REPORT, _Run(self._products))
        return drops_of(self._reports[name])

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
            self._note_report(arrival.cdr)
            return False
        _, source, topic = arrival.topic.split("/", 2)
        if source != name:
            return False
        if topic == "latency":
            values = messages.decode(arrival.cdr, messages.DIAGNOSTICS).status[0].values
            run.stages.append({pair.key: float(pair.value) for pair in values if pair.value != "n/a"})
            return False
        return run.take(self._topics[topic], arrival)

    def _note_report(self, cdr: bytes) -> None:
        """Keep what a node of this package reports; its first status is about frames."""
        status = messages.decode(cdr, messages.DIAGNOSTICS).status[0]
        self._reports[status.name.split("/", 1)[0]] = {pair.key: pair.value for pair in status.values}


def drops_of(report: Mapping[str, str]) -> Dict[str, int]:
    """Cause -> frames that a node has dropped, by what it says of its frames."""
    prefix = "dropped: "
    return {key[len(prefix) :]: int(value) for key, value in report.items() if key.startswith(prefix)}


class Wait(NamedTuple):
    """How far frames have come of which none is answered.

    Attributes:
        state: As a word.
        text: As a sentence.
        is_in_vain: Whether waiting longer would change nothing.
    """

    state: str
    text: str
    is_in_vain: bool = False


def waits_for(is_matched: bool, frames: int, report: Mapping[str, str]) -> Wait:
    """How far frames have come.

    Args:
        is_matched: Whether camera and node have found each other.
        frames: How many were sent since then.
        report: What the node says of its frames; empty before its first report.
    """
    if not is_matched:
        return Wait("start", "the node is starting, and may have to compile")
    if not report:
        return Wait("report", "the node has not reported in /diagnostics yet")
    received, published, unwanted = (int(report.get(key, 0)) for key in ("received", "published", "unwanted"))
    dropped = sum(drops_of(report).values())
    if 2 * received < frames or not received:  # now and then one comes through
        text, is_enough = f"{received} of {frames} frames have reached the node", frames >= ENOUGH
        return Wait("raw", f"{text}; {transport_advice()}" if is_enough else text, is_enough)
    if not published and dropped >= ENOUGH:
        return Wait("use", f"the node could use none of {received} frames; {report.get('last error', '')}", True)
    if not published:
        found = ", and took them for unwanted" if unwanted else ""
        return Wait("compute", f"the node received {received} frames and has finished none{found}")
    text = f"the viewer has got all products of no frame, the node published those of {published}"
    is_enough = published >= ENOUGH
    return Wait("product", f"{text}; {transport_advice()}" if is_enough else text, is_enough)


def transport_advice() -> str:
    """Why large messages may get lost on this machine, as far as can be seen."""
    problems = [check.text for check in transport_checks() if check.state == "problem"]
    profile = ", ".join(f"{name}={value}" for name, value in named_profiles().items())
    return "; ".join(problems) or f"Fast DDS's profile ({profile}) may not suit messages of this size"


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
    backend: str,
    sensor: str,
    size: Tuple[int, int],
    products: Sequence[str],
    rate: float,
    seconds: float,
    say: Callable[[str], None] = lambda _: None,
) -> Dict[str, Any]:
    """This package's node on this machine: at a camera's rate, and as fast as it goes.

    Args:
        backend: As the node's parameter.
        sensor: As the node's parameter.
        size: (width, height) of the raw frames, 8 bit.
        products: What is subscribed to.
        rate: Frames per second.
        seconds: Of each of the two.
        say: Takes lines about what is done and waited for.

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
    for check in transport_checks():
        if check.state == "problem":
            say(f"{check.topic}: {check.text}")
    name = "bench"
    found: Dict[str, Any] = {}
    with Rig([own_node(name, backend, sensor)], products, raw_frames(sensor, size)) as rig:
        rig.wait_ready(name, say)
        before = rig.drops(name)
        for load, how in (("camera", Load(rate)), ("fastest", Load(in_flight=IN_FLIGHT))):
            say(f"measures {load}, {seconds:g} s")
            figures = summarize([rig.block(name, how, seconds)])
            after = rig.drops(name)
            dropped = {cause: count - before.get(cause, 0) for cause, count in after.items()}
            found[load] = {**figures, "dropped": {cause: count for cause, count in dropped.items() if count}}
            before = after
    return found
