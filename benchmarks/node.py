"""The live node beside two others, in real time over Fast DDS: a relay of bytes and a node written the usual way.

    python benchmarks/node.py

A camera, each node and a viewer are processes. The nodes (`contenders.py`) take turns, block by block on the same
frames, so that a change of the machine's load meets all of them; each meets three loads:

- alone: one frame at a time, the next one when its last product is there. Latency without any queue.
- fastest: two frames on their way at any time. The highest rate.
- camera: `--rate` frames a second, whether they are answered or not.

Latency is from the moment the camera hands a frame to the middleware until the viewer has a product, or the last of
them. Ten minutes of a camera, with every topic that viewers see by default:

    python benchmarks/node.py --nodes ours --loads camera --runs default --rounds 1 --seconds 600 --output steady.json

Writes `benchmarks/results/node_<device>.json`; fields in capitals as ros2_benchmark defines them. The usual
node is left out where polanalyser or scikit-image is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
from common import RESULTS, cpu_model, machine, slug, table, write

from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.options.products import DEFAULT_PRODUCTS, PRODUCTS
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.recordings.messages import product_message
from polar_pipeline.tools.bench.figures import FrameBlock, summarize
from polar_pipeline.tools.bench.node import IN_FLIGHT, isolate, own_node, raw_frames
from polar_pipeline.tools.bench.rig import BenchRig, CameraLoad, Contender

#: What is asked for, run by run.
RUNS = {
    "with SSIM": ("intensity", "dolp", "aolp", "ssim_map", "ssim"),
    "polarization": ("intensity", "dolp", "aolp"),
    "default": DEFAULT_PRODUCTS,
}
#: What the usual node makes.
USUAL = RUNS["with SSIM"]
#: What the usual node imports.
USUAL_NEEDS = ("polanalyser", "skimage")
LOADS = ("alone", "fastest", "camera")
NODES = ("relay", "usual", "ours")
PACKAGES = ("numpy", "opencv-python-headless", "rclpy", "ros-fastdds", "rosbags", "polanalyser", "scikit-image")


def message_sizes(products: Tuple[str, ...], size: Tuple[int, int]) -> Dict[str, int]:
    """Product -> bytes of its message at half resolution of a mono frame of (width, height)."""
    half = size[1] // 2, size[0] // 2
    arrays = {name: np.zeros(PRODUCTS[name].shape(half, False), PRODUCT_TOPICS[name].dtypes[0]) for name in products}
    return {name: len(product_message(name, array, 0, "camera")[1]) for name, array in arrays.items()}


def contenders(products: Tuple[str, ...], size: Tuple[int, int], backend: str) -> List[Contender]:
    """The nodes to compare."""
    script = (sys.executable, str(Path(__file__).with_name("contenders.py")))
    sizes = (f"{name}={count}" for name, count in message_sizes(products, size).items())
    is_usual = set(products) <= set(USUAL) and all(map(find_spec, USUAL_NEEDS))
    usual = [Contender("usual", (*script, "usual", *products))] if is_usual else []
    return [Contender("relay", (*script, "relay", *sizes)), *usual, own_node("ours", backend)]


def compare(
    rows: List[Contender],
    products: Tuple[str, ...],
    frames: List[bytes],
    loads: Dict[str, CameraLoad],
    rounds: int,
    seconds: float,
) -> Dict[str, Dict[str, Any]]:
    """Load -> node -> figures."""
    blocks: Dict[str, Dict[str, List[FrameBlock]]] = {load: {row.name: [] for row in rows} for load in loads}
    rigs = [BenchRig(row, products, frames) for row in rows]  # all processes, before ROS starts threads
    with ExitStack() as stack:
        for rig in rigs:
            stack.enter_context(rig)
        for rig in rigs:
            rig.wait_ready()
        for done in range(rounds):
            for row, rig in zip(rows, rigs):
                for name, load in loads.items():
                    blocks[name][row.name].append(rig.block(load, seconds))
            print(f"round {done + 1} of {rounds}", file=sys.stderr)
    return {load: {name: summarize(measured) for name, measured in nodes.items()} for load, nodes in blocks.items()}


def ratios(figures: Dict[str, Dict[str, Any]]) -> Dict[str, float]:
    """What the comparison comes to; medians of latency, so that one hiccup of the machine does not decide."""
    alone, fastest = figures.get("alone", {}), figures.get("fastest", {})
    latency = {name: row["latency_ms"]["frame"]["p50"] for name, row in alone.items()}
    cpu = {name: row["cpu_ms_per_frame"] for name, row in alone.items()}
    rate = {name: row["MEAN_FRAME_RATE"] for name, row in fastest.items()}
    rows = (
        ("latency", latency, "ours", "relay"),
        ("latency", latency, "usual", "ours"),
        ("frame rate", rate, "relay", "ours"),
        ("frame rate", rate, "ours", "usual"),
        ("CPU time", cpu, "usual", "ours"),
    )
    return {
        f"{what}: {one} / {other}": round(found[one] / found[other], 2)
        for what, found, one, other in rows
        if one in found and other in found
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="turns of each node")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn at each load")
    parser.add_argument("--rate", type=float, default=24.0, help="the camera's frames per second")
    parser.add_argument("--size", type=int, nargs=2, default=(2448, 2048), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--backend", default="cpu", help="of this package's node")
    parser.add_argument("--runs", nargs="+", choices=tuple(RUNS), default=tuple(RUNS)[:2], help="what to ask for")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=LOADS, help="how frames come")
    parser.add_argument("--nodes", nargs="+", choices=NODES, default=NODES, help="which to measure")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/node_<device>.json")
    arguments = parser.parse_args()

    isolate()
    size = tuple(arguments.size)
    every = {"alone": CameraLoad(), "fastest": CameraLoad(in_flight=IN_FLIGHT), "camera": CameraLoad(arguments.rate)}
    loads = {name: load for name, load in every.items() if name in arguments.loads}
    frames = raw_frames("IMX250MZR", size)
    load_before = os.getloadavg()[0]
    runs: Dict[str, Any] = {}
    for run in arguments.runs:
        rows = [row for row in contenders(RUNS[run], size, arguments.backend) if row.name in arguments.nodes]
        figures = compare(rows, RUNS[run], frames, loads, arguments.rounds, arguments.seconds)
        runs[run] = {"products": RUNS[run], "ratios": ratios(figures), **figures}
        print(f"\n{run}: {', '.join(RUNS[run])}\n")
        print(table(["load", "node", "p50 ms", "p95 ms", "p99 ms", "Hz", "missed", "sent", "CPU ms"], lines(figures)))
        print("\n" + table(["", "ratio"], runs[run]["ratios"].items()), flush=True)
    device = cpu_model() if arguments.backend == "cpu" else Driver().name
    report = {
        "machine": machine(PACKAGES),
        "device": device,
        "load_before": round(load_before, 2),
        "backend": arguments.backend,
        "size": size,
        "rate_hz": arguments.rate,
        "rounds": arguments.rounds,
        "seconds_a_block": arguments.seconds,
        "runs": runs,
    }
    write(arguments.output or RESULTS / f"node_{slug(device)}.json", report)
    return 0


def lines(figures: Dict[str, Dict[str, Any]]) -> List[Tuple[object, ...]]:
    """Rows of the table."""
    return [
        (
            load,
            node,
            *(row["latency_ms"].get("frame", {}).get(name, float("nan")) for name in ("p50", "p95", "p99")),
            row["MEAN_FRAME_RATE"],
            row["NUM_MISSED_FRAMES"],
            row["NUM_FRAMES_SENT"],
            row.get("cpu_ms_per_frame", float("nan")),
        )
        for load, nodes in figures.items()
        for node, row in nodes.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
