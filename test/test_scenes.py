"""Synthetic scenes are physical, and move; patterns have edges of the kind that their name says."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import pytest
import scenes
from edges import EDGES, edge_pattern

from polar_pipeline.backends import reference


@pytest.mark.parametrize("name", scenes.SCENES)
@pytest.mark.parametrize("is_color", [False, True])
@pytest.mark.parametrize("shape", [(16, 16), (65, 48), (192, 256)])
def test_scenes_are_physical(name: str, is_color: bool, shape: Tuple[int, int]) -> None:
    stokes = scenes.synthetic(name, shape, is_color=is_color)
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


@pytest.mark.parametrize("name", scenes.SCENES)
def test_scenes_repeat_and_move(name: str) -> None:
    first = scenes.synthetic(name, (64, 80), seed=3)
    assert np.array_equal(first, scenes.synthetic(name, (64, 80), seed=3))
    for other in ({"seed": 4}, {"seed": 3, "time": 1.0}):
        assert np.abs(first - scenes.synthetic(name, (64, 80), **other)).max() > 0.05


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
