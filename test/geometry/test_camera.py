"""Lens calibrations of outputs: points of the world, projected by OpenCV, lie where the image shows them."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Tuple

import cv2
import numpy as np
import pytest

from polar_pipeline import messages
from polar_pipeline.geometry import CameraNumbers, Geometry, of_the_frame
from polar_pipeline.sensor.frames import FrameError

#: Raw (height, width), and coefficients of each model.
RAW = (120, 160)
MODELS: Dict[str, Tuple[float, ...]] = {
    "plumb_bob": (-0.2, 0.05, 0.01, -0.02, 0.003),
    "rational_polynomial": (0.3, 0.05, 0.01, -0.02, 0.003, 0.5, 0.1, 0.01),
    "equidistant": (0.02, -0.01, 0.003, 0.001),
}
K = np.array([[130.0, 0, 81.2], [0, 128.0, 57.4], [0, 0, 1]])


def camera_info(model: str = "plumb_bob") -> Any:
    types = messages.typestore().types
    r = cv2.Rodrigues(np.array([0.02, -0.03, 0.04]))[0]
    p = np.array([[120.0, 0, 80, -12], [0, 121, 60, 0], [0, 0, 1, 0]])
    header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](1, 2), "cam")
    roi = types["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
    arrays = (np.array(MODELS[model]), K.reshape(-1), r.reshape(-1), p.reshape(-1))
    return types[messages.CAMERA_INFO](header, *RAW, model, *arrays, 0, 0, roi)


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


def turned(world: np.ndarray, rotate: int) -> np.ndarray:
    """Points in the axes of the camera that took the rotated image: x to the right, y down."""
    x, y, z = world.T
    for _ in range(rotate // 90):
        x, y = y, -x
    return np.stack([x, y, z], -1)


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
        assert (got.binning_x, got.binning_y, got.roi.width, got.roi.do_rectify) == (0, 0, 0, False)
        for show in (on_the_image, on_the_rectified_image):
            want = by_hand(show(info, world), step, scale, rotate, roi)
            want = (want + 0.5) / stride - 0.5
            # float64 throughout; the issue asks for 0.1
            np.testing.assert_allclose(show(got, turned(world, rotate)), want, atol=1e-9)


def test_binning_and_region_of_interest_of_the_input() -> None:
    """As `sensor_msgs/CameraInfo` defines them: K is of the sensor, the image is a part of it, binned."""
    info = camera_info()
    info.binning_x, info.binning_y = 2, 4
    info.roi = messages.typestore().types["sensor_msgs/msg/RegionOfInterest"](20, 8, 80, 120, True)
    assert messages.frame_size(info) == (20, 60)
    frame = messages.camera_numbers(info)
    seen = np.linalg.inv(K) @ (70.0, 50.0, 1)
    np.testing.assert_allclose((frame.k @ seen)[:2], ((70 - info.roi.x_offset) / 2, (50 - info.roi.y_offset) / 4))
    info.roi.width = 0
    assert messages.frame_size(info) == (RAW[0] // 4, RAW[1] // 2)


def test_what_is_not_calibrated_stays_so() -> None:
    zeros = CameraNumbers(np.zeros((3, 3)), np.zeros(5), np.zeros((3, 3)), np.zeros((3, 4)))
    assert not any(matrix.any() for matrix in of_the_frame(zeros, (2, 2), (10, 10)))
    info = camera_info()
    info.k, info.p, info.r = np.zeros(9), np.zeros(12), np.zeros(9)
    got = messages.transform_camera_info(info, Geometry(2, 90, step=2), (60, 80))
    assert not any(getattr(got, name).any() for name in "kpr")


def test_unknown_distortion_is_not_rotated() -> None:
    info = camera_info()
    info.distortion_model = "cylinder\n"
    assert messages.transform_camera_info(info, Geometry(2), RAW).distortion_model == "cylinder\n"
    with pytest.raises(FrameError, match=r"can be rotated, got the model 'cylinder\\n'") as caught:
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
