"""The node with a camera of its own, and beside it a driver node with this node on its topic.

    python benchmarks/camera.py

The camera is the tests' GigE Vision camera on loopback (`test/helpers/fake_camera.py`), the viewer of the default
products a process of its own. Both ways take turns on the same camera, each time from their start:

- own: the node reads the camera (`camera.source`).
- driver: a driver without needless copies (`CameraSource`, the same receiver, and the node's way to publish bytes)
  publishes `image_raw` in a process of its own, and the node takes that.

Latency begins when `CameraSource` passes a complete frame on: Aravis does not tell when the last packet came, and from
that packet to this moment both ways run the same code. It ends at the viewer's last product.

Writes `benchmarks/results/camera_<device>.json`; ends with 1 if the ratio of medians, own to driver, exceeds `RATIO`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np
import rclpy
from common import RESULTS, cpu_model, machine, slug, table, write
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.serialization import deserialize_message
from rclpy.signals import SignalHandlerOptions

from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline._util.stop_flag import stop_on_signals
from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.camera.aravis import CameraError, load_aravis
from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.camera.source import CameraSource
from polar_pipeline.live.camera import CameraInput
from polar_pipeline.node import main as run_node
from polar_pipeline.options import topics
from polar_pipeline.options.products import DEFAULT_PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.recordings import messages
from polar_pipeline.ros.endpoints import create_output
from polar_pipeline.ros.transport import MessagePublisher
from polar_pipeline.tools.bench.figures import FrameBlock, summarize
from polar_pipeline.tools.bench.node import isolate, raw_frames
from polar_pipeline.tools.bench.rig import START_TIMEOUT_S, view

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "test" / "helpers"))

from fake_camera import FakeCamera  # noqa: E402

WAYS = ("own", "driver")
#: The most that the median of `own` may be, as a ratio to that of `driver`.
RATIO = 0.75
#: Seconds of a turn before frames count, and for messages that are on their way.
WARM_UP, SETTLE = 2.0, 0.5
#: A line of a driver's file: stamp of a frame, and when it was passed on; both in nanoseconds.
PASSED = struct.Struct("<qq")
PACKAGES = ("numpy", "opencv-python-headless", "rclpy", "ros-fastdds")
#: Arguments of a node that reads the camera.
SOURCE = ("-p", "camera.source:=aravis")


# -------------------------------------------------------------------------------------------------------- both drivers


def note_frames(client: Any, path: str) -> None:
    """Have a class of clients of `CameraSource` write to a file when each frame is passed on to it."""
    stream = Path(path).open("ab", buffering=0)  # noqa: SIM115 - until the process ends
    take = client.take

    def take_noted(self: Any, cdr: Any, *others: Any) -> None:
        row = PASSED.pack(messages.peek_stamp(cdr) or 0, time.time_ns())
        take(self, cdr, *others)
        stream.write(row)

    client.take = take_noted


class CameraDriver:
    """Client of a camera that publishes its frames."""

    def __init__(self, node: Any) -> None:
        self._publisher, self._sender = create_output(node, topics.IMAGE, topics.IMAGE_INPUT), MessagePublisher()
        self.info = self.warning = lambda text: print(f"driver: {text}", file=sys.stderr)
        self.dropped = self.refuse = lambda cause, what: print(f"driver: {cause}: {what}", file=sys.stderr)
        self.memory = self.check = lambda *_: None

    def take(self, cdr: Any, *_: Any) -> None:
        self._sender.send([(self._publisher, cdr)])


def run_driver() -> None:
    """Publish the camera's frames until a signal comes."""
    stop = stop_on_signals()
    keep_freed_memory()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    source = CameraSource(CameraSettings(source="aravis"), "camera", CameraDriver(rclpy.create_node("driver")))
    source.start()
    while not stop.is_set():
        time.sleep(0.1)
    source.close()
    rclpy.shutdown()  # a killed process would leave its shared memory behind


# ------------------------------------------------------------------------------------------------------------- latency


def commands(way: str, path: Path, backend: str) -> List[List[str]]:
    """Commands that take the camera's frames one way, in a namespace of that name; for `start_process`."""
    ros = ["--ros-args", "-r", f"__ns:=/{way}"]
    node = [*ros, "-p", f"backend:={backend}"]
    if way == "own":
        return [[__file__, "own", str(path), *node, *SOURCE]]
    return [["-m", "polar_pipeline.node", *node, "-p", "sensor:=IMX250MZR"], [__file__, "driver", str(path), *ros]]


def start_process(stack: ExitStack, *command: str) -> Any:
    """Start Python with arguments, in a process that ends with `stack`."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen([sys.executable, *command], env=environment, stdout=2)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def arrivals(pipe: Connection, seconds: float) -> Iterator[Tuple[str, int, bytes]]:
    """Messages at the viewer in the next seconds: topic, nanoseconds since 1970, first bytes."""
    end = time.monotonic() + seconds
    while pipe.poll(max(0.0, end - time.monotonic())):
        yield pipe.recv()


class Load(NamedTuple):
    """What both ways do: products, backend, frames per second, and seconds of a turn."""

    names: Tuple[str, ...]
    backend: str
    rate: float
    seconds: float


def turn(way: str, pipe: Connection, load: Load) -> FrameBlock:
    """Frames of a turn, one way, from its start."""
    products = {f"/{way}/{PRODUCT_TOPICS[name].name}": name for name in load.names}
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()), "frames")
        processes = [start_process(stack, *command) for command in commands(way, path, load.backend)]
        lacking, deadline = set(products), time.monotonic() + START_TIMEOUT_S
        while lacking:
            lacking.difference_update(topic for topic, _, _ in arrivals(pipe, SETTLE))
            if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
                raise RuntimeError(f"{way}: nothing came on {', '.join(sorted(lacking))}")
        list(arrivals(pipe, WARM_UP))
        first = time.time_ns()
        end = first + int(1e9 * load.seconds)
        rows = list(arrivals(pipe, load.seconds + SETTLE))
        passed = PASSED.iter_unpack(path.read_bytes())
    block = FrameBlock.of(load.names, load.rate)
    block.sent.update((stamp, at) for stamp, at in passed if first <= at < end)
    for topic, arrived, cdr in rows:
        if topic == f"/{way}/{topics.LATENCY}":
            pairs = deserialize_message(cdr, DiagnosticArray).status[0].values
            block.stages.append({pair.key: float(pair.value) for pair in pairs if pair.value != "n/a"})
        elif topic in products and (products[topic] not in block.unstamped or first <= arrived < end):
            block.take(products[topic], arrived, cdr)
    return block


def compare(frames: np.ndarray, load: Load, rounds: int) -> Dict[str, List[FrameBlock]]:
    """Way -> frames of each of its turns."""
    kinds = {PRODUCT_TOPICS[name].name: PRODUCT_TOPICS[name].message_type for name in load.names}
    kinds[topics.LATENCY] = messages.DIAGNOSTICS
    spawn = multiprocessing.get_context("spawn")
    pipe, end = spawn.Pipe()
    seen = {f"/{way}/{topic}": kind for way in WAYS for topic, kind in kinds.items()}
    viewer = spawn.Process(target=view, args=(end, seen), daemon=True)
    viewer.start()
    end.close()
    blocks: Dict[str, List[FrameBlock]] = {way: [] for way in WAYS}
    with FakeCamera(frames, features={"AcquisitionFrameRate": load.rate}):
        for done in range(rounds):
            for way in WAYS:
                blocks[way].append(turn(way, pipe, load))
            print(f"round {done + 1} of {rounds}: {ratios(blocks, done)}", file=sys.stderr, flush=True)
    pipe.close()  # which ends the viewer
    viewer.join(10)
    return blocks


def ratios(blocks: Dict[str, List[FrameBlock]], first: int = 0) -> Dict[str, float]:
    """Latency of `own` as a ratio to that of `driver`, from a turn on."""
    own, driver = (summarize(blocks[way][first:])["latency_ms"]["frame"] for way in WAYS)
    return {name: round(own[name] / driver[name], 3) for name in ("p50", "p95")}


def device_name(backend: str) -> str:
    """Name of the processor or GPU that a backend computes on."""
    return cpu_model() if backend == "cpu" else Driver().name


def camera_frames(size: Tuple[int, int]) -> np.ndarray:
    """Different frames of a scene, (N, H, W) uint8; size is (width, height)."""
    rows = (messages.to_raw(messages.decode_image(cdr)) for cdr in raw_frames("IMX250MZR", size))
    return np.stack([row.unpack().mosaic for row in rows])


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add the arguments of the camera and the node, and parse all; end the process where Aravis is not installed."""
    parser.add_argument("--rate", type=float, default=24.0, help="the camera's frames per second")
    parser.add_argument("--size", type=int, nargs=2, default=(2448, 2048), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    values = parser.parse_args()
    try:
        load_aravis()
    except CameraError as err:
        parser.error(str(err))
    return values


def conditions(values: argparse.Namespace, load_before: float) -> Dict[str, Any]:
    """Describe where and of what figures were measured, for a report."""
    return {
        "machine": machine(PACKAGES),
        "device": device_name(values.backend),
        "load_before": round(load_before, 2),
        "backend": values.backend,
        "size": values.size,
        "rate_hz": values.rate,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each way")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn")
    parser.add_argument("--products", nargs="+", choices=tuple(PRODUCT_TOPICS), default=DEFAULT_PRODUCTS)
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/camera_<device>.json")
    values = parse(parser)
    isolate()
    load_before = os.getloadavg()[0]
    frames = camera_frames(tuple(values.size))
    load = Load(tuple(values.products), values.backend, values.rate, values.seconds)
    blocks = compare(frames, load, values.rounds)
    figures = {way: summarize(rows) for way, rows in blocks.items()}
    ratio = ratios(blocks)
    print(table(["way", "p50 ms", "p95 ms", "p99 ms", "max ms", "Hz", "missed", "frames"], map(line, figures.items())))
    print("\n" + table(["own / driver", "ratio"], ratio.items()))
    report = {
        **conditions(values, load_before),
        "seconds_a_turn": values.seconds,
        "products": load.names,
        "ratios": ratio,
        "ratios_of_turns": [ratios({way: [row[k]] for way, row in blocks.items()}) for k in range(values.rounds)],
        **figures,
    }
    write(values.output or RESULTS / f"camera_{slug(report['device'])}.json", report)
    return int(ratio["p50"] > RATIO)


def line(item: Tuple[str, Dict[str, Any]]) -> Tuple[object, ...]:
    """Row of the table."""
    way, row = item
    names = ("MEAN_FRAME_RATE", "NUM_MISSED_FRAMES", "NUM_FRAMES_SENT")
    return (way, *row["latency_ms"]["frame"].values(), *(row[name] for name in names))


if __name__ == "__main__":
    if sys.argv[1:2] in (["own"], ["driver"]):  # a process of a turn
        _, program, file = sys.argv[:3]
        note_frames(CameraInput if program == "own" else CameraDriver, file)
        del sys.argv[1:3]
        sys.exit(run_node() if program == "own" else run_driver())
    sys.exit(main())
