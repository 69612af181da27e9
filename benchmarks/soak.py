"""What the live node holds after a long time: resident memory, threads, open handles, and memory of the GPU.

    python benchmarks/soak.py

- frames: a node in a process of its own, `--frames` small frames one after the other, every product asked for.
- losses: `--minutes` of a camera that nothing holds back: bursts of frames whose size and encoding change, cut short,
  empty, or of no known encoding, more than the middleware can carry. Reports have to go on, and only counters may grow.
- starts: `--starts` times in one process a context, a peer and a node are made, a frame goes through, and all ends. A
  node of rclpy alone that passes the frame on (`relay`) does the same, since rclpy and the middleware keep a bit too.

Writes `benchmarks/results/soak_<device>.json`. Linux only.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

import numpy as np
from common import RESULTS, cpu_model, machine, slug, table, write

SHAPE = (48, 64)
#: Frames before the first look: caches fill, the allocator finds its size.
FIRST = 1000
#: The most that memory may grow after that, as a ratio.
LIMIT = 0.02
#: Minutes after which memory is looked at first where messages get lost: the window of latencies is full by then.
SETTLED = 1.5
#: Seconds between two reports of the node, at most; it sends one a second, on a machine that is busy.
REPORT_GAP = 3.0
#: Seconds without an answer after which a frame counts as lost and is sent again.
GIVE_UP = 1.0
PACKAGES = ("numpy", "opencv-python-headless", "rclpy", "ros-fastdds", "rosbags")


class Footprint(NamedTuple):
    """What a process holds: kilobytes, threads, open handles.

    Attributes:
        resident: All that lies in memory.
        own: Of that, what is not the shared memory of the middleware, which has a fixed size.
        threads: How many.
        handles: Open files and sockets.
        device: Kilobytes of the GPU, of all processes; None without one.
    """

    resident: int
    own: int
    threads: int
    handles: int
    device: Optional[int] = None


def footprint(pid: Any = "self", with_device: bool = False) -> Footprint:
    """What a process holds now; of a GPU, what all processes hold."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    handles = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resident, shared = (int(rows[name].split()[0]) for name in ("VmRSS", "RssShmem"))
    return Footprint(
        resident, resident - shared, int(rows["Threads"]), handles, _device_kilobytes() if with_device else None
    )


def _device_kilobytes() -> int:
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return (total - free) // 1024


def growth(before: Footprint, after: Footprint) -> float:
    """Of a process's own memory, as a ratio; that of all resident memory is smaller."""
    return after.own / before.own - 1


class Viewer:
    """Camera and viewer in one: sends raw frames one by one, and waits for every product of each.

    Args:
        context: Of rclpy.
        products: What is asked for.
    """

    def __init__(self, context: Any, products: Sequence[str]) -> None:
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node
        from sensor_msgs.msg import Image
        from std_msgs.msg import Float32

        from polar_pipeline.options.products import PRODUCTS
        from polar_pipeline.options.topics import PRODUCT_TOPICS

        self.node = Node("viewer", context=context)
        self.executor = SingleThreadedExecutor(context=context)
        self.executor.add_node(self.node)
        self._camera = self.node.create_publisher(Image, "image_raw", 10)
        self._raw = np.random.default_rng(0).integers(10, 200, SHAPE).astype(np.uint8)
        self._lacking: set[str] = set()
        self._products = tuple(products)
        self._stamp = 0
        for name in products:
            kind = Float32 if PRODUCTS[name].channels == (0, 0) else Image

            def arrived(_: bytes, name: str = name) -> None:
                self._lacking.discard(name)

            self.node.create_subscription(kind, PRODUCT_TOPICS[name].name, arrived, 10, raw=True)

    def pass_frame(self, node: Optional[subprocess.Popen[bytes]] = None) -> int:
        """Send a frame until all of its products come; gives how often.

        Args:
            node: The process that makes them, if it is another one.

        Raises:
            RuntimeError: It has ended.
        """
        from polar_pipeline.recordings import messages

        sent = 0
        self._stamp += 1_000_000
        self._lacking = set(self._products)
        while self._lacking:
            if node is not None and node.poll() is not None:
                raise RuntimeError(
                    f"the node ended with code {node.returncode}, {', '.join(self._lacking)} did not come"
                )
            self._camera.publish(bytes(messages.encode_image(self._stamp, "camera", "mono8", self._raw)))
            sent += 1
            end = time.monotonic() + GIVE_UP
            while self._lacking and time.monotonic() < end:
                self.executor.spin_once(timeout_sec=0.1)
        return sent

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()


def frames(count: int, looks: Iterable[int], products: Sequence[str], backend: str) -> Dict[int, Footprint]:
    """Frames passed -> what the node's process held then."""
    from rclpy.context import Context

    arguments = ("--ros-args", "-p", f"backend:={backend}")
    process = subprocess.Popen([sys.executable, "-m", "polar_pipeline.node", *arguments])
    context = Context()
    context.init()
    viewer = Viewer(context, products)
    found: Dict[int, Footprint] = {}
    try:
        for done in range(1, count + 1):
            viewer.pass_frame(process)
            if done in looks or done == count:
                found[done] = footprint(process.pid, backend == "cuda")
                print(done, found[done], file=sys.stderr, flush=True)
    finally:
        viewer.close()
        context.shutdown()
        process.terminate()
        process.wait()
    return found


def bursts(seconds: float) -> None:
    """Publish for so long, as the program of a process of its own; says how many messages that were."""
    import rclpy
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import Image

    from polar_pipeline.recordings import messages

    rng = np.random.default_rng(1)

    def frame(height: int, width: int, encoding: str) -> bytes:
        raw = rng.integers(10, 200, (height, width)).astype(np.uint16 if encoding.endswith("16") else np.uint8)
        return bytes(messages.encode_image(10**9, "camera", encoding, raw))

    whole = [frame(48, 64, "mono8"), frame(200, 300, "bayer_rggb8"), frame(480, 640, "mono16"), frame(64, 64, "rgb9")]
    broken = [b"", b"\0" * 100, *(row[: len(row) // 2] for row in whole)]
    rclpy.init()
    node = rclpy.create_node("bursts")
    qos = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
    publisher = node.create_publisher(Image, "image_raw", qos)
    end, sent = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for row in rng.permutation(np.arange(400)):
            rows = broken if row % 3 == 2 else whole
            publisher.publish(rows[row % len(rows)])
            sent += 1
        time.sleep(0.3)
    print(sent)
    node.destroy_node()
    rclpy.shutdown()


class Losses(NamedTuple):
    """What became of a node whose messages get lost.

    Attributes:
        footprints: Seconds -> what its process held.
        sent: Messages published.
        counts: What the node says about them at the end.
        reports: How many came.
        gap: Seconds between two of them, at most.
    """

    footprints: Dict[int, Footprint]
    sent: int
    counts: Dict[str, int]
    reports: int
    gap: float


def losses(minutes: float, backend: str) -> Losses:
    """The node beside a camera that nothing holds back."""
    import rclpy
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.executors import SingleThreadedExecutor
    from sensor_msgs.msg import Image

    arguments = ("--ros-args", "-p", f"backend:={backend}")
    process = subprocess.Popen([sys.executable, "-m", "polar_pipeline.node", *arguments])
    context = rclpy.Context()
    context.init()
    viewer = rclpy.create_node("viewer", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(viewer)
    times: List[float] = []
    counts: Dict[str, int] = {}

    def keep(report: DiagnosticArray) -> None:
        times.append(time.monotonic())
        rows = {pair.key: pair.value for status in report.status for pair in status.values}
        names = [name for name in rows if name in ("received", "published") or name.startswith("dropped: ")]
        counts.update({name: int(rows[name]) for name in names})

    viewer.create_subscription(DiagnosticArray, "/diagnostics", keep, 10)
    for topic in ("intensity", "polarization/dolp"):
        viewer.create_subscription(Image, topic, lambda _: None, 1, raw=True)
    found: Dict[int, Footprint] = {}
    camera: Optional[subprocess.Popen[str]] = None
    try:
        while not times:
            executor.spin_once(timeout_sec=0.1)
        code = f"import soak; soak.bursts({60 * minutes})"
        folder = str(Path(__file__).parent)
        camera = subprocess.Popen([sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, text=True)
        begin = time.monotonic()
        first = int(60 * min(SETTLED, minutes / 2))
        looks = deque(range(first, int(60 * minutes), max(1, int((60 * minutes - first) / 10))))
        while camera.poll() is None:
            executor.spin_once(timeout_sec=0.1)
            if looks and time.monotonic() - begin >= looks[0]:
                found[looks.popleft()] = footprint(process.pid, backend == "cuda")
                print(found, counts, file=sys.stderr, flush=True)
            if process.poll() is not None:
                raise RuntimeError(f"the node ended with code {process.returncode}")
            if time.monotonic() - times[-1] > 10 * REPORT_GAP:
                raise RuntimeError("the node does not report any more")
        assert camera.stdout is not None
        sent = int(camera.stdout.read())
    finally:
        executor.shutdown()
        viewer.destroy_node()
        context.shutdown()
        if camera is not None:
            camera.terminate()
        process.terminate()
        code_at_end = process.wait()
    if code_at_end:
        raise RuntimeError(f"the node ended with code {code_at_end} after SIGTERM")
    gap = max(after - before for before, after in zip(times, times[1:]))
    return Losses(found, sent, counts, len(times), gap)


def _relay(context: Any) -> Any:
    """A node of rclpy alone."""
    from rclpy.node import Node
    from sensor_msgs.msg import Image

    node = Node("relay", context=context)
    publisher = node.create_publisher(Image, "intensity", 10)

    def pass_on(cdr: bytes) -> None:
        publisher.publish(cdr)

    node.create_subscription(Image, "image_raw", pass_on, 10, raw=True)
    return node


def start_and_stop(kind: str, backend: str) -> None:
    """One round: a context, a peer and a node are made, a frame goes through, and all ends."""
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import Parameter

    from polar_pipeline.ros.node import PolarNode

    context = Context()
    context.init()
    overrides = [Parameter("backend", value=backend)]
    node = _relay(context) if kind == "relay" else PolarNode(context=context, parameter_overrides=overrides)
    executor, stop = SingleThreadedExecutor(context=context), threading.Event()
    executor.add_node(node)

    def spin() -> None:
        while not stop.is_set():
            executor.spin_once(timeout_sec=0.05)

    thread = threading.Thread(target=spin)
    thread.start()
    viewer = Viewer(context, ["intensity"])
    viewer.pass_frame()
    stop.set()
    thread.join()
    viewer.close()
    if kind != "relay":
        node.close()
    executor.shutdown()
    node.destroy_node()
    context.shutdown()


def starts(kind: str, count: int, looks: Iterable[int], backend: str) -> Dict[int, Footprint]:
    """Rounds -> what this process held then."""
    found: Dict[int, Footprint] = {}
    for done in range(1, count + 1):
        start_and_stop(kind, backend)
        if done in looks or done == count:
            gc.collect()
            found[done] = footprint("self", backend == "cuda" and kind != "relay")
            print(kind, done, found[done], file=sys.stderr, flush=True)
    return found


def _steps(first: int, count: int) -> List[int]:
    """When to look: at the first, and ten times on the way."""
    return sorted({first, *(count * k // 10 for k in range(1, 11))})


def _rows(found: Dict[int, Footprint]) -> Dict[str, Dict[str, Any]]:
    return {str(done): row._asdict() for done, row in found.items()}


def _frame_count(text: str) -> int:
    if not text.isdecimal() or int(text) < FIRST:
        raise argparse.ArgumentTypeError(f"expected at least {FIRST}, from which growth counts, got {text!r}")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=_frame_count, default=100_000)
    parser.add_argument("--minutes", type=float, default=10.0, help="of messages that get lost")
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--device", default=cpu_model(), help="what to call the machine in the result file's name")
    values = parser.parse_args()
    from polar_pipeline.options.products import PRODUCTS
    from polar_pipeline.tools.bench.node import isolate

    isolate()
    passed = frames(values.frames, {FIRST, *_steps(FIRST, values.frames)}, tuple(PRODUCTS), values.backend)
    lossy = losses(values.minutes, values.backend)
    spawn = multiprocessing.get_context("spawn")  # so that one kind leaves nothing to the next
    rounds: Dict[str, Dict[int, Footprint]] = {}
    for kind in ("relay", "node"):
        with spawn.Pool(1) as pool:
            looks = _steps(max(values.starts // 10, 1), values.starts)
            rounds[kind] = pool.apply(starts, (kind, values.starts, looks, values.backend))
    report = {
        **machine(PACKAGES),
        "backend": values.backend,
        "shape": SHAPE,
        "frames": _rows(passed),
        "losses": {**lossy._asdict(), "footprints": _rows(lossy.footprints)},
        "starts": {kind: _rows(found) for kind, found in rounds.items()},
    }
    path = RESULTS / f"soak_{slug(values.device)}.json"
    write(path, report)
    for title, found in (("frames", passed), *rounds.items()):
        print(f"\n{title}\n")
        print(table(("after", *Footprint._fields), [(done, *row) for done, row in found.items()]))
    print(f"\nlosses: {lossy.sent} messages sent, {lossy.reports} reports, {lossy.gap:.2f} s apart at most\n")
    print(table(("after", *Footprint._fields), [(f"{at} s", *row) for at, row in lossy.footprints.items()]))
    print(", ".join(f"{name} {count}" for name, count in lossy.counts.items()))
    grown = growth(passed[FIRST], passed[values.frames])
    first, *_, last = lossy.footprints.values()
    lost = growth(first, last)
    print(f"\nown memory grew by {100 * grown:.2f} % from {FIRST} to {values.frames} frames")
    print(f"and by {100 * lost:.2f} % while messages got lost; wrote {path}")
    held = (last.threads, last.handles) <= (first.threads, first.handles)
    return int(max(grown, lost) > LIMIT or lossy.gap > REPORT_GAP or not held)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(RESULTS.parent.parent))
    sys.exit(main())
