"""Simulates exposure on an outdoor scene: saturated superpixels by what is steered, and frames until the light is met.

.venv/bin/python benchmarks/exposure.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "helpers"))
from simulated_exposure import FULL_WELL, SimulatedCamera, light_of

#: Name -> steered quantity of pixels, as shares of full scale, and its target.
STEERED = {
    "mean of all pixels, 128 of 255": (np.mean, 128 / 255),
    "mean of all pixels, 70 of 255": (np.mean, 70 / 255),
    "99.5th percentile of all pixels, 85 %": (lambda pixels: np.percentile(pixels, 99.5), 0.85),
    "99.5th percentile of brightest angles, 85 %": (lambda pixels: np.percentile(pixels.max(-1), 99.5), 0.85),
}


def saturated_share(light: np.ndarray, steered: Callable[[np.ndarray], float], target: float) -> float:
    """Return the share of superpixels with a saturated angle once a quantity of the pixels is at its target."""
    low, high = 1e-3, 1e9
    for _ in range(80):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if steered(np.minimum(light * middle / FULL_WELL, 1)) < target else (low, middle)
    return float((light * low >= FULL_WELL).any(-1).mean())


def main() -> None:
    """Print both tables."""
    light = light_of("street")
    for name, (steered, target) in STEERED.items():
        print(f"{name:45} {saturated_share(light, steered, target):6.1%}")
    print("frames until the last change: latency, 100 times darker, 100 times brighter")
    for latency in (1, 2, 3, 4, 6):
        camera = SimulatedCamera(latency)
        camera.run(light, 60)
        print(latency, camera.run(light / 100, 60), camera.run(light, 60))
    print("the same with 40 times")
    for latency in (1, 2, 3, 4, 6):
        camera = SimulatedCamera(latency)
        camera.run(light, 60)
        print(latency, camera.run(light / 40, 60), camera.run(light, 60))


if __name__ == "__main__":
    main()
