"""The live node in real time: a camera process, the node and a viewer process over Fast DDS.

Counts frames that do not arrive, and the time from a frame's stamp (taken before it is published) to its arrival at the
viewer. Writes `benchmarks/results/node_<device>.json`.

python benchmarks/node.py --seconds 60
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
from common import RESULTS, cpu_model, machine, slug, write

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PRODUCTS = ("intensity", "dolp", "aolp", "ssim_map", "ssim")
#: Different frames, sent in turn, so that caches do not help.
FRAMES = 8


def camera(phase: Any, ready: Any, sent: Any, seconds: float, rate: float, shape: tuple[int, int]) -> None:
    """Publish synthetic frames: until the viewer is ready to get going, then `seconds` long to be counted."""
    import rclpy
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import Image

    from polar_pipeline import SENSORS
    from polar_pipeline.messages import encode_image
    from polar_pipeline.scene import SCENES, synthetic
    from polar_pipeline.sensor import expose

    rng = np.random.default_rng(0)
    stokes = synthetic(SCENES[0], shape)
    frames = [
        bytearray(encode_image(0, "camera", "mono8", expose(stokes, SENSORS["IMX250MZR"], 8, 10_000, 2.0, rng)))
        for _ in range(FRAMES)
    ]
    rclpy.init()
    node = rclpy.create_node("benchmark_camera")
    publisher = node.create_publisher(Image, "image_raw", qos_profile_sensor_data)

    def send(count: int) -> None:
        start = time.monotonic()
        for k in range(count):
            time.sleep(max(0.0, start + k / rate - time.monotonic()))
            frame = frames[k % FRAMES]
            struct.pack_into("<iI", frame, 4, *divmod(time.time_ns(), 10**9))  # the header's stamp
            publisher.publish(bytes(frame))

    while not ready.is_set():
        send(1)
        time.sleep(1 / rate)
    time.sleep(1.0)  # what is on its way arrives
    phase.value = 1
    send(round(seconds * rate))
    sent.value = round(seconds * rate)
    time.sleep(2.0)  # one report of the node later
    phase.value = 2
    node.destroy_node()
    rclpy.shutdown()


def viewer(phase: Any, ready: Any, results: Any) -> None:
    """Take every product as bytes, and note when it came."""
    import rclpy
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import Image
    from std_msgs.msg import Float32

    from polar_pipeline.messages import decode
    from polar_pipeline.products import PRODUCTS as TABLE

    rclpy.init()
    node = rclpy.create_node("benchmark_viewer")
    counts = dict.fromkeys(PRODUCTS, 0)
    ages: Dict[str, List[float]] = {name: [] for name in PRODUCTS if name != "ssim"}
    stages: Dict[str, List[float]] = {}
    before: Dict[str, int] = {}
    drops: Dict[str, int] = {}
    started = set()

    def take(name: str) -> Any:
        def arrived(cdr: bytes) -> None:
            now = time.time_ns()
            started.add(name)
            if phase.value == 1:
                counts[name] += 1
                if name in ages:
                    seconds, nanoseconds = struct.unpack_from("<iI", cdr, 4)
                    ages[name].append((now - seconds * 10**9 - nanoseconds) / 1e6)

        return arrived

    def latency(cdr: bytes) -> None:
        if phase.value == 1:
            for pair in decode(cdr, "diagnostic_msgs/msg/DiagnosticArray").status[0].values:
                if pair.key != "age":
                    stages.setdefault(pair.key, []).append(float(pair.value))

    def diagnostics(cdr: bytes) -> None:
        values = decode(cdr, "diagnostic_msgs/msg/DiagnosticArray").status[0].values
        now = {pair.key: int(pair.value) for pair in values if pair.key.startswith("dropped: ")}
        if phase.value == 0:
            before.update(now)  # while warming up
        drops.update({cause: count - before.get(cause, 0) for cause, count in now.items()})

    for name in PRODUCTS:
        kind = Float32 if name == "ssim" else Image
        node.create_subscription(kind, TABLE[name].topic, take(name), qos_profile_sensor_data, raw=True)
    node.create_subscription(DiagnosticArray, "latency", latency, qos_profile_sensor_data, raw=True)
    node.create_subscription(DiagnosticArray, "/diagnostics", diagnostics, qos_profile_sensor_data, raw=True)
    while phase.value < 2:
        rclpy.spin_once(node, timeout_sec=0.1)
        if len(started) == len(PRODUCTS):
            ready.set()
    results.put((counts, drops, ages, stages))
    node.destroy_node()
    rclpy.shutdown()


def percentiles(values: List[float]) -> Dict[str, float]:
    """p50, p95, p99 and maximum."""
    names = ("p50", "p95", "p99", "max")
    return {name: round(float(v), 2) for name, v in zip(names, np.percentile(values, (50, 95, 99, 100)))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure")
    parser.add_argument("--rate", type=float, default=24.0, help="frames per second")
    parser.add_argument("--shape", type=int, nargs=2, default=(2048, 2448), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--backend", default="cpu", help="the node's backend")
    parser.add_argument("--output", type=Path, help="result file; benchmarks/results/node_<device>.json by default")
    arguments = parser.parse_args()

    os.environ["FASTDDS_DEFAULT_PROFILES_FILE"] = str(ROOT / "config" / "fastdds_large_frames.xml")
    os.environ.setdefault("ROS_DOMAIN_ID", str(os.getpid() % 100 + 1))
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    spawn = multiprocessing.get_context("spawn")
    phase, sent, ready, results = spawn.Value("i", 0), spawn.Value("i", 0), spawn.Event(), spawn.Queue()
    command = [sys.executable, "-m", "polar_pipeline.node", "--ros-args", "-p", f"backend:={arguments.backend}"]
    node = subprocess.Popen(command)
    peers = [
        spawn.Process(target=viewer, args=(phase, ready, results), daemon=True),
        spawn.Process(
            target=camera,
            args=(phase, ready, sent, arguments.seconds, arguments.rate, tuple(arguments.shape)),
            daemon=True,
        ),
    ]
    try:
        for peer in peers:
            peer.start()
        counts, drops, ages, stages = results.get(timeout=arguments.seconds + 120)
    finally:
        node.terminate()
        node.wait(30)
    report = {
        "machine": machine(("numpy", "opencv-python-headless", "rclpy", "rosbags")),
        "backend": arguments.backend,
        "shape": list(arguments.shape),
        "rate_hz": arguments.rate,
        "seconds": arguments.seconds,
        "frames_sent": sent.value,
        "frames_missed": {name: sent.value - count for name, count in counts.items()},
        "dropped_by_node": {cause.split()[-1]: count for cause, count in drops.items()},
        "stamp_to_viewer_ms": {name: percentiles(values) for name, values in ages.items() if values},
        "stages_ms": {name: percentiles(values) for name, values in stages.items()},
    }
    print(json.dumps(report, indent=2))
    device = slug(cpu_model()) if arguments.backend == "cpu" else arguments.backend
    write(arguments.output or RESULTS / f"node_{device}.json", report)
    return int(any(report["frames_missed"].values()))


if __name__ == "__main__":
    sys.exit(main())
