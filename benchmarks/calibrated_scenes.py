"""Errors of DoLP that a calibration leaves in textured scenes, on a simulated sensor.

    python benchmarks/calibrated_scenes.py [--seed N]

The scenes are Stokes vectors of the frames of `frames/`, a pixel for each superpixel and blurred by 0.6 pixels, and
even light. A simulated sensor with the deviations of `polar-pipeline simulate` records them without noise; so does an
ideal sensor. Both have the same demosaic errors, so the difference of their DoLP is the sensor's. The calibration is of
18 angles with 16 frames each, with noise. Prints a Markdown table of root mean square differences by texture: the
change of S0 within 5x5 pixels, relative to S0. Its last column is the error of the ideal sensor's DoLP by demosaicing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import cv2
import numpy as np

from polar_pipeline import Pipeline, RawFrame
from polar_pipeline.calibration import Calibration, PixelParameters
from polar_pipeline.sensor.mosaic import SENSORS
from polar_pipeline.tools.calibrate.estimate import calibrate
from polar_pipeline.tools.calibrate.simulation import (
    Bench,
    Deviations,
    SimulatedSensor,
    simulate_sensor,
    synthetic_session,
)
from polar_pipeline.tools.calibrate.sums import DARK, SessionSums

FRAMES = Path(__file__).parent.parent / "frames"
SENSOR, BITS, SHAPE, BORDER = SENSORS["IMX250MZR"], 12, (512, 608), 8
#: Deviations of a sensor without any.
IDEAL = Deviations(gain=0.0, angle=0.0, extinction=(1e9, 0.0), black=(0.0, 0.0))
#: Changes of S0 by which pixels are grouped.
TEXTURES = {"smooth, below 5 %": (0, 0.05), "texture, 10 to 30 %": (0.1, 0.3), "edges, above 30 %": (0.3, np.inf)}
METHODS: Tuple[Dict[str, Any], ...] = ({}, {"demosaic": "gradient", "resolution": "full"}, {"resolution": "full"})


def measure(camera: SimulatedSensor, seed: int) -> Calibration:
    """Calibrate a sensor by a session."""
    bench, sums = Bench(tuple(range(0, 180, 10))), SessionSums(camera.sensor)
    for setting, _, mosaic in synthetic_session(camera, bench, BITS, seed):
        sums.add(DARK if setting < 0 else str(setting), RawFrame(mosaic, (1 << BITS) - 1))
    return calibrate(sums, {str(k): angle for k, angle in enumerate(bench.angles)}, camera.sensor).calibration


def scenes() -> Iterator[Tuple[str, np.ndarray]]:
    """Yield (name, (H, W, 3) Stokes vectors)."""
    yield "even light", np.broadcast_to(np.array([1, 0.1 * np.cos(1), 0.1 * np.sin(1)]), (*SHAPE, 3))
    for name in ("fruits", "camera"):
        raw = cv2.imread(str(FRAMES / f"imx250mzr_{name}.png"), cv2.IMREAD_UNCHANGED)
        with Pipeline(SENSOR, "stokes", "cpu", min_intensity=0.0) as pipeline:
            stokes = cv2.GaussianBlur(np.nan_to_num(pipeline(raw)["stokes"]), (0, 0), 0.6)
        yield name, stokes[200 : 200 + SHAPE[0], 300 : 300 + SHAPE[1]].astype(float)


def dolp(raw: np.ndarray, calibration: Any, options: Dict[str, Any]) -> np.ndarray:
    """Compute the DoLP of a frame."""
    with Pipeline(SENSOR, "dolp", "cpu", calibration=calibration, bit_depth=BITS, **options) as pipeline:
        return pipeline(raw)["dolp"].astype(float)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=5, help="seed of the sensor and the noise (default: %(default)s)")
    seed = parser.parse_args().seed
    camera, ideal = simulate_sensor(SENSOR, SHAPE, seed), simulate_sensor(SENSOR, SHAPE, seed, IDEAL)
    calibration = measure(camera, seed)
    zero, defects = np.zeros(SHAPE), np.zeros(SHAPE, bool)
    defects[tuple(calibration.defects.T)] = True
    black = PixelParameters(calibration.parameters().black, zero + 1, zero, zero)
    dark_only = Calibration.from_parameters(black, SENSOR, defects=defects)
    print("| scene | options | light | pixels | without | black level only | calibrated | ratio | demosaic |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, stokes in scenes():
        s0 = stokes[..., 0].astype(np.float32)
        change = cv2.morphologyEx(s0, cv2.MORPH_GRADIENT, np.ones((5, 5))) / np.maximum(s0, 1e-3)
        for options in METHODS:
            step = 1 if "resolution" in options else 2
            truth = cv2.resize(stokes, None, fx=1 / step, fy=1 / step, interpolation=cv2.INTER_AREA)
            degree = np.hypot(truth[..., 1], truth[..., 2]) / np.maximum(truth[..., 0], 1e-6)
            best = dolp(ideal.expose(stokes, BITS), "", options)
            raw = camera.expose(stokes, BITS)
            errors = [dolp(raw, applied, options) - best for applied in ("", dark_only, calibration)]
            errors.append(best - degree)
            valid = np.isfinite(sum(errors)) & (s0 > 0.1)[::step, ::step]
            valid[:BORDER], valid[-BORDER:], valid[:, :BORDER], valid[:, -BORDER:] = False, False, False, False
            for light, (low, high) in TEXTURES.items():
                inside = valid & (change >= low)[::step, ::step] & (change < high)[::step, ::step]
                if not inside.any():
                    continue
                plain, dark, after, own = (float(np.sqrt(np.mean(error[inside] ** 2))) for error in errors)
                shown = " ".join(map(str, options.values())) or "half"
                print(
                    f"| {name} | {shown} | {light} | {inside.mean():.0%} | {plain:.4f} | {dark:.4f} | {after:.4f} "
                    f"| {dark / after:.1f} | {own:.4f} |"
                )


if __name__ == "__main__":
    main()
