"""Where rectified images have pixels: of lens models that fold, only what is connected to the optical axis."""

from __future__ import annotations

from typing import Sequence, Tuple

import numpy as np
import pytest

from polar_pipeline.geometry import Geometry, LensCalibration, make_lens, make_map

#: Of frames, of which all is shown up to the first fold, and more beyond the second.
SHAPE = (120, 140)
F, ZOOM, CENTER = 90.0, 0.55, (69.5, 59.5)
#: r (1 + k1 r^2 + k2 r^4) has the slope (1 - 4 r^2)(1 - r^2): it folds at r = 1/2 and again at r = 1.
K1, K2 = -5 / 3, 4 / 5


def lens(model: str, d: Sequence[float], r: Sequence[float] = (0.0,) * 9) -> LensCalibration:
    k = (F, 0, CENTER[0], 0, F, CENTER[1], 0, 0, 1)
    p = (ZOOM * F, 0, CENTER[0], 0, 0, ZOOM * F, CENTER[1], 0, 0, 0, 1, 0)
    return make_lens(SHAPE, model, d, k, r, p)


def shown(of: LensCalibration, step: int = 1, scale: int = 1) -> np.ndarray:
    """Samples that a rectified image has."""
    source = (SHAPE[0] // step, SHAPE[1] // step)
    positions = make_map(Geometry(scale, lens=of, step=step), source).positions
    assert positions is not None
    return np.asarray(positions[..., 0] >= 0)


def radius(step: int = 1) -> np.ndarray:
    """Distance of rays from the optical axis in the plane z = 1, of the samples of a rectified image."""
    y, x = (np.mgrid[: SHAPE[0] // step, : SHAPE[1] // step] + 0.5) * step - 0.5
    return np.hypot(x - CENTER[0], y - CENTER[1]) / (ZOOM * F)


@pytest.mark.parametrize("scale", [1, 2])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(
    ("model", "d"),
    [
        ("plumb_bob", (K1, K2, 0, 0)),
        ("plumb_bob", (K1, K2, 0, 0, 0)),
        ("rational_polynomial", (K1, K2, 0, 0, 0, 0, 0, 0)),
        # r (1 + k1 r^2 + k2 r^4)(1 + r^2) / (1 + r^2)
        ("rational_polynomial", (K1 + 1, K2 + K1, 0, 0, K2, 1, 0, 0)),
        ("equidistant", (K1, K2, 0, 0)),
    ],
)
def test_nothing_is_shown_beyond_the_first_fold(model: str, d: Tuple[float, ...], step: int, scale: int) -> None:
    away = np.arctan(radius(step)) if model == "equidistant" else radius(step)
    raw = away * (1 + K1 * away**2 + K2 * away**4)
    assert ((away > 1) & (raw < 0.6)).mean() > 0.05, "a second image would fit into the frame"
    np.testing.assert_array_equal(shown(lens(model, d), step, scale), away < 0.5)


def test_nothing_is_shown_of_what_is_behind_the_camera() -> None:
    """Rectified axes at 60 degrees to the camera's: rays at the far end would hit the plane z = 1 from behind."""
    c, s = np.cos(np.pi / 3), np.sin(np.pi / 3)
    of = lens("plumb_bob", (K1, K2, 0, 0, 0), (c, 0, -s, 0, 1, 0, s, 0, c))
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    a, b = (x - CENTER[0]) / (ZOOM * F), (y - CENTER[1]) / (ZOOM * F)
    ahead, right = c - s * a, s + c * a  # z and x in the camera's axes: R transposed
    assert (ahead < 0).any()
    want = (ahead > 0) & (np.hypot(right, b) < 0.5 * ahead)
    assert want.any()
    np.testing.assert_array_equal(shown(of), want)


def test_no_raw_pixel_is_shown_twice() -> None:
    """Whatever the coefficients, tangential ones included: pixels far from each other show different raw pixels."""
    rng = np.random.default_rng(0)
    ghosts = 0
    for _ in range(40):
        d = (rng.uniform(-2, 0.5), rng.uniform(-0.5, 2), *rng.uniform(-0.03, 0.03, 2), rng.uniform(-0.2, 0.2))
        positions = make_map(Geometry(lens=lens("plumb_bob", d)), SHAPE).positions
        assert positions is not None
        y, x = np.nonzero(positions[..., 0] >= 0)
        assert len(x) > 200, "what surrounds the optical axis is shown"
        u, v = positions[y, x].T.astype(int)
        least, most = (np.full((2, *SHAPE), start, float) for start in (np.inf, -np.inf))
        for place, at in enumerate((x, y)):
            np.minimum.at(least[place], (v, u), at)
            np.maximum.at(most[place], (v, u), at)
        # within a raw pixel of the first fold the image changes slowly
        ghosts += np.count_nonzero((most - least).max(0) > 30)
    assert not ghosts
