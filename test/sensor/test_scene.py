"""The synthetic scenes are physical, move, and tell good demosaic methods from bad ones."""

from __future__ import annotations

from typing import Dict, Tuple

import numpy as np
import pytest

from polar_pipeline import reference
from polar_pipeline.sensor import scene
from polar_pipeline.sensor.forward import sample_mosaic
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS, Sensor


@pytest.mark.parametrize("name", scene.SCENES)
@pytest.mark.parametrize("is_color", [False, True])
@pytest.mark.parametrize("shape", [(16, 16), (65, 48), (192, 256)])
def test_scenes_are_physical(name: str, is_color: bool, shape: Tuple[int, int]) -> None:
    stokes = scene.synthetic(name, shape, is_color=is_color)
    assert stokes.dtype == np.float32
    assert stokes.shape == (*shape, *((3, 3) if is_color else (3,)))
    s0 = stokes[..., 0]
    degree = np.hypot(stokes[..., 1], stokes[..., 2]) / s0
    assert s0.min() > 0
    assert s0.max() <= 2
    assert degree.max() <= 1
    if shape == (192, 256):
        assert 0.15 < s0.mean() / 2 < 0.5  # As photographs have it.
        assert np.percentile(degree, 99.9) > 0.5
        # Amplitudes that fall as 1/f leave each octave the same energy, and the lens takes from the last one; in white
        # noise the octave up to Nyquist has 16 times that of two octaves below.
        grey = s0.mean(-1) if is_color else s0
        power = np.abs(np.fft.fft2((grey - grey.mean()) * np.outer(np.hanning(192), np.hanning(256)))) ** 2
        radius = np.hypot(np.fft.fftfreq(192)[:, np.newaxis], np.fft.fftfreq(256))
        fine, coarse = (power[(radius > low) & (radius <= 2 * low)].sum() for low in (0.25, 0.0625))
        assert fine < coarse


@pytest.mark.parametrize("name", scene.SCENES)
def test_scenes_repeat_and_move(name: str) -> None:
    first = scene.synthetic(name, (64, 80), seed=3)
    assert np.array_equal(first, scene.synthetic(name, (64, 80), seed=3))
    for other in ({"seed": 4}, {"seed": 3, "time": 1.0}):
        assert np.abs(first - scene.synthetic(name, (64, 80), **other)).max() > 0.05


def test_unknown_scene() -> None:
    with pytest.raises(ValueError, match="spheres, plastic, window, got 'moon'"):
        scene.synthetic("moon", (32, 32))


def errors(angles: np.ndarray, truth: np.ndarray) -> Dict[str, float]:
    """Mean squared errors without the 8 pixels at the border."""
    inner = (slice(None), slice(8, -8), slice(8, -8))
    one, two = reference.stokes(angles[inner]), reference.stokes(truth[inner])
    wrong = (reference.aolp(one) - reference.aolp(two) + np.pi / 2) % np.pi - np.pi / 2
    pairs = {f"s{k}": one[..., k] - two[..., k] for k in range(3)}
    pairs.update(intensity=(angles - truth)[inner], dolp=reference.dolp(one) - reference.dolp(two), aolp=wrong)
    return {name: float((values**2).mean()) for name, values in pairs.items()}


@pytest.mark.parametrize("name", scene.SCENES)
@pytest.mark.parametrize("sensor", SENSORS.values(), ids=SENSORS)
def test_adaptive_demosaic_beats_bilinear_on_every_figure(name: str, sensor: Sensor) -> None:
    stokes = scene.synthetic(name, (192, 256), is_color=sensor.is_color).astype(float)
    theta = 2 * np.deg2rad(ANGLES)
    passed = [(stokes @ np.array([1, np.cos(t), np.sin(t)])) / 2 for t in theta]
    truth = np.rint(255 * np.clip(np.stack(passed), 0, 1)) / 255
    found = {}
    for debayer, demosaic in (("bilinear", "bilinear"), ("weighted", "adaptive")):
        mosaic = sample_mosaic(truth, sensor)
        method = reference.DEMOSAIC[demosaic]
        if sensor.is_color:
            rgb = reference.DEBAYER[debayer](mosaic, sensor)
            angles = np.stack([method(rgb[..., k], sensor) for k in range(3)], -1)
        else:
            angles = method(mosaic, sensor)
        found[demosaic] = errors(angles, truth)
    assert all(found["adaptive"][key] < found["bilinear"][key] for key in found["bilinear"]), found
