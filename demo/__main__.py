"""`make demo`: plays a camera's frames into the real node and writes a report.

Records a sample, the real frames of the folder `frames` first, then scenes made with the forward model; starts the
node; plays the sample into it at the camera's rate; records what it publishes: every number, and the images of each
frame of the sample once. Writes demo/report.html and demo/contact_sheet.png, and prints the latency per stage. Then it
compares a short drive with its golden recording, as a CI job would: the drive has a deliberate error, which the JUnit
file names.
"""

from __future__ import annotations

import importlib.util
import math
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

import numpy as np

from polar_pipeline import __version__
from polar_pipeline.options.topics import PRODUCT_TOPICS
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.pictures.overview import overview
from polar_pipeline.quality.frame_checks import NO_FRAME
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.rawpicture import read_picture
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.replay.report import format_timings, render
from polar_pipeline.replay.run import FrameProducts, ReplayedFrame, Summary
from polar_pipeline.ros.fast_dds import transport_environment
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from scenes import SCENES, synthetic

HERE = Path(__file__).parent
OUTPUT = HERE / "output"
#: Raw frames of an IMX250MZR.
CAMERA_FRAMES = HERE.parent / "frames"
SAMPLE, RECORDING = OUTPUT / "sample.mcap", OUTPUT / "recording.mcap"
PLAYER_ERRORS = OUTPUT / "player.log"
#: The camera: frames per second, and (height, width).
RATE, SHAPE = 24.0, (2048, 2448)
#: Frames to see through the node: ten seconds.
FRAMES = 240
#: Pictures of the sample per synthetic scene.
MOMENTS = (0.0, 1.0)
#: Shot and read noise of the synthetic frames, in electrons: those of the IMX250.
FULL_WELL, READ_NOISE = 10_500.0, 2.4
#: Frames of the drive, their (height, width), and the frame with an error, from 0.
DRIVE_FRAMES, DRIVE_SHAPE, WRONG_FRAME = 60, (480, 640), 57
IMAGES = ("intensity", "dolp", "aolp", "preview", "ssim_map")
#: Products in the contact sheet, side by side.
SHOWN = ("intensity", "dolp", "aolp")
#: Seconds that a process gets to start, or to stop.
TIMEOUT_S = 30.0


class DemoError(Exception):
    """Why the demo failed."""


# -------------------------------------------------------------------------------------------------------------- sample


def sample_frames() -> Iterator[Tuple[str, np.ndarray]]:
    """(name, mosaic) of every frame of the sample, those of a real camera first."""
    for path in sorted(CAMERA_FRAMES.glob("*.png")):
        yield path.stem, messages.to_raw(read_picture(path)).unpack().mosaic
    rng = np.random.default_rng(0)
    for name in SCENES:
        for moment in MOMENTS:
            stokes = synthetic(name, SHAPE, time=moment)
            mosaic = expose(stokes, SENSORS["IMX250MZR"], full_well=FULL_WELL, read_noise=READ_NOISE, rng=rng)
            yield f"synthetic {name} {moment:g} s", mosaic


def record_sample() -> List[str]:
    """Write the sample; returns the names of its frames, which travel as their frame_id."""
    names = []
    with open_sink(SAMPLE, {}, force=True) as sink:
        for name, mosaic in sample_frames():
            names.append(name)
            stamp = round(len(names) * 1e9 / RATE)
            sink.write("/image_raw", messages.IMAGE, stamp, messages.encode_image(stamp, name, "mono8", mosaic))
    return names


# ------------------------------------------------------------------------------------------------------------- running


@contextmanager
def running(*arguments: str, errors: Optional[BinaryIO] = None) -> Iterator[subprocess.Popen[bytes]]:
    """A Python module as a process, ended as Ctrl-C would end it; a file may take its errors."""
    process = subprocess.Popen([sys.executable, "-m", *arguments], stderr=errors)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(frozen=True)
class Message:
    """A message as it came in, in nanoseconds since the epoch."""

    time_ns: int
    topic: str
    kind: str
    cdr: bytes


class Recorder:
    """What came from the node."""

    def __init__(self) -> None:
        self.recorded: List[Message] = []
        self.samples: Dict[str, FrameProducts] = {}
        self.counts: Dict[str, int] = {}
        self._pending: Dict[int, Dict[str, Message]] = {}

    def take(self, topic: str, kind: str, cdr: bytes) -> None:
        """Keep a message; of an image only if its frame of the sample has not been kept yet."""
        self.counts[topic] = self.counts.get(topic, 0) + 1
        message = Message(time.time_ns(), topic, kind, cdr)
        if kind != messages.IMAGE:
            self.recorded.append(message)
            return
        image = messages.decode_image(cdr)
        if image.frame_id in self.samples:
            return
        frame = self._pending.setdefault(image.stamp_ns, {})
        frame[topic] = message
        if len(frame) == len(IMAGES):
            arrays = {
                name: messages.to_array(messages.decode_image(frame[PRODUCT_TOPICS[name].name].cdr)) for name in IMAGES
            }
            self.samples[image.frame_id] = FrameProducts(image.stamp_ns, arrays)
            self.recorded.extend(frame.values())
            del self._pending[image.stamp_ns]

    def numbers(self, topic: str, kind: str) -> Iterator[Tuple[int, Any]]:
        """(time, message) of every number on a topic."""
        from rclpy.serialization import deserialize_message

        from polar_pipeline.ros.endpoints import MESSAGE_CLASSES

        ros_type = MESSAGE_CLASSES[kind]
        return ((row.time_ns, deserialize_message(row.cdr, ros_type)) for row in self.recorded if row.topic == topic)

    def write(self) -> None:
        """Write the recording."""
        with open_sink(RECORDING, {}, force=True) as sink:
            for row in sorted(self.recorded, key=lambda row: row.time_ns):
                sink.write(f"/{row.topic.lstrip('/')}", row.kind, row.time_ns, row.cdr)


def run() -> Recorder:
    """Play the sample into the node and listen until enough frames came through.

    Raises:
        DemoError: The node did not start, or a process ended by itself.
    """
    os.environ.update(transport_environment())
    os.environ.update(ROS_DOMAIN_ID=str(random.randint(1, 100)), ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST")
    import rclpy  # after the environment that it reads
    from diagnostic_msgs.msg import DiagnosticArray
    from sensor_msgs.msg import Image
    from std_msgs.msg import Float32

    topics = {PRODUCT_TOPICS[name].name: (Image, messages.IMAGE) for name in IMAGES}
    topics[PRODUCT_TOPICS["ssim"].name] = (Float32, messages.FLOAT32)
    topics["latency"] = topics["/diagnostics"] = (DiagnosticArray, messages.DIAGNOSTICS)
    recorder = Recorder()
    with ExitStack() as stack:
        rclpy.init()
        stack.callback(rclpy.try_shutdown)
        listener = rclpy.create_node("demo_recorder")
        stack.callback(listener.destroy_node)
        for topic, (ros_type, kind) in topics.items():
            listener.create_subscription(ros_type, topic, partial(recorder.take, topic, kind), 10, raw=True)
        node = stack.enter_context(running("polar_pipeline.node", "--ros-args", "-p", "output_depth:=uint8"))
        deadline = time.monotonic() + TIMEOUT_S
        while not all(listener.count_publishers(topic) for topic in topics):
            rclpy.spin_once(listener, timeout_sec=0.1)
            check(node.poll() is None, f"the node ended with exit code {node.poll()}")
            check(time.monotonic() < deadline, f"the node did not start within {TIMEOUT_S:g} s")
        play = ("play", str(SAMPLE), "--rate", f"{RATE:g}", "--loop", "--restamp", "--wait", f"{TIMEOUT_S:g}")
        # at the end it is interrupted, and says so
        errors = stack.enter_context(PLAYER_ERRORS.open("wb"))
        player = stack.enter_context(running("polar_pipeline", *play, errors=errors))
        deadline = time.monotonic() + FRAMES / RATE + TIMEOUT_S
        while recorder.counts.get("latency", 0) < FRAMES and time.monotonic() < deadline:
            rclpy.spin_once(listener, timeout_sec=0.1)
            for name, process in (("node", node), ("player", player)):
                said = PLAYER_ERRORS.read_text(encoding="utf-8") if process is player else ""
                check(process.poll() is None, f"the {name} ended with exit code {process.poll()}: {said}")
    return recorder


def check(condition: bool, reason: str) -> None:
    """Raise `DemoError` unless a condition holds."""
    if not condition:
        raise DemoError(reason)


# ------------------------------------------------------------------------------------------------------------- results


def contact_sheet(samples: Dict[str, FrameProducts]) -> np.ndarray:
    """The overviews of all frames, one below the other, as RGB; those of the camera are the picture in the README."""
    rows = ((title, {name: sample.products[name] for name in SHOWN}) for title, sample in samples.items())
    return np.vstack([overview(products, title) for title, products in rows])


def main() -> int:
    """Run the demo; returns the exit code."""
    OUTPUT.mkdir(exist_ok=True)
    try:
        has_ros = importlib.util.find_spec("rclpy") is not None
        check(has_ros, "it needs ROS 2, installed or as the wheels of the extra `ros` (Linux, Python 3.10 or newer)")
        print(f"recording a sample of {SHAPE[1]}x{SHAPE[0]} pixels ...", flush=True)
        names = record_sample()
        print(f"playing its {len(names)} frames into the node at {RATE:g} Hz ...", flush=True)
        recorder = run()
        summarize(recorder, names)
        compare()
    except DemoError as err:
        print(f"demo failed: {err}", file=sys.stderr)
        return 1
    return 0


def record_drive(path: Path, wrong: bool) -> None:
    """Write a camera that pans over a real frame; if `wrong`, some pixels of one frame are too bright."""
    mosaic = messages.to_raw(read_picture(min(CAMERA_FRAMES.glob("*.png")))).unpack().mosaic
    with open_sink(path, {}, force=True) as sink:
        for k in range(DRIVE_FRAMES):
            raw = mosaic[4 * k : 4 * k + DRIVE_SHAPE[0], 8 * k : 8 * k + DRIVE_SHAPE[1]].copy()
            if wrong and k == WRONG_FRAME:
                raw[200:204, 300:304] ^= 64
            stamp = round((k + 1) * 1e9 / RATE)
            sink.write("/image_raw", messages.IMAGE, stamp, messages.encode_image(stamp, "drive", "mono8", raw))


def compare() -> None:
    """Compare a drive that has an error with the golden recording of one that has none, and show the JUnit file.

    Raises:
        DemoError: The comparison does not fail.
    """
    results = OUTPUT / "comparison.xml"
    tool = [sys.executable, "-m", "polar_pipeline", "replay", "drive.mcap", "--force"]
    outputs = ["--junit", results.name, "--json", "comparison.json", "--report", "comparison.html"]
    for wrong, words in (
        (False, ["-o", "golden.mcap", "--report", "-"]),
        (True, ["--compare", "golden.mcap", *outputs]),
    ):
        record_drive(OUTPUT / "drive.mcap", wrong)
        done = subprocess.run([*tool, *words], cwd=OUTPUT, check=False, capture_output=True, text=True)
        check(done.returncode == wrong, f"replay ended with exit code {done.returncode}: {done.stderr}")
    print("This drive has an error on purpose: a CI job that compares it with the golden recording fails like this:\n")
    print(done.stdout[done.stdout.index("failed: ") :])
    print(results.read_text(encoding="utf-8"))
    print("wrote demo/output/comparison.xml, comparison.json and comparison.html")


def describe(status: Any) -> str:
    """One status of the node's diagnostics: its message, what it dropped, and its last error."""
    values = {pair.key: pair.value for pair in status.values}
    dropped = [f"{key} {value}" for key, value in values.items() if key.startswith("dropped")]
    return ", ".join(filter(None, [status.message, *dropped, values.get("last error", "")]))


def summarize(recorder: Recorder, names: List[str]) -> None:
    """Write the recording, the report and the contact sheet, and print the latency table.

    Raises:
        DemoError: Frames were lost entirely, or a product never arrived.
    """
    reports = [message.status for _, message in recorder.numbers("/diagnostics", messages.DIAGNOSTICS)]
    node_says = describe(reports[-1][0]) if reports else "nothing"
    frames: List[ReplayedFrame] = []
    for _, message in recorder.numbers("latency", messages.DIAGNOSTICS):
        timings = {pair.key: float(pair.value) / 1000 for pair in message.status[0].values if pair.value != "n/a"}
        stamp = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
        frames.append(ReplayedFrame(stamp, timings=timings))
    stamps = [row.stamp_ns or 0 for row in frames]
    check(bool(stamps), f"no frame came through; in its diagnostics the node says: {node_says}")
    missing = [topic for topic in (PRODUCT_TOPICS[name].name for name in IMAGES) if not recorder.counts.get(topic)]
    check(not missing, f"nothing arrived on {', '.join(missing)}; the node says: {node_says}")
    check(bool(recorder.samples), f"no frame arrived with all of its products; the node says: {node_says}")
    expected = round((stamps[-1] - stamps[0]) / 1e9 * RATE) + 1
    recorder.write()
    facts = {
        "frames": f"{len(stamps)} of {expected} at {RATE:g} Hz, {SHAPE[1]}x{SHAPE[0]} pixels",
        "images received": ", ".join(f"{name} {recorder.counts[PRODUCT_TOPICS[name].name]}" for name in IMAGES),
        "the node says": node_says,
        "recording": RECORDING.name,
        "polar_pipeline": __version__,
    }
    numbers = recorder.numbers(PRODUCT_TOPICS["ssim"].name, messages.FLOAT32)
    frames += [ReplayedFrame(time_ns, ssim=float(row.data)) for time_ns, row in numbers]
    samples = {name: recorder.samples[name] for name in names if name in recorder.samples}
    summary = Summary(frames, math.inf, list(samples.values()), NO_FRAME.layout, "")
    report = render("polar_pipeline, live", facts, summary)
    (HERE / "report.html").write_text(report, encoding="utf-8")
    (HERE / "contact_sheet.png").write_bytes(encode_picture(contact_sheet(samples), ".png"))
    print(format_timings(summary.timings))
    print(f"{len(stamps)} of {expected} frames came through; the node says: {node_says}")
    print("wrote demo/report.html, demo/contact_sheet.png and demo/output/recording.mcap")


if __name__ == "__main__":
    sys.exit(main())
