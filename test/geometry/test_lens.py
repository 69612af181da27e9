"""Lens calibrations of inputs and outputs, what is refused, and where rectified images have pixels."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Sequence, Tuple

import cv2
import numpy as np
import pytest
from calibrations import MODELS, turned

from polar_pipeline import Pipeline
from polar_pipeline.geometry import CameraNumbers, Geometry, LensCalibration, make_lens, make_map, of_the_frame
from polar_pipeline.geometry.lens import load_lens
from polar_pipeline.recordings import messages
from polar_pipeline.sensor.frames import FrameError

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
        ("[100.0, 0.0", "[0.0, 0.0", "k is not a camera matrix"),
        ("[95.0, 0.0, 60.0, 0.0, 0.0, 96.0", "[96, 96, 60, 0, 96, 96", "p is not a camera matrix"),
        ("[95.0, 0.0, 60.0", "[1.0e-323, 0.0, 60.0", "p is not a camera matrix"),
        ("[-0.1, 0.01, 0.001, ", "[", "distortion_coefficients has 2 numbers, and states (1, 5)"),
        ("plumb_bob", "cylinder", "must be one of plumb_bob, rational_polynomial, equidistant, got 'cylinder'"),
        ("[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]", "[2, 0, 0, 0, 1, 0, 0, 0, 1]", "r is not a rotation"),
        ("image_width: 128", "image_width: wide", "image_width must be a number"),
        ("camera_matrix", "camera", "camera_matrix has no list called data"),
        ("distortion_coefficients", "distortion", "distortion_coefficients has no list called data"),
        (
            "rows: 3\n  cols: 4",
            "rows: 4\n  cols: 3",
            "projection_matrix has 12 numbers, and states (4, 3) rows and columns",
        ),
        ("cols: 5", "cols: 8", "distortion_coefficients has 5 numbers, and states (1, 8) rows and columns"),
        ("distortion_model: plumb_bob", "fisheye_model: 1", "the model equidistant has 4 coefficients, got 5"),
        ("camera_name: left", "fisheye_model: 1", "distortion_model 'plumb_bob' contradicts fisheye_model"),
        ("camera_name: left", "Image_Width: 128", "a name occurs twice"),
        (TEXT, "3", "it is not a mapping in YAML or JSON"),
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


def opencv_text(kind: str, d: Tuple[float, ...], names: Tuple[str, str], more: str = "") -> str:
    """A lens in the words of OpenCV's `FileStorage`, written by hand; `more` is "fisheye_model" or nothing."""
    k = (50.0, 0.0, 32.0, 0.0, 51.0, 24.0, 0.0, 0.0, 1.0)
    rows = ((names[0], 3, 3, k), (names[1], len(d), 1, d))
    if kind == "json":
        document: Dict[str, Any] = {"image_width": 64, "image_height": 48, **({more: 1} if more else {})}
        for name, h, w, data in rows:
            document[name] = {"type_id": "opencv-matrix", "rows": h, "cols": w, "dt": "d", "data": list(data)}
        return json.dumps(document, indent=4)
    matrices = "".join(
        f"{name}: !!opencv-matrix\n   rows: {h}\n   cols: {w}\n   dt: d\n   data: [ "
        + ", ".join(f"{number:g}." if number % 1 == 0 else f"{number!r}" for number in data)
        + " ]\n"
        for name, h, w, data in rows
    )
    first = {"1.0": "%YAML:1.0\n---\n", "2.x": "%YAML:1.0\n", "1.2": "%YAML 1.2\n---\n"}[kind]
    return f"{first}image_width: 64\nimage_height: 48\n{f'{more}: 1' if more else ''}\n{matrices}"


@pytest.mark.parametrize("kind", ["1.0", "2.x", "1.2", "json"])
@pytest.mark.parametrize(
    "names",
    [
        ("camera_matrix", "distortion_coefficients"),
        ("Camera_Matrix", "Distortion_Coefficients"),
        ("cameraMatrix", "distCoeffs"),
    ],
    ids="-".join,
)
@pytest.mark.parametrize(
    ("d", "more", "model", "kept"),
    [
        ((-0.2, 0.05, 0.001, 0.0, 0.0), "", "plumb_bob", 5),
        ((-0.2, 0.05, 0.001, 0.0, 0.0, 0.1, 0.2, 0.3), "", "rational_polynomial", 8),
        ((-0.2, 0.05, 0.001, 0.0, 0.0, 0.1, 0.2, 0.3) + (0.0,) * 6, "", "rational_polynomial", 8),
        ((0.02, -0.005, 0.001, 0.0), "fisheye_model", "equidistant", 4),
    ],
    ids=["5", "8", "14", "fisheye"],
)
def test_files_of_opencv(
    kind: str, names: Tuple[str, str], d: Tuple[float, ...], more: str, model: str, kept: int, tmp_path: Path
) -> None:
    """Their projection is the camera matrix, and nothing is rotated."""
    path = tmp_path / f"lens.{'json' if kind == 'json' else 'yml'}"
    path.write_text(opencv_text(kind, d, names, more))
    lens = load_lens(path)
    assert (lens.height, lens.width, lens.model, lens.d) == (48, 64, model, d[:kept])
    assert lens.matrix("k").tolist() == [[50, 0, 32], [0, 51, 24], [0, 0, 1]]
    assert lens.matrix("r").tolist() == np.eye(3).tolist()
    assert lens.matrix("p").tolist() == [[50, 0, 32, 0], [0, 51, 24, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize("kind", ["1.0", "json"])
@pytest.mark.parametrize(
    ("d", "said"),
    [
        ((0.1, 0.0, 0.0, 0.0), "4 distortion coefficients need a distortion_model, plumb_bob or equidistant"),
        ((0.1,) * 12, "12 distortion coefficients are of none of"),
    ],
)
def test_coefficients_without_a_model(kind: str, d: Tuple[float, ...], said: str, tmp_path: Path) -> None:
    """Four are those of two models, and thin prisms are not among the models."""
    path = tmp_path / f"lens.{'json' if kind == 'json' else 'yml'}"
    path.write_text(opencv_text(kind, d, ("camera_matrix", "distortion_coefficients")))
    with pytest.raises(ValueError, match=said) as caught:
        load_lens(path)
    assert str(caught.value).count("cannot be read") == 1


def test_xml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lens.xml").write_text('<?xml version="1.0"?>\n<opencv_storage>\n</opencv_storage>\n')
    with pytest.raises(ValueError, match=r"lens.xml cannot be read: it is not a mapping in YAML or JSON"):
        load_lens(tmp_path / "lens.xml")


def test_a_file_without_projection_and_rotation(tmp_path: Path) -> None:
    """As documented: the camera matrix projects, in the outputs' camera_info, too."""
    path = tmp_path / "left.yaml"
    without = TEXT[: TEXT.index("rectification_matrix")]
    path.write_text(without + "projection_matrix: null\n")
    assert load_lens(path).p == (100, 0, 63.5, 0, 0, 101, 47.5, 0, 0, 0, 1, 0)
    path.write_text(without)
    lens = load_lens(path)
    assert lens.matrix("r").tolist() == np.eye(3).tolist()
    assert lens.matrix("p").tolist() == [[100, 0, 63.5, 0], [0, 101, 47.5, 0], [0, 0, 1, 0]]


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
        ({"roi": (1, 2, -3, 4)}, r"roi must be in \[0, 65535\]"),
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


@pytest.mark.parametrize("d", [(1e300,) * 5, (0.0, 0.0, 1e5, 0.0, 0.0)])
def test_a_lens_that_shows_nothing_is_refused(d: Tuple[float, ...]) -> None:
    pipeline = Pipeline(rectify=lens("plumb_bob", d), backend="cpu")
    with pytest.raises(FrameError, match="shows no pixel of the frame") as refusal:
        pipeline(np.full(SHAPE, 99, np.uint8))
    assert refusal.value.cause == "output"


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


#: Raw (height, width), and the camera matrix.
RAW = (120, 160)
K = np.array([[130.0, 0, 81.2], [0, 128.0, 57.4], [0, 0, 1]])


def camera_info(model: str = "plumb_bob") -> messages.CameraInfo:
    r = cv2.Rodrigues(np.array([0.02, -0.03, 0.04]))[0]
    p = np.array([[120.0, 0, 80, -12], [0, 121, 60, 0], [0, 0, 1, 0]])
    arrays = (np.array(MODELS[model]), K.reshape(-1), r.reshape(-1), p.reshape(-1))
    return messages.CameraInfo(1_000_000_002, "cam", *RAW, model, *arrays)


def points() -> np.ndarray:
    """Points in front of the camera, (n, 3) in its axes."""
    return np.random.default_rng(1).uniform((-0.5, -0.35, 0.9), (0.5, 0.35, 1.2), (50, 3))


def on_the_image(info: Any, world: np.ndarray) -> np.ndarray:
    """(n, 2): where the image shows points, by OpenCV."""
    k, d = info.k.reshape(3, 3), info.d
    shaped = world.reshape(-1, 1, 3)
    project = cv2.fisheye.projectPoints if info.distortion_model == "equidistant" else cv2.projectPoints
    zero = np.zeros(3)
    return np.asarray(project(shaped, zero, zero, k, d)[0]).reshape(-1, 2)


def on_the_rectified_image(info: Any, world: np.ndarray) -> np.ndarray:
    """(n, 2): where the rectified image shows points."""
    seen = info.p.reshape(3, 4) @ np.vstack([info.r.reshape(3, 3) @ world.T, np.ones(len(world))])
    return np.asarray((seen[:2] / seen[2]).T)


def by_hand(pixels: np.ndarray, step: int, scale: int, rotate: int, roi: Tuple[int, int, int, int]) -> np.ndarray:
    """Raw pixels -> pixels of the output, one step after the other."""
    height, width = RAW[0] // step // scale, RAW[1] // step // scale
    x, y = ((pixels + 0.5) / step / scale - 0.5).T
    for _ in range(rotate // 90):
        x, y = y, width - 1 - x  # what was at the right is at the top
        height, width = width, height
    return np.stack([x - roi[0], y - roi[1]], -1)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("step", "scale", "rotate", "roi"),
    [
        *itertools.product((1, 2), (1, 2, 4, 8), (0, 90, 180, 270), [(0, 0, 0, 0)]),
        *((2, 2, rotate, (3, 5, 9, 11)) for rotate in (0, 90, 180, 270)),
    ],
)
def test_known_points_are_where_the_output_shows_them(
    model: str, step: int, scale: int, rotate: int, roi: Tuple[int, int, int, int]
) -> None:
    info, world = camera_info(model), points()
    geometry, source = Geometry(scale, rotate, roi, step=step), (RAW[0] // step, RAW[1] // step)
    size = geometry.output_size(source)
    for stride in (1, 2):
        got = messages.transform_camera_info(info, geometry, source, stride)
        assert (got.height, got.width) == (size[0] // stride, size[1] // stride)
        assert (got.binning, got.region, got.do_rectify) == ((0, 0), (0, 0, 0, 0), False)
        for show in (on_the_image, on_the_rectified_image):
            want = by_hand(show(info, world), step, scale, rotate, roi)
            want = (want + 0.5) / stride - 0.5
            # float64 throughout; the issue asks for 0.1
            np.testing.assert_allclose(show(got, turned(world, rotate)), want, atol=1e-9)


def test_binning_and_region_of_interest_of_the_input() -> None:
    """As `sensor_msgs/CameraInfo` defines them: K is of the sensor, the image is a part of it, binned."""
    info = replace(camera_info(), binning=(2, 4), region=(20, 8, 80, 120), do_rectify=True)
    assert messages.frame_size(info) == (20, 60)
    frame = messages.camera_numbers(info)
    seen = np.linalg.inv(K) @ (70.0, 50.0, 1)
    np.testing.assert_allclose((frame.k @ seen)[:2], ((70 - 20) / 2, (50 - 8) / 4))
    assert messages.frame_size(replace(info, region=(20, 8, 80, 0))) == (RAW[0] // 4, RAW[1] // 2)


def test_what_is_not_calibrated_stays_so() -> None:
    zeros = CameraNumbers(np.zeros((3, 3)), np.zeros(5), np.zeros((3, 3)), np.zeros((3, 4)))
    assert not any(matrix.any() for matrix in of_the_frame(zeros, (2, 2), (10, 10)))
    info = replace(camera_info(), k=np.zeros(9), p=np.zeros(12), r=np.zeros(9))
    got = messages.transform_camera_info(info, Geometry(2, 90, step=2), (60, 80))
    assert not any(getattr(got, name).any() for name in "kpr")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [1e300, np.inf, -np.inf, np.nan])
def test_a_message_may_have_any_numbers(number: float) -> None:
    info = camera_info()
    for name in "dkrp":
        wrong = replace(info, **{name: np.full_like(getattr(info, name), number)})
        messages.transform_camera_info(wrong, Geometry(2, 90), RAW)
        with suppress(FrameError):
            make_map(Geometry(lens=messages.lens_of(wrong)), RAW)


@pytest.mark.parametrize(("model", "count"), [("cylinder\n", 5), ("plumb_bob", 3), ("rational_polynomial", 12)])
def test_unknown_distortion_is_not_rotated(model: str, count: int) -> None:
    info = replace(camera_info(), distortion_model=model, d=np.full(count, 0.1))
    assert messages.transform_camera_info(info, Geometry(2), RAW).distortion_model == model
    got = re.escape(f"can be rotated, got the model {model!r} ({count})")
    with pytest.raises(FrameError, match=got) as caught:
        messages.transform_camera_info(info, Geometry(1, 90), RAW)
    assert caught.value.cause == "camera_info"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("step", "scale", "rotate"), [(1, 1, 0), (2, 1, 0), (2, 2, 90), (1, 4, 270)])
def test_points_of_rectified_outputs(model: str, step: int, scale: int, rotate: int) -> None:
    """Rectified images have no distortion: both K and P project points where the rectified image shows them."""
    info, world = camera_info(model), points()
    geometry = Geometry(scale, rotate, lens=messages.lens_of(info), step=step)
    source = (RAW[0] // step, RAW[1] // step)
    got = messages.transform_camera_info(info, geometry, source)
    assert (got.distortion_model, got.d.tolist(), got.r.tolist()) == ("plumb_bob", [0] * 5, np.eye(3).ravel().tolist())
    want = by_hand(on_the_rectified_image(info, world), step, scale, rotate, (0, 0, 0, 0))
    rectified = world @ info.r.reshape(3, 3).T
    np.testing.assert_allclose(on_the_rectified_image(got, turned(rectified, rotate)), want, atol=1e-9)
    # K is that of the left camera: without the baseline
    left = info.p.reshape(3, 4)[:, :3] @ rectified.T
    want = by_hand((left[:2] / left[2]).T, step, scale, rotate, (0, 0, 0, 0))
    np.testing.assert_allclose(on_the_image(got, turned(rectified, rotate)), want, atol=1e-9)
