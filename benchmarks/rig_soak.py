"""A rig in step for a long time, while its cameras fail: are frames of different moments ever in one set?

    python benchmarks/rig_soak.py

Three of the tests' cameras on loopback, in step by PTP, show the number of the moment at which each frame is exposed.
Every `PHASE` seconds there is another fault: packets are lost, a camera is unplugged, its clock jumps, or the leader's
exposure changes. After each fault, the rig runs without one. A viewer takes the raw frames, and the sets in
`/diagnostics`.

Writes `benchmarks/results/rig_soak_<device>.json`; ends with 1 if a set that the rig calls matched has frames of
different moments or not of all cameras, if a frame is in two sets, or if fewer than `CALM` of the sets in phases
without a fault were matched. Needs root, for addresses of the loopback interface. Linux only.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import rclpy
from camera import PACKAGES, start_process
from common import RESULTS, cpu_model, machine, slug, table, write
from fake_camera import FakeCamera, loopback_addresses
from rclpy.executors import SingleThreadedExecutor
from rig_in_step import IN_STEP, SetWatcher, pictures, rig_file

from polar_pipeline.camera.aravis import CameraError, load_aravis
from polar_pipeline.tools.bench.node import isolate
from polar_pipeline.tools.bench.rig import START_TIMEOUT_S

#: Seconds of a fault, and of the time without one after it, of which the first part belongs to the fault: a camera
#: comes back, and the shortest interval of stamps is forgotten.
PHASE, RECOVERY = 6.0, 4.0
#: Least ratio of matched sets in phases without a fault: a busy machine loses frames, too.
CALM = 0.9
#: Ratio of lost packets.
LOSS = 0.05
NAMES = ("cam0", "cam1", "cam2")
#: A fault: its name, what begins it, and what ends it.
Fault = Tuple[str, Callable[[], Any], Callable[[], Any]]


def faults(cameras: List[FakeCamera], rate: float) -> List[Fault]:
    """Return the faults in the order in which they come."""

    def lose(ratio: float) -> None:
        for camera in cameras:
            camera.lose(ratio)

    def jump(number: int, seconds: float) -> Fault:
        camera = cameras[number]
        name = f"clock of {NAMES[number]} jumps by {seconds:g} s"
        return name, lambda: camera.clock(seconds), lambda: camera.clock(0.0)

    period = 1 / rate
    leader = cameras[0]
    return [
        (f"{LOSS:.0%} of the packets are lost", lambda: lose(LOSS), lambda: lose(0.0)),
        jump(1, period),
        ("cam2 is unplugged", cameras[2].kill, cameras[2].start),
        jump(2, -period),
        jump(0, 2 * period),
        ("the leader is unplugged", leader.kill, leader.start),
        jump(1, 0.003),
        jump(2, 37.0),
        jump(1, -0.4),
        jump(0, 3600.0),
        (
            "the leader's exposure is twice as long",
            lambda: leader.set("ExposureTime", 10000.0),
            lambda: leader.set("ExposureTime", 5000.0),
        ),
    ]


class Viewer:
    """The watcher of the sets, with its node of ROS."""

    def __init__(self) -> None:
        self._context = rclpy.Context()
        self._context.init()
        self._node = rclpy.create_node("viewer", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self.watcher = SetWatcher(self._node, len(NAMES))

    def close(self) -> None:
        """Leave ROS."""
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.shutdown()

    def spin(self, seconds: float) -> Dict[str, int]:
        """Take messages for some seconds; return the number of sets by the first word of their text."""
        before, end = len(self.watcher.sets), time.monotonic() + seconds
        while time.monotonic() < end:
            self._executor.spin_once(timeout_sec=max(0.0, end - time.monotonic()))
        counts: Dict[str, int] = {}
        for row in self.watcher.sets[before:]:
            word = row.text.split(":")[0]
            counts[word] = counts.get(word, 0) + 1
        return counts


def soak(values: argparse.Namespace) -> Dict[str, Any]:
    """Counts of sets by fault and without one, and what is wrong with them."""
    by_fault: Dict[str, Dict[str, int]] = {}
    with ExitStack() as stack:
        addresses = stack.enter_context(loopback_addresses(len(NAMES)))
        frames = pictures(tuple(values.size))
        cameras = [
            stack.enter_context(FakeCamera(frames, address=address, serial=f"RIG{k}", **IN_STEP))
            for k, address in enumerate(addresses)
        ]
        viewer = Viewer()
        stack.callback(viewer.close)
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()), "rig.yaml")
        path.write_text(rig_file(len(NAMES), values.rate, is_strict=values.strict), encoding="utf-8")
        code = "import sys; from polar_pipeline.node import rig; sys.exit(rig())"
        process = start_process(stack, "-c", code, str(path))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not viewer.spin(0.5).get("matched"):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError("the rig does not match frames")
        schedule, number = faults(cameras, values.rate), 0
        end = time.monotonic() + 60 * values.minutes
        while time.monotonic() < end:
            name, begin, stop = schedule[number % len(schedule)]
            number += 1
            begin()
            during = viewer.spin(PHASE)
            stop()
            for label, counts in ((name, during), (name, viewer.spin(RECOVERY)), ("none", viewer.spin(PHASE))):
                row = by_fault.setdefault(label, {})
                for status, count in counts.items():
                    row[status] = row.get(status, 0) + count
        verdict = viewer.watcher.judge(set(NAMES), values.strict)
        received = dict(viewer.watcher.received)
    words = ("matched", "late", "missing", "unequal")
    print(table(["fault", *words], [(name, *(row.get(word, 0) for word in words)) for name, row in by_fault.items()]))
    print("\n" + table(["what", "count"], verdict.items()), flush=True)
    return {"by_fault": by_fault, "verdict": verdict, "frames": received, "node_counts": viewer.watcher.counts}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=10.0, help="frames per second")
    parser.add_argument("--size", type=int, nargs=2, default=(256, 320), metavar=("H", "W"))
    parser.add_argument("--strict", action="store_true", help="publish complete sets only")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/rig_soak_<device>.json")
    values = parser.parse_args()
    try:
        load_aravis()
    except CameraError as err:
        parser.error(str(err))
    isolate()
    load_before = round(os.getloadavg()[0], 2)
    report = {
        "machine": machine(PACKAGES),
        "device": cpu_model(),
        "load_before": load_before,
        "minutes": values.minutes,
        "rate_hz": values.rate,
        "size": values.size,
        "strict": values.strict,
        **soak(values),
    }
    write(values.output or RESULTS / f"rig_soak_{slug(report['device'])}.json", report)
    verdict, calm = report["verdict"], report["by_fault"].get("none", {})
    is_calm = calm.get("matched", 0) >= CALM * sum(calm.values())
    return int(bool(verdict["mixed"] or verdict["twice"]) or not is_calm)


if __name__ == "__main__":
    sys.exit(main())
