"""Injected faults, on real frames and on synthetic ones: each changes the figures that docs/image_quality.md names.

Where the table there says that a figure does not see a fault, that is tested too.
"""

from __future__ import annotations

from typing import Callable, NamedTuple

import cv2
import numpy as np
import pytest
from support import REAL_FRAMES, real_frame

from polar_pipeline import SENSORS, Pipeline
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.scene import synthetic

MONO = SENSORS["IMX250MZR"]
SOURCES = (*REAL_FRAMES, "spheres", pytest.param("window", marks=pytest.mark.exhaustive))


@pytest.fixture(scope="module", params=SOURCES)
def good(request: pytest.FixtureRequest) -> np.ndarray:
    """A good raw frame."""
    if request.param in REAL_FRAMES:
        return real_frame(request.param)
    stokes = synthetic(request.param, (1024, 1224))
    return expose(stokes, MONO, full_well=10_000, read_noise=4, rng=np.random.default_rng(0))


def digital(raw: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(raw), 0, 255).astype(np.uint8)


def noise(raw: np.ndarray, levels: float) -> np.ndarray:
    return digital(raw + np.random.default_rng(1).normal(0, levels, raw.shape))


def defocus(raw: np.ndarray, sigma: float = 2.0) -> np.ndarray:
    """Each polarizer's picture blurred by `sigma` of its pixels; the noise of the sensor stays, so it is added anew."""
    plane = raw[::2, ::2].astype(float)
    curvature = plane[:, :-2] - 2 * plane[:, 1:-1] + plane[:, 2:]
    levels = np.median(np.abs(curvature)) / 0.6745 / np.sqrt(6)  # Gaussian noise: deviation from the median
    out = raw.astype(np.float32)
    for i in range(2):
        for j in range(2):
            out[i::2, j::2] = cv2.GaussianBlur(np.ascontiguousarray(out[i::2, j::2]), (0, 0), sigma)
    return noise(out, levels)


def dust(raw: np.ndarray) -> np.ndarray:
    """Forty soft specks on the lens or its cover: all polarizers behind them get less light."""
    rng, shade = np.random.default_rng(2), np.zeros(raw.shape, np.float32)
    for x, y in zip(rng.integers(0, raw.shape[1], 40), rng.integers(0, raw.shape[0], 40)):
        cv2.circle(shade, (int(x), int(y)), 35, 0.7, -1)
    return digital(raw * (1 - cv2.GaussianBlur(shade, (0, 0), 10)))


def fog(raw: np.ndarray) -> np.ndarray:
    """A veil of 30 %: unpolarized light of 160 levels before everything."""
    return digital(0.7 * raw + 0.3 * 160)


def stuck_line(raw: np.ndarray) -> np.ndarray:
    out = raw.copy()
    out[len(raw) // 3] = 255
    return out


def hot_pixels(raw: np.ndarray) -> np.ndarray:
    """One pixel in a thousand."""
    return np.where(np.random.default_rng(3).random(raw.shape) < 0.001, np.uint8(255), raw)


class Figures(NamedTuple):
    mean: float
    lowest: float


def consistency(raw: np.ndarray, **options: object) -> Figures:
    out = Pipeline(products="ssim", backend="cpu", **options)(raw)
    return Figures(float(out["ssim"]), float(out.blocks.min()))


def against(good: np.ndarray, raw: np.ndarray) -> Figures:
    """Mode `reference`, with the good frame's intensity; `temporal`, with the good frame before, is the same."""
    intensity = Pipeline(products="intensity", backend="cpu")(good)["intensity"]
    out = Pipeline(products="ssim", backend="cpu", ssim_mode="reference")(raw, reference=intensity)
    temporal = Pipeline(products="ssim", backend="cpu", ssim_mode="temporal")
    temporal(good)
    np.testing.assert_allclose(temporal(raw).blocks, out.blocks, atol=1e-5)  # float32, summed in another order
    return Figures(float(out["ssim"]), float(out.blocks.min()))


def test_good_frames_are_good(good: np.ndarray) -> None:
    assert consistency(good).mean > 0.99
    assert consistency(good).lowest > 0.95
    assert against(good, good) == (1, 1)
    assert against(good, noise(good, 1)).lowest > 0.99  # the next frame of a still scene


def test_noise_and_hot_pixels_lower_consistency(good: np.ndarray) -> None:
    for bad, drop in ((noise(good, 5.0), 0.03), (noise(good, 10.0), 0.12), (hot_pixels(good), 0.02)):
        assert consistency(bad).mean < consistency(good).mean - drop


@pytest.mark.parametrize(
    ("fault", "mean", "lowest"),
    [(defocus, 0.01, 0.2), (dust, 0.005, 0.2), (fog, 0.08, 0.2), (stuck_line, 0.005, 0.08)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_all_polarizers_share_lowers_the_comparison_with_a_good_frame_only(
    good: np.ndarray, fault: Callable[[np.ndarray], np.ndarray], mean: float, lowest: float
) -> None:
    bad = fault(good)
    found = against(good, bad)
    assert found.mean < 1 - mean
    assert found.lowest < 1 - lowest
    assert abs(consistency(bad).mean - consistency(good).mean) < 0.04  # what is left of the scene is less beside noise
