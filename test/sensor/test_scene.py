"""Synthetic scenes are physical, and move; patterns have edges of the kind that their name says, blurred as asked."""

from __future__ import annotations

import sys
from typing import Tuple

import numpy as np
import pytest
from support import ROOT

from polar_pipeline import reference
from polar_pipeline.sensor import scene

sys.path.append(str(ROOT / "benchmarks"))
from edges import EDGES, PERIODS, edge_pattern


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
        gray = s0.mean(-1) if is_color else s0
        power = np.abs(np.fft.fft2((gray - gray.mean()) * np.outer(np.hanning(192), np.hanning(256)))) ** 2
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


SHAPE = (96, 112)


@pytest.mark.parametrize("name", EDGES)
def test_patterns_are_physical_and_repeat(name: str) -> None:
    stokes = edge_pattern(name, SHAPE, 0.35, seed=3)
    assert (stokes.dtype, stokes.shape) == (np.float32, (*SHAPE, 3))
    s0, degree = stokes[..., 0], np.hypot(stokes[..., 1], stokes[..., 2]) / stokes[..., 0]
    assert s0.min() > 0
    assert s0.max() <= 2
    assert degree.max() < 1
    assert np.array_equal(stokes, edge_pattern(name, SHAPE, 0.35, seed=3))
    assert np.abs(stokes - edge_pattern(name, SHAPE, 0.35, seed=4)).max() > 0.05


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("spread", [0.35, 0.6])
def test_patterns_have_one_kind_of_edge(name: str, spread: float) -> None:
    """Intensity and polarization do not change together; 1e-5: float32 sums of a blur."""
    stokes = edge_pattern(name, SHAPE, spread).astype(float)
    if "intensity" in name:
        assert np.ptp(stokes[..., 0]) > 0.15
        assert np.ptp(reference.dolp(stokes)) < 1e-5
        angle = 2 * reference.aolp(stokes)
        assert np.abs(np.exp(1j * angle) - np.exp(1j * angle[0, 0])).max() < 1e-5
    else:
        assert np.ptp(stokes[..., 0]) < (0.05 if name == "tape" else 1e-5)  # two layers of tape absorb a little
        assert np.ptp(stokes[..., 1:], axis=(0, 1)).max() > 0.15


@pytest.mark.parametrize("spread", [0.35, 0.6])
@pytest.mark.parametrize("period", [period for period in PERIODS if period > 2])  # at 2 px the harmonics alias
@pytest.mark.parametrize("kind", ["intensity", "polarization"])
def test_stripes_have_the_contrast_of_lens_and_pixel(kind: str, period: int, spread: float) -> None:
    """The first harmonic of a square wave through a Gaussian and a square pixel, by the closed form.

    3 %: what is painted in subpixels is not exactly a square wave, and a picture holds no whole number of periods.
    """
    stokes = edge_pattern(f"{kind} stripes, {period} px", (256, 256), spread).astype(float)
    plane = (
        stokes[..., 0] if kind == "intensity" else stokes[..., 1:] @ (stokes[7, 9, 1:] / np.hypot(*stokes[7, 9, 1:]))
    )
    y, x = np.mgrid[:256, :256] + 0.5
    fx, fy = np.cos(np.deg2rad(27)) / period, np.sin(np.deg2rad(27)) / period
    window = np.outer(np.hanning(256), np.hanning(256))
    wave = np.exp(-2j * np.pi * (fx * x + fy * y))
    found = 2 * abs((window * (plane - np.average(plane, weights=window)) * wave).sum()) / window.sum()
    step = 2 * 0.6 if kind == "intensity" else 2 * 2 * 0.45 * 0.9
    passed = np.exp(-2 * (np.pi * spread / period) ** 2) * np.sinc(fx) * np.sinc(fy)
    assert found == pytest.approx(step / 2 * 4 / np.pi * passed, rel=0.03)


def test_unknown_pattern() -> None:
    with pytest.raises(ValueError, match=r"lcd text; tape; .*got 'moon'"):
        edge_pattern("moon", SHAPE, 0.35)
