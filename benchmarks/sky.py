"""Error of the sun's azimuth in simulated skies, with and without the term of multiple scattering.

Skies are those of Berry, Dennis and Lee in `test/polarimetry/world/rendering.py`, seen through an equidistant lens by a
noisy sensor of 256x256 pixels at 12 bit. The camera is tilted by 25 degrees, 45 degrees beside the sun.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np

from polar_pipeline import Pipeline
from polar_pipeline.geometry import make_lens
from polar_pipeline.polarimetry.world import sky, viewing_rays
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import SENSORS

sys.path.insert(0, str(Path(__file__).parents[1] / "test/polarimetry/world"))
from rendering import singular

VIEWS, ELEVATIONS, SPLITS = (40, 60, 110), (30, 50), (0, 30, 45)
SIDE, FRAMES = 256, 40


def measure(view: float, elevation: float, split: float) -> str:
    """A row: root mean square of errors, and the median standard deviation, in degrees."""
    focal, center, sensor = SIDE / np.radians(view), (SIDE - 1) / 2, SENSORS["IMX250MZR"]
    k = (focal, 0, center, 0, focal, center, 0, 0, 1)
    lens = make_lens((SIDE, SIDE), "equidistant", (0.0,) * 4, k, (0.0,) * 9, (0.0,) * 12)
    c, s, half = np.cos(np.radians(25)), np.sin(np.radians(25)), np.sqrt(0.5)
    tilt = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
    aside = np.array([[half, -half, 0], [half, half, 0], [0, 0, 1]])
    about = aside @ tilt @ aside.T  # toward an azimuth of 45 degrees
    sun = (0.0, float(elevation))
    light = 0.7 * singular(viewing_rays(lens, (SIDE, SIDE)), sun, split, 0.7, about)
    rays, rng = viewing_rays(lens, (SIDE // 2, SIDE // 2), 2), np.random.default_rng(5)
    with Pipeline(
        products="dolp,aolp,dolp_sigma,aolp_sigma", bit_depth=12, resolution="half", backend="cpu"
    ) as pipeline:
        raws = [expose(light, sensor, 12, sensor.full_well, sensor.read_noise, rng) for _ in range(FRAMES)]
        images = [{name: np.array(image) for name, image in pipeline(raw).items()} for raw in raws]
    cells = []
    for known, term in product((None, np.radians(elevation)), (sky._HELD, sky._TERM_SIGMA)):
        with patch.object(sky, "_TERM_SIGMA", term):
            fits = [sky.sky_compass(image, rays, about, elevation=known, min_dolp=0.2) for image in images]
        errors = np.degrees([(fit.azimuths[0] + np.pi) % (2 * np.pi) - np.pi for fit in fits])
        deviation = np.degrees(np.median([fit.azimuth_sigma for fit in fits]))
        cells.append(f"{np.sqrt(np.mean(errors**2)):.2f} ({deviation:.2f})")
    return f"| {view} | {elevation} | {split} | " + " | ".join(cells) + " |"


def main() -> None:
    print("| field of view | elevation | neutral points apart | without | with | known, without | known, with |")
    print("| --- " * 7 + "|")
    for case in product(VIEWS, ELEVATIONS, SPLITS):
        print(measure(*case), flush=True)


if __name__ == "__main__":
    main()
