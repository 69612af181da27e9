"""The published `camera_info` against the published image, as ROS's package `image_geometry` uses the two together.

The DoLP of one raw frame rises along x, that of another along y, so each output pixel tells which point of the raw
frame it shows. Known points of the world are projected into the raw frame by OpenCV, and into the output by the
published `camera_info`; what the output shows there must be the same point of the raw frame.
"""

from __future__ import annotations

import itertools
import random
from functools import lru_cache
from typing import Any, Iterator, Tuple

import cv2
import numpy as np
import pytest
from calibrations import MODELS, turned
from rosbags_messages import decode, encode, typestore
from support import representative, wait_for
from test_processor import settings
from test_publisher import Bench, demand

from polar_pipeline.recordings import messages
from polar_pipeline.sensor.forward import expose
from polar_pipeline.sensor.mosaic import get_sensor

#: (height, width) of raw frames, and their camera.
RAW = (192, 256)
K = np.array([[190.0, 0, 124.2], [0, 187.0, 101.4], [0, 0, 1]])
#: Rotation to the rectified axes, and projection there.
R = cv2.Rodrigues(np.array([0.03, -0.04, 0.05]))[0]
P = np.array([[180.0, 0, 130.0, 0], [0, 182.0, 95.0, 0], [0, 0, 1, 0]])
#: How far an output may be from where `camera_info` says, in its pixels, as is required of it. Of 16-bit frames the
#: coordinates are known to 0.01 raw pixels; maps are rounded to 1/1024 of a pixel, by OpenCV before 5 to 1/64.
LIMIT = 0.1


class Pinhole:
    """What `image_geometry.PinholeCameraModel` makes of a `CameraInfo`: K and P of the image, binned and cut."""

    def __init__(self, info: Any) -> None:
        self.k, self.r = (np.array(row, float).reshape(3, 3) for row in (info.k, info.r))
        self.p = np.array(info.p, float).reshape(3, 4)
        self.d, self.is_fisheye = np.array(info.d, float), info.distortion_model == "equidistant"
        steps = (max(1, info.binning_x), info.roi.x_offset), (max(1, info.binning_y), info.roi.y_offset)
        for row, (binning, offset) in enumerate(steps):
            for matrix in (self.k, self.p):
                matrix[row, 2] -= offset
                matrix[row] /= binning

    def seen(self, world: np.ndarray) -> np.ndarray:
        """(n, 2): where the image shows points (n, 3) of the camera's axes."""
        project, zero = cv2.fisheye.projectPoints if self.is_fisheye else cv2.projectPoints, np.zeros(3)
        return np.asarray(project(world.reshape(-1, 1, 3), zero, zero, self.k, self.d)[0]).reshape(-1, 2)

    def project(self, world: np.ndarray) -> np.ndarray:
        """`project3dToPixel`: (n, 2) pixels of the rectified image, of points in its axes."""
        found = self.p @ np.vstack([world.T, np.ones(len(world))])
        return np.asarray((found[:2] / found[2]).T)

    def rectify(self, pixels: np.ndarray) -> np.ndarray:
        """`rectifyPoint`: pixels of the image -> pixels of the rectified image, both (n, 2)."""
        undistort = cv2.fisheye.undistortPoints if self.is_fisheye else cv2.undistortPoints
        return np.asarray(undistort(pixels.reshape(-1, 1, 2), self.k, self.d, R=self.r, P=self.p)).reshape(-1, 2)


def camera_info(model: str, binning: int) -> Any:
    """The calibration of the raw frames, as that of a sensor of which they are a binned part."""
    types = typestore().types
    header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](1, 2), "camera")
    k, p, size, offset = K.copy(), P.copy(), np.array(RAW), np.zeros(2, int)
    if binning > 1:
        size, offset = binning * size, np.array([16, 24])
        for matrix in (k, p):
            matrix[:2] *= binning
            matrix[:2, 2] += offset
    height, width = map(int, size + 2 * offset[::-1])
    part = (int(size[0]), int(size[1])) if binning > 1 else (0, 0)
    roi = types["sensor_msgs/msg/RegionOfInterest"](int(offset[0]), int(offset[1]), *part, False)
    arrays = (np.array(MODELS[model]), k.reshape(-1), R.reshape(-1), p.reshape(-1))
    return types[messages.CAMERA_INFO](header, height, width, model, *arrays, binning, binning, roi)


@lru_cache(maxsize=None)
def ramp(axis: int) -> np.ndarray:
    """A raw frame whose DoLP tells x (axis 0) or y (axis 1)."""
    x_and_y = np.meshgrid(np.arange(RAW[1]), np.arange(RAW[0]))
    s1 = 0.1 + 0.8 * x_and_y[axis] / RAW[1]
    return expose(np.stack([np.ones(RAW), s1, np.zeros(RAW)], -1) * 0.9, get_sensor("IMX250MZR"), 16)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.publisher.close()


def published(bench: Bench, info: Any, chosen: Any) -> Tuple[Any, np.ndarray]:
    """The `camera_info` of an output, and for each of its pixels (x, y) of the raw frame that it shows: (h, w, 2)."""
    topics, cdr = demand("dolp", others=["polarization/camera_info"]), encode(info, messages.CAMERA_INFO)
    for axis in (0, 1):
        bench.submit(axis, topics, ramp(axis), chosen=chosen, camera_info=cdr)
    wait_for(lambda: len(bench.sender.sent) == 2, "both frames")
    planes = []
    for sent in bench.sender.sent:
        dolp = messages.to_array(messages.decode_image(sent["polarization/dolp"]))
        planes.append((dolp - 0.1) / 0.8 * RAW[1])
    return decode(bench.sender.sent[0]["polarization/camera_info"], messages.CAMERA_INFO), np.stack(planes, -1)


#: Everything that an output can be, in an order in which pairs of values soon come.
CASES = list(
    itertools.product(MODELS, ("half", "full"), (1, 2, 4, 8), (0, 90, 180, 270), (False, True), (False, True), (1, 2))
)
random.Random(0).shuffle(CASES)


@pytest.mark.parametrize(
    ("model", "resolution", "scale", "rotate", "is_cut", "is_rectified", "binning"),
    representative(CASES, lambda row: itertools.combinations(row, 2)),
)
def test_known_points_are_where_camera_info_says(
    model: str,
    resolution: str,
    scale: int,
    rotate: int,
    is_cut: bool,
    is_rectified: bool,
    binning: int,
    bench: Bench,
) -> None:
    info, step = camera_info(model, binning), scale * (2 if resolution == "half" else 1)
    height, width = RAW if rotate % 180 == 0 else RAW[::-1]
    chosen = settings(
        resolution=resolution,
        output__scale=scale,
        output__rotate=rotate,
        output__roi=[width // step // 4, height // step // 3, 0, height // step // 2] if is_cut else [0, 0, 0, 0],
        output__rectify="camera_info" if is_rectified else "",
    )
    if is_rectified:
        chosen = chosen.rectified_by(messages.lens_of(messages.decode_camera_info(encode(info, messages.CAMERA_INFO))))
    got, shows = published(bench, info, chosen)
    assert (got.height, got.width) == shows.shape[:2]
    assert (got.binning_x, got.binning_y, got.roi.width, got.roi.height) == (0, 0, 0, 0)

    world = np.random.default_rng(1).uniform((-0.6, -0.45, 0.95), (0.6, 0.45, 1.05), (2000, 3))
    of_the_raw_frame, of_the_output = Pinhole(info), Pinhole(got)
    own = turned(world @ R.T if is_rectified else world, rotate)
    where = of_the_output.seen(own)
    inside = ((where >= 0) & (where <= np.array(shows.shape[1::-1]) - 1)).all(-1)
    assert inside.sum() >= 20
    places = where[inside].astype(np.float32)[:, np.newaxis]
    sampled = cv2.remap(shows.astype(np.float32), places, None, cv2.INTER_LINEAR)[:, 0]
    known = np.isfinite(sampled).all(-1)  # the rectified image shows pixels beyond the raw frame too
    assert known.mean() > 0.7
    difference = (sampled - of_the_raw_frame.seen(world[inside]))[known] / step
    assert np.abs(difference).max() < LIMIT

    rectified = own @ of_the_output.r.T
    difference = of_the_output.rectify(where[inside]) - of_the_output.project(rectified[inside])
    # OpenCV stops inverting a distortion after some iterations, near the borders 0.07 pixels off
    assert np.abs(difference).max() < LIMIT, "K, D, R and P fit together"
