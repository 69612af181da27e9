"""Error of the sun's azimuth in simulated skies, with and without the term of multiple scattering.

A second table compares rules that use the term only where the image shows it, for a given elevation of the sun. Each
rule turns the measured term, in standard deviations, into the weight of the fit with the term; the remaining weight is
that of the fit without it. The deviation of a weighted azimuth includes its distance from the fit with the term.

Skies are those of Berry, Dennis and Lee in `test/polarimetry/world/rendering.py`, seen through an equidistant lens by a
noisy sensor of 256x256 pixels at 12 bit. The camera is tilted by 25 degrees, 45 degrees beside the sun.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple
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

#: Field of view, elevation and distances of neutral points, in degrees, for which rules are compared.
RULE_VIEW, RULE_ELEVATION, RULE_SPLITS = 40, 50, (0, 5, 10, 15, 20, 30, 45)
#: Weights of the fit with the term, from the measured term in standard deviations.
RULES: Dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "never": np.zeros_like,
    "always": np.ones_like,
    "above 2.5 deviations": lambda size: np.where(size > 2.5, 1.0, 0.0),
    # Schwarz: Estimating the dimension of a model, 1978; the images have 64 squares of independent noise.
    "weights by BIC": lambda size: 1 / (1 + 8 * np.exp(-(size**2) / 2)),
    # Breiman: Better subset regression using the nonnegative garrote, 1995, with the penalty of AIC.
    "garrote": lambda size: np.clip(1 - 2 / size**2, 0, 1),
}


def frames(view: float, elevation: float, split: float) -> Tuple[List[Dict[str, np.ndarray]], np.ndarray, np.ndarray]:
    """Noisy images of a sky, their rays, and the camera's attitude."""
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
    return images, rays, about


def cell(errors: np.ndarray, deviations: np.ndarray) -> str:
    """Root mean square of errors, and the median standard deviation."""
    return f"{np.sqrt(np.mean(errors**2)):.2f} ({np.median(deviations):.2f})"


def measure(view: float, elevation: float, split: float) -> str:
    """A row: errors and deviations of fits, in degrees."""
    images, rays, about = frames(view, elevation, split)
    cells = []
    for known, term in product((None, np.radians(elevation)), (sky._HELD, sky._TERM_SIGMA)):
        with patch.object(sky, "_TERM_SIGMA", term):
            fits = [sky.sky_compass(image, rays, about, elevation=known, min_dolp=0.2) for image in images]
        cells.append(cell(*errors_of(fits)))
    return f"| {view} | {elevation} | {split} | " + " | ".join(cells) + " |"


def errors_of(fits: List[sky.SunFit]) -> Tuple[np.ndarray, np.ndarray]:
    """Errors of azimuths and their deviations, in degrees; the sun's azimuth is 0."""
    errors = np.degrees([(fit.azimuths[0] + np.pi) % (2 * np.pi) - np.pi for fit in fits])
    return errors, np.degrees([fit.azimuth_sigma for fit in fits])


def compare_rules(split: float) -> str:
    """A row: errors and deviations by each rule, in degrees."""
    images, rays, about = frames(RULE_VIEW, RULE_ELEVATION, split)
    steps: List[Any] = []
    refine = sky._fit

    def recorded(*args: Any, **options: Any) -> Any:
        steps.append(refine(*args, **options))
        return steps[-1]

    options = {"elevation": np.radians(RULE_ELEVATION), "min_dolp": 0.2}
    with_term, sizes = [], []
    with patch.object(sky, "_fit", recorded):
        for image in images:
            with_term.append(sky.sky_compass(image, rays, about, **options))
            pattern, covariance = steps[-1]
            sizes.append(pattern.term / np.sqrt(covariance[2, 2]))
    with patch.object(sky, "_TERM_SIGMA", sky._HELD):
        without, _ = errors_of([sky.sky_compass(image, rays, about, **options) for image in images])
    errors, deviations = errors_of(with_term)
    cells = []
    for rule in RULES.values():
        shift = (1 - rule(np.array(sizes))) * (without - errors)
        cells.append(cell(errors + shift, np.hypot(deviations, shift)))
    return f"| {split} | " + " | ".join(cells) + " |"


def main() -> None:
    print("| field of view | elevation | neutral points apart | without | with | known, without | known, with |")
    print("| --- " * 7 + "|")
    for case in product(VIEWS, ELEVATIONS, SPLITS):
        print(measure(*case), flush=True)
    print("\n| neutral points apart | " + " | ".join(RULES) + " |")
    print("| --- " * (1 + len(RULES)) + "|")
    for split in RULE_SPLITS:
        print(compare_rules(split), flush=True)


if __name__ == "__main__":
    main()
