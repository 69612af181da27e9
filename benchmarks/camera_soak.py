"""The node with a camera of its own for a long time: lost frames, wrong pixels, and memory.

    python benchmarks/camera_soak.py

For each of `--formats`, `--minutes` of full frames from the tests' camera on loopback, with the default products
subscribed. Frames are counted by the camera, by the node and by the viewer, between two moments at which the camera
pauses, so that all counts are of the same frames. Every few seconds one message of `image_raw` is compared with the
bytes that the camera sends.

Writes `benchmarks/results/camera_soak_<device>.json`; ends with 1 if the node lost a frame that came complete, if a
sample differs, or if the node's own memory grew by more than `LIMIT`. Linux only.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import rclpy
from camera import SOURCE, camera_frames, conditions, parse, start_process
from common import RESULTS, slug, table, write
from diagnostic_msgs.msg import DiagnosticArray
from fake_camera import FakeCamera, sent_bytes
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image
from soak import LIMIT, SETTLED, Footprint, footprint, growth

from polar_pipeline.options import topics
from polar_pipeline.options.products import DEFAULT_PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.ros.endpoints import MESSAGE_CLASSES
from polar_pipeline.tools.bench.node import isolate
from polar_pipeline.tools.bench.rig import START_TIMEOUT_S

#: Seconds between two samples, and until two reports of the node have come.
SAMPLE_PERIOD, REPORTS = 5.0, 2.5
#: Counts of the node's reports on its camera and on frames.
COUNTS = ("frames", "incomplete", "missed", "received", "published")


class Watcher:
    """Viewer of the default products and of the node's reports.

    Attributes:
        came: Product -> messages.
        reported: Counts of the newest report.
    """

    def __init__(self) -> None:
        self.came = dict.fromkeys(DEFAULT_PRODUCTS, 0)
        self.reported: Dict[str, int] = {}
        self._context = rclpy.Context()
        self._context.init()
        self._node = rclpy.create_node("viewer", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._node.create_subscription(DiagnosticArray, topics.REPORT, self._on_report, 10)
        for name in DEFAULT_PRODUCTS:
            self._subscribe(name)

    def close(self) -> None:
        """Leave ROS."""
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.shutdown()

    def _subscribe(self, product: str) -> None:
        def arrived(_: bytes) -> None:
            self.came[product] += 1

        topic = PRODUCT_TOPICS[product]
        kind = MESSAGE_CLASSES[topic.message_type]
        self._node.create_subscription(kind, topic.name, arrived, qos_profile_sensor_data, raw=True)

    def _on_report(self, report: Any) -> None:
        rows = [row for row in report.status if row.name.endswith((": frames", ": camera"))]
        values = {pair.key: pair.value for row in rows for pair in row.values}
        names = [name for name in values if name in COUNTS or name.startswith(("dropped: ", "refused: "))]
        self.reported = {name: int(values[name]) for name in names}

    def spin(self, seconds: float) -> None:
        """Take messages for some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._executor.spin_once(timeout_sec=max(0.0, end - time.monotonic()))

    def sample(self, expected: List[bytes]) -> str:
        """Compare the next message of `image_raw` with the bytes of the camera's frames."""
        came: List[bytes] = []

        def keep(cdr: bytes) -> None:  # rclpy looks at the signature
            came.append(cdr)

        raw = self._node.create_subscription(Image, topics.IMAGE_INPUT, keep, qos_profile_sensor_data, raw=True)
        end = time.monotonic() + SAMPLE_PERIOD
        while not came and time.monotonic() < end:
            self.spin(0.01)
        self._node.destroy_subscription(raw)
        if not came:
            return "absent"
        return "equal" if any(came[0].endswith(pixels) for pixels in expected) else "different"

    def counts(self, camera: FakeCamera) -> Dict[str, int]:
        """Counts since the start, of the camera, the node and the viewer, while the camera pauses."""
        camera.set("TriggerSource", "Software")
        camera.set("TriggerMode", "On")
        self.spin(REPORTS)
        found = {"sent": camera.sent(), **self.reported}
        found.update((f"viewer: {name}", count) for name, count in self.came.items())
        camera.set("TriggerMode", "Off")
        return found


def soak(frames: np.ndarray, pixel_format: str, minutes: float, rate: float, backend: str) -> Dict[str, Any]:
    """Frames that were lost, samples that differ, and what the node's process held, in one pixel format."""
    expected = [sent_bytes(frame, f"Mono{pixel_format}") for frame in frames]
    samples = {"equal": 0, "different": 0, "absent": 0}
    held: Dict[float, Footprint] = {}
    with ExitStack() as stack:
        camera = stack.enter_context(FakeCamera(frames, features={"AcquisitionFrameRate": rate}))
        watcher = Watcher()
        stack.callback(watcher.close)
        parameters = ("-p", f"backend:={backend}", "-p", f"camera.pixel_format:='{pixel_format}'", *SOURCE)
        node = start_process(stack, "-m", "polar_pipeline.node", "--ros-args", *parameters)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(watcher.came.values()):
            watcher.spin(0.1)
            if time.monotonic() > deadline or node.poll() is not None:
                raise RuntimeError(f"products of the node: {watcher.came}")
        before, begin = watcher.counts(camera), time.monotonic()
        while time.monotonic() < begin + 60 * minutes:
            samples[watcher.sample(expected)] += 1
            watcher.spin(SAMPLE_PERIOD)
            held[round(time.monotonic() - begin, 1)] = footprint(node.pid, backend == "cuda")
        counts = {name: count - before.get(name, 0) for name, count in watcher.counts(camera).items()}
    settled = {at: row for at, row in held.items() if at >= 60 * min(SETTLED, minutes / 2)}
    grown = growth(settled[min(settled)], settled[max(settled)])
    slope = np.polyfit(list(settled), [row.own for row in settled.values()], 1)[0]
    lost = counts["sent"] - counts["incomplete"] - counts["missed"] - counts["published"]
    print(f"\n{pixel_format}: {minutes:g} minutes; {lost} frames lost by the node; samples: {samples}\n")
    print(table(["frames", "count"], counts.items()))
    print("\n" + table(["after", *Footprint._fields], [(f"{at:.0f} s", *row) for at, row in held.items()]))
    print(f"\nown memory grew by {100 * grown:.2f} %, {60 * slope:.0f} kB a minute", flush=True)
    return {
        "counts": counts,
        "lost_by_node": lost,
        "samples": samples,
        "growth": round(grown, 5),
        "own_kb_a_minute": round(60 * slope, 1),
        "footprints": {f"{at:.0f}": row._asdict() for at, row in held.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each format")
    parser.add_argument("--formats", nargs="+", choices=("8", "12p"), default=("8", "12p"))
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/camera_soak_<device>.json")
    values = parse(parser)
    isolate()
    load_before = os.getloadavg()[0]
    coarse = camera_frames(tuple(values.size))
    fine = np.random.default_rng(1).integers(0, 16, coarse.shape, np.uint16)
    pictures = {"8": coarse, "12p": 16 * coarse.astype(np.uint16) + fine}
    found = {name: soak(pictures[name], name, values.minutes, values.rate, values.backend) for name in values.formats}
    report = {**conditions(values, load_before), "minutes": values.minutes, **found}
    write(values.output or RESULTS / f"camera_soak_{slug(report['device'])}.json", report)
    is_equal = all(row["samples"]["equal"] and not row["samples"]["different"] for row in found.values())
    return int(not is_equal or any(row["lost_by_node"] or row["growth"] > LIMIT for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
