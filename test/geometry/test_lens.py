"""Lens calibrations from files, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest

from polar_pipeline import Pipeline
from polar_pipeline.geometry import make_lens
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
