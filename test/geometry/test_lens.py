"""Lens calibrations from files, what is refused, and where rectified images have pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Sequence, Tuple

import numpy as np
import pytest

from polar_pipeline import Pipeline
from polar_pipeline.geometry import Geometry, LensCalibration, make_lens, make_map
from polar_pipeline.geometry.file import load_lens

#: As camera_calibration writes it.
TEXT = """image_width: 128
image_height: 96
camera_name: left
camera_matrix:
  rows: 3
  cols: 3
  data: [100.0, 0.0, 63.5, 0.0, 101.0, 47.5, 0.0, 0.0, 1.0]
distortion_model: plumb_bob
distortion_coefficients:
  rows: 1
  cols: 5
  data: [-0.1, 0.01, 0.001, 0.002, 0.0]
rectification_matrix:
  rows: 3
  cols: 3
  data: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
projection_matrix:
  rows: 3
  cols: 4
  data: [95.0, 0.0, 60.0, 0.0, 0.0, 96.0, 50.0, 0.0, 0.0, 0.0, 1.0, 0.0]
"""


def test_a_file_of_camera_calibration(tmp_path: Path) -> None:
    path = tmp_path / "left.yaml"
    path.write_text(TEXT)
    lens = load_lens(path)
    assert (lens.height, lens.width, lens.model) == (96, 128, "plumb_bob")
    assert lens.d == (-0.1, 0.01, 0.001, 0.002, 0.0)
    assert lens.matrix("k")[1, 2] == 47.5
    assert lens.matrix("p").tolist()[1] == [0, 96, 50, 0]
    raw = np.random.default_rng(0).integers(0, 255, (96, 128)).astype(np.uint8)
    got, want = (Pipeline(products="dolp", backend="cpu", rectify=row)(raw)["dolp"] for row in (str(path), lens))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[100.0, 0.0, 63.5,", "[63.5,", "k must be 9 finite numbers"),
        ("[100.0, 0.0", "[.nan, 0.0", "k must be 9 finite numbers"),
        ("[100.0, 0.0", "[0.0, 0.0", "k is no camera matrix"),
        ("[-0.1, 0.01, 0.001, ", "[", "the model plumb_bob has 4 or 5 coefficients, got 2"),
        ("plumb_bob", "cylinder", "must be one of plumb_bob, rational_polynomial, equidistant, got 'cylinder'"),
        ("[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]", "[2, 0, 0, 0, 1, 0, 0, 0, 1]", "r is no rotation"),
        ("image_width: 128", "image_width: wide", "image_width must be a number"),
        ("projection_matrix", "projection", "projection_matrix has no list called data"),
        (TEXT, "3", "it is no mapping"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "bad.yaml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(ValueError, match=r"bad\.yaml cannot be read: ") as caught:
        load_lens(path)
    assert said in str(caught.value)
    with pytest.raises(ValueError, match="rectify: "):
        Pipeline(backend="cpu", rectify=path)


def test_what_zeros_mean() -> None:
    """No rotation, the camera matrix as projection, and no distortion."""
    k: Any = (100.0, 0, 63.5, 0, 101, 47.5, 0, 0, 1)
    lens = make_lens((0, 0), "", (), k, np.zeros(9), np.zeros(12))
    assert lens.matrix("p").tolist() == [[100, 0, 63.5, 0], [0, 101, 47.5, 0], [0, 0, 1, 0]]
    assert lens.matrix("r").tolist() == np.eye(3).tolist()
    assert not any(lens.d)


@pytest.mark.parametrize(
    "options",
    [{"products": "dolp_sigma"}, {"debias": True}, {"max_aolp_sigma": 5.0}],
)
@pytest.mark.parametrize("geometry", [{"scale": 2}, {"rotate": 90}, {"roi": (1, 0, 0, 0)}, {"rectify": "camera_info"}])
def test_what_a_geometry_excludes(options: Dict[str, Any], geometry: Dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="noise of a pixel"):
        Pipeline(**options, **geometry)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scale": 3}, "scale must be one of 1, 2, 4, 8, got 3"),
        ({"scale": 2.5}, "scale must be a whole number"),
        ({"rotate": 45}, "rotate must be one of 0, 90, 180, 270, got 45"),
        ({"rotate": -90}, "rotate must be one of"),
        ({"roi": (1, 2)}, r"roi must be \(x, y, width, height\), got \(1, 2\)"),
        ({"roi": (1, 2, -3, 4)}, "roi must be >= 0"),
        ({"roi": "all"}, "roi must be"),
        ({"rectify": 3}, "rectify must be a path, 'camera_info' or a LensCalibration, got 3"),
        ({"rectify": "/no/such.yaml"}, "rectify: /no/such.yaml cannot be read"),
    ],
)
def test_options_that_are_refused(options: Dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Pipeline(backend="cpu", **options)


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
