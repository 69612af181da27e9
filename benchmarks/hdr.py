"""What merged exposures give and cost: range, errors against single exposures, and frames of 24 Hz merged at 12 Hz.

    python benchmarks/hdr.py

- wedge: eight stops of light and DoLP 0.1 to 0.9 in exposures of a ratio of 16, 12 bits, with the noise of an IMX250:
  the largest error of DoLP over that of the better single exposure, and what `dolp_sigma` states over the error.
- range: stops between the darkest light with an error of DoLP below 0.05, and the brightest that is not saturated.
- time: of merging a pair of 2448x2048, and of its products.
- live: the node's engine without ROS, in which pairs arrive at 12 Hz for `--seconds`, and how many were published.

Writes `benchmarks/results/hdr_<device>.json`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
from common import RESULTS, cpu_model, machine, slug, table, write

from polar_pipeline import SENSORS, Pipeline, RawFrame, merge_exposures
from polar_pipeline.live.diagnostics import Diagnostics
from polar_pipeline.live.frame import ReceivedImage
from polar_pipeline.live.parameters import make_settings
from polar_pipeline.live.pipelines import Fallback
from polar_pipeline.live.processor import FrameProcessor
from polar_pipeline.live.publisher import FramePublisher
from polar_pipeline.options.topics import OUTPUT_TOPICS, PRODUCT_TOPICS
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.forward import expose

SENSOR = SENSORS["IMX250MZR"]
RATIO, FULL = 16, 4095
#: Stops of the range, and superpixels of a step and row.
STEP, SIDE = 0.25, 16


def bracket(stokes: np.ndarray, chance: np.random.Generator) -> List[RawFrame]:
    """The short and the long exposure of Stokes vectors in shares of the short one's full scale."""
    noise = SENSOR.full_well, SENSOR.read_noise, chance
    return [RawFrame(expose(times * stokes, SENSOR, 12, *noise), FULL) for times in (1, RATIO)]


def patches(stops: np.ndarray, degrees: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Stokes vectors of patches with all stops of light and all DoLP; and the DoLP of (row, step)."""
    s0, degree = np.meshgrid(0.9 * 2.0**stops, degrees)
    vectors = np.stack([s0, s0 * degree * np.cos(0.8), s0 * degree * np.sin(0.8)], -1)
    return vectors.repeat(2 * SIDE, 0).repeat(2 * SIDE, 1), degree


def measured(stops: np.ndarray, degrees: np.ndarray, frames: int) -> Dict[str, np.ndarray]:
    """Root mean square errors of DoLP by patch: merged, short, long (NaN where saturated); and what is stated."""
    stokes, truth = patches(stops, degrees)
    chance, squares = np.random.default_rng(1), [np.zeros(truth.shape) for _ in range(5)]
    with Pipeline(products="dolp,dolp_sigma", backend="cpu", min_intensity=0.0, co_sited=False) as pipeline:
        for _ in range(frames):
            short, long = bracket(stokes, chance)
            for place, frame in enumerate((merge_exposures([short, long], (1, RATIO)), short, long)):
                out = pipeline(frame)
                rows = [(out["dolp"] - truth.repeat(SIDE, 0).repeat(SIDE, 1)) ** 2]
                rows += [] if place else [out["dolp_sigma"] ** 2, out["dolp"] - truth.repeat(SIDE, 0).repeat(SIDE, 1)]
                for index, row in zip((place,) if place else (0, 3, 4), rows):
                    blocks = row.reshape(len(degrees), SIDE, len(stops), SIDE)[:, 2:-2, :, 2:-2]
                    squares[index] += blocks.mean((1, 3)) / frames
    merged, short_error, long_error, stated = map(np.sqrt, squares[:4])
    deviation = np.sqrt(np.maximum(squares[0] - squares[4] ** 2, 0))
    return {
        "merged": merged,
        "short": short_error,
        "long": long_error,
        "stated": stated,
        "deviation": deviation,
        "dolp": truth,
    }


def live(seconds: float) -> Dict[str, float]:
    """Published pairs of those that arrived, and milliseconds from arrival to publication."""

    class Topic:
        def get_subscription_count(self) -> int:
            return 1 if self in wanted else 0

        def publish(self, _: bytes) -> None:
            pass

    topics: Dict[str, Any] = {name: Topic() for name in OUTPUT_TOPICS}
    wanted = [topics[PRODUCT_TOPICS[name].name] for name in ("intensity", "dolp", "aolp")]
    settings = make_settings({"backend": "cpu"})
    diagnostics = Diagnostics("node", logging.getLogger("hdr"))
    publisher = FramePublisher(topics, lambda _: None, diagnostics)
    with ThreadPoolExecutor(1) as background:
        processor = FrameProcessor(lambda: settings, Fallback(), diagnostics, publisher, background)
        processor.warm_up()
        processor.start()
        state = _state()
        stokes = np.broadcast_to([0.3, 0.1, 0.05], (2048, 2448, 3)) * np.linspace(0.01, 2, 2448)[:, np.newaxis]
        rows = [messages.encode_image(0, "", "Mono12", row.mosaic) for row in bracket(stokes, np.random.default_rng(2))]
        begin, count = time.perf_counter(), int(12 * seconds)
        for number in range(count):
            time.sleep(max(0.0, begin + number / 12 - time.perf_counter()))
            now = time.perf_counter()
            short, long = (
                ReceivedImage(messages.restamp(bytes(row), 10**9 + (2 * number + k) * 41_666_667), now, 0, each)
                for k, (row, each) in enumerate(zip(rows, state))
            )
            diagnostics.received(10**9 + number * 83_333_333)
            processor.put(replace(long, before=short))
        time.sleep(0.5)
        values = diagnostics.statuses("", "")
        processor.close()
    times = [float(text) for text in values[1].values["total [ms]"].split(" / ")]
    return {"arrived": count, "published": float(values[0].values["published"]), "p50": times[0], "max": times[3]}


def _state() -> List[Any]:
    """States of a camera with the short and the long exposure."""
    from polar_pipeline.camera.facts import CameraFacts

    of = ("", "", "", "IMX250MZR", "Mono12", (2448, 2048), (0, 0), (False, False), 0.0)
    return [CameraFacts(*of, exposure_us=time, temperature=None) for time in (1000.0, 1000.0 * RATIO)]


def times() -> Dict[str, float]:
    """Median milliseconds of merging a pair of full frames, and of the products of the result."""
    stokes = np.broadcast_to([0.3, 0.1, 0.05], (2048, 2448, 3)) * np.linspace(0.01, 2, 2448)[:, np.newaxis]
    frames = bracket(stokes, np.random.default_rng(3))
    found: Dict[str, List[float]] = {}

    def add(name: str, work: Any) -> Any:
        start = time.perf_counter()
        result = work()
        found.setdefault(name, []).append(1000 * (time.perf_counter() - start))
        return result

    with Pipeline(backend="cpu") as usual, Pipeline(products="dolp,aolp,dolp_sigma,aolp_sigma", backend="cpu") as noise:
        for _ in range(40):
            merged = add("merge", lambda: merge_exposures(frames, (1, RATIO)))
            add("intensity, dolp, aolp", lambda merged=merged: usual(merged))
            add("with both deviations", lambda merged=merged: noise(merged))
    return {name: float(np.median(row[5:])) for name, row in found.items()}


def main() -> int:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / f"hdr_{slug(cpu_model())}.json")
    values = parser.parse_args()
    wedge = measured(np.arange(-8, 1), np.linspace(0.1, 0.9, 5), values.frames)
    better = np.fmin(wedge["short"], wedge["long"])
    sure = wedge["dolp"] > 3 * wedge["stated"]
    ratio = (wedge["stated"] / wedge["deviation"])[sure]
    stops = np.arange(-14, 2, STEP)
    rows = measured(stops, np.array([0.3]), values.frames)
    ranges = {name: float(np.ptp(stops[rows[name][0] < 0.05])) for name in ("short", "long", "merged")}
    result = {
        "machine": machine(["numpy"]),
        "wedge": {
            "largest error over the better exposure's": float((wedge["merged"] / better).max()),
            "stated over measured": [float(ratio.min()), float(ratio.max())],
            "largest gain over the short exposure": float((wedge["short"] / wedge["merged"]).max()),
        },
        "range in stops": ranges,
        "times in ms": times(),
        "live": live(values.seconds),
    }
    flat = [
        (f"{name}: {key}", value) for name, row in result.items() if name != "machine" for key, value in row.items()
    ]
    print(table(("what", "measured"), [(name, str(value)) for name, value in flat]))
    write(values.output, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
