"""Rectified outputs of the CPU backend: against the reference, OpenCV, and straight lines."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import cv2
import numpy as np
import pytest
from calibrations import MODELS, lens
from comparison import random_frame

from polar_pipeline import FrameError, Pipeline, RawFrame
from polar_pipeline.geometry import make_lens
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import get_sensor


@pytest.mark.parametrize("stereo", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_stokes_planes_are_those_of_opencv(model: str, stereo: bool) -> None:
    """`remap` of float64 planes by `initUndistortRectifyMap`, with the local rotation of S1 and S2 undone."""
    shape = (192, 256)
    of = lens(shape, model, stereo, zoom=1.2)
    y, x = np.mgrid[: shape[0], : shape[1]] / 40.0
    scene = np.stack([0.9 + 0.2 * np.sin(x + y), 0.4 * np.cos(x), 0.4 * np.sin(0.7 * y)], -1)
    raw = expose(scene, get_sensor("IMX250MZR"), 16)
    plain = Pipeline(products="stokes", backend="cpu", resolution="full", demosaic="bilinear")(raw)["stokes"]
    got = Pipeline(products="stokes,dolp", backend="cpu", resolution="full", demosaic="bilinear", rectify=of)(raw)
    module = cv2.fisheye if model == "equidistant" else cv2
    k, r, p = of.matrix("k"), of.matrix("r"), of.matrix("p")[:, :3]
    maps = module.initUndistortRectifyMap(k, np.array(of.d), r, p, shape[::-1], cv2.CV_32FC1)
    want = np.stack(
        [
            cv2.remap(np.ascontiguousarray(plane), *maps, cv2.INTER_LINEAR)
            for plane in np.moveaxis(plain.astype(float), -1, 0)
        ],
        -1,
    )
    inside = ~np.isnan(got["dolp"])
    inside = cv2.erode(inside.astype(np.uint8), np.ones((5, 5))) > 0
    assert inside.mean() > 0.5
    # positions differ by 1/1024 of a pixel here, and up to 1/64 in remap of older OpenCV; planes change by 0.03 a pixel
    np.testing.assert_allclose(got["stokes"][inside][:, 0], want[inside][:, 0], atol=6e-4)
    lengths = [np.hypot(image[..., 1], image[..., 2])[inside] for image in (got["stokes"], want)]
    np.testing.assert_allclose(*lengths, atol=6e-4)
    turned = (
        np.rad2deg(np.arctan2(got["stokes"][..., 2], got["stokes"][..., 1]) - np.arctan2(want[..., 2], want[..., 1]))
        / 2
    )
    by_hand = np.rad2deg(local_rotation(*maps))
    error = (turned - by_hand + 90) % 180 - 90
    strong = inside & (np.hypot(want[..., 1], want[..., 2]) > 0.1)
    assert np.abs(error[strong]).max() < 0.2  # 6e-4 of 0.1, and the slopes of OpenCV's float32 positions
    if stereo:
        assert np.abs(by_hand[inside]).mean() > 3, "the rotation in R is seen"


def local_rotation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Rotation of a map's Jacobian in radians, counter-clockwise, by its singular value decomposition."""
    (x_v, x_u), (y_v, y_u) = np.gradient(x.astype(float)), np.gradient(y.astype(float))
    u, _, v = np.linalg.svd(np.stack([np.stack([x_u, x_v], -1), np.stack([y_u, y_v], -1)], -2))
    rotation = u @ v
    return np.asarray(np.arctan2(rotation[..., 1, 0], rotation[..., 0, 0]))


def stick(degrees: float, shape: Tuple[int, int], flip: Tuple[bool, bool]) -> np.ndarray:
    """A frame of a bright stick whose light oscillates along it, 16 bit, as a camera reads it out mirrored.

    Args:
        degrees: Direction of the stick in the camera's own axes, counter-clockwise from +x.
        shape: (height, width) of the frame.
        flip: (ReverseX, ReverseY).
    """
    y, x = np.mgrid[: shape[0], : shape[1]].astype(float)
    x, y = x - (shape[1] - 1) / 2, (shape[0] - 1) / 2 - y
    angle = np.deg2rad(degrees)
    along, beside = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    light = 0.8 * np.exp(-((along / 22) ** 2) - (beside / 5) ** 2)
    polarizers = np.deg2rad(np.tile([[90, 45], [135, 0]], (shape[0] // 2, shape[1] // 2)))
    frame = np.rint(65535 * (light * np.cos(polarizers - angle) ** 2 + 0.01)).astype(np.uint16)
    return np.ascontiguousarray(frame[:: -1 if flip[1] else 1, :: -1 if flip[0] else 1])


def direction_of(image: np.ndarray) -> float:
    """Direction of the longer axis of what is bright in an image, in degrees, counter-clockwise from +x."""
    light = np.where(image > 0.1 * image.max(), image, 0).astype(float)
    y, x = np.mgrid[: image.shape[0], : image.shape[1]].astype(float)
    x, y = x - np.average(x, weights=light), np.average(y, weights=light) - y
    moments = [np.average(product, weights=light) for product in (x * x - y * y, 2 * x * y)]
    return float(np.rad2deg(np.arctan2(moments[1], moments[0])) / 2)


def apart(first: float, second: float) -> float:
    """From the second to the first direction without a head, in degrees, the shorter way round."""
    return (first - second + 90) % 180 - 90


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
@pytest.mark.parametrize("flip", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("roll", [None, 0.0, 5.0, -50.0])
def test_angles_follow_the_light_however_the_camera_reads_out(
    flip: Tuple[bool, bool], rotate: int, roll: Optional[float]
) -> None:
    """AoLP of a stick is its direction in the output; of a mirrored frame, in the output mirrored back."""
    shape, degrees = (96, 96), 20.0
    options: Dict[str, Any] = {"rotate": rotate, "flip": flip}
    if roll is not None:
        r = cv2.Rodrigues(np.array([0, 0, np.deg2rad(roll)]))[0].reshape(-1)
        k = (90.0, 0, 47.5, 0, 90, 47.5, 0, 0, 1)
        options["rectify"] = make_lens(shape, "plumb_bob", (0.0,) * 5, k, r, np.zeros(12))
    frame = RawFrame(stick(degrees, shape, flip), 65535)
    got = Pipeline(products="stokes,intensity", backend="cpu", **options)(frame)
    got = {name: np.nan_to_num(image) for name, image in got.items()}
    mirror = -1 if flip[0] != flip[1] else 1
    seen = direction_of(got["intensity"])
    # R turns from x to y, which is clockwise as y points down
    assert abs(apart(seen, mirror * degrees - (roll or 0) + rotate)) < 1
    bright = got["intensity"] > 0.2
    s1, s2 = got["stokes"][bright, 1:].sum(0)
    # pixels of a superpixel see different parts of a narrow stick
    assert abs(apart(np.rad2deg(np.arctan2(s2, s1)) / 2, mirror * seen)) < 1


@pytest.mark.parametrize("roi", [(10, 20, 30, 1), (30, 4, 1, 40), (31, 21, 1, 1)])
@pytest.mark.parametrize("options", [{}, {"rotate": 90}, {"resolution": "full", "demosaic": "bilinear", "scale": 2}])
def test_a_region_is_a_part_of_the_image(options: Dict[str, Any], roi: Tuple[int, int, int, int]) -> None:
    """Also one of a single row or column: its pixels turn as those of the complete image do."""
    shape = (96, 128)
    options = {"products": "intensity,stokes,dolp", "backend": "cpu", "rectify": lens(shape, turned=True), **options}
    whole, part = (Pipeline(**options, **row)(random_frame(shape, sigma=2.0)) for row in ({}, {"roi": roi}))
    x, y, width, height = roi
    for name, image in part.items():
        want = whole[name][y : y + height, x : x + width]
        assert image.shape == want.shape
        assert np.isfinite(want).any()
        # positions that round to the next 1/1024 of a pixel
        np.testing.assert_allclose(image, want, atol=2e-3, err_msg=name)


def test_outside_is_invalid() -> None:
    shape = (96, 128)
    of = lens(shape, zoom=0.4)
    raw = np.full(shape, 100, np.uint8)
    products = "intensity,angle_0,stokes,dolp,aolp,preview,ssim_map,ssim"
    floats = Pipeline(products=products, backend="cpu", rectify=of)(raw)
    outside = np.isnan(floats["intensity"])
    assert 0.3 < outside.mean() < 0.95
    assert floats.invalid == (0, 0), "pixels outside are neither saturated nor dark"
    for name in ("angle_0", "dolp", "aolp", "ssim_map"):
        np.testing.assert_array_equal(np.isnan(floats[name]), outside, err_msg=name)
    np.testing.assert_allclose(floats["intensity"][~outside], 100 / 255, atol=1e-6)
    assert floats["ssim"] == pytest.approx(1, abs=1e-6)
    as_bytes = Pipeline(products=products, backend="cpu", rectify=of, dtype="uint8")(raw)
    for name in ("intensity", "angle_0", "dolp", "aolp", "preview", "ssim_map"):
        assert not as_bytes[name][outside].any(), name
    assert as_bytes["intensity"][~outside].min() == 100


def test_lenses_that_do_not_fit() -> None:
    shape = (96, 128)
    pipeline = Pipeline(backend="cpu", rectify=lens(shape))
    with pytest.raises(FrameError, match="of 128x96 pixels, the frame has 64x48") as caught:
        pipeline(np.zeros((48, 64), np.uint8))
    assert caught.value.cause == "output"
    assert pipeline(np.zeros(shape, np.uint8))["dolp"].shape == (48, 64)
    with pytest.raises(FrameError, match="needs a lens calibration"):
        Pipeline(backend="cpu", rectify="camera_info")(np.zeros(shape, np.uint8))
